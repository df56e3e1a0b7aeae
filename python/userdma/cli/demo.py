"""``userdma demo``: a file crosses from one process's soft NIC to another's, by sends, RDMA writes and RDMA reads."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

import userdma
from userdma import Access, RemoteMemory, Side
from userdma.cli.devices import SOFT
from userdma.cli.link import Link, LinkClosedError
from userdma.cli.output import show
from userdma.cli.transfer import STALL, DemoError, End, pieces

WINDOW = 256 << 20  # bytes of the file in registered memory at a time
UNSIZED = 64 << 20  # bytes that are read of a file that has no size
PING = 8
WARM = 200  # ping-pong rounds before the measured ones


@dataclass(frozen=True)
class Way:
    """One crossing of the whole file."""

    way: str
    messages: int
    bytes: int
    seconds: float
    gigabytes_per_second: float
    memcpy_ratio: float
    sha256: str


@dataclass(frozen=True)
class PingPong:
    """8 bytes there and back, one round at a time."""

    bytes: int
    rounds: int
    p50_us: float
    p99_us: float


class Other:
    """The second process."""

    def __init__(self, name: str, wire: str, window: int, message: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            args = [sys.executable, "-m", "userdma.cli.peer", str(theirs.fileno())]
            args += [name, wire, str(window), str(message)]
            # A group of its own: Ctrl-C is for this process, which then ends the other by closing the link.
            self.process = subprocess.Popen(args, pass_fds=[theirs.fileno()], process_group=0)
        self.link = Link(ours)

    def ask(self, do: str, key: str, **order: Any) -> Any:
        """Have it do something and give the part `key` of its answer."""
        self.link.send(do=do, **order)
        return self.answer(key)

    def answer(self, key: str, progress: Callable[[int], object] = lambda n: None) -> Any:
        while True:
            message = self.link.receive(STALL)
            if message is None:
                raise DemoError(f"the peer process said nothing for {STALL:.0f} s")
            if "error" in message:
                raise DemoError(f"the peer process failed: {message['error']}")
            progress(message.get("progress", 0))
            if key in message:
                return message[key]

    def death(self) -> str:
        """How it ended, once its link broke."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "the peer process closed its link"
        if code < 0:
            return f"the peer process died ({signal.Signals(-code).name})"
        return f"the peer process ended with status {code}"

    def close(self) -> None:
        self.link.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Demo:
    """The first process: sends, writes, and lets the other read."""

    def __init__(self, names: tuple[str, str], file: IO[bytes], size: int, message: int, show: Progress) -> None:
        self.names = names
        self.file = file
        self.size = size
        self.message = message
        self.window = min(max(WINDOW - WINDOW % message, message), max(size, 1))
        self.show = show
        self.memcpy = 0.0
        self.other: Other
        self.end: End
        self.inbox: RemoteMemory

    @contextmanager
    def connected(self) -> Iterator[None]:
        wire = f"shm:userdma-demo-{os.getpid()}-{secrets.token_hex(4)}"
        self.other = Other(self.names[1], wire, self.window, self.message)
        try:
            self.end = End(self.names[0], wire, self.window, self.message, Access.READ, self.other.link)
            try:
                endpoint = bytes.fromhex(self.other.answer("endpoint"))
                self.end.connect(endpoint)
                inbox = self.other.ask("connect", "memory", endpoint=self.end.qp.endpoint.to_bytes().hex())
                self.inbox = RemoteMemory.from_bytes(bytes.fromhex(inbox))
                yield
            except BaseException:
                self.end.abandon()
                raise
            self.end.close()
        finally:
            self.other.close()

    def run(self) -> tuple[list[Way], PingPong]:
        self.memcpy = self._memcpy()
        ways = [self._cross("send", self._send), self._cross("write", self._write), self._cross("read", self._read)]
        return ways, self._ping_pong(20_000)

    def _cross(self, way: str, part: Callable[[int, Callable[[int], object]], float]) -> Way:
        """The whole file, a window at a time: load, cross (this is what is timed), compare digests."""
        task = self.show.add_task(way, total=self.size)
        ours, seconds, theirs = hashlib.sha256(), 0.0, hashlib.sha256().hexdigest()
        self.other.ask("start", "started")
        self.file.seek(0)
        for at, n in pieces(self.size, self.window):
            with memoryview(self.end.memory) as view:
                self._load(view[:n], at)
                ours.update(view[:n])
            if at == 0:  # once for the page tables of both sides, as memcpy has it
                part(n, lambda done: None)
            self.other.ask("clear", "cleared", total=n)
            seconds += part(n, lambda done: self.show.advance(task, done))
            theirs = self.other.ask("digest", "digest", total=n)
            if theirs != ours.hexdigest():
                raise DemoError(f"{way}: SHA-256 differs: {ours.hexdigest()} here, {theirs} at the peer")
        messages = -(-self.size // self.message)
        speed = self.size / seconds / 1e9 if seconds else 0.0
        return Way(way, messages, self.size, seconds, speed, speed / self.memcpy if self.memcpy else 0.0, theirs)

    def _load(self, view: memoryview, at: int) -> None:
        done = 0
        while done < len(view):
            n = self.file.readinto(view[done:])  # type: ignore[attr-defined]
            if not n:
                raise DemoError(f"the file ended at byte {at + done}: it was {self.size} bytes long")
            done += n

    def _send(self, total: int, progress: Callable[[int], object]) -> float:
        qp, memory = self.end.qp, self.end.memory
        self.other.ask("receive", "ready", total=total)
        start = time.perf_counter()
        self.end.push(Side.SEND, pieces(total, self.message), lambda at, n: qp.send(memory, at, n), "a send", progress)
        seconds = time.perf_counter() - start
        self.other.answer("received")
        return seconds

    def _write(self, total: int, progress: Callable[[int], object]) -> float:
        qp, memory, inbox = self.end.qp, self.end.memory, self.inbox

        def post(at: int, n: int) -> None:
            qp.write((memory, at), RemoteMemory(inbox.address + at, inbox.rkey, n), n)

        start = time.perf_counter()
        self.end.push(Side.SEND, pieces(total, self.message), post, "an RDMA write", progress)
        return time.perf_counter() - start

    def _read(self, total: int, progress: Callable[[int], object]) -> float:
        self.other.link.send(do="read", total=total, memory=self.end.memory.remote().to_bytes().hex())
        return float(self.other.answer("seconds", progress))

    def _ping_pong(self, rounds: int) -> PingPong:
        end, qp, ping = self.end, self.end.qp, self.end.ping
        task = self.show.add_task("ping-pong", total=None)
        self.other.ask("echo", "ready", rounds=rounds + WARM)
        times = []
        for i in range(rounds + WARM):
            ball = i.to_bytes(PING, "little")
            ping.write(0, ball)
            qp.receive(ping, 8, PING)
            start = time.perf_counter_ns()
            qp.send(ping, 0, PING)
            end.completion(Side.RECEIVE, "a receive")
            times.append(time.perf_counter_ns() - start)
            end.completion(Side.SEND, "a send")
            if ping.read(8, PING) != ball:
                raise DemoError(f"ping-pong: round {i} sent {ball.hex()} and got {ping.read(8, PING).hex()} back")
        self.other.answer("echoed")
        self.show.remove_task(task)
        cuts = statistics.quantiles(times[WARM:], n=100)
        return PingPong(PING, rounds, cuts[49] / 1e3, cuts[98] / 1e3)

    def _memcpy(self) -> float:
        """GB/s of memcpy over the same memory, in messages of the same size; the median of five."""
        if not self.size:
            return 0.0
        with memoryview(self.end.memory) as view:
            total = min(self.size, self.window)
            target = bytearray(total)
            source = ctypes.addressof(ctypes.c_char.from_buffer(view))
            to = ctypes.addressof(ctypes.c_char.from_buffer(target))
            view[:total] = bytes(total)
            speeds = []
            for _ in range(6):
                start = time.perf_counter()
                for at, n in pieces(total, self.message):
                    ctypes.memmove(to + at, source + at, n)
                speeds.append(total / (time.perf_counter() - start) / 1e9)
            return statistics.median(speeds[1:])


def interpreter() -> Path:
    """The Python interpreter's own binary: where its executable is a mere launcher, the library that it loads."""
    binary = Path(os.path.realpath(sys.executable))
    with open("/proc/self/maps") as maps:
        mapped = {Path(line.split(maxsplit=5)[5].strip()) for line in maps if "/libpython3." in line}
    return max([binary, *mapped], key=lambda path: path.stat().st_size if path.exists() else 0)


def _open(path: Path) -> tuple[IO[bytes], int]:
    """The file and its size. What the kernel makes as it is read, such as /proc/version, has none: it is read first."""
    opened = path.open("rb", buffering=0)
    size = os.fstat(opened.fileno()).st_size
    if size:
        return opened, size
    with opened:
        data = b""
        while len(data) <= UNSIZED and (more := opened.read(1 << 20)):
            data += more
    if len(data) > UNSIZED:
        raise click.BadParameter(f"{path} says that it is empty, and goes on without end", param_hint="FILE")
    return io.BytesIO(data), len(data)


def _report(console: Console, path: str, demo: Demo, ways: list[Way], ping: PingPong) -> None:
    between = f"from one process's NIC ({demo.names[0]}) to another's ({demo.names[1]})"
    console.print(f"{escape(path)}: {demo.size:,} bytes, {between}", soft_wrap=True, highlight=False)
    rows = []
    for w in ways:
        ratio = f"{w.memcpy_ratio:.2f}"
        speed = f"{w.gigabytes_per_second:.2f}"
        rows.append((f"RDMA {w.way}", f"{w.messages:,}", f"{w.bytes:,}", f"{w.seconds:.4f}", speed, ratio))
    rows.append(("memcpy", "", "", "", f"{demo.memcpy:.2f}", "1.00"))
    headings = ("way", "messages", "bytes", "seconds", "GB/s", "× memcpy")
    show(console, headings, rows, numbers=headings[1:])
    console.print(f"SHA-256 {ways[0].sha256}, the same on both sides each time", soft_wrap=True)
    console.print(f"{ping.bytes} bytes there and back: p50 {ping.p50_us:.2f} µs, p99 {ping.p99_us:.2f} µs")


@click.command("demo")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--message", default=1 << 20, show_default=True, type=click.IntRange(1, 1 << 31), help="Bytes a message.")
@click.option(
    "--nic", default="soft:bnxt", show_default=True, type=click.Choice(list(SOFT)), help="This process's NIC."
)
@click.option("--peer", type=click.Choice(list(SOFT)), help="The other process's NIC.  [default: the same]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(file: Path | None, message: int, nic: str, peer: str | None, as_json: bool) -> None:
    """Move FILE between two processes, each with its own NIC in software.

    It crosses by sends, by RDMA write and by RDMA read, each time compared by SHA-256. The default FILE is the Python
    interpreter's own binary. What is timed is the crossing, out of registered memory into registered memory whose
    pages are there; memcpy is timed over the same bytes. The exit status is 1 where anything differs.
    """
    path = Path(os.path.realpath(file)) if file else interpreter()
    if not path.is_file():
        raise click.BadParameter(f"{path} is not a regular file", param_hint="FILE")
    try:
        opened, size = _open(path)
    except OSError as e:
        raise click.BadParameter(f"{path}: {e.strerror}", param_hint="FILE") from e
    errors = Console(stderr=True)
    columns = TextColumn("{task.description:>9}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    try:
        with opened, Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bars:
            job = Demo((nic, peer or nic), opened, size, message, bars)
            ways, ping = _run(job)
    except (DemoError, userdma.Error) as e:
        if as_json:
            click.echo(json.dumps({"ok": False, "file": str(path), "error": str(e)}))
        click.echo(f"userdma demo: {e}", err=True)
        sys.exit(1)
    if as_json:
        result = {"ok": True, "file": str(path), "nics": job.names, "bytes": job.size}
        result |= {"memcpy_gigabytes_per_second": job.memcpy}
        click.echo(json.dumps(result | {"ways": [asdict(w) for w in ways], "ping_pong": asdict(ping)}))
    else:
        _report(Console(), str(path), job, ways, ping)


def _run(job: Demo) -> tuple[list[Way], PingPong]:
    try:
        with job.connected():
            return job.run()
    except LinkClosedError:
        raise DemoError(job.other.death()) from None
