"""What both processes of the demo do: one end of a queue pair, and work pushed through it in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import userdma
from userdma import Access, Completion, Endpoint, Qp, Region, Side
from userdma.cli.link import Link

STALL = 30.0  # seconds without a completion after which a transfer counts as stuck
LOOK = 20_000  # µs of one wait, between which the other process is looked after
DEPTH = 128  # entries in flight


class DemoError(Exception):
    """The demo failed; the text is the one line that says how."""


class End:
    """One process's side: its NIC on the wire, its registered memory, its queue pair."""

    def __init__(self, name: str, wire: str, window: int, message: int, remote: Access, link: Link) -> None:
        self.link = link
        self.nic = userdma.open(name, wire=wire)
        try:
            if message > self.nic.limits["message_bytes"]:
                most = self.nic.limits["message_bytes"]
                raise DemoError(f"a message of {name} has {most} bytes at most, not {message}: choose --message")
            self.memory = Region.host(self.nic, window, remote=remote)
            self.ping = Region.host(self.nic, 16)
            self.qp = Qp.make(self.nic)
        except BaseException:
            self.nic.close()
            raise

    def connect(self, endpoint: bytes) -> None:
        self.qp.connect(Endpoint.from_bytes(endpoint), remote=Access.READ | Access.WRITE)

    def close(self) -> None:
        self.qp.destroy()
        self.memory.deregister()
        self.ping.deregister()
        self.nic.close()

    def abandon(self) -> None:
        """Close it as far as can be: frames of the exception that ends the demo may hold views of the memory.

        The NIC then goes with the process.
        """
        with suppress(BufferError):
            self.close()

    def completion(self, side: Side, what: str) -> Completion:
        """The next completion of `side`, a good one; ``DemoError`` for a failed one, or for none in STALL seconds."""
        end = time.monotonic() + STALL
        while True:
            completion = self.qp.wait(side, us=LOOK)
            if completion is not None:
                if not completion.ok:
                    self.link.check()
                    raise DemoError(f"{what} failed: {completion.message}")
                return completion
            self.link.check()
            if time.monotonic() > end:
                raise DemoError(f"{what}: no completion for {STALL:.0f} s")

    def push(
        self,
        side: Side,
        pieces: Iterator[tuple[int, int]],
        post: Callable[[int, int], object],
        what: str,
        progress: Callable[[int], object],
    ) -> None:
        """Post every (offset, bytes) piece, at most DEPTH in flight, and take the completion of each."""
        flying: list[int] = []
        oldest = 0
        for at, n in pieces:
            post(at, n)
            flying.append(n)
            if len(flying) - oldest >= DEPTH:
                self._took(side, flying[oldest], what, progress)
                oldest += 1
        for n in flying[oldest:]:
            self._took(side, n, what, progress)

    def _took(self, side: Side, n: int, what: str, progress: Callable[[int], object]) -> None:
        completion = self.completion(side, what)
        if completion.bytes != n:
            raise DemoError(f"{what}: a completion of {completion.bytes} bytes where {n} were due")
        progress(n)


def pieces(total: int, message: int) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of the messages that `total` bytes make, the last one shorter."""
    for at in range(0, total, message):
        yield at, min(message, total - at)
