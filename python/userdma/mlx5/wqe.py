"""The work queue entries of a ConnectX: what a program writes for the NIC to send, read, write and receive.

An entry of a send ring takes one or more blocks of ``BLOCK`` bytes, one of a receive ring as many segments of
``SEGMENT`` bytes as the ring was made for. Each function writes one into a buffer at a byte offset, without a copy of
the buffer (a `bytearray`, an `mmap`, a NumPy array), and those of the send ring return how many blocks it takes.

    >>> ring = bytearray(16 * BLOCK)
    >>> send(ring, 0, qp=0x1C3, index=0, data=[Data(lkey=0x1234, address=0x7000, bytes=3000)])
    1
    >>> ring[:32].hex(" ", 4)
    '0000000a 0001c302 00000008 00000000 00000bb8 00001234 00000000 00007000'

``index`` counts the blocks before the entry since the ring was empty, modulo 2^16: the next entry's is this one's and
its blocks. A message's bytes are in pieces of memory (``data``) or in the entry itself (``inline``); of none, or of
pieces without bytes, it has none. The NIC sees an entry once its doorbell record and its doorbell say so
(`userdma.mlx5.doorbell`).

Layouts: struct mlx5_wqe_ctrl_seg, mlx5_wqe_raddr_seg, mlx5_wqe_atomic_seg, mlx5_wqe_data_seg and mlx5_wqe_inl_data_seg
of rdma-core's infiniband/mlx5dv.h. Every wrong argument is ``ValueError`` (``TypeError``), and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, NamedTuple

from userdma import _core

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "BLOCK",
    "SEGMENT",
    "Data",
    "Flags",
    "Opcode",
    "Remote",
    "compare_swap",
    "fetch_add",
    "read",
    "receive",
    "send",
    "write",
]

BLOCK = 64  #: bytes of a block of a send ring (MLX5_SEND_WQE_BB)
SEGMENT = 16  #: bytes of a segment


class Opcode(IntEnum):
    """MLX5_OPCODE_*"""

    SEND_INVAL = 0x01
    RDMA_WRITE = 0x08
    RDMA_WRITE_IMM = 0x09
    SEND = 0x0A
    SEND_IMM = 0x0B
    RDMA_READ = 0x10
    ATOMIC_CS = 0x11
    ATOMIC_FA = 0x12


# Those that name no memory of the peer's.
_TO_RECEIVES = (Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INVAL)


class Flags(IntFlag):
    """MLX5_WQE_CTRL_*"""

    SOLICITED = 1 << 1
    CQ_UPDATE = 2 << 2
    FENCE = 4 << 5


class Data(NamedTuple):
    """A piece of this NIC's registered memory."""

    lkey: int
    address: int
    bytes: int  #: at most 2^31


class Remote(NamedTuple):
    """Where in a peer's registered memory."""

    rkey: int
    address: int


def send(
    buffer: Buffer,
    at: int,
    *,
    qp: int,
    index: int,
    data: Iterable[Data | tuple[int, int, int]] = (),
    inline: Buffer | None = None,
    immediate: int | None = None,
    invalidate: int | None = None,
    signaled: bool = True,
    solicited: bool = False,
    fence: bool = False,
) -> int:
    """A message for the peer's oldest receive: with ``immediate`` data (32 bits), or the ``invalidate`` of a key of the
    peer's, or neither.

    ``signaled``: it has a completion, and not only if it fails. ``solicited``: the peer's completion is one that wakes
    those who wait for such. ``fence``: it starts once the reads and atomics before it have completed.
    """
    if immediate is not None and invalidate is not None:
        raise ValueError("a message has immediate data or invalidates a key, not both")
    if invalidate is not None:
        opcode, word = Opcode.SEND_INVAL, invalidate
    elif immediate is not None:
        opcode, word = Opcode.SEND_IMM, immediate
    else:
        opcode, word = Opcode.SEND, 0
    return _put(buffer, at, opcode, qp, index, data, inline, word, None, None, signaled, solicited, fence)


def write(
    buffer: Buffer,
    at: int,
    *,
    qp: int,
    index: int,
    remote: Remote | tuple[int, int],
    data: Iterable[Data | tuple[int, int, int]] = (),
    inline: Buffer | None = None,
    immediate: int | None = None,
    signaled: bool = True,
    solicited: bool = False,
    fence: bool = False,
) -> int:
    """A write of the peer's memory. With ``immediate`` data it takes a receive of the peer's, which gets them."""
    opcode = Opcode.RDMA_WRITE if immediate is None else Opcode.RDMA_WRITE_IMM
    return _put(buffer, at, opcode, qp, index, data, inline, immediate or 0, remote, None, signaled, solicited, fence)


def read(
    buffer: Buffer,
    at: int,
    *,
    qp: int,
    index: int,
    remote: Remote | tuple[int, int],
    data: Iterable[Data | tuple[int, int, int]],
    signaled: bool = True,
    fence: bool = False,
) -> int:
    """A read of the peer's memory into ``data``."""
    return _put(buffer, at, Opcode.RDMA_READ, qp, index, data, None, 0, remote, None, signaled, False, fence)


def fetch_add(
    buffer: Buffer,
    at: int,
    *,
    qp: int,
    index: int,
    remote: Remote | tuple[int, int],
    data: Data | tuple[int, int, int],
    add: int,
    signaled: bool = True,
    fence: bool = False,
) -> int:
    """Adds to 8 bytes of the peer's memory, at a multiple of 8; ``data``, 8 bytes too, gets what was there."""
    return _put(buffer, at, Opcode.ATOMIC_FA, qp, index, [data], None, 0, remote, (add, 0), signaled, False, fence)


def compare_swap(
    buffer: Buffer,
    at: int,
    *,
    qp: int,
    index: int,
    remote: Remote | tuple[int, int],
    data: Data | tuple[int, int, int],
    compare: int,
    swap: int,
    signaled: bool = True,
    fence: bool = False,
) -> int:
    """Replaces the 8 bytes of the peer's memory by ``swap`` if they are ``compare``; ``data`` gets what was there."""
    atomic = (swap, compare)
    return _put(buffer, at, Opcode.ATOMIC_CS, qp, index, [data], None, 0, remote, atomic, signaled, False, fence)


def receive(buffer: Buffer, at: int, *, segments: int, data: Iterable[Data | tuple[int, int, int]]) -> None:
    """A receive into these pieces of memory, in an entry of so many segments: what is beyond is ended."""
    _core.mlx5_receive(buffer, at, segments=segments, data=data)


def _put(
    buffer: Buffer,
    at: int,
    opcode: Opcode,
    qp: int,
    index: int,
    data: Iterable[Data | tuple[int, int, int]],
    inline: Buffer | None,
    immediate: int,
    remote: Remote | tuple[int, int] | None,
    atomic: tuple[int, int] | None,
    signaled: bool,
    solicited: bool,
    fence: bool,
) -> int:
    if remote is None and opcode not in _TO_RECEIVES:
        raise TypeError("remote is where in a peer's memory, not None")
    flags = (Flags.CQ_UPDATE if signaled else 0) | (Flags.SOLICITED if solicited else 0) | (Flags.FENCE if fence else 0)
    segments = _core.mlx5_request(
        buffer,
        at,
        opcode=int(opcode),
        flags=int(flags),
        qp=qp,
        index=index,
        data=data,
        inlined=inline,
        immediate=immediate,
        remote=remote,
        atomic=atomic,
    )
    return -(-segments * SEGMENT // BLOCK)
