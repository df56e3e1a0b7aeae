"""The backing store: the kinds of context that a Thor2 keeps in the driver's memory.

Types are FUNC_BACKING_STORE_QCAPS_V2_REQ_TYPE_*. Sizes of entries are those of earlier chips where their drivers say
them (qplib_res.h: BNXT_QPLIB_MAX_*_CTX_ENTRY_SIZE), else plausible; the soft NIC keeps nothing there, but holds the
driver to what it reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from userdma.soft.bnxt.resources import PAGE_SHIFTS, BadTable, Limits, check_pages, find_page

__all__ = ["NO_TYPE", "PAGE_SHIFTS", "Type", "check", "types"]

NO_TYPE = 0xFFFF  # ..._TYPE_INVALID: the end of the chain of types

QP, SRQ, CQ, VNIC, STAT, SP_TQM, FP_TQM, MRAV, TIM = 0, 1, 2, 3, 4, 5, 6, 14, 15

# What the Ethernet part keeps for itself (the first split of a type).
L2_QPS, QP1_QPS, L2_SRQS, L2_CQS = 512, 2, 64, 1024


@dataclass(frozen=True, slots=True)
class Type:
    """One kind of context. ``initial``: value and place, in 4-byte units, of the byte that marks an entry as free."""

    name: str
    entry_size: int
    least: int
    most: int
    splits: tuple[int, ...] = ()
    initial: tuple[int, int] | None = None
    instances: int = 0  # bit map; 0: a single instance, 0
    multiple: int = 0
    needed: bool = True

    def every_instance(self) -> list[int]:
        return [i for i in range(32) if self.instances >> i & 1] or [0]


@lru_cache(maxsize=64)
def types(limits: Limits) -> dict[int, Type]:
    """The types of a NIC, by number."""
    qps = limits.qps + L2_QPS + QP1_QPS
    keys = limits.mrs + limits.mws + limits.ahs
    tqm = 2 * qps + limits.vnics
    tqm += -tqm % 32
    return {
        QP: Type("QP", 448, L2_QPS + QP1_QPS, qps, (L2_QPS, QP1_QPS), (0xFF, 0)),
        SRQ: Type("SRQ", 64, L2_SRQS, limits.srqs + L2_SRQS, (L2_SRQS,), (0xFF, 1)),
        CQ: Type("CQ", 64, L2_CQS, limits.cqs + L2_CQS, (L2_CQS,), (0xFF, 3)),
        VNIC: Type("VNIC", 32, limits.vnics, limits.vnics, (limits.vnics,), (0xFF, 0)),
        STAT: Type("STAT", 176, limits.stat_contexts, limits.stat_contexts, (limits.stat_contexts,)),
        SP_TQM: Type("SP_TQM", 16, 1024, max(1024, tqm), multiple=32),
        FP_TQM: Type("FP_TQM", 16, 1024, max(1024, tqm), instances=0xFF, multiple=32),
        MRAV: Type("MRAV", 128, 0, keys, (min(limits.ahs, keys // 4),), (0xFF, 0)),
        TIM: Type("TIM", 8, L2_QPS + QP1_QPS, qps),
    }


def check(read: Callable[[int, int], bytes], base: int, level: int, shift: int, size: int, kind: Type) -> None:
    """That ``size`` bytes can be reached, and that entries are marked as free. Raises BadTable."""
    if not size:
        return
    check_pages(read, base, level, shift, size)
    if kind.initial is None:
        return
    value, place = kind.initial
    entries = size // kind.entry_size
    for entry in {0, entries // 2, entries - 1}:
        at = entry * kind.entry_size + place * 4
        page = find_page(read, base, level, shift, at >> shift)
        if read(page + (at & (1 << shift) - 1), 1)[0] != value:
            raise BadTable(f"entry {entry} of {kind.name} is not initialized: byte {place * 4} is not {value:#x}")
