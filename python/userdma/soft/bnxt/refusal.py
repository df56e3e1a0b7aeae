"""How the firmware refuses an HWRM command."""

from __future__ import annotations

from enum import IntFlag
from typing import Any

from userdma.bnxt.hwrm import ErrorCode

INTERFACE = (1, 10, 3, 85)  # HWRM interface: major, minor, update, patch

Answer = dict[str, Any]


class Refused(Exception):
    """The command is answered with an error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


def invalid(why: str) -> Refused:
    """Numbers or memory that are not there, or not possible."""
    return Refused(ErrorCode.INVALID_PARAMS, why)


def denied(why: str) -> Refused:
    """What the function may not do now."""
    return Refused(ErrorCode.RESOURCE_ACCESS_DENIED, why)


def every(flags: type[IntFlag]) -> int:
    """All bits that the tables know."""
    return sum(flags)


def known_flags(bits: int, known: int, what: str = "flags") -> None:
    _known(bits, known, what, ErrorCode.INVALID_FLAGS)


def known_enables(bits: int, known: int, what: str = "enables") -> None:
    _known(bits, known, what, ErrorCode.INVALID_ENABLES)


def _known(bits: int, known: int, what: str, code: int) -> None:
    unknown = bits & ~int(known)  # of an int: a flag's complement has known bits only
    if unknown:
        raise Refused(code, f"{what} {unknown:#x} are not known to interface {'.'.join(map(str, INTERFACE))}")
