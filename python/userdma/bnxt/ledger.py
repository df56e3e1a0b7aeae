"""What a sequence of firmware commands took, to be given back in reverse order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from userdma import _core
from userdma.bnxt.channel import Channel
from userdma.errors import FirmwareRefusedError, FirmwareStoppedError
from userdma.messages import Fields


@dataclass
class _Undo:
    channel: Channel
    command: str
    fields: dict[str, Any]


class Ledger:
    """Memory and firmware objects, in the order they were taken.

    They are given back in reverse order: first every object, then the memory. So memory is never freed that the
    firmware may still name: not while one of its objects could not be given back, nor after a command whose outcome is
    unknown (no answer, or an exception ended the wait for it). It then stays in the ledger until the function was
    reset.
    """

    def __init__(self, function: _core.Function) -> None:
        self._function = function
        self._memory: list[Callable[[], object]] = []
        self._objects: list[_Undo] = []
        self.unsure = ""  #: the command whose outcome is unknown

    def __bool__(self) -> bool:
        return bool(self._memory or self._objects)

    def alloc(self, n: int) -> _core.Memory:
        function = self._function
        memory = function.alloc_dma(n)
        self._memory.append(lambda: function.free_dma(memory))
        return memory

    def pin(self, address: int, n: int) -> _core.Memory:
        function = self._function
        memory = function.pin(address, n)
        self._memory.append(lambda: function.unpin(memory))
        return memory

    def afterwards(self, give_back: Callable[[], object]) -> None:
        """Something of this process's, to be given back like memory."""
        self._memory.append(give_back)

    def call(self, channel: Channel, name: str, **fields: Any) -> Fields:
        """Run a command that may name what is in this ledger."""
        self.unsure = name
        try:
            answer = channel.call(name, **fields)
        except (FirmwareRefusedError, FirmwareStoppedError, ValueError):  # it did nothing, or was not sent
            self.unsure = ""
            raise
        self.unsure = ""
        return answer

    def undo(self, channel: Channel, name: str, **fields: Any) -> None:
        """An object was just made at the firmware: this command gives it back."""
        self._objects.append(_Undo(channel, name, fields))

    def give_back(self) -> None:
        """Give everything back. An error or an exception of a command ends it; what is left stays here."""
        if self.unsure:
            return
        while self._objects:
            last = self._objects[-1]
            self.call(last.channel, last.command, **last.fields)
            self._objects.pop()
        while self._memory:
            self._memory[-1]()
            self._memory.pop()

    def after_reset(self) -> None:
        """The function was reset and knows nothing any more: free the memory that is left."""
        self.unsure = ""
        self._objects.clear()
        self.give_back()
