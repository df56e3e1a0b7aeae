"""Memory regions: memory that a NIC writes and reads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Never

from userdma import _core
from userdma.errors import DmaMemoryError, Error
from userdma.nic import Device, Nic, check_access, check_nic, integer
from userdma.types import Access

_PAGE = 4096  # what the runs of another device's memory are multiples of
_MOST = 1 << 48  # bytes; no machine has more, and a NIC's page tables hold far less


class Region(_core.Region):
    """Memory that the NIC writes and reads: made by `host`, `pages`, `device` or `dmabuf`.

    It is local to its NIC. A peer's sends write it only through a receive that this process posted, and only queue
    pairs connected to queue pairs of its own NIC read it (`Qp.read`), unless it was made with `remote` rights: then a
    peer that was given `remote()` has those too, through a queue pair connected with them.

    The NIC writes a region in the order of the entries that write it, and the bytes of a receive or a read are there
    once `Qp.poll` or `Qp.wait` has taken its completion.

    A key alone opens nothing: each registration starts at a random virtual address, and the one that this NIC's own
    entries use is given out only if peers may read the region. So a peer reaches the memory that it was given, and
    cannot guess its way to another.

    A context manager: its end deregisters it. A region that is dropped without that is deregistered once its NIC has
    no entry under way.
    """

    _nic: Nic
    _device: Device
    _registration: Any
    _lost: str
    _holds: object  # a buffer that the region is over

    def __init__(self, *_: Never, **__: Never) -> None:
        raise TypeError("regions are made by Region.host, Region.pages, Region.device and Region.dmabuf")

    @classmethod
    def host(cls, nic: Nic, n: int, remote: Access = Access.NONE) -> Region:
        """New, zeroed memory of `n` bytes, rounded up to the machine's page, which `read` and `write` reach."""
        check_nic(nic)
        n = _positive("n", n)
        remote = check_access(remote)
        device = nic._usable()
        _possible(nic, n)
        page = device.function.page
        n = (n + page - 1) // page * page
        return cls._make("host", nic, n, remote, None, lambda registration: device.allocate(registration, n, remote))

    @classmethod
    def pages(cls, nic: Nic, address: Any, n: int | None = None, remote: Access = Access.NONE) -> Region:
        """The `n` bytes at `address` of the process, which start on a page, pinned until the region is deregistered.

        A writable, contiguous buffer (a NumPy array, an `mmap`, a bytearray that starts on a page) can stand for its
        address, and for its size if `n` is left out. The region then holds it. (What NumPy allocates itself starts on
        no page; an array over an `mmap` does: ``numpy.frombuffer(mmap.mmap(-1, n))``.) The NIC reaches the pages that
        held the bytes when this ran, whatever the process maps there later.

        A NIC that is not behind an IOMMU takes only memory that `Function.alloc_dma` gave.
        """
        check_nic(nic)
        holds = None
        if not isinstance(address, int):
            holds, address, size = _buffer(address)
            n = size if n is None else n
            if _positive("n", n) > size:
                raise ValueError(f"n is {n}, but the buffer has {size} bytes")
        elif n is None:
            raise ValueError("n is missing: an address has no size")
        n = _positive("n", n)
        page = nic.machine.page
        if address % page or not 0 <= address < 1 << 64 or address + n > 1 << 64:
            raise ValueError(
                f"address {address:#x} is not on a page of the machine ({page} bytes), where the memory of an mmap "
                f"starts: numpy.frombuffer(mmap.mmap(-1, n)), say, and not numpy.zeros(n)"
            )
        remote = check_access(remote)
        device = nic._usable()
        _possible(nic, n)
        at, size = address, n
        return cls._make(
            "pages", nic, n, remote, holds, lambda registration: device.pin(registration, at, size, remote)
        )

    @classmethod
    def device(cls, nic: Nic, runs: Iterable[tuple[int, int]], remote: Access = Access.NONE) -> Region:
        """Another device's memory, such as a GPU's behind its BAR: (bus address, bytes) pairs, in order.

        It must stay where it is until the region is deregistered. A NIC behind an IOMMU reaches no such memory.
        """
        check_nic(nic)
        pairs = [_run(run) for run in runs]
        if not pairs:
            raise ValueError("runs is empty")
        for address, size in pairs:
            if address < 0:
                raise ValueError(f"a run's address is negative: {address}")
            if size <= 0:
                raise ValueError(f"a run's size is not positive: {size}")
            if address % _PAGE or size % _PAGE:
                raise ValueError(f"a run is not whole pages of {_PAGE} bytes: address {address:#x}, {size} bytes")
            if address + size > 1 << 64:
                raise ValueError(f"a run ends past the last bus address: {address:#x}, {size} bytes")
        n = _positive("the runs' size", sum(size for _, size in pairs))
        remote = check_access(remote)
        device = nic._usable()
        return cls._make(
            "device", nic, n, remote, None, lambda registration: device.device_memory(registration, pairs, remote)
        )

    @classmethod
    def dmabuf(cls, nic: Nic, fd: int, at: int, n: int, remote: Access = Access.NONE) -> Region:
        """The `n` bytes at offset `at` of a dma-buf, another device's memory that its driver shares by the descriptor
        `fd`, where the kernel owns the NIC.

        The descriptor may be closed afterwards.
        """
        check_nic(nic)
        n = _positive("n", n)
        remote = check_access(remote)
        fd, at = integer("fd", fd), integer("at", at)
        if at < 0 or fd < 0:
            raise ValueError(f"fd {fd} and at {at} must not be negative")
        if fd >= 1 << 31 or at + n > 1 << 64:
            raise ValueError(f"no dma-buf has the descriptor {fd} and {n} bytes at {at}")
        device = nic._usable()
        _possible(nic, n)
        return cls._make(
            "dmabuf", nic, n, remote, None, lambda registration: device.dmabuf(registration, fd, at, n, remote)
        )

    @classmethod
    def _make(
        cls,
        how: str,
        nic: Nic,
        n: int,
        remote: Access,
        holds: object,
        register: Callable[[Any], int | None],
    ) -> Region:
        """`register` does, and returns the address of memory that the process reads and writes."""
        return nic._device.control(f"Region.{how}", lambda: cls._made(nic, n, remote, holds, register))

    @classmethod
    def _made(cls, nic: Nic, n: int, remote: Access, holds: object, register: Callable[[Any], int | None]) -> Region:
        device = nic._usable()
        region = cls.__new__(cls)
        region._nic = nic
        region._device = device
        region._lost = ""
        region._holds = holds
        region._registration = registration = device.new_registration()
        address = register(registration)
        _core.Region.__init__(
            region,
            device.domain,
            address=address or 0,
            va=registration.va,
            bytes=n,
            lkey=registration.key,
            remote=bool(remote),
            remote_va=registration.remote_va,
            remote_key=registration.remote_key,
        )
        device.regions.add(region)
        return region

    @property
    def nic(self) -> Nic:
        """The NIC that it is registered with."""
        return self._nic

    def deregister(self) -> None:
        """Deregister the region, and free or unpin its memory: the NIC reads and writes it no more.

        `Error` if the firmware refuses, and then at every further call, as after one that an exception ended: the NIC
        may still reach the memory, which stays until its close. A second time does nothing. `BufferError` while a
        memoryview or array of the region is alive.
        """
        if lost := self._end():
            raise Error(f"the region counts as deregistered, and its memory stays until its NIC closes: {lost}")

    def _end(self) -> str:
        """Deregister it; why that cannot be, if an earlier call says so."""
        device = self._device
        if device.foreign or (not self._lost and (not self.alive or device.closed)):
            return ""
        return device.control("Region.deregister", self._deregister)

    def _deregister(self) -> str:
        device = self._device
        if self._lost or not self.alive or device.closed:
            return self._lost
        self._lost = "an exception ended an earlier deregister"  # true until the end says otherwise
        try:
            self._retire()
        except BufferError:
            self._lost = ""
            raise
        registration, self._registration = self._registration, None
        registration.holds = self._holds  # the NIC's if this fails
        try:
            device.deregister(registration)
        except Error as error:
            self._lost = str(error)
            raise
        self._lost = ""
        self._holds = None
        return ""

    def __enter__(self) -> Region:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        except BufferError:
            if kind is None:  # else the traceback itself may hold the buffer, and hides nothing by it
                raise

    def __del__(self) -> None:
        registration = self.__dict__.get("_registration")
        if registration is not None:
            registration.holds = self.__dict__.get("_holds")
            self._device.orphans.append(registration)

    def __repr__(self) -> str:
        state = "" if self.alive else " (deregistered)"
        return f"<userdma.Region of {len(self)} bytes of {self._nic.name}{state}>"


def _positive(what: str, n: object) -> int:
    n = integer(what, n)
    if n <= 0:
        raise ValueError(f"{what} must be positive, not {n}")
    return n


def _run(run: object) -> tuple[int, int]:
    """A (bus address, bytes) pair."""
    if not isinstance(run, tuple | list) or len(run) != 2:
        raise TypeError(f"a run must be a pair, (bus address, bytes), not {run!r}")
    return integer("a run's address", run[0]), integer("a run's size", run[1])


def _possible(nic: Nic, n: int) -> None:
    if n > _MOST:
        raise DmaMemoryError(f"{nic.name} has no memory of {n} bytes: no machine has")


def _buffer(thing: Any) -> tuple[object, int, int]:
    """What holds a buffer in place, its address and its bytes."""
    try:
        size = memoryview(thing).nbytes
        if not size:
            raise ValueError("the buffer is empty")
        holds = (ctypes.c_char * size).from_buffer(thing)
    except (TypeError, BufferError) as error:
        raise TypeError(
            f"an address or a writable, contiguous buffer wanted, not {type(thing).__name__}: {error}"
        ) from None
    return holds, ctypes.addressof(holds), size
