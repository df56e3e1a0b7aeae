"""Memory of a function, read and written without a view that stays.

An exception of any moment (Ctrl-C) would leave such a view alive, and its function could not be released. A handler may
close the NIC within a call: then the memory is gone, which is a `MachineError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from userdma import _core
from userdma.errors import MachineError


@contextmanager
def _held() -> Iterator[None]:
    try:
        yield
    except (TypeError, BufferError) as error:  # struct says TypeError for any buffer that cannot be had
        raise MachineError("the NIC was closed in the middle of the call: its memory is given back") from error


def read(memory: _core.Memory, at: int, n: int) -> bytes:
    """The `n` bytes at `at`."""
    with _held():
        data: bytes = struct.unpack_from(f"{n}s", memory, at)[0]
    return data


def write(memory: _core.Memory, at: int, data: bytes) -> None:
    """Write `data` at `at`."""
    with _held():
        struct.pack_into(f"{len(data)}s", memory, at, data)
