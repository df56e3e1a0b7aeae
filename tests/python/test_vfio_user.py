"""A NIC in software, served over vfio-user: the messages of a client over the real socket.

What is expected is what QEMU's docs/interop/vfio-user.rst, linux/vfio.h and the kernel's VFIO say.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import userdma
import vfio_user_client as vu
from bare_bnxt import Bare
from patience import PATIENT, eventually
from test_soft_firmware import open_receive_path
from userdma import soft
from userdma.bnxt import hwrm, rcfw
from vfio_user_client import PAGE, Client, Closed, Function, Refused

EINVAL = errno.EINVAL


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "nic.sock")


@pytest.fixture
def server(path: str) -> Iterator[soft.Server]:
    function = soft.bnxt(soft.Wire())
    with soft.serve(function, path) as server:
        yield server
    function.release()


@pytest.fixture
def client(server: soft.Server, path: str) -> Iterator[Client]:
    with Client(path) as client:
        yield client


@pytest.fixture
def memory() -> Iterator[int]:
    fd = os.memfd_create("of-a-client")
    os.ftruncate(fd, 1 << 20)
    yield fd
    os.close(fd)


def until(true: Callable[[], Any]) -> None:
    assert eventually(true)


def refused(number: int, call: Callable[..., Any], *args: Any, **keywords: Any) -> None:
    with pytest.raises(Refused) as info:
        call(*args, **keywords)
    assert info.value.errno == number


def descriptors() -> list[str]:
    out = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            out.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(out)


def signalled(fd: int) -> int:
    """How often an eventfd was signalled since; 0 if it was not."""
    return os.eventfd_read(fd) if select.select([fd], [], [], 0)[0] else 0


# ---- negotiation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minor", "spoken"), [(0, 0), (1, 1), (2, 1)])
def test_version(server: soft.Server, path: str, minor: int, spoken: int) -> None:
    with Client(path, negotiate=False) as client:
        answer = client.negotiate(minor=minor)
        assert (answer["major"], answer["minor"]) == (0, spoken)
        capabilities = answer["capabilities"]
        assert set(capabilities) <= set(vu.CAPABILITIES["capabilities"])
        assert capabilities["max_msg_fds"] <= 16  # QEMU takes no more
        assert capabilities["max_data_xfer_size"] == 1 << 20
        assert capabilities["pgsizes"] == 4096
        assert capabilities["max_dma_maps"] <= 65535
        assert capabilities["write_multiple"] is True


@pytest.mark.parametrize("capabilities", [None, {}, {"capabilities": {}}, {"capabilities": {"twin_socket": {}}}])
def test_version_of_a_client_that_announces_little(server: soft.Server, path: str, capabilities: Any) -> None:
    with Client(path, negotiate=False) as client:
        payload = struct.pack("<HH", 0, 0)
        if capabilities is not None:
            payload += json.dumps(capabilities).encode() + b"\0"
        assert client.call(vu.VERSION, payload)[:4] == struct.pack("<HH", 0, 0)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0\0\0",
        struct.pack("<HH", 1, 0),
        struct.pack("<HH", 0, 0) + b"{}",  # no NUL at the end
        struct.pack("<HH", 0, 0) + b"{\0",
        struct.pack("<HH", 0, 0) + b'"\0',
        struct.pack("<HH", 0, 0) + b"[]\0",
        struct.pack("<HH", 0, 0) + b'{"capabilities": "23"}\0',
        struct.pack("<HH", 0, 0) + b'{"capabilities": {"max_msg_fds": "foo"}}\0',
        struct.pack("<HH", 0, 0) + b'{"capabilities": {"max_msg_fds": -1}}\0',
        struct.pack("<HH", 0, 0) + b'{"capabilities": {"migration": "23"}}\0',
        struct.pack("<HH", 0, 0) + b'{"capabilities": {"pgsizes": 65536}}\0',
        struct.pack("<HH", 0, 0) + b"[" * 100_000 + b"\0",
    ],
)
def test_versions_that_are_refused(server: soft.Server, path: str, payload: bytes) -> None:
    with Client(path, negotiate=False) as client:
        refused(EINVAL, client.call, vu.VERSION, payload)
        with pytest.raises(Closed):
            client.take(1)
    with Client(path):
        pass


def test_the_version_comes_first_and_once(server: soft.Server, path: str) -> None:
    with Client(path, negotiate=False) as client:
        refused(EINVAL, client.call, vu.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0))
        with pytest.raises(Closed):
            client.take(1)
    with Client(path) as client:
        refused(EINVAL, client.negotiate)
        with pytest.raises(Closed):
            client.take(1)


# ---- messages that are none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 15, (1 << 20) + 33, 0xFFFFFFFF])
def test_a_size_that_cannot_be_ends_the_connection(client: Client, path: str, size: int) -> None:
    client.put(vu.HEADER.pack(77, vu.GET_INFO, size, 0, 0))
    refused(EINVAL, client.reply, 77, vu.GET_INFO)
    with pytest.raises(Closed):
        client.take(1)
    client.close()
    with Client(path):
        pass


@pytest.mark.parametrize("command", [0, 19, 999, 0xFFFF, vu.DMA_READ, vu.DMA_WRITE])
def test_unknown_commands(client: Client, command: int) -> None:
    refused(EINVAL, client.call, command, bytes(16))
    assert client.region_info(vu.CONFIG)[1] == 4096  # the connection is as it was


@pytest.mark.parametrize("command", [vu.DIRTY_PAGES, vu.FEATURE, 17, 18])
def test_there_is_no_migration(client: Client, command: int) -> None:
    refused(errno.ENOTSUP, client.call, command, bytes(24))


@pytest.mark.parametrize("command", [*range(vu.DMA_MAP, vu.DMA_READ), vu.WRITE_MULTI])
def test_short_payloads(client: Client, command: int) -> None:
    refused(EINVAL, client.call, command, bytes(3))
    refused(EINVAL, client.call, command, b"")


def test_replies_that_nobody_waits_for_are_thrown_away(client: Client) -> None:
    client.put(vu.HEADER.pack(5, vu.DMA_READ, 16, vu.REPLY, 0))
    assert client.region_info(vu.CONFIG)[1] == 4096


def test_commands_in_pieces_and_in_heaps(client: Client) -> None:
    head = struct.pack("<QII", 0, vu.CONFIG, 4)
    one = vu.HEADER.pack(1, vu.REGION_READ, 32, 0, 0) + head
    for byte in one:
        client.put(bytes([byte]))
    assert client.reply(1, vu.REGION_READ)[16:] == bytes.fromhex("e4146017")
    client.put(one * 100)
    for _ in range(100):
        assert client.reply(1, vu.REGION_READ)[16:] == bytes.fromhex("e4146017")


def test_descriptors_where_none_belong(client: Client, memory: int) -> None:
    before = descriptors()
    refused(EINVAL, client.call, vu.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0), [memory] * 16)
    refused(EINVAL, client.call, vu.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, 0, PAGE), [memory] * 2)
    refused(EINVAL, client.call, 999, bytes(20), [memory] * 3)
    client.put(vu.HEADER.pack(9, vu.DMA_MAP, 5, 0, 0), [memory] * 3)
    refused(EINVAL, client.reply, 9, vu.DMA_MAP)
    with pytest.raises(Closed):
        client.take(1)
    until(lambda: len(descriptors()) <= len(before))


# ---- what the device is ----------------------------------------------------------------------------------------------


def test_information(client: Client) -> None:
    info = client.call(vu.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0))
    assert struct.unpack("<IIII", info) == (16, 3, 9, 5)  # reset and PCI; VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS
    refused(EINVAL, client.call, vu.GET_INFO, struct.pack("<IIII", 15, 0, 0, 0))
    sizes = [client.region_info(i)[1] for i in range(9)]
    assert sizes == [64 << 10, 0, 1 << 20, 0, 16 << 10, 0, 0, 4096, 0]  # BARs, ROM, configuration space, VGA
    for i, size in enumerate(sizes):
        assert client.region_info(i)[0] == (3 if size else 0)  # read and write; no mmap
    for index in (9, 100, 0xFFFFFFFF):
        refused(EINVAL, client.region_info, index)
    refused(EINVAL, client.region_info, 0, argsz=31)
    counts = [client.irq_info(i)[1] for i in range(5)]
    assert counts == [0, 0, 74, 1, 1]  # INTx, MSI, MSI-X, errors, requests
    assert client.irq_info(vu.MSIX)[0] & 1  # eventfd
    refused(EINVAL, client.irq_info, 5)
    assert client.read(vu.CONFIG, 0x3D, 1) == b"\0"  # no INTx pin
    descriptors_of = client.call(vu.GET_REGION_IO_FDS, struct.pack("<IIII", 4096, 0, 2, 0))
    assert struct.unpack("<IIII", descriptors_of) == (16, 0, 2, 0)
    refused(EINVAL, client.call, vu.GET_REGION_IO_FDS, struct.pack("<IIII", 4096, 1, 2, 0))
    refused(EINVAL, client.call, vu.GET_REGION_IO_FDS, struct.pack("<IIII", 4096, 0, 9, 0))


# ---- registers -------------------------------------------------------------------------------------------------------


def test_configuration_space(client: Client) -> None:
    whole = client.read(vu.CONFIG, 0, 4096)
    assert struct.unpack_from("<HH", whole) == (0x14E4, 0x1760)
    for offset, count in ((0, 1), (1, 1), (1, 2), (3, 7), (0xFFF, 1), (0, 0), (4096, 0)):
        assert client.read(vu.CONFIG, offset, count) == whole[offset : offset + count]
    for offset, count in ((4096, 1), (4095, 2), (1 << 63, 4), ((1 << 64) - 1, 4)):
        refused(EINVAL, client.read, vu.CONFIG, offset, count)
        refused(EINVAL, client.write, vu.CONFIG, offset, bytes(count))
    # A BAR answers with its size.
    client.write(vu.CONFIG, 0x18, b"\xff" * 8)
    assert int.from_bytes(client.read(vu.CONFIG, 0x18, 8), "little") & ~0xF == (1 << 64) - (1 << 20)


def test_registers(client: Client) -> None:
    assert client.read(0, 0x40, 4) == b"\xff" * 4  # memory space is off
    client.write(vu.CONFIG, 4, b"\x02\0")
    client.write(0, 0x40, b"\x11\x22\x33\x44")
    assert client.read(0, 0x40, 4) == b"\x11\x22\x33\x44"
    client.write(0, 0x41, b"\x55\x66", posted=True)
    assert client.read(0, 0x40, 4) == b"\x11\x55\x66\x44"
    client.write(0, 0x41, bytes(range(1, 32)))
    assert client.read(0, 0x40, 33) == b"\x11" + bytes(range(1, 32)) + b"\0"
    client.write_multi([(0, 0x40, b"abcdefgh"), (0, 0x48, b"i"), (vu.CONFIG, 0x3C, b"\x09"), (0, 0x4A, b"")])
    assert client.read(0, 0x40, 9) == b"abcdefghi"
    assert client.read(vu.CONFIG, 0x3C, 1) == b"\x09"
    client.write_multi([(0, 0x40, b"12")] * 200, flags=vu.NO_REPLY)
    assert client.read(0, 0x40, 3) == b"12c"
    assert client.read(0, 0, 64 << 10)[0x40:0x49] == b"12cdefghi"


def test_accesses_that_are_refused(client: Client) -> None:
    client.write(vu.CONFIG, 4, b"\x02\0")
    for region, offset, count in (
        *((0, 64 << 10, 1), (0, (64 << 10) - 4, 8), (0, (1 << 64) - 4, 8), (2, 1 << 20, 4), (4, 16 << 10, 1)),
        *((1, 0, 4), (3, 0, 4), (5, 0, 4), (6, 0, 4), (8, 0, 4), (9, 0, 4), (0xFFFFFFFF, 0, 4), (1, 0, 0)),
    ):
        refused(EINVAL, client.read, region, offset, count)
        refused(EINVAL, client.write, region, offset, bytes(count))
        refused(EINVAL, client.write_multi, [(0, 0x40, b"1234"), (region, offset, bytes(count))])
    assert client.read(0, 0x40, 4) == bytes(4)  # not even the first one of a list with a wrong one
    refused(EINVAL, client.call, vu.REGION_READ, struct.pack("<QII", 0, 0, (1 << 20) + 1))
    refused(EINVAL, client.call, vu.REGION_WRITE, struct.pack("<QII", 0, 0, 4) + bytes(3))
    refused(EINVAL, client.call, vu.REGION_WRITE, struct.pack("<QII", 0, 0, 4) + bytes(5))
    refused(EINVAL, client.call, vu.WRITE_MULTI, struct.pack("<Q", 2) + bytes(24))
    refused(EINVAL, client.call, vu.WRITE_MULTI, struct.pack("<Q", 1 << 61) + bytes(24))
    refused(EINVAL, client.call, vu.WRITE_MULTI, struct.pack("<QQII", 1, 0, 0, 9) + bytes(8))


def test_posted_writes_are_never_answered(client: Client) -> None:
    client.write(9, 0, b"1234", posted=True)
    client.send(999, flags=vu.NO_REPLY)
    client.send(vu.RESET, flags=vu.NO_REPLY)
    assert client.region_info(vu.CONFIG)[1] == 4096


# ---- memory ----------------------------------------------------------------------------------------------------------


def pages(server: soft.Server) -> int:
    function = server.function
    assert isinstance(function, soft.Function)
    return function.counts()["dma_pages"]


def test_mappings(server: soft.Server, client: Client, memory: int) -> None:
    client.dma_map(0, 1 << 20, memory)
    assert pages(server) == 256
    assert client.dma_unmap(0, 1 << 20) == 1 << 20
    assert pages(server) == 0
    for i in range(0, 256, 2):
        client.dma_map(i * PAGE, PAGE, memory, i * PAGE)
    client.dma_map(1 << 40, 1 << 30)  # without a file
    assert pages(server) == 128 + (1 << 18)
    # As VFIO: all mappings within, which may be none; never a part of one.
    assert client.dma_unmap(0, 4 * PAGE) == 2 * PAGE
    assert client.dma_unmap(0, 4 * PAGE) == 0
    refused(EINVAL, client.dma_unmap, 1 << 40, 1 << 29)
    refused(EINVAL, client.dma_unmap, (1 << 40) + PAGE, 1 << 30)
    assert client.dma_unmap(0, 0, vu.UNMAP_ALL) == 0
    assert pages(server) == 0


def test_mappings_that_are_refused(server: soft.Server, client: Client, memory: int) -> None:
    client.dma_map(16 * PAGE, 4 * PAGE, memory)
    for first in range(13, 20):
        refused(errno.EEXIST, client.dma_map, first * PAGE, 4 * PAGE, memory)
    refused(errno.EEXIST, client.dma_map, 0, 1 << 40)
    for address, size, offset in (
        *((1, PAGE, 0), (0, 1, 0), (0, 0, 0), (0, PAGE, 1), (0, PAGE + 1, 0), ((1 << 64) - PAGE, 2 * PAGE, 0)),
        *((0, PAGE, 1 << 20), (0, 2 * PAGE, (1 << 20) - PAGE), (0, PAGE, (1 << 64) - PAGE)),
    ):
        refused(EINVAL, client.dma_map, address, size, memory, offset)
    refused(errno.ENOSPC, client.dma_map, 1 << 52, PAGE, memory)
    refused(errno.ENOSPC, client.dma_map, 1 << 53, 1 << 62)
    for flags in (0, 4, 8, 0xFFFFFFFF):
        refused(EINVAL, client.dma_map, 0, PAGE, memory, 0, flags)
    refused(EINVAL, client.dma_map, 0, PAGE, memory, argsz=31)
    for address, size, flags, argsz in (
        *((1, PAGE, 0, 24), (0, 1, 0, 24), (0, 0, 0, 24), (0, PAGE, 1, 24), (0, PAGE, 4, 24), (0, 0, 3, 24)),
        *((PAGE, 0, 2, 24), (0, PAGE, 2, 24), (0, PAGE, 0, 23), (0, PAGE, 0, (1 << 20) + 1)),
        *(((1 << 64) - PAGE, 2 * PAGE, 0, 24), (0, PAGE, 0xFFFFFFFF, 24)),
    ):
        refused(EINVAL, client.dma_unmap, address, size, flags, argsz)
    assert pages(server) == 4


def test_files_that_are_no_memory(client: Client, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    refused(errno.ENODEV, client.dma_map, 0, PAGE, reader, flags=1)
    os.close(reader)
    os.close(writer)
    file = tmp_path / "file"
    file.write_bytes(bytes(PAGE))
    fd = os.open(file, os.O_WRONLY)
    refused(errno.EACCES, client.dma_map, 0, PAGE, fd)
    os.close(fd)
    fd = os.open(file, os.O_RDONLY)
    refused(errno.EACCES, client.dma_map, 0, PAGE, fd)
    client.dma_map(0, PAGE, fd, flags=1)
    os.close(fd)


def test_too_many_mappings(server: soft.Server, path: str) -> None:
    with Client(path, negotiate=False) as client:
        limit = client.negotiate()["capabilities"]["max_dma_maps"]
        for first in range(0, limit, 64):
            numbers = [
                client.send(vu.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, i * PAGE, PAGE))
                for i in range(first, min(first + 64, limit))
            ]
            for number in numbers:
                client.reply(number, vu.DMA_MAP)
        refused(errno.ENOSPC, client.dma_map, limit * PAGE, PAGE)
        assert client.dma_unmap(0, PAGE) == PAGE
        client.dma_map(limit * PAGE, PAGE)


# ---- interrupts ------------------------------------------------------------------------------------------------------


@pytest.fixture
def events() -> Iterator[list[int]]:
    fds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    yield fds
    for fd in fds:
        os.close(fd)


def test_interrupts_that_the_client_triggers(client: Client, events: list[int]) -> None:
    client.set_irqs(vu.DATA_EVENTFD | vu.TRIGGER, 3, 8, events)
    client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 4, 2)
    assert [signalled(fd) for fd in events] == [0, 1, 1, 0, 0, 0, 0, 0]
    client.set_irqs(vu.DATA_BOOL | vu.TRIGGER, 3, 3, data=b"\1\0\1")
    assert [signalled(fd) for fd in events] == [1, 0, 1, 0, 0, 0, 0, 0]
    client.set_irqs(vu.DATA_EVENTFD | vu.TRIGGER, 3, 1)  # disconnects it
    client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 0, 74)
    assert [signalled(fd) for fd in events] == [0, 1, 1, 1, 1, 1, 1, 1]
    client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 0, 0)  # and all
    client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 0, 74)
    assert not any(signalled(fd) for fd in events)
    for index in (3, 4):  # of errors and of requests: kept
        client.set_irqs(vu.DATA_EVENTFD | vu.TRIGGER, 0, 1, events[:1], index=index)
        client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 0, 0, index=index)
    client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 0, 0, index=0)  # INTx, which there is none of


def test_interrupts_that_are_refused(client: Client, events: list[int], memory: int) -> None:
    event, none, boolean = vu.DATA_EVENTFD, vu.DATA_NONE, vu.DATA_BOOL
    for flags, start, count, fds, data, index in (
        (event | vu.TRIGGER, 74, 1, events[:1], b"", 2),
        (event | vu.TRIGGER, 73, 2, events[:2], b"", 2),
        (event | vu.TRIGGER, 0xFFFFFFFF, 2, events[:2], b"", 2),
        (event | vu.TRIGGER, 0, 2, events[:1], b"", 2),
        (event | vu.TRIGGER, 0, 1, events[:2], b"", 2),
        (none | vu.TRIGGER, 0, 1, events[:1], b"", 2),
        (boolean | vu.TRIGGER, 0, 1, events[:1], b"\1", 2),
        (boolean | vu.TRIGGER, 0, 2, None, b"\1", 2),
        (boolean | vu.TRIGGER, 0, 0xFFFFFFFF, None, b"\1", 2),
        (boolean | vu.TRIGGER, 0, 0, None, b"", 2),
        (none | vu.TRIGGER, 1, 0, None, b"", 2),
        (none | vu.MASK, 0, 0, None, b"", 2),
        (none | boolean | vu.TRIGGER, 0, 1, None, b"\1", 2),
        (none | vu.TRIGGER | vu.MASK, 0, 1, None, b"", 2),
        (vu.TRIGGER, 0, 1, None, b"", 2),
        (none, 0, 1, None, b"", 2),
        (none | vu.TRIGGER | 0x40, 0, 1, None, b"", 2),
        (event | vu.MASK, 0, 1, events[:1], b"", 2),
        (none | vu.TRIGGER, 0, 1, None, b"", 0),
        (event | vu.TRIGGER, 0, 1, events[:1], b"", 1),
        (event | vu.TRIGGER, 0, 2, events[:2], b"", 3),
        (none | vu.MASK, 0, 1, None, b"", 4),
        (none | vu.TRIGGER, 0, 1, None, b"", 5),
        (none | vu.TRIGGER, 0, 0, None, b"", 0xFFFFFFFF),
        (event | vu.TRIGGER, 0, 1, [memory], b"", 2),  # no eventfd
    ):
        refused(EINVAL, client.set_irqs, flags, start, count, fds, data, index)
    refused(EINVAL, client.set_irqs, none | vu.TRIGGER, 0, 1, argsz=19)


# ---- the NIC ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def driven(server: soft.Server, path: str) -> Iterator[Bare]:
    function = Function(path)
    yield Bare(function)
    function.close()


def test_firmware_commands(server: soft.Server, driven: Bare) -> None:
    answer = driven.hwrm("ver_get", hwrm_intf_maj=1, hwrm_intf_min=10, hwrm_intf_upd=3)
    assert answer.hwrm_intf_maj_8b == 1
    driven.hwrm("func_reset")
    assert isinstance(server.function, soft.Function)
    assert driven.hwrm("func_qcaps", fid=0xFFFF).mac_address == server.function.firmware.mac


def test_reset_and_the_next_client(server: soft.Server, path: str) -> None:
    for _ in range(3):
        function = Function(path)
        bare = Bare(function)
        bare.hwrm("ver_get")
        function.client.write(0, 0x40, b"left")
        bare.reset()
        assert function.client.read(0, 0x40, 4) == bytes(4)
        bare.hwrm("ver_get")
        function.client.write(0, 0x40, b"left")
        function.close()
        until(lambda: not server.connected)
        assert pages(server) == 0
    assert server.clients == 3
    with Client(path) as client:  # as at power-on: memory space and bus mastering are off
        assert client.read(vu.CONFIG, 4, 2) == b"\0\0"
        client.write(vu.CONFIG, 4, b"\x02\0")
        assert client.read(0, 0x40, 4) == bytes(4)


def test_the_device_reaches_no_memory_before_bus_mastering(server: soft.Server, path: str) -> None:
    function = Function(path)
    bare = Bare(function)
    bare.hwrm("ver_get")
    function.set_config16(4, 0x2)
    bare.patience = 0.2
    with pytest.raises(Exception, match="ver_get"):
        bare.hwrm("ver_get")
    bare.enable()
    bare.hwrm("ver_get")
    function.close()


def test_memory_without_a_file(server: soft.Server, path: str) -> None:
    """The firmware reads and writes it by asking the client."""

    def asked_and_answered() -> bool:
        """False if this client was kept waiting, and the device, which waits a second, has given it up."""
        with Client(path) as client:
            client.remote[0x10000] = bytearray(PAGE)
            client.dma_map(0x10000, PAGE)
            client.write(vu.CONFIG, 4, b"\x06\0")
            request = hwrm.REQUESTS["hwrm_ver_get"].request.pack(resp_addr=0x10000, seq_id=7)
            bar = vu.Bar(client, 0)
            bar.write_words(0, request.ljust(hwrm.MAX_REQUEST, b"\0"))
            bar.write32(0x100, 1)
            client.region_info(vu.CONFIG)  # the reply comes after what the device asks for
            header = hwrm.RESPONSE_HEADER.unpack(bytes(client.remote[0x10000]))
            if header.seq_id != 7:
                return False
            assert header.error_code == 0
            assert (vu.DMA_WRITE, 0x10000) in {(command, address) for command, address, _ in client.asked}
            # A client that answers with an error: the device goes on.
            client.remote.clear()
            before = len(client.asked)
            bar.write32(0x100, 1)
            assert client.region_info(vu.CONFIG)[1] == 4096
            if len(client.asked) == before:
                return False
            # One that does not answer: the device waits a second, once.
            bar.write32(0x100, 1)
            bar.write32(0x100, 1)
            bar.write32(0x100, 1)
            client.send(vu.GET_REGION_INFO, struct.pack("<IIIIQQ", 32, 0, 7, 0, 0, 0))
            asked = []
            while True:
                _, command, flags, _, _ = client.message()
                if flags & vu.REPLY:
                    break
                asked.append(command)
            assert asked == [vu.DMA_WRITE]
            return True

    assert eventually(asked_and_answered)


class End:
    """A guest's end of a connection: a NIC that it drives, a queue pair, a region.

    The entries' layouts are roce_hsi.h's: sq_rdma_hdr, sq_sge, sq_msn_search, cq_req.
    """

    size, va, entries, mtu = 1 << 20, 0x7000_0000, 32, 1024

    def __init__(self, path: str, mac: bytes, paged: bool) -> None:
        self.bare = bare = Bare(Function(path, paged=paged, mac=mac)).up()
        open_receive_path(bare)
        bare.gid()
        self.memory = bare.dma(self.size)
        level, base = bare.table(self.memory.pages())
        both = rcfw.MrAccess.LOCAL_WRITE | rcfw.MrAccess.REMOTE_WRITE
        self.key = bare.mr(self.size, self.va, lvl=level, pbl=base, access=both)
        self.ring, self.completions = bare.dma(self.entries * (128 + 8)), bare.dma(PAGE)
        level, base = bare.table(self.ring.pages())
        cq = bare.cq(128, pbl=bare.bus(self.completions), lvl=0)
        self.pair = bare.qp(cq, self.entries, sq_pbl=base, sq_lvl=level)
        self.posted, self.psn = 0, 100

    def connect(self, far: End) -> None:
        mac = far.bare.function.firmware.mac
        gid = bytes(10) + b"\xff\xff\x0a" + mac[3:]
        for state in (rcfw.QpState.INIT, rcfw.QpState.RTR, rcfw.QpState.RTS):
            self.bare.modify(self.pair, state, dgid=gid, dest_mac=mac, dest_qp_id=far.pair, timeout=PATIENT)

    def write(self, far: End, at: int, n: int) -> None:
        """An RDMA write of n bytes to the same place of the other region."""
        view = memoryview(self.ring)
        head = struct.pack("<BBBBIIIQII", 4, 1, 3, 0, 0, n, 0, self.va + at, far.key, 0)
        view[self.posted * 128 :][:48] = head + struct.pack("<QII", self.va + at, self.key, n)
        end = self.psn + max(1, -(-n // self.mtu))
        search = self.posted << 48 | end << 24 | self.psn
        view[self.entries * 128 + self.posted * 8 :][:8] = search.to_bytes(8, "little")
        self.posted, self.psn = self.posted + 1, end
        self.bare.doorbells.write64(self.bare.doorbell, (self.pair | 1 << 26) << 32 | self.posted)
        entry = memoryview(self.completions)[(self.posted - 1) * 32 :][:32]
        until(lambda: entry[24] & 1)
        assert entry[25] == 0  # CQ_REQ_STATUS_OK
        assert int.from_bytes(entry[8:10], "little") == self.posted

    def close(self) -> None:
        self.bare.function.close()


@pytest.mark.parametrize("paged", [False, True], ids=["whole", "paged"])
@pytest.mark.parametrize("wire", ["memory", "shm"])
def test_two_guests(tmp_path: Path, wire: str, paged: bool) -> None:
    """Payload in memory that is no machine's of this process: a wire takes it by reference or copies it."""
    with ExitStack() as stack:
        ends = []
        on = soft.Wire() if wire == "memory" else None
        for name in ("a", "b"):
            function = soft.bnxt(on or soft.Wire(f"shm:vfio-user-{os.getpid()}"))
            stack.callback(function.release)
            server = stack.enter_context(soft.serve(function, tmp_path / name))
            end = End(server.socket, function.firmware.mac, paged)
            stack.callback(end.close)
            ends.append(end)
        a, b = ends
        a.connect(b)
        b.connect(a)
        client = b.bare.function.client
        a.memory[:] = np.random.default_rng(7).integers(0, 256, a.size, np.uint8)
        for at, n in ((0, 1), (1, 511), (1000, 512), (5000, 4096), (10_001, 100_003), (1 << 19, 1 << 19)):
            a.write(b, at, n)
            assert (b.memory[at : at + n] == a.memory[at : at + n]).all()
        assert not b.memory[200_000 : 1 << 19].any()
        # While pages elsewhere come and go, as those of a guest's other devices do.
        other = os.memfd_create("other")
        os.ftruncate(other, 1 << 20)
        for i in range(16):
            for j in range(64):
                client.dma_map(j * PAGE, PAGE, other, j * PAGE)
            a.memory[i] ^= 0xFF
            a.write(b, 0, 64 << 10)
            client.dma_unmap(0, 64 * PAGE)
        assert (b.memory[: 64 << 10] == a.memory[: 64 << 10]).all()
        # A page of the target that is gone: the pair fails, and no byte of it is written.
        address = b.memory.address
        if not paged:
            client.dma_unmap(b.bare.function.base, b.bare.function.size)
        else:
            client.dma_unmap(address, PAGE)
        before = bytes(b.memory[:PAGE])
        a.memory[:PAGE] ^= 0xFF
        with pytest.raises(AssertionError):
            a.write(b, 0, 2048)
        assert bytes(b.memory[:PAGE]) == before
        os.close(other)


# ---- the server ------------------------------------------------------------------------------------------------------


def test_one_client_at_a_time(server: soft.Server, path: str) -> None:
    with Client(path) as first:
        second = Client(path, negotiate=False)
        second.send(vu.VERSION, struct.pack("<HH", 0, 0))
        assert not select.select([second.sock], [], [], 0.1)[0]
        assert first.region_info(vu.CONFIG)[1] == 4096
    assert second.reply(1, vu.VERSION)[:4] == bytes(4)
    second.close()


def test_a_socket_that_somebody_listens_on(server: soft.Server, path: str) -> None:
    function = soft.bnxt(soft.Wire())
    with pytest.raises(userdma.Error, match="somebody listens on it already"):
        soft.serve(function, path)
    with Client(path):
        pass
    function.release()


def test_a_socket_that_a_dead_server_left(tmp_path: Path) -> None:
    path = str(tmp_path / "dead.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    function = soft.bnxt(soft.Wire())
    with soft.serve(function, path) as server, Client(path):
        assert server.socket == path
    assert not os.path.exists(path)
    (tmp_path / "file").write_text("a file")
    with pytest.raises(userdma.Error, match="what is there is no socket"):
        soft.serve(function, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "a file"
    with pytest.raises(userdma.Error, match="No such file"):
        soft.serve(function, tmp_path / "no" / "folder")
    with pytest.raises(userdma.Error, match="1 to 107 are wanted"):
        soft.serve(function, "/" + "x" * 108)
    function.release()


def test_once(path: str) -> None:
    function = soft.bnxt(soft.Wire())
    server = soft.serve(function, path, once=True)
    assert not server.wait(0.05)
    with Client(path):
        assert not server.ended
    assert server.wait(60)
    assert not os.path.exists(path)
    server.close()
    # The function can be used here again.
    with userdma.open(function) as nic:
        assert nic.mac == function.firmware.mac


def test_a_function_that_is_in_use(path: str) -> None:
    function = soft.bnxt(soft.Wire())
    held = function.alloc_dma(PAGE)
    with pytest.raises(userdma.Error, match="in use"):
        soft.serve(function, path)
    function.free_dma(held)
    with soft.serve(function, path):
        with pytest.raises(userdma.Error, match="served already"):
            soft.serve(function, path + "2")
        with pytest.raises(userdma.Error, match="served over vfio-user"):
            userdma.open(function)
    function.release()
    with pytest.raises(userdma.Error, match="released"):
        soft.serve(function, path)
    physical = soft.bnxt(soft.Wire(), iommu=False)
    with pytest.raises(userdma.Error, match="no IOMMU"):
        soft.serve(physical, path)
    physical.release()


def test_close_with_a_client_that_waits(server: soft.Server, client: Client) -> None:
    server.close()
    server.close()
    with pytest.raises(Closed):
        client.take(1)
    assert server.ended
    assert not os.path.exists(server.socket)


def test_nothing_is_left(path: str, memory: int) -> None:
    function = soft.bnxt(soft.Wire())
    before, threads = descriptors(), threading.active_count()
    for _ in range(5):
        with soft.serve(function, path), Client(path) as client:
            events = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(16)]
            client.dma_map(0, 1 << 20, memory)
            client.set_irqs(vu.DATA_EVENTFD | vu.TRIGGER, 0, 16, events)
            client.set_irqs(vu.DATA_EVENTFD | vu.TRIGGER, 0, 1, events[:1], index=3)
            for fd in events:
                os.close(fd)
    assert descriptors() == before
    assert threading.active_count() == threads
    assert "of-a-client" not in Path("/proc/self/maps").read_text()
    function.release()


PROGRAM = """
import os, sys, time
sys.path.insert(0, {here!r})
import vfio_user_client as vu
from bare_bnxt import Bare
from test_soft_firmware import open_receive_path
function = vu.Function({path!r})
bare = Bare(function)
print("there", flush=True)
while True:
    bare.hwrm("ver_get")
"""


def test_a_client_that_is_killed(server: soft.Server, path: str) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    for i in range(3):
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(here=here, path=path)], stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "there\n"
        time.sleep(0.01 * i)
        program.kill()
        program.wait()
        program.stdout.close()
        until(lambda: not server.connected)
        assert pages(server) == 0
    function = Function(path)
    Bare(function).hwrm("ver_get")
    function.close()


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command(tmp_path: Path, number: int) -> None:
    paths = [str(tmp_path / "a.sock"), str(tmp_path / "b.sock")]
    program = subprocess.Popen(
        [
            *(sys.executable, "-m", "userdma.cli", "serve", "--vfio-user", paths[0], "soft:bnxt"),
            *("--vfio-user", paths[1], "soft:bnxt", "--mac", "02:00:00:00:00:01"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    lines = [program.stdout.readline() for _ in range(4)]
    assert "02:00:00:00:00:01" in lines[0]
    for path, line in zip(paths, lines[1::2], strict=True):
        assert "memory-backend-memfd" in line
        assert f'{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}}}}' in line
    functions = [Function(path) for path in paths]
    for function in functions:
        Bare(function).hwrm("ver_get")
    program.send_signal(number)
    out, err = program.communicate(timeout=300)
    assert (program.returncode, out, err) == (0, "", "")
    assert not any(os.path.exists(path) for path in paths)
    for function in functions:
        function.close()


def test_the_command_once(path: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "userdma.cli", "serve", "--vfio-user", path, "soft:bnxt", "--once"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    program.stdout.readline()
    with Client(path):
        pass
    assert program.wait(300) == 0
    program.stdout.close()
