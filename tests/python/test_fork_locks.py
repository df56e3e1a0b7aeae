"""Forks while another thread, or a call of this one, is in the middle of something: no child waits for what is not
there."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conftest import counts
from processes import ended, in_child, said
from test_control_calls import CALLS, World, at_moment, check_works, closed, moments
from test_fork import CALLS as REFUSED
from test_fork import own_nic
from userdma import Error, Nic, Qp, Region, trace
from userdma.mlx5.layouts import LAYOUTS, Layout

PAGE = 4096
Soft = Callable[..., Nic]

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@contextmanager
def beside(call: Callable[[Callable[[], object]], object]) -> Iterator[None]:
    """Runs `call` in another thread, up to where it calls what it is given: there it stays until the block's end."""
    there, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def stay() -> None:
        there.set()
        assert go_on.wait(400)

    def run() -> None:
        try:
            call(stay)
        except BaseException as error:
            errors.append(error)
        finally:
            there.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert there.wait(400) and not errors
        yield
    finally:
        go_on.set()
        thread.join(400)
    assert not errors, errors


def within_lock(lock: Any, stay: Callable[[], object]) -> None:
    with lock:
        stay()


def test_a_thread_within_a_control_call(soft: Soft) -> None:
    """The child refuses, or does nothing, at once; it drops everything; and it has a NIC of its own."""
    nic = soft()
    pair, region = Qp.make(nic), Region.host(nic, PAGE)
    pair.connect(pair.endpoint)
    unconnected = Qp.make(nic)
    held: list[Any] = [nic, pair, region, unconnected]

    def make(stay: Callable[[], object]) -> None:
        came: list[int] = []

        def listen(event: trace.Event) -> None:
            if event.command == "create_qp" and threading.current_thread() is me and not came:
                came.append(1)
                stay()

        me = threading.current_thread()
        with trace.listening(listen):
            Qp.make(nic).destroy()

    def child() -> None:
        for name, call in REFUSED.items():
            with pytest.raises(ValueError, match="fork"):
                call(nic, unconnected if name == "connect" else pair, region, bytearray())
        for end in (pair.destroy, unconnected.destroy, region.deregister, nic.close):
            end()
        held.clear()
        gc.collect()
        own_nic()

    with beside(make):
        in_child(child)
    check_works(nic)


def test_a_thread_that_begins_to_listen() -> None:
    def child() -> list[object]:
        heard: list[object] = []
        with trace.listening(lambda event: heard.append(event.what)):
            own_nic()
        return heard

    with beside(lambda stay: within_lock(trace._lock, stay)):
        assert "answered" in in_child(child)


def test_a_thread_within_the_firmware(soft: Soft) -> None:
    """Of a NIC in software: what it has given out is to be seen in the child."""
    function: Any = soft().function

    def child() -> int:
        function.firmware.refuse("create_qp")
        return len(function.firmware.log)

    with beside(lambda stay: within_lock(function.firmware.lock, stay)):
        assert in_child(child) > 10


def test_a_thread_that_reads_a_description() -> None:
    class Slow(str):
        def split(self, *_: Any) -> Any:
            self.stay()
            return str.split(self)

        stay: Callable[[], object]

    text = Slow("a@0x0:8")

    def read(stay: Callable[[], object]) -> None:
        text.stay = stay  # type: ignore[method-assign]
        assert list(Layout("slow", 1, text).fields) == ["a"]

    def child() -> list[str]:
        return list(Layout("quick", 1, "b@0x0:8").fields)

    try:
        with beside(read):
            assert in_child(child) == ["b"]
    finally:
        LAYOUTS.pop("slow")


def test_threads_that_read_a_description() -> None:
    """They agree on its fields, which are known by their identity."""
    for turn in range(20):
        layout = Layout(f"many{turn}", 2, "a@0x0:8 list@0x10:8[]")
        start = threading.Barrier(4)
        found: list[Any] = []

        def read(layout: Layout = layout, start: threading.Barrier = start, found: list[Any] = found) -> None:
            start.wait(300)
            found.append((layout.fields["list"], layout.pack(list=[1, 2])))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(400)
        LAYOUTS.pop(layout.name)
        assert len(found) == 4
        assert all(field is found[0][0] and data == b"\0\0\1\2" for field, data in found)


@pytest.mark.no_sanitizer
def test_a_thread_that_opens_the_first_nic(family: str) -> None:
    """It imports what that needs: the fork waits for it, as the child could not."""
    said(
        """
        import os, signal, sys, threading, time, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later: fork with threads
        import userdma

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "userdma.soft.serving":
                    started.set()
                    time.sleep(0.5)

        started = threading.Event()
        sys.meta_path.insert(0, Slow())
        name = "soft:" + sys.argv[1]
        thread = threading.Thread(target=lambda: userdma.open(name).close())
        thread.start()
        started.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(200)
            userdma.open(name).close()
            os._exit(0)
        thread.join()
        status = os.waitpid(child, 0)[1]
        assert status == 0, status
        """,
        family,
    )


@pytest.mark.parametrize("outer", [name for name in CALLS if name != "Nic.counters"])
def test_a_fork_within_a_control_call(soft: Soft, outer: str) -> None:
    """Of the thread that is within it, in a signal's handler: in the child the call ends by an error that says so, or
    had nothing to do any more; in the parent it goes on."""
    rng = random.Random(outer)
    n = moments(soft, outer)
    nic = soft()
    check_works(nic)
    before = counts(nic)
    for k in sorted(rng.sample(range(10, n), 2 if outer == "Nic.close" else 5)):
        world, made = World(nic), []
        children: list[int] = []

        def fork(children: list[int] = children) -> None:
            children.append(os.fork())

        failure: BaseException | None = None
        try:
            at_moment(k, fork, lambda: made.append(CALLS[outer](world)))  # noqa: B023
        except (ValueError, Error) as error:
            failure = error
        finally:
            if children == [0]:
                os._exit(0 if failure is None or "fork" in str(failure) else 1)
        assert failure is None
        assert ended(children[0]) == 0, f"the moment {k} of {n} of {outer}"
        if closed(nic):
            nic = soft()
            check_works(nic)
            continue
        world.end()
        made.clear()
        check_works(nic)
        assert counts(nic) == before
