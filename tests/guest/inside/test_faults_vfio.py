"""DMA to memory that is not mapped for the device: stopped, and reported. NICs at 05.0 and 06.0, edu at 0d.0."""

from __future__ import annotations

import mmap
import re
import subprocess
import time

import numpy

import userdma
from conftest import bind
from userdma import Access, ErrorKind, Qp, Region, Side, pci

A, B, EDU, NEIGHBOR = "0000:00:05.0", "0000:00:06.0", "0000:00:0d.0", "0000:00:0d.1"
DMA_SOURCE, DMA_TARGET, DMA_COUNT, DMA_COMMAND, BUFFER = 0x80, 0x88, 0x90, 0x98, 0x40000
UNMAPPED = 0x7654_3000
PAGE = 4096


def test_the_iommu_stops_a_device() -> None:
    """edu is told an address that nobody mapped: the IOMMU's report names it and the device."""
    bind(NEIGHBOR, "vfio-pci")
    bind(EDU, "vfio-pci")
    function = pci.take(EDU)
    try:
        function.set_config16(0x04, function.config16(0x04) | 4)
        bar, memory = function.map(0), function.alloc_dma(PAGE)
        [(mapped, _)] = memory.runs
        for command, target in ((1, BUFFER), (3, UNMAPPED)):
            bar.write64(DMA_SOURCE, UNMAPPED if command == 1 else BUFFER)
            bar.write64(DMA_TARGET, target)
            bar.write64(DMA_COUNT, 64)
            bar.write64(DMA_COMMAND, command)
            while bar.read64(DMA_COMMAND) & 1:
                time.sleep(0.01)
        said = subprocess.run(["dmesg"], capture_output=True, text=True).stdout
        for way in ("Read", "Write"):
            assert re.search(rf"\[DMA {way}.*device \[(0000:)?00:0d\.0\] fault addr 0x{UNMAPPED:x}", said), said[-2000:]
        # What is mapped is reached as before.
        with memoryview(memory) as view:
            view[:] = b"\x77" * PAGE
            bar.write64(DMA_SOURCE, BUFFER)
            bar.write64(DMA_TARGET, mapped)
            bar.write64(DMA_COUNT, 64)
            bar.write64(DMA_COMMAND, 3)
            while bar.read64(DMA_COMMAND) & 1:
                time.sleep(0.01)
            assert bytes(view[64:]) == b"\x77" * (PAGE - 64)
    finally:
        function.release()
        bind(NEIGHBOR, "virtio-pci")


def test_the_nic_reports_it() -> None:
    """A region whose memory is unmapped under the NIC: the send from it fails, and other pairs go on."""
    with userdma.open(A) as a, userdma.open(B) as b, mmap.mmap(-1, PAGE) as area:
        address = int(numpy.frombuffer(area, dtype=numpy.uint8).ctypes.data)
        lost = Region.pages(a, address, PAGE)
        mine, theirs = Region.host(a, PAGE, remote=Access.READ), Region.host(b, PAGE, remote=Access.WRITE)
        mine.write(0, b"as before")
        pairs = [(Qp.make(a), Qp.make(b)) for _ in range(2)]
        for one, two in pairs:
            one.connect(two.endpoint)
            two.connect(one.endpoint)
        a.function.unpin(lost._registration.memory)  # behind the driver's back
        one, two = pairs[0]
        two.receive(theirs, 0, PAGE)
        one.send(lost, 0, 64)
        failed = one.wait(Side.SEND, us=120_000_000)
        assert failed is not None and failed.error is ErrorKind.LOCAL_PROTECTION, failed
        assert theirs.read(0, 64) == bytes(64)
        one, two = pairs[1]
        two.receive(theirs, 0, PAGE)
        one.send(mine, 0, 9)
        done = two.wait(Side.RECEIVE, us=120_000_000)
        assert done is not None and done.ok and theirs.read(0, 9) == b"as before"
