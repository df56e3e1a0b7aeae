"""Memory of a function, read and written without a view that stays.

An exception of any moment (Ctrl-C) would leave such a view alive, and its function could not be released. A handler may
release the function within a call: then the memory is gone, which is a `MachineError`. Or it may fork: the child's
memory is the same, and what the child goes on with is not written there any more.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from userdma import _core
from userdma.errors import MachineError

generation = 0  #: how many forks there are between the first process and this one


def _in_child() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_in_child)


@contextmanager
def _held() -> Iterator[None]:
    try:
        yield
    except (TypeError, BufferError) as error:  # struct says TypeError for any buffer that cannot be had
        raise MachineError("the function was released in the middle of the call: its memory is given back") from error


def read(memory: _core.Memory, at: int, n: int) -> bytes:
    """The `n` bytes at `at`."""
    with _held():
        data: bytes = struct.unpack_from(f"{n}s", memory, at)[0]
    return data


def write(memory: _core.Memory, at: int, data: bytes, of: int) -> None:
    """Write `data` at `at`, in the processes of the generation `of`."""
    pack, layout = struct.pack_into, f"{len(data)}s"
    with _held():
        if of != generation:  # and no call between this and the next, where a handler could fork
            raise MachineError("the NIC belongs to the process that opened it, of which this is a fork")
        pack(layout, memory, at, data)
