"""What the smallest drivers of both families (bare_bnxt, bare_mlx5) have in common: how a command may end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Refusal(Exception):
    """The firmware answered with an error code or a status."""

    syndrome: int | None = None  #: where the answer has one

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.code = code


class NoAnswer(Exception):
    """Nothing came."""


@contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(Refusal) as raised:
        yield
    assert raised.value.code == code, f"{raised.value} is not {code:#x}"
    assert raised.value.syndrome != 0


def why(bare: Any) -> str:
    """What the firmware's log says of the last command."""
    text: str = bare.function.firmware.log[-1].why
    return text
