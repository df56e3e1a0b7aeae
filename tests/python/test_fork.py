"""Forks: a child refuses its parent's NICs and ends cleanly, the parent's work on, and a child may have its own."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

import userdma
import userdma.soft
from conftest import commands, connected, counts, done
from processes import ended, in_child, said, wire_file, wire_name
from userdma import Access, Error, Nic, Qp, Region, Side

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
Soft = Callable[..., Nic]

# What Python 3.12 and later say of every fork beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def exchange(a: Qp, b: Qp, rounds: int = 3, seed: int = 0) -> None:
    rng = random.Random(seed)
    r, s = Region.host(a.nic, 4 * PAGE), Region.host(b.nic, 4 * PAGE)
    for _ in range(rounds):
        data = rng.randbytes(rng.randrange(len(r)))
        r.write(0, data)
        b.receive(s, 0, len(s))
        a.send(r, 0, len(data))
        assert done(b, RECEIVE) == done(a, SEND) == len(data)
        assert s.read(0, len(data)) == data
    r.deregister()
    s.deregister()


def own_nic() -> str:
    """A NIC of this process's own, that works."""
    for name in ("soft:bnxt", "soft:mlx5"):
        with userdma.open(name) as nic:
            exchange(*connected(nic))
    return nic.name


@contextmanager
def working(nic: Nic) -> Iterator[tuple[Qp, Qp, Region]]:
    """A pair of the NIC whose work goes on, whatever the block does."""
    a, b = connected(nic, remote=Access.READ)
    r = Region.host(nic, PAGE, remote=Access.READ)
    b.receive(r, 0, 64)  # under way
    log, before = commands(nic), counts(nic)
    yield a, b, r
    assert (commands(nic), counts(nic)) == (log, before)
    r.write(100, b"after the fork")
    a.send(r, 100, 14)
    assert done(b, RECEIVE) == done(a, SEND) == 14
    assert r.read(0, 14) == b"after the fork"
    Qp.make(nic).destroy()
    exchange(a, b)


CALLS: dict[str, Callable[[Nic, Qp, Region, bytearray], object]] = {
    "make": lambda nic, qp, r, b: Qp.make(nic),
    "host": lambda nic, qp, r, b: Region.host(nic, 1),
    "pages": lambda nic, qp, r, b: Region.pages(nic, mmap.mmap(-1, PAGE)),
    "device": lambda nic, qp, r, b: Region.device(nic, [(PAGE, PAGE)]),
    "counters": lambda nic, qp, r, b: nic.counters,
    "with": lambda nic, qp, r, b: nic.__enter__(),
    "connect": lambda nic, qp, r, b: qp.connect(qp.endpoint),
    "send": lambda nic, qp, r, b: qp.send(r, 0, 1),
    "receive": lambda nic, qp, r, b: qp.receive(r, 0, 1),
    "write": lambda nic, qp, r, b: qp.write((r, 0), userdma.RemoteMemory(PAGE, 1, PAGE), 1),
    "read": lambda nic, qp, r, b: qp.read((r, 0), (r, 0), 1),
    "room": lambda nic, qp, r, b: qp.room(SEND),
    "poll": lambda nic, qp, r, b: qp.poll(SEND),
    "wait": lambda nic, qp, r, b: qp.wait(RECEIVE, us=1000),
    "Region.read": lambda nic, qp, r, b: r.read(0, 1),
    "Region.write": lambda nic, qp, r, b: r.write(0, b"x"),
    "Region.remote": lambda nic, qp, r, b: r.remote(),
    "memoryview": lambda nic, qp, r, b: memoryview(r),
}


def test_a_child_refuses(nic: Nic) -> None:
    """Every call on the parent's NIC is an error that says why."""

    def child() -> dict[str, str]:
        answers = {}
        for name, call in CALLS.items():
            try:
                call(nic, b if name != "connect" else unconnected, r, bytearray())
            except (ValueError, Error) as error:
                answers[name] = f"{type(error).__name__}: {error}"
            else:
                answers[name] = "nothing"
        return answers

    unconnected = Qp.make(nic)
    with working(nic) as (_, b, r):
        answers = in_child(child)
    assert set(answers) == set(CALLS)
    assert [name for name, text in answers.items() if "fork" not in text] == [], answers
    assert [name for name, text in answers.items() if not text.startswith("ValueError: ")] == [], answers


@pytest.mark.pci
def test_a_childs_copy_of_a_function_is_the_parents(nic: Nic) -> None:
    """What would reach the parent's device is refused."""

    def child() -> list[str]:
        function = nic.function
        answers = []
        for call in (
            function.release,
            function.reset,
            lambda: function.alloc_dma(PAGE),
            lambda: function.free_dma(memory),
            lambda: function.map(0),
            lambda: bar.read32(0),
            lambda: function.config16(0),
            lambda: userdma.open(function),
        ):
            try:
                call()
            except Error as error:
                answers.append(str(error))
            else:
                answers.append(f"{call}: nothing")
        return answers

    memory = nic.function.alloc_dma(PAGE)
    bar = nic.function.map(0)
    with working(nic):
        answers = in_child(child)
    assert [text for text in answers if "fork" not in text] == []
    nic.function.free_dma(memory)


def test_a_child_gives_back_nothing(nic: Nic) -> None:
    """Ends of the parent's objects are nothing in a child: by name, by `with`, by the collector."""

    def child() -> str:
        a.destroy()
        with b, r, nic_again:
            pass
        r.deregister()
        nic.close()
        nic.close()
        repr((nic, a, b, r))
        held.clear()
        gc.collect()
        return own_nic()

    with working(nic) as (a, b, r):
        held = [a, b, r]
        nic_again = r
        in_child(child)


def test_a_child_drops_everything(family: str) -> None:
    """The collector takes the last of the parent's objects in the child."""
    print(
        said(
            """
            import gc, os, sys, userdma, warnings
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later: fork with threads
            def things():
                nic = userdma.open("soft:" + sys.argv[1])
                a = userdma.Qp.make(nic)
                a.connect(a.endpoint)
                r = userdma.Region.host(nic, 4096)
                a.receive(r, 0, 8)
                return [nic, a, r]
            for last in range(3):
                held = things()
                child = os.fork()
                if child == 0:
                    for i in range(last, last + 3):
                        held[i % 3] = None
                        gc.collect()
                    sys.exit(0)
                assert os.waitpid(child, 0)[1] == 0
                _, a, r = held
                a.send(r, 0, 8)
                assert a.wait(userdma.Side.RECEIVE, us=60_000_000).bytes == 8
        """,
            family,
        )
    )


def test_a_child_has_its_own_nic(nic: Nic) -> None:
    with working(nic):
        assert in_child(own_nic) != nic.name


def test_a_grandchild(nic: Nic) -> None:
    """A child of a child: with the NICs of both it can do nothing, with its own everything."""

    def grandchild(own: Nic) -> str:
        for other in (nic, own):
            with pytest.raises(ValueError, match="fork"):
                Qp.make(other)
        return own_nic()

    def child() -> str:
        with userdma.open("soft:mlx5") as own:
            a, b = connected(own)
            name: str = in_child(lambda: grandchild(own))
            exchange(a, b)
        return name

    with working(nic):
        assert in_child(child)


def test_parent_and_child_on_a_wire_in_shared_memory() -> None:
    """Each with its own NIC on the wire that the parent had open before."""
    name = wire_name()

    def child() -> None:
        with userdma.open("soft:mlx5", wire=name) as nic:
            qp = Qp.make(nic)
            r = Region.host(nic, PAGE)
            theirs.send(qp.endpoint)
            qp.connect(theirs.recv())
            qp.receive(r, 0, PAGE)
            theirs.send("ready")
            assert done(qp, RECEIVE) == 12
            r.write(100, r.read(0, 12).upper())
            qp.send(r, 100, 12)
            assert done(qp, SEND) == 12

    mine, theirs = multiprocessing.Pipe()
    with userdma.open("soft:bnxt", wire=name) as nic:
        for _ in range(3):
            qp = Qp.make(nic)
            r = Region.host(nic, PAGE)
            r.write(0, b"from parents")

            def parent(qp: Qp = qp, r: Region = r) -> None:
                assert mine.poll(100)
                qp.connect(mine.recv())
                mine.send(qp.endpoint)
                assert mine.poll(100) and mine.recv() == "ready"
                qp.receive(r, 100, 100)
                qp.send(r, 0, 12)
                assert done(qp, SEND) == 12
                assert done(qp, RECEIVE) == 12
                assert r.read(100, 12) == b"FROM PARENTS"

            with beside_child(child):
                parent()
            qp.destroy()
    assert not os.path.exists(wire_file(name))


@contextmanager
def beside_child(work: Callable[[], object]) -> Iterator[None]:
    """`work` runs in a forked child meanwhile, and must end well."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            in_child(work)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(400)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_a_fork_beside_traffic(two: tuple[Nic, Nic]) -> None:
    """Forks at any moment of other threads' work, the firmware's commands among it."""
    a, b = connected(*two)
    end = threading.Event()
    errors: list[BaseException] = []

    def until_end(work: Callable[[], object]) -> None:
        try:
            while not end.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    def control() -> None:
        Qp.make(two[0], send=1, receive=1).destroy()
        Region.host(two[0], PAGE).deregister()

    def child() -> None:
        for nic in two:
            with pytest.raises(ValueError, match="fork"):
                Qp.make(nic)
        own_nic()

    works = (lambda: exchange(a, b, seed=1), control)
    threads = [threading.Thread(target=until_end, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        for n in range(12):
            time.sleep(0.001 * (n % 5))
            in_child(child if n % 2 else lambda: None)
    finally:
        end.set()
        for thread in threads:
            thread.join(400)
    assert not errors, errors
    exchange(a, b)


def test_a_fork_by_a_thread(nic: Nic) -> None:
    """The thread that forks is the child's main thread."""
    with working(nic), beside_child(own_nic):
        pass


@pytest.mark.pages
def test_memory_of_the_process_after_a_fork(nic: Nic) -> None:
    """Pages stay the parent's: the NIC sees what the parent writes, and neither sees what the child does."""
    memory = mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = b"p" * len(memory)
    pages = Region.pages(nic, memory)
    host = Region.host(nic, PAGE)
    a, b = connected(nic)

    def child() -> bytes:
        before = memory[:]
        memory[:] = b"c" * len(memory)
        assert memory[:] == b"c" * len(memory)
        return before

    assert in_child(child) == b"p" * len(memory)
    assert memory[:] == b"p" * len(memory)
    memory[:5] = b"fresh"
    b.receive(host, 0, PAGE)
    a.send(pages, 0, PAGE)
    assert done(b, RECEIVE) == PAGE
    assert host.read(0, 6) == b"freshp"
    host.write(0, b"written")
    a.receive(pages, PAGE, PAGE)
    b.send(host, 0, 7)
    assert done(a, RECEIVE) == 7
    assert memory[PAGE : PAGE + 8] == b"writtenp"


# ---- how a child ends ------------------------------------------------------------------------------------------------

WORKS = """
    import atexit, gc, os, signal, sys, threading, time, userdma
    nic = userdma.open("soft:" + sys.argv[1])
    a = userdma.Qp.make(nic)
    a.connect(a.endpoint)
    r = userdma.Region.host(nic, 4096)
    a.receive(r, 0, 8)
    def check():
        a.send(r, 0, 8)
        assert a.wait(userdma.Side.RECEIVE, us=60_000_000).bytes == 8
        assert a.wait(userdma.Side.SEND, us=60_000_000).bytes == 8
        userdma.Qp.make(nic).destroy()
"""
ENDS = {
    "os._exit": "os._exit(0)",
    "sys.exit": "sys.exit(0)",
    "of the program": "pass",
    "atexit": "atexit.register(lambda: (a.destroy(), r.deregister(), nic.close(), print('at exit')))",
    "after a close": "nic.close()",
    "with its own nic": "own = userdma.open('soft:mlx5'); b = userdma.Qp.make(own); b.connect(b.endpoint)",
    "with everything dropped": "del a, r, nic; gc.collect()",
    "with a memoryview": "m = memoryview(bytearray(8))",
}


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("end", ENDS)
def test_how_a_child_ends(end: str, family: str) -> None:
    """With the exit code 0 and nothing on stderr, and the parent's NIC works on; then the parent ends the same way."""
    text = f"""
        child = os.fork()
        if child == 0:
            {ENDS[end]}
        else:
            status = os.waitpid(child, 0)[1]
            assert status == 0, status
            check()
            print("parent")
    """
    out = said("import warnings; warnings.simplefilter('ignore')\n" + dedented(WORKS) + dedented(text), family)
    assert out == ("at exit\n" if end == "atexit" else "") + "parent\n"


@pytest.mark.no_sanitizer
def test_a_child_that_a_signal_ends(family: str) -> None:
    out = said(
        "import warnings; warnings.simplefilter('ignore')\n"
        + dedented(WORKS)
        + dedented("""
            view = memoryview(r)
            for number in (signal.SIGTERM, signal.SIGKILL):
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                os.kill(child, number)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -number
            view.release()
            check()
            print("parent")
        """),
        family,
    )
    assert out == "parent\n"


def dedented(text: str) -> str:
    import textwrap

    return textwrap.dedent(text)


def _process(nic: Nic, qp: Qp, pipe: Connection) -> None:
    try:
        qp.poll(RECEIVE)
    except (ValueError, Error) as error:
        pipe.send(str(error))
    pipe.send(own_nic())


def test_multiprocessing_by_fork(nic: Nic) -> None:
    context = multiprocessing.get_context("fork")
    with working(nic) as (_, b, _r):
        here, there = context.Pipe()
        process = context.Process(target=_process, args=(nic, b, there))
        process.start()
        assert "fork" in here.recv()
        assert here.recv() != nic.name
        process.join(300)
        assert process.exitcode == 0
        process.close()


def _square(n: int) -> int:
    return n * n


def test_a_pool_by_fork(nic: Nic) -> None:
    """Workers that never touch the NIC, the way data loaders have them."""
    with working(nic), multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_square, range(20)) == [n * n for n in range(20)]
        pool.close()
        pool.join()


@pytest.mark.no_sanitizer
def test_programs_inherit_no_descriptor(nic: Nic) -> None:
    """Of a NIC, its memory or its wire, by a program that this one starts with every descriptor that may be kept."""
    program = "import os\nfor fd in os.listdir('/proc/self/fd'):\n  try: print(os.readlink('/proc/self/fd/' + fd))\n"
    program += "  except OSError: pass\n"
    wire = wire_name()
    with working(nic), userdma.open("soft:bnxt", wire=wire) as other:
        Region.host(other, PAGE)
        done_ = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, close_fds=False)
    assert done_.returncode == 0
    assert "memfd" not in done_.stdout and "userdma" not in done_.stdout


def test_forks_again_and_again(nic: Nic) -> None:
    """Children that live side by side, each with its own NIC."""
    with working(nic):
        children = []
        for n in range(4):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    own_nic()
                    status = n
                finally:
                    os._exit(status)
            children.append(child)
        assert [ended(child) for child in children] == [0, 1, 2, 3]


def test_a_child_of_a_nic_on_a_virtual_clock(timed: tuple[Nic, Nic]) -> None:
    a, b = connected(*timed)

    def child() -> Any:
        for call in (lambda: a.poll(SEND), lambda: Qp.make(timed[1])):
            with pytest.raises((ValueError, Error), match="fork"):
                call()
        return own_nic()

    in_child(child)
    exchange(a, b)
