"""What a sequence of firmware commands took, to be given back in reverse order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from userdma import _core
from userdma.errors import Error

_Answer = TypeVar("_Answer", covariant=True)


class Caller(Protocol[_Answer]):
    """Where commands are run: a firmware's channel, or the kernel's file of a device."""

    #: What it raises where a command was refused, which then did nothing.
    refusals: tuple[type[Error], ...]

    def call(self, name: str, sending: Callable[[], object] | None = None, /, **fields: Any) -> _Answer:
        """Run the command and return its answer. `sending` runs right before it."""


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
        self._objects: list[Callable[[], object]] = []
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

    def call(self, channel: Caller[_Answer], name: str, **fields: Any) -> _Answer:
        """Run a command that may name what is in this ledger."""

        def sending() -> None:
            self.unsure = name

        try:
            answer = channel.call(name, sending, **fields)
        except channel.refusals:  # it did nothing
            self.unsure = ""
            raise
        self.unsure = ""
        return answer

    def undo(self, channel: Caller[Any], name: str, **fields: Any) -> None:
        """An object was just made at the firmware: this command gives it back."""
        self.undo_by(lambda: self.call(channel, name, **fields))

    def undo_by(self, give_back: Callable[[], object]) -> None:
        """The same by something that runs commands of its own, in its turn among the objects."""
        self._objects.append(give_back)

    def give_back(self) -> None:
        """Give everything back. An error or an exception of a command ends it; what is left stays here."""
        if self.unsure:
            return
        while self._objects:
            last = self._objects[-1]
            last()
            _done(self._objects, last)
        while self._memory:
            free = self._memory[-1]
            free()
            _done(self._memory, free)

    def after_reset(self) -> None:
        """The function was reset and knows nothing any more: free the memory that is left."""
        self.unsure = ""
        self._objects.clear()
        self.give_back()


def _done(things: list[Any], last: object) -> None:
    """The last thing was given back. A signal's handler may have closed the NIC meanwhile, and so everything."""
    if things and things[-1] is last:
        things.pop()
