"""A wire that loses, doubles, reorders and corrupts packets: every message still arrives once, in order, unharmed."""

from __future__ import annotations

import os

import userdma
from userdma import Qp, Region, Side, soft

MESSAGES, SIZE = 200, 20_000

wire = soft.Wire(loss=0.05, duplicate=0.05, reorder=0.05, corrupt=0.05, seed=1)
with (
    userdma.open(soft.bnxt(wire)) as near,
    userdma.open(soft.bnxt(wire)) as far,
    Region.host(near, MESSAGES * SIZE) as source,
    Region.host(far, MESSAGES * SIZE) as target,
):
    a, b = Qp.make(near), Qp.make(far)
    a.connect(b.endpoint)
    b.connect(a.endpoint)
    source.write(0, os.urandom(MESSAGES * SIZE))
    for i in range(MESSAGES):
        b.receive(target, i * SIZE, SIZE)
        a.send(source, i * SIZE, SIZE)
    for side, qp in ((Side.RECEIVE, b), (Side.SEND, a)):
        for _ in range(MESSAGES):
            done = qp.wait(side, us=60_000_000)
            assert done is not None
            done.raise_for_status()
    assert target.read(0, MESSAGES * SIZE) == source.read(0, MESSAGES * SIZE)
    print(f"{MESSAGES} messages of {SIZE} bytes arrived unharmed")
    a.destroy()
    b.destroy()
