"""The parts of test_killed.py: memory that guards watch, a peer that never stops, and processes that get killed.

Every process is a fork of the test's own, made before it needs memory, and told when to begin.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import userdma
from userdma import Access, Completion, Endpoint, Qp, Region, RemoteMemory, Side, trace
from userdma.bnxt.hwrm_channel import HwrmChannel
from userdma.bnxt.rcfw_channel import RcfwChannel

MIB = 1 << 20
HUGE = 2 * MIB
MAP_HUGETLB = 0x40000  # include/uapi/asm-generic/mman.h; Python has no name for it
SECOND = 1_000_000
ALL = Access.READ | Access.WRITE
AREA = 256 << 10  # bytes of memory that the peer writes
HUGE_PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


def meminfo(name: str) -> int:
    """Bytes, by /proc/meminfo."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def free_huge_pages() -> int:
    return int((HUGE_PAGES / "free_hugepages").read_text())


class Guard:
    """Memory that the system has given to this process, and that nobody else may write."""

    def __init__(self) -> None:
        self._areas: list[mmap.mmap] = []
        self._pattern = random.Random(20).randbytes(HUGE)

    @property
    def size(self) -> int:
        return sum(len(area) for area in self._areas)

    def take(self, leave: int) -> None:
        """Take what is free, until so many bytes are."""
        while (room := meminfo("MemFree") - leave) >= HUGE:
            self._add(min(room // HUGE * HUGE, 64 * MIB), 0)

    def take_huge_pages(self, leave: int) -> None:
        for _ in range(free_huge_pages() - leave):
            self._add(HUGE, MAP_HUGETLB)

    def _add(self, size: int, flags: int) -> None:
        area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
        area.madvise(mmap.MADV_DONTFORK)
        for at in range(0, size, HUGE):
            area[at : at + HUGE] = self._pattern
        self._areas.append(area)

    def check(self) -> None:
        """Not a byte has changed."""
        for area in self._areas:
            for at in range(0, len(area), HUGE):
                if area[at : at + HUGE] != self._pattern:
                    changed = [i for i in range(HUGE) if area[at + i] != self._pattern[i]]
                    found = area[at + changed[0] : at + changed[0] + 32].hex()
                    raise AssertionError(f"{len(changed)} bytes that nobody may write have changed: {found}...")

    def drop(self) -> None:
        for area in self._areas:
            area.close()
        self._areas.clear()


class Child:
    """A fork of this process, which runs `work(pipe)` once told to begin."""

    def __init__(self, work: Callable[[Connection], object]) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.pipe.close()
                theirs.recv()
                work(theirs)
                status = 0
            except BaseException:
                with suppress(OSError):
                    theirs.send(("failed", traceback.format_exc()))
            finally:
                os._exit(status)
        theirs.close()
        self._status: int | None = None

    def begin(self) -> None:
        self.pipe.send("begin")

    def ask(self, *request: object, timeout: float = 300) -> Any:
        self.pipe.send(request)
        return self.answer(timeout)

    def answer(self, timeout: float = 300) -> Any:
        """What it sends next; raises EOFError where it was killed."""
        assert self.pipe.poll(timeout), "the process says nothing"
        found = self.pipe.recv()
        assert found[0] != "failed", found[1]
        return found

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = 300) -> int:
        """Its status: minus the signal that ended it."""
        end = time.monotonic() + timeout
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            else:
                assert time.monotonic() < end, "the process does not end"
                time.sleep(0.002)
        return self._status

    def close(self) -> None:
        if self._status is None:
            self.kill()
            self.wait()
        self.pipe.close()


def taken(qp: Qp, side: Side, us: int = 120 * SECOND) -> Completion:
    found = qp.wait(side, us=us)
    assert found is not None, f"no completion of the {side.name} ring"
    assert found.ok, found.message
    return found


# ---- the peer --------------------------------------------------------------------------------------------------------


class Peer:
    """Writes a victim's memory and sends to it as long as its NIC answers, whether the victim lives or not."""

    def __init__(self, bus: str) -> None:
        self.nic = userdma.open(bus)
        self.source = Region.host(self.nic, AREA)
        self.source.write(0, b"\xd5" * AREA)
        self.memory = Region.host(self.nic, AREA, remote=ALL)
        self.pairs: list[Qp] = []
        self.there = RemoteMemory(0, 0, 0)
        self.writes = 0
        self.end = ""

    def run(self, pipe: Connection) -> None:
        pipe.send(("open",))
        at = 0
        while True:
            active = len(self.pairs) == 2 and self.pairs[0].connected and not self.end
            if pipe.poll(0 if active else None):
                request, *values = pipe.recv()
                if request == "close":
                    self.nic.close()
                    pipe.send(("closed",))
                    return
                pipe.send(getattr(self, request)(*values))
            elif active:
                at = (at + 4096) % AREA
                self.drive(at)

    def drive(self, at: int) -> None:
        writer, sender = self.pairs
        if writer.room(Side.SEND) > 32 - 8:
            there = RemoteMemory(self.there.address + at, self.there.rkey, AREA - at)
            writer.write((self.source, 0), there, 4096)
        if sender.room(Side.SEND) > 32 - 4:
            sender.send(self.source, 0, 512)
        for qp in self.pairs:
            while (found := qp.poll(Side.SEND)) is not None:
                if not found.ok:
                    self.end = found.message
                elif qp is writer:
                    self.writes += 1

    def make(self, count: int) -> tuple[object, ...]:
        """New pairs, in place of those before: two for a victim."""
        for qp in self.pairs:
            qp.destroy()
        self.pairs = [Qp.make(self.nic, send=32, receive=32) for _ in range(count)]
        self.writes, self.end = 0, ""
        self.memory.write(0, random.Random(30).randbytes(AREA))
        return ("made", [qp.endpoint.to_bytes() for qp in self.pairs], self.memory.remote().to_bytes())

    def connect(self, endpoints: list[bytes], memory: bytes) -> tuple[object, ...]:
        self.there = RemoteMemory.from_bytes(memory)
        for qp, endpoint in zip(self.pairs, endpoints, strict=True):
            qp.connect(Endpoint.from_bytes(endpoint), remote=ALL)
        return ("connected",)

    def state(self) -> tuple[object, ...]:
        """How many writes the victim's NIC has acknowledged, and why it answers no more."""
        return ("state", self.writes, self.end)


# ---- who is killed ---------------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


class Victim:
    """Works in a loop, and dies at a point: one of POINTS, or at a firmware command, "sent 12" or "answered 12"."""

    #: While the peer writes.
    TRANSFER = (
        "region written",
        "receive posted",
        "send posted",
        "write posted",
        "read posted",
        "waiting",
        "completion taken",
        "completions taken",
    )
    POINTS = ("open", "region made", "pairs made", "half connected", "connected", *TRANSFER, "pair destroyed", "ended")

    def __init__(self, bus: str, point: str = "") -> None:
        self.bus = bus
        self.point = point
        self.commands: list[str] = []

    def reached(self, point: str) -> None:
        if point == self.point:
            die()

    def watch_commands(self) -> None:
        """Note the firmware commands, and die at the one that is chosen."""

        def step(event: trace.Event) -> None:
            if event.what == "sent":
                self.commands.append(event.command)
            else:
                self.reached(f"answered {len(self.commands)}")

        def watched(post: Callable[..., None]) -> Callable[..., None]:
            def posting(*arguments: Any) -> None:
                post(*arguments)
                self.reached(f"sent {len(self.commands)}")

            return posting

        trace.listeners = (step,)
        for each in (HwrmChannel, RcfwChannel):
            each._post = watched(each._post)  # type: ignore[method-assign]

    def run(self, pipe: Connection) -> None:
        self.watch_commands()
        while True:
            self.cycle(pipe)
            pipe.send(("cycle", self.commands))
            self.commands = []

    def cycle(self, pipe: Connection) -> None:
        nic = userdma.open(self.bus)
        self.reached("open")
        region = Region.host(nic, AREA, remote=ALL)
        self.reached("region made")
        pairs = [Qp.make(nic, send=32, receive=255) for _ in range(2)]
        self.reached("pairs made")
        pipe.send(("made", [qp.endpoint.to_bytes() for qp in pairs], region.remote().to_bytes()))
        endpoints, memory = pipe.recv()
        there = RemoteMemory.from_bytes(memory)
        for qp, endpoint in zip(pairs, endpoints, strict=True):
            qp.connect(Endpoint.from_bytes(endpoint), remote=ALL)
            self.reached("half connected")
        one, two = pairs
        mine = Region.host(nic, AREA)
        for at in range(200):
            two.receive(mine, at % 64 * 512, 512)
        self.reached("connected")
        pipe.send(("connected",))
        assert pipe.recv() == "go"
        itself = Qp.make(nic, send=32, receive=32)
        itself.connect(itself.endpoint)
        for n in range(4):
            mine.write(AREA // 2, bytes([n]) * 65536)
            self.reached("region written")
            itself.receive(mine, 0, 65536)
            self.reached("receive posted")
            itself.send(mine, AREA // 2, 65536)
            self.reached("send posted")
            one.write((mine, AREA // 2), there, 65536)
            self.reached("write posted")
            one.read(there, (mine, AREA // 2), 65536)
            self.reached("read posted")
            if self.point == "waiting":
                threading.Timer(0.02, die).start()
                itself.wait(Side.RECEIVE, us=SECOND)
                itself.wait(Side.RECEIVE, us=60 * SECOND)
            taken(itself, Side.SEND)
            taken(itself, Side.RECEIVE)
            self.reached("completion taken")
            taken(one, Side.SEND)
            taken(one, Side.SEND)
            self.reached("completions taken")
        itself.destroy()
        self.reached("pair destroyed")
        Region.host(nic, AREA).deregister()
        self.reached("ended")
        nic.close()


def survivor(bus: str) -> Callable[[Connection], None]:
    """What the next process does with the function: it takes it, works, and gives it back."""

    def work(pipe: Connection) -> None:
        with userdma.open(bus) as nic:
            assert nic.function.config16(0x04) & 4, "it does not master the bus"
            region = Region.host(nic, 2 * AREA, remote=ALL)
            assert region.read(0, 2 * AREA) == bytes(2 * AREA)
            qp = Qp.make(nic, send=32, receive=32)
            pipe.send(("made", [qp.endpoint.to_bytes()], region.remote().to_bytes()))
            [endpoint], memory = pipe.recv()
            qp.connect(Endpoint.from_bytes(endpoint), remote=ALL)
            pipe.send(("connected",))
            assert pipe.recv() == "go"
            data = random.Random(30).randbytes(AREA)
            qp.read(RemoteMemory.from_bytes(memory), (region, 0), AREA)
            taken(qp, Side.SEND)
            assert region.read(0, AREA) == data
            own = Qp.make(nic, send=32, receive=32)
            own.connect(own.endpoint)
            own.receive(region, AREA, AREA)
            own.send(region, 0, AREA)
            assert taken(own, Side.RECEIVE).bytes == AREA
            assert region.read(AREA, AREA) == data
        pipe.send(("worked",))

    return work
