"""Control calls of which the firmware never hears: they are errors that say so, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import connect, connected, counts, done
from steps import channel, give_up, query, steps
from userdma import Access, Error, FirmwareBusyError, MachineError, Nic, Qp, Region, Side, trace

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
MEBI = 1 << 20
Soft = Callable[..., Nic]


def within(nic: Nic, call: Callable[[], object]) -> list[BaseException | None]:
    """Runs `call` before a command of this thread is sent, and again when it is answered: what each raised."""
    raised: list[BaseException | None] = []

    def listen(event: trace.Event) -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)
        else:
            raised.append(None)

    with trace.listening(listen):
        query(nic)
    return raised


def test_within_a_command(soft: Soft) -> None:
    """A signal handler or a callback in the middle of a command of its thread."""
    nic = soft()
    a, b = connected(nic)
    c = Qp.make(nic)
    r = Region.host(nic, MEBI, remote=Access.WRITE)
    before = counts(nic)
    calls: dict[str, Callable[[], object]] = {
        "host": lambda: Region.host(nic, MEBI),
        "make": lambda: Qp.make(nic),
        "connect": lambda: c.connect(a.endpoint),
        "deregister": r.deregister,
        "destroy": a.destroy,
        "close": nic.close,
    }
    for name, call in calls.items():
        raised = within(nic, call)
        assert len(raised) == 2, name
        for error in raised:
            assert isinstance(error, FirmwareBusyError), name
            assert f"{steps(nic).query[0]} is still under way in this thread" in str(error), name
            assert "nothing was done" in str(error), name
        assert counts(nic) == before, name
    # Everything is as it was, and does what it did.
    assert r.alive and not a.dead and not c.connected and not nic.closed
    r.write(0, b"here")
    b.receive(r, 64, 4)
    a.send(r, 0, 4)
    assert done(b, RECEIVE) == 4
    connect(c, c)
    for thing in (a, b, c):
        thing.destroy()
    r.deregister()
    assert counts(nic)["core_mr"] == counts(nic)["core_qp"] == 0
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0


def test_what_was_dropped_waits_for_a_call_that_runs(soft: Soft) -> None:
    nic = soft()
    before = counts(nic)
    Region.host(nic, MEBI)
    Qp.make(nic)
    assert isinstance(within(nic, lambda: Region.host(nic, PAGE))[0], FirmwareBusyError)
    Region.host(nic, PAGE).deregister()
    assert counts(nic) == before


def test_a_full_command_queue(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of commands whose answers an exception gave up."""
    nic = soft()
    r = Region.host(nic, PAGE)
    with monkeypatch.context() as patch:
        give_up(nic, patch)
        patch.setattr(channel(nic), "_collect", lambda: None)
        with pytest.raises(FirmwareBusyError, match="was not sent: the command queue is full"):
            for _ in range(300):
                with pytest.raises(KeyboardInterrupt):
                    query(nic)
        before = counts(nic)
        for call in (lambda: Region.host(nic, MEBI), lambda: Qp.make(nic)):
            with pytest.raises(FirmwareBusyError, match="was not sent"):
                call()
        assert counts(nic) == before
    Region.host(nic, MEBI).deregister()
    assert counts(nic) == before
    r.deregister()


def test_an_exception_before_a_command_is_sent(soft: Soft) -> None:
    nic = soft()
    before = counts(nic)

    def fail(event: trace.Event) -> None:
        if event.command == steps(nic).register:
            raise KeyboardInterrupt

    with trace.listening(fail):
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                Region.host(nic, MEBI)
    assert counts(nic) == before
    Region.host(nic, MEBI).deregister()


def test_a_nic_that_left_the_bus(soft: Soft) -> None:
    nic = soft()
    Region.host(nic, PAGE)
    arena = nic.function.firmware.core.counts  # type: ignore[attr-defined]
    before = arena()["arena_bytes"]
    nic.function.vanish()  # type: ignore[attr-defined]
    for call in (lambda: Region.host(nic, MEBI), lambda: Qp.make(nic)):
        with pytest.raises(MachineError, match="left the bus"):
            call()
    assert arena()["arena_bytes"] == before


@pytest.mark.parametrize("what", ["region", "pair"])
def test_an_interruption_right_after_it_retired(soft: Soft, what: str) -> None:
    """An exception ended it: every call after is an error, as the NIC may still reach the memory."""
    nic = soft()
    thing: Any = Region.host(nic, MEBI) if what == "region" else Qp.make(nic)
    end = thing.deregister if what == "region" else thing.destroy
    before = counts(nic)
    retire = thing._retire

    def interrupted() -> None:
        retire()
        raise KeyboardInterrupt

    thing._retire = interrupted
    with pytest.raises(KeyboardInterrupt):
        end()
    del thing._retire
    for _ in range(2):
        with pytest.raises(Error, match="an exception ended an earlier"):
            end()
    assert counts(nic) == before
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0


def test_a_view_is_no_end(soft: Soft) -> None:
    """BufferError leaves the region as it was."""
    nic = soft()
    r = Region.host(nic, PAGE)
    with memoryview(r):
        for _ in range(2):
            with pytest.raises(BufferError):
                r.deregister()
    assert r.alive
    r.deregister()
    r.deregister()
