"""What NICs' firmware is asked and what it answers, for whoever wants to see it.

The environment variable ``USERDMA_TRACE=1``, or ``--trace`` on the command line, prints every command and answer,
decoded by name, to standard error. A program listens itself:

    >>> import userdma
    >>> from userdma import trace
    >>> seen = []
    >>> with userdma.open("soft:bnxt") as nic, trace.listening(seen.append):
    ...     userdma.Region.host(nic, 4096).deregister()
    >>> [(event.command, event.what) for event in seen if event.command == "deregister_mr"]
    [('deregister_mr', 'sent'), ('deregister_mr', 'answered')]
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

__all__ = ["Event", "Listener", "What", "hexdump", "listening", "to_stderr"]


#: "sent", right before it is; then "answered", or "refused" with an error code, or "no answer" within its time; "late"
#: is the answer of a command that was given up.
What = Literal["sent", "answered", "refused", "no answer", "late"]


@dataclass(frozen=True, slots=True)
class Event:
    """A step of a firmware command."""

    seconds: float  #: when, on the monotonic clock
    function: str  #: the PCI function's name
    command: str  #: the command's, as in the message tables
    number: int  #: what tells it from the commands before and after it
    what: What
    text: str  #: the fields that are not zero, by name; or what went wrong
    data: bytes = b""  #: the message as it lies in memory

    def __str__(self) -> str:
        text = self.text if self.what == "sent" else f"{self.what}: {self.text}" if self.text else self.what
        return f"{self.function} {self.command} #{self.number}: {text}"


Listener = Callable[[Event], object]


def to_stderr(event: Event) -> None:
    """Prints the event as one line, by one write: the lines of threads and processes do not mix."""
    sys.stderr.write(f"userdma: {event}\n")
    sys.stderr.flush()


#: Who is told. Each is called within the command, by its thread: it may not call the NIC.
listeners: tuple[Listener, ...] = (to_stderr,) if os.environ.get("USERDMA_TRACE", "") not in ("", "0") else ()
_lock = threading.RLock()


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()  # the old one may have been held by a thread that is not here


os.register_at_fork(after_in_child=_in_child)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Calls ``listener`` for every event of every NIC of this process, as long as the ``with`` statement lasts."""
    global listeners
    try:
        with _lock:
            listeners = (*listeners, listener)
        yield
    finally:
        with _lock:
            _forget(listener)


def _forget(listener: Listener) -> None:
    global listeners
    while True:
        before = listeners
        kept = list(before)
        with suppress(ValueError):  # an exception came before it was among them
            kept.remove(listener)
        after = tuple(kept)
        if listeners is before:  # else a signal's handler in this thread has added one
            listeners = after
            return


def tell(function: str, command: str, number: int, what: What, text: str, data: bytes = b"") -> None:
    """Tells everyone who listens; what a listener raises ends the command that is told of."""
    event = Event(time.monotonic(), function, command, number, what, text, data)
    for listener in listeners:
        listener(event)


def hexdump(data: bytes) -> str:
    """Lines of 16 bytes: offset, bytes, and the bytes that are printable ASCII. Lines of zeros alone fold into one."""
    lines = []
    zeros = False
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        if not any(row) and 0 < at < len(data) - 16:
            if not zeros:
                lines.append("*")
            zeros = True
            continue
        zeros = False
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at:04x}  {row.hex(' '):47}  {shown}")
    return "\n".join(lines)
