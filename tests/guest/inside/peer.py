"""The guest's end of a conversation with a program of the host: peer.py BUS.

Both NICs are on one wire. Endpoints and memory go by standard input and output.
"""

from __future__ import annotations

import sys

import patient  # noqa: F401
from pattern import PIECE, pattern

import userdma
from userdma import Access, Endpoint, Qp, Region, RemoteMemory, Side

SECOND = 1_000_000
RIGHTS = Access.READ | Access.WRITE


def expect(qp: Qp, side: Side, length: int) -> None:
    done = qp.wait(side, us=120 * SECOND)
    assert done is not None, f"no completion of the {side.name} ring"
    assert done.ok, done.message
    assert done.bytes == length, done


def main() -> int:
    with userdma.open(sys.argv[1]) as nic:
        region, qp = Region.host(nic, 2 * PIECE, remote=RIGHTS), Qp.make(nic)
        print("here:", qp.endpoint.to_bytes().hex(), region.remote().to_bytes().hex(), "ready", flush=True)
        endpoint, memory = (bytes.fromhex(word) for word in input().split())
        qp.connect(Endpoint.from_bytes(endpoint), remote=RIGHTS)
        qp.receive(region, 0, PIECE)
        print("connected", flush=True)
        expect(qp, Side.RECEIVE, PIECE)
        assert region.read(0, PIECE) == pattern(1)

        region.write(0, pattern(2))
        qp.send(region, 0, PIECE)
        expect(qp, Side.SEND, PIECE)

        there = RemoteMemory.from_bytes(memory)
        second = RemoteMemory(there.address + PIECE, there.rkey, PIECE)
        region.write(PIECE, pattern(3))
        qp.write((region, PIECE), second, PIECE)
        qp.read(there, (region, 0), PIECE)
        expect(qp, Side.SEND, PIECE)
        expect(qp, Side.SEND, PIECE)
        assert region.read(0, PIECE) == pattern(4)
        print("all of it arrived", flush=True)
        input()  # meanwhile the host reads and writes this memory
        assert region.read(0, PIECE) == pattern(2)
        print("the first half has pattern 2", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
