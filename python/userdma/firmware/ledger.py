"""What a sequence of firmware commands took, to be given back in reverse order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    An exception out of a signal's handler (Ctrl-C) may come after any call that Python makes. What is taken is in the
    ledger before that, and what is given back is out of it only then.
    """

    def __init__(self, function: _core.Function) -> None:
        self._function = function
        self._memory: list[tuple[Any, Callable[[Any], object]]] = []  # and what frees it, if it is not freed yet
        self._objects: list[Callable[[], object]] = []  # each takes itself off
        self.unsure = ""  #: the command whose outcome is unknown

    def __bool__(self) -> bool:
        return bool(self._memory or self._objects)

    def alloc(self, n: int) -> _core.Memory:
        function = self._function
        return self._take(map(function.alloc_dma, (n,)), function.free_dma)

    def pin(self, address: int, n: int) -> _core.Memory:
        function = self._function
        return self._take(map(function.pin, (address,), (n,)), function.unpin)

    def _take(self, taken: Iterator[_core.Memory], free: Callable[[_core.Memory], object]) -> _core.Memory:
        self._memory.extend(zip(taken, (free,), strict=False))  # one call, which takes it and keeps it
        memory: _core.Memory = self._memory[-1][0]
        return memory

    def afterwards(self, give_back: Callable[[], object]) -> None:
        """Something of this process's, to be given back like memory: may run twice."""
        self._memory.append((None, lambda _: give_back()))

    def call(
        self, channel: Caller[_Answer], name: str, then: Callable[[_Answer], object] | None = None, /, **fields: Any
    ) -> _Answer:
        """Run a command that may name what is in this ledger. `then` puts down what it did, by its answer: until that
        has returned, the outcome is as good as unknown."""

        def sending() -> None:
            self.unsure = name

        try:
            answer = channel.call(name, sending, **fields)
        except channel.refusals:  # it did nothing
            self.unsure = ""
            raise
        if then is not None:
            then(answer)
        self.unsure = ""
        return answer

    def undo(self, channel: Caller[Any], name: str, **fields: Any) -> None:
        """An object was made at the firmware, as the `then` of that command's call says: this one gives it back."""
        self._objects.append(lambda: self.call(channel, name, lambda _: self._objects.pop(), **fields))

    def undo_by(self, give_back: Callable[[], object]) -> None:
        """The same by something that runs commands of its own, in its turn among the objects: may run twice."""

        def last() -> None:
            give_back()
            self._objects.pop()

        self._objects.append(last)

    def give_back(self) -> None:
        """Give everything back. An error or an exception of a command ends it; what is left stays here."""
        if self.unsure:
            return
        while self._objects:
            self._objects[-1]()
        while self._memory:
            memory, free = self._memory[-1]
            free(memory)  # a second time does nothing
            self._memory.pop()

    def after_reset(self) -> None:
        """The function was reset and knows nothing any more: free the memory that is left."""
        self.unsure = ""
        self._objects.clear()
        self.give_back()
