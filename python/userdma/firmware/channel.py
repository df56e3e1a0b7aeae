"""Firmware commands: pack, send, wait, check, decode. One mechanism for every command channel.

A command's time limit runs out in one of two ways: nothing came (``FirmwareTimeoutError``), or something came that
answers no command under way (``FirmwareAnswerError``). Either way, and also where an exception such as
``KeyboardInterrupt`` ended the wait, the command stays *abandoned*: the firmware may yet run it and answer, so the
memory that it names must stay. A late answer is taken for what it is, and never for a later command's.

After a command got no answer the firmware counts as stopped: every command on any channel of the function fails at
once with ``FirmwareStoppedError``, until the late answer arrives after all.

A command that fails before it is sent did nothing. Who must tell hands in a function that runs right before it is.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from userdma import _core, trace
from userdma.errors import (
    Error,
    FirmwareAnswerError,
    FirmwareBusyError,
    FirmwareRefusedError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    MachineError,
    still_under_way,
)
from userdma.firmware import memory
from userdma.messages import Command, Fields

_SPIN = 64  # looks before the first sleep
_SLEEP = 20e-6  # seconds, doubled up to the next
_SLEEP_MOST = 1e-3


class Firmware:
    """What the channels of one function know together: whether its firmware still answers."""

    def __init__(self, function: _core.Function) -> None:
        self.function = function
        self.generation = memory.generation
        self.lock = threading.RLock()
        self.busy = ""  # the command under way
        self.thread = 0  # and whose it is
        self.closed = ""  # why no command may be sent any more
        self.stopped = ""  # what the firmware did not answer
        self.stopped_by: tuple[Channel, int] | None = None

    def check(self, command: str) -> None:
        """Raise if no command can be sent."""
        if self.closed:
            raise MachineError(f"{command}: {self.closed}")
        if self.function.failed:
            raise MachineError(f"{command}: {self.function.name} {self.function.failure}")

    def check_reentry(self, what: str) -> None:
        """Raise if this very thread is in the middle of a command: in a signal handler or a callback of it."""
        if self.busy and self.thread == threading.get_ident():
            raise still_under_way(what, self.busy)

    def may_answer(self) -> bool:
        """Whether a firmware that may still act on earlier commands is there and answers new ones."""
        return not (self.closed or self.stopped or self.function.failed)


class Channel(ABC):
    """A command channel. A command is known by a number that its answer carries."""

    refusals: tuple[type[Error], ...] = (FirmwareRefusedError,)

    def __init__(self, firmware: Firmware, commands: dict[str, Command], limit: float) -> None:
        self.firmware = firmware
        self.commands = commands
        self.limit = limit  #: seconds that a command may take
        self.limits: dict[str, float] = {}  #: where a command may take longer
        self._abandoned: dict[int, str] = {}
        self._stray = ""  # what came during this wait that answers nothing

    @abstractmethod
    def _next(self) -> int:
        """The number of the next command."""

    @abstractmethod
    def _pack(self, number: int, command: Command, fields: dict[str, Any]) -> bytes:
        """The request, its header included."""

    @abstractmethod
    def _post(self, number: int, request: bytes) -> None:
        """Hand the request to the firmware."""

    @abstractmethod
    def _look(self, number: int, command: Command) -> bytes | None:
        """The answer of that command if it is there. Notes what else there is: ``_late`` and ``_stray``."""

    def _condition(self) -> str:
        """What else is seen of a firmware that gave no answer, as the end of the sentence that says so."""
        return ""

    @abstractmethod
    def _collect(self) -> None:
        """Take the late answers that are there; no command is under way."""

    @abstractmethod
    def _status(self, answer: Fields) -> tuple[int, str]:
        """The answer's error code, 0 for none, and its meaning."""

    def _full(self, name: str) -> FirmwareBusyError:
        """No room for one command more."""
        return FirmwareBusyError(
            f"{name} was not sent: the command queue is full of commands that have not been answered; close the NIC "
            f"and open it again to reset it",
            name,
        )

    def call(self, name: str, sending: Callable[[], object] | None = None, /, **fields: Any) -> Fields:
        """Run the command and return the fields of its answer. `sending` runs right before it is sent."""
        firmware = self.firmware
        command = self.commands[name]
        firmware.check(name)  # before the lock, which a fork may have left taken
        with firmware.lock:
            firmware.check_reentry(name)
            firmware.check(name)
            if self._abandoned:
                self._collect()
            if firmware.stopped:
                if firmware.stopped_by is not None:
                    firmware.stopped_by[0]._collect()
                if firmware.stopped:
                    raise FirmwareStoppedError(
                        f"{name} was not sent: the firmware of {firmware.function.name} stopped answering "
                        f"({firmware.stopped}); close the NIC and open it again to reset it",
                        name,
                    )
            try:
                firmware.thread = threading.get_ident()
                firmware.busy = name
                return self._run(command, fields, sending)
            finally:
                firmware.busy = ""

    def _run(self, command: Command, fields: dict[str, Any], sending: Callable[[], object] | None) -> Fields:
        number = self._next()
        request = self._pack(number, command, fields)
        self._stray = ""
        if trace.listeners:
            self._tell(command.name, number, "sent", repr(command.request.unpack(request)), request)
        if sending is not None:
            sending()
        self._abandoned[number] = command.name  # until its answer is here
        self._post(number, request)
        data = self._wait(number, command)
        del self._abandoned[number]
        answer = command.response.unpack(data, short=True)
        status, meaning = self._status(answer)
        if trace.listeners:
            text = f"{meaning} {answer!r}" if status else repr(answer)
            self._tell(command.name, number, "refused" if status else "answered", text, data)
        if status:
            raise FirmwareRefusedError(
                f"{command.name} was refused by the firmware of {self.firmware.function.name}: {meaning}",
                command.name,
                status,
            )
        return answer

    def _wait(self, number: int, command: Command) -> bytes:
        function = self.firmware.function
        limit = self.limits.get(command.name, self.limit)
        start = time.monotonic()
        looks, pause = 0, _SLEEP
        while True:
            late = time.monotonic() - start > limit  # before the look: a process that was stopped looks once more
            data = self._look(number, command)
            if data is not None:
                return data
            if self.firmware.closed or function.failed:
                # closed: this is the child of a fork
                why = self.firmware.closed or f"{function.name} {function.failure}"
                self._tell(command.name, number, "no answer", why)
                raise MachineError(f"{command.name}: {why}")
            if late:
                break
            looks += 1
            if looks > _SPIN:
                time.sleep(pause)
                pause = min(pause * 2, _SLEEP_MOST)
        waited = f"{limit:g} s"
        if self._stray:
            message = f"{command.name} got no answer within {waited}, but the firmware sent {self._stray}"
            self._tell(command.name, number, "no answer", message)
            raise FirmwareAnswerError(message, command.name)
        self.firmware.stopped = f"{command.name} got no answer within {waited}"
        self.firmware.stopped_by = (self, number)
        message = f"{command.name}: the firmware of {function.name} gave no answer within {waited}{self._condition()}"
        self._tell(command.name, number, "no answer", message)
        raise FirmwareTimeoutError(message, command.name)

    def _tell(self, command: str, number: int, what: trace.What, text: str, data: bytes = b"") -> None:
        trace.tell(self.firmware.function.name, command, number, what, text, data)

    def _late(self, number: int) -> bool:
        """An answer with this number came: True if it is a late one, to a command that was abandoned."""
        name = self._abandoned.get(number)
        if name is None:
            return False
        if self.firmware.stopped_by == (self, number):  # it answers again
            self.firmware.stopped, self.firmware.stopped_by = "", None
        del self._abandoned[number]
        self._tell(name, number, "late", "")
        return True
