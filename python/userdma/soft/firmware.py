"""What the firmware of soft NICs has in common: faults that a test asks for, a log, and time.

A family's firmware (userdma.soft.bnxt.firmware, userdma.soft.mlx5.firmware) adds its channels and what it has given
out.
"""

from __future__ import annotations

import fnmatch
import os
import random
import sys
import threading
import traceback
import weakref
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from userdma import _core
from userdma.errors import Error
from userdma.messages import Fields
from userdma.nic import thread
from userdma.soft.faults import Entry, Fault, Faults, Kind

_LOG = 10_000  # commands that the log keeps

Core = TypeVar("Core", bound="_core.SoftFunction")


class Firmware(ABC, Generic[Core]):
    """The firmware of one function: the faults that a test asks of it, and its log.

    A fault's ``command`` is a name or a pattern (userdma.soft.faults); ``k`` picks the k-th command from now on that
    matches.
    """

    def __init__(self, function: Core, seed: int) -> None:
        # The function holds its firmware, not the other way round: no cycle through the compiled object.
        self._function = weakref.ref(function)
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.faults = Faults()
        self.dropped: Counter[str] = Counter()  # what could not be answered, by reason
        self.bugs: list[str] = []  # tracebacks of exceptions in the firmware itself: none is ever expected
        self._log: deque[Entry] = deque(maxlen=_LOG)
        self._generation = 0
        self._stopped = False
        self._pending: list[Callable[[], None]] = []  # what came while it was stopped
        self._timers: set[threading.Timer] = set()
        #: Whether the port's link is up after a reset. False: a driver before took it down, as Linux's do with their
        #: network interface, and a reset of the function leaves that to the next driver.
        self.link_after_reset = True
        _firmwares.add(self)

    @property
    def core(self) -> Core:
        """The data path. It is alive whenever the firmware runs."""
        function = self._function()
        if function is None:
            raise ReferenceError("the soft function of this firmware is gone")
        return function

    # ---- what the registers call ---------------------------------------------------------------------------------

    def take(self, call: Callable[[], None]) -> None:
        """Does what a register's store asks for; if the firmware has stopped, once it resumes."""
        with self.lock:
            if self._stopped:
                self._pending.append(lambda: self.take(call))
            else:
                self.guard(call)

    def reset(self) -> None:
        """Function-level reset: the firmware starts anew, with nothing given out, and answers if it had stopped."""
        with self.lock:
            self._stopped = False
            self._pending.clear()
            self.guard(self.forget)
            self.guard(self.start)

    @abstractmethod
    def _link_down(self) -> None:
        """The port's link is down, as if its driver had said so."""

    @abstractmethod
    def start(self) -> None:
        """What its registers show when it has started."""

    @abstractmethod
    def _forget(self) -> None:
        """Gives back everything that was given out, here and in the data path."""

    @abstractmethod
    def _counts(self) -> dict[str, int]:
        """How much of everything is given out."""

    # ---- faults ------------------------------------------------------------------------------------------------------

    def refuse(self, command: str, k: int = 1, error: int | None = None) -> None:
        """Refuses a command without running it, with ``error`` as its error code or status; without it, the family's
        for a failure."""
        self._plan(Fault(Kind.REFUSE, command, k, status=error))

    def delay(self, command: str, seconds: float, k: int = 1) -> None:
        """Runs a command at once and writes its answer ``seconds`` later."""
        self._plan(Fault(Kind.DELAY, command, k, seconds=seconds))

    def lose(self, command: str, k: int = 1) -> None:
        """Runs a command and never answers it. Later commands are answered."""
        self._plan(Fault(Kind.LOSE, command, k))

    def garbage(self, command: str, k: int = 1, data: bytes | None = None) -> None:
        """Runs a command and answers with ``data``, or with random bytes."""
        if data is not None:
            if not isinstance(data, bytes | bytearray | memoryview):
                raise TypeError(f"data must be bytes, not {type(data).__name__}")
            data = bytes(data)
        self._plan(Fault(Kind.GARBAGE, command, k, data=data))

    def stop(self, after: str | None = None, *, at: str | None = None, within: str | None = None, k: int = 1) -> None:
        """Stops: from a point on the firmware neither runs nor answers a command, until resume or reset.

        At once, or ``at`` a command (which it does not run any more), ``within`` one (run, but not answered) or
        ``after`` one (answered). The data path goes on.
        """
        given = [name for name in (after, at, within) if name is not None]
        if len(given) > 1:
            raise ValueError("only one of after, at and within says where to stop")
        if after is not None:
            self._plan(Fault(Kind.STOP_AFTER, after, k))
        elif at is not None:
            self._plan(Fault(Kind.STOP_AT, at, k))
        elif within is not None:
            self._plan(Fault(Kind.STOP_IN, within, k))
        else:
            with self.lock:
                self.halt()

    def resume(self) -> None:
        """Answers again. Commands that came in the meantime are run and answered now, late."""
        with self.lock:
            self._stopped = False
            pending, self._pending = self._pending, []
            for call in pending:
                call()

    def clear(self) -> None:
        """Drops the faults that have not acted yet, and resumes."""
        with self.lock:
            self.faults.clear()
            self.resume()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @abstractmethod
    def _commands(self) -> Iterable[str]:
        """The names of the commands that a driver can send."""

    def _plan(self, fault: Fault) -> None:
        pattern = fault.command
        if not isinstance(pattern, str):
            raise TypeError(f"command must be a command's name or a pattern, not {type(pattern).__name__}")
        if not pattern.startswith("unknown_") and not fnmatch.filter(self._commands(), pattern):
            raise ValueError(f"no command of this firmware is called {pattern!r}: its log names those that were sent")
        with self.lock:
            self.faults.plan(fault)

    # ---- what a test looks at ----------------------------------------------------------------------------------------

    @property
    def log(self) -> list[Entry]:
        """The last commands (10,000 at most), oldest first."""
        with self.lock:
            return list(self._log)

    def counts(self) -> dict[str, int]:
        """How much of everything is given out: what a test compares before and after. Names, sorted, to numbers."""
        with self.lock:
            counts = self._counts()
            core = self._function()
            if core is not None:
                counts.update({f"core_{name}": number for name, number in core.counts().items()})
            return dict(sorted(counts.items()))

    # ---- for the channels --------------------------------------------------------------------------------------------

    def note(self, name: str, request: Fields, status: int | None, why: str = "") -> None:
        self._log.append(Entry(name, request, status, why))

    def halt(self) -> None:
        """Stops here."""
        self._stopped = True

    def pend(self, call: Callable[[], None]) -> None:
        """``call`` once the firmware resumes."""
        self._pending.append(call)

    def bug(self, error: BaseException) -> None:
        """An exception in the firmware is a bug of ours; a NIC does not end for it."""
        self.bugs.append("".join(traceback.format_exception(error)))
        self.dropped["bug"] += 1

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """``call`` after ``seconds``, unless the firmware was reset in the meantime."""
        generation = self._generation
        timer: threading.Timer

        def fire() -> None:
            thread.nics = threading.current_thread() is timer
            with self.lock:
                self._timers.discard(timer)
                if generation == self._generation and self._function() is not None:
                    self.guard(call)

        timer = threading.Timer(seconds, fire)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def guard(self, call: Callable[[], None]) -> None:
        _look_at_thread()
        try:
            call()
        except Error:
            self.dropped["function_gone"] += 1  # released, or off the bus, in the meantime
        except Exception as error:
            self.bug(error)

    def forget(self) -> None:
        """Gives back everything that was given out, and drops the answers that are still to come."""
        self._generation += 1
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._forget()
        if not self.link_after_reset:
            self._link_down()


_firmwares: weakref.WeakSet[Firmware[Any]] = weakref.WeakSet()


def _in_child() -> None:
    for firmware in list(_firmwares):
        firmware.lock = threading.RLock()  # the old one may have been held by a thread that is not here


os.register_at_fork(after_in_child=_in_child)


def _look_at_thread() -> None:
    """Notes whether this thread is one of the NICs' own: the firmware is then all the Python that runs in it.

    Where the collector runs a finalizer of the program within the firmware, in such a thread, a control call would
    wait for the one that the firmware is at work for, and that one for it.
    """
    if thread.nics or threading.get_ident() == threading.main_thread().ident:
        return
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    thread.nics = frame.f_globals.get("__name__", "").startswith("userdma.soft.")
