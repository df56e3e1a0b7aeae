"""With an IOMMU: why a function cannot be taken, and what to change, word for word.

The machine has a NIC at 05.0 and, in one IOMMU group, edu at 0d.0 and a function of another driver at 0d.1.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

import userdma
from conftest import USER, as_user, bind, driver_of, group_of, refusal
from userdma import _core, pci

NIC, SHARED, NEIGHBOR, DISK = "0000:00:05.0", "0000:00:0d.0", "0000:00:0d.1", "0000:00:10.0"


@pytest.fixture(autouse=True, scope="module")
def bound() -> None:
    bind(NIC, "vfio-pci")
    bind(SHARED, "vfio-pci")


def test_no_such_function() -> None:
    assert refusal(lambda: pci.take("0000:00:1e.0")) == "there is no PCI function 0000:00:1e.0: `lspci -D` lists them"
    assert refusal(lambda: userdma.open("0f:00.0")) == "there is no PCI function 0000:0f:00.0: `lspci -D` lists them"


def test_another_driver() -> None:
    assert driver_of(DISK) == "virtio-pci"
    assert refusal(lambda: userdma.open(DISK)) == (
        f"{DISK} belongs to the kernel's driver virtio-pci: `driverctl set-override {DISK} vfio-pci` gives it to VFIO "
        f"(as root; undone by `driverctl unset-override {DISK}`)"
    )


def test_no_driver() -> None:
    """The IOMMU translates for it, but nobody set it up."""
    bind(NIC, "")
    group = group_of(NIC)
    try:
        assert refusal(lambda: userdma.open(NIC)) == (
            f"{NIC} is behind an IOMMU (group {group}), which keeps it from physical addresses; take it by VFIO: "
            f"`driverctl set-override {NIC} vfio-pci`"
        )
        assert refusal(lambda: _core.pci_open(NIC, "vfio")) == (
            f"{NIC} has no driver; VFIO's is wanted: `driverctl set-override {NIC} vfio-pci` (as root; driverctl is a "
            "package)"
        )
    finally:
        bind(NIC, "vfio-pci")


def test_vfios_function_by_physical_addresses() -> None:
    assert refusal(lambda: _core.pci_open(NIC, "physical")) == (
        f"{NIC} belongs to the kernel's driver vfio-pci: `driverctl --nosave set-override {NIC} none` unbinds it "
        "(as root)"
    )


def test_a_group_that_is_not_viable() -> None:
    group = group_of(SHARED)
    assert group == group_of(NEIGHBOR)
    assert driver_of(NEIGHBOR) == "virtio-pci"
    assert refusal(lambda: userdma.open(SHARED)) == (
        f"IOMMU group {group} of {SHARED} holds functions of other drivers, and goes to VFIO only as a whole: "
        f"{NEIGHBOR} (virtio-pci): `driverctl set-override {NEIGHBOR} vfio-pci`"
    )
    # What the text says to do works.
    bind(NEIGHBOR, "vfio-pci")
    try:
        pci.take(SHARED).release()
    finally:
        bind(NEIGHBOR, "virtio-pci")


def test_no_permission() -> None:
    path = f"/dev/vfio/{group_of(NIC)}"
    os.chown(path, 0, 0)
    os.chmod(path, 0o600)
    assert refusal(lambda: as_user(lambda: userdma.open(NIC))) == (
        f"cannot open {path} for {NIC}: Permission denied: a udev rule gives it to a group of users: "
        'SUBSYSTEM=="vfio", GROUP="vfio", MODE="0660" (in /etc/udev/rules.d/60-vfio.rules), and you to that group'
    )
    [found] = as_user(lambda: [(f.kind, f.change) for f in pci.functions() if f.bus == NIC])
    assert found[0] == "" and found[1].startswith(f"cannot open {path} for {NIC}: Permission denied")


def test_memlock() -> None:
    """A limit that is too small is named, with what is needed; one that is raised is enough, without any privilege."""
    path = f"/dev/vfio/{group_of(NIC)}"
    os.chown(path, USER, USER)
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (256 << 10, 256 << 10))

        def allocate() -> None:
            function = pci.take(NIC)
            function.alloc_dma(128 << 10)
            function.alloc_dma(1 << 20)

        assert refusal(lambda: as_user(allocate)) == (
            "the system refuses to pin 1024 KiB of DMA memory: 1152 KiB of locked memory are needed and `ulimit -l` is "
            "256 KiB: raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a systemd unit, or memlock in "
            "/etc/security/limits.conf)"
        )
        text = refusal(lambda: as_user(lambda: userdma.open(NIC)))
        assert "of locked memory are needed and `ulimit -l` is 256 KiB: raise it" in text
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        def open() -> int:
            with userdma.open(NIC) as nic:
                return len(userdma.Region.host(nic, 1 << 20))

        assert as_user(open) == 1 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)
        os.chown(path, 0, 0)


def test_too_many_mappings() -> None:
    limit = Path("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit")
    before = limit.read_text()
    limit.write_text("4")
    try:
        function = pci.take(NIC)
        try:
            held = [function.alloc_dma(4096) for _ in range(4)]
            assert refusal(lambda: function.alloc_dma(4096)) == (
                "the system refuses to pin 4 KiB of DMA memory: VFIO's limit of mappings is reached (the module "
                "parameter vfio_iommu_type1.dma_entry_limit); use fewer, larger regions"
            )
            function.free_dma(held.pop())
            function.alloc_dma(4096)
        finally:
            function.release()
    finally:
        limit.write_text(before)


def test_a_function_that_no_driver_here_fits() -> None:
    bind(NEIGHBOR, "vfio-pci")
    try:
        text = refusal(lambda: userdma.open(SHARED))
        assert text.startswith(f"{SHARED} is 1234:11e8, which no driver here fits; they fit 14e4:1760 (")
        # It was given back.
        pci.take(SHARED).release()
    finally:
        bind(NEIGHBOR, "virtio-pci")


def test_memory_that_cannot_be_pinned() -> None:
    """An address with nothing behind it, and memory that may not be written."""
    import mmap

    import numpy

    function = pci.take(NIC)
    try:
        assert refusal(lambda: function.pin(0x10000, 4096)) == (
            "the system refuses to pin 4 KiB of the process's memory: it is not mapped in the process, or not writable"
        )
        with mmap.mmap(-1, 4096, prot=mmap.PROT_READ) as area:
            address = int(numpy.frombuffer(area, dtype=numpy.uint8).ctypes.data)
            assert refusal(lambda: function.pin(address, 4096)) == (
                "the system refuses to pin 4 KiB of the process's memory: it is not mapped in the process, or not "
                "writable"
            )
    finally:
        function.release()
