"""`userdma.mlx5.wqe` and `userdma.mlx5.doorbell` write, byte for byte, what Debian's libmlx5 writes for the same
requests, on a soft ConnectX that Linux's mlx5_ib drives (mlx5_rings.c)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from guest import Guest, vfio_user
from lab import until

from userdma import soft
from userdma.mlx5 import completion, doorbell, wqe
from userdma.mlx5.wqe import Remote


@pytest.fixture
def library(kernel: str, boot: Callable[..., Guest]) -> Iterator[dict[str, str]]:
    """What the program says of the rings of libmlx5."""
    function = soft.mlx5(soft.Wire())
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "mlx5_rings")
        source = Path(__file__).with_name("mlx5_rings.c")
        libraries = ["-libverbs", "-lmlx5"]
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", program, source, *libraries], check=True)
        with soft.serve(function, Path(folder, "nic")) as server:
            guest = boot(kernel, devices=[vfio_user(server.socket)])
            guest.put(program, "/opt/userdma")
            guest.run("modprobe mlx5_ib && ip address add 10.0.0.1/24 dev eth0 && ip link set eth0 up")
            guest.run(until("grep -qs ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state"))
            guest.run(until("grep -qs 0000:ffff:0a00:0001 /sys/class/infiniband/mlx5_0/ports/1/gids/*"))
            said = guest.run("/opt/userdma/mlx5_rings mlx5_0").output
            guest.close()
        yield dict(line.split(maxsplit=1) for line in said.splitlines())
    function.release()


def test_what_libmlx5_writes(library: dict[str, str]) -> None:
    qp, cqn, lkey, at = (int(library[name]) for name in ("qpn", "cqn", "lkey", "address"))
    memory = bytes(i * 7 & 0xFF for i in range(8192))
    sge = [(lkey, at, 100), (lkey, at + 512, 7), (lkey, at + 1024, 3000), (lkey, at, 0)]
    eight = (lkey, at + 64, 8)
    remote, rkey = 0xFEDC_BA98_7654_3210, 0xCAFE01
    there = Remote(rkey, remote)
    one, other = 0x1122334455667788, 0x99AABBCCDDEEFF00

    theirs = bytes.fromhex(library["send"])
    assert int(library["send_stride"]) == wqe.BLOCK
    ours = bytearray(b"\xa5" * len(theirs))
    index = 0

    def put(write: Callable[..., int], *, inline: bytes = b"", **named: Any) -> None:
        """The next entry: it is libmlx5's. Behind inline data, up to the segment's end, that writes nothing."""
        nonlocal index
        start = index * wqe.BLOCK
        if inline:
            named["inline"] = inline
        index += write(ours, start, qp=qp, index=index, **named)
        used = (ours[start + 7] & 0x3F) * wqe.SEGMENT  # ds of mlx5_wqe_ctrl_seg
        if inline:
            used = wqe.SEGMENT * (2 if "remote" in named else 1) + 4 + len(inline)
        assert ours[start : start + used] == theirs[start : start + used], (write.__name__, named)

    put(wqe.send, data=sge[:1])
    put(wqe.send, data=sge[:2], signaled=False, solicited=True)
    put(wqe.send, data=sge[1:2], immediate=0xFEEDBEEF)
    put(wqe.write, data=sge[:1], remote=there, fence=True)
    put(wqe.write, data=sge[:3], remote=there, immediate=0x01020304)
    put(wqe.read, data=sge[:2], remote=Remote(rkey, remote + 1))
    put(wqe.fetch_add, data=eight, remote=there, add=one)
    put(wqe.compare_swap, data=eight, remote=there, compare=one, swap=other)
    put(wqe.send, inline=memory[:13])
    put(wqe.send, inline=memory[16 : 16 + 150])
    put(wqe.write, inline=memory[256 : 256 + 40], remote=there)
    put(wqe.send)
    put(wqe.send, data=sge[3:])

    stride = int(library["receive_stride"])
    received = bytearray(b"\xa5" * 4 * stride)
    for number, pieces in enumerate((sge[:1], sge, [], sge[:3])):
        wqe.receive(received, number * stride, segments=stride // 16, data=pieces)
    its_receives = bytes.fromhex(library["receive"])
    for number in range(4):
        start = number * stride
        mine = bytes(received[start : start + stride])
        used = mine.find(b"\xa5" * 16)  # beyond the end of the list nothing is written
        used = stride if used < 0 else used
        assert mine[:used] == its_receives[start : start + used], f"receive {number}"

    records = bytearray(8)
    doorbell.received(records, 0, 4)
    doorbell.sent(records, 0, index)
    assert records.hex() == library["records"]
    completions = bytearray(8)
    doorbell.armed(completions, 0, doorbell.arm(0, 0, solicited=True))
    assert completions.hex() == library["completion_records"]
    assert cqn < 1 << 24

    # And a completion that the library marked as not written is none.
    assert int(library["cqe_size"]) in (64, 128)
    first = bytearray.fromhex(library["completions"])
    if int(library["cqe_size"]) == completion.SIZE:
        assert not completion.owned(first, 0, count=0, entries=128)
