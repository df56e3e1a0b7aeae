"""Whether one operation costs the same with many queue pairs, or many regions, as with one."""

from __future__ import annotations

import itertools
import time

from common import FIRST, NIC, Row, interleave, pin

import userdma
from userdma import Qp, Region, Side

OPERATIONS = 2000


def _cost(connected: list[tuple[Qp, Qp]], source: Region, target: Region) -> float:
    """µs of one send of 8 bytes between two pairs of one NIC, both completions taken; the pairs take turns."""
    start = time.perf_counter_ns()
    for a, b in itertools.islice(itertools.cycle(connected), OPERATIONS):
        b.receive(target, 0, 8)
        a.send(source, 0, 8)
        while b.poll(Side.RECEIVE) is None:
            pass
        while a.poll(Side.SEND) is None:
            pass
    return (time.perf_counter_ns() - start) / OPERATIONS / 1e3


def _connected(nic: userdma.Nic) -> tuple[Qp, Qp]:
    a, b = Qp.make(nic, send=15, receive=15), Qp.make(nic, send=15, receive=15)
    a.connect(b.endpoint)
    b.connect(a.endpoint)
    return a, b


def pairs(most: int = 10_000) -> list[Row]:
    pin(FIRST)
    with userdma.open(NIC) as few, userdma.open(NIC) as many:
        ends = []
        for nic, n in ((few, 2), (many, most)):
            made = [_connected(nic) for _ in range(n // 2)]
            ends.append((made[len(made) // 2], Region.host(nic, 4096), made))
        one, all_, turns = (
            lambda made=made, region=region: _cost(made, region, region)
            for made, region in (
                (ends[0][2], ends[0][1]),
                ([ends[1][0]], ends[1][1]),
                (ends[1][2], ends[1][1]),
            )
        )
        ours, theirs, cold = interleave(all_, one, turns, repetitions=21)
        found = [
            Row(f"a send with {most:,} queue pairs", ours, theirs, "µs", 1.3, beside="with 2"),
            Row(f"a send on each of {most:,} queue pairs in turn", cold, theirs, "µs", 1.3, beside="with 2"),
        ]
        del one, all_, turns, made, ends
    return found


def regions(most: int = 100_000) -> list[Row]:
    pin(FIRST)
    with userdma.open(NIC) as few, userdma.open(NIC) as many:
        ends, kept = [], []
        for nic, n in ((few, 1), (many, most)):
            made = [Region.host(nic, 4096) for _ in range(n)]
            kept.append(made)
            ends.append((*_connected(nic), made[len(made) // 2]))
        one, all_ = (lambda e=e: _cost([(e[0], e[1])], e[2], e[2]) for e in ends)
        ours, theirs = interleave(all_, one, repetitions=21)
        found = [Row(f"a send with {most:,} regions", ours, theirs, "µs", 1.3, beside="with 1")]
        del one, all_, made, ends, kept
    return found
