"""The end of things: garbage in any order, the end of the interpreter with everything open, and nothing left behind."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import userdma
import userdma.soft
from conftest import connect, connected, counts, done
from patience import eventually
from processes import descriptors, mappings, resident, run, said, tasks, wire_file, wire_name
from steps import firmware, quick, steps
from userdma import Error, FirmwareStoppedError, FirmwareTimeoutError, Nic, Qp, Region, Side

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
Soft = Callable[..., Nic]


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    """The collector looks only at what a test makes."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def small(nic: Nic, entries: int) -> tuple[Qp, Qp]:
    a, b = (Qp.make(nic, send=entries, receive=entries) for _ in range(2))
    return connect(a, b)


# ---- garbage ---------------------------------------------------------------------------------------------------------


def things(family: str) -> dict[str, Any]:
    """One of each, with entries of both rings under way."""
    wire = userdma.soft.Wire()
    nic = userdma.open(getattr(userdma.soft, family)(wire=wire))
    qp = Qp.make(nic, send=31, receive=31)
    qp.connect(qp.endpoint)
    region = Region.host(nic, PAGE)
    qp.receive(region, 0, 8)
    qp.send(region, 0, 8)
    qp.send(region, 0, 8)  # there is no receive for it
    return {"wire": wire, "nic": nic, "qp": qp, "region": region, "view": memoryview(region)}


@pytest.mark.parametrize("first", ["wire", "nic", "qp", "region", "view"])
def test_garbage_in_any_order(family: str, first: str) -> None:
    """Each permutation, with a collection after each step. The function is given back with the last that holds it."""
    for order in itertools.permutations(["wire", "nic", "qp", "region", "view"]):
        if order[0] != first:
            continue
        held = things(family)
        function: Any = held["nic"].function
        for name in order:
            assert not function.released or not {"nic", "qp", "region", "view"} & set(held), (order, name)
            del held[name]
            gc.collect()
        assert function.released, order
        del function


def test_what_is_held_works_on(family: str) -> None:
    """A pair alone holds its NIC, and a view alone its region and NIC."""
    held = things(family)
    qp, view = held["qp"], held["view"]
    nic = weakref.ref(held["nic"])
    held.clear()
    gc.collect()
    assert done(qp, RECEIVE) == done(qp, SEND) == 8
    del qp
    gc.collect()
    view[:4] = b"view"
    assert bytes(view[:4]) == b"view"
    assert nic() is not None
    view.release()
    del view
    gc.collect()
    assert nic() is None


@pytest.mark.parametrize("closed", [False, True])
def test_cycles(family: str, closed: bool) -> None:
    """Objects in a reference cycle, open or closed before."""
    held: Any = things(family)
    function = weakref.ref(held["nic"].function)
    before = tasks()
    if closed:
        held.pop("view").release()
        held["nic"].close()
    held["itself"] = held
    held["more"] = [held["qp"], held]
    nic = weakref.ref(held["nic"])
    for name, thing in list(held.items()):
        if name in ("qp", "region"):
            thing.attribute = held  # a subclass of a C++ object, with a dictionary of its own
    del held, thing
    gc.collect()
    gc.collect()
    assert nic() is None
    assert function() is None
    assert tasks() < before


def test_a_function_alone(function: Callable[..., Any]) -> None:
    """One that no NIC was ever opened on, in a cycle with its firmware."""
    alone = function()
    gone = weakref.ref(alone)
    before = tasks()
    del alone
    gc.collect()
    assert gone() is None
    assert tasks() == before - 1  # its thread


def test_collections_at_any_moment(soft: Soft) -> None:
    """The collector runs at every allocation, within control calls too, and drops pairs and regions there."""
    nic = soft()
    before = counts(nic)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for n in range(6):
            a, b = small(nic, 7)
            r = Region.host(nic, PAGE)
            b.receive(r, 0, 8)
            a.send(r, 8, 8)
            assert done(b, RECEIVE) == 8
            cycle: list[Any] = [a, b, r]
            cycle.append(cycle)
            del a, b, r, cycle
            Region.host(nic, PAGE).deregister()
            if n % 2:
                Qp.make(nic, send=1, receive=1)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    Qp.make(nic).destroy()  # what was dropped is given back by the next control calls
    Region.host(nic, PAGE).deregister()
    assert counts(nic) == before


def test_regions_and_pairs_dropped_without_end(soft: Soft) -> None:
    """A program that never destroys nor deregisters does not run out."""
    nic = soft()
    qps = nic.limits["queue_pairs"]
    for n in range(300):
        Qp.make(nic, send=1, receive=1)
        Region.host(nic, PAGE)
        if n % 100 == 99:
            gc.collect()
    gc.collect()
    Qp.make(nic).destroy()
    now = counts(nic)
    assert now["qps"] < min(qps, 10)
    assert now[steps(nic).keys] < 10


def test_an_exception_holds_what_it_saw(family: str) -> None:
    """The frames of a traceback hold everything; once it is gone, so are they."""

    def fail() -> None:
        held = things(family)
        functions.append(held["nic"].function)
        held["qp"].send(held["region"], PAGE, 1)

    functions: list[Any] = []
    try:
        fail()
    except ValueError as error:
        kept = error
    assert not functions[0].released
    del kept
    gc.collect()
    assert functions[0].released


# ---- the end of the interpreter --------------------------------------------------------------------------------------

OPEN = """
import atexit, builtins, gc, os, signal, sys, threading, time
import userdma
from userdma import Qp, Region, Side

def everything(**options):
    nics = [userdma.open(name, **options) for name in ("soft:bnxt", "soft:mlx5")]
    a, b = Qp.make(nics[0]), Qp.make(nics[1])
    a.connect(b.endpoint)
    b.connect(a.endpoint)
    regions = [Region.host(nic, 4096) for nic in nics]
    b.receive(regions[1], 0, 64)
    a.send(regions[0], 0, 64)
    for _ in range(3):
        a.send(regions[0], 0, 64)    # nobody receives them
    a.receive(regions[0], 0, 64)
    return nics, (a, b), regions, memoryview(regions[0])

"""

# What a program does last, and its exit code and what the last line of its stderr says.
ENDINGS: dict[str, tuple[str, int, str]] = {
    "globals": ("things = everything()", 0, ""),
    "builtins": ("builtins.kept = everything()", 0, ""),
    "a cycle": ("cycle = [everything()]; cycle.append(cycle)", 0, ""),
    "a default argument": ("def f(things=everything()): pass", 0, ""),
    "a class": ("class C:\n  things = everything()\n  me = None\nC.me = C", 0, ""),
    "a generator": (
        "def g():\n  things = everything()\n  with things[0][0]:\n    yield\nit = g(); next(it)",
        0,
        "",
    ),
    "sys.exit": ("things = everything(); sys.exit(0)", 0, ""),
    "sys.exit(3)": ("things = everything(); sys.exit(3)", 3, ""),
    "sys.exit within with": ("nics, pairs, regions, view = everything()\nwith nics[0]:\n  sys.exit(4)", 4, ""),
    "os._exit": ("things = everything(); os._exit(5)", 5, ""),
    "an exception": ("things = everything(); raise RuntimeError('of the program')", 1, "RuntimeError: of the program"),
    "an exception within with": (
        "nics, pairs, r, view = everything()\nwith nics[0], pairs[0], r[1]:\n  raise RuntimeError('inside')",
        1,
        "RuntimeError: inside",
    ),
    "SIGTERM": ("things = everything(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15, ""),
    "atexit": ("t = everything(); atexit.register(lambda: (t[3].release(), t[0][0].close(), t[0][1].close()))", 0, ""),
    "atexit before": ("atexit.register(lambda: t[0][0].closed or t[1][0].poll(Side.SEND)); t = everything()", 0, ""),
    "closed before": ("t = everything(); t[3].release(); t[0][0].close(); t[0][1].close()", 0, ""),
    "half closed": ("t = everything(); t[3].release(); t[1][0].destroy(); t[0][1].close()", 0, ""),
    "a daemon thread that waits": (
        "t = everything()\n"
        "threading.Thread(target=lambda: t[1][0].wait(Side.RECEIVE, us=10**9), daemon=True).start()\n"
        "threading.Thread(target=lambda: t[1][0].wait(Side.SEND, us=10**9), daemon=True).start()\n"
        "time.sleep(0.1)",
        0,
        "",
    ),
    "a daemon thread that just began to wait": (
        "t = everything()\nthreading.Thread(target=lambda: t[1][0].wait(Side.RECEIVE, us=10**9), daemon=True).start()",
        0,
        "",
    ),
    "a daemon thread that polls": (
        "t = everything()\ndef work():\n  while True: t[1][0].poll(Side.RECEIVE)\n"
        "threading.Thread(target=work, daemon=True).start()\ntime.sleep(0.05)",
        0,
        "",
    ),
    "a daemon thread that posts": (
        "t = everything()\ndef work():\n  while t[1][0].room(Side.SEND): t[1][0].send(t[2][0], 0, 8)\n"
        "threading.Thread(target=work, daemon=True).start()",
        0,
        "",
    ),
    "a thread that waits": (
        "t = everything()\nthreading.Thread(target=lambda: print(t[1][0].wait(Side.RECEIVE, us=300_000))).start()",
        0,
        "",
    ),
    "a weakref's callback": (
        "import weakref\nt = everything()\nw = weakref.ref(t[1][0], lambda _: 0)\nv = weakref.finalize(t[0][0], int)",
        0,
        "",
    ),
    "a stopped firmware": (
        "t = everything()\nfor nic in t[0]:\n  nic.function.firmware.stop()\n"
        "t[0][0]._device._chip.rcfw.limit = t[0][1]._device._chip.queue.limit = 0.1",
        0,
        "",
    ),
    "off the bus": ("t = everything()\nt[0][0].function.vanish()", 0, ""),
    "a virtual clock": (
        "from userdma import soft\nclock = soft.VirtualClock()\n"
        "nics = [userdma.open(make(clock=clock)) for make in (soft.bnxt, soft.mlx5)]\nqp = Qp.make(nics[0])\n"
        "qp.connect(Qp.make(nics[1]).endpoint)\nr = Region.host(nics[0], 4096)\nqp.send(r, 0, 8)",
        0,
        "",
    ),
    "a late answer": (
        "t = everything()\nt[0][0].function.firmware.delay('*', 30)\n"
        "threading.Thread(target=lambda: Qp.make(t[0][0]), daemon=True).start()\ntime.sleep(0.1)",
        0,
        "",
    ),
    "only functions": ("from userdma import soft\nf = [make() for make in (soft.bnxt, soft.mlx5, soft.bnxt)]", 0, ""),
    "modules gone": ("t = everything()\nsys.modules.clear()", 0, ""),
}


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_end_of_the_interpreter(ending: str) -> None:
    text, code, last = ENDINGS[ending]
    result = run(OPEN + text + "\n")
    assert result.returncode == code, result.stderr
    lines = result.stderr.splitlines()
    if last:
        assert lines[0].startswith("Traceback") and lines[-1] == last
        assert sum(line.startswith(("Traceback", "Exception")) for line in lines) == 1, result.stderr
    else:
        assert result.stderr == ""


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("ending", ["globals", "sys.exit(3)", "an exception", "a daemon thread that waits"])
def test_the_end_of_a_process_on_a_wire_in_shared_memory(ending: str) -> None:
    """Nothing of it is left in /dev/shm."""
    wire = wire_name()
    text, code, _ = ENDINGS[ending]
    result = run(OPEN + text.replace("everything()", f"everything(wire={wire!r})") + "\n")
    assert result.returncode == code, result.stderr
    assert not os.path.exists(wire_file(wire))


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("n", [0, 1])
def test_the_end_while_a_command_waits_for_its_answer(n: int) -> None:
    """A daemon thread in the middle of a control call."""
    out = said(
        OPEN
        + f"t = everything()\nnic = t[0][{n}]\nnic.function.firmware.stop()\n"
        + "threading.Thread(target=lambda: Qp.make(nic), daemon=True).start()\ntime.sleep(0.1)\nprint('end')\n"
    )
    assert out == "end\n"


# ---- nothing stays behind --------------------------------------------------------------------------------------------


def open_and_close(family: str, **options: Any) -> None:
    with userdma.open(getattr(userdma.soft, family)(**options)) as nic:
        a, b = small(nic, 63)
        r = Region.host(nic, 64 * PAGE)
        b.receive(r, 0, 8)
        a.send(r, 8, 8)
        assert done(b, RECEIVE) == 8


WIRES: dict[str, Callable[[], Any]] = {
    "default": lambda: None,
    "its own": lambda: userdma.soft.Wire(),
    "faulty": lambda: userdma.soft.Wire(duplicate=0.5, seed=1),
    "shared memory": lambda: wire_name(),
}


@pytest.mark.parametrize("wire", WIRES)
def test_open_and_close_leak_nothing(family: str, wire: str) -> None:
    def once() -> None:
        open_and_close(family, wire=WIRES[wire]())

    for _ in range(3):
        once()
    gc.collect()
    before = descriptors(), tasks()
    maps, memory = mappings(), resident()
    for _ in range(20):
        once()
    gc.collect()
    assert (descriptors(), tasks()) == before
    assert mappings() < maps + 10
    assert resident() < memory + (8 << 20)


def test_a_closed_nic_goes_with_its_last_reference(function: Callable[..., Any]) -> None:
    """Its registers and their file too: no collection is needed for them."""
    gc.disable()
    try:
        before = descriptors()
        made = function()
        gone = weakref.ref(made)
        with userdma.open(made) as nic:
            a, b = small(nic, 31)
            r = Region.host(nic, PAGE)
            b.receive(r, 0, 8)
            a.send(r, 8, 8)
            assert done(b, RECEIVE) == 8
        del made, nic, a, b, r
        assert gone() is None
        assert descriptors() == before
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.no_sanitizer
@pytest.mark.parametrize("wire", WIRES)
def test_hundreds_of_opens(family: str, wire: str) -> None:
    for _ in range(100):
        open_and_close(family, wire=WIRES[wire]())
    before, maps, memory = (descriptors(), tasks()), mappings(), resident()
    for _ in range(400):
        open_and_close(family, wire=WIRES[wire]())
    assert (descriptors(), tasks()) == before
    assert mappings() < maps + 10
    assert resident() < memory + (2 << 20)


def test_dropped_nics_leak_nothing(family: str) -> None:
    def once() -> None:
        held = things(family)
        held["itself"] = held

    once()
    gc.collect()
    before, maps, memory = (descriptors(), tasks()), mappings(), resident()
    for _ in range(15):
        once()
        gc.collect()
    assert (descriptors(), tasks()) == before
    assert mappings() < maps + 10
    assert resident() < memory + (8 << 20)


def test_pairs_and_regions_leak_nothing(nic: Nic) -> None:
    def once() -> None:
        a, b = small(nic, 63)
        r, s = Region.host(nic, 16 * PAGE), Region.host(nic, 1 << 20)
        b.receive(s, 0, 8)
        a.send(r, 0, 8)
        assert done(b, RECEIVE) == 8
        with memoryview(s) as view:
            view[100:200] = bytes(100)
        for thing in (a, b):
            thing.destroy()
        for region in (r, s):
            region.deregister()

    for _ in range(5):
        once()
    before, maps, memory, held = (descriptors(), tasks()), mappings(), resident(), counts(nic)
    for _ in range(60):
        once()
    assert (descriptors(), tasks()) == before
    assert counts(nic) == held
    assert mappings() < maps + 10
    assert resident() < memory + (8 << 20)


@pytest.mark.pages
def test_pages_leak_nothing(nic: Nic) -> None:
    import mmap

    def once() -> None:
        with mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            region = Region.pages(nic, memory)
            region.deregister()
            del region
            gc.collect()

    for _ in range(5):
        once()
    before, maps = (descriptors(), tasks()), mappings()
    for _ in range(50):
        once()
    assert (descriptors(), tasks()) == before
    assert mappings() < maps + 10


def test_polls_and_completions_leak_nothing(nic: Nic) -> None:
    a, b = connected(nic)
    r = Region.host(nic, PAGE)

    def once() -> None:
        for _ in range(2000):
            b.receive(r, 0, 8)
            a.send(r, 8, 8)
            done(b, RECEIVE)
            done(a, SEND)
            a.poll(SEND)
            with pytest.raises(ValueError, match="no entry"):
                a.wait(SEND, us=0)
            with pytest.raises(ValueError):
                a.send(r, PAGE, 1)

    once()
    blocks, memory = gc_blocks(), resident()
    once()
    assert gc_blocks() < blocks + 500
    assert resident() < memory + (4 << 20)


def gc_blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def refused(soft: Soft, function: Callable[..., Any]) -> Iterator[Callable[[], object]]:
    """Calls that fail at different depths."""
    nic = soft()

    def make() -> None:
        firmware(nic).refuse("create_qp")
        with pytest.raises(Error):
            Qp.make(nic)

    def host() -> None:
        firmware(nic).refuse(steps(nic).register)
        with pytest.raises(Error):
            Region.host(nic, PAGE)

    def taken() -> None:
        with pytest.raises(Error, match="MAC"):
            soft(mac=nic.mac)

    def bring_up() -> None:
        one = function()
        one.firmware.refuse("*", k=7)
        with pytest.raises(Error):
            userdma.open(one)
        one.release()

    def shm() -> None:
        with pytest.raises((ValueError, Error)):
            userdma.open(f"soft:{nic.family}", wire="shm:no/name")

    yield from (make, host, taken, bring_up, shm)


def test_failures_leak_nothing(soft: Soft, function: Callable[..., Any]) -> None:
    for call in refused(soft, function):
        for _ in range(3):
            call()
        gc.collect()
        before, maps, memory = (descriptors(), tasks()), mappings(), resident()
        for _ in range(15):
            call()
        gc.collect()
        assert (descriptors(), tasks()) == before
        assert mappings() < maps + 10
        assert resident() < memory + (8 << 20)


def test_a_stopped_firmware_leaks_nothing(function: Callable[..., Any]) -> None:
    """What it may still name stays until close, and is given back there."""

    def once() -> None:
        with userdma.open(function()) as nic:
            quick(nic, 0.01)
            Qp.make(nic)
            firmware(nic).stop()
            for call in (lambda: Qp.make(nic), lambda: Region.host(nic, PAGE)):
                with pytest.raises((FirmwareTimeoutError, FirmwareStoppedError)):
                    call()

    once()
    gc.collect()
    before, maps, memory = (descriptors(), tasks()), mappings(), resident()
    for _ in range(10):
        once()
    gc.collect()
    assert (descriptors(), tasks()) == before
    assert mappings() < maps + 10
    assert resident() < memory + (8 << 20)


def test_idle_nics_sleep(two: tuple[Nic, Nic]) -> None:
    """NICs that nobody uses take next to no time of the processor."""
    exchange = connected(*two)

    def idle() -> bool:
        before = time.process_time()
        time.sleep(1)
        return time.process_time() - before < 0.2

    assert eventually(idle)  # a busy machine lets their threads go to sleep late
    assert all(isinstance(qp, Qp) for qp in exchange)
