"""Threads: pairs of their own, a pair that threads share, and calls that end what another thread waits for."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import userdma
from conftest import SECOND, connect, connected, counts, done, take
from patience import eventually
from userdma import Access, Error, ErrorKind, Nic, Qp, Region, Side

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
ALL = Access.READ | Access.WRITE
Soft = Callable[..., Nic]


def together(*work: Callable[[], object]) -> None:
    """Runs each in a thread of its own; the first exception of any is this function's."""
    errors: list[BaseException] = []

    def one(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(call,), daemon=True) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(400)
        assert not thread.is_alive() or errors, "a thread does not end"
    if errors:
        raise errors[0]


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Runs `work` again and again in another thread, as long as the block runs."""
    end = threading.Event()
    errors: list[BaseException] = []

    def loop() -> None:
        try:
            while not end.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(400)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def talk(a: Qp, b: Qp, seed: int, messages: int) -> None:
    """Messages of random sizes and bytes from `a` to `b`: by sends, writes and reads, one at a time."""
    rng = random.Random(seed)
    r, s = Region.host(a.nic, 16 * PAGE, remote=ALL), Region.host(b.nic, 16 * PAGE, remote=ALL)
    for _ in range(messages):
        n = rng.choice([0, 1, 8, 100, 4096, 4097, rng.randrange(len(r))])
        at, to = rng.randrange(len(r) - n + 1), rng.randrange(len(s) - n + 1)
        data = rng.randbytes(n)
        kind = rng.choice(["send", "write", "read"])
        if kind == "send":
            r.write(at, data)
            b.receive(s, to, n)
            a.send(r, at, n)
            assert done(b, RECEIVE) == n
        elif kind == "write":
            r.write(at, data)
            a.write((r, at), s.remote(to), n)
        else:
            s.write(to, data)
            a.read(s.remote(to), (r, at), n)
        assert done(a, SEND) == n
        assert s.read(to, n) == data and r.read(at, n) == data
    r.deregister()
    s.deregister()


def test_two_threads_on_two_pairs(two: tuple[Nic, Nic]) -> None:
    pairs = [connected(*two, remote=ALL) for _ in range(2)]
    together(*(lambda n=n, pair=pair: talk(*pair, seed=n, messages=150) for n, pair in enumerate(pairs)))  # type: ignore[misc]


def test_two_threads_on_two_pairs_of_one_nic(nic: Nic) -> None:
    pairs = [connected(nic, remote=ALL) for _ in range(2)]
    together(*(lambda n=n, pair=pair: talk(*pair, seed=n, messages=150) for n, pair in enumerate(pairs)))  # type: ignore[misc]


def test_many_threads_on_many_pairs(two: tuple[Nic, Nic]) -> None:
    """Half of them within a NIC, and all of them make and destroy what they use."""

    def work(n: int) -> None:
        for turn in range(2):
            a, b = connected(two[0], two[n % 2], remote=ALL)
            talk(a, b, seed=100 * n + turn, messages=15)
            a.destroy()
            b.destroy()

    together(*(lambda n=n: work(n) for n in range(16)))  # type: ignore[misc]


class Stream:
    """Numbered messages of random sizes through one pair, into slots of a region."""

    SLOTS, SLOT = 32, 9000

    def __init__(self, source: Qp, target: Qp, seed: int, messages: int) -> None:
        self.source, self.target, self.seed, self.messages = source, target, seed, messages
        self.out = Region.host(source.nic, self.SLOTS * self.SLOT)
        self.into = Region.host(target.nic, self.SLOTS * self.SLOT)
        for n in range(min(self.SLOTS, messages)):
            target.receive(self.into, n * self.SLOT, self.SLOT)

    def contents(self) -> Iterator[tuple[int, bytes]]:
        rng = random.Random(self.seed)
        for n in range(self.messages):
            yield n, n.to_bytes(4, "little") + rng.randbytes(rng.randrange(self.SLOT - 4))

    def send(self) -> None:
        for n, data in self.contents():
            if n >= self.SLOTS:  # the slot's entry before is the oldest
                done(self.source, SEND)
            self.out.write(n % self.SLOTS * self.SLOT, data)
            self.source.send(self.out, n % self.SLOTS * self.SLOT, len(data))
        for _ in range(min(self.SLOTS, self.messages)):
            done(self.source, SEND)

    def receive(self) -> None:
        for n, data in self.contents():
            at = n % self.SLOTS * self.SLOT
            assert done(self.target, RECEIVE) == len(data)
            assert self.into.read(at, len(data)) == data, f"message {n}"
            if n + self.SLOTS < self.messages:
                self.target.receive(self.into, at, self.SLOT)


def test_a_send_thread_and_a_receive_thread_on_one_pair(two: tuple[Nic, Nic]) -> None:
    """Both directions at once: each of the two pairs has a thread that sends and one that receives."""
    a, b = connected(*two)
    there, back = Stream(a, b, 1, 800), Stream(b, a, 2, 800)
    together(there.send, there.receive, back.send, back.receive)


def test_a_send_thread_and_a_receive_thread_on_a_pair_that_is_its_own_peer(nic: Nic) -> None:
    a = Qp.make(nic)
    connect(a, a)
    stream = Stream(a, a, 3, 800)
    together(stream.send, stream.receive)


def test_threads_on_a_faulty_wire(soft: Soft) -> None:
    wire = userdma.soft.Wire(loss=0.02, duplicate=0.05, reorder=0.05, seed=5)
    nics = soft(wire=wire), soft(wire=wire)
    streams = [Stream(*connected(*nics), seed, 40) for seed in range(3)]
    together(*(work for stream in streams for work in (stream.send, stream.receive)))


def test_a_poster_beside_a_waiter(two: tuple[Nic, Nic]) -> None:
    """Entries of both rings are posted while another thread waits at one of them."""
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    b.receive(s, 0, 8)
    waiting = threading.Event()
    got: list[int] = []

    def waiter() -> None:
        waiting.set()
        for _ in range(200):
            got.append(done(b, RECEIVE))

    def poster() -> None:
        assert waiting.wait(60)
        time.sleep(0.05)  # it sleeps between looks by now
        for n in range(199):
            b.receive(s, 8 * (n + 1), 8)  # the waiter's own ring
        for _ in range(200):
            a.send(r, 0, 8)
        a.receive(r, 0, 8)
        b.send(s, 0, 8)  # the other ring of the waiter's pair
        assert done(a, RECEIVE) == 8
        assert done(b, SEND) == 8
        for _ in range(200):
            done(a, SEND)

    together(waiter, poster)
    assert got == [8] * 200


def test_posters_of_one_ring(two: tuple[Nic, Nic]) -> None:
    """Many threads that post in one ring: each entry is one message, whole."""
    a, b = connected(*two)
    r, s = Region.host(two[0], 8 * PAGE), Region.host(two[1], PAGE)
    for _ in range(1600):
        b.receive(s, 0, PAGE)

    def post(n: int) -> None:
        for _ in range(200):
            a.send(r, n * PAGE, n + 1)

    together(*(lambda n=n: post(n) for n in range(8)))  # type: ignore[misc]
    sent = [done(a, SEND) for _ in range(1600)]
    assert sorted(sent) == sorted(list(range(1, 9)) * 200)
    assert [done(b, RECEIVE) for _ in range(1600)] == sent


def test_waiters_of_one_ring(two: tuple[Nic, Nic]) -> None:
    """Many threads that wait at one ring: each completion is taken once."""
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    for _ in range(1000):
        b.receive(s, 0, PAGE)
    got: list[int] = []

    def waiter() -> None:
        while True:
            try:
                found = b.wait(RECEIVE, us=100 * SECOND)
            except ValueError:  # nothing is due any more
                return
            if found is None:  # another one took the last
                return
            assert found.ok, found.message
            got.append(found.bytes)

    def sender() -> None:
        for n in range(1000):
            a.send(r, 0, n)
        for _ in range(1000):
            done(a, SEND)

    together(sender, *[waiter] * 4)
    assert sorted(got) == list(range(1000))


def test_wait_runs_without_the_gil(nic: Nic) -> None:
    """Another thread computes while one waits."""
    a, _ = connected(nic)
    r = Region.host(nic, PAGE)
    a.receive(r, 0, 8)
    began, ran = time.monotonic(), 0
    end = threading.Event()

    def compute() -> None:
        nonlocal ran
        while not end.is_set():
            ran += 0.25 < time.monotonic() - began < 0.5

    def within() -> bool:
        """Whether it ran in the second half of the half second that a wait takes at the least."""
        nonlocal began
        began, before = time.monotonic(), ran
        assert a.wait(RECEIVE, us=SECOND // 2) is None
        return ran > before

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert eventually(within)
    finally:
        end.set()
        thread.join()


@pytest.mark.two_nics
@pytest.mark.parametrize("how", ["destroy", "close"])
@pytest.mark.parametrize("side", [SEND, RECEIVE])
def test_the_end_of_a_pair_that_threads_wait_at(nic_names: list[str], how: str, side: Side) -> None:
    with userdma.open(nic_names[0]) as here, userdma.open(nic_names[1]) as there:
        a, b = connected(here, there)
        r = Region.host(here, PAGE)
        if side is SEND:
            a.send(r, 0, 8)  # there is no receive for it
        else:
            a.receive(r, 0, 8)
        started = threading.Barrier(4)
        found: list[str] = []

        def waiter() -> None:
            started.wait(100)
            with pytest.raises(ValueError) as caught:
                a.wait(side, us=300 * SECOND)
            found.append(str(caught.value))

        def end() -> None:
            started.wait(100)
            time.sleep(0.05)
            if how == "destroy":
                a.destroy()
            else:
                here.close()

        start = time.monotonic()
        together(end, waiter, waiter, waiter)
        assert time.monotonic() - start < 200
        assert len(found) == 3
        assert all(("destroyed" if how == "destroy" else "closed") in text for text in found), found
        b.destroy()


@pytest.mark.parametrize("turn", range(4))
def test_destroy_while_threads_use_the_pair(two: tuple[Nic, Nic], turn: int) -> None:
    """Whatever the moment: each call works, or says that the pair is destroyed."""
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    calls = [0]

    def until_dead(*work: Callable[[], Any]) -> None:
        with pytest.raises(ValueError, match="destroyed"):
            while True:
                for call in work:
                    try:
                        call()
                    except ValueError as error:
                        if not any(text in str(error) for text in ("room", "no entry of", "full")):
                            raise
                    calls[0] += 1

    def end() -> None:
        while calls[0] < 10:
            time.sleep(0.001)
        time.sleep(0.02 * turn)
        b.destroy()

    def feed() -> None:  # its peer's entries fail by and by, or are never taken
        for _ in range(50):
            a.send(r, 0, 8)
            a.poll(SEND)

    together(
        end,
        feed,
        lambda: until_dead(lambda: b.receive(s, 0, 8), lambda: b.poll(RECEIVE)),
        lambda: until_dead(lambda: b.wait(RECEIVE, us=100)),
        lambda: until_dead(lambda: b.room(SEND), lambda: b.poll(SEND), lambda: repr(b)),
    )
    a.destroy()
    talk(*connected(*two, remote=ALL), seed=turn, messages=5)


@pytest.mark.parametrize("turn", range(4))
def test_close_while_threads_use_the_nic(nic_names: list[str], turn: int) -> None:
    """Whatever the moment: each call works, or says that the NIC is closed."""
    nic = userdma.open(nic_names[0])
    pairs = [connected(nic, remote=ALL) for _ in range(2)]
    r = Region.host(nic, PAGE)
    calls = [0]

    def until_closed(work: Callable[[], Any]) -> None:
        with pytest.raises((ValueError, Error), match=r"closed|destroyed"):
            while True:
                work()
                calls[0] += 1

    def ping(a: Qp, b: Qp) -> None:
        b.receive(r, 0, 8)
        a.send(r, 8, 8)
        assert done(b, RECEIVE) == 8
        assert done(a, SEND) == 8

    def control() -> None:
        Qp.make(nic, send=1, receive=1).destroy()
        Region.host(nic, PAGE).deregister()

    def access() -> None:
        r.write(100, r.read(50, 50))
        assert nic.counters

    def end() -> None:
        while calls[0] < 10:
            time.sleep(0.001)
        time.sleep(0.02 * turn)

        def closed() -> bool:
            try:
                nic.close()
            except BufferError:  # a thread is within a read of the region
                return False
            return True

        assert eventually(closed, pause=0.0001), "close is refused again and again"

    together(
        end,
        *(lambda pair=pair: until_closed(lambda: ping(*pair)) for pair in pairs),  # type: ignore[misc]
        lambda: until_closed(control),
        lambda: until_closed(access),
    )
    assert nic.closed


def test_deregister_while_a_thread_posts(nic: Nic) -> None:
    """Each post is refused, or its entry moves the right bytes, or fails by its memory. No other byte is written."""
    for turn in range(5):
        a, b = connected(nic)
        source, target = Region.host(nic, PAGE), Region.host(nic, PAGE)
        source.write(0, b"x" * PAGE)
        for _ in range(4095):
            b.receive(target, 0, PAGE)

        gone = threading.Event()

        def post(a: Qp = a, source: Region = source, gone: threading.Event = gone) -> None:
            with pytest.raises(ValueError, match="deregistered"):
                for _ in range(4095):
                    a.send(source, 0, PAGE)
                assert gone.wait(60)
                a.send(source, 0, PAGE) if a.room(SEND) else source.read(0, 1)

        def end(source: Region = source, turn: int = turn, gone: threading.Event = gone) -> None:
            time.sleep(0.001 * turn)
            source.deregister()
            gone.set()

        together(post, end)
        failed = False
        while a.room(SEND) < 4095:
            found = take(a, SEND)
            if failed:
                assert found.error is ErrorKind.FLUSHED
            elif not found.ok:
                assert found.error in (ErrorKind.LOCAL_PROTECTION, ErrorKind.LOCAL_QP_OPERATION), found.message
                failed = True
        assert target.read(0, PAGE) in (b"x" * PAGE, bytes(PAGE))
        a.destroy()
        b.destroy()
        target.deregister()


def test_control_calls_beside_traffic(two: tuple[Nic, Nic]) -> None:
    """Pairs and regions come and go while another thread's messages cross, and nothing stays behind."""
    a, b = connected(*two, remote=ALL)
    before = [counts(nic) for nic in two]

    def churn() -> None:
        c, d = connected(*two)
        r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
        d.receive(s, 0, 8)
        c.send(r, 0, 8)
        assert done(d, RECEIVE) == 8
        for thing in (c, r, d, s):
            thing.destroy() if isinstance(thing, Qp) else thing.deregister()

    with beside(churn):
        talk(a, b, seed=9, messages=300)
    assert [counts(nic) for nic in two] == before


def test_regions_of_many_threads(nic: Nic) -> None:
    """Large reads and writes of the process's side, which run without the GIL, each with its own bytes."""
    r = Region.host(nic, 8 << 20)
    piece = 64 << 10  # the GIL is released from 16 KiB on; larger ones would each map memory of their own

    def work(n: int) -> None:
        rng = random.Random(n)
        for at in range(n << 20, n + 1 << 20, piece):
            data = rng.randbytes(piece)
            for _ in range(10):
                r.write(at, data)
                assert r.read(at, piece) == data

    together(*(lambda n=n: work(n) for n in range(8)))  # type: ignore[misc]


@pytest.mark.slow
def test_many_messages_of_many_threads(two: tuple[Nic, Nic]) -> None:
    pairs = [connected(*two) for _ in range(8)]
    streams = [Stream(a, b, n, 4000) for n, (a, b) in enumerate(pairs)]
    streams += [Stream(b, a, 50 + n, 4000) for n, (a, b) in enumerate(pairs)]
    together(*(work for stream in streams for work in (stream.send, stream.receive)))
