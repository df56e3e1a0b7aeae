"""8 bytes there and back between two processes: prints the median in µs. Arguments: rounds, "python" or "native"."""

from __future__ import annotations

import itertools
import statistics
import time

from ends import End, start

from userdma import Side

WARM = 2000


def python(end: End, rounds: int) -> float:
    """Both ends are Python loops. A round is timed from its send to the next one's, all its calls included."""
    qp, region = end.qp, end.region
    send, receive, poll = qp.send, qp.receive, qp.poll
    sent, received = Side.SEND, Side.RECEIVE
    clock = time.perf_counter_ns
    times = []
    receive(region, 8, 8)
    receive(region, 8, 8)
    end.meet()
    if end.first:
        for _ in range(rounds + WARM):
            times.append(clock())
            send(region, 0, 8)
            receive(region, 8, 8)
            while (done := poll(received)) is None:
                pass
            assert done.ok
            while poll(sent) is None:
                pass
        return _median(times)
    for _ in range(rounds + WARM):
        while (done := poll(received)) is None:
            pass
        assert done.ok
        send(region, 0, 8)
        receive(region, 8, 8)
        while poll(sent) is None:
            pass
    return 0.0


def native(end: End, rounds: int) -> float:
    """Both ends are C++ loops, on the pairs that Python brought up."""
    import native as loops

    end.qp.receive(end.region, 8, 8)
    end.qp.receive(end.region, 8, 8)
    end.meet()
    return _median(loops.ping_pong(end.qp, end.region, end.first, rounds + WARM))


def _median(starts: list[int]) -> float:
    """µs from one start to the next, without the first ones."""
    return statistics.median(b - a for a, b in itertools.pairwise(starts[WARM:])) / 1e3 if starts else 0.0


def main() -> None:
    end = start(4096)
    rounds, kind = int(end.arguments[0]), end.arguments[1]
    result = {"python": python, "native": native}[kind](end, rounds)
    if end.first:
        print(result)
    end.close()


if __name__ == "__main__":
    main()
