"""Page tables (PBL) of 0, 1 or 2 levels: how the chip finds memory that is not one page.

Entries are roce_hsi.h's ptu_pte and ptu_pde: a page's address and these bits. The last two entries of a queue's table
are marked, as the chip wraps there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from userdma.firmware.ledger import Ledger

_VALID = 0x1
_LAST = 0x2
_NEXT_TO_LAST = 0x4

PAGE_SHIFT = 12
PAGE = 1 << PAGE_SHIFT
_ENTRIES = PAGE // 8
MOST_PAGES = _ENTRIES * _ENTRIES
_REGION_SHIFTS = (12, 13, 16, 18, 20, 21, 22, 30)  # CMDQ_REGISTER_MR_LOG2_PG_SIZE_PG_*


@dataclass(frozen=True)
class PageTable:
    level: int  # of tables above the memory; 0: `address` is the memory's only page
    address: int


def build(ledger: Ledger, pages: list[int], *, queue: bool = False) -> PageTable:
    """A table of these pages' bus addresses, in memory that the ledger holds."""
    if len(pages) == 1:
        return PageTable(0, pages[0])
    if len(pages) > MOST_PAGES:
        raise ValueError(f"{len(pages)} pages do not fit in a table of two levels")
    entries = [page | _VALID for page in pages]
    if queue:
        entries[-1] |= _LAST
        entries[-2] |= _NEXT_TO_LAST
    tables = -(-len(entries) // _ENTRIES)
    memory = ledger.alloc((tables + (tables > 1)) * PAGE)
    where = memory.pages(PAGE_SHIFT)
    struct.pack_into(f"<{len(entries)}Q", memory, 0, *entries)
    if tables == 1:
        return PageTable(1, where[0])
    struct.pack_into(f"<{tables}Q", memory, tables * PAGE, *(table | _VALID for table in where[:tables]))
    return PageTable(2, where[tables])


def best_shift(runs: list[tuple[int, int]]) -> int:
    """The largest page of a region (log2) that every run starts on, and every run but the last ends on.

    The last page may reach past the memory's end, which a region's size holds the chip to. Where that makes more pages
    than a table holds, and the memory is one run, the first page may also start before the memory: the address of a
    region's first byte counts from the beginning of its first page.
    """
    bits = 0
    for i, (address, size) in enumerate(runs):
        bits |= address | (size if i + 1 < len(runs) else 0)
    total = sum(size for _, size in runs)
    # No page is more than twice as large as the memory: there would be no use in it.
    fit = [shift for shift in _REGION_SHIFTS if not bits & ((1 << shift) - 1) and 1 << shift < 2 * total]
    shift = fit[-1] if fit else PAGE_SHIFT
    if len(runs) == 1 and total >> shift >= MOST_PAGES:
        larger = (s for s in _REGION_SHIFTS if s >= shift and len(split(runs, s)) <= MOST_PAGES)
        shift = next(larger, shift)
    return shift


def split(runs: list[tuple[int, int]], shift: int) -> list[int]:
    """Bus addresses of the pages that hold these runs."""
    page = 1 << shift
    return [at for address, size in runs for at in range(address & -page, address + size, page)]
