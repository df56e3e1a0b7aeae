"""The faults of a wire with a seed: the same in every run of the same program."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import userdma.soft

PROGRAM = """
from userdma import Qp, Region, Side

a, b = (Qp.make(nic) for nic in (a, b))
a.connect(b.endpoint)
b.connect(a.endpoint)
r, s = Region.host(a.nic, 4096), Region.host(b.nic, 4096)
for _ in range(300):
    for one, memory, other, far in ((a, r, b, s), (b, s, a, r)):
        other.receive(far, 0, 64)
        one.send(memory, 64, 8)
        while not (one.wait(Side.SEND, us=10**8) and other.wait(Side.RECEIVE, us=10**8)):
            raise SystemExit("a message was lost")
print([(n.function.stats()["wire_sent"], n.function.stats()["wire_lost"]) for n in (a.nic, b.nic)])
"""


def example() -> str:
    """The lines of the module's own example."""
    lines = re.findall(r"^    >>> (.*)$", userdma.soft.__doc__ or "", re.MULTILINE)
    assert any("loss=0.1, seed=7" in line for line in lines)
    return "\n".join(lines)


def test_the_modules_example_in_fresh_processes() -> None:
    """The NICs draw their MACs at random, and the faults do not depend on them."""
    text = example().replace("seed=7", "seed=7, clock=clock").replace("soft.bnxt(wire)", "soft.bnxt(wire, clock=clock)")
    text = text.replace("wire = ", "clock = soft.VirtualClock()\nwire = ") + textwrap.dedent(PROGRAM)
    runs = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=500, check=True).stdout
        for _ in range(3)
    ]
    assert runs[0] == runs[1] == runs[2]
    lost = [int(n) for n in re.findall(r", (\d+)\)", runs[0])]
    assert len(lost) == 2 and all(n > 10 for n in lost)
    other = text.replace("seed=7", "seed=8")
    assert subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=True).stdout != runs[0]
