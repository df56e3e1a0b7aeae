"""What the soft Thor2's firmware gives out: its limits, its numbers, and the memory that requests describe.

Numbers: every kind of object has its own range, so that a number of one kind is never a valid number of another
(a driver that mixes two up is refused). Completion rings of the Ethernet part and completion queues of the RoCE part
share one doorbell and so one number space, as do transmit rings and queue pairs: the RoCE part begins at 1024.
A number that was freed is the last to be given out again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PAGE = 4096

PTE_VALID = 1  # PTU_PTE_VALID (bnxt.h)
PTE_ADDRESS = ~0xFFF & (1 << 64) - 1
PTES_PER_PAGE = 512  # MAX_PBL_LVL_1_PGS (qplib_res.h): a table page of 4096 bytes

# The page sizes that requests name by number: FUNC_BACKING_STORE_CFG_V2_REQ_PAGE_SIZE_*, CMDQ_CREATE_QP_SQ_PG_SIZE_*.
PAGE_SHIFTS = (12, 13, 16, 21, 23, 30)
# The page sizes of a memory region, as powers of two. CMDQ_REGISTER_MR_LOG2_PG_SIZE_* names some; the kernel's driver
# uses every one from 4 KiB to 1 GiB on this chip (bnxt_re.h, BNXT_RE_PAGE_SIZE_SUPPORTED).
REGION_PAGE_SHIFTS = frozenset(range(12, 31))


@dataclass(frozen=True, slots=True)
class Limits:
    """How many objects of each kind the NIC has, and how large one may be.

    What the firmware reports is what it keeps: the request past a limit is refused. Queue pairs, completion queues,
    shared receive queues and keys are also bounded by the backing store that the driver configured for them.
    """

    nqs: int = 64  # notification queues; MSI-X vectors
    completion_rings: int = 256  # Ethernet completion rings
    tx_rings: int = 128
    rx_rings: int = 256  # aggregation rings included
    vnics: int = 64
    filters: int = 128
    stat_contexts: int = 128
    qps: int = 65536
    qp_wqes: int = 65535  # entries of a send or a receive ring
    cqs: int = 131072
    cqes: int = 1 << 20  # entries of a completion queue
    srqs: int = 8192
    srq_wqes: int = 32768
    mrs: int = 262144  # keys of memory regions
    mws: int = 262144
    ahs: int = 65536
    gids: int = 256
    pds: int = 65536
    dpis: int = 4096
    mr_bytes: int = 1 << 40
    sges: int = 6  # of a static WQE of 128 bytes
    sges_variable: int = 13
    inline: int = 96  # bytes in a static WQE
    inline_variable: int = 480
    rd_atomic: int = 126  # outstanding RDMA reads and atomics, either way
    mtu: int = 4096  # the largest path MTU of the port, bytes

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"limit {name} is {value!r}: a count that is not negative is wanted")
        if self.mtu not in (256, 512, 1024, 2048, 4096):
            raise ValueError(f"limit mtu is {self.mtu}: 256, 512, 1024, 2048 or 4096 bytes are wanted")


class BadTable(Exception):
    """A page table, or memory that a request names, cannot be reached or is not what the request says."""


Read = Callable[[int, int], bytes]

_NOT_EVEN = bytes(range(1, 256, 2))


def _entries(read: Read, address: int, count: int, what: str) -> bytes:
    """``count`` entries of the table page or pages at ``address``, all present."""
    table = read(address, count * 8)
    if table[::8].translate(None, _NOT_EVEN):
        low = table[::8]
        index = next(i for i, byte in enumerate(low) if not byte & PTE_VALID)
        raise BadTable(f"entry {index} of {count} of {what} at {address:#x} is not valid")
    return table


def check_pages(read: Read, base: int, level: int, page_shift: int, size: int, *, table_shift: int = 12) -> None:
    """Checks that ``size`` bytes in pages of ``1 << page_shift`` bytes are described at bus address ``base``.

    Level 0: base is the only page. Level 1: base is a table of pages. Level 2: base is a table of tables, each of
    ``1 << table_shift`` bytes. Every entry needed must be present; the pages themselves are not touched, but for the
    only page of level 0, as the hardware does not touch them before it uses them. Raises BadTable.
    """
    page = 1 << page_shift
    pages = max(1, -(-size // page))
    if level == 0:
        if pages > 1:
            raise BadTable(f"level 0 is one page of {page} bytes; {size} bytes need {pages}")
        if base % PAGE:
            raise BadTable(f"page {base:#x} does not start on a multiple of {PAGE}")
        read(base, min(size, 8) or 1)
        return
    if level not in (1, 2):
        raise BadTable(f"{level} is not a level of a page table")
    if base % PAGE:
        raise BadTable(f"table {base:#x} does not start on a multiple of {PAGE}")
    per_table = (1 << table_shift) // 8
    if level == 1:
        _entries(read, base, pages, "the table")
        return
    tables = -(-pages // per_table)
    directory = _entries(read, base, tables, "the directory")
    for i in range(tables):
        address = int.from_bytes(directory[i * 8 : i * 8 + 8], "little") & PTE_ADDRESS
        _entries(read, address, min(per_table, pages - i * per_table), f"table {i}")


def find_page(read: Read, base: int, level: int, page_shift: int, index: int, *, table_shift: int = 12) -> int:
    """The bus address of page ``index`` of a table that check_pages found good."""
    if level == 0:
        return base + (index << page_shift)
    if level == 2:
        per_table = (1 << table_shift) // 8
        base = int.from_bytes(read(base + index // per_table * 8, 8), "little") & PTE_ADDRESS
        index %= per_table
    return int.from_bytes(read(base + index * 8, 8), "little") & PTE_ADDRESS


def check_buffer(read: Read, base: int, size: int) -> None:
    """Checks that the first and the last byte of ``size`` contiguous bytes can be reached. Raises BadTable."""
    read(base, 1)
    read(base + size - 1, 1)


@dataclass(slots=True)
class Ring:
    """A ring that HWRM_RING_ALLOC gave."""

    id: int
    type: int
    entries: int
    nq: int | None = None  # the notification queue of a completion ring
    cmpl: int | None = None  # the completion ring of a transmit ring
    rx: int | None = None  # the receive ring of an aggregation ring


@dataclass(slots=True)
class Vnic:
    id: int
    mru: int = 0
    rx: int | None = None
    cmpl: int | None = None
    strip_vlan: bool = False
    mask: int = 0  # CFA_L2_SET_RX_MASK
    multicast: list[bytes] = field(default_factory=list)
    hash_type: int = 0  # VNIC_RSS_CFG
    hash_key: bytes = bytes(40)
    tables: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by the RSS context's place: rings
    placement: dict[str, int | bool] = field(default_factory=dict)  # VNIC_PLCMODES_CFG


@dataclass(slots=True)
class Filter:
    id: int
    vnic: int
    mac: bytes
    mask: bytes
    receive: bool


@dataclass(slots=True)
class BackingStore:
    """The memory of one instance of one type: ``entries`` of the type's size."""

    entries: int
    bytes: int
    splits: tuple[int, ...]


@dataclass(slots=True)
class Cq:
    id: int
    entries: int
    nq: int
    users: int = 0  # rings of queue pairs that complete here


@dataclass(slots=True)
class Srq:
    id: int
    pd: int
    nq: int
    users: int = 0  # queue pairs that receive from it


@dataclass(slots=True)
class Key:
    """A key, and whether a region is registered under it."""

    key: int
    kind: int  # CMDQ_ALLOCATE_MRW_MRW_FLAGS_*
    pd: int
    unified: bool  # given by REGISTER_MR itself: deregistering gives it back
    claimed: bool = False  # for entries of queue pairs, which register or bind under it
    registered: bool = False
    bytes: int = 0

    @property
    def window(self) -> bool:
        """A memory window's, not a region's (CMDQ_ALLOCATE_MRW_MRW_FLAGS_MW_*)."""
        return self.kind >= 2


@dataclass(slots=True)
class Gid:
    index: int
    gid: bytes
    mac: bytes
    vlan: int


@dataclass(slots=True)
class Qp:
    id: int
    type: int
    pd: int
    scq: int
    rcq: int
    sq_size: int
    rq_size: int
    sq_sges: int
    rq_sges: int
    inline: int
    srq: int | None = None
    attributes: dict[str, int | bytes] = field(default_factory=dict)  # what MODIFY_QP set, by its field's name
