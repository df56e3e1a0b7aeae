"""Soft NICs on a virtual clock, with everything seeded; and scripts of work whose every outcome is checked.

Time passes only when no NIC has anything else to do, so seconds of retries take no time, and the same seed gives the
same run, frame by frame.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import userdma
from userdma import Access, Completion, ErrorKind, Nic, Qp, Region, Side, soft
from userdma.firmware import device

SEND, RECEIVE = Side.SEND, Side.RECEIVE
ALL = Access.READ | Access.WRITE | Access.ATOMIC
MTUS = (256, 512, 1024, 2048, 4096)
TIMEOUT = 4096 << 14  # ns of a local ACK timeout of code 14: 67.1 ms (InfiniBand volume 1, 9.7.6.1.3)
FILL = 0xA5  # what memory holds that nobody should write


@contextmanager
def seeded(rng: random.Random, psns: Sequence[int] = ()) -> Iterator[None]:
    """The driver draws PSNs and addresses from `rng`; the first PSNs are those given."""
    left = deque(psns)

    def randbits(bits: int) -> int:
        return left.popleft() if bits == 24 and left else rng.getrandbits(bits)

    real = device.secrets  # type: ignore[attr-defined]
    device.secrets = SimpleNamespace(randbits=randbits)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        device.secrets = real  # type: ignore[attr-defined]


class World:
    """NICs on one wire of frames, with its faults."""

    def __init__(self, nics: int = 2, *, seed: int = 0, frames: bool = True, **faults: Any) -> None:
        self.random = random.Random(seed)
        self.clock = soft.VirtualClock()
        self.wire = soft.Wire(seed=seed, clock=self.clock, frames=frames, **faults)
        self._opened = ExitStack()
        self.nics: list[Nic] = []
        with seeded(self.random):
            for number in range(nics):
                mac = bytes([2, 0, 0, 0, 0, number + 1])
                nic = userdma.open(soft.bnxt(self.wire, clock=self.clock, mac=mac, seed=seed + number))
                self._opened.callback(nic.close)
                self.nics.append(nic)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def make(self, nic: Nic, psn: int | None = None, **options: Any) -> Qp:
        with seeded(self.random, () if psn is None else (psn,)):
            return Qp.make(nic, **options)

    def region(self, nic: Nic, n: int, remote: Access = ALL, fill: int | None = FILL) -> Region:
        with seeded(self.random):
            region = Region.host(nic, n, remote=remote)
        if fill is not None:
            region.write(0, bytes([fill]) * len(region))
        return region

    def pair(
        self,
        a: Nic | None = None,
        b: Nic | None = None,
        *,
        psns: tuple[int | None, int | None] = (None, None),
        mtu: int | None = None,
        remote: Access = ALL,
        **options: Any,
    ) -> tuple[Qp, Qp]:
        """Two queue pairs that are each other's peers."""
        one = self.make(a or self.nics[0], psns[0], **options)
        two = self.make(b or self.nics[-1], psns[1], **options)
        one.connect(two.endpoint, mtu=mtu, remote=remote)
        two.connect(one.endpoint, mtu=mtu, remote=remote)
        return one, two

    def settle(self, most: int = 100_000) -> None:
        """Until nothing can happen any more."""
        for _ in range(most):
            if not self.clock.step():
                return
        raise AssertionError("the NICs never come to rest")

    def take(self, qp: Qp, side: Side, most: int = 100_000) -> Completion:
        """The next completion, which must come."""
        for _ in range(most):
            found = qp.poll(side)
            if found is not None:
                return found
            if not self.clock.step():
                found = qp.poll(side)
                assert found is not None, f"nothing can happen any more, and {qp!r} has no completion of {side}"
                return found
        raise AssertionError(f"{qp!r} has no completion of {side} after {most} steps")

    def stats(self) -> list[dict[str, int]]:
        return [nic.function.stats() for nic in self.nics]  # type: ignore[attr-defined]


# ---- scripts: what two ends do, and what must come of it -------------------------------------------------------------


@dataclass(frozen=True)
class Op:
    """An entry of a send ring: `kind` is send, write, read (by remote memory) or local (a read within the NIC)."""

    kind: str
    size: int
    gap: int = 0  # bytes that nobody writes, before where it lands
    source: int = 0  # where its bytes are, anywhere within the source
    room: int = 0  # bytes by which its receive is larger than it


@dataclass
class Entry:
    op: Op
    at: int  # where its bytes land
    data: bytes
    before: int  # how many writes its end had posted when it was


@dataclass
class End:
    """One queue pair, its peer, and what is due at it."""

    qp: Qp
    source: Region
    target: Region
    todo: deque[Op]
    model: bytearray = field(default_factory=bytearray)  # of its target, where the outcome is known
    free: bytearray = field(default_factory=bytearray)  # 1: the outcome of the byte is not known
    used: int = 0
    peer: End = None  # type: ignore[assignment]
    content: bytes = b""  # of its source
    unsent: deque[Entry] = field(default_factory=deque)  # planned
    sends: deque[Entry] = field(default_factory=deque)  # posted, not completed
    arrivals: deque[Entry] = field(default_factory=deque)  # sends of its peer whose receive is not posted
    receives: deque[Entry] = field(default_factory=deque)  # posted, not completed
    writes: list[Entry] = field(default_factory=list)  # posted writes, in order
    done: int = 0  # entries that completed well, of both rings
    failure: ErrorKind | None = None
    broken: set[Side] = field(default_factory=set)  # rings that an entry failed of

    def place(self, op: Op) -> int:
        at = self.used + op.gap
        self.used = at + op.size + op.room
        assert self.used <= len(self.target)
        return at

    def landed(self, at: int, data: bytes) -> None:
        assert self.target.read(at, len(data)) == data
        self.model[at : at + len(data)] = data
        self.free[at : at + len(data)] = bytes(len(data))

    def unknown(self, at: int, size: int) -> None:
        self.free[at : at + size] = b"\1" * size


class Script:
    """Runs ops on two connected ends (or on one that is its own peer) and checks everything on the way.

    Raises AssertionError unless every message arrives once, in order and byte for byte, or the pair fails as it may:
    an entry that nobody acknowledged, with all after it flushed. `lag`: how many times time may pass before a receive
    is posted.
    """

    def __init__(
        self,
        world: World,
        ops: tuple[Sequence[Op], Sequence[Op]],
        *,
        topology: str = "two",
        mtu: int = 1024,
        rings: tuple[int, int] = (16, 16),
        psns: tuple[int | None, int | None] = (None, None),
        lag: int = 0,
    ) -> None:
        self.world = world
        self.lag = lag
        options = {"send": rings[0], "receive": rings[1]}
        first = world.nics[0]
        second = world.nics[-1] if topology == "two" else first
        if topology == "self":
            qp = world.make(first, psns[0], **options)
            qp.connect(qp.endpoint, mtu=mtu, remote=ALL)
            self.ends = [self._end(qp, [*ops[0], *ops[1]])]
            self.ends[0].peer = self.ends[0]
        else:
            pair = world.pair(first, second, psns=psns, mtu=mtu, **options)
            self.ends = [self._end(qp, list(script)) for qp, script in zip(pair, ops, strict=True)]
            self.ends[0].peer, self.ends[1].peer = self.ends[1], self.ends[0]
        needs = sum(op.size + op.gap + op.room for script in ops for op in script) + 64
        for end in self.ends:
            end.source = world.region(end.qp.nic, 1 << 17, fill=None)
            end.content = world.random.randbytes(len(end.source))
            end.source.write(0, end.content)
            end.target = world.region(end.qp.nic, needs)
            end.model = bytearray([FILL]) * len(end.target)
            end.free = bytearray(len(end.target))
        # A message lands where it was planned, whenever its receive is posted.
        for end in self.ends:
            for op in end.todo:
                reads = op.kind in ("read", "local")
                source = (end.peer if reads else end).content
                start = op.source % (len(source) - op.size + 1)
                entry = Entry(op, (end if reads else end.peer).place(op), source[start : start + op.size], start)
                end.unsent.append(entry)
                if op.kind == "send":
                    end.peer.arrivals.append(entry)

    def _end(self, qp: Qp, script: list[Op]) -> End:
        return End(qp, None, None, deque(script))  # type: ignore[arg-type]

    def run(self, most: int = 200_000) -> Script:
        idle = 0
        for _ in range(most):
            moved = False
            for end in self.ends:
                moved |= self._post(end, idle)
                moved |= self._poll(end)
            if not any(end.unsent or end.sends or end.arrivals or end.receives for end in self.ends):
                break
            if not moved:
                idle += 1
                if not self.world.clock.step() and not any(self._post(e, idle) | self._poll(e) for e in self.ends):
                    if idle < self.lag:
                        continue
                    break
        else:
            raise AssertionError("the script never ends")
        self._finish()
        return self

    def _post(self, end: End, idle: int) -> bool:
        moved = False
        while end.failure is None and end.arrivals and idle >= self.lag and end.qp.room(RECEIVE):
            entry = end.arrivals.popleft()
            end.qp.receive(end.target, entry.at, entry.op.size + entry.op.room)
            end.receives.append(entry)
            moved = True
        while end.failure is None and end.unsent and end.qp.room(SEND):
            entry = end.unsent.popleft()
            self._start(end, entry)
            end.sends.append(entry)
            moved = True
        return moved

    def _start(self, end: End, entry: Entry) -> None:
        kind, n, start = entry.op.kind, entry.op.size, entry.before
        entry.before = len(end.writes)
        if kind == "send":
            end.qp.send(end.source, start, n)
        elif kind == "write":
            end.writes.append(entry)
            end.qp.write((end.source, start), end.peer.target.remote(entry.at), n)
        elif kind == "read":
            end.qp.read(end.peer.source.remote(start), (end.target, entry.at), n)
        else:
            end.qp.read((end.peer.source, start), (end.target, entry.at), n)

    def _poll(self, end: End) -> bool:
        moved = False
        while (found := end.qp.poll(SEND)) is not None:
            moved = True
            self._sent(end, end.sends.popleft(), found)
        while (found := end.qp.poll(RECEIVE)) is not None:
            moved = True
            self._received(end, end.receives.popleft(), found)
        return moved

    def _sent(self, end: End, entry: Entry, found: Completion) -> None:
        n, at = entry.op.size, entry.at
        if self._failed(end, SEND, found):
            reads = entry.op.kind in ("read", "local")
            if reads:
                end.unknown(at, n)
            elif entry.op.kind == "write":
                end.peer.unknown(at, n)
            return
        assert found.bytes == n
        end.done += 1
        if entry.op.kind == "write":
            end.peer.landed(at, entry.data)
        elif entry.op.kind != "send":
            end.landed(at, entry.data)

    def _received(self, end: End, entry: Entry, found: Completion) -> None:
        if self._failed(end, RECEIVE, found):
            end.unknown(entry.at, entry.op.size)
            return
        assert found.bytes == entry.op.size
        assert found.immediate is None
        end.done += 1
        end.landed(entry.at, entry.data)
        # What the peer wrote before it sent has landed too.
        for write in end.peer.writes[: entry.before]:
            end.landed(write.at, write.data)

    def _failed(self, end: End, side: Side, found: Completion) -> bool:
        """Whether the entry failed: as one that nobody acknowledged, and all after it, of both rings, flushed."""
        if found.ok:
            assert side not in end.broken, "an entry after the failed one ran"
            return False
        first = side is SEND and side not in end.broken
        assert found.error is (ErrorKind.RETRY_EXCEEDED if first else ErrorKind.FLUSHED), found.message
        assert "acknowledged nothing" in found.message
        end.broken.add(side)
        end.failure = ErrorKind.RETRY_EXCEEDED
        return True

    def _finish(self) -> None:
        for end in self.ends:
            if end.failure is None:
                assert not end.sends and not end.unsent, f"{len(end.sends)} entries of {end.qp!r} never complete"
                if end.peer.failure is None:
                    assert not end.receives, f"{len(end.receives)} messages to {end.qp!r} never arrive"
            else:
                assert not end.sends and not end.receives, "not all entries of a failed pair complete"
            # What a failed peer's entries may have moved.
            for entry in end.receives:
                end.unknown(entry.at, entry.op.size)
        for end in self.ends:
            have = end.target.read(0, len(end.target))
            if have == end.model:
                continue
            wrong = [i for i in range(len(have)) if have[i] != end.model[i] and not end.free[i]]
            assert not wrong, f"{len(wrong)} bytes are not as they should be, the first at {wrong[0]}"

    @property
    def failed(self) -> bool:
        return any(end.failure is not None for end in self.ends)
