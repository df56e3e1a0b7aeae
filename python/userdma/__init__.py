"""RDMA NICs driven from user space, and NICs in software where there is no hardware.

>>> import userdma
>>> with userdma.open("soft:bnxt") as nic:
...     region = userdma.Region.host(nic, 4096)
...     a, b = userdma.Qp.make(nic), userdma.Qp.make(nic)
...     a.connect(b.endpoint)
...     b.connect(a.endpoint)
...     region.write(0, b"hello")
...     b.receive(region, 2048, 2048)
...     a.send(region, 0, 5)
...     b.wait(userdma.Side.RECEIVE, us=1_000_000).bytes
...     region.read(2048, 5)
5
b'hello'
"""

try:
    from userdma import _core
except ImportError as error:
    if "subinterpreter" not in str(error):  # CPython's own refusal, from 3.12 on, says "does not support loading"
        raise
    raise ImportError("userdma works in the main interpreter of a process only, not in a subinterpreter") from None
from userdma._core import Completion, Side
from userdma.errors import (
    DmaMemoryError,
    Error,
    FirmwareAnswerError,
    FirmwareBusyError,
    FirmwareError,
    FirmwareInternalError,
    FirmwareRefusedError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    KernelRefusedError,
    MachineError,
    WorkError,
)
from userdma.nic import Nic
from userdma.opening import open as open
from userdma.qp import Qp
from userdma.region import Region
from userdma.types import Access, Endpoint, ErrorKind, OtherError, RemoteMemory

__all__ = [
    "Access",
    "Completion",
    "DmaMemoryError",
    "Endpoint",
    "Error",
    "ErrorKind",
    "FirmwareAnswerError",
    "FirmwareBusyError",
    "FirmwareError",
    "FirmwareInternalError",
    "FirmwareRefusedError",
    "FirmwareStoppedError",
    "FirmwareTimeoutError",
    "KernelRefusedError",
    "MachineError",
    "Nic",
    "OtherError",
    "Qp",
    "Region",
    "RemoteMemory",
    "Side",
    "WorkError",
]  # not `open`: `from userdma import *` leaves the built-in one alone

_core.keep_modules()  # what it would import later: at the interpreter's end nothing can be
