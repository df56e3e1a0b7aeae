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
class _Taken:
    give_back: Callable[[], object]
    command: str  # of the firmware; "": memory, which the firmware may know by what was taken after it


class Ledger:
    """Memory and firmware objects, in the order they were taken.

    Memory that the firmware may still name is never freed: not while something that was taken after it could not be
    given back, nor after a command whose outcome is unknown (no answer, or an exception ended the wait for it). Such
    memory stays in the ledger until the function was reset.
    """

    def __init__(self, function: _core.Function) -> None:
        self._function = function
        self._taken: list[_Taken] = []
        self.unsure = ""  #: the command whose outcome is unknown

    def __bool__(self) -> bool:
        return bool(self._taken)

    def alloc(self, n: int) -> _core.Memory:
        function = self._function
        memory = function.alloc_dma(n)
        self.memory(lambda: function.free_dma(memory))
        return memory

    def pin(self, address: int, n: int) -> _core.Memory:
        function = self._function
        memory = function.pin(address, n)
        self.memory(lambda: function.unpin(memory))
        return memory

    def memory(self, give_back: Callable[[], object]) -> None:
        """Something of this process's was taken, which the firmware may come to name."""
        self._taken.append(_Taken(give_back, ""))

    def call(self, channel: Channel, name: str, **fields: Any) -> Fields:
        """Run a command that names what is in this ledger."""
        self.unsure = name
        try:
            answer = channel.call(name, **fields)
        except (FirmwareRefusedError, FirmwareStoppedError, ValueError):  # it did nothing, or was not sent
            self.unsure = ""
            raise
        self.unsure = ""
        return answer

    def undo(self, channel: Channel, name: str, **fields: Any) -> None:
        """What was just made at the firmware is given back by this command."""
        self._taken.append(_Taken(lambda: self.call(channel, name, **fields), name))

    def give_back(self) -> None:
        """Give everything back, the last first. An error or exception of a command ends it; what is left stays here."""
        if self.unsure:
            # What the command names may be used, so what can still be given back is what came after: nothing.
            return
        while self._taken:
            last = self._taken[-1]
            last.give_back()
            self._taken.pop()

    def after_reset(self) -> None:
        """The function was reset and knows nothing any more: free the memory that is left."""
        self.unsure = ""
        self._taken = [taken for taken in self._taken if not taken.command]
        self.give_back()
