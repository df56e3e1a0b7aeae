"""Has two NICs at work until the second one is taken away: removed.py BUS BUS."""

from __future__ import annotations

import sys
import time

import userdma
from userdma import Qp, Region, Side

SECOND = 1_000_000


def pair(a: userdma.Nic, b: userdma.Nic) -> tuple[Qp, Qp, Region, Region]:
    one, two = Qp.make(a), Qp.make(b)
    one.connect(two.endpoint)
    two.connect(one.endpoint)
    return one, two, Region.host(a, 4096), Region.host(b, 4096)


def message(one: Qp, two: Qp, source: Region, target: Region) -> userdma.Completion | None:
    """The receiver's completion of a message; None if the sender's failed first."""
    two.receive(target, 0, 4096)
    one.send(source, 0, 64)
    return two.wait(Side.RECEIVE, us=120 * SECOND)


def main() -> int:
    stays = userdma.open(sys.argv[1])
    goes = userdma.open(sys.argv[2])
    work = pair(stays, goes)
    own = pair(stays, stays)
    done = message(*work)
    assert done is not None and done.ok, done
    print("at work", flush=True)
    _, two, _, target = work
    end = time.monotonic() + 500
    two.receive(target, 0, 4096)
    while (failed := two.poll(Side.RECEIVE)) is None:
        failed = two.wait(Side.RECEIVE, us=SECOND)
        if failed is not None:
            break
        assert time.monotonic() < end, "the NIC has not gone"
    assert not failed.ok
    print(failed.error, failed.message, flush=True)
    try:
        Qp.make(goes)
    except userdma.Error as error:
        print("refused:", error, flush=True)
    else:
        raise AssertionError("a queue pair was made on a NIC that has gone")
    goes.close()
    done = message(*own)
    assert done is not None and done.ok, done
    print("and the other works", flush=True)
    stays.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
