"""QEMU's edu device through VFIO, or by its physical addresses: what QEMU's docs/specs/edu.rst says of it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from conftest import EDU, bus_of
from userdma import pci
from userdma.errors import DmaMemoryError, MachineError

IDENTIFICATION, LIVENESS, FACTORIAL, STATUS = 0x00, 0x04, 0x08, 0x20
INTERRUPT_STATUS, INTERRUPT_RAISE, INTERRUPT_ACKNOWLEDGE = 0x24, 0x60, 0x64
DMA_SOURCE, DMA_TARGET, DMA_COUNT, DMA_COMMAND = 0x80, 0x88, 0x90, 0x98
BUFFER, BUFFER_SIZE = 0x40000, 4096
START, TO_MEMORY, THEN_INTERRUPT = 1, 2, 4
COMMAND, MASTER = 0x04, 0x04  # PCI's command register, and its bit of bus mastering


@pytest.fixture
def edu(take: Callable[[], Any]) -> Any:
    function = take()
    function.set_config16(COMMAND, function.config16(COMMAND) | MASTER)
    return function


def dma(bar: Any, source: int, target: int, count: int, command: int = 0) -> None:
    bar.write64(DMA_SOURCE, source)
    bar.write64(DMA_TARGET, target)
    bar.write64(DMA_COUNT, count)
    bar.write64(DMA_COMMAND, command | START)
    end = time.monotonic() + 120  # it takes 100 ms of its own
    while bar.read64(DMA_COMMAND) & START:
        assert time.monotonic() < end, "the transfer never ends"


def test_configuration_space(edu: Any) -> None:
    assert edu.config32(0x00) == 0x11E8_1234
    assert (edu.config16(0x00), edu.config16(0x02), edu.config8(0x00)) == (0x1234, 0x11E8, 0x34)
    # The interrupt line's register is the system's own to write.
    before = edu.config8(0x3C)
    edu.set_config8(0x3C, before ^ 0x0F)
    assert edu.config8(0x3C) == before ^ 0x0F
    edu.set_config8(0x3C, before)
    assert edu.config32(0x1000) == 0xFFFF_FFFF
    assert not edu.failed


def test_bars(edu: Any) -> None:
    address, size = edu.bar(0)
    assert size == 1 << 20
    assert address % size == 0 and address != 0
    assert edu.bar(1) == (0, 0)
    bar = edu.map(0)
    assert bar.size == size
    assert bar.read32(IDENTIFICATION) == 0x0100_00ED
    bar.write32(LIVENESS, 0x1234_5678)
    assert bar.read32(LIVENESS) == 0xEDCB_A987
    bar.write32(FACTORIAL, 10)
    while bar.read32(STATUS) & 1:
        pass
    assert bar.read32(FACTORIAL) == 3628800
    with pytest.raises(MachineError, match="has no BAR 2"):
        edu.map(2)


def test_dma_both_ways(edu: Any) -> None:
    memory, bar = edu.alloc_dma(3 * 4096), edu.map(0)
    data = os.urandom(BUFFER_SIZE)
    with memoryview(memory) as view:
        assert bytes(view) == bytes(len(view))
        view[:4096] = data
        addresses = memory.pages()
        dma(bar, addresses[0], BUFFER, 4096)
        dma(bar, BUFFER, addresses[2] + 8, 4000, TO_MEMORY)
        assert bytes(view[8192:]) == bytes(8) + data[:4000] + bytes(88)
        assert bytes(view[4096:8192]) == bytes(4096)


def test_memory_comes_back_zeroed(edu: Any) -> None:
    memory = edu.alloc_dma(1 << 20)
    with memoryview(memory) as view:
        view[:] = b"\xa5" * len(view)
    edu.free_dma(memory)
    with memoryview(edu.alloc_dma(1 << 20)) as view:
        assert bytes(view) == bytes(1 << 20)


def test_pinned_memory(edu: Any, physical: bool) -> None:
    import mmap

    with mmap.mmap(-1, 2 * 4096) as area:
        import numpy

        address = numpy.frombuffer(area, dtype=numpy.uint8).ctypes.data
        if physical:
            with pytest.raises(DmaMemoryError, match="is not behind an IOMMU and takes only memory of its alloc_dma"):
                edu.pin(address, 8192)
            return
        memory, bar = edu.pin(address, 8192), edu.map(0)
        area[:5] = b"hello"
        [(bus, _)] = memory.runs
        dma(bar, bus, BUFFER, 5)
        dma(bar, BUFFER, bus + 4096, 5, TO_MEMORY)
        assert area[4096:4102] == b"hello\0"
        edu.unpin(memory)


def test_no_dma_without_bus_mastering(edu: Any) -> None:
    memory, bar = edu.alloc_dma(4096), edu.map(0)
    [(bus, _)] = memory.runs
    with memoryview(memory) as view:
        view[:] = b"\x5a" * 4096
        dma(bar, bus, BUFFER, 64)
        view[:] = bytes(4096)
        edu.set_config16(COMMAND, edu.config16(COMMAND) & ~MASTER)
        dma(bar, BUFFER, bus, 64, TO_MEMORY)
        assert bytes(view) == bytes(4096)
        edu.set_config16(COMMAND, edu.config16(COMMAND) | MASTER)
        dma(bar, BUFFER, bus, 64, TO_MEMORY)
        assert bytes(view[:65]) == b"\x5a" * 64 + b"\0"


def test_interrupt(edu: Any, physical: bool) -> None:
    if physical:
        with pytest.raises(MachineError, match="VFIO is needed for them"):
            edu.interrupt(0)
        return
    event, bar = edu.interrupt(0), edu.map(0)
    assert edu.interrupt(0) == event
    with pytest.raises(MachineError, match="has no MSI vector 1: it has 1"):
        edu.interrupt(1)
    assert select.select([event], [], [], 0) == ([], [], [])
    for number in range(3):
        bar.write32(INTERRUPT_RAISE, 1 << number)
        assert select.select([event], [], [], 120) == ([event], [], [])
        assert int.from_bytes(os.read(event, 8), sys.byteorder) == 1
        assert bar.read32(INTERRUPT_STATUS) == 1 << number
        bar.write32(INTERRUPT_ACKNOWLEDGE, 1 << number)
        assert bar.read32(INTERRUPT_STATUS) == 0
    # And one at the end of a transfer.
    [(bus, _)] = edu.alloc_dma(4096).runs
    dma(bar, bus, BUFFER, 16, THEN_INTERRUPT)
    assert select.select([event], [], [], 120) == ([event], [], [])
    assert bar.read32(INTERRUPT_STATUS) == 0x100
    bar.write32(INTERRUPT_ACKNOWLEDGE, 0x100)


def test_reset(edu: Any) -> None:
    bar = edu.map(0)
    bar.write64(DMA_COUNT, 0x123)
    memory = edu.alloc_dma(4096)
    edu.reset()
    # QEMU resets a function's configuration space; edu's own registers are not part of its reset.
    assert edu.config16(0x00) == 0x1234
    assert bar.read32(IDENTIFICATION) == 0x0100_00ED
    edu.set_config16(COMMAND, edu.config16(COMMAND) | MASTER)
    [(bus, _)] = memory.runs
    with memoryview(memory) as view:
        view[:4] = b"ABCD"
        dma(bar, bus, BUFFER, 4)
        dma(bar, BUFFER, bus + 4, 4, TO_MEMORY)
        assert bytes(view[:8]) == b"ABCDABCD"


def test_release_ends_bus_mastering(take: Callable[[], Any]) -> None:
    function = take()
    function.set_config16(COMMAND, function.config16(COMMAND) | MASTER)
    function.release()
    function.release()
    with open(f"/sys/bus/pci/devices/{bus_of(EDU)}/config", "rb") as file:
        assert int.from_bytes(file.read()[COMMAND : COMMAND + 2], "little") & MASTER == 0
    with pytest.raises(MachineError, match="was released"):
        function.map(0)
    assert take().map(0).read32(IDENTIFICATION) == 0x0100_00ED


def test_one_owner(edu: Any, physical: bool) -> None:
    """Another process is refused, and told by what; when the owner has gone, killed, it is not."""
    program = "import sys; from userdma import pci; f = pci.take(sys.argv[1]); print('taken', flush=True); input()"
    other = [sys.executable, "-c", program, bus_of(EDU)]
    done = subprocess.run(other, capture_output=True, text=True)
    text = "is driven by another process" if physical else "another process has a function of IOMMU group"
    assert done.returncode == 1 and text in done.stderr
    edu.release()
    with subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "taken\n"
        with pytest.raises(MachineError, match=text):
            pci.take(bus_of(EDU))
        process.kill()
    function = pci.take(bus_of(EDU))
    assert function.map(0).read32(IDENTIFICATION) == 0x0100_00ED
    function.release()
