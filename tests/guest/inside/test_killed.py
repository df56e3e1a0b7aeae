"""A process that drives a NIC is killed at any point: only its own memory is written, and the next process works.

By physical addresses the NIC goes on after its process: what a peer writes lands in memory that the file of huge pages
keeps, until the next owner has reset the NIC. By VFIO the kernel resets it. Either way this test's own process holds
all other memory and looks at it. The NICs are at 05.0, which is killed, and 06.0, whose process is the peer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from killed import HUGE, MIB, Child, Guard, Peer, Victim, free_huge_pages, survivor

from conftest import FUNCTIONS, driver_of

A, B = "0000:00:05.0", "0000:00:06.0"
FILE = Path(f"/dev/hugepages/userdma-{A}")
MIN_FREE = Path("/proc/sys/vm/min_free_kbytes")
MASTER = 4


def masters_the_bus() -> bool:
    return bool((FUNCTIONS / A / "config").read_bytes()[4] & MASTER)


class Arena:
    """The peer, the guards, and what a calm run of a victim took."""

    def __init__(self) -> None:
        self.physical = driver_of(A) == ""
        self.min_free = MIN_FREE.read_text()
        self.peer = Child(lambda pipe: Peer(B).run(pipe))
        self.peer.begin()
        assert self.peer.answer() == ("open",)
        self.huge_pages = free_huge_pages()
        calm = Child(Victim(A).run)
        start = time.monotonic()
        calm.begin()
        self.commands, self.needed = self.serve(calm, None)
        self.seconds = time.monotonic() - start
        calm.kill()
        calm.wait()
        self.follow(Child(survivor(A)))
        # What the system and those who are killed need; most of the memory is under watch all the time.
        MIN_FREE.write_text("8192")  # huge pages that come by themselves made it several times as much
        self.spare = (96 if self.physical else 160) * MIB
        self.most = Guard()
        self.most.take(self.spare + 64 * MIB)
        assert self.most.size > 256 * MIB

    def close(self) -> None:
        self.most.drop()
        MIN_FREE.write_text(self.min_free)
        self.peer.ask("close")
        assert self.peer.wait() == 0
        self.peer.close()

    def serve(self, child: Child, seconds: float | None, once: bool = True) -> tuple[list[str], int]:
        """Do what a child asks for until it dies, is killed after so many seconds, or has run once."""
        end = time.monotonic() + (300 if seconds is None else seconds)
        needed = 0
        made: list[Any] = []
        while True:
            if not child.pipe.poll(max(0.0, end - time.monotonic())):
                assert seconds is not None, "the process does nothing"
                child.kill()
                return [], needed
            try:
                what, *values = child.answer()
            except EOFError:
                return [], needed
            with suppress(BrokenPipeError):
                if what == "made":
                    made = values
                    _, endpoints, memory = self.peer.ask("make", len(values[0]))
                    child.pipe.send((endpoints, memory))
                elif what == "connected":
                    needed = self.huge_pages - free_huge_pages()
                    self.peer.ask("connect", *made)
                    child.pipe.send("go")
                elif what == "worked" or once:
                    return (values or [[]])[0], needed

    def follow(self, child: Child) -> None:
        """The next process takes the function, works, and leaves nothing."""
        child.begin()
        self.serve(child, None)
        assert child.wait() == 0
        child.close()
        assert not masters_the_bus()
        assert not FILE.exists()

    def kill(self, point: str = "", seconds: float | None = None) -> None:
        """One is killed, at a point or after a time; then what it left is looked at, and the next one works."""
        victim, following = Child(Victim(A, point).run), Child(survivor(A))
        after = Guard()
        try:
            victim.begin()
            self.serve(victim, seconds, once=seconds is None)
            assert victim.wait() == -9, "it was not killed: the point was not reached"
            if self.physical:
                # Its size may count pages that it was killed before it had.
                left = FILE.stat().st_blocks * 512 // HUGE if FILE.exists() else 0
                assert free_huge_pages() == self.huge_pages - left
                after.take_huge_pages(max(0, self.needed + 2 - left))
            after.take(self.spare)
            at_work = point in Victim.TRANSFER
            if self.physical:
                # The NIC goes on, or nothing would be at stake.
                assert masters_the_bus() or not at_work
                before = now = self.peer.ask("state")
                end = time.monotonic() + 60
                while at_work and now[1] == before[1] and not now[2] and time.monotonic() < end:
                    time.sleep(0.2)
                    now = self.peer.ask("state")
                assert not at_work or (now[1] > before[1] and now[2] == ""), (before, now)
            else:
                assert not masters_the_bus()
            after.check()
            self.most.check()
            self.follow(following)
            after.check()
            self.most.check()
        finally:
            after.drop()
            for child in (victim, following):
                child.close()
        if self.physical:
            assert free_huge_pages() == self.huge_pages


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    arena = Arena()
    yield arena
    arena.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    full = metafunc.config.getoption("--full")
    if "point" in metafunc.fixturenames:
        metafunc.parametrize("point", Victim.POINTS if full else Victim.POINTS[2::3])
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(40 if full else 2))


def test_at_a_point(arena: Arena, point: str) -> None:
    arena.kill(point)


@pytest.mark.timeout(3000)
def test_at_commands(arena: Arena, request: pytest.FixtureRequest) -> None:
    """While the firmware runs a command of the process, or has just answered it."""
    full = request.config.getoption("--full")
    count = len(arena.commands)
    for n in range(1, count + 1) if full else random.Random(count).sample(range(1, count + 1), 2):
        arena.kill(f"{('sent', 'answered')[n % 2]} {n}")


def test_at_any_time(arena: Arena, seed: int) -> None:
    arena.kill(seconds=random.Random(seed).uniform(0, 1.5 * arena.seconds))
