"""The same ping-pong on mpi4py: prints the median in µs. Argument: rounds."""

from __future__ import annotations

import itertools
import statistics
import sys
import time

from common import FIRST, SECOND, pin
from mpi4py import MPI

WARM = 2000


def main() -> None:
    rounds = int(sys.argv[1])
    comm = MPI.COMM_WORLD
    pin(FIRST if comm.rank == 0 else SECOND)
    out, into = [bytearray(8), MPI.BYTE], [bytearray(8), MPI.BYTE]
    send, receive = comm.Send, comm.Recv
    clock = time.perf_counter_ns
    times = []
    comm.Barrier()
    if comm.rank == 0:
        for _ in range(rounds + WARM):
            times.append(clock())
            send(out, 1)
            receive(into, 1)
        print(statistics.median(b - a for a, b in itertools.pairwise(times[WARM:])) / 1e3)
    else:
        for _ in range(rounds + WARM):
            receive(into, 0)
            send(out, 0)


if __name__ == "__main__":
    main()
