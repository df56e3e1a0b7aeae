"""rdma-core's own pyverbs tests on the soft NICs, in guests: a program that writes what came of them as tables.

python tests/guest/pyverbs.py docs/pyverbs.md
python tests/guest/pyverbs.py --nics mlx5 --files test_odp
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import recipe
from lab import FAMILIES, Lab, Machine

TESTS = "/opt/rdma-core/tests"


@dataclass(frozen=True)
class Outcome:
    file: str
    case: str
    test: str
    result: str  # ok, failed, skipped, ended
    why: str = ""


# Prints the names of a module's tests in the order in which they run.
NAMES = """
import importlib, sys, unittest
sys.path[:0] = ["/opt/rdma-core/tests", "/opt/rdma-core"]
module = importlib.import_module("tests." + sys.argv[1])
for name in dir(module):
    case = getattr(module, name)
    if isinstance(case, type) and issubclass(case, unittest.TestCase):
        for test in unittest.defaultTestLoader.getTestCaseNames(case):
            print("NAME", f"{sys.argv[1]}.{name}.{test}")
"""


# The suite with a seed: it draws the attributes of its queue pairs, and with this one the library refuses few of them.
SUITE = """
import random, runpy, sys
random.seed(10)
sys.path.insert(0, "/opt/rdma-core/tests")
sys.argv[0] = "/opt/rdma-core/tests/run_tests.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""

_MASK = (
    "the test draws extended attributes (IBV_QP_INIT_ATTR_CREATE_FLAGS) that rdma-core's bnxt_re provider refuses with "
    "EINVAL, where the test skips at EOPNOTSUPP only; neither the kernel nor the NIC hears of it"
)
_STATE = "rdma-core's bnxt_re provider does not look at a queue pair's state when an entry is posted"

_RAW = (
    "the soft Thor2 has no queue pairs of raw Ethernet; this kernel asks the firmware for one, and answers EIO for its "
    "refusal, where the test skips at EOPNOTSUPP only"
)

_REFUSED = "this kernel answers EINVAL for the firmware's refusal of one, where the test skips at EOPNOTSUPP only"
_UC = (
    "the soft ConnectX has no queue pairs of unreliable connections and says so (cmd_hca_cap.uc is 0), which the "
    f"kernel does not look at; {_REFUSED}"
)
_XRC = (
    "the soft ConnectX has no queue pairs of extended reliable connections, but says that it has (cmd_hca_cap.xrc is "
    f"1), without which Linux 6.12's mlx5_ib does not load; {_REFUSED}"
)

# Why tests fail, by a pattern of their names, and of what is raised. On the Thor2 all but those of raw Ethernet are
# decided before the NIC.
EXPLAINED = {
    "bnxt": [
        (r"(FlowTest|RSSTrafficTest)\.\w+|QPTest\.test_\w*raw_qp\w*", r"Failed to create QP. Errno: 5", _RAW),
        (r"QPTest\.test_(create_\w+_qp_ex_\w+|modify_\w+_qp|query_\w+_qp)", r"Failed to create QP. Errno: 22", _MASK),
        (r"QpExTestCase\.test_post_(receive|send)_qp_state_bad_flow", r"", _STATE),
        (
            r"QpExTestCase\.test_rq_with_larger_sgl_bad_flow",
            r"12 != 22",
            "rdma-core's bnxt_re provider answers ENOMEM, not EINVAL, to a receive of too many parts",
        ),
        (
            r"QpExTestCase\.test_qp_ex_rc_atomic_write",
            r"status -11",
            "rdma-core's bnxt_re provider makes a queue pair for IBV_QP_EX_WITH_ATOMIC_WRITE although it has no such "
            "operations, and the test calls a null pointer",
        ),
    ],
    "mlx5": [
        (r"QPTest\.test_\w+_uc_qp\w*", r"Failed to create QP. Errno: 22", _UC),
        (r"\w+\.test_\w*xrc_\w+", r"Failed to create QP. Errno: 22", _XRC),
    ],
}


# What the kernels and the firmware say of queue pairs that a device has not; of the ConnectX also what NOTES explain.
MISSING = {
    "bnxt": re.compile(
        r"QP type \w+ not supported|QPLIB: cmdq\[.*\]=0x1 status 0x4$|Failed to create HW QP$"
        r"|create_qp: queue pairs of raw Ethernet are not implemented$"
    ),
    "mlx5": re.compile(
        r"CREATE_QP\(0x500\) .* status bad parameter\(0x3\)|create_qp:\d+:\(pid ...\): Create QP type (3|9|10) failed$"
        r"|create_qp: queue pairs of type [13] are not supported$"
        r"|MODIFY_CQ\(0x403\) .* status bad size too many outstanding CQEs"
        r"|modify_cq: completion queue 0x... has more entries than the new ring has room for$"
        r"|DEALLOC_UAR\(0x803\) .* status bad resource state|dealloc_uar: UAR 0x... is in use by \d+ others$"
    ),
}


def complaints(machine: Machine) -> Counter[str]:
    """What the kernel and the firmware complained of, without what is another number each time."""

    def general(text: str) -> str:
        text = re.sub(r": (cmdq_\w+|\w+_in)\(.*", "", text)  # the request
        text = re.sub(r"cmdq\[\w+\]", "cmdq[...]", text)
        text = re.sub(r"\(pid \d+\)", "(pid ...)", text)
        return re.sub(r"\b(UAR|queue) 0x\w+", r"\1 0x...", text)

    return Counter(general(each) for each in machine.trouble())


def explanation(outcome: Outcome, nic: str) -> str:
    """Why a test that failed does so; empty where that is not known."""
    for name, why, text in EXPLAINED[nic]:
        if re.fullmatch(name, f"{outcome.case}.{outcome.test}") and re.search(why, outcome.why):
            return text
    return ""


def run(
    machine: Machine, limit: int = 300, modules: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[Outcome]:
    """The outcomes of every test of the package that is not for another vendor's devices.

    Each file is a process of its own, with a time limit. Some tests end the interpreter: another goes on after them.
    """
    guest, device, gid = machine.guest, machine.family.device, machine.gid
    others = re.compile("test_efa" if device.startswith("mlx5") else "test_(mlx5|efa)")
    variables = {"PYTHONPYCACHEPREFIX": "/tmp/pycache", **(env or {})}
    known = [name.removesuffix(".py") for name in guest.run(f"cd {TESTS} && ls test_*.py").output.split()]
    for module in modules or [name for name in known if not others.match(name)]:
        left = [module]
        while left:
            command = ["timeout", str(limit), "python3", "-c", SUITE, "-v", "--dev", device, "--gid", str(gid)]
            result = guest.run([*command, *left], check=False, timeout=limit + 60, cwd=TESTS, env=variables)
            come = outcomes(module, result.output, result.status)
            yield from come
            if not come or come[-1].result != "ended":
                break
            listing = guest.run(["python3", "-c", NAMES, module], timeout=limit, env=variables).output
            names = re.findall(r"^NAME (\S+)$", listing, re.M)
            left = names[names.index(f"{module}.{come[-1].case}.{come[-1].test}") + 1 :]


def outcomes(module: str, output: str, status: int) -> list[Outcome]:
    """What unittest's verbose output says."""
    found = []
    reasons = dict(
        re.findall(
            r"^(?:FAIL|ERROR): (test_\w+) .*?\n-+\n.*?^(\w+(?:\.\w+)*(?:Error|Exception|Fail\w*)\b[^\n]*)",
            output,
            re.M | re.S,
        )
    )
    head = output.split("\n======", 1)[0]
    starts = [match.start() for match in re.finditer(r"^test_\w+ \(", head, re.M)] + [len(head)]
    for begin, end in itertools.pairwise(starts):
        text = head[begin:end]
        named = re.match(r"(test_\w+) \([\w.]*?(\w+)\.\1\)", text)
        if not named:
            continue
        test, case = named.groups()
        skipped = re.search(r"skipped (['\"])(.*?)\1", text, re.S)
        if skipped:
            found.append(Outcome(module, case, test, "skipped", " ".join(skipped[2].split())))
        elif re.search(r"\b(FAIL|ERROR)\b", text):
            found.append(Outcome(module, case, test, "failed", reasons.get(test, "")))
        elif re.search(r"\bok\b", text):
            found.append(Outcome(module, case, test, "ok"))
        else:
            found.append(Outcome(module, case, test, "ended", f"the interpreter ended with status {status}"))
    return found


def table(found: list[Outcome], nic: str) -> str:
    """Markdown: the sums by file, then what was skipped and what failed, by reason."""
    results = ("ok", "skipped", "failed", "ended")
    lines = ["| file | passed | skipped | failed | ended |", "|---|---|---|---|---|"]
    for file in dict.fromkeys(outcome.file for outcome in found):
        count = Counter(outcome.result for outcome in found if outcome.file == file)
        lines.append(f"| {file} | " + " | ".join(str(count[result]) for result in results) + " |")
    total = Counter(outcome.result for outcome in found)
    lines.append("| all | " + " | ".join(str(total[result]) for result in results) + " |")
    for result in ("failed", "ended", "skipped"):
        chosen = [outcome for outcome in found if outcome.result == result]
        if not chosen:
            continue
        lines += ["", f"| {result} | tests | why |", "|---|---|---|"]
        if result != "skipped":
            chosen = [
                replace(each, why=f"{explanation(each, nic) or 'not explained yet'} ({each.why or '-'})")
                for each in chosen
            ]
        for why in dict.fromkeys(outcome.why for outcome in chosen):
            of = [outcome for outcome in chosen if outcome.why == why]
            names = ", ".join(f"{outcome.case}.{outcome.test}" for outcome in of[:6])
            more = f" and {len(of) - 6} more" if len(of) > 6 else ""
            lines.append(f"| {len(of)} | {names}{more} | {why.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


NAMED = {"bnxt": "The soft Thor2 by bnxt_re", "mlx5": "The soft ConnectX by mlx5_ib"}
HEAD = """# pyverbs on the soft NICs

What came of rdma-core's own tests (`tests/` of rdma-core {version}, as Debian ships it) in guests whose kernels drive a
soft NIC; `python tests/guest/pyverbs.py docs/pyverbs.md` writes this file. Tests of other vendors' devices are left
out. A skipped test has the reason that the suite gives: the kernel's driver, the library or the machine lacks
something. What failed has an explanation, and what it raised behind it.

The suite draws the attributes of its queue pairs by chance; here with the seed 10. With others 3 to 9 of test_qp
fail on the Thor2 for extended attributes that the library refuses.
"""
KERNEL = """
## {nic}, Linux {release}
{library}
The kernel and the firmware complained of: {complaints}.
{note}
"""
LIBRARY = """
With a correction to the library, loaded before it (tests/guest/create_qp.c): its bnxt_re provider asks for a queue pair
with whatever its stack had in a word that this kernel looks at.
"""
NOTES = {
    "bnxt": "",
    "mlx5": """
The completion queue is test_resize_cq's, which asks for a ring that has no room. A UAR cannot be freed yet where a test
leaves queues behind: when the suite then closes the context, the library frees the UARs before the kernel ends the
queues. The kernel does not ask again, so the NIC keeps such a UAR until the driver ends. Whether a real ConnectX
refuses this too is not known. (The firmware's log keeps its last entries only.)
""",
}
VERSION = "readlink /usr/lib/x86_64-linux-gnu/libibverbs.so.1"


def section(nic: str, name: str, modules: Sequence[str] = ()) -> tuple[str, str]:
    """The library's version, and what came of its tests, or of some files of them, on a NIC and a kernel."""
    lab = Lab(name, 1, families=(nic,))
    try:
        machine = lab.machines[0]
        found = table(list(run(machine, modules=modules, env=lab.env)), nic)
        trouble = complaints(machine).items()
        said = "; ".join(f"`{text}` ({count} times)" for text, count in trouble) or "nothing"
        release = machine.run("uname -r").strip()
        head = KERNEL.format(
            nic=NAMED[nic], release=release, library=LIBRARY if lab.env else "", complaints=said, note=NOTES[nic]
        )
        return machine.run(VERSION).strip().split(".", 4)[-1], head + found
    finally:
        lab.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nics", default=",".join(FAMILIES))
    parser.add_argument("--kernels", default=",".join(recipe.KERNELS))
    parser.add_argument("--files", default="", help="of the suite, some only: test_odp,test_mr")
    parser.add_argument("output", type=Path, nargs="?")
    options = parser.parse_args()
    modules = [file for file in options.files.split(",") if file]
    sections = [section(nic, name, modules) for nic in options.nics.split(",") for name in options.kernels.split(",")]
    text = HEAD.format(version=sections[0][0]) + "".join(each for _, each in sections)
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
