"""ConnectX's completions, sentence by sentence of their interface. Expected bytes are laid out by rdma-core's own
header, infiniband/mlx5dv.h, compiled."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdma import ErrorKind, OtherError, Side
from userdma.mlx5 import completion
from userdma.mlx5.completion import (
    SIZE,
    Completion,
    Done,
    Failed,
    Received,
    Unexpected,
    invalidate,
    message,
    owned,
    read,
)

# Numbers of infiniband/mlx5dv.h: MLX5_CQE_*, MLX5_CQE_SYNDROME_*.
REQ, RESP_WR_IMM, RESP_SEND, RESP_SEND_IMM, RESP_SEND_INV, RESIZE, NO_PACKET = range(7)
SIG_ERR, REQ_ERR, RESP_ERR, INVALID = 12, 13, 14, 15
SYNDROMES = {
    0x01: ErrorKind.LOCAL_LENGTH,
    0x02: ErrorKind.LOCAL_QP_OPERATION,
    0x04: ErrorKind.LOCAL_PROTECTION,
    0x05: ErrorKind.FLUSHED,
    0x10: ErrorKind.BAD_RESPONSE,
    0x11: ErrorKind.LOCAL_ACCESS,
    0x12: ErrorKind.REMOTE_INVALID_REQUEST,
    0x13: ErrorKind.REMOTE_ACCESS,
    0x14: ErrorKind.REMOTE_OPERATION,
    0x15: ErrorKind.RETRY_EXCEEDED,
    0x22: ErrorKind.REMOTE_ABORTED,
}


def cqe(opcode: int, owner: int = 0, qp: int = 0, index: int = 0, bytes: int = 0, high: int = 0) -> bytearray:
    """struct mlx5_cqe64: byte_cnt at 0x2c, sop_drop_qpn at 0x38, wqe_counter at 0x3c, op_own at 0x3f, big-endian.
    ``high`` is the byte of sop_drop_qpn that is not the number."""
    data = bytearray(64)
    data[0x2C:0x30] = bytes.to_bytes(4, "big")
    data[0x38:0x3C] = (high << 24 | qp).to_bytes(4, "big")
    data[0x3C:0x3E] = index.to_bytes(2, "big")
    data[0x3F] = opcode << 4 | owner
    return data


def error_cqe(opcode: int, syndrome: int, vendor: int, **fields: int) -> bytearray:
    """struct mlx5_err_cqe: vendor_err_synd at 0x36, syndrome at 0x37, and the rest as in the other."""
    data = cqe(opcode, **fields)
    data[0x36], data[0x37] = vendor, syndrome
    return data


# ---- size, and where completions are -------------------------------------------------------------------------------


def test_size() -> None:
    """size is 64, the bytes of a completion."""
    assert SIZE == 64


def ring(entries: int) -> bytearray:
    buffer = bytearray(entries * SIZE)
    for at in range(0, len(buffer), SIZE):
        invalidate(buffer, at)
    return buffer


@given(log=st.integers(0, 5), rounds=st.integers(1, 4))
def test_a_ring_that_the_nic_writes(log: int, rounds: int) -> None:
    """The next is at byte 64 * (c mod m), and the NIC wrote it once owned says so."""
    entries = 1 << log
    buffer = ring(entries)
    for count in range(rounds * entries):
        at = SIZE * (count % entries)
        assert not owned(buffer, at, count=count, entries=entries)
        # The owner bit of a ConnectX is 0 in its first round, and the other one in each next.
        buffer[at : at + SIZE] = cqe(REQ, (count // entries) % 2, index=count & 0xFFFF)
        assert owned(buffer, at, count=count, entries=entries)
        assert read(buffer, at).index == count


# ---- owned -----------------------------------------------------------------------------------------------------------


@given(opcode=st.integers(0, 15), owner=st.integers(0, 1), count=st.integers(0, (1 << 80) - 1), log=st.integers(0, 24))
def test_owned(opcode: int, owner: int, count: int, log: int) -> None:
    """True iff its opcode is valid and its owner bit is bit log2 entries of count."""
    expected = opcode != INVALID and owner == (count >> log) & 1
    assert owned(cqe(opcode, owner), 0, count=count, entries=1 << log) is expected


def test_owned_checks() -> None:
    """ValueError if the bytes are not in the buffer, count is negative or entries is not a power of two."""
    buffer = bytearray(128)
    for at in (-1, 65, 128, 1 << 70, -(1 << 70)):
        with pytest.raises(ValueError, match="are not in the buffer's 128"):
            owned(buffer, at, count=0, entries=2)
    with pytest.raises(ValueError, match="are not in the buffer's 63"):
        owned(bytearray(63), 0, count=0, entries=2)
    assert owned(buffer, 64, count=0, entries=2)
    for count in (-1, -(1 << 70)):
        with pytest.raises(ValueError, match=r"count is -\d+: it must not be negative"):
            owned(buffer, 0, count=count, entries=2)
    for entries in (0, 3, 6, 12, 65535):
        with pytest.raises(ValueError, match=f"entries is {entries}: a ring has a power of two"):
            owned(buffer, 0, count=0, entries=entries)
    with pytest.raises(ValueError, match="entries is -2"):
        owned(buffer, 0, count=0, entries=-2)


def test_owned_of_wrong_types() -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        owned("text", 0, count=0, entries=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integer"):
        owned(bytearray(64), 0.0, count=0, entries=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs the argument 'count'"):
        owned(bytearray(64), 0, entries=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="by their names"):
        owned(bytearray(64), 0, 0, 2)  # type: ignore[misc]


# ---- read ------------------------------------------------------------------------------------------------------------


def test_done() -> None:
    """An entry of the send ring completed: the number of its queue pair, and the low 16 bits of its own."""
    assert read(cqe(REQ, qp=0x1C3, index=7, high=0x10), 0) == Completion(0x1C3, 7, Done())
    assert read(cqe(REQ, 1, qp=0xFFFFFF, index=0xFFFF, high=0xFF), 0) == Completion(0xFFFFFF, 0xFFFF, Done())


def test_received() -> None:
    """A receive took a message of that many bytes."""
    assert read(cqe(RESP_SEND, qp=5, bytes=1 << 31), 0) == Completion(5, 0, Received(1 << 31))
    assert read(cqe(RESP_SEND, qp=5), 0).status == Received(0)


@pytest.mark.parametrize("opcode", [REQ_ERR, RESP_ERR])
@pytest.mark.parametrize("syndrome", range(256))
def test_failed(opcode: int, syndrome: int) -> None:
    """An entry of ring failed, by its syndrome: another one by its number. vendor is the NIC's own syndrome."""
    error = SYNDROMES.get(syndrome, OtherError(syndrome))
    side = Side.SEND if opcode == REQ_ERR else Side.RECEIVE
    data = error_cqe(opcode, syndrome, 255 - syndrome, qp=9, index=3, high=0x0A)
    assert read(data, 0) == Completion(9, 3, Failed(side, error, 255 - syndrome))


@pytest.mark.parametrize(
    "opcode", [RESP_WR_IMM, RESP_SEND_IMM, RESP_SEND_INV, RESIZE, NO_PACKET, 7, 8, 9, 10, 11, SIG_ERR, INVALID]
)
def test_unexpected(opcode: int) -> None:
    """A kind that the entries here never make, such as a receive's of a message with immediate data, by its opcode."""
    assert read(cqe(opcode, qp=0x1C3, index=2), 0).status == Unexpected(opcode)


def test_read_checks() -> None:
    """ValueError if the bytes are not in the buffer."""
    for at in (-1, 1, 64):
        with pytest.raises(ValueError, match=f"at byte {at} are not in the buffer's 64"):
            read(bytearray(64), at)
    with pytest.raises(ValueError, match="are not in the buffer's 0"):
        read(b"", 0)


# ---- invalidate ------------------------------------------------------------------------------------------------------


@given(data=st.binary(min_size=192, max_size=192), place=st.integers(0, 128))
def test_invalidate(data: bytes, place: int) -> None:
    """owned is false for it at every count until the NIC writes it; no byte beside it is touched."""
    buffer = bytearray(data)
    invalidate(buffer, place)
    for log in range(20):
        assert not any(owned(buffer, place, count=count, entries=1 << log) for count in (0, 1 << log, (1 << 63) - 1))
    assert buffer[:place] == data[:place] and buffer[place + 64 :] == data[place + 64 :]


def test_invalidate_checks() -> None:
    """ValueError if the bytes are not in the buffer; nothing is written then."""
    buffer = bytearray(64)
    for at in (-1, 1):
        with pytest.raises(ValueError, match="are not in the buffer"):
            invalidate(buffer, at)
    assert buffer == bytes(64)
    with pytest.raises(BufferError, match="not writable"):
        invalidate(b"\0" * 64, 0)


# ---- message ---------------------------------------------------------------------------------------------------------


def test_message() -> None:
    """Describes c for a person: the interface's own example."""
    c = Completion(0x1C3, 7, Failed(Side.SEND, ErrorKind.RETRY_EXCEEDED, 0x81))
    assert message(c) == "queue pair 0x1c3, entry 7: retry counter exceeded (vendor syndrome 0x81)"
    assert message(read(error_cqe(REQ_ERR, 0x15, 0x81, qp=0x1C3, index=7), 0)) == message(c)


def test_messages_tell_everything_apart() -> None:
    """Pair, entry of the send ring, status, error and syndrome are in the text."""
    statuses: list[Any] = [Done(), Received(5), Received(6), Unexpected(3), Unexpected(4)]
    for side in Side:
        for error in [*ErrorKind, OtherError(0x16), OtherError(0x06)]:
            statuses += [Failed(side, error, 1), Failed(side, error, 2)]
    texts = [message(Completion(0x1C3, 7, status)) for status in statuses]
    assert len(set(texts)) == len(texts)
    assert all(text.startswith("queue pair 0x1c3") for text in texts)
    assert len({message(Completion(qp, i, Done())) for qp in (1, 2) for i in (1, 2)}) == 4
    # A receive has no number: it is the oldest.
    failed = Failed(Side.RECEIVE, ErrorKind.FLUSHED, 0)
    assert message(Completion(1, 2, failed)) == message(Completion(1, 3, failed))


def test_message_of_something_else() -> None:
    with pytest.raises(TypeError, match="Completion wanted, not int"):
        message(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="status wanted, not int"):
        message(Completion(1, 2, 5))  # type: ignore[arg-type]


def test_values() -> None:
    """Compared by value, hashed, and not to be changed."""
    a = Completion(1, 2, Failed(Side.SEND, OtherError(9), 3))
    assert a == Completion(1, 2, Failed(Side.SEND, OtherError(9), 3)) != Completion(1, 2, Done())
    assert len({a, Completion(1, 2, Failed(Side.SEND, OtherError(9), 3))}) == 1
    with pytest.raises(AttributeError):
        a.qp = 3  # type: ignore[misc]


# ---- buffers ---------------------------------------------------------------------------------------------------------


def test_buffers() -> None:
    """Any writable buffer, in place."""
    anonymous = mmap.mmap(-1, mmap.PAGESIZE)
    array = np.zeros((4, 16), dtype=np.uint32)
    words = (ctypes.c_uint64 * 32)()
    for buffer in (bytearray(256), anonymous, array, words, memoryview(bytearray(256))[64:192]):
        view = memoryview(buffer).cast("B")
        view[64:128] = cqe(RESP_SEND, 1, qp=7, bytes=9)
        assert owned(buffer, 64, count=4, entries=4)
        assert read(buffer, 64) == Completion(7, 0, Received(9))
        invalidate(buffer, 64)
        assert not owned(buffer, 64, count=4, entries=4)
        assert view[127] >> 4 == INVALID
    anonymous.close()  # no buffer of it is held


def test_a_buffer_that_is_not_contiguous() -> None:
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        read(np.zeros((8, 128), dtype=np.uint8)[:, ::2], 0)


def test_its_functions_are_documented() -> None:
    for name in ("owned", "read", "invalidate", "message"):
        function = getattr(completion, name)
        assert function.__name__ == name and function.__module__ == "userdma.mlx5.completion"
        assert name == "message" or "ValueError" in function.__doc__
