"""1 MiB sends as true RoCEv2 packets: each frame is made byte by byte with its ICRC, and checked on the other side."""

from __future__ import annotations

import time

from common import FAMILY, FIRST, Row, interleave, pin

import userdma
from userdma import Qp, Region, Side, soft

SIZE = 1 << 20
MESSAGES = 200
TARGET = 2.0  # GB/s


def rows() -> list[Row]:
    """Both NICs are run by this one thread, on one core."""
    pin(FIRST)
    wire = soft.Wire(frames=True)
    make = getattr(soft, FAMILY)
    with (
        userdma.open(make(wire, thread=False)) as near,
        userdma.open(make(wire, thread=False)) as far,
        Region.host(near, SIZE) as source,
        Region.host(far, SIZE) as target,
    ):
        source.write(0, bytes(range(256)) * (SIZE // 256))
        a, b = Qp.make(near), Qp.make(far)
        a.connect(b.endpoint)
        b.connect(a.endpoint)

        def run() -> float:
            start = time.perf_counter()
            for _ in range(MESSAGES):
                b.receive(target, 0, SIZE)
                a.send(source, 0, SIZE)
                while b.poll(Side.RECEIVE) is None:
                    pass
                while (done := a.poll(Side.SEND)) is None:
                    pass
                done.raise_for_status()
            return MESSAGES * SIZE / (time.perf_counter() - start) / 1e9

        (speed,) = interleave(run)
        assert target.read(0, SIZE) == source.read(0, SIZE)
        a.destroy()
        b.destroy()
    name = "1 MiB sends as RoCEv2 frames with ICRC, one core"
    return [Row(name, speed, TARGET, "GB/s", 1.0, at_most=False, beside="the least it must be")]
