"""Our PCI layer on QEMU's edu device, by the kernel's own VFIO and IOMMU, and by physical addresses."""

from __future__ import annotations

from collections.abc import Callable

from guest import Guest, edu, port

from conftest import HERE

DEVICES = [port(), edu(bus="port0", addr="00.0")]  # a port of its own: what is behind it can be reset and unplugged
BUS = "0000:01:00.0"


def test_through_vfio(boot: Callable[..., Guest], kernel: str) -> None:
    guest = boot(kernel, iommu=True, devices=DEVICES)
    guest.install()
    guest.bind(BUS, "vfio-pci")
    guest.pytest(HERE / "inside", "test_edu.py")
    quiet(guest)


def test_by_physical_addresses(boot: Callable[..., Guest], kernel: str) -> None:
    guest = boot(kernel, devices=DEVICES)
    guest.install()
    guest.run("mkdir -p /dev/hugepages && mount -t hugetlbfs none /dev/hugepages; echo 16 >/proc/sys/vm/nr_hugepages")
    guest.pytest(HERE / "inside", "test_edu.py")
    quiet(guest)


def quiet(guest: Guest) -> None:
    """The kernel found nothing to complain of."""
    said = [line for line in guest.run("dmesg --level emerg,alert,crit,err").output.splitlines() if line]
    assert not said
