"""The compiled core: PCI functions, rings and polling, the soft NICs' data path."""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, Self, final

from typing_extensions import Buffer

from userdma.mlx5 import completion as mlx5_completion
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
    def without_iommu(self) -> str:
        """For a person: how to take it so that no IOMMU is between it and memory."""
    @property
    def failed(self) -> bool:
        """The function left the bus, its reads are all ones; or the system wants it back."""
    @property
    def failure(self) -> str:
        """What became of it if it failed, as the end of a sentence that begins with its name."""
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

def remove_abandoned_wires() -> None:
    """Removes the files of wires "shm:NAME" of this user that no process is on any more."""

def keep_modules() -> None:
    """Imports what the core needs of Python now, and keeps it until the process ends."""

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

ERRORS: Mapping[str, str]
"""The sentence of each ``userdma.ErrorKind``, by its name."""

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

class Uverbs(Function):
    """An RDMA device that stays its kernel driver's, through the kernel's uverbs file.

    Its addresses are the process's, and what a driver keeps (configuration space, BARs, interrupts, the reset) is
    `MachineError`. It has failed once the driver told of a fatal error or let the device go.
    """

    def __init__(self, device: str, *, sysfs: str = "/sys", dev: str = "/dev") -> None: ...
    @staticmethod
    def obstacle(device: str, *, sysfs: str = "/sys", dev: str = "/dev") -> str:
        """Why its file cannot be opened, and what to change; "" if it can."""
    def call(self, request: Buffer) -> int:
        """Runs RDMA_VERBS_IOCTL with a header and its attributes, which the kernel writes to: 0, or the error."""
    def map_registers(self, offset: int, bytes: int) -> Bar:
        """Registers that the driver lets this process have, at the file's ``offset``; once."""
    def watch(self, fd: int) -> None:
        """The descriptor of asynchronous events, which becomes the function's."""
    def over_memlock(self, bytes: int) -> bool:
        """Whether the limit of locked memory keeps the driver from pinning so many more."""
    def refuse_pin(self, bytes: int, what: str, error: int) -> NoReturn:
        """`DmaMemoryError`: why the driver did not pin them, from the error of its call, and what to change."""

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

    ``address``: where the process sees it (0: it does not: pages, device). ``va``, ``lkey``: what work queue entries of
    its own NIC say, for no peer to know. ``remote``: whether peers on other NICs may name it, and by what.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        address: int,
        va: int,
        bytes: int,
        lkey: int,
        remote: bool = False,
        remote_va: int = 0,
        remote_key: int = 0,
    ) -> None: ...
    @property
    def alive(self) -> bool:
        """Not retired, and its NIC not closed."""
    @property
    def views(self) -> int:
        """How many buffers of it are alive."""
    def _retire(self, why: str = "deregistered") -> None:
        """From here on every use is ``ValueError`` ("the region is ..."). ``BufferError`` while a buffer is alive."""
    def __len__(self) -> int: ...
    def read(self, at: int, n: int) -> bytes: ...
    def write(self, at: int, data: Buffer) -> None: ...
    def remote(self, at: int = 0) -> RemoteMemory:
        """What a peer needs to reach the bytes from ``at`` on. ``ValueError`` if the region has no remote rights."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Events:
    """What a NIC tells of beside completions. Queue pairs look at it as they poll."""

    def close(self) -> None:
        """Its memory is not looked at again. ``Domain.close`` does this too."""

class BnxtEvents(Events):
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

class Rings:
    """The rings of one queue pair, as its family has them. A `Qp` takes them."""

class BnxtRings(Rings):
    """The rings of one queue pair of a bnxt: where they are and what they are called.

    Entries are powers of two, WQEs static (128 bytes). ``send`` holds the ring, and right behind it the MSN table, 8
    bytes for each entry. Completion rings should have twice the entries of their ring: then
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
        events: BnxtEvents | None = None,
    ) -> None: ...

class Mlx5Events(Events):
    """The asynchronous event queue of a ConnectX: events of queue pairs go to those pairs.

    ``eqn`` is its number, ``uar`` the offset in ``bar`` of its user access region. It is never armed: queue pairs look
    at it as they poll, and so do control calls.
    """

    def __init__(self, domain: Domain, memory: Memory, entries: int, *, eqn: int, bar: Bar, uar: int) -> None: ...
    def events(self) -> list[bytes]:
        """Takes the events that belong to no queue pair (64 bytes each), newest last."""
    @property
    def consumer(self) -> int:
        """Entries taken since the queue was made."""

class UverbsEvents(Events):
    """What the kernel's driver tells of the queue pairs of a NIC that stays its own.

    ``element``: what `user_handle` called the object when it was made.
    """

    def __init__(self, domain: Domain, device: Uverbs) -> None: ...
    def name_qp(self, element: int, qp: int) -> None: ...
    def name_cq(self, element: int, cq: int) -> None: ...
    def forget(self, element: int) -> None: ...
    def service(self) -> None:
        """Hands every event that is there to its queue pair."""

def mlx5_watch(domain: Domain, bar: Bar) -> None:
    """Now and then as queue pairs are polled: an internal error that the firmware reports fails them all."""

class Mlx5Rings(Rings):
    """The rings of one queue pair of a ConnectX: where they are and what they are called.

    Entries are powers of two: of the send ring of 64 bytes, of the receive ring of 16 (one segment), of completion
    rings of 64. ``send``, ``receive``, ``records``, ``send_cq_records`` and ``receive_cq_records`` are offsets in
    ``memory``, records of two doorbell records each. Completion rings should have twice the entries of their ring;
    the same memory given twice is one completion queue that both rings share.
    ``uar``: the offset in ``bar`` of the pair's user access region; ``longest``: bytes of a message.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        qpn: int,
        memory: Memory,
        send: int,
        send_entries: int,
        receive: int,
        receive_entries: int,
        records: int,
        send_cq: Memory,
        send_cq_entries: int,
        send_cq_id: int,
        send_cq_records: int,
        receive_cq: Memory,
        receive_cq_entries: int,
        receive_cq_id: int,
        receive_cq_records: int,
        bar: Bar,
        uar: int,
        longest: int,
        events: Events | None = None,
    ) -> None: ...

class Qp:
    """A queue pair's rings, posts and completions; the base of ``userdma.Qp``. It sends the firmware nothing."""

    def __init__(self, rings: Rings, *, send: int = 4095, receive: int = 4095, immediate: bool = False) -> None: ...
    @property
    def number(self) -> int:
        """The NIC's number of the queue pair."""
    # for the control part
    @property
    def connected(self) -> bool:
        """Whether `connect` has succeeded. A pair that failed stays connected."""
    @property
    def dead(self) -> bool:
        """Whether it is destroyed, or its NIC closed."""
    @property
    def failure(self) -> str:
        """Why the pair failed, or ""."""
    def _set_connected(self, *, psn: int, mtu: int, local: bool) -> None:
        """The firmware took it to RTS: sends start at ``psn``. ``local``: its peer is a queue pair of the same NIC."""
    def _retire(self, why: str = "destroyed") -> None:
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

# ---- ConnectX's entries and records (userdma.mlx5.wqe, userdma.mlx5.doorbell) ----------------------------------------

def mlx5_request(
    buffer: Buffer,
    at: int,
    *,
    opcode: int,
    flags: int,
    qp: int,
    index: int,
    data: Iterable[tuple[int, int, int]],
    inlined: Buffer | None,
    immediate: int | None,
    remote: tuple[int, int] | None,
    atomic: tuple[int, int] | None,
) -> int:
    """Writes an entry of a send ring: how many segments it has."""

def mlx5_receive(buffer: Buffer, at: int, *, segments: int, data: Iterable[tuple[int, int, int]]) -> None:
    """Writes an entry of a receive ring."""

def mlx5_record(buffer: Buffer, at: int, value: int) -> None:
    """Stores a doorbell record, after what was stored before."""

def mlx5_arm_word(sequence: int, solicited: bool, consumer: int) -> int: ...
def mlx5_arm_doorbell(word: int, cqn: int) -> bytes: ...
def mlx5_doorbell(entry: Buffer, at: int) -> bytes: ...

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
    machine share, by "dgram:LOCAL,REMOTE" one to the peer that speaks frames as datagrams at a Unix socket. ``loss``,
    ``duplicate``, ``reorder``, ``corrupt`` and ``delay`` are probabilities for each packet; with any of them, or
    ``frames``, packets cross as RoCEv2 frames. A packet that is reordered is overtaken by 1 to ``reorder_depth``
    later ones, and waits ``delay_ns`` at most; one that is delayed arrives up to ``delay_ns`` later. The same ``seed``
    makes the same faults.
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
    def send_ethernet(self, frame: Buffer) -> None:
        """Sends a frame as it is, whatever it carries, to the Ethernet of its receivers."""
    def receive(self) -> list[bytes]: ...
    def close(self) -> None: ...

class SoftFunction(Function):
    """A NIC in software, as its firmware and its tests see it, whatever its family."""

    def bar_bytes(self, bar: int, offset: int, n: int) -> bytes: ...
    def bar_store(self, bar: int, offset: int, data: Buffer) -> None: ...
    def dma_read(self, bus: int, n: int) -> bytes: ...
    def dma_write(self, bus: int, data: Buffer) -> None: ...
    def dma_publish(self, bus: int, data: Buffer) -> None:
        """As dma_write, but that the last byte is there only once all others are, and right after them."""
    def ingress(self, open: bool) -> None:
        """Whether its RoCE takes packets."""
    def counts(self) -> dict[str, int]:
        """How many of its objects there are."""
    def stats(self) -> dict[str, int]: ...
    def raise_interrupt(self, vector: int) -> None:
        """As the device does; it is sent or stays pending as the host has set the vector up."""
    def vanish(self) -> None:
        """Leaves the bus: every read is all ones, DMA and packets stop."""
    def advance(self) -> bool:
        """Does the NIC's work that there is; True if there was any."""

class SoftBnxt(SoftFunction):
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
    def nq_create(self, id: int, base: int, level: int, page_size: int, entries: int, vector: int = 0) -> None: ...
    def nq_destroy(self, id: int) -> None: ...
    def nq_post(self, id: int, entry: Buffer) -> None: ...
    def creq_set(self, nq_id: int | None) -> None: ...
    def creq_post(self, entry: Buffer) -> None:
        """Writes an entry with the right valid bit; one that finds the ring full waits for its consumer."""
    def cq_create(
        self, id: int, entries: int, pbl: int, level: int, page_shift: int, nq_id: int | None, handle: int
    ) -> None: ...
    def cq_destroy(self, id: int) -> int:
        """How many notifications it sent."""
    def cq_resize(self, id: int, entries: int, pbl: int, level: int, page_shift: int) -> bool:
        """False: the ring has no room for its last entry."""
    def srq_create(self, id: int, fields: dict[str, Any]) -> None: ...
    def srq_destroy(self, id: int) -> None: ...
    def srq_limit(self, id: int) -> int:
        """Below how many receives an event is due; 0: none is."""
    def ah_create(self, id: int, fields: dict[str, Any]) -> None: ...
    def ah_destroy(self, id: int) -> None: ...
    def post_raw_cqe(self, cq_id: int, entry: Buffer) -> None: ...
    def qp_create(self, id: int, fields: dict[str, Any]) -> None: ...
    def qp_modify(self, id: int, fields: dict[str, Any]) -> None: ...
    def qp_destroy(self, id: int) -> None: ...
    def qp_query(self, id: int) -> dict[str, Any]: ...
    def fail_qp(self, id: int) -> None:
        """It goes to the error state by itself, with no entry to blame."""
    def mr_register(self, key: int, fields: dict[str, Any]) -> None: ...
    def mr_deregister(self, key: int) -> None: ...
    def key_claim(self, key: int, pd: int, kind: str) -> None:
        """A key under which entries of queue pairs register ("fast_register") or bind ("window1", "window2")."""
    def key_release(self, key: int) -> None: ...
    def ethernet_completions_create(
        self, id: int, base: int, level: int, page_size: int, entries: int, nq: int, handle: int
    ) -> None: ...
    def ethernet_completions_destroy(self, id: int) -> None: ...
    def ethernet_completions_post(self, id: int, entry: Buffer) -> None: ...
    def ethernet_transmit_create(
        self,
        id: int,
        base: int,
        level: int,
        page_size: int,
        entries: int,
        completions: int,
        statistics: int | None,
    ) -> None: ...
    def ethernet_transmit_destroy(self, id: int) -> None: ...
    def ethernet_receive_create(
        self,
        id: int,
        base: int,
        level: int,
        page_size: int,
        entries: int,
        statistics: int | None,
        pad: int = 0,
        aggregation_of: int | None = None,
    ) -> None:
        """``pad``: bytes left free before a packet. ``aggregation_of``: it is that receive ring's aggregation ring."""
    def ethernet_receive_destroy(self, id: int) -> None: ...
    def ethernet_vnic(self, id: int, fields: dict[str, Any]) -> None:
        """What a VNIC is from here on, by the names of soft::bnxt::VnicSpec."""
    def ethernet_vnic_remove(self, id: int) -> None: ...
    def ethernet_filter(self, id: int, mac: Buffer, mask: Buffer, vnic: int) -> None: ...
    def ethernet_filter_remove(self, id: int) -> None: ...
    def ethernet_statistics_create(self, id: int, address: int, period_ns: int) -> None: ...
    def ethernet_statistics_destroy(self, id: int) -> None: ...
    def ethernet_statistics_of_roce(self, id: int | None) -> None: ...
    def ethernet_statistics_clear(self, id: int) -> None: ...
    def ethernet_tunnels(self, vxlan: set[int], geneve: set[int]) -> None: ...
    def ethernet_link(self, up: bool) -> None: ...
    def ethernet_port(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Counters of the port: sent and received."""

class SoftMlx5(SoftFunction):
    """The ConnectX-6 Dx in software, without firmware.

    The methods are its firmware's: ids that there are none of are ``KeyError``, other impossible arguments
    ``ValueError``. A queue lies in ``pages``, bus addresses of ``1 << page_shift`` bytes each, from byte
    ``page_offset`` (default 0) of the first one on; ``dbr`` is the bus address of its doorbell record. UAR page n is at
    n * 4096 of BAR 0, and is not told of: pages 0 to 7 are the initialization segment and the vectors'.
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
        self, command: Callable[[int], object], reset: Callable[[], object], interface: Callable[[int], object]
    ) -> None:
        """What runs, in the thread that stored: ``command`` with what was stored to the doorbell of the command queue
        (initialization segment, byte 0x18; the bits of its entries); ``reset`` at a reset, or the release;
        ``interface`` with what was stored to the lower half of the queue's address (byte 0x14)."""
    def set_healthy(self, healthy: bool) -> None:
        """Whether the health counter of the initialization segment counts, as it does from a reset on."""
    def eq_create(self, id: int, fields: dict[str, Any]) -> None:
        """``pages``, ``page_shift``, ``page_offset``, ``log_entries``, ``vector``, ``events``: bit n for events of
        type n, which go there."""
    def eq_destroy(self, id: int) -> None: ...
    def eq_post(self, id: int, type: int, subtype: int, data: Buffer) -> None:
        """Writes an entry whose event data are these 28 bytes."""
    def event(self, type: int, subtype: int, data: Buffer) -> bool:
        """``eq_post`` to the queue that gets events of this type. False: none does."""
    def cq_create(self, id: int, fields: dict[str, Any]) -> None:
        """``pages``, ``page_shift``, ``page_offset``, ``log_entries``, ``cqe_bytes`` (64 or 128), ``eqn``, ``dbr``,
        ``overrun_ignore`` (False)."""
    def cq_destroy(self, id: int) -> None:
        """``ValueError`` while a queue pair uses it."""
    def cq_resize(self, id: int, fields: dict[str, Any]) -> bool:
        """``pages``, ``page_shift``, ``page_offset``, ``log_entries``, ``cqe_bytes``. False: the ring has no room for
        its last entry."""
    def cq_query(self, id: int) -> dict[str, int]:
        """``producer``, ``consumer``, ``overrun`` (0 or 1)."""
    def post_raw_cqe(self, cq_id: int, entry: Buffer) -> None:
        """64 bytes, whose owner bit is made right."""
    def srq_create(self, id: int, fields: dict[str, Any]) -> None:
        """``pd``, ``pages``, ``page_shift``, ``page_offset``, ``log_entries``, ``log_stride``, ``dbr``,
        ``limit`` (0)."""
    def srq_destroy(self, id: int) -> None: ...
    def srq_arm(self, id: int, limit: int) -> None: ...
    def srq_limit(self, id: int) -> int:
        """Below how many receives an event is due; 0: none is."""
    def qp_create(self, id: int, fields: dict[str, Any]) -> None:
        """``type`` (the number of st in a QP context), ``pd``, ``pages``, ``page_shift``, ``page_offset``, ``dbr``,
        ``log_rq_entries`` and ``log_rq_stride`` (absent: no receive ring), ``log_sq_entries`` (of 64 bytes; absent:
        no send ring), ``cqn_send``, ``cqn_receive``, ``srqn`` (absent: none), ``user_index`` (absent: completions have
        the SRQ's number there), ``wire_qpn`` (the number that peers know it by, if it is another: 1 of a QP1),
        ``source_qpn`` (that its datagrams say they are of), ``umr`` (True: it may change mkeys of any domain)."""
    def qp_modify(self, id: int, fields: dict[str, Any]) -> None:
        """As SoftBnxt's, by the same names: ``state`` (0 RESET, 1 INIT, 2 RTR, 3 RTS, 4 SQD, 5 SQE, 6 ERR), ``access``
        (IBV_ACCESS_* bits), ``pkey``, ``dest_qp``, ``mtu``, ``dmac``, ``smac``, ``sgid``, ``dgid``, ``hop_limit``,
        ``traffic_class``, ``timeout``, ``retry``, ``rnr_retry``, ``min_rnr_timer``, ``max_rd_atomic``,
        ``max_dest_rd_atomic``, ``rq_psn``, ``sq_psn``, ``qkey``."""
    def qp_destroy(self, id: int) -> None: ...
    def qp_query(self, id: int) -> dict[str, Any]:
        """What qp_modify sets, ``sq_counter`` (basic blocks consumed) and ``rq_counter``."""
    def fail_qp(self, id: int) -> None:
        """It goes to the error state by itself, with no entry to blame."""
    def page_fault_resume(self, type: int, token: int, queue: int, error: bool) -> str:
        """What waits for the page fault goes on, or with `error` fails: "" if there is one of this type and token, and
        it is the queue's; otherwise what is not: "fault" or "queue"."""
    def page_faults(self) -> int:
        """How many were not resumed yet."""
    def mkey_create(self, key: int, fields: dict[str, Any]) -> None:
        """``key`` is all 32 bits. ``pd``, ``access`` (IBV_ACCESS_* bits; reading locally is always allowed), ``mode``
        ("pa", "mtt", "klm", "ksm", "null"), ``start``, ``length``, ``length64`` (False), ``translations`` (the octwords
        of its list, for UMR), ``umr`` (False: work queue entries may change it), ``free`` (False: nothing is under it
        yet), ``remote_invalidate`` (False), ``qpn`` (of the only queue pair that may use it), ``page_shift`` (mtt, ksm:
        of an entry), and the list that is known now: ``pages`` (mtt: entries as the command has them), ``klms`` (klm:
        (bytes, key, address); ksm: (key, address)). ``paged`` (False): the low bits of pages say which are there."""
    def mkey_destroy(self, key: int) -> None:
        """Once it returns nothing reaches memory by it. The low byte of ``key`` does not matter."""
    def mkey_query(self, key: int) -> dict[str, Any]:
        """What mkey_create set and entries changed since: ``key``, ``pd``, ``access``, ``start``, ``length``,
        ``free``, ``klms`` (the first two of parts)."""
    def gid_set(self, index: int, gid: Buffer, mac: Buffer) -> None:
        """An entry of the RoCE address table, for datagrams."""
    def gid_clear(self, index: int) -> None: ...
    def group_attach(self, gid: Buffer, qpn: int) -> None:
        """A queue pair of datagrams gets what is sent to this multicast GID, until it is detached or destroyed."""
    def group_detach(self, gid: Buffer, qpn: int) -> None: ...
    # Ethernet. A send queue shares its doorbells with queue pairs: no send queue has a queue pair's number.
    def sq_create(self, id: int, fields: dict[str, Any]) -> None:
        """In RESET. ``pages``, ``page_shift``, ``page_offset``, ``log_entries`` (of 64 bytes), ``dbr`` (its second word
        is the counter), ``cqn``, ``pd``, ``user_index`` and ``transport_domain`` (absent: 0)."""
    def sq_modify(self, id: int, state: int) -> None:
        """MLX5_SQC_STATE_*: 0 RESET (its ring is empty), 1 READY, 3 ERROR."""
    def sq_destroy(self, id: int) -> None: ...
    def rq_create(self, id: int, fields: dict[str, Any]) -> None:
        """In RESET. ``cqn``, ``pd``, ``strip_vlan`` (not vsd), ``user_index`` (absent: 0), and its memory: ``pages``,
        ``page_shift``, ``page_offset``, ``log_entries``, ``log_stride`` (of bytes), ``dbr``, ``linked`` (False:
        cyclic); or ``srqn``, the pool (RMP) that it takes from."""
    def rq_modify(self, id: int, fields: dict[str, Any]) -> None:
        """``state`` (MLX5_RQC_STATE_*: 0 RESET, 1 READY, 3 ERROR), ``strip_vlan``: those that are given."""
    def rq_destroy(self, id: int) -> None: ...
    def tir_set(self, id: int, fields: dict[str, Any]) -> None:
        """What it is from here on: ``rqns`` (one, or a table that the hash indexes), ``hash_function``
        (MLX5_RX_HASH_FN_*: 0 none, 1 XOR, 2 Toeplitz), ``hash_key`` (40 bytes), ``hash_fields``
        (MLX5_HASH_FIELD_SEL_*), ``transport_domain`` (absent: 0)."""
    def tir_remove(self, id: int) -> None: ...
    def ethernet_loopback(self, groups: bool) -> None:
        """Whether packets to groups also come back, to TIRs of other transport domains than the sender's. Not so after
        a reset."""
    def flow_table_set(self, id: int, fields: dict[str, Any]) -> None:
        """A table of what is received, whole: ``miss`` (absent: packets that no entry takes are dropped; else the table
        that they go on to), ``entries`` in the order of their indices: (mask, value, action, destinations, counters,
        tag), where mask and value are fte_match_param (shorter ones end in zeros; its criteria that are not enabled
        too), action is MLX5_FLOW_CONTEXT_ACTION_*, destinations are ("tir", number) or ("table", number), counters are
        numbers of flow counters, and tag is the flow tag or 0."""
    def flow_table_remove(self, id: int) -> None: ...
    def flow_root_set(self, id: int | None) -> None:
        """The table that received packets go to at first. None: they are dropped."""
    def flow_counter(self, id: int) -> tuple[int, int]:
        """Packets and bytes that it counted; those of a number that no entry has named are 0."""
    def flow_counter_clear(self, id: int) -> None: ...
    def ethernet_link(self, up: bool) -> None: ...
    def ethernet_port(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Counters of the port, as SoftBnxt's: sent and received."""
    def ethernet_lost(self) -> int:
        """Packets that found no receive in their queue (out_of_buffer)."""

class VfioUserServer:
    """A soft function as a vfio-user device, served by a thread of its own."""

    def __init__(self, function: Function, path: str, *, once: bool = False) -> None: ...
    def close(self) -> None: ...
    def fileno(self) -> int:
        """Readable once it has ended."""
    @property
    def path(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    @property
    def connected(self) -> bool: ...
    @property
    def clients(self) -> int:
        """How many have come so far."""

class SoftGpu:
    """Memory behind a BAR, which devices without an IOMMU reach by its bus address."""

    def __init__(self, bytes: int) -> None: ...
    @property
    def bus(self) -> int: ...
    def __len__(self) -> int: ...
    def read(self, at: int, n: int) -> bytes: ...
    def write(self, at: int, data: Buffer) -> None: ...

# ---- ConnectX: completions in any buffer; userdma.mlx5.completion gives them their names -------------------------

def mlx5_owned(buffer: Buffer, at: int, *, count: int, entries: int) -> bool: ...
def mlx5_read(buffer: Buffer, at: int) -> mlx5_completion.Completion: ...
def mlx5_invalidate(buffer: Buffer, at: int) -> None: ...
