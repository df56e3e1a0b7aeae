"""What the benchmarks share: rows, medians of interleaved repetitions, processes pinned to a core each."""

from __future__ import annotations

import ctypes.util
import os
import secrets
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CORES = sorted(os.sched_getaffinity(0))
FIRST, SECOND = CORES[0], CORES[1 % len(CORES)]
FAMILY = os.environ.get("USERDMA_BENCH_FAMILY", "bnxt")  #: of the soft NICs, and of the driver over plain memory
NIC = f"soft:{FAMILY}"


@dataclass(frozen=True)
class Row:
    """`ours` beside `theirs`, both in `unit`; it holds if ours / theirs is on the right side of `target`."""

    name: str
    ours: float
    theirs: float
    unit: str
    target: float
    at_most: bool = True
    beside: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def holds(self) -> bool:
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target


def interleave(*runs: Callable[[], float], repetitions: int = 7) -> list[float]:
    """The median of each run's results; the runs take turns, so that a slow moment of the machine hits all."""
    results: list[list[float]] = [[] for _ in runs]
    for _ in range(repetitions):
        for run, found in zip(runs, results, strict=True):
            found.append(run())
    return [statistics.median(found) for found in results]


def pin(core: int) -> None:
    os.sched_setaffinity(0, {core})


def wire_name() -> str:
    return f"shm:userdma-bench-{os.getpid()}-{secrets.token_hex(4)}"


def two_processes(script: str, *arguments: object) -> str:
    """Run `script first WIRE …` and `script second WIRE …`, joined by a socket on fd 3; what the first one prints."""
    import socket

    left, right = socket.socketpair()
    wire = wire_name()
    text = [str(a) for a in arguments]
    with left, right:
        second = subprocess.Popen(
            [sys.executable, script, "second", wire, str(right.fileno()), *text], pass_fds=[right.fileno()]
        )
        try:
            first = subprocess.run(
                [sys.executable, script, "first", wire, str(left.fileno()), *text],
                pass_fds=[left.fileno()],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=300,
            )
        finally:
            left.close()
            right.close()
            try:
                second.wait(10)
            except subprocess.TimeoutExpired:
                second.kill()
                second.wait()
    return first.stdout


def mpi(script: str, *arguments: object) -> str:
    """The same of a program on mpi4py over Debian's MPICH; the script pins its processes."""
    library = ctypes.util.find_library("mpich")
    if not library:
        raise SystemExit("libmpich is not there: install Debian's mpich")
    with tempfile.TemporaryDirectory() as folder:
        # mpi4py's wheel asks for the name that MPICH's own build gives the library; Debian's build has another.
        (Path(folder) / "libmpi.so.12").symlink_to(Path("/usr/lib", sysconfig.get_config_var("MULTIARCH"), library))
        environment = os.environ | {"LD_LIBRARY_PATH": folder, "MPI4PY_LIBMPI": library}
        command = ["mpiexec.mpich", "-n", "2", sys.executable, script, *[str(a) for a in arguments]]
        return subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
        ).stdout


def ucx(test: str, size: int, iterations: int) -> list[float]:
    """The last line of ucx_perftest between two pinned processes: iterations, latencies, bandwidths, rates."""
    environment = os.environ | {"UCX_TLS": "shm,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    port = str(20000 + secrets.randbelow(20000))
    common = ["ucx_perftest", "-t", test, "-s", str(size), "-n", str(iterations), "-w", "1000", "-p", port, "-f", "-v"]
    server = subprocess.Popen([*common, "-c", str(FIRST)], env=environment, stdout=subprocess.DEVNULL)
    try:
        import time

        for _ in range(50):
            time.sleep(0.1)
            client = subprocess.run(
                [common[0], "localhost", *common[1:], "-c", str(SECOND)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            if client.returncode == 0:
                break
        else:
            raise RuntimeError(client.stderr)
        server.wait(30)
    finally:
        server.kill()
        server.wait()
    last = [line for line in client.stdout.splitlines() if line.count(",") >= 6][-1]
    return [float(part) for part in last.split(",")]


def run_program(command: Sequence[str], **environment: str) -> str:
    return subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True, timeout=600
    ).stdout
