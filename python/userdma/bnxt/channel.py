"""Firmware commands: pack, send, wait, check, decode. One mechanism for both of the chip's command channels.

A command's time limit runs out in one of two ways: nothing came (``FirmwareTimeoutError``), or something came that
answers no command under way (``FirmwareAnswerError``). Either way, and also where an exception such as
``KeyboardInterrupt`` ended the wait, the command stays *abandoned*: the firmware may yet run it and answer, so the
memory that it names must stay. A late answer is taken for what it is, and never for a later command's.

After a command got no answer the firmware counts as stopped: every command on either channel fails at once with
``FirmwareStoppedError``, until the late answer arrives after all.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from userdma import _core
from userdma.errors import (
    Error,
    FirmwareAnswerError,
    FirmwareRefusedError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    MachineError,
)
from userdma.messages import Command, Fields

_SPIN = 64  # looks before the first sleep
_SLEEP = 20e-6  # seconds, doubled up to the next
_SLEEP_MOST = 1e-3


def _print_trace(line: str) -> None:
    print(f"userdma: {line}", file=sys.stderr, flush=True)


#: Called with a line for each command and answer; set by the environment variable USERDMA_TRACE, or by a program.
trace: Callable[[str], None] | None = _print_trace if os.environ.get("USERDMA_TRACE", "") not in ("", "0") else None


class Firmware:
    """What the channels of one function know together: whether its firmware still answers."""

    def __init__(self, function: _core.Function) -> None:
        self.function = function
        self.lock = threading.RLock()
        self.busy = ""  # the command under way
        self.closed = ""  # why no command may be sent any more
        self.stopped = ""  # what the firmware did not answer
        self.stopped_by: tuple[Channel, int] | None = None

    def check(self, command: str) -> None:
        """Raise if no command can be sent."""
        if self.closed:
            raise MachineError(f"{command}: {self.closed}")
        if self.function.failed:
            raise MachineError(f"{command}: {self.function.name} left the bus: its registers read all ones")

    def may_answer(self) -> bool:
        """Whether a firmware that may still act on earlier commands is there and answers new ones."""
        return not (self.closed or self.stopped or self.function.failed)


class Channel(ABC):
    """A command channel. A command is known by a number that its answer carries."""

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

    @abstractmethod
    def _collect(self) -> None:
        """Take the late answers that are there; no command is under way."""

    @abstractmethod
    def _status(self, answer: Fields) -> tuple[int, str]:
        """The answer's error code, 0 for none, and its meaning."""

    def call(self, name: str, **fields: Any) -> Fields:
        """Run the command and return the fields of its answer."""
        firmware = self.firmware
        command = self.commands[name]
        firmware.check(name)  # before the lock, which a fork may have left taken
        with firmware.lock:
            if firmware.busy:  # the lock is this thread's already: a signal handler or a callback of this very thread
                raise Error(f"{name}: {firmware.busy} is still under way in this thread")
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
            firmware.busy = name
            try:
                return self._run(command, fields)
            finally:
                firmware.busy = ""

    def _run(self, command: Command, fields: dict[str, Any]) -> Fields:
        number = self._next()
        request = self._pack(number, command, fields)
        self._stray = ""
        self._abandoned[number] = command.name  # until its answer is here
        if trace is not None:
            trace(f"{command.name} #{number}: {command.request.unpack(request)!r}")
        self._post(number, request)
        data = self._wait(number, command)
        del self._abandoned[number]
        answer = command.response.unpack(data, short=True)
        status, meaning = self._status(answer)
        if trace is not None:
            trace(f"{command.name} #{number}: {meaning if status else 'done'} {answer!r}")
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
            if function.failed:
                raise MachineError(f"{command.name}: {function.name} left the bus: its registers read all ones")
            if late:
                break
            looks += 1
            if looks > _SPIN:
                time.sleep(pause)
                pause = min(pause * 2, _SLEEP_MOST)
        waited = f"{limit:g} s"
        if self._stray:
            message = f"{command.name} got no answer within {waited}, but the firmware sent {self._stray}"
            if trace is not None:
                trace(message)
            raise FirmwareAnswerError(message, command.name)
        self.firmware.stopped = f"{command.name} got no answer within {waited}"
        self.firmware.stopped_by = (self, number)
        message = f"{command.name}: the firmware of {function.name} gave no answer within {waited}"
        if trace is not None:
            trace(message)
        raise FirmwareTimeoutError(message, command.name)

    def _late(self, number: int) -> bool:
        """An answer with this number came: True if it is a late one, to a command that was abandoned."""
        name = self._abandoned.pop(number, None)
        if name is None:
            return False
        if trace is not None:
            trace(f"{name} #{number}: answered late")
        if self.firmware.stopped_by == (self, number):  # it answers again
            self.firmware.stopped, self.firmware.stopped_by = "", None
        return True
