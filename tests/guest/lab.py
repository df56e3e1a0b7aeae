"""Guests with soft NICs on one wire, whose kernels' drivers drive them: bnxt_en and bnxt_re, mlx5_core and mlx5_ib."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest import Guest, GuestError, Result, vfio_user

from userdma import soft
from userdma.bnxt.hwrm import ErrorCode
from userdma.mlx5.constants import Status
from userdma.soft.faults import Entry

PCI = "0000:00:05.0"
NET = "eth0"

# What the drivers say, at any level, when something is not as it should be.
TROUBLE = re.compile(
    r"(bnxt|mlx5|infiniband|rdma|ib_).*(error|fail|timeout|stall|refus|status|warn|invalid|hung)"
    r"|WARNING|BUG:|Call Trace",
    re.I,
)
# What bnxt_en reports as an error although it was told to do it, what mlx5_core finds out about a NIC to which every
# store is a message, and what a kernel says of a busy machine.
FINE = re.compile(
    r"bnxt_en \S+ \w+: NIC Link is Down *$|mlx5_core_test_wc:\d+:\(pid \d+\): Write combining is not supported$"
    r"|hrtimer: interrupt took|hogged CPU|clocksource: "
)


@dataclass(frozen=True)
class Family:
    """A family of NICs, and the kernel's drivers of it."""

    make: Callable[..., Any]  # a soft NIC, as soft.bnxt
    ethernet: str  # the drivers' modules
    roce: str
    device: str  # the RDMA device
    unknown: int  # how the firmware refuses a command that it does not know


FAMILIES = {
    "bnxt": Family(soft.bnxt, "bnxt_en", "bnxt_re", "bnxt_re0", ErrorCode.CMD_NOT_SUPPORTED),
    "mlx5": Family(soft.mlx5, "mlx5_core", "mlx5_ib", "mlx5_0", Status.BAD_OP_ERR),
}

# The first GID of RoCE v2 with an IPv4 address.
GID = """
cd /sys/class/infiniband/DEVICE/ports/1
for at in $(ls gids | sort -n); do
  if grep -q '0000:0000:0000:0000:0000:ffff:' gids/$at && grep -q 'RoCE v2' gid_attrs/types/$at 2>/dev/null; then
    echo $at
    break
  fi
done
"""


# A server of rdma-core's or perftest's tools takes its clients: by TCP, or by RDMA CM.
LISTENING = "grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6 || rdma resource show cm_id | grep -q LISTEN"


def until(condition: str) -> str:
    """A line for the shell that waits for it, as long as a busy machine may take."""
    return f"while [ $SECONDS -lt 300 ]; do if {condition}; then exit; fi; sleep 0.1; done; exit 1"


def mend_rdma_core(kernel: str, guest: Guest) -> dict[str, str]:
    """What a program of rdma-core's needs in its environment to make a queue pair of a Thor2's: see create_qp.c."""
    if kernel == "6.12":
        return {}
    with tempfile.TemporaryDirectory(prefix="userdma-") as folder:
        library = Path(folder, "create_qp.so")
        source = Path(__file__).with_name("create_qp.c")
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
        guest.put(library, "/opt/userdma")
    return {"LD_PRELOAD": "/opt/userdma/create_qp.so"}


class Machine:
    """A guest and its NIC."""

    def __init__(self, guest: Guest, function: Any, address: str, family: str = "bnxt") -> None:
        self.guest = guest
        self.family = FAMILIES[family]
        self._function = function
        self.address = address
        self.gid = 0
        self.mtu = 0
        self.said: list[str] = []  # what the kernel said so far
        self._entry: Entry | None = None  # the last of the firmware's log that was looked at
        self.complaints()  # those of the boot are not the drivers'

    @property
    def function(self) -> Any:
        assert self._function is not None, "its NIC is not of this process"
        return self._function

    def run(self, command: str) -> str:
        return self.guest.run(command, timeout=600).output

    def load(self, *, roce: bool = True) -> None:
        """Loads the drivers."""
        self.run(f"modprobe {self.family.ethernet}")
        if roce:
            self.run(f"modprobe {self.family.roce} && modprobe rdma_ucm && modprobe ib_umad")

    def unload(self) -> None:
        self.run(f"modprobe -r {self.family.roce} && modprobe -r {self.family.ethernet}")

    def up(self, *, mtu: int = 1500, roce: bool = True) -> None:
        """Brings the interface up, and the RDMA device's port."""
        self.mtu = mtu
        self.run(f"ip address replace {self.address}/24 dev {NET} && ip link set {NET} mtu {mtu} up")
        self.carrier()
        if roce:
            gid = GID.replace("DEVICE", self.family.device)
            self.run(until(f"grep -qs ACTIVE /sys/class/infiniband/{self.family.device}/ports/1/state"))
            self.run(until(f'[ -n "$({gid})" ]'))
            self.gid = int(self.run(gid))

    def carrier(self) -> None:
        self.run(until(f"[ $(cat /sys/class/net/{NET}/carrier) = 1 ]"))

    def ping(self, to: str, *options: str) -> None:
        # Until three answers came: without a deadline it waits for the last no longer than twice as for another.
        said = self.run(f"ping -c 3 -i 0.2 -w 300 {' '.join(options)} {to}")
        received = re.search(r" (\d+) received,", said)
        assert received and int(received[1]) >= 3, said

    def statistics(self) -> dict[str, int]:
        """What the RDMA device counts."""
        (shown,) = json.loads(self.run(f"rdma -j statistic show link {self.family.device}/1"))
        return {name: value for name, value in shown.items() if isinstance(value, int)}

    def complaints(self) -> list[str]:
        """What the kernel said since this was last asked that it must not say: warnings, and trouble at any level."""
        found = []
        level = ""
        for line in self.guest.run("dmesg --read-clear --decode").output.splitlines():
            begins = re.match(r"\w+ *:(\w+) *: \[ *[\d.]+\] ", line)
            text = line[begins.end() :] if begins else line
            level = begins[1] if begins else level
            self.said.append(text)
            bad = level in ("emerg", "alert", "crit", "err", "warn") or TROUBLE.search(text)
            if bad and not FINE.search(text):
                found.append(text)
        return found

    def trouble(self) -> list[str]:
        """New complaints of the kernel's; what the firmware refused, and its bugs."""
        firmware = self.function.firmware
        log = firmware.log
        new = next((at + 1 for at in range(len(log) - 1, -1, -1) if log[at] is self._entry), 0)
        self._entry = log[-1] if log else None
        # A NIC may have calls of a driver not.
        refused = [entry for entry in log[new:] if entry.status and entry.status != self.family.unknown]
        told = [f"{entry.name}: {entry.why}: {entry.request}" for entry in refused]
        return [*self.complaints(), *told, *firmware.bugs]


class Lab:
    """Machines on one wire."""

    def __init__(
        self,
        kernel: str,
        count: int = 2,
        *,
        roce: bool = True,
        families: tuple[str, ...] = ("bnxt", "bnxt"),
        **options: Any,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="userdma-lab-")
        self.wire = soft.Wire()
        self.machines: list[Machine] = []
        self.env: dict[str, str] = {}  # of rdma-core's programs
        self._ends: list[Callable[[], Any]] = [self.folder.cleanup]
        try:
            for number in range(1, count + 1):
                family = families[number - 1]
                function = FAMILIES[family].make(self.wire, mac=bytes([2, 0, 0, 0, 0, number]))
                self._ends.append(function.release)
                server = soft.serve(function, Path(self.folder.name, f"nic{number}"))
                self._ends.append(server.close)
                guest = Guest(kernel, devices=[vfio_user(server.socket)], name=f"machine{number}", **options)
                self._ends.append(guest.close)
                self.machines.append(Machine(guest, function, f"10.0.0.{number}", family))
            if roce and "bnxt" in families[:count]:
                for machine in self.machines:
                    self.env = mend_rdma_core(kernel, machine.guest)
            for machine in self.machines:
                machine.load(roce=roce)
                machine.up(roce=roce)
        except BaseException:
            self.close()
            raise

    @property
    def running(self) -> bool:
        return all(machine.guest.running for machine in self.machines)

    def mtu(self, mtu: int) -> None:
        """Has the machines use it, where they do not."""
        for machine in self.machines:
            if machine.mtu != mtu:
                machine.up(mtu=mtu)

    def close(self) -> None:
        while self._ends:
            self._ends.pop()()

    def both(self, server: str, client: str, timeout: float = 600) -> tuple[Result, Result]:
        """A program on the first machine, and its client on the second once it listens."""
        one, two = (machine.guest for machine in self.machines)
        first = one.start(server, env=self.env)
        try:
            end = time.monotonic() + timeout
            while one.run(LISTENING, check=False).status and not first.ended(0.1):
                if time.monotonic() > end:
                    raise GuestError(f"{server} does not listen")
            second = two.run(client, check=False, timeout=timeout, env=self.env)
            if second.status and not first.ended(60):
                first.kill()
            return first.wait(timeout), second
        except BaseException:
            first.kill()
            raise

    def tool(self, tool: str, options: str, *, cm: bool = False) -> str:
        """A tool of rdma-core's or perftest's between the machines, by the first one's address: what its client said.

        Both must end well. `cm`: the device is found by the address.
        """
        one, two = self.machines
        flag = "-x" if tool.startswith("ib_") else "-g"
        device = ["" if cm else f"-d {machine.family.device} {flag} {machine.gid}" for machine in (one, two)]
        first, second = self.both(f"{tool} {device[0]} {options}", f"{tool} {device[1]} {options} {one.address}")
        assert (first.status, second.status) == (0, 0), f"{first.output}\n{second.output}"
        return second.output


@contextmanager
def watched(lab: Lab) -> Iterator[Lab]:
    """Machines of which afterwards neither kernel nor firmware complains."""
    yield lab
    assert [machine.trouble() for machine in lab.machines] == [[]] * len(lab.machines)
