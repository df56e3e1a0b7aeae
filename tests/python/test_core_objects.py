"""Objects of the compiled core: half made ones, None in their place; its threads; interpreters beside the main one."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import signal
import threading
from typing import Any

import pytest

import userdma
import userdma.soft
from processes import said
from userdma import Nic, _core

CLASSES = {name: thing for name, thing in vars(_core).items() if isinstance(thing, type)}
# Of Python itself, or values that are whole once they are made.
WHOLE = {"Side", "Completion", "DmaFault"}


def test_the_classes() -> None:
    """The walk below meets what there is."""
    assert {"Qp", "Region", "Domain", "Wire", "Memory", "Bar", "Function", "SoftBnxt", "Tap", "VirtualClock"} < set(
        CLASSES
    )
    assert set(CLASSES) >= WHOLE


@pytest.mark.parametrize("name", sorted(set(CLASSES) - WHOLE))
def test_an_object_whose_init_did_not_run(name: str) -> None:
    """Everything that can be asked of it is a TypeError, not a crash."""
    cls: Any = CLASSES[name]
    thing = cls.__new__(cls)
    repr(thing), hash(thing), thing == thing, dir(thing)
    if hasattr(cls, "__len__"):
        with pytest.raises(TypeError):
            len(thing)
    if name in ("Memory", "Region"):
        with pytest.raises(TypeError):
            memoryview(thing)
    asked = 0
    for owner in cls.__mro__:
        for attribute, member in vars(owner).items():
            if attribute.startswith("__") or owner.__module__ != "userdma._core":
                continue
            if isinstance(member, property):
                with pytest.raises(TypeError):
                    getattr(thing, attribute)
            elif callable(member) or inspect.ismethoddescriptor(member):
                for arguments in ((), (0,), (thing,), (0, 0), (userdma.Side.SEND,), (userdma.Side.SEND, 0), (0, b"")):
                    with pytest.raises(TypeError):
                        getattr(thing, attribute)(*arguments)
            else:
                continue
            asked += 1
    assert asked
    for call in (
        lambda: userdma.open(thing),
        lambda: userdma.soft.bnxt(wire=thing),
        lambda: userdma.soft.bnxt(clock=thing),
        lambda: userdma.soft.Wire(clock=thing),
        lambda: userdma.soft.Tap(thing, bytes([2, 0, 0, 0, 0, 1])),
        lambda: userdma.soft.serve(thing, "/nowhere"),
        lambda: _core.Domain(thing),
        lambda: _core.Qp(thing),
        lambda: _core.Region(thing, address=0, va=0, bytes=1, lkey=0, rkey=0),
    ):
        with pytest.raises(TypeError):
            call()


def test_half_made_objects_of_the_package(nic: Nic) -> None:
    qp, region = userdma.Qp.__new__(userdma.Qp), userdma.Region.__new__(userdma.Region)
    for call in (
        lambda: repr(qp),
        lambda: qp.send(region, 0, 1),
        lambda: qp.poll(userdma.Side.SEND),
        lambda: repr(region),
        lambda: len(region),
        lambda: memoryview(region),
    ):
        with pytest.raises((TypeError, AttributeError)):
            call()
    whole = userdma.Qp.make(nic)
    with pytest.raises(TypeError):
        whole.send(region, 0, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: userdma.soft.Tap(None, bytes([2, 0, 0, 0, 0, 1])),  # type: ignore[arg-type]
        lambda: _core.Domain(None),  # type: ignore[arg-type]
        lambda: _core.Region(None, address=0, va=0, bytes=1, lkey=0, rkey=0),  # type: ignore[arg-type]
        lambda: _core.VfioUserServer(None, "/nowhere"),  # type: ignore[arg-type]
        lambda: _core.SoftBnxt("x", None, bytes(6), clock=userdma.soft.Clock()),  # type: ignore[arg-type]
        lambda: _core.SoftBnxt("x", userdma.soft.Wire(), bytes(6), clock=None),  # type: ignore[arg-type]
    ],
)
def test_none_in_the_place_of_an_object(call: Any) -> None:
    with pytest.raises(TypeError):
        call()


def test_nics_are_opened_and_not_copied(nic: Nic) -> None:
    with pytest.raises(TypeError, match=r"userdma\.open"):
        Nic()
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied or pickled"):
            call(nic)


def test_the_firmware_of_a_function_must_be_callable() -> None:
    function = userdma.soft.bnxt(wire=userdma.soft.Wire())
    with pytest.raises(TypeError, match="hwrm must be callable, not NoneType"):
        function.set_firmware(None, None, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reset must be callable, not int"):
        function.set_firmware(print, print, 3)  # type: ignore[arg-type]
    function.release()


def test_reads_past_all_memory() -> None:
    function = userdma.soft.bnxt(wire=userdma.soft.Wire())
    with pytest.raises(ValueError, match="n is 9223372036854775808"):
        function.dma_read(0, 1 << 63)
    with pytest.raises(IndexError):
        function.bar_bytes(0, 0, 1 << 63)
    function.release()


def test_threads_leave_faults_to_their_handlers() -> None:
    """The library's threads take no signal of the process, but those that say what a thread itself did wrong."""
    before = set(os.listdir("/proc/self/task"))
    with userdma.open("soft:bnxt", wire=userdma.soft.Wire()):
        ours = set(os.listdir("/proc/self/task")) - before
        assert ours
        for task in ours:
            with open(f"/proc/self/task/{task}/status") as status:
                (line,) = (line for line in status if line.startswith("SigBlk"))
            blocked = int(line.split()[1], 16)
            for own in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"):
                assert not blocked >> getattr(signal, own) - 1 & 1, own
            for other in ("SIGINT", "SIGTERM", "SIGALRM", "SIGUSR1", "SIGCHLD"):
                assert blocked >> getattr(signal, other) - 1 & 1, other
    assert threading.active_count()


def test_another_interpreter() -> None:
    """It is told at once that userdma is for the main one."""
    text = said("""
        import faulthandler, sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        faulthandler.dump_traceback_later(30, exit=True)
        other = interpreters.create()
        code = "import sys; sys.path = %r\\n" % sys.path
        code += "try:\\n  import userdma\\nexcept ImportError as error:\\n  print(error, flush=True)"
        interpreters.run_string(other, code)
        interpreters.destroy(other)
        import userdma
        userdma.open("soft:bnxt").close()
        print("and in the main one it works")
    """)
    assert "main interpreter" in text
    assert text.endswith("and in the main one it works\n")
