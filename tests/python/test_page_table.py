"""Page tables of the bnxt driver: every byte of any memory is found through them, at the address it has."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from userdma.bnxt.page_table import MOST_PAGES, PAGE, best_shift, build, split
from userdma.firmware.device import unguessable_address
from userdma.firmware.ledger import Ledger

MEBI = 1 << 20


class Memory(bytearray):
    """Memory at a bus address of its own."""

    bus = 1 << 40

    def pages(self, shift: int) -> list[int]:
        return [self.bus + at for at in range(0, len(self), 1 << shift)]


class Holder:
    """What a table takes of a ledger."""

    def __init__(self) -> None:
        self.memory: list[Memory] = []

    def alloc(self, n: int) -> Memory:
        memory = Memory(n)
        memory.bus += sum(map(len, self.memory))
        self.memory.append(memory)
        return memory

    def read(self, address: int) -> int:
        for memory in self.memory:
            if memory.bus <= address < memory.bus + len(memory):
                return cast(int, struct.unpack_from("<Q", memory, address - memory.bus)[0])
        raise AssertionError(f"nothing is at {address:#x}")


def walk(holder: Holder, level: int, address: int, index: int) -> tuple[int, int]:
    """The page of this index, and its entry's flags: as the chip finds it."""
    if level == 0:
        assert index == 0
        return address, 1
    if level == 2:
        entry = holder.read(address + index // 512 * 8)
        assert entry & 1
        address, index = entry & -PAGE, index % 512
    entry = holder.read(address + index * 8)
    return entry & -PAGE, entry & (PAGE - 1)


pages = st.integers(1, 1 << 22).map(lambda n: n * PAGE)
sizes = st.one_of(st.integers(1, 40).map(lambda n: n * PAGE), st.integers(1, 3).map(lambda n: n * 2 * MEBI))
memories = st.lists(st.tuples(pages, sizes), min_size=1, max_size=6)


@given(memories, st.integers(0, PAGE - 1))
@settings(max_examples=200)
def test_every_byte_is_found(runs: list[tuple[int, int]], short: int) -> None:
    runs[-1] = (runs[-1][0], runs[-1][1] - short)  # what is pinned need not end on a page
    n = sum(size for _, size in runs)
    shift = best_shift(runs)
    holder = Holder()
    table = build(cast(Ledger, holder), split(runs, shift))
    va = unguessable_address(shift, runs[0][0])
    assert 0 <= va < 1 << 62
    at = 0
    for address, size in runs:
        for offset in {0, size // 2, size - 1}:
            where = va + at + offset
            index = (where >> shift) - (va >> shift)
            page, _ = walk(holder, table.level, table.address, index)
            assert page + (where & (1 << shift) - 1) == address + offset
        at += size
    assert at == n


@pytest.mark.parametrize("start", [PAGE, 16 * PAGE, 1 << 30])
@pytest.mark.parametrize("size", [1 << 30, (1 << 31) + PAGE, 1 << 33, 1 << 38])
def test_memory_of_many_pages(start: int, size: int) -> None:
    shift = best_shift([(start, size)])
    assert len(split([(start, size)], shift)) <= MOST_PAGES


def test_memory_too_scattered() -> None:
    runs = [(2 * n * PAGE, PAGE) for n in range(MOST_PAGES + 1)]
    found = split(runs, best_shift(runs))
    with pytest.raises(ValueError, match="two levels"):
        build(cast(Ledger, Holder()), found)


@pytest.mark.parametrize("count", [2, 3, 512, 513, 1024, 1025])
def test_the_last_entries_of_a_queue_are_marked(count: int) -> None:
    holder = Holder()
    table = build(cast(Ledger, holder), [n * PAGE for n in range(count)], queue=True)
    flags = [walk(holder, table.level, table.address, n)[1] for n in range(count)]
    # PTU_PTE_VALID, PTU_PTE_NEXT_TO_LAST, PTU_PTE_LAST
    assert flags == [1] * (count - 2) + [1 | 4, 1 | 2]


def test_an_address_is_not_guessed() -> None:
    found: set[Any] = {unguessable_address(12, 0x5000) for _ in range(100)}
    assert len(found) == 100
    assert all(address % PAGE == 0 for address in found)
    assert len({address >> 40 for address in found}) > 90
