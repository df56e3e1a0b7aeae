"""How the firmware refuses a command: a status, and a syndrome that tells its reasons apart."""

from __future__ import annotations

import re
import zlib
from typing import Any

from userdma.mlx5.constants import Status

Answer = dict[str, Any]


class Refused(Exception):
    """The command is answered with a status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def syndrome(name: str, why: str) -> int:
    """The number of a reason: a command's, without the numbers in it. Real firmware's are not published either."""
    return zlib.crc32(f"{name}: {re.sub(r'0x[0-9a-f]+|[0-9]+', '#', why)}".encode()) & 0xFFFFFF or 1


def bad_param(why: str) -> Refused:
    """A value that cannot be, or a feature that is not there."""
    return Refused(Status.BAD_PARAM_ERR, why)


def bad_op(why: str) -> Refused:
    """An operation or a modifier that is not there."""
    return Refused(Status.BAD_OP_ERR, why)


def bad_resource(why: str) -> Refused:
    """A number that nothing has."""
    return Refused(Status.BAD_RES_ERR, why)


def bad_state(why: str) -> Refused:
    """An object that is not in the state for it, or that others stand on."""
    return Refused(Status.BAD_RES_STATE_ERR, why)


def not_now(why: str) -> Refused:
    """The function is not as far up, or further."""
    return Refused(Status.BAD_SYS_STATE_ERR, why)


def past_limit(why: str) -> Refused:
    """More, or larger, than the capabilities say."""
    return Refused(Status.LIM_ERR, why)
