"""Numbers that a soft NIC's firmware gives out.

A number that was freed is the last to be given out again, so that a driver which uses it too long is found out.
"""

from __future__ import annotations

from collections import deque


class Exhausted(Exception):
    """No number, or no memory of the kind, is left."""


class Pool:
    """The numbers of one kind: ``first``, ``first + step``, and so on, at most ``limit`` of them taken at a time.

    The range is twice as long as the limit (or up to ``end``), so that a freed number rests before it comes back.
    """

    def __init__(self, first: int, limit: int, step: int = 1, end: int | None = None) -> None:
        self.limit = limit
        self._next = first
        self._step = step
        self._end = first + 2 * limit * step if end is None else min(end, first + 2 * limit * step)
        self._freed: deque[int] = deque()
        self._taken = 0

    def take(self, limit: int | None = None) -> int:
        """A number that nothing has. ``limit`` lowers the pool's own. Raises Exhausted."""
        if self._taken >= self.limit or (limit is not None and self._taken >= limit):
            raise Exhausted
        if self._next < self._end:
            number = self._next
            self._next += self._step
        elif self._freed:
            number = self._freed.popleft()
        else:
            raise Exhausted
        self._taken += 1
        return number

    def give(self, number: int) -> None:
        self._freed.append(number)
        self._taken -= 1

    def __len__(self) -> int:
        return self._taken
