"""Signals: Ctrl-C in a wait and in every control call, and handlers that use the NIC themselves."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import userdma
import userdma.soft
from conftest import SECOND, connect, connected, counts, done
from patience import eventually
from processes import Peer, descriptors, tasks, wire_file, wire_name
from steps import channel, firmware, pause, quick, steps
from userdma import Error, FirmwareStoppedError, FirmwareTimeoutError, Nic, Qp, Region, Side
from userdma.firmware.channel import Channel

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
Soft = Callable[..., Nic]

pytestmark = pytest.mark.timeout(method="thread")  # the alarm is these tests' own


@pytest.fixture(autouse=True)
def lasting_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firmware's command may take minutes: what ends before is what a signal ended, however slow the machine is."""
    make = Channel.__init__

    def lasting(self: Channel, firmware: Any, commands: Any, limit: float) -> None:
        make(self, firmware, commands, 30 * limit)

    monkeypatch.setattr(Channel, "__init__", lasting)


class Alarm(Exception):
    """What a signal's handler raises here."""


@contextmanager
def handler(call: Callable[[], object], number: int = signal.SIGALRM) -> Iterator[None]:
    """`call` is what the signal runs."""
    before = signal.signal(number, lambda *_: call())
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


@contextmanager
def ctrl_c(after: float) -> Iterator[None]:
    """Ctrl-C of this process after so many seconds, if the block still runs."""
    with handler(lambda: signal.default_int_handler(signal.SIGINT, None)):
        signal.setitimer(signal.ITIMER_REAL, after, 10)  # again, should a destructor have swallowed it
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)


def interrupted(call: Callable[[], object], after: float = 0.1) -> float:
    """Runs the call into a Ctrl-C; how long after it the call ended."""
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), ctrl_c(after):
        call()
    return time.monotonic() - start - after


def unanswered(core: Any, call: Callable[[], object]) -> float:
    """Runs the call into a Ctrl-C once this firmware has stopped; how long after it the call ended."""
    sent: list[float] = []

    def watch() -> None:
        eventually(lambda: core.stopped)
        time.sleep(0.02)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGALRM)

    with handler(lambda: signal.default_int_handler(signal.SIGINT, None)):
        watcher = threading.Thread(target=watch)
        watcher.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        end = time.monotonic()
        watcher.join()
    return end - sent[0]


# ---- wait ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.00002, 0.001, 0.2])
@pytest.mark.parametrize("side", [SEND, RECEIVE])
def test_ctrl_c_in_wait(two: tuple[Nic, Nic], side: Side, after: float) -> None:
    """KeyboardInterrupt at once; the entry is still due, and the pair works on."""
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    r.write(0, b"interrupted")
    if side is SEND:
        a.send(r, 0, 11)
    else:
        a.receive(r, 100, 11)
    late = [interrupted(lambda: a.wait(side, us=100 * SECOND), after) for _ in range(3)]
    assert min(late) < 10  # a fiftieth of a second where the machine has nothing else to do
    assert a.room(side) == 4094
    if side is SEND:
        b.receive(s, 0, 11)
    else:
        s.write(0, b"interrupted")
        b.send(s, 0, 11)
    assert done(a, side) == 11
    assert (s.read(0, 11) if side is SEND else r.read(100, 11)) == b"interrupted"
    assert done(b, SEND if side is RECEIVE else RECEIVE) == 11
    with pytest.raises(ValueError, match="no entry"):
        a.wait(side, us=1)


def test_ctrl_c_beside_completions(nic: Nic) -> None:
    """At any moment of a loop of posts and waits: no completion is lost, none comes twice."""
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    rng = random.Random(4)
    for _ in range(60):
        with suppress(KeyboardInterrupt), ctrl_c(rng.uniform(0.00005, 0.003)):
            while True:
                if a.room(SEND) and b.room(RECEIVE) > 4000:
                    b.receive(r, 0, 64)
                    a.send(r, 64, 8)
                if b.room(RECEIVE) < 4095:
                    b.wait(RECEIVE, us=1000)
                if a.room(SEND) < 4095:
                    a.wait(SEND, us=1000)
    # What is due now is what was not taken. Each interruption may have left a receive without its send.
    while a.room(SEND) < 4095:
        assert done(a, SEND) == 8
    without = 0
    while b.room(RECEIVE) < 4095:
        found = b.poll(RECEIVE)
        if found is None:
            without += 1
            a.send(r, 64, 8)
            assert done(a, SEND) == done(b, RECEIVE) == 8
        else:
            assert found.bytes == 8
    assert without <= 60
    b.receive(r, 0, 64)
    a.send(r, 64, 17)
    assert done(b, RECEIVE) == 17 and done(a, SEND) == 17


def test_another_exception_in_wait(nic: Nic) -> None:
    a, _ = connected(nic)
    r = Region.host(nic, PAGE)
    a.receive(r, 0, 8)

    def fail() -> None:
        raise Alarm("of the handler")

    with handler(fail), pytest.raises(Alarm, match="of the handler"):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        a.wait(RECEIVE, us=100 * SECOND)
    assert a.room(RECEIVE) == 4094


def test_signals_that_raise_nothing(nic: Nic) -> None:
    """wait goes on to its bound, or to the completion, however many come."""
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    a.receive(r, 0, 8)
    came: list[float] = []
    with handler(lambda: came.append(time.monotonic())):
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        start = time.monotonic()
        assert a.wait(RECEIVE, us=SECOND // 4) is None
        assert time.monotonic() - start >= 0.25
        before = len(came)

        def send() -> None:  # a busy machine joins signals that it is late with
            if eventually(lambda: len(came) > before + 3):
                b.send(r, 8, 8)

        sender = threading.Thread(target=send)
        sender.start()
        assert done(a, RECEIVE, 100 * SECOND) == 8  # the handlers ran while it waited
        sender.join()


def test_handlers_that_use_the_pair(nic: Nic) -> None:
    """A handler posts, polls, waits and makes control calls, within a wait of the same pair."""
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    a.receive(r, 0, 8)
    a.receive(r, 0, 8)
    runs: list[int] = []

    def use() -> None:
        c = Qp.make(nic)
        connect(c, c)
        s = Region.host(nic, PAGE)
        c.receive(s, 0, 8)
        c.send(s, 8, 8)
        assert done(c, RECEIVE) == 8
        c.destroy()
        s.deregister()
        assert a.poll(SEND) is None
        b.send(r, 8, 4 + len(runs))
        if not runs:
            assert done(a, RECEIVE) == 4  # the very entry that the wait below is for
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        runs.append(1)

    with handler(use):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert done(a, RECEIVE) == 5
    assert len(runs) >= 2


@pytest.mark.parametrize("how", ["destroy", "close"])
def test_a_handler_that_ends_what_is_waited_for(nic_names: list[str], how: str) -> None:
    with userdma.open(nic_names[0]) as nic:
        a, _ = connected(nic)
        r = Region.host(nic, PAGE)
        a.receive(r, 0, 8)
        with handler(a.destroy if how == "destroy" else nic.close):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(ValueError, match="destroyed" if how == "destroy" else "closed"):
                a.wait(RECEIVE, us=100 * SECOND)


def test_signals_go_to_the_programs_threads(two: tuple[Nic, Nic]) -> None:
    """The NICs' threads take none: a signal of the process interrupts the main thread's sleep."""
    connected(*two)
    came: list[int] = []
    with handler(lambda: came.append(1), signal.SIGUSR1):
        for n in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert eventually(lambda n=n: len(came) > n)  # type: ignore[misc]
    assert len(came) == 20
    main = os.getpid()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as comm:
            name = comm.read().strip()
        if int(task) != main and name.startswith("userdma"):
            with open(f"/proc/self/task/{task}/status") as status:
                blocked = next(line for line in status if line.startswith("SigBlk"))
            assert int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1


@pytest.mark.no_sanitizer
def test_ctrl_c_of_a_program() -> None:
    """One that has no handler ends as any Python program does, with its traceback and nothing else."""
    text = """
import userdma
nic = userdma.open("soft:bnxt")
a = userdma.Qp.make(nic)
a.connect(a.endpoint)
r = userdma.Region.host(nic, 4096)
a.receive(r, 0, 8)
print("waiting", flush=True)
a.wait(userdma.Side.RECEIVE, us=10**9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == "waiting\n"
        time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=300)
    assert program.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert errors.count("Traceback") == 1, errors


@pytest.mark.parametrize("call", ["make", "host", "close"])
def test_a_handler_that_closes_within_a_control_call(soft: Soft, call: str) -> None:
    """Refused in the middle of it, as other control calls are; else the call finds the NIC closed."""
    ends = []
    for step in range(25):
        nic = soft()
        closed: list[str] = []

        def close() -> None:
            try:
                nic.close()  # noqa: B023
                closed.append("")  # noqa: B023
            except Error as error:
                closed.append(str(error))  # noqa: B023

        start = time.monotonic()
        with handler(close):
            signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.0007 * step)
            try:
                while not closed:
                    if call == "make":
                        Qp.make(nic, send=3, receive=3)
                    elif call == "host":
                        Region.host(nic, PAGE)
                    else:
                        userdma.open(f"soft:{nic.family}", wire=userdma.soft.Wire()).close()
            except (Error, ValueError) as error:
                ends.append(str(error))
        assert time.monotonic() - start < 100
        assert closed[0] == "" or "is still under way in this thread" in closed[0], closed
        nic.close()
        assert nic.function.released
    assert all(re.search("is closed", end) for end in ends), ends


def test_a_close_within_a_command(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    nic = soft()
    seen: list[str] = []

    def close() -> None:
        with pytest.raises(Error, match="create_cq is still under way in this thread") as raised:
            nic.close()
        seen.append(str(raised.value))

    pause(nic, monkeypatch, close)
    Qp.make(nic).destroy()  # goes on as if nothing had been
    assert len(seen) == 1
    nic.close()


def test_ctrl_c_anywhere_in_open(function: Callable[..., Any]) -> None:
    """An exception at any line of the bring-up comes out as itself, and the function can be released."""

    def interrupted_at(line: int) -> int:
        """How many lines there were: all of them, if that one is not reached."""
        one = function()
        lines = 0

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal lines
            file = os.path.basename(frame.f_code.co_filename)
            if file not in ("bring_up.py", "page_table.py", "device.py") and frame.f_code.co_name != "__init__":
                return None  # how often a command's loop looks for its answer differs from run to run
            if event == "line":
                lines += 1
                if lines == line:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            nic = userdma.open(one)
            sys.settrace(None)
            nic.close()
        finally:
            sys.settrace(None)
            assert one.views == 0
            one.release()
            assert one.released
        return lines

    interrupted_at(0)  # what runs only once
    whole = interrupted_at(0)
    assert whole > 100
    for place in range(30):
        with pytest.raises(KeyboardInterrupt):
            interrupted_at(1 + place * whole // 31)


def test_ctrl_c_while_a_join_waits_for_another_process() -> None:
    """The lock of a wire's file is with a process that is stopped: Ctrl-C works, and else the process is named."""
    wire = wire_name()
    with userdma.open("soft:bnxt", wire=wire):
        holder = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import fcntl, sys, time\n"
                "file = open(sys.argv[1], 'r+b')\n"
                "fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\n"
                "print('locked', flush=True)\n"
                "time.sleep(100)",
                wire_file(wire),
            ],
            stdout=subprocess.PIPE,
        )
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
            function = lambda: userdma.soft.bnxt(wire=wire)  # noqa: E731
            assert min(interrupted(function) for _ in range(3)) < 4  # else it waits for five seconds
            with pytest.raises(Error, match=f"process {holder.pid} keeps its lock"):
                function()
        finally:
            holder.kill()
            holder.wait()
            assert holder.stdout is not None
            holder.stdout.close()


# ---- control calls ---------------------------------------------------------------------------------------------------
#
# The firmware runs the command or not, and does not answer; the exception ends the wait for it.


@pytest.mark.parametrize("how", ["at", "within"])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_ctrl_c_in_make(soft: Soft, k: int, how: str) -> None:
    """What an interrupted make took stays while the firmware may name it, and no longer than until close."""
    nic = soft()
    other = connected(nic)
    before = counts(nic)
    firmware(nic).stop(**{how: "*"}, k=k)
    assert unanswered(firmware(nic), lambda: Qp.make(nic)) < 60
    held = counts(nic)
    assert held["core_arena_bytes"] > before["core_arena_bytes"]  # rings that the firmware may still name
    r = None
    with pytest.raises((FirmwareTimeoutError, FirmwareStoppedError)):  # it still does not answer
        quick(nic)
        r = Region.host(nic, PAGE)
    assert r is None
    firmware(nic).resume()
    quick(nic, 20)
    # The late answers are taken for what they are.
    a, b = connected(nic)
    s = Region.host(nic, PAGE)
    b.receive(s, 0, 8)
    a.send(s, 8, 8)
    assert done(b, RECEIVE) == 8
    other[0].destroy()
    nic.close()
    assert counts(nic)["core_arena_bytes"] == 0


@pytest.mark.parametrize("how", ["at", "within"])
@pytest.mark.parametrize("k", [1, 2])
def test_ctrl_c_in_connect(soft: Soft, k: int, how: str) -> None:
    """A connect an exception ended, called again, takes qp back to reset and connects it from there."""
    nic = soft()
    a, b = Qp.make(nic), Qp.make(nic)
    b.connect(a.endpoint)
    firmware(nic).stop(**{how: "*"}, k=k)
    assert unanswered(firmware(nic), lambda: a.connect(b.endpoint)) < 60
    assert not a.connected
    firmware(nic).resume()
    r = Region.host(nic, PAGE)
    with pytest.raises(ValueError, match="not connected"):
        a.send(r, 0, 1)
    a.connect(b.endpoint)
    for one, other in ((a, b), (b, a)):
        other.receive(r, 0, 8)
        one.send(r, 8, 8)
        assert done(other, RECEIVE) == 8
        assert done(one, SEND) == 8


@pytest.mark.parametrize("how", ["at", "within"])
@pytest.mark.parametrize("command", ["destroy_qp", "destroy_cq"])
def test_ctrl_c_in_destroy(soft: Soft, command: str, how: str) -> None:
    """Error, and so is every call after one that an exception ended. qp counts as destroyed; its rings stay."""
    nic = soft()
    a, b = connected(nic)
    before = counts(nic)
    firmware(nic).stop(**{how: command})
    assert unanswered(firmware(nic), a.destroy) < 60
    firmware(nic).resume()
    for _ in range(2):
        with pytest.raises(Error, match="exception"):
            a.destroy()
        with pytest.raises(ValueError, match="destroyed"):
            a.poll(SEND)
    with a:  # its end is no second failure
        pass
    assert counts(nic)["core_arena_bytes"] == before["core_arena_bytes"]
    b.destroy()
    c, d = connected(nic)
    r = Region.host(nic, PAGE)
    d.receive(r, 0, 8)
    c.send(r, 8, 8)
    assert done(d, RECEIVE) == 8
    nic.close()
    assert counts(nic)["core_arena_bytes"] == 0


@pytest.mark.parametrize("how", ["at", "within"])
def test_ctrl_c_in_deregister(soft: Soft, how: str) -> None:
    """Error, and so is every call after one that an exception ended. The memory stays until close."""
    nic = soft()
    r = Region.host(nic, 64 * PAGE)
    before = counts(nic)
    firmware(nic).stop(**{how: steps(nic).deregister})
    assert unanswered(firmware(nic), r.deregister) < 60
    firmware(nic).resume()
    for _ in range(2):
        with pytest.raises(Error, match="exception"):
            r.deregister()
        with pytest.raises(ValueError, match="deregistered"):
            r.read(0, 1)
    with r:
        pass
    assert counts(nic)["core_arena_bytes"] == before["core_arena_bytes"]
    Region.host(nic, PAGE).deregister()
    nic.close()
    assert counts(nic)["core_arena_bytes"] == 0


@pytest.mark.parametrize("how", ["at", "within"])
def test_ctrl_c_in_host(soft: Soft, how: str) -> None:
    nic = soft()
    before = counts(nic)
    firmware(nic).stop(**{how: steps(nic).register})
    assert unanswered(firmware(nic), lambda: Region.host(nic, 64 * PAGE)) < 60
    assert counts(nic)["core_arena_bytes"] >= before["core_arena_bytes"] + 64 * PAGE
    firmware(nic).resume()
    r = Region.host(nic, PAGE)
    r.write(0, b"works")
    assert r.read(0, 5) == b"works"
    nic.close()
    assert counts(nic)["core_arena_bytes"] == 0


def test_ctrl_c_in_close(soft: Soft) -> None:
    """A close that was interrupted is finished by the next, whatever the firmware does."""
    nic = soft()
    held = connected(nic), Region.host(nic, PAGE)
    firmware(nic).stop(at="destroy_qp")
    assert unanswered(firmware(nic), nic.close) < 60
    assert nic.closed
    with pytest.raises(ValueError, match="closed"):
        held[1].read(0, 1)
    with pytest.raises(ValueError, match="closed"):
        Qp.make(nic)
    quick(nic, 0.1)
    nic.close()
    assert nic.function.released  # type: ignore[attr-defined]
    assert counts(nic)["core_arena_bytes"] == 0


@pytest.mark.parametrize("k", [1, 4, 9, 16])
def test_ctrl_c_in_open(function: Callable[..., Any], k: int) -> None:
    """The function is given back with what the bring-up took."""

    def once() -> None:
        one = function()
        one.firmware.stop(at="*", k=k)
        assert unanswered(one.firmware, lambda: userdma.open(one)) < 60
        one.firmware.resume()
        with userdma.open(one) as nic:  # it can be opened again
            a, b = connected(nic)
            a.destroy()
            b.destroy()

    once()
    gc.collect()
    before = descriptors(), tasks()
    for _ in range(3):
        once()
    gc.collect()
    assert (descriptors(), tasks()) == before


def test_ctrl_c_at_random_moments_of_control_calls(soft: Soft) -> None:
    """Of opens, makes, connects, destroys, hosts and deregisters: the NIC works on, and gives everything back."""
    rng = random.Random(11)
    for _ in range(4):
        nic = soft()
        interrupts = 0
        for _ in range(60):
            try:
                with ctrl_c(rng.uniform(0.0001, 0.01)):
                    while True:
                        a, b = connect(Qp.make(nic, send=31, receive=31), Qp.make(nic, send=31, receive=31))
                        r = Region.host(nic, PAGE)
                        b.receive(r, 0, 8)
                        a.send(r, 8, 8)
                        a.destroy()
                        r.deregister()
                        b.destroy()
            except KeyboardInterrupt:
                interrupts += 1
            except Error as error:  # an end that an exception ended
                assert "exception" in str(error) or "under way" in str(error)
        assert interrupts > 30
        c, d = connected(nic)
        s = Region.host(nic, PAGE)
        d.receive(s, 0, 8)
        c.send(s, 8, 8)
        assert done(d, RECEIVE) == 8
        nic.close()
        assert counts(nic)["core_arena_bytes"] == 0
        assert not firmware(nic).bugs


def test_answers_that_ctrl_c_loses(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after the answer was found: the command queue does not fill up with them."""
    nic = soft()
    look = channel(nic)._look

    def losing(*args: Any) -> None:
        if look(*args) is not None:
            raise KeyboardInterrupt

    for _ in range(10):
        for _ in range(10):
            with monkeypatch.context() as patch:
                patch.setattr(channel(nic), "_look", losing)
                with pytest.raises(KeyboardInterrupt):
                    Region.host(nic, PAGE)
        Region.host(nic, PAGE).deregister()
    nic.close()
    assert counts(nic)["core_arena_bytes"] == 0


def test_a_peer_that_is_interrupted(two: tuple[Nic, Nic]) -> None:
    """Ctrl-C at a terminal goes to every process of its group: to one that ignores it, it is nothing."""
    with Peer() as peer:
        peer.run("nic = userdma.open('soft:bnxt'); qp = Qp.make(nic); qp.connect(qp.endpoint)")
        peer.run("r = Region.host(nic, 4096); qp.receive(r, 0, 8)")
        peer.start("answer = qp.wait(Side.RECEIVE, us=500_000) is None")
        for _ in range(5):
            time.sleep(0.05)
            peer.signal(signal.SIGINT)
        assert peer.finish() is True
