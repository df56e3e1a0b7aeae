"""A served soft NIC and QEMU's own vfio-user client, without a guest: its registers, DMA and interrupts by the bus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from guest import vfio_user
from machine import Machine

from userdma import soft
from userdma.bnxt import hwrm

SLOT = 5
BARS = {0: 0xE0000000, 2: 0xE0100000, 4: 0xE0200000}
ANSWER, REQUEST, MESSAGE = 0x100000, 0x200000, 0x300000


def until(true: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def capability(machine: Machine, number: int) -> int:
    at = machine.config_read(SLOT, 0x34, 1)
    while machine.config_read(SLOT, at, 1) != number:
        at = machine.config_read(SLOT, at + 1, 1)
    return at


def enable(machine: Machine) -> None:
    """What a machine's firmware does: the BARs' places, memory space, bus mastering."""
    for bar, address in BARS.items():
        machine.config_write(SLOT, 0x10 + 4 * bar, 4, address)
        machine.config_write(SLOT, 0x14 + 4 * bar, 4, 0)
    machine.config_write(SLOT, 0x04, 2, 6)


def command(machine: Machine, sequence: int, short: bool = False) -> None:
    """HWRM_VER_GET by the request window, or as a short command, which the firmware fetches (bnxt_hwrm.c)."""
    request = hwrm.REQUESTS["hwrm_ver_get"].request.pack(resp_addr=ANSWER, seq_id=sequence)
    if short:
        machine.write(REQUEST, request)
        code = int.from_bytes(request[:2], "little")
        # hwrm_short_input: req_type, signature 0x4321, target_id, size, req_addr
        request = b"".join(n.to_bytes(2, "little") for n in (code, 0x4321, 0, len(request)))
        request += REQUEST.to_bytes(8, "little")
    machine.write(ANSWER, bytes(64))
    for at in range(0, hwrm.MAX_REQUEST, 4):
        machine.write32(BARS[0] + at, int.from_bytes(request.ljust(hwrm.MAX_REQUEST, b"\0")[at : at + 4], "little"))
    machine.write32(BARS[0] + 0x100, 1)


def answered(machine: Machine, sequence: int) -> bool:
    header = hwrm.RESPONSE_HEADER.unpack(machine.read(ANSWER, 64))
    return header.resp_len != 0 and header.seq_id == sequence and header.error_code == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[soft.Server]:
    function = soft.bnxt(soft.Wire())
    with soft.serve(function, tmp_path / "nic.sock") as server:
        yield server
    function.release()


@pytest.mark.parametrize("shared", [True, False], ids=["by file", "by message"])
def test_dma(server: soft.Server, shared: bool) -> None:
    """The firmware's requests and answers in memory that QEMU shares, and in memory that must be asked for."""
    with Machine([vfio_user(server.socket)], shared=shared) as machine:
        assert machine.config_read(SLOT, 0, 4) == 0x176014E4
        enable(machine)
        for sequence, short in ((7, False), (8, True)):
            command(machine, sequence, short)
            until(lambda number=sequence: answered(machine, number))
        assert machine.said() == ""


def test_registers(server: soft.Server) -> None:
    with Machine([vfio_user(server.socket)]) as machine:
        sizes = []
        for bar in BARS:
            machine.config_write(SLOT, 0x10 + 4 * bar, 4, 0xFFFFFFFF)
            sizes.append(-(machine.config_read(SLOT, 0x10 + 4 * bar, 4) & ~0xF) & 0xFFFFFFFF)
        assert sizes == [64 << 10, 1 << 20, 16 << 10]
        enable(machine)
        machine.write(BARS[0] + 0x40, b"of a guest")
        assert machine.read(BARS[0] + 0x40, 10) == b"of a guest"
        express = capability(machine, 0x10)
        machine.config_write(SLOT, express + 8, 2, 1 << 15)  # function-level reset
        until(lambda: machine.read(BARS[0] + 0x40, 10) != b"of a guest")
        assert machine.said() == ""


def test_interrupts(server: soft.Server) -> None:
    """The guest's table is QEMU's: a masked vector stays pending there, and its message comes when it is unmasked."""
    function = server.function
    assert isinstance(function, soft.Function)
    with Machine([vfio_user(server.socket)]) as machine:
        enable(machine)
        vectors = capability(machine, 0x11)
        assert machine.config_read(SLOT, vectors + 2, 2) & 0x7FF == 73
        # The message is a store to memory, where it can be seen.
        for vector in range(2):
            entry = BARS[4] + 16 * vector
            for at, value in ((0, MESSAGE + 16 * vector), (4, 0), (8, 0xABCD0000 + vector), (12, 1)):
                machine.write32(entry + at, value)
        machine.config_write(SLOT, vectors + 2, 2, 1 << 15)
        machine.write32(BARS[4] + 12, 0)
        function.raise_interrupt(0)
        until(lambda: machine.read32(MESSAGE) == 0xABCD0000)
        function.raise_interrupt(1)
        pba = machine.config_read(SLOT, vectors + 8, 4) & ~7
        until(lambda: machine.read32(BARS[4] + pba) == 0b10)
        assert machine.read32(MESSAGE + 16) == 0
        machine.write32(BARS[4] + 16 + 12, 0)
        until(lambda: machine.read32(MESSAGE + 16) == 0xABCD0001)
        assert machine.read32(BARS[4] + pba) == 0
        assert machine.said() == ""


def test_one_machine_after_the_other(server: soft.Server) -> None:
    for sequence in range(3):
        with Machine([vfio_user(server.socket)]) as machine:
            enable(machine)
            command(machine, sequence + 1)
            until(lambda number=sequence + 1: answered(machine, number))
        until(lambda: not server.connected)
    assert server.clients == 3
