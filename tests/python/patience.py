"""Time, on a machine that may keep a process or a thread waiting for seconds: how long tests wait for what must come,
and how long their pairs do.

A pair gives up after seven retries of 67 ms: half a second in which its peer may not have run at all. A test that is
not about that has patient pairs, and so have the programs that it starts.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SECONDS = 60.0  # that what must come may take

HASTY = 14  # the drivers' local ACK timeout: 4.096 us * 2^14, 67 ms
PATIENT = 18  # one second, and more than eight until a pair gives up

_DRIVERS = "userdma.firmware.device"
_FAMILIES = ("userdma.bnxt.device", "userdma.mlx5.device", "userdma.uverbs.device")

# A module that Python imports at its start: the drivers of the process are patient from the moment on that they are
# there, and none is imported for it.
_START = f"""
import sys
from importlib.machinery import PathFinder


class Patience:
    def find_spec(self, name, path=None, target=None):
        if name != {_DRIVERS!r}:
            return None
        found = PathFinder.find_spec(name, path, target)
        run = found.loader.exec_module

        def patient(module):
            run(module)
            module.TIMEOUT = {PATIENT}

        found.loader.exec_module = patient
        return found


sys.meta_path.insert(0, Patience())
"""


def eventually(look: Callable[[], T], seconds: float = SECONDS, pause: float = 0.001) -> T:
    """What it finds, once that is anything; what it finds at last, if nothing comes of it."""
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() > end  # before the look: one that was kept waiting looks once more
        if (found := look()) or late:
            return found
        time.sleep(pause)


def programs(folder: Path) -> str:
    """What PYTHONPATH must begin with for programs to have patient pairs; its module is made in this folder."""
    (folder / "sitecustomize.py").write_text(_START)
    return str(folder)


@contextmanager
def drivers(timeout: int) -> Iterator[None]:
    """Pairs that this process connects, and children that it forks, have this ACK timeout."""
    importlib.import_module(_DRIVERS)
    modules = [sys.modules[_DRIVERS], *map(importlib.import_module, _FAMILIES)]
    before = [module.TIMEOUT for module in modules]
    for module in modules:
        module.TIMEOUT = timeout  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.TIMEOUT = value  # type: ignore[attr-defined]
