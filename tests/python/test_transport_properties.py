"""Properties of the transport over a faulty wire: every message arrives once, in order and byte for byte, or the pair
fails with the right error, and the same seed gives the same run.

The expected errors are those of the InfiniBand specification, volume 1, chapter 9 (9.7 and 9.9).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from userdma import Access, ErrorKind, Qp, Region, RemoteMemory
from world import ALL, FILL, MTUS, RECEIVE, SEND, TIMEOUT, Op, Script, World

pytestmark = pytest.mark.hasty  # on a virtual clock, of which half a second takes no time

QUICK = settings(max_examples=60)
DEEP = settings(QUICK, max_examples=1000)
PSNS = st.sampled_from([0, 1, 0x7FFFFF, 0x800000, 0xFFFFFE, 0xFFFFFF]) | st.integers(0xFFFF00, 0xFFFFFF)


@st.composite
def sizes(draw: st.DrawFn, mtu: int) -> int:
    """Around multiples of the MTU, 0 among them; or anything up to several; or well beyond, seldom."""
    kind = draw(st.integers(0, 9))
    if kind < 5:
        return max(0, mtu * draw(st.integers(0, 5)) + draw(st.integers(-4, 4)))
    if kind < 9:
        return draw(st.integers(0, 6 * mtu))
    return draw(st.integers(0, 1 << 16))


@st.composite
def operations(draw: st.DrawFn, mtu: int, kinds: list[str], most: int) -> list[Op]:
    return draw(
        st.lists(
            st.builds(
                Op,
                kind=st.sampled_from(kinds),
                size=sizes(mtu),
                gap=st.integers(0, 9),
                source=st.integers(0, 1 << 20),
                room=st.integers(0, 40),
            ),
            max_size=most,
        )
    )


@st.composite
def cases(draw: st.DrawFn, most: int = 12) -> dict[str, Any]:
    topology = draw(st.sampled_from(["two", "two", "two", "one", "self"]))
    mtu = draw(st.sampled_from(MTUS))
    kinds = ["send", "send", "write", "read"] + (["local"] if topology != "two" else [])
    return {
        "topology": topology,
        "mtu": mtu,
        "ops": (draw(operations(mtu, kinds, most)), draw(operations(mtu, kinds, most))),
        "rings": (draw(st.integers(1, 16)), draw(st.integers(1, 16))),
        "psns": (draw(PSNS), draw(PSNS)),
        "lag": draw(st.sampled_from([0, 0, 1, 7])),
    }


@st.composite
def faults(draw: st.DrawFn) -> dict[str, float]:
    """Up to a fifth of the packets, of each kind of fault."""
    chance = st.sampled_from([0.0, 0.0, 0.01, 0.05, 0.1, 0.2])
    return {kind: draw(chance) for kind in ("loss", "duplicate", "reorder", "corrupt", "delay")}


def play(case: dict[str, Any], seed: int, **faults: Any) -> tuple[Script, World]:
    ops = case["ops"]
    options = {name: value for name, value in case.items() if name != "ops"}
    with World(2 if case["topology"] == "two" else 1, seed=seed, **faults) as world:
        script = Script(world, ops, **options).run()
        exceeded = sum(stats["retries_exceeded"] for stats in world.stats())
        if not script.failed:
            assert exceeded == 0
            assert sum(end.done for end in script.ends) == sum(
                2 if op.kind == "send" else 1 for side in ops for op in side
            )
        else:
            assert exceeded > 0
            # Eight tries in a row have to go wrong, of a packet or of its answer.
            assert faults.get("loss", 0) + faults.get("corrupt", 0) + faults.get("reorder", 0) >= 0.1, (
                "it gave up where nearly everything arrives"
            )
        return script, world


@QUICK
@given(case=cases(), faults=faults(), seed=st.integers(0, 1 << 32))
def test_everything_arrives_once_and_in_order_or_the_pair_fails(
    case: dict[str, Any], faults: dict[str, float], seed: int
) -> None:
    script, _ = play(case, seed, **faults)
    event("failed" if script.failed else "arrived")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@DEEP
@given(case=cases(40), faults=faults(), seed=st.integers(0, 1 << 32))
def test_everything_arrives_over_many_more_wires(case: dict[str, Any], faults: dict[str, float], seed: int) -> None:
    play(case, seed, **faults)


@settings(QUICK, max_examples=25)
@given(case=cases(24))
def test_a_perfect_wire_needs_no_retries(case: dict[str, Any]) -> None:
    case["lag"] = 0
    with World(2 if case["topology"] == "two" else 1) as world:
        options = {name: value for name, value in case.items() if name != "ops"}
        script = Script(world, case["ops"], **options).run()
        assert not script.failed
        for stats in world.stats():
            assert stats["timeouts"] == stats["sequence_naks_sent"] == stats["implied_naks"] == stats["naks_sent"] == 0
            assert stats["dma_faults"] == stats["wire_dropped"] == stats["duplicates"] == 0
            assert stats["rnr_naks_sent"] > 0 or stats["dropped"] == 0


@settings(QUICK, max_examples=12)
@given(case=cases(), faults=faults(), seed=st.integers(0, 1 << 32))
def test_the_same_seed_gives_the_same_run(case: dict[str, Any], faults: dict[str, float], seed: int) -> None:
    """Every frame, every counter and the time are the same."""
    runs = []
    for _ in range(2):
        with World(2 if case["topology"] == "two" else 1, seed=seed, **faults) as world:
            world.wire.capture(1 << 20)
            options = {name: value for name, value in case.items() if name != "ops"}
            script = Script(world, case["ops"], **options).run()
            outcome = [(end.done, end.failure) for end in script.ends]
            runs.append((world.wire.take(), world.stats(), world.clock.now(), outcome))
    assert runs[0] == runs[1]


def test_another_seed_gives_another_run() -> None:
    case = {"topology": "two", "ops": ([Op("send", 20_000)] * 4, [Op("read", 9_000)] * 3), "mtu": 256}
    times = {play(case, seed, loss=0.1, reorder=0.1)[1].clock.now() for seed in range(4)}
    assert len(times) > 1


def test_a_wire_too_bad_for_it_fails_the_pair() -> None:
    """With half of the packets lost, some pair meets eight failures in a row; what came before them stays right."""
    ops = (
        [Op("send", 700), Op("write", 300), Op("read", 900), Op("send", 0)] * 4,
        [Op("read", 700), Op("send", 9)] * 4,
    )
    ends = []
    for seed in range(8):
        script, _ = play({"topology": "two", "ops": ops, "mtu": 256, "rings": (5, 5)}, seed, loss=0.5)
        ends += script.ends
    assert any(end.failure is ErrorKind.RETRY_EXCEEDED for end in ends)
    assert any(end.done for end in ends)


@pytest.mark.parametrize(
    ("mtu", "psn"), [(256, 0), (512, 0x7FFFFF), (1024, 0x800000), (2048, 0xFFFFFE), (4096, 0xFFFFFF), (256, 0xFFFFF8)]
)
def test_sequence_numbers_wrap(mtu: int, psn: int) -> None:
    """PSNs are 24 bits (9.7.1): messages across the last one, and across half of their circle, are as any other."""
    ops = [Op("send", 3 * mtu + 1), Op("write", 2 * mtu), Op("read", 5 * mtu - 1), Op("send", 0), Op("read", 1)]
    for chances in ({}, {"loss": 0.05, "reorder": 0.05, "duplicate": 0.1}):
        case = {"topology": "two", "ops": (ops * 2, ops), "mtu": mtu, "psns": (psn, psn ^ 1)}
        play(case, 5, **chances)


@pytest.mark.parametrize("kind", ["send", "write", "read"])
@pytest.mark.parametrize("mtu", MTUS)
def test_lengths_around_the_mtu(kind: str, mtu: int) -> None:
    lengths = [0, 1, 2, 3, 4, 5, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 2 * mtu + 1, 3 * mtu, 0, 9 * mtu + 2]
    play({"topology": "two", "ops": ([Op(kind, n) for n in lengths], []), "mtu": mtu}, 1)


@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("kind", ["send", "write", "read"])
def test_messages_over_16_mib(kind: str, frames: bool) -> None:
    """More bytes than a PSN has values, and with the smallest MTU more packets than a 16-bit count has."""
    n = (1 << 24) + 5
    with World(frames=frames) as world:
        a, b = world.pair(mtu=256, psns=(0xFFFFF0, 0x7FFFFF), send=4, receive=4)
        source, target = (world.region(nic, n, fill=None) for nic in world.nics)
        data = world.random.randbytes(n)
        if kind == "read":
            source, target = target, source
        source.write(0, data)
        if kind == "send":
            b.receive(target, 0, n)
            a.send(source, 0, n)
            assert world.take(b, RECEIVE).bytes == n
        elif kind == "write":
            a.write((source, 0), target.remote(), n)
        else:
            a.read(source.remote(), (target, 0), n)
        found = world.take(a, SEND)
        assert found.ok, found.message
        assert found.bytes == n
        assert target.read(0, n) == data


# ---- errors ----------------------------------------------------------------------------------------------------------


def rest(world: World, qp: Qp, side: Any) -> list[Any]:
    """The completions that are there once nothing can happen any more."""
    world.settle()
    found = []
    while (completion := qp.poll(side)) is not None:
        found.append(completion)
    return found


@pytest.mark.parametrize("chances", [{}, {"loss": 0.1, "reorder": 0.1, "duplicate": 0.1, "corrupt": 0.05}])
@pytest.mark.parametrize(("size", "room"), [(1, 0), (100, 99), (4000, 100), (4000, 1024), (4000, 3999), (1 << 17, 5)])
def test_a_receive_that_is_too_short(size: int, room: int, chances: dict[str, float]) -> None:
    """9.7.4.1.6, 9.9.3 class C: a local length error at the receiver, a NAK of an invalid request at the sender."""
    with World(seed=3, **chances) as world:
        a, b = world.pair(mtu=1024, send=8, receive=8)
        source, target = (world.region(nic, 1 << 17) for nic in world.nics)
        source.write(0, bytes(1 << 17))
        b.receive(target, 0, 10)
        b.receive(target, 64, room)
        b.receive(target, 0, 10)
        b.send(target, 0, 1)  # no receive takes it: it is retried until its pair fails
        for n in (7, size, 3):
            a.send(source, 0, n)
        at_a, at_b = rest(world, a, SEND), rest(world, b, RECEIVE)
        assert [found.error for found in at_a] == [None, ErrorKind.REMOTE_INVALID_REQUEST, ErrorKind.FLUSHED]
        assert [found.error for found in at_b] == [None, ErrorKind.LOCAL_LENGTH, ErrorKind.FLUSHED]
        assert at_b[0].bytes == 7
        assert [found.error for found in rest(world, b, SEND)] == [ErrorKind.FLUSHED]
        assert target.read(64 + room, 64) == bytes([FILL]) * 64
        for found in (*at_a[1:], *at_b[1:]):
            assert found.message
            assert found.bytes == 0
        # A failed pair stays failed, and runs nothing.
        a.send(source, 0, 1)
        b.receive(target, 0, 10)
        for qp, side in ((a, SEND), (b, RECEIVE)):
            assert [found.error for found in rest(world, qp, side)] == [ErrorKind.FLUSHED]


def test_nobody_there() -> None:
    """7 retries, each after 67.1 ms: it fails at the eighth expiry, and not a nanosecond earlier."""
    with World() as world:
        a, b = world.pair(send=8)
        source, target = (world.region(nic, 4096) for nic in world.nics)
        b.receive(target, 0, 64)
        a.send(source, 0, 64)
        assert world.take(a, SEND).ok
        world.nics.pop().close()
        before = world.clock.now()
        sent = world.stats()[0]["packets_sent"]
        for n in (5, 6, 7):
            a.send(source, 0, n)
        world.clock.advance(8 * TIMEOUT - 1)
        assert world.stats()[0]["timeouts"] == 7
        assert world.stats()[0]["retries_exceeded"] == 0
        found = rest(world, a, SEND)
        assert [each.error for each in found] == [ErrorKind.RETRY_EXCEEDED, ErrorKind.FLUSHED, ErrorKind.FLUSHED]
        assert world.clock.now() == before + 8 * TIMEOUT
        stats = world.stats()[0]
        assert stats["timeouts"] == 8
        assert stats["packets_sent"] - sent == 3 * 8
        assert "acknowledged nothing" in found[1].message


def test_a_peer_that_is_destroyed() -> None:
    with World() as world:
        a, b = world.pair(send=8)
        source = world.region(world.nics[0], 4096)
        target = world.region(world.nics[1], 4096)
        b.receive(target, 0, 4096)
        b.destroy()
        before = world.clock.now()
        a.send(source, 0, 64)
        a.receive(source, 0, 64)
        assert [each.error for each in rest(world, a, SEND)] == [ErrorKind.RETRY_EXCEEDED]
        assert [each.error for each in rest(world, a, RECEIVE)] == [ErrorKind.FLUSHED]
        assert world.clock.now() == before + 8 * TIMEOUT
        assert target.read(0, 64) == bytes([FILL]) * 64


def test_progress_starts_the_retries_anew() -> None:
    """9.7.6.1.3: the count is of expiries in a row. A wire that loses a fifth fails nothing that goes on moving."""
    with World(seed=11, loss=0.2) as world:
        a, b = world.pair(mtu=256, send=4, receive=4)
        source, target = (world.region(nic, 1 << 20) for nic in world.nics)
        b.receive(target, 0, 1 << 20)
        a.send(source, 0, 1 << 20)
        found = world.take(a, SEND)
        assert found.ok, found.message
        assert world.stats()[0]["retransmits"] > 8


def test_no_receive_is_waited_for_without_end() -> None:
    """9.7.5.2.8, and rnr_retry 7: seconds pass, no retry counts, and the message arrives once there is a receive."""
    with World() as world:
        a, b = world.pair(send=8)
        source, target = (world.region(nic, 4096) for nic in world.nics)
        source.write(0, bytes(range(64)))
        for n in (8, 16):
            a.send(source, n, n)
        world.clock.advance(10_000_000_000)
        assert a.poll(SEND) is None
        stats = world.stats()
        # The last one may be on its way.
        assert stats[1]["rnr_naks_sent"] - stats[0]["rnr_naks_received"] in (0, 1)
        assert stats[0]["rnr_naks_received"] > 8
        assert stats[0]["timeouts"] == 0
        b.receive(target, 0, 100)
        assert world.take(b, RECEIVE).bytes == 8
        assert world.take(a, SEND).bytes == 8
        assert b.poll(RECEIVE) is None
        b.receive(target, 100, 100)
        assert world.take(b, RECEIVE).bytes == 16
        assert target.read(0, 8) == source.read(8, 8)
        assert target.read(100, 16) == source.read(16, 16)


CHANCES = [{}, {"loss": 0.1, "reorder": 0.1, "duplicate": 0.1, "corrupt": 0.05}]


@pytest.mark.parametrize("chances", CHANCES)
@pytest.mark.parametrize("kind", ["write", "read"])
@pytest.mark.parametrize("size", [1, 3000])
@pytest.mark.parametrize("why", ["region", "key", "before", "past", "wrap", "gone", "pair"])
def test_memory_that_the_peer_may_not_reach(why: str, kind: str, size: int, chances: dict[str, float]) -> None:
    """9.7.4.1.3 and 9.7.4.1.5, 9.9.3 class C: a NAK of the access, or of the request where the pair has no such right.

    The rest of both pairs' entries are flushed, and not a byte is read or written.
    """
    right = Access.READ if kind == "read" else Access.WRITE
    with World(seed=8, **chances) as world:
        a, b = world.make(world.nics[0], send=8), world.make(world.nics[1], send=8)
        a.connect(b.endpoint, mtu=1024, remote=ALL)
        b.connect(a.endpoint, mtu=1024, remote=ALL & ~right if why == "pair" else ALL)
        mine = world.region(world.nics[0], 8192)
        theirs = world.region(world.nics[1], 8192, remote=ALL & ~right if why == "region" else ALL, fill=0x77)
        world.region(world.nics[1], 8192)
        place = theirs.remote(64)
        end = place.address - 64 + 8192
        # RemoteMemory is plain data: a peer may make up what it wants.
        place = {
            "key": RemoteMemory(place.address, place.rkey ^ 0x100, place.bytes),
            "before": RemoteMemory(place.address - 65, place.rkey, 1 << 20),
            "past": RemoteMemory(end - size + 1, place.rkey, 1 << 20),
            "wrap": RemoteMemory((1 << 64) - (1 << 16), place.rkey, 1 << 16),
        }.get(why, place)
        if why == "gone":
            theirs.deregister()
        b.receive(world.region(world.nics[1], 4096), 0, 100)

        def work(remote: RemoteMemory, n: int) -> None:
            if kind == "read":
                a.read(remote, (mine, 0), n)
            else:
                a.write((mine, 0), remote, n)

        work(place, size)
        a.send(mine, 0, 1)
        expected = ErrorKind.REMOTE_INVALID_REQUEST if why == "pair" else ErrorKind.REMOTE_ACCESS
        assert [found.error for found in rest(world, a, SEND)] == [expected, ErrorKind.FLUSHED]
        assert [found.error for found in rest(world, b, RECEIVE)] == [ErrorKind.FLUSHED]
        assert mine.read(0, 8192) == bytes([FILL]) * 8192
        if why != "gone":
            assert theirs.read(0, 8192) == bytes([0x77]) * 8192


@pytest.mark.parametrize("kind", ["write", "read", "send"])
def test_nothing_needs_no_memory(kind: str) -> None:
    """9.4.3, 9.4.4: a range of no bytes names no key."""
    with World() as world:
        a, b = world.pair(send=8)
        mine = world.region(world.nics[0], 4096)
        theirs = world.region(world.nics[1], 4096)
        if kind == "send":
            b.receive(theirs, 4096, 0)
            a.send(mine, 4096, 0)
            assert world.take(b, RECEIVE).bytes == 0
        elif kind == "write":
            a.write((mine, 4096), theirs.remote(4096), 0)
        else:
            a.read(theirs.remote(4096), (mine, 4096), 0)
        found = world.take(a, SEND)
        assert found.ok, found.message
        assert found.bytes == 0


def test_a_read_sees_what_was_written_before_it() -> None:
    """9.5, table of ordering: a read after a write of the same pair gives what the write wrote."""
    for seed in range(6):
        # Of more loss, one run in many hundreds would lose one packet beyond all retries.
        with World(seed=seed, loss=0.08, reorder=0.1, duplicate=0.1) as world:
            a, _ = world.pair(mtu=256, send=16)
            mine = world.region(world.nics[0], 1 << 16)
            theirs = world.region(world.nics[1], 1 << 16)
            data = world.random.randbytes(6000)
            mine.write(0, data)
            a.write((mine, 0), theirs.remote(100), 6000)
            a.read(theirs.remote(100), (mine, 8192), 6000)
            for _ in range(2):
                found = world.take(a, SEND)
                assert found.ok, found.message
            assert mine.read(8192, 6000) == data


# ---- several pairs at once, in any order of calls -------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Two NICs with two connections between them, and one within the first; a program that calls in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        seed=st.integers(0, 1 << 32),
        loss=st.sampled_from([0.0, 0.02, 0.1]),
        reorder=st.sampled_from([0.0, 0.1]),
        duplicate=st.sampled_from([0.0, 0.1]),
        mtu=st.sampled_from([256, 1024]),
    )
    def open(self, seed: int, loss: float, reorder: float, duplicate: float, mtu: int) -> None:
        self.world = world = World(seed=seed, loss=loss, reorder=reorder, duplicate=duplicate)
        a, b = world.nics
        self.qps: list[Qp] = []
        for one, two in ((a, b), (a, b), (a, a)):
            self.qps += world.pair(one, two, mtu=mtu, send=5, receive=3)
        self.regions: list[Region] = [world.region(qp.nic, 1 << 20) for qp in self.qps]
        self.used = [0] * 6
        # Of each pair: its posted entries, and the messages that its peer sent to it.
        self.sends: list[deque[tuple[str, int, int, bytes]]] = [deque() for _ in range(6)]
        self.receives: list[deque[tuple[int, int]]] = [deque() for _ in range(6)]
        self.coming: list[deque[bytes]] = [deque() for _ in range(6)]

    def place(self, who: int, n: int) -> int:
        at = self.used[who]
        self.used[who] = at + n
        return at

    def fits(self, who: int, n: int) -> bool:
        return self.used[who] + n <= 1 << 20

    @rule(who=st.integers(0, 5), n=st.integers(0, 3000))
    def send(self, who: int, n: int) -> None:
        if not self.qps[who].room(SEND) or not self.fits(who, n):
            return
        assert self.world
        data = self.world.random.randbytes(n)
        at = self.place(who, n)
        self.regions[who].write(at, data)
        self.qps[who].send(self.regions[who], at, n)
        self.sends[who].append(("send", 0, n, b""))
        self.coming[who ^ 1].append(data)

    @rule(who=st.integers(0, 5), n=st.integers(3000, 4000))
    def receive(self, who: int, n: int) -> None:
        if not self.qps[who].room(RECEIVE) or not self.fits(who, n):
            return
        at = self.place(who, n)
        self.qps[who].receive(self.regions[who], at, n)
        self.receives[who].append((at, n))

    @rule(who=st.integers(0, 5), n=st.integers(0, 5000))
    def write(self, who: int, n: int) -> None:
        if not self.qps[who].room(SEND) or not self.fits(who, n) or not self.fits(who ^ 1, n):
            return
        assert self.world
        data = self.world.random.randbytes(n)
        at = self.place(who, n)
        self.regions[who].write(at, data)
        to = self.place(who ^ 1, n)
        self.qps[who].write((self.regions[who], at), self.regions[who ^ 1].remote(to), n)
        self.sends[who].append(("write", to, n, data))

    @rule(who=st.integers(0, 5), n=st.integers(0, 5000), local=st.booleans())
    def read(self, who: int, n: int, local: bool) -> None:
        if not self.qps[who].room(SEND) or not self.fits(who, n) or not self.fits(who ^ 1, n):
            return
        assert self.world
        data = self.world.random.randbytes(n)
        at, to = self.place(who ^ 1, n), self.place(who, n)
        self.regions[who ^ 1].write(at, data)
        source = self.regions[who ^ 1]
        if local and who >= 4:
            self.qps[who].read((source, at), (self.regions[who], to), n)
        else:
            self.qps[who].read(source.remote(at), (self.regions[who], to), n)
        self.sends[who].append(("read", to, n, data))

    @rule(who=st.integers(0, 5))
    def poll_sends(self, who: int) -> None:
        while (found := self.qps[who].poll(SEND)) is not None:
            assert found.ok, found.message
            kind, at, n, data = self.sends[who].popleft()
            assert found.bytes == n
            if kind != "send":
                assert self.regions[who if kind == "read" else who ^ 1].read(at, n) == data

    @rule(who=st.integers(0, 5))
    def poll_receives(self, who: int) -> None:
        while (found := self.qps[who].poll(RECEIVE)) is not None:
            assert found.ok, found.message
            data = self.coming[who].popleft()
            at, _ = self.receives[who].popleft()
            assert found.bytes == len(data)
            assert self.regions[who].read(at, len(data)) == data

    @rule(steps=st.integers(1, 20))
    def time_passes(self, steps: int) -> None:
        assert self.world
        for _ in range(steps):
            self.world.clock.step()

    @precondition(lambda self: self.world is not None)
    @invariant()
    def room_counts_what_was_not_taken(self) -> None:
        for qp, sends, receives in zip(self.qps, self.sends, self.receives, strict=True):
            assert qp.room(SEND) == 5 - len(sends)
            assert qp.room(RECEIVE) == 3 - len(receives)
            assert not qp.failure

    def teardown(self) -> None:
        if self.world is None:
            return
        with self.world:
            for _ in range(20_000):
                for who in range(6):
                    if self.coming[who] and len(self.receives[who]) < len(self.coming[who]):
                        self.receive(who, 3000)
                    self.poll_sends(who)
                    self.poll_receives(who)
                if not any(self.sends) and not any(self.coming):
                    break
                self.world.clock.step()
            assert not any(self.sends), "entries never complete"
            assert not any(self.coming), "messages never arrive"
            self.room_counts_what_was_not_taken()


TestMachine = Machine.TestCase
TestMachine.settings = settings(QUICK, max_examples=20, stateful_step_count=40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_machine_for_long() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Machine, settings=settings(QUICK, max_examples=300, stateful_step_count=150))
