"""Without an IOMMU: why a function cannot be taken, and what to change, word for word. The NIC is at 05.0."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from killed import MAP_HUGETLB

import userdma
from conftest import FUNCTIONS, as_user, bind, driver_of, refusal
from userdma import Qp, Region, Side, _core, pci

NIC, OTHER, DISK, BRIDGE = "0000:00:05.0", "0000:00:06.0", "0000:00:10.0", "0000:00:1f.0"
NR = Path("/proc/sys/vm/nr_hugepages")
FOLDER = "/dev/hugepages"
FILE = f"{FOLDER}/userdma-{NIC}"


@pytest.fixture(autouse=True)
def huge_pages() -> Iterator[None]:
    os.makedirs(FOLDER, exist_ok=True)
    if not os.path.ismount(FOLDER):
        subprocess.run(["mount", "-t", "hugetlbfs", "none", FOLDER], check=True)
    before = NR.read_text()
    NR.write_text("40")
    yield
    if not os.path.ismount(FOLDER):
        subprocess.run(["mount", "-t", "hugetlbfs", "none", FOLDER], check=True)
    NR.write_text(before)


def test_another_driver() -> None:
    assert driver_of(DISK) == "virtio-pci"
    assert refusal(lambda: _core.pci_open(DISK, "physical")) == (
        f"{DISK} belongs to the kernel's driver virtio-pci: `driverctl --nosave set-override {DISK} none` unbinds it "
        "(as root)"
    )


def test_vfio_has_no_iommu_to_use() -> None:
    with pytest.raises((OSError, AssertionError)):
        bind(NIC, "vfio-pci")  # the kernel's own refusal
    assert driver_of(NIC) == ""
    (FUNCTIONS / NIC / "driver_override").write_text("\n")
    with userdma.open(NIC) as nic:
        assert nic.function.addressing == "physical"


def test_not_root() -> None:
    text = (
        f"cannot open /sys/bus/pci/devices/{NIC}/config: Permission denied: taking a function by its physical "
        "addresses needs root"
    )
    assert refusal(lambda: as_user(lambda: userdma.open(NIC))) == text
    assert as_user(lambda: [(f.kind, f.change) for f in pci.functions() if f.bus == NIC]) == [("", text)]


def test_no_hugetlbfs() -> None:
    subprocess.run(["umount", FOLDER], check=True)
    assert refusal(lambda: userdma.open(NIC)) == ("no hugetlbfs is mounted: `mount -t hugetlbfs none /dev/hugepages`")


def test_no_huge_pages() -> None:
    NR.write_text("0")
    function = pci.take(NIC)
    try:
        assert refusal(lambda: function.alloc_dma(3 << 20)) == (
            f"cannot map huge pages: {os.strerror(errno.ENOMEM)}: the machine has no 4 MiB of huge pages left for "
            f"{FILE}; `echo N > /proc/sys/vm/nr_hugepages` reserves N of 2 MiB (HugePages_Free in /proc/meminfo says "
            "how many are left)"
        )
        # What the text says to do works, and the same function goes on.
        NR.write_text("2")
        assert function.alloc_dma(3 << 20).size == 3 << 20
    finally:
        function.release()


def test_root_without_its_capabilities() -> None:
    """A container's root, for one: it is not let enable a device. The limit of locked memory is of no matter, as huge
    pages are not swapped."""
    program = [sys.executable, "-c", f"from userdma import pci; pci.take('{NIC}').alloc_dma(4096)"]
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    done = subprocess.run([*without, *program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        f"the kernel does not enable {NIC}: {os.strerror(errno.EPERM)}: root is needed, with CAP_SYS_ADMIN"
    )
    without = ["prlimit", "--memlock=0", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]
    subprocess.run([*without, *program], check=True)


def test_another_network_namespace() -> None:
    """It has its own /sys, with files and locks of its own, and the same functions."""
    program = "import sys; from userdma import pci; pci.take(sys.argv[1])"
    elsewhere = ["unshare", "--net", "--mount", "sh", "-c", 'mount -t sysfs none /sys && exec "$@"', "sh"]
    command = [*elsewhere, sys.executable, "-c", program, NIC]
    function = pci.take(NIC)
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].endswith(f"{NIC} is driven by another process (`fuser -v {FILE}`)")
        assert not function.failed
    finally:
        function.release()
    subprocess.run(command, check=True)


def test_no_driver_takes_it_meanwhile() -> None:
    """A module that is loaded binds to every function that it fits and that has no driver."""
    other = FUNCTIONS / OTHER / "driver_override"
    other.write_text("none")
    function = pci.take(NIC)
    try:
        assert (FUNCTIONS / NIC / "driver_override").read_text() == "userdma\n"
        subprocess.run(["modprobe", "bnxt_en"], check=True)
        assert driver_of(NIC) == "" and not function.failed
    finally:
        function.release()
        subprocess.run(["modprobe", "-r", "bnxt_en"], check=True)
        other.write_text("\n")
    assert (FUNCTIONS / NIC / "driver_override").read_text() == "(null)\n"


def test_no_reset() -> None:
    """A function that cannot be reset by itself is not taken, and is left as it was."""
    assert driver_of(BRIDGE) == "" and not (FUNCTIONS / BRIDGE / "reset").exists()
    enabled = (FUNCTIONS / BRIDGE / "enable").read_text()
    assert refusal(lambda: _core.pci_open(BRIDGE, "physical")) == (
        f"{BRIDGE} cannot be reset by itself (no function-level reset), so it cannot be taken safely"
    )
    assert (FUNCTIONS / BRIDGE / "enable").read_text() == enabled


def frames(address: int, n: int) -> list[int]:
    """Where memory of this process is (Documentation/admin-guide/mm/pagemap.rst)."""
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(address // 4096 * 8)
        data = file.read(n // 4096 * 8)
    return [int.from_bytes(data[at : at + 8], "little") & (1 << 55) - 1 for at in range(0, len(data), 8)]


def migrated() -> int:
    """Pages that the kernel has moved."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("pgmigrate_success ")))


@pytest.fixture
def memory() -> Iterator[Any]:
    """DMA memory whose pages are where they were, afterwards."""
    function = pci.take(NIC)
    try:
        memory = function.alloc_dma(6 << 20)
        addresses = [page // 4096 for page in memory.pages()]
        assert frames(memory.address, memory.size) == addresses
        yield memory
        assert frames(memory.address, memory.size) == addresses
    finally:
        function.release()


@pytest.mark.parametrize("value", ["0", "1"])
def test_compaction_moves_none(memory: Any, value: str) -> None:
    """Nothing is asked of vm.compact_unevictable_allowed: huge pages stay where they are, whatever it says."""
    setting = Path("/proc/sys/vm/compact_unevictable_allowed")
    before = setting.read_text()
    try:
        setting.write_text(value)
        moved = migrated()
        for size in (64, 96, 128, 160, 192, 224):  # until there was something to move
            with mmap.mmap(-1, size << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
                area.madvise(mmap.MADV_NOHUGEPAGE)
                area[:] = b"x" * len(area)
                for at in range(0, len(area), 8192):  # memory full of holes
                    area.madvise(mmap.MADV_DONTNEED, at, 4096)
                Path("/proc/sys/vm/compact_memory").write_text("1")
            if migrated() > moved:
                break
        assert migrated() > moved
    finally:
        setting.write_text(before)


def test_soft_offline_moves_none(memory: Any) -> None:
    """What the kernel does of its own with memory whose errors are corrected, and what moves other huge pages."""
    offline = Path("/sys/devices/system/memory/soft_offline_page")
    with mmap.mmap(-1, 2 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_HUGETLB) as area:
        area[0] = 1
        address = numpy.frombuffer(area, dtype=numpy.uint8).ctypes.data
        [first, *_] = frames(address, 2 << 20)
        offline.write_text(f"{first * 4096:#x}")
        assert frames(address, 2 << 20)[0] != first
    for page in memory.pages(21):
        with pytest.raises(OSError):
            offline.write_text(f"{page:#x}")


def test_only_its_own_memory() -> None:
    memory = numpy.zeros(8192, dtype=numpy.uint8)
    address = memory.ctypes.data // 4096 * 4096
    with userdma.open(NIC) as nic:
        text = refusal(lambda: Region.pages(nic, address, 4096))
        assert text.startswith(f"{NIC} is not behind an IOMMU and takes only memory of its alloc_dma: ")
        mine = nic.function.alloc_dma(8192)
        with Region.pages(nic, mine.address, 8192) as region, Region.host(nic, 4096) as other, memoryview(mine) as view:
            view[:8] = b"in place"
            qp = Qp.make(nic)
            qp.connect(qp.endpoint)
            qp.receive(other, 0, 4096)
            qp.send(region, 0, 8)
            done = qp.wait(Side.RECEIVE, us=120_000_000)
            assert done is not None and done.ok, done
            assert other.read(0, 8) == b"in place"
            qp.destroy()


def test_memory_outlives_the_process() -> None:
    """As long as the function was not reset, its file keeps the memory; whoever takes it next gives it back."""
    program = (
        "import sys; from userdma import pci; f = pci.take(sys.argv[1]); m = f.alloc_dma(5 << 20);"
        "v = memoryview(m); v[:6] = b'secret'; print(m.pages()[0], flush=True); input()"
    )
    free = int(Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text())
    with subprocess.Popen(
        ["python3", "-c", program, NIC], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) % (2 << 20) == 0
        process.kill()
    assert os.path.getsize(FILE) == 6 << 20
    assert int(Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text()) == free - 3
    function = pci.take(NIC)
    try:
        assert os.path.getsize(FILE) == 0
        with memoryview(function.alloc_dma(5 << 20)) as view:
            assert bytes(view) == bytes(5 << 20)
    finally:
        function.release()
    assert not os.path.exists(FILE)
    assert int(Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text()) == free
