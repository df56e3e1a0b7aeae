"""Control calls in the middle of others: of this very thread, in a signal's handler or a finalizer; and of another."""

from __future__ import annotations

import gc
import random
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import userdma
from conftest import connect, connected, counts, done
from steps import firmware, steps
from userdma import Access, Error, FirmwareBusyError, FirmwareRefusedError, Nic, Qp, Region, Side, trace

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
Soft = Callable[..., Nic]

# Python runs the handlers of signals where a function of its own begins, and after a call of another (ceval.c,
# CHECK_EVAL_BREAKER). It does at jumps back too, which no event tells of.
MOMENTS = ("call", "c_return")


def at_moment(k: int, act: Callable[[], object], call: Callable[[], object]) -> int:
    """Runs `act` at the k-th moment of `call`, as a signal's handler is run; how many moments it had until then.

    Without the collector: Python swallows the exceptions of what it calls."""
    seen = 0

    def look(frame: Any, event: str, argument: Any) -> None:
        nonlocal seen
        if event in MOMENTS:
            seen += 1
            if seen == k:
                sys.setprofile(None)
                act()

    gc.disable()
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen


def sample(rng: random.Random, n: int, edge: int, size: int) -> list[int]:
    """Moments of n: the first and the last ones, and some of those between."""
    edge = min(edge, n // 2)
    between = range(edge + 1, n - edge + 1)
    return [*range(1, edge + 1), *sorted(rng.sample(between, min(size, len(between)))), *range(n - edge + 1, n + 1)]


class World:
    """What control calls are about."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.pair = Qp.make(nic, send=3, receive=3)
        self.region = Region.host(nic, PAGE)

    def end(self) -> None:
        for end in (self.pair.destroy, self.region.deregister):
            try:
                end()
            except Error as error:
                assert "an exception ended an earlier" in str(error)


def check_works(nic: Nic) -> None:
    qp, region = Qp.make(nic, send=3, receive=3), Region.host(nic, PAGE)
    connect(qp, qp)
    qp.receive(region, 0, 8)
    qp.send(region, 8, 8)
    assert done(qp, RECEIVE) == done(qp, SEND) == 8
    qp.destroy()
    region.deregister()


CALLS: dict[str, Callable[[World], object]] = {
    "Qp.make": lambda world: Qp.make(world.nic, send=3, receive=3),
    "Qp.connect": lambda world: world.pair.connect(world.pair.endpoint),
    "Qp.destroy": lambda world: world.pair.destroy(),
    "Region.host": lambda world: Region.host(world.nic, 5 * PAGE, remote=Access.WRITE),  # of two keys
    "Region.deregister": lambda world: world.region.deregister(),
    "Nic.counters": lambda world: world.nic.counters,
    "Nic.close": lambda world: world.nic.close(),
}


# What a call says that finds another one done.
SAYS = re.compile("is closed|is connected already|is destroyed")


def moments(soft: Soft, outer: str) -> int:
    """How many a call has once what it needs is imported and made."""
    for _ in range(2):
        world, made = World(soft()), []
        n = at_moment(0, lambda: None, lambda: made.append(CALLS[outer](world)))  # noqa: B023
        world.nic.close()
    return n


def closed(nic: Nic) -> bool:
    """Whether it is; then nothing is left of it."""
    if nic.closed:
        assert nic.function.released
        assert counts(nic)["core_dma_pages"] == 0
        assert not firmware(nic).bugs
    return nic.closed


@pytest.mark.parametrize("outer", CALLS)
def test_a_call_within_another(soft: Soft, outer: str) -> None:
    """As a signal's handler, at any moment: refused with one clear error, from which on everything is as it was; or
    done whole, right before or after the other."""
    rng = random.Random(outer)
    n = moments(soft, outer)
    nic = soft()
    check_works(nic)
    before = counts(nic)
    refused = dict.fromkeys(CALLS, 0)
    for inner in CALLS:
        for k in sample(rng, n, 0, 2) if outer == "Nic.close" else sample(rng, n, 1, 4):
            world, made, said = World(nic), [], []

            def act(inner: str = inner, world: World = world, said: list[str] = said) -> None:
                try:
                    CALLS[inner](world)
                except FirmwareBusyError as error:
                    assert str(error).startswith(f"{inner}: ")
                    assert "is still under way in this thread" in str(error) and "nothing was done" in str(error)
                    said.append("refused")
                except ValueError as error:
                    assert SAYS.search(str(error))
                    said.append(str(error))
                else:
                    said.append("done")

            what = f"{inner} at the moment {k} of {n} of {outer}"
            try:
                at_moment(k, act, lambda: made.append(CALLS[outer](world)))  # noqa: B023
            except ValueError as error:
                assert said == ["done"] and SAYS.search(str(error)), what
            assert len(said) == 1, what
            refused[inner] += said == ["refused"]
            if closed(nic):
                nic = soft()
                check_works(nic)
                before = counts(nic)
                continue
            world.end()
            made.clear()
            check_works(nic)
            assert counts(nic) == before, what
    if nic.family == "bnxt":  # it asks the firmware for no counters
        del refused["Nic.counters"]
    if outer == "Nic.close":  # where most have nothing to do any more, or say that it is closed
        refused = {name: refused[name] for name in ("Qp.connect", "Nic.close")}
    if outer == "Nic.counters":  # most of it comes after the command
        assert any(refused.values()) or nic.family == "bnxt", refused
    else:
        assert all(refused.values()), refused
    nic.close()
    assert closed(nic)


@pytest.mark.parametrize("outer", CALLS)
def test_ctrl_c_at_any_moment(soft: Soft, outer: str) -> None:
    """It comes out as itself, and the NIC works on. Nothing is lost: what was taken is given back by the next calls,
    or by close if it was in a command, or is what the call should have ended."""
    rng = random.Random(outer)
    n = moments(soft, outer)
    nic = soft()
    check_works(nic)
    before = counts(nic)
    known: set[Any] = set()

    def interrupt() -> None:
        raise KeyboardInterrupt

    for k in sample(rng, n, 2, 3 if outer == "Nic.close" else 20):
        world, made = World(nic), []
        what = f"the moment {k} of {n} of {outer}"
        came = False
        try:
            at_moment(k, interrupt, lambda: made.append(CALLS[outer](world)))  # noqa: B023
        except KeyboardInterrupt:  # without pytest.raises, which would hold what it saw
            came = True
        assert came, what
        if outer == "Nic.close":
            nic.close()
            assert closed(nic)
            nic = soft()
            check_works(nic)
            continue
        world.end()
        made.clear()
        check_works(nic)
        device: Any = nic._device
        left = {*device._pairs, *device._registrations} - known
        if left:
            # Of an end that was interrupted it is said that it stays.
            assert outer in ("Qp.destroy", "Region.deregister") or all(thing.ledger.unsure for thing in left), what
            known |= left
            before = counts(nic)
        assert counts(nic) == before, what
    nic.close()
    assert closed(nic)


def test_finalizers_of_the_program(soft: Soft) -> None:
    """They call in the middle of control calls, wherever the collector runs: in a thread of the NIC's too, where they
    would wait for the call that waits for the NIC. They are refused, and what they were to end is not lost."""
    nic = soft()
    check_works(nic)
    before = counts(nic)
    said: list[str] = []

    class Connection:
        def __init__(self) -> None:
            self.pair, self.region = Qp.make(nic, send=3, receive=3), Region.host(nic, PAGE)
            self.itself = self

        def __del__(self) -> None:
            for end in (self.pair.destroy, self.region.deregister):
                try:
                    end()
                    said.append("done")
                except FirmwareBusyError as error:
                    said.append(str(error))

    old = gc.get_threshold()
    try:
        for threshold in (3, 10, 20, 30, 50, 100):
            gc.set_threshold(threshold)
            for _ in range(20):
                Connection()
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert len(said) == 240
    assert any("in its thread" in text for text in said)  # or it was not tried
    assert all(text == "done" or "nothing was done" in text for text in said)
    check_works(nic)
    assert counts(nic) == before


def test_a_nic_that_is_dropped_within_a_call_of_another(soft: Soft) -> None:
    """It is closed there, in whatever thread the collector finds it."""
    nic = soft()
    check_works(nic)
    dropped = []
    old = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for _ in range(4):
            other: Any = userdma.open(f"soft:{nic.family}")
            dropped.append(other.function)
            cycle = [other, Qp.make(other, send=3, receive=3)]
            cycle.append(cycle)
            del other, cycle
            Qp.make(nic, send=3, receive=3).destroy()
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert all(function.released for function in dropped)


# ---- threads ---------------------------------------------------------------------------------------------------------


def beside(
    command: str, inner: Callable[[], object], outer: Callable[[], object], waits: bool = True
) -> tuple[object, object]:
    """`inner` in a thread of its own, from when `outer` sends this command: it waits for its turn. What each raised."""
    raised: dict[str, object] = {"inner": None, "outer": None}

    def run(name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            raised[name] = error

    thread = threading.Thread(target=run, args=("inner", inner))

    def listen(event: trace.Event) -> None:
        if event.command == command and event.what == "sent" and not thread.ident:
            thread.start()
            time.sleep(0.05)
            assert thread.is_alive() or not waits

    with trace.listening(listen):
        run("outer", outer)
    thread.join(400)
    assert not thread.is_alive()
    return raised["outer"], raised["inner"]


@pytest.mark.parametrize("refused", [False, True])
def test_two_threads_destroy_a_pair(soft: Soft, refused: bool) -> None:
    """A second time does nothing; but if the firmware refused the first, every call is an error."""
    nic = soft()
    check_works(nic)
    before = counts(nic)
    pair = Qp.make(nic)
    if refused:
        firmware(nic).refuse("destroy_qp")
    first, second = beside("destroy_qp", pair.destroy, pair.destroy)
    if refused:
        assert isinstance(first, FirmwareRefusedError)
        assert isinstance(second, Error) and "counts as destroyed" in str(second) and "refused" in str(second)
    else:
        assert (first, second) == (None, None)
        assert counts(nic) == before


@pytest.mark.parametrize("refused", [False, True])
def test_two_threads_deregister_a_region(soft: Soft, refused: bool) -> None:
    nic = soft()
    check_works(nic)
    before = counts(nic)
    region = Region.host(nic, PAGE)
    if refused:
        firmware(nic).refuse(steps(nic).deregister)
    first, second = beside(steps(nic).deregister, region.deregister, region.deregister)
    if refused:
        assert isinstance(first, FirmwareRefusedError)
        assert isinstance(second, Error) and "counts as deregistered" in str(second) and "refused" in str(second)
    else:
        assert (first, second) == (None, None)
        assert counts(nic) == before


def test_two_threads_connect_a_pair(soft: Soft) -> None:
    """The second finds it connected, and it stays so."""
    nic = soft()
    a, b = connected(nic)
    c = Qp.make(nic)
    first, second = beside(steps(nic).connect[0], lambda: c.connect(a.endpoint), lambda: c.connect(c.endpoint))
    assert first is None
    assert isinstance(second, ValueError) and "is connected already" in str(second)
    region = Region.host(nic, PAGE)
    for one, other in ((a, b), (c, c)):
        other.receive(region, 0, 8)
        one.send(region, 8, 8)
        assert done(other, RECEIVE) == done(one, SEND) == 8


def test_a_thread_destroys_what_another_connects(soft: Soft) -> None:
    nic = soft()
    pair = Qp.make(nic)
    first, second = beside(steps(nic).connect[0], pair.destroy, lambda: pair.connect(pair.endpoint))
    assert (first, second) == (None, None)
    assert pair.dead


def test_a_thread_connects_what_another_destroys(soft: Soft) -> None:
    nic = soft()
    pair = Qp.make(nic)
    first, second = beside("destroy_qp", lambda: pair.connect(pair.endpoint), pair.destroy)
    assert first is None
    assert isinstance(second, ValueError) and "is destroyed" in str(second)


def test_two_threads_close_a_nic(soft: Soft) -> None:
    nic = soft()
    held = connected(nic), Region.host(nic, PAGE)
    assert beside("destroy_qp", nic.close, nic.close) == (None, None)
    assert closed(nic)
    del held


def test_a_thread_makes_what_another_closes(soft: Soft) -> None:
    """The NIC takes no more calls from the beginning of its close on."""
    nic = soft()
    held = connected(nic)
    first, second = beside("destroy_qp", lambda: Qp.make(nic), nic.close, waits=False)
    assert first is None
    assert isinstance(second, ValueError) and "is closed" in str(second)
    assert closed(nic)
    del held
