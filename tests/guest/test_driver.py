"""Our drivers on soft Thor2s and ConnectXs that are PCI devices of a guest: by the kernel's VFIO and IOMMU, and by
physical addresses.

What runs there is in inside/; the NICs are served from here, where their firmware tells what it has given out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from guest import Guest, GuestError, edu, vfio_user

from conftest import HERE, Shared
from userdma import soft

A, B = "0000:00:05.0", "0000:00:06.0"
HUGE_PAGES = "mkdir -p /dev/hugepages && mount -t hugetlbfs none /dev/hugepages && echo 120 >/proc/sys/vm/nr_hugepages"


class NicGuest:
    """A guest with soft NICs on one wire, and this tree's package.

    With an IOMMU, it also has a group of edu and a function of another driver.
    """

    def __init__(
        self, kernel: str, *, iommu: bool, bind: bool = True, families: Sequence[str] = ("bnxt", "bnxt"), **options: Any
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="userdma-driver-")
        wire = soft.Wire()
        self.functions: list[Any] = [getattr(soft, family)(wire) for family in families]
        self.servers = [soft.serve(f, Path(self.folder.name, f"{i}.sock")) for i, f in enumerate(self.functions)]
        plugged: list[Any] = [vfio_user(s.socket, f"{5 + i:02x}.0", f"nic{i}") for i, s in enumerate(self.servers)]
        if iommu:
            plugged += [edu("0d.0", multifunction=True), {"driver": "virtio-rng-pci", "addr": "0d.1"}]
        self.guest = Guest(kernel, iommu=iommu, devices=plugged, name="driver", **options)
        self.guest.install()
        if iommu and bind:
            for bus in (A, B):
                self.guest.bind(bus, "vfio-pci")
        else:
            self.guest.run(HUGE_PAGES)
        self.idle = [f.firmware.counts() for f in self.functions]

    @property
    def running(self) -> bool:
        return self.guest.running

    def left(self) -> list[dict[str, tuple[int, int]]]:
        """What the firmware of each NIC has given out that it had not before."""
        found = []
        for function, before in zip(self.functions, self.idle, strict=True):
            now = function.firmware.counts()
            found.append({k: (before.get(k, 0), v) for k, v in now.items() if v != before.get(k, 0)})
        return found

    def close(self) -> None:
        self.guest.close()
        for server in self.servers:
            server.close()
        for function in self.functions:
            function.release()
        self.folder.cleanup()


@contextmanager
def used(shared: Shared, kernel: str, *, iommu: bool, last: bool = False, **options: Any) -> Iterator[NicGuest]:
    """A guest, whose NICs have nothing to do afterwards. `last`: no test can use it after this one, nor after a failed
    one."""
    here = shared.get(NicGuest, kernel, iommu=iommu, **options)
    try:
        yield here
        assert here.left() == [{}, {}]
    except BaseException:
        last = True
        print(f"console: {here.guest.keep('failed')}")
        raise
    finally:
        if last:
            shared.end(here)


WAYS = pytest.mark.parametrize("iommu", [True, False], ids=["vfio", "physical"])


@WAYS
def test_refusals(shared: Shared, kernel: str, iommu: bool) -> None:
    """Why a function cannot be taken, and what to change; DMA that the IOMMU stops."""
    with used(shared, kernel, iommu=iommu) as here:
        files = ["test_refusals_vfio.py", "test_faults_vfio.py"] if iommu else ["test_refusals_physical.py"]
        print(here.guest.pytest(HERE / "inside", *files))


def test_iommu_that_does_not_remap_interrupts(shared: Shared, kernel: str) -> None:
    with used(shared, kernel, iommu=True, bind=False, remapping=False, last=True) as here:
        print(here.guest.pytest(HERE / "inside", "test_no_remapping.py"))


def test_iommu_that_passes_physical_addresses_through(shared: Shared, kernel: str) -> None:
    with used(shared, kernel, iommu=True, bind=False, append="iommu=pt", last=True) as here:
        print(here.guest.pytest(HERE / "inside", "test_passthrough.py"))


@WAYS
def test_removed(shared: Shared, kernel: str, iommu: bool) -> None:
    """A function is removed while pairs are at work: they fail and say so, the machine goes on, and it can come back.

    By the kernel's `remove`, which is what the unplugging of a device ends in: QEMU 11.1's own `device_del` of a
    vfio-user-pci ends QEMU, by an assertion of its memory regions, once the guest has let the device go.
    """
    with used(shared, kernel, iommu=iommu) as here:
        here.guest.put(HERE / "inside", "/work/inside")
        program = here.guest.start(["python3", "removed.py", A, B], cwd="/work/inside")
        program.expect("at work", timeout=600)
        removal = here.guest.start(f"echo 1 >/sys/bus/pci/devices/{B}/remove")
        result = program.wait(600)
        assert result.status == 0, result.output
        why = (
            f"the function {B} has to be given back: it is unplugged, or taken from vfio-pci"
            if iommu
            else f"the function {B} left the bus: its reads are all ones"
        )
        assert f"ErrorKind.FLUSHED queue pair 0x400, receive entry 1: flushed, as the queue pair had failed: {why}" in (
            result.output
        )
        assert "and the other works" in result.output
        assert removal.wait(600).status == 0
        with pytest.raises(GuestError, match=rf"there is no PCI function {re.escape(B)}"):
            here.guest.run(f"userdma info {B}", timeout=600)
        here.guest.run("echo 1 >/sys/bus/pci/rescan")
        if iommu:
            here.guest.bind(B, "vfio-pci")
        assert "Thor2" in here.guest.run("userdma devices", timeout=600).output
        here.guest.run(f"userdma info {B}", timeout=600)


def test_left_the_bus(shared: Shared, kernel: str) -> None:
    """Behind VFIO a function that answers no more has failed too, though the kernel still answers for its numbers."""
    here = shared.get(NicGuest, kernel, iommu=True)
    try:
        here.guest.put(HERE / "inside", "/work/inside")
        program = here.guest.start(["python3", "removed.py", A, B], cwd="/work/inside")
        program.expect("at work", timeout=600)
        here.functions[1].vanish()
        result = program.wait(600)
        assert result.status == 0, result.output
        assert f"flushed, as the queue pair had failed: the function {B} left the bus: its reads are all ones" in (
            result.output
        )
        assert "and the other works" in result.output
        assert here.guest.run(f"cat /sys/bus/pci/devices/{B}/vendor").output.strip() == "0x14e4"
    finally:
        shared.end(here)


@WAYS
def test_forked(shared: Shared, kernel: str, iommu: bool) -> None:
    """A forked child lives on while its parent's NIC is closed, or left by a kill, and opened again."""
    with used(shared, kernel, iommu=iommu) as here:
        print(here.guest.pytest(HERE / "inside", "test_forked.py"))


@WAYS
def test_killed(shared: Shared, kernel: str, iommu: bool) -> None:
    """A process is killed at points of its work, at firmware commands and at any time, and the next one works."""
    with used(shared, kernel, iommu=iommu) as here:
        print(here.guest.pytest(HERE / "inside", "test_killed.py"))


@pytest.mark.full
@pytest.mark.timeout(3600)
@WAYS
def test_killed_at_every_point(shared: Shared, kernel: str, iommu: bool) -> None:
    with used(shared, kernel, iommu=iommu) as here:
        print(here.guest.pytest(HERE / "inside", "test_killed.py", "--full", timeout=3600))


# Of every file of the tests that any NIC can run some, on one NIC where one is enough.
SOME = (
    "test_a_nic",
    "test_a_peers_message_lands_while_this_process_sleeps",
    "test_each_ring_holds_4095_entries",
    "test_completions_in_the_order_of_the_entries",
    "test_a_failed_queue_pair_stays_failed",
    "test_it_then_serves_its_peers_reads",
    "test_memory_deregistered_meanwhile",
    "test_pages_of_a_numpy_array",
    "test_read_and_write_checks",
    "test_a_child_has_its_own_nic",
    "test_handlers_that_use_the_pair",
    "test_control_calls_beside_traffic",
    "test_pages_leak_nothing",
)
# Why one of them may be left out.
REASONS = re.compile("is known of NICs in software only|takes only memory of its alloc_dma")
UNPRIVILEGED = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


# What needs one NIC runs on the first of them.
FAMILIES = pytest.mark.parametrize("families", [("bnxt", "bnxt"), ("mlx5", "bnxt")], ids="-".join)


@FAMILIES
def test_the_tests_of_every_nic_by_vfio(shared: Shared, kernel: str, families: Sequence[str]) -> None:
    """By a user who has nothing but the files of the groups and a raised limit of locked memory."""
    with used(shared, kernel, iommu=True, families=families) as here:
        some(here, iommu=True)


@FAMILIES
def test_the_tests_of_every_nic_by_physical_addresses(shared: Shared, kernel: str, families: Sequence[str]) -> None:
    with used(shared, kernel, iommu=False, families=families) as here:
        some(here, iommu=False)


def some(here: NicGuest, iommu: bool) -> None:
    said = every_nics_tests(here, iommu, "-k", f"({' or '.join(SOME)}) and not [{B}")
    missing = [name for name in SOME if name not in said]
    assert not missing, said


@pytest.mark.full
@pytest.mark.timeout(5400)
@WAYS
@pytest.mark.parametrize("families", [("bnxt", "bnxt"), ("mlx5", "mlx5"), ("bnxt", "mlx5")], ids="-".join)
def test_all_the_tests_of_every_nic(shared: Shared, kernel: str, iommu: bool, families: Sequence[str]) -> None:
    with used(shared, kernel, iommu=iommu, families=families, memory="4G", last=True) as here:
        if not iommu:
            here.guest.run("echo 1000 >/proc/sys/vm/nr_hugepages")
        every_nics_tests(here, iommu)


def every_nics_tests(here: NicGuest, iommu: bool, *arguments: str) -> str:
    """The Python tests that take NICs by name, on both of the machine's; what pytest said."""
    prefix: list[str] = []
    if iommu:
        for bus in (A, B):
            here.guest.run(f"chown 1000:1000 /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/{bus}/iommu_group))")
        prefix = ["prlimit", f"--memlock={1 << 30}", *UNPRIVILEGED]
    said = here.guest.pytest(
        HERE.parent / "python",
        *("--only-nics", "--nics", f"{A},{B}", "-rs", "-vv", "--durations", "20", *arguments),
        prefix=prefix,
        env={"HOME": "/tmp", "TMPDIR": "/tmp"},
        timeout=5000,
    )
    print(said)
    unknown = [line for line in said.splitlines() if line.startswith("SKIPPED") and not REASONS.search(line)]
    assert not unknown
    return said


def test_lockdown(shared: Shared, kernel: str) -> None:
    with used(shared, kernel, iommu=False, last=True) as here:
        here.guest.run("mount -t securityfs none /sys/kernel/security; echo integrity >/sys/kernel/security/lockdown")
        here.guest.pytest(HERE / "inside", "test_lockdown.py")
