"""The compiled core: PCI functions, rings and polling, the soft NICs' data path."""

import enum
from collections.abc import Callable
from typing import Any, Literal, Self, final

from typing_extensions import Buffer

from userdma.types import ErrorKind, OtherError, RemoteMemory

# ---- Host: a PCI function, its registers and the memory its device reaches ---------------------------------------

class Bar:
    """A mapped BAR. Offsets must be aligned to the width; past the end is ``IndexError``."""

    @property
    def index(self) -> int: ...
    @property
    def size(self) -> int: ...
    def read8(self, offset: int) -> int: ...
    def read16(self, offset: int) -> int: ...
    def read32(self, offset: int) -> int: ...
    def read64(self, offset: int) -> int: ...
    def write8(self, offset: int, value: int) -> None: ...
    def write16(self, offset: int, value: int) -> None: ...
    def write32(self, offset: int, value: int) -> None: ...
    def write64(self, offset: int, value: int) -> None: ...
    def write_words(self, offset: int, data: Buffer) -> None:
        """Stores ``data``, whole 32-bit words, one by one and in order."""

class Memory(Buffer):
    """Memory that the device reaches, from ``alloc_dma`` or ``pin``. A writable buffer until it is given back."""

    @property
    def address(self) -> int:
        """Where the process sees it."""
    @property
    def size(self) -> int: ...
    @property
    def runs(self) -> list[tuple[int, int]]:
        """(bus address, bytes) pairs that cover it in order."""
    @property
    def views(self) -> int:
        """How many buffers (memoryviews, arrays) of it are alive."""
    @property
    def freed(self) -> bool: ...
    def pages(self, shift: int = 12) -> list[int]:
        """Bus addresses of its pages of ``1 << shift`` bytes; ``ValueError`` if a run is not aligned to them."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Machine:
    """The machine that a function is in, as far as its driver needs to know it."""

    @property
    def page(self) -> int:
        """Its page in bytes."""

class Function:
    """A PCI function. VFIO, physical and soft ones are told apart by nobody above it.

    A soft function written in Python subclasses a soft class of this module, never this one.
    """

    @property
    def name(self) -> str: ...
    @property
    def page(self) -> int:
        """The machine's page in bytes."""
    @property
    def machine(self) -> Machine: ...
    @property
    def addressing(self) -> Literal["iova", "physical"]: ...
    @property
    def failed(self) -> bool:
        """The function left the bus: its reads are all ones."""
    @property
    def released(self) -> bool: ...
    @property
    def views(self) -> int:
        """How many buffers of its memory (``Memory``, ``Region``) are alive; ``release`` needs none."""
    def config8(self, offset: int) -> int: ...
    def config16(self, offset: int) -> int: ...
    def config32(self, offset: int) -> int: ...
    def set_config8(self, offset: int, value: int) -> None: ...
    def set_config16(self, offset: int, value: int) -> None: ...
    def set_config32(self, offset: int, value: int) -> None: ...
    def bar(self, index: int) -> tuple[int, int]:
        """(bus address, size) of a BAR; size 0: there is none."""
    def map(self, index: int) -> Bar: ...
    def interrupt(self, vector: int) -> int:
        """An eventfd that the function signals. The function owns it."""
    def reset(self) -> None: ...
    def alloc_dma(self, bytes: int) -> Memory: ...
    def free_dma(self, memory: Memory) -> None:
        """``BufferError`` while a buffer of it is alive; a second time does nothing."""
    def pin(self, address: int, bytes: int) -> Memory: ...
    def unpin(self, memory: Memory) -> None: ...
    def release(self) -> None:
        """Reset, bus mastering off, everything unmapped and freed. ``BufferError`` while a buffer of it is alive.

        Every ``Domain`` of the function is closed first, so nothing that was built on it can reach freed memory.
        """

def ending() -> None:
    """Python ends: what is open is closed from here on, and says so to no daemon thread that waits for it."""

def pci_open(
    bus: str, kind: Literal["", "vfio", "physical"] = "", *, sysfs: str = "/sys", dev: str = "/dev"
) -> Function:
    """Takes the function at ``bus`` ("0000:17:00.0"). Without a kind: VFIO if vfio-pci has it, else physical.

    ``userdma.errors.MachineError`` says what to change where it cannot be taken.
    """

def pci_openable(bus: str, *, sysfs: str = "/sys", dev: str = "/dev") -> tuple[str, str]:
    """("vfio" | "physical", "") if ``pci_open`` should work, else ("", what to change)."""

# ---- Driver: regions, queue pairs, completions -------------------------------------------------------------------

class Side(enum.Enum):
    """A queue pair's rings."""

    SEND = 0
    RECEIVE = 1

@final
class Completion:
    """How an entry ended. A frozen value."""

    def __new__(
        cls,
        bytes: int = 0,
        error: ErrorKind | OtherError | None = None,
        vendor: int = 0,
        message: str = "",
        immediate: int | None = None,
    ) -> Self: ...
    @property
    def ok(self) -> bool: ...
    @property
    def bytes(self) -> int:
        """The bytes that the entry moved: the message's, or what a receive took. 0 if it failed."""
    @property
    def error(self) -> ErrorKind | OtherError | None: ...
    @property
    def vendor(self) -> int:
        """The NIC's own status. 0 if it has none."""
    @property
    def immediate(self) -> int | None:
        """The immediate data that came with a message."""
    @property
    def message(self) -> str:
        """The completion for a person."""
    def raise_for_status(self) -> None:
        """``userdma.errors.WorkError`` if the entry failed."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

class Domain:
    """What the regions, the event ring and the queue pairs of one NIC share; the identity they are compared by."""

    def __init__(self, function: Function) -> None: ...
    @property
    def function(self) -> Function: ...
    @property
    def failure(self) -> str:
        """What failed every queue pair of the NIC, or ""."""
    @property
    def closed(self) -> bool: ...
    def fail(self, why: str) -> None:
        """Every queue pair of the NIC fails with ``why``. The first one stays."""
    def check(self) -> bool:
        """Whether the machine works; a function that left the bus is a failure from here on."""
    def close(self) -> None:
        """Retires every region and queue pair ("its NIC is closed") and its event ring, so that memory can be freed.

        Waits for threads that look at that memory right now. ``BufferError`` while a buffer of a region is alive.
        """
    def abandon(self) -> None:
        """``close`` in the child of a fork: waits for nothing, as those threads are not here."""

class Region:
    """Registered memory of one NIC; the base of ``userdma.Region``.

    ``address``: where the process sees it (0: it does not: pages, device). ``va``, ``lkey``, ``rkey``: what work queue
    entries say. ``remote``: whether peers on other NICs may name it.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        address: int,
        va: int,
        bytes: int,
        lkey: int,
        rkey: int,
        remote: bool = False,
    ) -> None: ...
    @property
    def domain(self) -> Domain: ...
    @property
    def va(self) -> int: ...
    @property
    def lkey(self) -> int: ...
    @property
    def rkey(self) -> int: ...
    @property
    def alive(self) -> bool:
        """Not retired, and its NIC not closed."""
    @property
    def views(self) -> int:
        """How many buffers of it are alive."""
    def retire(self, why: str = "deregistered") -> None:
        """From here on every use is ``ValueError`` ("the region is ..."). ``BufferError`` while a buffer is alive."""
    def __len__(self) -> int: ...
    def read(self, at: int, n: int) -> bytes: ...
    def write(self, at: int, data: Buffer) -> None: ...
    def remote(self, at: int = 0) -> RemoteMemory:
        """What a peer needs to read and write the bytes from ``at``. ``ValueError`` if not made ``remote``."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class EventRing:
    """The CREQ of a bnxt: answers of the RoCE command channel, and events of queue pairs, which go to those pairs.

    ``ring`` is its number, ``doorbell`` the offset in ``bar`` of the function's doorbells. The queue pairs read it too
    (events only ever cost a look at memory); an answer that they come across is kept for ``poll``.
    """

    def __init__(self, domain: Domain, memory: Memory, entries: int, *, ring: int, bar: Bar, doorbell: int) -> None: ...
    def arm(self) -> None:
        """Rings NQ_ARM with the consumer index: once after the ring is made."""
    def poll(self) -> bytes | None:
        """The next answer (16 bytes) that was not taken, in the order of arrival."""
    def events(self) -> list[bytes]:
        """Takes the events that belong to no queue pair (16 bytes each), newest last."""
    @property
    def consumer(self) -> int:
        """Entries taken since the ring was made."""
    def close(self) -> None:
        """Its memory is not looked at again. ``Domain.close`` does this too."""

class BnxtRings:
    """The rings of one queue pair of a bnxt: where they are and what they are called.

    Entries are powers of two, WQEs static (128 bytes). ``send`` holds the ring, and from the next page boundary (4096
    bytes) on the MSN table, 8 bytes for each entry. Completion rings should have twice the entries of their ring: then
    their doorbell is rung rarely. ``doorbell``: offset in ``bar`` of the function's doorbells.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        qpn: int,
        send: Memory,
        send_entries: int,
        receive: Memory,
        receive_entries: int,
        send_cq: Memory,
        send_cq_entries: int,
        send_cq_id: int,
        receive_cq: Memory,
        receive_cq_entries: int,
        receive_cq_id: int,
        bar: Bar,
        doorbell: int,
        events: EventRing | None = None,
    ) -> None: ...

class Qp:
    """A queue pair's rings, posts and completions; the base of ``userdma.Qp``. It sends the firmware nothing."""

    def __init__(self, rings: BnxtRings, *, send: int = 4095, receive: int = 4095, immediate: bool = False) -> None: ...
    @property
    def number(self) -> int:
        """The NIC's number of the queue pair."""
    @property
    def domain(self) -> Domain: ...
    # for the control part
    @property
    def connected(self) -> bool: ...
    @property
    def dead(self) -> bool: ...
    @property
    def failure(self) -> str:
        """Why the pair failed, or ""."""
    def set_connected(self, *, psn: int, mtu: int, local: bool) -> None:
        """The firmware took it to RTS: sends start at ``psn``. ``local``: its peer is a queue pair of the same NIC."""
    def fail(self, why: str) -> None:
        """Entries without a completion complete with this failure from here on. The first one stays."""
    def retire(self, why: str = "destroyed") -> None:
        """From here on every call is ``ValueError`` ("queue pair 0x5 is destroyed"); its rings are not touched again.

        Waits for threads that look at them right now; a ``wait`` in another thread ends with that ``ValueError``.
        """
    # for programs
    def send(self, region: Region, at: int, n: int) -> None: ...
    def receive(self, region: Region, at: int, n: int) -> None: ...
    def read(self, src: tuple[Region, int] | RemoteMemory, dst: tuple[Region, int], n: int) -> None: ...
    def write(self, src: tuple[Region, int], dst: RemoteMemory, n: int) -> None: ...
    def room(self, side: Side) -> int: ...
    def poll(self, side: Side) -> Completion | None: ...
    def wait(self, side: Side, us: int) -> Completion | None: ...

# ---- Soft: wires, clocks, the Thor2 in software, memory behind a BAR -----------------------------------------------

class DmaFault(Exception):
    """A device reached for memory that is not mapped for it."""

class Clock:
    """The time that timers of soft NICs run on."""

    def now(self) -> int:
        """Nanoseconds from an arbitrary start."""
    @property
    def is_virtual(self) -> bool: ...

class RealClock(Clock):
    """The machine's monotonic clock."""

    def __init__(self) -> None: ...

class VirtualClock(Clock):
    """Time that stands still while a NIC has something to do, then jumps to the next timer."""

    def __init__(self, start: int = 0) -> None: ...
    def step(self) -> bool:
        """Every NIC works once; if none had anything to do, time jumps. False if nothing can happen any more."""
    def advance(self, nanoseconds: int) -> None: ...

class Wire:
    """What soft NICs are connected by.

    A new wire in this process; by the name "" the process's default wire, by "shm:NAME" the one that processes of this
    machine share. ``loss``, ``duplicate``, ``reorder``, ``corrupt`` and ``delay`` are probabilities for each packet;
    with any of them, or ``frames``, packets cross as RoCEv2 frames.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        corrupt: float = 0.0,
        delay: float = 0.0,
        reorder_depth: int = 3,
        delay_ns: int = 200000,
        seed: int = 0,
        clock: Clock | None = None,
        frames: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    def capture(self, limit: int) -> None:
        """Keeps the frames sent from here on, the first ``limit`` of them. ``ValueError`` if packets are no frames."""
    def take(self) -> list[bytes]:
        """The frames kept, which are forgotten."""

class Tap:
    """A place on a wire for a program that makes frames itself."""

    def __init__(self, wire: Wire, mac: Buffer) -> None: ...
    def send(self, frame: Buffer) -> str:
        """Sends a frame. What a receiver would throw away is not sent, and the result says why; "" if it was."""
    def receive(self) -> list[bytes]: ...
    def close(self) -> None: ...

class SoftBnxt(Function):
    """The Thor2 in software, without firmware.

    The methods are its firmware's: ids that there are none of are ``KeyError``, other impossible arguments
    ``ValueError``. ``page_size`` is in bytes, or below 64 its logarithm.
    """

    def __init__(
        self,
        name: str,
        wire: Wire,
        mac: Buffer,
        *,
        iommu: bool = True,
        clock: Clock,
        seed: int = 0,
        memory: int = 0,
        pin_limit: int = 0,
        thread: bool = True,
    ) -> None: ...
    def set_firmware(
        self, hwrm: Callable[[bytes], object], rcfw: Callable[[int], object], reset: Callable[[], object]
    ) -> None:
        """What runs, in the thread that stored, at the HWRM trigger, the RCFW trigger, and a reset or the release."""
    def bar_bytes(self, bar: int, offset: int, n: int) -> bytes: ...
    def bar_store(self, bar: int, offset: int, data: Buffer) -> None: ...
    def dma_read(self, bus: int, n: int) -> bytes: ...
    def dma_write(self, bus: int, data: Buffer) -> None: ...
    def nq_create(self, id: int, base: int, level: int, page_size: int, entries: int, vector: int = 0) -> None: ...
    def nq_destroy(self, id: int) -> None: ...
    def creq_set(self, nq_id: int | None) -> None: ...
    def creq_post(self, entry: Buffer) -> None:
        """Writes an entry with the right valid bit; one that finds the ring full waits for its consumer."""
    def cq_create(
        self, id: int, entries: int, pbl: int, level: int, page_shift: int, nq_id: int | None, handle: int
    ) -> None: ...
    def cq_destroy(self, id: int) -> int:
        """How many notifications it sent."""
    def post_raw_cqe(self, cq_id: int, entry: Buffer) -> None: ...
    def qp_create(self, id: int, fields: dict[str, Any]) -> None: ...
    def qp_modify(self, id: int, fields: dict[str, Any]) -> None: ...
    def qp_destroy(self, id: int) -> None: ...
    def qp_query(self, id: int) -> dict[str, Any]: ...
    def fail_qp(self, id: int) -> None:
        """It goes to the error state by itself, with no entry to blame."""
    def mr_register(self, key: int, fields: dict[str, Any]) -> None: ...
    def mr_deregister(self, key: int) -> None: ...
    def ingress(self, open: bool) -> None: ...
    def counts(self) -> dict[str, int]: ...
    def stats(self) -> dict[str, int]: ...
    def vanish(self) -> None:
        """Leaves the bus: every read is all ones, DMA and packets stop."""
    def advance(self) -> bool:
        """Does the NIC's work that there is; True if there was any."""

class SoftGpu:
    """Memory behind a BAR, which devices without an IOMMU reach by its bus address."""

    def __init__(self, bytes: int) -> None: ...
    @property
    def bus(self) -> int: ...
    def __len__(self) -> int: ...
    def read(self, at: int, n: int) -> bytes: ...
    def write(self, at: int, data: Buffer) -> None: ...
