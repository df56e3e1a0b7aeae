"""Faults of the firmware, chosen by a test: a command refused, answered late, wrongly or never.

A command is named as its table names it: a Thor2's ``"hwrm_ver_get"`` for the HWRM channel and ``"create_qp"`` for
the RoCE command channel, a ConnectX's ``"create_qp"``. A name may be a pattern of ``fnmatch`` (``"*"``: every
command, ``"hwrm_*"``: every one of HWRM), so that a test can walk through a sequence: ``refuse("*", k)`` for k from 1
on. Each fault acts once, on the ``k``-th of the commands after the call that match; faults are looked at in the order
they were asked for, and the first that is due acts.
"""

from __future__ import annotations

import enum
import fnmatch
from dataclasses import dataclass
from typing import NamedTuple

from userdma.messages import Fields


class Kind(enum.Enum):
    REFUSE = enum.auto()  # not run; answered with an error code
    DELAY = enum.auto()  # run; answered later
    WRONG_SEQUENCE = enum.auto()  # run; answered under another sequence number, cookie (RCFW) or token (ConnectX)
    BAD_SIGNATURE = enum.auto()  # run; the answer's signature is wrong (ConnectX)
    UNDELIVERED = enum.auto()  # not run; the answer is a delivery status (ConnectX)
    GARBAGE = enum.auto()  # run; the answer's bytes are something else
    LOSE = enum.auto()  # run; never answered; the next command is
    STOP_AT = enum.auto()  # not run; nothing is run or answered from here on
    STOP_IN = enum.auto()  # run, not answered; nothing is run or answered from here on
    STOP_AFTER = enum.auto()  # run and answered; nothing is run or answered from here on


@dataclass(slots=True)
class Fault:
    kind: Kind
    command: str
    left: int  # commands that match until it acts
    status: int | None = None
    seconds: float = 0.0
    data: bytes | None = None


class Entry(NamedTuple):
    """One command in the firmware's log."""

    name: str  # "unknown_0x…" where the tables have no such command
    request: Fields  # as it was decoded: its fields are attributes
    status: int | None  # the error code or status; None: it was not run
    why: str  # for a person: what was wrong; "" if nothing was


class Faults:
    """The faults that are still to come."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []

    def plan(self, fault: Fault) -> None:
        if fault.left < 1:
            raise ValueError(f"the commands that match are counted from 1, not {fault.left}")
        if not fault.seconds >= 0:
            raise ValueError(f"an answer cannot be late by {fault.seconds} seconds")
        self._planned.append(fault)

    def clear(self) -> None:
        self._planned.clear()

    def __len__(self) -> int:
        return len(self._planned)

    def next(self, command: str) -> Fault | None:
        """Counts one command; the fault that acts on it."""
        due: Fault | None = None
        for fault in list(self._planned):
            if fnmatch.fnmatchcase(command, fault.command):
                fault.left -= 1
                if fault.left <= 0 and due is None:
                    due = fault
                    self._planned.remove(fault)
        return due
