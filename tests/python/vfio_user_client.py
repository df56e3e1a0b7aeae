"""A vfio-user client, by QEMU's docs/interop/vfio-user.rst: what tests drive a served NIC with.

`Client` sends messages, right and wrong ones; `Function` is on top of it what `bare_bnxt.Bare` drives.
"""

from __future__ import annotations

import array
import errno
import json
import mmap
import os
import socket
import struct
from types import SimpleNamespace, TracebackType
from typing import Any

import numpy as np

PAGE = 4096
HEADER = struct.Struct("<HHIII")
REPLY, NO_REPLY, ERROR = 0x1, 0x10, 0x20

VERSION, DMA_MAP, DMA_UNMAP, GET_INFO, GET_REGION_INFO, GET_REGION_IO_FDS, GET_IRQ_INFO, SET_IRQS = range(1, 9)
REGION_READ, REGION_WRITE, DMA_READ, DMA_WRITE, RESET, DIRTY_PAGES, WRITE_MULTI, FEATURE = range(9, 17)

CONFIG, MSIX = 7, 2
DATA_NONE, DATA_BOOL, DATA_EVENTFD = 1, 2, 4  # linux/vfio.h VFIO_IRQ_SET_*
MASK, UNMASK, TRIGGER = 8, 16, 32
UNMAP_ALL = 2  # VFIO_DMA_UNMAP_FLAG_ALL

CAPABILITIES = {
    "capabilities": {
        "max_msg_fds": 16,
        "max_data_xfer_size": 1048576,
        "pgsizes": 4096,
        "max_dma_maps": 65535,
        "write_multiple": True,
        "migration": {"pgsize": 4096, "max_bitmap_size": 268435456},
    }
}


class Refused(Exception):
    """An error reply."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode.get(number, str(number)))
        self.errno = number


class Closed(Exception):
    """The server ended the connection."""


class Client:
    """One connection. `memory` answers the server's requests for memory: by address, a bytearray of it."""

    def __init__(self, path: str, negotiate: bool = True) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(path)
        self.number = 0
        self.remote: dict[int, bytearray] = {}
        self.asked: list[tuple[int, int, int]] = []  # (command, address, count) of the server's requests
        if negotiate:
            self.version = self.negotiate()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    # ---- messages ----------------------------------------------------------------------------------------------------

    def put(self, data: bytes, fds: list[int] | None = None) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            if self.sock.sendmsg([data], rights) < len(data):
                raise Closed
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Closed from e

    def send(self, command: int, payload: bytes = b"", fds: list[int] | None = None, flags: int = 0) -> int:
        self.number = self.number + 1 & 0xFFFF
        self.put(HEADER.pack(self.number, command, HEADER.size + len(payload), flags, 0) + payload, fds)
        return self.number

    def take(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            try:
                more = self.sock.recv(n - len(data))
            except ConnectionResetError as e:
                raise Closed from e
            if not more:
                raise Closed
            data += more
        return data

    def message(self) -> tuple[int, int, int, int, bytes]:
        """(id, command, flags, error, payload) of the next one."""
        number, command, size, flags, error = HEADER.unpack(self.take(HEADER.size))
        return number, command, flags, error, self.take(size - HEADER.size)

    def reply(self, number: int, command: int) -> bytes:
        """The payload of the reply to that message; requests of the server's that come before it are answered."""
        while True:
            got, what, flags, error, payload = self.message()
            if not flags & REPLY:
                self.answer(got, what, payload)
                continue
            assert (got, what) == (number, command)
            assert flags in (REPLY, REPLY | ERROR)
            if flags & ERROR:
                assert payload == b""
                raise Refused(error)
            return payload

    def answer(self, number: int, command: int, payload: bytes) -> None:
        address, count = struct.unpack_from("<QQ", payload)
        self.asked.append((command, address, count))
        for base, memory in self.remote.items():
            if base <= address and address + count <= base + len(memory):
                at = address - base
                body = payload[:16]
                if command == DMA_READ:
                    body += bytes(memory[at : at + count])
                else:
                    memory[at : at + count] = payload[16:]
                self.put(HEADER.pack(number, command, HEADER.size + len(body), REPLY, 0) + body)
                return
        self.put(HEADER.pack(number, command, HEADER.size, REPLY | ERROR, errno.EFAULT))

    def serve(self) -> None:
        """Answers the next thing that the server asks for."""
        number, command, flags, _, payload = self.message()
        assert not flags & REPLY
        self.answer(number, command, payload)

    def call(self, command: int, payload: bytes = b"", fds: list[int] | None = None) -> bytes:
        return self.reply(self.send(command, payload, fds), command)

    # ---- commands ----------------------------------------------------------------------------------------------------

    def negotiate(self, major: int = 0, minor: int = 0, capabilities: Any = CAPABILITIES) -> dict[str, Any]:
        """The server's version and capabilities."""
        payload = struct.pack("<HH", major, minor)
        if capabilities is not None:
            payload += json.dumps(capabilities).encode() + b"\0"
        reply = self.call(VERSION, payload)
        assert reply[-1:] == b"\0"
        assert capabilities is None or len(reply) <= len(payload)  # QEMU has no room for a longer one
        got_major, got_minor = struct.unpack_from("<HH", reply)
        return {"major": got_major, "minor": got_minor} | json.loads(reply[4:-1])

    def dma_map(
        self, address: int, size: int, fd: int | None = None, offset: int = 0, flags: int = 3, argsz: int = 32
    ) -> None:
        payload = struct.pack("<IIQQQ", argsz, flags, offset, address, size)
        assert self.call(DMA_MAP, payload, None if fd is None else [fd]) == b""

    def dma_unmap(self, address: int, size: int, flags: int = 0, argsz: int = 24) -> int:
        """How many bytes were unmapped."""
        reply = self.call(DMA_UNMAP, struct.pack("<IIQQ", argsz, flags, address, size))
        got_argsz, got_flags, got_address, unmapped = struct.unpack("<IIQQ", reply)
        assert (got_argsz, got_flags, got_address) == (argsz, flags, address)
        return int(unmapped)

    def read(self, region: int, offset: int, count: int) -> bytes:
        head = struct.pack("<QII", offset, region, count)
        reply = self.call(REGION_READ, head)
        assert reply[:16] == head
        assert len(reply) == 16 + count
        return reply[16:]

    def write(self, region: int, offset: int, data: bytes, posted: bool = False) -> None:
        head = struct.pack("<QII", offset, region, len(data))
        if posted:
            self.send(REGION_WRITE, head + data, flags=NO_REPLY)
        else:
            assert self.call(REGION_WRITE, head + data) == head

    def write_multi(self, writes: list[tuple[int, int, bytes]], flags: int = 0) -> None:
        payload = struct.pack("<Q", len(writes))
        for region, offset, data in writes:
            payload += struct.pack("<QII8s", offset, region, len(data), data)
        number = self.send(WRITE_MULTI, payload, flags=flags)
        if not flags & NO_REPLY:
            assert self.reply(number, WRITE_MULTI) == struct.pack("<Q", len(writes))

    def set_irqs(
        self,
        flags: int,
        start: int,
        count: int,
        fds: list[int] | None = None,
        data: bytes = b"",
        index: int = MSIX,
        argsz: int | None = None,
    ) -> None:
        size = 20 + len(data) if argsz is None else argsz
        assert self.call(SET_IRQS, struct.pack("<IIIII", size, flags, index, start, count) + data, fds) == b""

    def region_info(self, index: int, argsz: int = 32) -> tuple[int, int]:
        """(flags, size)."""
        reply = self.call(GET_REGION_INFO, struct.pack("<IIIIQQ", argsz, 0, index, 0, 0, 0))
        got_argsz, flags, got_index, cap, size, offset = struct.unpack("<IIIIQQ", reply)
        assert (got_argsz, got_index, cap, offset) == (32, index, 0, 0)
        return flags, size

    def irq_info(self, index: int) -> tuple[int, int]:
        """(flags, count)."""
        reply = self.call(GET_IRQ_INFO, struct.pack("<IIII", 16, 0, index, 0))
        argsz, flags, got, count = struct.unpack("<IIII", reply)
        assert (argsz, got) == (16, index)
        return flags, count


class Memory(np.ndarray[Any, np.dtype[np.uint8]]):
    """What `alloc_dma` gives: bytes of the guest's memory, and their bus addresses."""

    address: int

    def pages(self) -> list[int]:
        return list(range(self.address, self.address + self.nbytes, PAGE))


class Bar:
    def __init__(self, client: Client, index: int) -> None:
        self.client, self.index = client, index

    def write_words(self, offset: int, data: bytes) -> None:
        for at in range(0, len(data), 4):
            self.client.write(self.index, offset + at, data[at : at + 4], posted=True)

    def write32(self, offset: int, value: int) -> None:
        self.client.write(self.index, offset, struct.pack("<I", value), posted=True)

    def write64(self, offset: int, value: int) -> None:
        self.client.write(self.index, offset, struct.pack("<Q", value), posted=True)

    def read32(self, offset: int) -> int:
        return int.from_bytes(self.client.read(self.index, offset, 4), "little")


class Function:
    """A served NIC as a PCI function: registers by messages, and memory out of a file that the client maps for it.

    `paged`: every page by a message of its own, as a virtual IOMMU does.
    """

    base = 1 << 32

    def __init__(self, path: str, size: int = 32 << 20, paged: bool = False, mac: bytes = b"") -> None:
        self.client = Client(path)
        self.firmware = SimpleNamespace(mac=mac)  # what Bare asks of it
        self.fd = os.memfd_create("guest", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        self.size, self.used, self.paged = size, 0, paged
        if not paged:
            self.client.dma_map(self.base, size, self.fd)

    def close(self) -> None:
        self.client.close()
        os.close(self.fd)

    def alloc_dma(self, size: int) -> Memory:
        size = -(-size // PAGE) * PAGE
        assert self.used + size <= self.size
        out = np.frombuffer(self.memory, np.uint8, size, self.used).view(Memory)
        out.address = self.base + self.used
        if self.paged:
            for at in range(0, size, PAGE):
                self.client.dma_map(out.address + at, PAGE, self.fd, self.used + at)
        self.used += size
        return out

    def map(self, index: int) -> Bar:
        return Bar(self.client, index)

    def config16(self, offset: int) -> int:
        return int.from_bytes(self.client.read(CONFIG, offset, 2), "little")

    def set_config16(self, offset: int, value: int) -> None:
        self.client.write(CONFIG, offset, value.to_bytes(2, "little"))

    def reset(self) -> None:
        assert self.client.call(RESET) == b""
