"""Everything that the firmware of a soft ConnectX has given out since its last reset.

Every kind of object has its own range of numbers, so that a number of one kind is never a valid number of another (a
driver that mixes two up is refused).
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from userdma.soft.mlx5.limits import Limits
from userdma.soft.mlx5.refusal import bad_resource, bad_state, past_limit
from userdma.soft.pools import Pool


class Stage(enum.IntEnum):
    """How far up the function is."""

    DISABLED = 0
    ENABLED = 1  # ENABLE_HCA
    BOOTED = 2  # and the pages for that were given
    INITIALIZED = 3  # INIT_HCA


@dataclass(slots=True, eq=False)
class Object:
    """One object. `context` is as the command that made or changed it has it; `more` is the firmware's own."""

    kind: str
    id: int
    context: bytes = b""
    uses: list[Object] = field(default_factory=list)  # what it stands on
    users: int = 0  # how many stand on it
    more: dict[str, int] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)  # as the data path was told of it

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} {self.id:#x}"


@dataclass(slots=True)
class Flow:
    """An entry of a flow table."""

    context: bytes
    uses: list[Object]  # its group, and where it sends packets


#: What an object of each kind is called.
NAMES = {
    "uar": "UAR",
    "pd": "protection domain",
    "td": "transport domain",
    "xrcd": "XRC domain",
    "mkey": "memory key",
    "psv": "PSV",
    "eq": "event queue",
    "cq": "completion queue",
    "qp": "queue pair",
    "rmp": "receive memory pool",
    "xrc_srq": "XRC shared receive queue",
    "srq": "shared receive queue",
    "q_counter": "set of counters",
    "tis": "TIS",
    "sq": "send queue",
    "rq": "receive queue",
    "rqt": "receive queue table",
    "tir": "TIR",
    "flow_table": "flow table",
    "flow_group": "flow group",
    "flow_counter": "flow counter",
}

# Pages of 4096 bytes that the firmware wants of the driver: to boot, to initialize, and for objects, of which some are
# given with those to initialize. It asks for more by an event when few are left, and gives back what it has too many.
BOOT_PAGES = 16
INIT_PAGES = 48
OBJECT_PAGES = 16
OBJECTS = 64  # in a page
FEW = 8
MORE = 32

FIRST_UAR = 8  # those below are the initialization segment, and the vectors' (csrc/soft/mlx5)


class State:
    """The objects by kind and number, the pools that the numbers come from, and the function's own state."""

    def __init__(self, limits: Limits, uars: int) -> None:
        self.stage = Stage.DISABLED
        self.issi = 0
        self.pages: deque[int] = deque()  # pages that the driver gave
        self.asked = 0  # pages that events asked for and that have not come
        self.capabilities: dict[int, bytes] = {}  # by kind, what SET_HCA_CAP made of them
        self.driver_version = ""
        self.link_up = True
        self.port_admin = 1  # admin_status of PAOS: MLX5_PORT_UP
        self.vport_admin = 2  # follows the link
        self.frame = 0  # PMTU's admin_mtu, if it was set
        self.gids: dict[int, bytes] = {}  # index -> its roce_addr_layout
        self.vport = b""  # the NIC vport context, without its list
        self.lists: dict[int, tuple[int, ...]] = {}  # by allowed_list_type
        self.registers: dict[int, bytes] = {}  # by number, what ACCESS_REG wrote
        self.vxlan_ports: set[int] = set()
        self.groups: dict[bytes, set[int]] = {}  # multicast GID -> queue pairs
        self.flows: dict[int, dict[int, Flow]] = {}  # by the number of the flow table, its entries
        self.roots: dict[int, int] = {}  # by type of flow table, the number of the root
        self.objects: dict[str, dict[int, Object]] = {kind: {} for kind in NAMES}
        srqs = limits.srqs
        self.pools = {
            "uar": Pool(FIRST_UAR, uars - FIRST_UAR, end=uars),
            "pd": Pool(0x10, limits.pds, end=1 << 24),
            "td": Pool(0x20000, limits.transport_domains),
            "xrcd": Pool(0x30000, limits.xrcds),
            "mkey": Pool(0x1000, limits.mkeys, end=1 << 24),
            "psv": Pool(0x40000, 1 << 10),
            "eq": Pool(4, limits.eqs, end=256),
            "cq": Pool(0x400, limits.cqs, end=1 << 24),
            "qp": Pool(0x100, limits.qps, end=0x50000),
            "rmp": Pool(0x50000, srqs, end=0x70000),
            "xrc_srq": Pool(0x70000, srqs, end=0x90000),
            "srq": Pool(0x90000, srqs, end=0xB0000),
            "q_counter": Pool(1, limits.counters, end=256),
            "tis": Pool(0xC0000, limits.tiss, end=0xC8000),
            "sq": Pool(0xB0000, limits.sqs, end=0xB8000),
            "rq": Pool(0xB8000, limits.rqs, end=0xC0000),
            "rqt": Pool(0xC8000, limits.rqts, end=0xD0000),
            "tir": Pool(0xD0000, limits.tirs, end=0xD8000),
            "flow_table": Pool(0x100, limits.flow_tables, end=1 << 24),
            "flow_group": Pool(0x10, limits.flow_groups),
            "flow_counter": Pool(0x10000, limits.flow_counters),
        }

    def get(self, kind: str, number: int) -> Object:
        """Raises Refused."""
        found = self.objects[kind].get(number)
        if found is None:
            raise bad_resource(f"{NAMES[kind]} {number:#x} does not exist")
        return found

    def add(self, kind: str, number: int, context: bytes = b"", uses: list[Object] | None = None) -> Object:
        """An object of a number that its pool gave."""
        made = Object(kind, number, context, uses or [])
        for other in made.uses:
            other.users += 1
        self.objects[kind][number] = made
        return made

    def check_unused(self, found: Object) -> None:
        """Raises Refused while others stand on it."""
        if found.users:
            raise bad_state(f"{found} is in use by {found.users} others")

    def drop(self, found: Object) -> None:
        """Forgets an object that nothing stands on."""
        del self.objects[found.kind][found.id]
        self.pools[found.kind].give(found.id)
        for other in found.uses:
            other.users -= 1

    def rebind(self, found: Object, uses: list[Object]) -> None:
        """What an object stands on from now on."""
        for other in uses:
            other.users += 1
        for other in found.uses:
            other.users -= 1
        found.uses = uses

    @property
    def spare_pages(self) -> int:
        """Pages that no object is in."""
        return len(self.pages) - BOOT_PAGES - INIT_PAGES - -(-self.total // OBJECTS)

    def check_pages(self) -> None:
        """Raises Refused if one object more has no room."""
        if self.total >= (len(self.pages) - BOOT_PAGES - INIT_PAGES) * OBJECTS:
            raise past_limit(f"{len(self.pages)} pages have no room for one object more")

    @property
    def total(self) -> int:
        """How many objects there are."""
        return sum(len(table) for table in self.objects.values())

    def counts(self) -> dict[str, int]:
        return {
            "stage": int(self.stage),
            "pages": len(self.pages),
            "gids": len(self.gids),
            "vxlan_ports": len(self.vxlan_ports),
            "roots": len(self.roots),
            "groups": len(self.groups),
            "flows": sum(len(entries) for entries in self.flows.values()),
            **{f"{kind}s": len(table) for kind, table in self.objects.items()},
        }
