"""Calls of the driver over plain memory, with no NIC behind it, beside empty pybind11 methods."""

from __future__ import annotations

import time
from collections.abc import Callable

import native
from common import FAMILY, Row, interleave

from userdma import _core

ENTRIES = 4096
POSTS = 4000


class Plain:
    """A queue pair on plain memory. A new one is empty; nothing ever completes its entries."""

    def __init__(self) -> None:
        self.function = native.PlainFunction()
        self.domain = _core.Domain(self.function)
        alloc = self.function.alloc_dma
        self.memory = alloc(4096)
        self.region = _core.Region(self.domain, address=self.memory.address, va=self.memory.address, bytes=4096, lkey=1)
        self.bar = self.function.map(2)
        if FAMILY == "bnxt":
            sizes = ENTRIES * (128 + 8), ENTRIES * 128, 2 * ENTRIES * 32
        else:
            sizes = ENTRIES * (64 + 16) + 4096, 4096, 2 * ENTRIES * 64
        self.send, self.receive, self.send_cq, self.receive_cq = (alloc(sizes[i]) for i in (0, 1, 2, 2))

    def pair(self) -> _core.Qp:
        for memory in (self.send, self.receive, self.send_cq, self.receive_cq):
            with memoryview(memory) as view:
                view[:] = bytes(len(view))
        qp = _core.Qp(self.bnxt() if FAMILY == "bnxt" else self.mlx5())
        qp._set_connected(psn=0, mtu=4096, local=True)
        return qp

    def bnxt(self) -> _core.Rings:
        return _core.BnxtRings(
            self.domain,
            qpn=5,
            send=self.send,
            send_entries=ENTRIES,
            receive=self.receive,
            receive_entries=ENTRIES,
            send_cq=self.send_cq,
            send_cq_entries=2 * ENTRIES,
            send_cq_id=1,
            receive_cq=self.receive_cq,
            receive_cq_entries=2 * ENTRIES,
            receive_cq_id=2,
            bar=self.bar,
            doorbell=0,
        )

    def mlx5(self) -> _core.Rings:
        records = ENTRIES * (64 + 16)
        return _core.Mlx5Rings(
            self.domain,
            qpn=5,
            memory=self.send,
            send=ENTRIES * 16,
            send_entries=ENTRIES,
            receive=0,
            receive_entries=ENTRIES,
            records=records,
            send_cq=self.send_cq,
            send_cq_entries=2 * ENTRIES,
            send_cq_id=1,
            send_cq_records=records + 64,
            receive_cq=self.receive_cq,
            receive_cq_entries=2 * ENTRIES,
            receive_cq_id=2,
            receive_cq_records=records + 128,
            bar=self.bar,
            uar=0,
            longest=1 << 30,
        )


def timed(call: Callable[..., object], arguments: tuple[object, ...], calls: int) -> float:
    """ns of one call, the loop included."""
    turns = range(calls)
    start = time.perf_counter_ns()
    for _ in turns:
        call(*arguments)
    return (time.perf_counter_ns() - start) / calls


def rows() -> list[Row]:
    plain, empty = Plain(), native.Empty()

    def send() -> float:
        return timed(plain.pair().send, (plain.region, 64, 8), POSTS)

    def empty_send() -> float:
        return timed(empty.send, (empty, 64, 8), POSTS)

    def receive() -> float:
        return timed(plain.pair().receive, (plain.region, 64, 8), POSTS)

    ours, ours_receive, theirs = interleave(send, receive, empty_send, repetitions=41)

    pair = plain.pair()
    pair.send(plain.region, 0, 8)  # due, so that poll has to look
    poll, nothing = interleave(
        lambda: timed(pair.poll, (_core.Side.SEND,), 20_000),
        lambda: timed(empty.poll, (_core.Side.SEND,), 20_000),
        repetitions=41,
    )
    beside = "an empty pybind11 method"
    return [
        Row("qp.send over plain memory, doorbell included", ours, theirs, "ns", 1.5, beside=beside),
        Row("qp.receive over plain memory, doorbell included", ours_receive, theirs, "ns", 1.5, beside=beside),
        Row("qp.poll that finds nothing", poll, nothing, "ns", 1.2, beside=beside),
    ]
