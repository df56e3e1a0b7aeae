"""8 bytes there and back between two processes: prints the median in µs. Arguments: rounds, "python" or "native"."""

from __future__ import annotations

import statistics
import time

from ends import End, start

from userdma import Side

WARM = 2000


def python(end: End, rounds: int) -> float:
    """Both ends are Python loops."""
    qp, region = end.qp, end.region
    send, receive, poll = qp.send, qp.receive, qp.poll
    sent, received = Side.SEND, Side.RECEIVE
    clock = time.perf_counter_ns
    times = []
    receive(region, 8, 8)
    end.meet()
    if end.first:
        for _ in range(rounds + WARM):
            at = clock()
            send(region, 0, 8)
            while (done := poll(received)) is None:
                pass
            times.append(clock() - at)
            assert done.ok
            receive(region, 8, 8)
            while poll(sent) is None:
                pass
        return statistics.median(times[WARM:]) / 1e3
    for _ in range(rounds + WARM):
        while (done := poll(received)) is None:
            pass
        assert done.ok
        receive(region, 8, 8)
        send(region, 0, 8)
        while poll(sent) is None:
            pass
    return 0.0


def native(end: End, rounds: int) -> float:
    """Both ends are C++ loops, on the pairs that Python brought up."""
    import native as loops

    end.qp.receive(end.region, 8, 8)
    end.meet()
    times: list[float] = loops.ping_pong(end.qp, end.region, end.first, rounds + WARM)
    return statistics.median(times[WARM:]) if end.first else 0.0


def main() -> None:
    end = start(4096)
    rounds, kind = int(end.arguments[0]), end.arguments[1]
    result = {"python": python, "native": native}[kind](end, rounds)
    if end.first:
        print(result)
    end.close()


if __name__ == "__main__":
    main()
