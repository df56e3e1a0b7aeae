"""A completion is what a ConnectX writes once a work queue entry completes or fails.

A completion ring holds a power of two of entries of ``SIZE`` bytes. Its consumer count is how many completions the
process has read: the next is at byte ``SIZE * (count % entries)``, and the NIC wrote it once ``owned`` says so.

    >>> ring = bytearray(4 * SIZE)
    >>> for at in range(0, len(ring), SIZE):
    ...     invalidate(ring, at)
    >>> owned(ring, 0, count=0, entries=4)
    False

The layout is that of ``struct mlx5_cqe64`` and ``struct mlx5_err_cqe`` (rdma-core's infiniband/mlx5dv.h), all
big-endian. Of its bytes `read` takes:

    0x2c to 0x2f  the message's bytes, of a receive
    0x36          the NIC's own syndrome, of a failure
    0x37          the syndrome, of a failure
    0x39 to 0x3b  the queue pair's number
    0x3c to 0x3d  the low 16 bits of the entry's number
    0x3f          the opcode in the high 4 bits, and the owner bit in the lowest

Opcodes: 0, an entry of the send ring; 2, a receive; 13, an entry of the send ring failed; 14, a receive failed; 15, not
written; any other is `Unexpected`.

A receive of 1234 bytes, as the NIC writes it into the second place of the ring's first pass:

    >>> ring[SIZE + 0x2C : SIZE + 0x30] = (1234).to_bytes(4, "big")
    >>> ring[SIZE + 0x38 : SIZE + 0x3C] = (0x1C3).to_bytes(4, "big")
    >>> ring[SIZE + 0x3C : SIZE + 0x40] = bytes([0, 7, 0, 2 << 4])
    >>> owned(ring, SIZE, count=1, entries=4), read(ring, SIZE)
    (True, Completion(qp=451, index=7, status=Received(bytes=1234)))

Buffers are anything with the buffer protocol, a `bytearray`, an `mmap`, a NumPy array, and are not copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from userdma import _core
from userdma._core import Side
from userdma.types import ErrorKind, OtherError

__all__ = [
    "SIZE",
    "Completion",
    "Done",
    "Failed",
    "Received",
    "Status",
    "Unexpected",
    "invalidate",
    "message",
    "owned",
    "read",
]

SIZE = 64  #: bytes of a completion


@dataclass(frozen=True, slots=True)
class Done:
    """An entry of the send ring completed."""


@dataclass(frozen=True, slots=True)
class Received:
    """A receive took a message of so many bytes, which have landed in its memory."""

    bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An entry of ``ring`` failed."""

    ring: Side
    error: ErrorKind | OtherError  #: a syndrome without a name here is ``OtherError`` with its number
    vendor: int  #: the NIC's own syndrome


@dataclass(frozen=True, slots=True)
class Unexpected:
    """A completion of a kind that the entries here never make, such as that of a message with immediate data."""

    opcode: int


Status: TypeAlias = Done | Received | Failed | Unexpected


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion. The receives of a queue pair complete in the order in which they were posted."""

    qp: int  #: the number of the entry's queue pair
    index: int  #: for an entry of the send ring, the low 16 bits of its number
    status: Status


owned = _core.mlx5_owned
read = _core.mlx5_read
invalidate = _core.mlx5_invalidate

# What went wrong, as a part of a sentence; the words of the interface where it has some.
_WORDS = {
    ErrorKind.LOCAL_LENGTH: "a local length is wrong",
    ErrorKind.LOCAL_QP_OPERATION: "the entry is malformed for its queue pair",
    ErrorKind.LOCAL_PROTECTION: "local memory is outside its region or its keys",
    ErrorKind.FLUSHED: "the queue pair failed before the entry ran",
    ErrorKind.BAD_RESPONSE: "the peer sent an unexpected response",
    ErrorKind.LOCAL_ACCESS: "the peer's request violated local access rights",
    ErrorKind.REMOTE_INVALID_REQUEST: "the peer refused the request as malformed for its queue pair",
    ErrorKind.REMOTE_ACCESS: "the peer refused the request's memory or key",
    ErrorKind.REMOTE_OPERATION: "the peer could not complete the request",
    ErrorKind.RETRY_EXCEEDED: "retry counter exceeded",
    ErrorKind.REMOTE_ABORTED: "the peer aborted the operation",
}


def message(c: Completion) -> str:
    """Describes the completion for a person.

    >>> message(Completion(0x1C3, 7, Failed(Side.SEND, ErrorKind.RETRY_EXCEEDED, 0x81)))
    'queue pair 0x1c3, entry 7: retry counter exceeded (vendor syndrome 0x81)'
    """
    if not isinstance(c, Completion):
        raise TypeError(f"a userdma.mlx5.completion.Completion wanted, not {type(c).__name__}")
    pair = f"queue pair {c.qp:#x}"
    match c.status:
        case Done():
            return f"{pair}, entry {c.index}: done"
        case Received(bytes=n):
            return f"{pair}, a receive: {n} bytes"
        case Unexpected(opcode=opcode):
            return f"{pair}: a completion of another kind than its entries make, opcode {opcode:#x}"
        case Failed(ring=ring, error=error, vendor=vendor):
            entry = f"entry {c.index}" if ring is Side.SEND else "a receive"  # a receive's number is not in it
            words = f"syndrome {error.number:#x}" if isinstance(error, OtherError) else _WORDS[error]
            return f"{pair}, {entry}: {words} (vendor syndrome {vendor:#x})"
        case other:
            raise TypeError(f"a completion's status wanted, not {type(other).__name__}")
