"""The entries, records and doorbells of a ConnectX that a program writes, against those of rdma-core's public header:
infiniband/mlx5dv.h has functions that write segments, which a program compiled here calls with the same numbers."""

from __future__ import annotations

import mmap
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from userdma.mlx5 import doorbell, wqe
from userdma.mlx5.wqe import BLOCK, SEGMENT, Data, Remote

RING = 16 * BLOCK
DATA = Data(lkey=0x1234, address=0x7000_0000_1000, bytes=3000)
REMOTE = Remote(rkey=0xCAFE, address=0xFEDC_BA98_7654_3210)

# The header's functions, fed by lines of numbers: opcode, index, qp, flags, immediate, the remote address and key (or
# "-"), what is swapped or added and compared (or "-"), then pieces of memory. It writes the entry in hexadecimal.
PROGRAM = r"""
#include <cstdio>
#include <cstring>
#include <cstdlib>
#include <string>
#include <vector>
#include <sstream>
#include <iostream>
#include <infiniband/mlx5dv.h>
int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string word;
    auto next = [&] { in >> word; return std::strtoull(word.c_str(), nullptr, 0); };
    unsigned char out[1024] = {};
    unsigned opcode = next(), index = next(), qp = next(), flags = next(), immediate = next();
    unsigned at = 16;
    in >> word;
    if (word != "-") {
      auto* remote = reinterpret_cast<mlx5_wqe_raddr_seg*>(out + at);
      remote->raddr = htobe64(std::strtoull(word.c_str(), nullptr, 0));
      remote->rkey = htobe32(next());
      at += sizeof(*remote);
    }
    in >> word;
    if (word != "-") {
      auto* atomic = reinterpret_cast<mlx5_wqe_atomic_seg*>(out + at);
      atomic->swap_add = htobe64(std::strtoull(word.c_str(), nullptr, 0));
      atomic->compare = htobe64(next());
      at += sizeof(*atomic);
    }
    while (in >> word) {
      unsigned key = std::strtoull(word.c_str(), nullptr, 0);
      unsigned long address = next();
      unsigned bytes = next();
      mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(out + at), bytes, key, address);
      at += sizeof(mlx5_wqe_data_seg);
    }
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(out), index, opcode, 0, qp, flags, at / 16, 0,
                        htobe32(immediate));
    for (unsigned i = 0; i < at; ++i) std::printf("%02x", out[i]);
    std::printf("\n");
    std::fflush(stdout);
  }
}
"""


@pytest.fixture(scope="module")
def header() -> Iterator[Callable[..., bytes]]:
    """An entry as the header's functions write it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "entry.cc").write_text(PROGRAM)
        command = ["c++", "-std=c++20", "-fpermissive", "-w", "-o", f"{folder}/entry", f"{folder}/entry.cc"]
        subprocess.run(command, check=True)
        with subprocess.Popen([f"{folder}/entry"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdin is not None and program.stdout is not None

            def entry(
                opcode: int, index: int, qp: int, flags: int, immediate: int = 0, remote: Any = None,
                atomic: Any = None, data: Any = (),
            ) -> bytes:  # fmt: skip
                numbers: list[Any] = [opcode, index, qp, flags, immediate]
                numbers += [remote.address, remote.rkey] if remote else ["-"]
                numbers += list(atomic) if atomic else ["-"]
                for piece in data:
                    numbers += piece
                program.stdin.write(" ".join(map(str, numbers)) + "\n")
                program.stdin.flush()
                return bytes.fromhex(program.stdout.readline())

            yield entry
            program.stdin.close()


NUMBERS = {
    "qp": st.integers(0, (1 << 24) - 1),
    "index": st.integers(0, (1 << 16) - 1),
}


def piece(most: int) -> st.SearchStrategy[Data]:
    return st.builds(Data, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1), st.integers(1, most))


PIECES = st.lists(piece((1 << 31) - 1), max_size=1) | st.lists(piece((1 << 31) // 6), max_size=6)
PLACE = st.builds(Remote, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1))
ALIGNED = PLACE.map(lambda place: place._replace(address=place.address & ~7))
WORD = st.integers(0, (1 << 32) - 1)
LONG = st.integers(0, (1 << 64) - 1)
FLAGS = {"signaled": st.booleans(), "fence": st.booleans()}


def ctrl(signaled: bool, fence: bool, solicited: bool = False) -> int:
    """MLX5_WQE_CTRL_CQ_UPDATE (2 << 2), MLX5_WQE_CTRL_FENCE (4 << 5) and MLX5_WQE_CTRL_SOLICITED (1 << 1)."""
    return 8 * signaled + 128 * fence + 2 * solicited


def written(ring: bytearray, expected: bytes, blocks: int) -> None:
    assert bytes(ring[: len(expected)]) == expected
    assert blocks == -(-len(expected) // BLOCK)
    assert not any(ring[blocks * BLOCK :])


@pytest.mark.sources  # a compiler and rdma-core's headers
@pytest.mark.no_sanitizer
@settings(max_examples=60)
@given(st.data(), st.sampled_from(["SEND", "SEND_IMM", "SEND_INVAL", "RDMA_WRITE", "RDMA_WRITE_IMM", "RDMA_READ"]))
def test_entries_are_the_headers(header: Callable[..., bytes], draw: st.DataObject, kind: str) -> None:
    opcodes = {"SEND": 0x0A, "SEND_IMM": 0x0B, "SEND_INVAL": 0x01, "RDMA_WRITE": 0x08, "RDMA_WRITE_IMM": 0x09,
               "RDMA_READ": 0x10}  # fmt: skip
    qp, index = (draw.draw(NUMBERS[name]) for name in ("qp", "index"))
    flags = {name: draw.draw(one) for name, one in FLAGS.items()}
    data = draw.draw(PIECES)
    ring = bytearray(RING)
    word = draw.draw(WORD) if kind.endswith(("IMM", "INVAL")) else None
    remote = draw.draw(PLACE) if kind.startswith("RDMA") else None
    solicited = draw.draw(st.booleans()) if kind != "RDMA_READ" else False
    if kind == "RDMA_READ":
        blocks = wqe.read(ring, 0, qp=qp, index=index, remote=remote, data=data, **flags)  # type: ignore[arg-type]
    elif remote is not None:
        blocks = wqe.write(
            ring, 0, qp=qp, index=index, remote=remote, data=data, immediate=word, solicited=solicited, **flags
        )
    else:
        named = {"SEND": {}, "SEND_IMM": {"immediate": word}, "SEND_INVAL": {"invalidate": word}}[kind]
        blocks = wqe.send(ring, 0, qp=qp, index=index, data=data, solicited=solicited, **named, **flags)  # type: ignore[arg-type]
    expected = header(opcodes[kind], index, qp, ctrl(**flags, solicited=solicited), word or 0, remote, None, data)
    written(ring, expected, blocks)


@pytest.mark.sources  # a compiler and rdma-core's headers
@pytest.mark.no_sanitizer
@settings(max_examples=30)
@given(NUMBERS["qp"], NUMBERS["index"], ALIGNED, LONG, LONG, st.booleans())
def test_atomics_are_the_headers(
    header: Callable[..., bytes], qp: int, index: int, remote: Remote, first: int, second: int, fence: bool
) -> None:
    data = Data(7, 0x1000, 8)
    ring = bytearray(RING)
    blocks = wqe.fetch_add(ring, 0, qp=qp, index=index, remote=remote, data=data, add=first, fence=fence)
    written(ring, header(0x12, index, qp, ctrl(True, fence), 0, remote, (first, 0), [data]), blocks)
    ring = bytearray(RING)
    blocks = wqe.compare_swap(
        ring, 0, qp=qp, index=index, remote=remote, data=data, compare=second, swap=first, fence=fence
    )
    written(ring, header(0x11, index, qp, ctrl(True, fence), 0, remote, (first, second), [data]), blocks)


@given(st.binary(min_size=1, max_size=900))
def test_inline_data(content: bytes) -> None:
    """mlx5_wqe_inl_data_seg: the length with MLX5_INLINE_SEG (bit 31), then the bytes, up to whole segments."""
    ring = bytearray(b"\xee" * RING)
    blocks = wqe.send(ring, 0, qp=5, index=0, inline=content)
    segments = 1 + -(-(4 + len(content)) // 16)
    assert blocks == -(-segments * 16 // 64)
    assert ring[7] == segments
    assert int.from_bytes(ring[16:20], "big") == len(content) | 1 << 31
    assert ring[20 : 20 + len(content)] == content
    assert not any(ring[20 + len(content) : segments * 16])
    assert set(ring[segments * 16 :]) <= {0xEE}


def test_a_message_of_no_bytes_has_no_segment() -> None:
    """A data segment of 0 bytes would be one of 2^31."""
    for content in ({}, {"data": []}, {"data": [Data(1, 2, 0)]}, {"inline": b""}):
        ring = bytearray(RING)
        assert wqe.send(ring, 0, qp=5, index=0, **content) == 1  # type: ignore[arg-type]
        assert ring[7] == 1 and not any(ring[16:])
    ring = bytearray(RING)
    wqe.send(ring, 0, qp=5, index=0, data=[Data(1, 2, 1 << 31)])
    assert not any(ring[16:20])


def test_receives() -> None:
    """mlx5_wqe_data_seg; a list that is shorter than the entry ends with byte_count 0 and MLX5_INVALID_LKEY, 0x100."""
    ring = bytearray(b"\xee" * 256)
    wqe.receive(ring, 64, segments=4, data=[(1, 0x1000, 10), (2, 0x2000, 20)])
    assert ring[64:80].hex() == "0000000a000000010000000000001000"
    assert ring[80:96].hex() == "00000014000000020000000000002000"
    assert ring[96:112].hex() == "00000000000001000000000000000000"
    assert set(ring[:64]) == set(ring[112:]) == {0xEE}
    wqe.receive(ring, 0, segments=1, data=[(3, 4, 5)])
    assert ring[:16].hex() == "00000005000000030000000000000004"
    assert set(ring[16:64]) == {0xEE}


@pytest.mark.parametrize("make", [bytearray, lambda n: mmap.mmap(-1, n), lambda n: numpy.zeros(n, dtype=numpy.uint8)])
def test_any_writable_buffer_is_written_in_place(make: Callable[[int], Any]) -> None:
    ring = make(RING)
    assert wqe.send(ring, BLOCK, qp=1, index=1, data=[DATA]) == 1
    assert bytes(memoryview(ring)[BLOCK : BLOCK + 4]) == b"\0\0\1\x0a"
    doorbell.sent(ring, 0, 2)
    assert bytes(memoryview(ring)[4:8]) == b"\0\0\0\2"
    with pytest.raises(BufferError):
        wqe.send(bytes(RING), 0, qp=1, index=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"qp": 1 << 24}, "qp is 16777216: it has 24 bits"),
        ({"qp": -1}, "qp is -1"),
        ({"index": 1 << 16}, "index is 65536: it has 16 bits"),
        ({"immediate": 1 << 32}, "immediate is 4294967296: it has 32 bits"),
        ({"immediate": 1, "invalidate": 2}, "not both"),
        ({"data": [DATA], "inline": b"x"}, "inline or in memory, not both"),
        ({"data": [(1, 2, (1 << 31) + 1)]}, "2^31 at most"),
        ({"data": [(1, 2)]}, "its lkey, its address and its bytes"),
        ({"data": [DATA] * 63}, "at most 63 segments of 16 bytes, not 64"),
        ({"inline": bytes(1000)}, "at most 63 segments of 16 bytes, not 64"),
        ({"data": [DATA] * 4, "at": RING - BLOCK}, "the entry takes 128 bytes, not the 64 that are there"),
        ({"at": RING - BLOCK + 1}, "the 64 bytes at byte 961 are not in the buffer's 1024"),
        ({"at": -1}, "at is -1"),
        (
            {"data": [(1, 2, 1 << 31), (1, 2, 1)]},
            "a message has 2147483649 bytes: 2^31 at most",
        ),  # the bytes of a message
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(wrong: dict[str, Any], says: str) -> None:
    ring = bytearray(RING)
    given: dict[str, Any] = {"qp": 5, "index": 0, "at": 0, **wrong}
    with pytest.raises(ValueError) as refused:
        wqe.send(ring, given.pop("at"), **given)
    assert says in str(refused.value)
    assert not any(ring)


REMOTE_VERBS: list[tuple[Callable[..., int], dict[str, Any]]] = [
    (wqe.write, {"data": [DATA]}),
    (wqe.read, {"data": [DATA]}),
    (wqe.fetch_add, {"data": (1, 2, 8), "add": 1}),
    (wqe.compare_swap, {"data": (1, 2, 8), "compare": 1, "swap": 2}),
]


@pytest.mark.parametrize(("verb", "given"), REMOTE_VERBS)
@pytest.mark.parametrize(
    ("remote", "error", "says"),
    [
        (None, TypeError, "where in a peer's memory, not None"),
        (5, TypeError, "sequence"),
        ((1,), ValueError, "its rkey and an address"),
        ((1, 8, 3), ValueError, "its rkey and an address"),
        ((1 << 32, 8), ValueError, "it has 32 bits"),
        ((1, 1 << 64), ValueError, "it has 64 bits"),
    ],
)
def test_remote_memory_that_cannot_be(
    verb: Callable[..., int], given: dict[str, Any], remote: Any, error: type[Exception], says: str
) -> None:
    """Each of these entries has a segment of remote memory (mlx5_wqe_raddr_seg): none goes without."""
    ring = bytearray(RING)
    with pytest.raises(error, match=says):
        verb(ring, 0, qp=5, index=0, remote=remote, **given)
    assert not any(ring)


@pytest.mark.parametrize(("verb", "given"), REMOTE_VERBS[2:])
@pytest.mark.parametrize("data", [(1, 2, 0), (1, 2, 7), (1, 2, 16)])
def test_atomics_are_of_8_bytes(verb: Callable[..., int], given: dict[str, Any], data: tuple[int, int, int]) -> None:
    """IBTA 9.4.5: 64 bits, at a multiple of 8."""
    ring = bytearray(RING)
    with pytest.raises(ValueError, match=f"an atomic's data has {data[2]} bytes"):
        verb(ring, 0, qp=5, index=0, remote=(1, 8), **{**given, "data": data})
    with pytest.raises(ValueError, match="remote address is 12: a multiple of 8 wanted"):
        verb(ring, 0, qp=5, index=0, remote=(1, 12), **given)
    assert not any(ring)


@pytest.mark.parametrize("data", [None, 5, [5], [None]])
def test_pieces_of_memory_that_are_none(data: Any) -> None:
    ring = bytearray(RING)
    with pytest.raises(TypeError):
        wqe.send(ring, 0, qp=5, index=0, data=data)
    with pytest.raises(TypeError):
        wqe.receive(ring, 0, segments=1, data=data)
    assert not any(ring)


def test_inline_data_from_where_the_entry_goes() -> None:
    ring = bytearray(range(64)) * 2
    wqe.send(ring, 0, qp=5, index=0, inline=memoryview(ring)[8:48])
    assert ring[20:60] == bytes(range(8, 48))  # behind the control segment and the count (mlx5_wqe_inl_data_seg)


def test_receives_that_cannot_be() -> None:
    ring = bytearray(64)
    for segments, data, says in [
        (1, [DATA, DATA], "2 pieces of memory do not fit in an entry of 1 segments"),
        (0, [], "one segment or more"),
        (5, [DATA], "the entry takes 80 bytes, not the 64 that are there"),
    ]:
        with pytest.raises(ValueError) as refused:
            wqe.receive(ring, 0, segments=segments, data=data)
        assert says in str(refused.value)
        assert not any(ring)


def test_records() -> None:
    """MLX5_RCV_DBR and MLX5_SND_DBR are words 0 and 1, big-endian, and count 16 bits (rdma-core: cur_post & 0xffff)."""
    records = bytearray(16)
    doorbell.received(records, 8, 0x1_2345)
    doorbell.sent(records, 8, 0x2_FFFF)
    assert records.hex() == "0000000000000000000023450000ffff"
    doorbell.consumed(records, 0, 0x7_123456)  # a completion queue's: 24 bits
    doorbell.armed(records, 0, doorbell.arm(1, 0x123456))
    assert records[:8].hex() == "0012345610123456"
    with pytest.raises(ValueError, match="starts at a multiple of 4"):
        doorbell.sent(records, 1, 0)
    with pytest.raises(ValueError, match="are not in the buffer's"):
        doorbell.sent(records, 12, 0)


def test_doorbells() -> None:
    """linux/mlx5/cq.h mlx5_cq_arm: sn << 28 | cmd | ci, where cmd is MLX5_CQ_DB_REQ_NOT (0) or MLX5_CQ_DB_REQ_NOT_SOL
    (1 << 24), then the queue's number."""
    assert doorbell.arm(0, 0) == 0
    assert doorbell.arm(5, 7) == 1 << 28 | 7  # two bits of the sequence
    assert doorbell.arm(2, 0xFF00_0001, solicited=True) == 2 << 28 | 1 << 24 | 1
    assert doorbell.arm_doorbell(0x11000001, 0xABCDEF) == bytes.fromhex("1100000100abcdef")
    with pytest.raises(ValueError, match="24 bits"):
        doorbell.arm_doorbell(0, 1 << 24)
    ring = bytearray(RING)
    wqe.send(ring, BLOCK, qp=0x1C3, index=1, data=[DATA])
    assert doorbell.doorbell(ring, BLOCK) == bytes(ring[BLOCK : BLOCK + 8]) == bytes.fromhex("0000010a0001c302")
    with pytest.raises(ValueError, match="are not in the buffer's 1024"):
        doorbell.doorbell(ring, RING - 4)


@pytest.mark.parametrize("store", [doorbell.received, doorbell.sent, doorbell.consumed, doorbell.armed])
def test_records_that_cannot_be(store: Callable[..., None]) -> None:
    records = bytearray(16)
    for at, value in [(-4, 1), (-8, 1), (16, 1), (2, 1), (0, -1), (1 << 70, 1)]:
        with pytest.raises(ValueError):
            store(records, at, value)
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError):
            store(records, 0, wrong)
        with pytest.raises(TypeError):
            store(records, wrong, 1)
    with pytest.raises(BufferError):
        store(bytes(16), 0, 1)
    assert not any(records)


def test_doorbells_that_cannot_be() -> None:
    ring = bytearray(range(64))
    for at in (-8, -16, 57, 64, 1 << 70):
        with pytest.raises(ValueError):
            doorbell.doorbell(ring, at)
    with pytest.raises(TypeError):
        doorbell.doorbell(ring, 1.0)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        doorbell.doorbell(memoryview(ring)[::2])
    # Bytes, whatever the buffer's items are.
    assert doorbell.doorbell(numpy.frombuffer(ring, dtype=numpy.uint32), 8) == bytes(range(8, 16))
    for word, cqn in [(-1, 0), (1 << 32, 0), (0, -1), (0, 1 << 24)]:
        with pytest.raises(ValueError):
            doorbell.arm_doorbell(word, cqn)
    for word, cqn in [(0.5, 0), (0, 0.5), ("1", 0)]:
        with pytest.raises(TypeError):
            doorbell.arm_doorbell(word, cqn)  # type: ignore[arg-type]


@pytest.mark.sources
@pytest.mark.no_sanitizer
def test_numbers_are_the_headers() -> None:
    import re

    text = Path("/usr/include/infiniband/mlx5dv.h").read_text()
    for name, value in [*wqe.Opcode.__members__.items()]:
        found = re.search(rf"MLX5_OPCODE_{name}\s*=\s*(\w+)", text)
        assert found and int(found[1], 0) == value, name
    for name, flag in wqe.Flags.__members__.items():
        found = re.search(rf"MLX5_WQE_CTRL_{name}\s*=\s*(\d) << (\d)", text)
        assert found and int(found[1]) << int(found[2]) == flag, name
    found = re.search(r"MLX5_SEND_WQE_BB\s*=\s*(\d+)", text)
    assert found and int(found[1]) == BLOCK
    assert SEGMENT == 16
