"""Two processes with a NIC in software each, joined by shared memory, beside what else moves memory between two."""

from __future__ import annotations

from pathlib import Path

from common import Row, interleave, mpi, two_processes, ucx

HERE = Path(__file__).parent
ROUNDS = 20_000


def ping_pong() -> list[Row]:
    ours, theirs = interleave(
        lambda: float(two_processes(str(HERE / "pingpong.py"), ROUNDS, "python")),
        lambda: float(mpi(str(HERE / "pingpong_mpi.py"), ROUNDS)),
        repetitions=5,
    )
    return [Row("8 bytes there and back, two Python processes", ours, theirs, "µs", 1.0, beside="mpi4py over MPICH")]


def ping_pong_native() -> list[Row]:
    ours, theirs = interleave(
        lambda: float(two_processes(str(HERE / "pingpong.py"), 50_000, "native")),
        # ucx_perftest prints half of the way there and back: column 1 is the median, in µs.
        lambda: 2 * ucx("tag_lat", 8, 50_000)[1],
        repetitions=5,
    )
    return [Row("8 bytes there and back, C++ on both ends", ours, theirs, "µs", 2.0, beside="ucx_perftest tag_lat")]


def streams() -> list[Row]:
    messages = 4000
    script = str(HERE / "stream.py")
    ways = ["send", "write", "read", "memcpy"]
    *ours, memcpy, theirs = interleave(
        *[lambda way=way: float(two_processes(script, way, messages)) for way in ways],
        # column 5: the bandwidth over the whole run, in MiB/s
        lambda: ucx("tag_bw", 1 << 20, messages)[5] * (1 << 20) / 1e9,
        repetitions=5,
    )
    found = []
    for way, speed in zip(ways, ours, strict=False):
        name = f"1 MiB {way}s, two processes"
        found.append(Row(name, speed, memcpy, "GB/s", 0.8, at_most=False, beside="memcpy of 1 MiB"))
        found.append(Row(name, speed, theirs, "GB/s", 1.0, at_most=False, beside="ucx_perftest tag_bw"))
    return found
