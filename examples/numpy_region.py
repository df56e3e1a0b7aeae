"""NumPy arrays as regions, without a copy: one array sums what another process's, or here another pair's, sends."""

from __future__ import annotations

import mmap

import numpy as np

import userdma
from userdma import Qp, Region, Side

COUNT = 1 << 18

with userdma.open("soft:bnxt") as nic:
    # A region of the process's own memory starts on a page: an anonymous mapping does.
    size = COUNT * 8
    arrays = [np.frombuffer(mmap.mmap(-1, size), dtype=np.float64) for _ in range(2)]
    source, target = (Region.pages(nic, a.ctypes.data, size) for a in arrays)
    a, b = Qp.make(nic), Qp.make(nic)
    a.connect(b.endpoint)
    b.connect(a.endpoint)

    arrays[0][:] = np.arange(COUNT)
    b.receive(target, 0, size)
    a.send(source, 0, size)
    done = b.wait(Side.RECEIVE, us=10_000_000)
    assert done is not None
    done.raise_for_status()
    print(f"{done.bytes} bytes, sum {arrays[1].sum():.0f}")
    assert np.array_equal(*arrays)
