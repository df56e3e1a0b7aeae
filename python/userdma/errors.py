"""What a control call can fail with.

A wrong argument is ``ValueError``, one of a wrong type ``TypeError``, and both come before any of these. A failed work
queue entry is a value, its ``Completion``, and becomes an exception only by ``Completion.raise_for_status``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userdma._core import Completion


class Error(Exception):
    """A refusal by the machine, the system or the firmware: what was refused, by whom, and what to change
    where that is known."""


class DmaMemoryError(Error):
    """No memory that the NIC could reach, no room to pin it, or a pin that the system refuses."""


class MachineError(Error):
    """The machine or the PCI function failed or refused: it left the bus, belongs to another, or was closed."""


class KernelRefusedError(MachineError):
    """The kernel's driver of a NIC that stays its own refused a call, ``call``, with the error ``errno``."""

    def __init__(self, message: str, call: str = "", errno: int = 0) -> None:
        super().__init__(message)
        self.call = call
        self.errno = errno


class FirmwareError(Error):
    """A firmware command did not succeed. ``command`` is its name; the subclasses say in which way it failed."""

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command


class FirmwareRefusedError(FirmwareError):
    """The firmware answered with an error code, ``status``, and did nothing."""

    def __init__(self, message: str, command: str = "", status: int = 0) -> None:
        super().__init__(message, command)
        self.status = status


class FirmwareTimeoutError(FirmwareError):
    """The firmware gave no answer within the command's time limit; whether it ran the command is unknown."""


class FirmwareAnswerError(FirmwareError):
    """The firmware answered, but not this command: a wrong sequence number, cookie, size or event."""


class FirmwareStoppedError(FirmwareError):
    """The firmware had stopped answering before this command, which was therefore not sent."""


class FirmwareInternalError(FirmwareError):
    """The firmware reported that it failed itself: it answers nothing any more until the NIC is reset."""


class FirmwareBusyError(FirmwareError):
    """Nothing was done: too many commands before have no answer, or this very thread is in the middle of another
    control call, whose signal handler or callback this is."""


def still_under_way(what: str, other: str) -> FirmwareBusyError:
    """That `what` was not done in the middle of the thread's `other`."""
    return FirmwareBusyError(
        f"{what}: {other} is still under way in this thread, and this is a signal handler or a callback within it; "
        f"nothing was done, so do it after the handler's return, or in another thread",
        what,
    )


class WorkError(Error):
    """A completion that failed, where a program asked for an exception (``Completion.raise_for_status``)."""

    def __init__(self, message: str, completion: Completion | None = None) -> None:
        super().__init__(message)
        self.completion = completion
