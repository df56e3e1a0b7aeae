"""A NIC that this process drives, and what a NIC family's driver must bring for it."""

from __future__ import annotations

import atexit
import ctypes
import operator
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Never, NoReturn, Protocol, TypeVar

from userdma import _core
from userdma.errors import Error, FirmwareBusyError, still_under_way
from userdma.types import Access, Endpoint

_T = TypeVar("_T")
_MOMENT = 0.2  # seconds


class _Thread(threading.local):
    """What is known of the thread that asks."""

    #: It is one of a NIC in software, not of the program: there only the collector runs what the program wrote.
    nics = False


thread = _Thread()


class Registration(Protocol):
    """Memory that is registered with a NIC: what `Region` needs to know of it."""

    va: int  #: what this NIC's own entries call its first byte
    key: int  #: the key of this NIC's own entries
    remote_va: int  #: what peers call its first byte
    remote_key: int  #: the key for peers; nobody gets it unless the region has remote rights


class Pair(Protocol):
    """A queue pair that the firmware made, or will: what `Qp` needs to know of it."""

    rings: _core.Rings
    number: int
    psn: int


class Device(ABC):
    """A NIC family's driver of one NIC: firmware commands, and what they made. `Nic`, `Region` and `Qp` drive it.

    Control calls run by `control`: one after the other, and each whole. A `Pair` or `Registration` is its owner's
    (`Qp`, `Region`) before anything is made for it, so that an exception of any moment (Ctrl-C) loses nothing.

    `orphans` collects what a program dropped without giving it back (`Region`, `Qp` that were garbage collected). A
    collector may run in the middle of a control call, so they wait there for the next one.
    """

    family: str
    function: _core.Function
    domain: _core.Domain
    mac: bytes
    gid: bytes
    mtu: int
    firmware_version: str
    limits: Mapping[str, int]

    def __init__(self) -> None:
        self.orphans: deque[Any] = deque()
        self.regions: weakref.WeakSet[_core.Region] = weakref.WeakSet()
        self.pairs: weakref.WeakSet[_core.Qp] = weakref.WeakSet()
        self.process = os.getpid()
        self.closed = ""  #: why the NIC takes no calls any more
        self.released = False  #: its function is given back
        self._control = threading.RLock()  # a plain one would wait for itself where a handler comes right after it
        self._controller = 0  # the thread within a control call
        self._under_way = ""  # and which one that is

    @property
    def foreign(self) -> bool:
        """Whether it is of another process, of which this one is a fork."""
        return self.process != os.getpid()

    def control(self, what: str, call: Callable[[], _T]) -> _T:
        """Run a control call, once those of other threads have ended. `what` is its name in the error that refuses it:
        in the middle of another of this very thread, in a signal handler or a callback."""
        if self.foreign:  # before the lock, which the fork may have left taken
            raise ValueError(f"{self.function.name} {self.closed}")
        self.check_reentry(what)
        return self._whole(what, call)

    def _whole(self, what: str, call: Callable[[], _T]) -> _T:
        with self._control:
            try:
                self._controller, self._under_way = threading.get_ident(), what
                return call()
            finally:
                self._controller = 0

    def check_reentry(self, what: str) -> None:
        """Raise `Error` if this very thread is in the middle of a control call, or is none of the program's."""
        if self._controller == threading.get_ident():
            raise still_under_way(what, self._under_way)
        if thread.nics:
            raise FirmwareBusyError(
                f"{what}: this is a callback of the collector within the firmware of a NIC in software, in its thread; "
                f"nothing was done, so do it in a thread of the program",
                what,
            )

    @abstractmethod
    def most_entries(self) -> int:
        """How many entries a ring can have room for."""

    @abstractmethod
    def new_pair(self) -> Any:
        """A `Pair` of which nothing is made yet."""

    @abstractmethod
    def make_pair(self, pair: Any, send: int, receive: int) -> None:
        """Rings for that many entries, and a queue pair in the state INIT. A refused one leaves nothing behind."""

    @abstractmethod
    def connect(self, pair: Any, peer: Endpoint, mtu: int, local: bool, remote: Access) -> None:
        """Take the pair to RTS. May be called again after it failed."""

    @abstractmethod
    def destroy_pair(self, pair: Any) -> None:
        """Destroy the pair and free its rings; what could not be given back stays until `close`."""

    @abstractmethod
    def new_registration(self) -> Any:
        """A `Registration` of which nothing is made yet."""

    @abstractmethod
    def allocate(self, registration: Any, n: int, remote: Access) -> int:
        """Register `n` bytes of new memory: its address."""

    @abstractmethod
    def pin(self, registration: Any, address: int, n: int, remote: Access) -> None:
        """Register `n` bytes of the process's memory."""

    @abstractmethod
    def device_memory(self, registration: Any, runs: list[tuple[int, int]], remote: Access) -> None:
        """Register another device's memory."""

    def dmabuf(self, registration: Any, fd: int, at: int, n: int, remote: Access) -> None:
        """Register a range of a dma-buf, where the kernel owns the NIC."""
        raise Error(f"{self.function.name} is this process's, and a dma-buf only the kernel can map: use Region.device")

    def owns(self, endpoint: Endpoint) -> bool:
        """Whether it is the endpoint of a queue pair of this very NIC."""
        return endpoint.gid == self.gid and endpoint.mac == self.mac

    @abstractmethod
    def deregister(self, registration: Any) -> None:
        """Deregister and free; what could not be given back stays until `close`."""

    @abstractmethod
    def _close(self) -> None:
        """Give everything back, pairs and regions first, and release the function. Called again where it was ended."""

    @abstractmethod
    def _refuse(self, why: str) -> None:
        """Send the firmware nothing from here on."""

    def close(self) -> None:
        """Close the NIC. A second time does nothing; `BufferError` while a buffer of its memory is alive."""
        if self.released or self.foreign:
            return
        self.check_reentry("Nic.close")
        self.finish()

    def finish(self) -> None:
        """The same when nothing holds the NIC any more, in whatever thread the collector saw that."""
        if self.released or self.foreign:
            return
        if not self.closed:
            views = self.function.views
            if views > 0:
                raise BufferError(
                    f"{self.function.name} cannot be closed: memoryviews or arrays of its memory are alive ({views}): "
                    f"delete them first"
                )
            self.closed = "is closed"  # already for the calls that wait for their turn
        self._whole("Nic.close", self._end)

    def _end(self) -> None:
        if self.released:  # by another thread, meanwhile
            return
        for pair in _alive(self.pairs):
            pair._retire("of a NIC that is closed")
        for region in _alive(self.regions):
            region._retire("of a NIC that is closed")
        self._close()
        self.released = True

    def forked(self) -> None:
        """This is the child of a fork: refuse everything, and touch nothing."""
        if self.released:
            return
        self.closed = "belongs to the process that opened it, of which this is a fork: open another NIC here"
        self._refuse(self.closed)
        self.domain.abandon()
        # Nothing here may run the end of the parent's function, nor stop threads that are not here: keep it for good.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.function))

    def halt(self) -> None:
        """The process ends with the NIC open: it must not write memory that will be another's."""
        with suppress(Error):
            self.function.reset()

    def busy(self) -> bool:
        """Whether a thread is within a control call, and stays there for more than a moment."""
        if not self._control.acquire(timeout=_MOMENT):
            return True
        self._control.release()
        return False

    def idle(self) -> bool:
        """Whether no entry of any of its queue pairs is under way."""
        return all(getattr(pair, "idle", True) for pair in _alive(self.pairs))

    def counters(self) -> dict[str, int]:
        """The NIC's own counters, by name."""
        return {}


def _alive(things: weakref.WeakSet[_T]) -> list[_T]:
    """What is in the set now. Other threads may add to it meanwhile."""
    while True:
        try:
            return list(things)
        except RuntimeError:  # it changed its size during the iteration
            continue


_devices: weakref.WeakSet[Device] = weakref.WeakSet()
_devices_lock = threading.RLock()  # a handler may open a NIC in the middle of another's opening


def _in_child() -> None:
    global _devices_lock
    _devices_lock = threading.RLock()  # the old one may have been held by a thread that is not here
    for device in _alive(_devices):
        device.forked()


os.register_at_fork(after_in_child=_in_child)

# Handlers of the end run last first. That of the finalizers below comes with the first finalizer there is: it is to be
# older than this one.
weakref.finalize(_devices, int).detach()
atexit.register(_core.ending)


class Nic:
    """A NIC that `userdma.open` opened. A context manager: its end closes it.

    Regions and queue pairs hold their NIC. A NIC that nothing holds any more is closed, as are all at the end of the
    interpreter. A child of a fork cannot use its parent's NICs: there every call is an error that says
    so, but `close` and the other ends, which do nothing.
    """

    _device: Device
    _finalizer: weakref.finalize[[Device], Nic]

    def __init__(self, *_: Never, **__: Never) -> None:
        raise TypeError("NICs are opened by userdma.open")

    @classmethod
    def _make(cls, device: Device) -> Nic:
        nic = cls.__new__(cls)
        nic._device = device
        with _devices_lock:
            _devices.add(device)
        nic._finalizer = weakref.finalize(nic, _finish, device)
        return nic

    def __reduce__(self) -> NoReturn:
        raise TypeError("a NIC cannot be copied or pickled")

    @property
    def name(self) -> str:
        """The PCI function's name, such as "0000:17:00.0" or "soft:bnxt#1", or the kernel's, such as "mlx5_0"."""
        return self._device.function.name

    @property
    def family(self) -> str:
        """The driver's name for the NIC's kind, such as "bnxt"."""
        return self._device.family

    @property
    def mac(self) -> bytes:
        """Its MAC address, 6 bytes."""
        return self._device.mac

    @property
    def gid(self) -> bytes:
        """Its RoCEv2 GID, 16 bytes: IPv4-mapped, made of its MAC address; where the kernel owns it, the kernel's."""
        return self._device.gid

    @property
    def mtu(self) -> int:
        """The largest RoCE MTU that its port takes, in bytes."""
        return self._device.mtu

    @property
    def firmware(self) -> str:
        """The firmware's version."""
        return self._device.firmware_version

    @property
    def limits(self) -> Mapping[str, int]:
        """How much of what the firmware says it has."""
        return self._device.limits

    @property
    def function(self) -> _core.Function:
        """Its PCI function, or the kernel's file of it."""
        return self._device.function

    @property
    def machine(self) -> _core.Machine:
        """The machine that it is in."""
        return self._device.function.machine

    @property
    def counters(self) -> dict[str, int]:
        """The NIC's own counters, by name: packets (of the MTU) and bytes, RDMA's among them. Up to a second old.
        Where the kernel owns it, the kernel's, by its names."""
        self._usable()
        return self._device.counters()

    @property
    def closed(self) -> bool:
        """Whether it takes no calls any more."""
        return bool(self._device.closed)

    def close(self) -> None:
        """Give the NIC back: its queue pairs and regions first, then what made it work, then its function.

        Never fails for a firmware that refuses or stopped: the function's reset ends what they kept. A second time
        does nothing. `BufferError` while a memoryview or array of one of its regions is alive; nothing is closed then.
        """
        self._device.close()
        if self._device.released:
            self._finalizer.detach()

    def __enter__(self) -> Nic:
        self._usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BufferError:
            if kind is None:  # else the traceback itself may hold the buffer, and hides nothing by it
                raise

    def _usable(self) -> Device:
        """The device, or why there is none to be had."""
        device = self._device
        if device.closed:
            raise ValueError(f"{self.name} {device.closed}")
        return device

    def __repr__(self) -> str:
        state = " (closed)" if self._device.closed else ""
        return f"<userdma.Nic {self.name} {self.mac.hex(':')}{state}>"


def _finish(device: Device) -> None:
    """Nothing holds the NIC any more, or the interpreter ends."""
    if device.foreign:
        return
    # What outlives it, a buffer or a thread within a control call, does so only at the interpreter's end, which frees
    # the memory with it.
    if device.busy():
        device.halt()
        return
    try:
        device.finish()
    except (BufferError, Error):
        device.halt()


def check_nic(nic: object) -> Nic:
    if not isinstance(nic, Nic):
        raise TypeError(f"a userdma.Nic wanted, not {type(nic).__name__}")
    return nic


def integer(what: str, value: object) -> int:
    """The number, or TypeError that names it."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}") from None


def check_access(remote: object) -> Access:
    """The rights, or ValueError for a number that is none."""
    if not isinstance(remote, int) or isinstance(remote, bool):
        raise TypeError(f"remote must be userdma.Access flags, not {type(remote).__name__}")
    if remote & ~7 or remote < 0:
        raise ValueError(f"remote must be userdma.Access flags, not {remote!r}")
    return Access(remote)
