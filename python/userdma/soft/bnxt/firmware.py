"""The firmware of a soft Thor2: one processor that reads requests from two channels and answers them.

HWRM (hwrm.py): a request is stored in a window of BAR 0, the trigger says that it is there, and the answer goes by DMA
to the address that the request names. RCFW (rcfw.py): requests lie in a ring of the driver's (CMDQ), a trigger tells
how far it was filled, answers go to an event ring (CREQ).

The firmware runs in the thread that stored to a trigger. What it gives out lives in State; everything that moves data
(queues, keys) is made in the NIC's data path, ``_core.SoftBnxt``, at the same time. Faults (faults.py) act between a
command's decoding and its answer.
"""

from __future__ import annotations

import random
import threading
import traceback
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from userdma import _core
from userdma.errors import Error
from userdma.messages import Fields
from userdma.soft.bnxt.faults import Entry, Fault, Faults, Kind
from userdma.soft.bnxt.hwrm import Hwrm
from userdma.soft.bnxt.rcfw import Rcfw
from userdma.soft.bnxt.state import State

if TYPE_CHECKING:
    from userdma.soft.bnxt.resources import Limits

_LOG = 10_000  # commands that the log keeps


class Firmware:
    """The firmware of one function: its state, the faults that a test asks of it, and its log.

    A fault's ``command`` is ``"hwrm_ver_get"``, ``"create_qp"``, or a pattern (faults.py); ``k`` picks the k-th command
    from now on that matches.
    """

    def __init__(self, function: _core.SoftBnxt, mac: bytes, limits: Limits, seed: int) -> None:
        # The function holds its firmware, not the other way round: no cycle through the compiled object.
        self._function = weakref.ref(function)
        self.mac = mac
        self.limits = limits
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.faults = Faults()
        self.dropped: Counter[str] = Counter()  # what could not be answered, by reason
        self.bugs: list[str] = []  # tracebacks of exceptions in the firmware itself: none is ever expected
        self.state = State(limits)
        self._log: deque[Entry] = deque(maxlen=_LOG)
        self._generation = 0
        self._stopped = False
        self._pending: list[Callable[[], None]] = []  # triggers that came while it was stopped
        self._timers: set[threading.Timer] = set()
        self._hwrm = Hwrm(self)
        self._rcfw = Rcfw(self)

    @property
    def core(self) -> _core.SoftBnxt:
        """The data path. It is alive whenever the firmware runs."""
        function = self._function()
        if function is None:
            raise ReferenceError("the soft function of this firmware is gone")
        return function

    # ---- what the registers call ---------------------------------------------------------------------------------

    def hwrm(self, window: bytes) -> None:
        """The HWRM trigger was stored to; ``window`` is what the request window holds."""
        with self.lock:
            if self._stopped:
                self._pending.append(lambda: self.hwrm(window))
            else:
                self.guard(lambda: self._hwrm.request(window))

    def rcfw(self, producer: int) -> None:
        """The RCFW trigger was stored to; ``producer`` is the producer word."""
        with self.lock:
            if self._stopped:
                self._pending.append(lambda: self.rcfw(producer))
            else:
                self.guard(lambda: self._rcfw.trigger(producer))

    def reset(self) -> None:
        """Function-level reset: the firmware starts anew, with nothing given out, and answers if it had stopped."""
        with self.lock:
            self._stopped = False
            self._pending.clear()
            self.guard(self.forget)

    # ---- faults ------------------------------------------------------------------------------------------------------

    def refuse(self, command: str, k: int = 1, error: int | None = None) -> None:
        """Refuses a command without running it, with ``error`` as its error code (HWRM) or status (RCFW): both FAIL."""
        self._plan(Fault(Kind.REFUSE, command, k, status=error))

    def delay(self, command: str, seconds: float, k: int = 1) -> None:
        """Runs a command at once and writes its answer ``seconds`` later."""
        self._plan(Fault(Kind.DELAY, command, k, seconds=seconds))

    def wrong_sequence(self, command: str, k: int = 1) -> None:
        """Answers a command under the next sequence number (HWRM) or cookie (RCFW) instead of its own."""
        self._plan(Fault(Kind.WRONG_SEQUENCE, command, k))

    def wrong_cookie(self, command: str, k: int = 1) -> None:
        """``wrong_sequence``, as the RoCE command channel calls it."""
        self.wrong_sequence(command, k)

    def garbage(self, command: str, k: int = 1, data: bytes | None = None) -> None:
        """Runs a command and answers with ``data``, or with random bytes.

        HWRM: the bytes at the answer's address, as they are. RCFW: 16 bytes of the event ring, but for the valid bit,
        which the ring's state decides.
        """
        self._plan(Fault(Kind.GARBAGE, command, k, data=data))

    def lose(self, command: str, k: int = 1) -> None:
        """Runs a command and never answers it. Later commands are answered."""
        self._plan(Fault(Kind.LOSE, command, k))

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
                self._stopped = True

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

    def _plan(self, fault: Fault) -> None:
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
            counts = self.state.counts()
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
            with self.lock:
                self._timers.discard(timer)
                if generation == self._generation and self._function() is not None:
                    self.guard(call)

        timer = threading.Timer(seconds, fire)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Error:
            self.dropped["function_gone"] += 1  # released, or off the bus, in the meantime
        except Exception as error:
            self.bug(error)

    def forget(self) -> None:
        """Gives back everything that was given out, in both channels, and in the data path."""
        self._generation += 1
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._rcfw.forget()
        self._hwrm.forget()
        self.state = State(self.limits)
