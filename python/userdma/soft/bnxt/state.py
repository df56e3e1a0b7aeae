"""Everything that the firmware of a soft Thor2 has given out since its last reset."""

from __future__ import annotations

from userdma.bnxt.hwrm import RingType
from userdma.soft.bnxt.resources import (
    BackingStore,
    Cq,
    Filter,
    Gid,
    Key,
    Limits,
    Qp,
    Ring,
    Srq,
    Vnic,
)
from userdma.soft.pools import Pool

FIRST_ROCE = 1024  # the first queue pair and completion queue of the RoCE part
GSI = 1  # the queue pair of the general services
KEYS = 1 << 20  # indices of keys
_XIDS = 1 << 20  # DBC_DBC_XID_MASK: what a doorbell can name


def ring_key(kind: int, number: int) -> int:
    """Rings by type and number; receive and aggregation rings share their numbers, the other types have their own."""
    return (RingType.RX if kind == RingType.RX_AGG else kind) << 16 | number


class State:
    """The objects by number, and the pools that the numbers come from."""

    def __init__(self, limits: Limits) -> None:
        self.registered = False  # FUNC_DRV_RGTR
        self.events = 0  # which asynchronous events the driver wants: a bit map of their numbers
        self.event_ring: int | None = None  # where they go
        self.reserved: dict[str, int] = {}  # FUNC_CFG, by the name that FUNC_QCFG has for it
        self.backing: dict[tuple[int, int], BackingStore] = {}  # by (type, instance)
        self.backing_done = False

        # Ethernet
        self.rings: dict[int, Ring] = {}  # by ring_key
        self.vnics: dict[int, Vnic] = {}
        self.filters: dict[int, Filter] = {}
        self.stat_contexts: dict[int, int] = {}  # number -> address of its counters
        self.rss_contexts: set[int] = set()
        self.tunnels: dict[int, tuple[int, int]] = {}  # number -> type, UDP port
        self.link_up = True
        self.link_downs = 0
        self.nq_pool = Pool(0x100, limits.nqs, end=0x400)
        self.cmpl_pool = Pool(0x10, limits.completion_rings, end=FIRST_ROCE)
        self.tx_pool = Pool(0x10, limits.tx_rings, end=FIRST_ROCE)
        self.rx_pool = Pool(0x4000, limits.rx_rings)
        self.vnic_pool = Pool(0x5000, limits.vnics)
        self.filter_pool = Pool(0x1_0000_6000, limits.filters)
        self.stat_pool = Pool(0x7000, limits.stat_contexts)
        self.rss_pool = Pool(0x8000, limits.vnics)
        self.tunnel_pool = Pool(1, 16)

        # RoCE
        self.initialized = False  # INITIALIZE_FW
        self.creq: int | None = None  # the notification queue that answers go to
        self.qps: dict[int, Qp] = {}
        self.cqs: dict[int, Cq] = {}
        self.srqs: dict[int, Srq] = {}
        self.ahs: set[int] = set()
        self.congestion: dict[str, int] = {}  # what MODIFY_ROCE_CC set, by its field's name
        self.keys: dict[int, Key] = {}
        self.windows = 0  # keys that are memory windows
        self.gids: dict[int, Gid] = {}
        self.qp_pool = Pool(FIRST_ROCE, limits.qps, end=_XIDS)
        self.cq_pool = Pool(FIRST_ROCE, limits.cqs, end=_XIDS)
        self.srq_pool = Pool(FIRST_ROCE, limits.srqs, end=_XIDS)
        self.ah_pool = Pool(1, limits.ahs, end=_XIDS)
        # A key is an index and, in its low byte, what the consumer chooses (IBTA volume 1, 10.6.3.3): 0 at first.
        self.key_pool = Pool(0x400 << 8, limits.mrs + limits.mws, step=1 << 8, end=KEYS << 8)
        self.gid_pool = Pool(0, limits.gids, end=limits.gids)

    def nq(self, number: int) -> Ring | None:
        """The notification queue of that number."""
        return self.rings.get(ring_key(RingType.NQ, number))

    def add_key(self, key: Key) -> None:
        self.keys[key.key] = key
        self.windows += key.window

    def drop_key(self, key: Key) -> None:
        del self.keys[key.key]
        self.windows -= key.window
        self.key_pool.give(key.key)

    def counts(self) -> dict[str, int]:
        return {
            "registered": int(self.registered),
            "initialized": int(self.initialized),
            "backing_stores": len(self.backing),
            "backing_bytes": sum(store.bytes for store in self.backing.values()),
            "rings": len(self.rings),
            "vnics": len(self.vnics),
            "filters": len(self.filters),
            "stat_contexts": len(self.stat_contexts),
            "rss_contexts": len(self.rss_contexts),
            "tunnels": len(self.tunnels),
            "qps": len(self.qps),
            "cqs": len(self.cqs),
            "srqs": len(self.srqs),
            "ahs": len(self.ahs),
            "keys": len(self.keys),
            "mrs": sum(key.registered for key in self.keys.values()),
            "gids": len(self.gids),
        }
