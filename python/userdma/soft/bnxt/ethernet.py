"""The Ethernet commands of the soft Thor2's firmware: rings, statistics, the receive path, the port.

What it gives out moves packets in the NIC's data path at once (csrc/soft/bnxt/ethernet.h). The rules of hwrm.py for
error codes hold. What the commands of Linux's bnxt_en need is here; what this NIC does not do (aggregation of TCP
segments, time stamps, virtual functions, flow offload, wake on LAN, LEDs) is not among its capabilities, and its
commands are unknown to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from userdma import _core
from userdma.bnxt import hwrm as table
from userdma.bnxt import hwrm_ethernet as ethernet
from userdma.errors import Error
from userdma.messages import Fields, Message
from userdma.soft.bnxt.refusal import Answer, Refused, denied, every, invalid, known_enables, known_flags
from userdma.soft.bnxt.resources import Filter, Ring, Vnic, check_buffer, check_pages
from userdma.soft.bnxt.state import State, ring_key

if TYPE_CHECKING:
    from userdma.soft.bnxt.firmware import Firmware

LINK_SPEED = 4000  # hundreds of Mb/s: a Thor2 port has 400 Gb/s
LANES = 4
ETHERNET_MTU = 9500  # BNXT_MAX_MTU
MRU = ETHERNET_MTU + 22  # and the Ethernet header with two VLAN tags
RSS_ENTRIES = 64  # BNXT_RSS_TABLE_ENTRIES_P5: of the table of one RSS context, each a receive and a completion ring
RSS_KEY = 40  # HW_HASH_KEY_SIZE
SHORTEST_PERIOD = 1  # milliseconds between two writes of statistics
TIMER_UNITS = 80  # nanoseconds: coal_cap->timer_units where firmware does not say

INVALID_ENABLES = table.ErrorCode.INVALID_ENABLES

_RING = table.RingType
_LONGEST_RING = 1 << 17  # BNXT_QPLIB_NQE_MAX_CNT is the longest that Linux asks for
_ENTRY_BYTES = {_RING.L2_CMPL: 16, _RING.TX: 16, _RING.RX: 16, _RING.RX_AGG: 16, _RING.NQ: 16}
_NAMES = {_RING.NQ: "NQ", _RING.L2_CMPL: "completion ring", _RING.RX: "receive ring"}


class Ethernet:
    """The commands. The firmware's lock is held in every call."""

    def __init__(self, firmware: Firmware) -> None:
        self._firmware = firmware
        self.handlers: Mapping[str, Callable[[Fields], Answer]] = {
            "hwrm_ring_alloc": self._ring_alloc,
            "hwrm_ring_free": self._ring_free,
            "hwrm_ring_aggint_qcaps": self._ring_aggint_qcaps,
            "hwrm_ring_cmpl_ring_cfg_aggint_params": self._ring_aggint_params,
            "hwrm_stat_ctx_alloc": self._stat_ctx_alloc,
            "hwrm_stat_ctx_free": self._stat_ctx_free,
            "hwrm_stat_ctx_clr_stats": self._stat_ctx_clear,
            "hwrm_vnic_alloc": self._vnic_alloc,
            "hwrm_vnic_cfg": self._vnic_cfg,
            "hwrm_vnic_free": self._vnic_free,
            "hwrm_vnic_qcaps": self._vnic_qcaps,
            "hwrm_vnic_rss_cfg": self._rss_cfg,
            "hwrm_vnic_rss_qcfg": self._rss_qcfg,
            "hwrm_vnic_plcmodes_cfg": self._placement_cfg,
            "hwrm_vnic_rss_cos_lb_ctx_alloc": self._rss_context_alloc,
            "hwrm_vnic_rss_cos_lb_ctx_free": self._rss_context_free,
            "hwrm_cfa_l2_filter_alloc": self._filter_alloc,
            "hwrm_cfa_l2_filter_free": self._filter_free,
            "hwrm_cfa_l2_set_rx_mask": self._set_rx_mask,
            "hwrm_tunnel_dst_port_alloc": self._tunnel_alloc,
            "hwrm_tunnel_dst_port_free": self._tunnel_free,
            "hwrm_queue_qportcfg": self._queue_qportcfg,
            "hwrm_queue_pri2cos_qcfg": self._queue_pri2cos,
            "hwrm_queue_pfcenable_qcfg": self._queue_pfcenable,
            "hwrm_port_phy_qcfg": self._port_phy_qcfg,
            "hwrm_port_phy_qcaps": self._port_phy_qcaps,
            "hwrm_port_phy_cfg": self._port_phy_cfg,
            "hwrm_port_led_qcaps": self._port_led_qcaps,
            "hwrm_port_qstats": self._port_qstats,
            "hwrm_port_qstats_ext": self._port_qstats_ext,
        }

    @property
    def _state(self) -> State:
        return self._firmware.state

    @property
    def _core(self) -> _core.SoftBnxt:
        return self._firmware.core

    def forget(self) -> None:
        """Gives back what is in the data path. A reset may have ended it there already."""
        core, state = self._core, self._state
        core.ingress(False)
        ends: list[Callable[[], None]] = [
            partial(core.ethernet_link, True),
            partial(core.ethernet_tunnels, set(), set()),
        ]
        ends += [partial(core.ethernet_filter_remove, number) for number in state.filters]
        ends += [partial(core.ethernet_vnic_remove, number) for number in state.vnics]
        order = (_RING.TX, _RING.RX_AGG, _RING.RX, _RING.L2_CMPL, _RING.NQ)
        for ring in sorted(state.rings.values(), key=lambda ring: order.index(_RING(ring.type))):
            ends.append(partial(self._end, ring))
        ends += [partial(core.ethernet_statistics_destroy, number) for number in state.stat_contexts]
        for end in ends:
            with suppress(KeyError, Error):
                end()

    def done(self, ring: int, sequence: int) -> None:
        """Tells of an answered command on a completion ring, or a notification queue, as its request asked."""
        entry = ethernet.HWRM_CMPL.pack(sequence_id=sequence)
        if ring_key(_RING.L2_CMPL, ring) in self._state.rings:
            self._core.ethernet_completions_post(ring, entry)
        elif ring_key(_RING.NQ, ring) in self._state.rings:
            self._core.nq_post(ring, entry)
        else:
            self._firmware.dropped["hwrm_completion_ring"] += 1

    def event(self, event: ethernet.AsyncEvent, data1: int) -> None:
        """An asynchronous event, to the queue that FUNC_CFG named, if the driver registered for it."""
        state = self._state
        if state.event_ring is None or not state.events >> event & 1:
            return
        if ring_key(_RING.NQ, state.event_ring) in state.rings:
            entry = ethernet.HWRM_ASYNC_EVENT_CMPL.pack(event_id=event, event_data1=data1)
            self._core.nq_post(state.event_ring, entry)

    def _must_be_registered(self) -> None:
        if not self._state.registered:
            raise denied("no driver is registered (FUNC_DRV_RGTR)")

    # ---- rings -------------------------------------------------------------------------------------------------------

    def _ring_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        state, core = self._state, self._core
        enables = request.enables
        known_enables(enables, every(table.RingAllocEnables))
        known_flags(request.flags, every(table.RingAllocFlags))
        kind = request.ring_type
        entry = _ENTRY_BYTES.get(kind)
        if entry is None:
            raise invalid(f"ring type {kind} is not one of this NIC's")
        length = request.length
        if not 2 <= length <= _LONGEST_RING or length & (length - 1):
            raise invalid(f"{length} entries: a power of two from 2 to {_LONGEST_RING} is possible")
        base, level, shift = request.page_tbl_addr, request.page_tbl_depth, request.page_size
        if level == 0:
            # One stretch of memory; page_size is not looked at.
            if base % 16:
                raise invalid(f"ring {base:#x} does not start on a multiple of 16")
            check_buffer(core.dma_read, base, length * entry)
        elif level in (1, 2) and 12 <= shift <= 30:
            check_pages(core.dma_read, base, level, shift, length * entry)
        else:
            raise invalid(f"page table of depth {level} over pages of 2^{shift} bytes")
        page = 1 << shift if level else 4096

        ring = Ring(0, kind, length)
        if enables & table.RingAllocEnables.NQ_RING_ID_VALID:
            ring.nq = self.ring(request.nq_ring_id, _RING.NQ).id
        if enables & table.RingAllocEnables.STAT_CTX_ID_VALID and request.stat_ctx_id not in state.stat_contexts:
            raise invalid(f"statistics context {request.stat_ctx_id:#x} does not exist")
        # Linux names a context without the bit that says so.
        statistics = request.stat_ctx_id if request.stat_ctx_id in state.stat_contexts else None
        if kind == _RING.NQ:
            if request.int_mode not in (table.RingIntMode.MSIX, table.RingIntMode.POLL):
                raise invalid(f"interrupt mode {request.int_mode}: MSI-X or polling is possible")
            vector = request.logical_id  # bnxt.c hwrm_ring_alloc_send_msg
            if vector >= self._firmware.limits.nqs:
                raise invalid(f"MSI-X vector {vector}: there are {self._firmware.limits.nqs}")
            pool = state.nq_pool

            def make(number: int) -> None:
                core.nq_create(number, base, level, page, length, vector)
        elif kind == _RING.L2_CMPL:
            if ring.nq is None:
                raise Refused(INVALID_ENABLES, "a completion ring needs a notification queue (NQ_RING_ID_VALID)")
            nq, handle = ring.nq, request.cq_handle
            pool = state.cmpl_pool

            def make(number: int) -> None:
                core.ethernet_completions_create(number, base, level, page, length, nq, handle)
        elif kind == _RING.TX:
            cmpl = ring.cmpl = self.ring(request.cmpl_ring_id, _RING.L2_CMPL).id
            pool = state.tx_pool

            def make(number: int) -> None:
                core.ethernet_transmit_create(number, base, level, page, length, cmpl, statistics)
        else:
            if not enables & table.RingAllocEnables.RX_BUF_SIZE_VALID or not request.rx_buf_size:
                raise Refused(INVALID_ENABLES, "a receive ring needs the size of its buffers (RX_BUF_SIZE_VALID)")
            if kind == _RING.RX_AGG:
                if not enables & table.RingAllocEnables.RX_RING_ID_VALID:
                    raise Refused(INVALID_ENABLES, "an aggregation ring needs its receive ring (RX_RING_ID_VALID)")
                ring.rx = self.ring(request.rx_ring_id, _RING.RX).id
            pool = state.rx_pool
            pad = 2 if request.flags & table.RingAllocFlags.RX_SOP_PAD else 0

            def make(number: int) -> None:
                core.ethernet_receive_create(number, base, level, page, length, statistics, pad, ring.rx)

        ring.id = pool.take()
        try:
            make(ring.id)
        except BaseException:
            pool.give(ring.id)
            raise
        state.rings[ring_key(kind, ring.id)] = ring
        return {"ring_id": ring.id, "logical_ring_id": request.logical_id}

    def ring(self, number: int, kind: int, what: str | None = None) -> Ring:
        """The ring of that number and type. Refused if there is none."""
        ring = self._state.rings.get(ring_key(kind, number))
        if ring is None or ring.type != kind:
            raise invalid(f"{what or _NAMES.get(_RING(kind), 'ring')} {number:#x} does not exist")
        return ring

    def _ring_free(self, request: Fields) -> Answer:
        state = self._state
        kind = request.ring_type
        known_flags(request.flags, 0)  # all of them are for virtio rings
        if kind not in _ENTRY_BYTES:
            raise invalid(f"ring type {kind} is not one of this NIC's")
        ring = self.ring(request.ring_id, kind, "ring")
        users = []
        if kind == _RING.NQ:
            users = [f"ring {other.id:#x}" for other in state.rings.values() if other.nq == ring.id]
            users += [f"CQ {cq.id:#x}" for cq in state.cqs.values() if cq.nq == ring.id]
            users += [f"SRQ {srq.id:#x}" for srq in state.srqs.values() if srq.nq == ring.id]
            if state.creq == ring.id and state.initialized:
                users.append("the RoCE command channel")
        elif kind == _RING.L2_CMPL:
            users = [f"ring {other.id:#x}" for other in state.rings.values() if other.cmpl == ring.id]
        if users:
            raise denied(f"ring {ring.id:#x} is in use by {', '.join(users)}")
        if kind == _RING.NQ:
            if state.creq == ring.id:
                state.creq = None
            if state.event_ring == ring.id:
                state.event_ring = None
        elif kind == _RING.RX:
            # Linux frees a receive ring before its aggregation ring.
            for other in state.rings.values():
                if other.rx == ring.id:
                    other.rx = None
        self._end(ring)
        pools = {_RING.NQ: state.nq_pool, _RING.L2_CMPL: state.cmpl_pool, _RING.TX: state.tx_pool}
        pools.get(_RING(kind), state.rx_pool).give(ring.id)
        del state.rings[ring_key(kind, ring.id)]
        self._open_or_close()
        return {}

    def _end(self, ring: Ring) -> None:
        core = self._core
        if ring.type == _RING.NQ:
            core.nq_destroy(ring.id)
        elif ring.type == _RING.L2_CMPL:
            core.ethernet_completions_destroy(ring.id)
        elif ring.type == _RING.TX:
            core.ethernet_transmit_destroy(ring.id)
        else:
            core.ethernet_receive_destroy(ring.id)

    def _ring_aggint_qcaps(self, request: Fields) -> Answer:
        """Completions and interrupts are not held back, whatever the driver asks for."""
        return {"int_lat_tmr_max_max": 65535, "num_cmpl_aggr_int_max": 65535, "timer_units": TIMER_UNITS} | {
            f"{name}_max": 63 for name in ("num_cmpl_dma_aggr", "num_cmpl_dma_aggr_during_int")
        }

    def _ring_aggint_params(self, request: Fields) -> Answer:
        is_nq = request.flags & ethernet.AggregationFlags.IS_NQ
        self.ring(request.ring_id, _RING.NQ if is_nq else _RING.L2_CMPL)
        return {}

    # ---- statistics ----------------------------------------------------------------------------------------------

    def _stat_ctx_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        known_flags(request.stat_ctx_flags, table.StatCtxFlags.ROCE | table.StatCtxFlags.DUP_HOST_BUF)
        address = request.stats_dma_addr
        if address:
            if address % 8:
                raise invalid(f"counters at {address:#x}: not on a multiple of 8")
            # Drivers older than the field give no length.
            check_buffer(self._core.dma_read, address, request.stats_dma_length or ethernet.CTX_HW_STATS.size)
            if 0 < request.stats_dma_length < ethernet.CTX_HW_STATS.size:
                raise invalid(f"{request.stats_dma_length} bytes for {ethernet.CTX_HW_STATS.size} of counters")
        number = self._state.stat_pool.take()
        period = request.update_period_ms and max(request.update_period_ms, SHORTEST_PERIOD)
        try:
            self._core.ethernet_statistics_create(number, address, period * 1_000_000)
        except BaseException:
            self._state.stat_pool.give(number)
            raise
        self._state.stat_contexts[number] = address
        return {"stat_ctx_id": number}

    def _statistics(self, number: int) -> int:
        if number not in self._state.stat_contexts:
            raise invalid(f"statistics context {number:#x} does not exist")
        return number

    def _stat_ctx_free(self, request: Fields) -> Answer:
        number = self._statistics(request.stat_ctx_id)
        self._core.ethernet_statistics_destroy(number)
        del self._state.stat_contexts[number]
        self._state.stat_pool.give(number)
        return {"stat_ctx_id": number}

    def _stat_ctx_clear(self, request: Fields) -> Answer:
        self._core.ethernet_statistics_clear(self._statistics(request.stat_ctx_id))
        return {}

    # ---- the receive path --------------------------------------------------------------------------------------------

    def _vnic_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        known_flags(request.flags, table.VnicAllocFlags.DEFAULT)
        number = self._state.vnic_pool.take()
        self._state.vnics[number] = Vnic(number)
        self._tell(self._state.vnics[number])
        return {"vnic_id": number}

    def _vnic(self, number: int) -> Vnic:
        vnic = self._state.vnics.get(number)
        if vnic is None:
            raise invalid(f"VNIC {number:#x} does not exist")
        return vnic

    def _tell(self, vnic: Vnic) -> None:
        """The data path, what a VNIC is now."""
        fields: dict[str, Any] = {
            "mru": vnic.mru,
            "strip_vlan": vnic.strip_vlan,
            "promiscuous": bool(vnic.mask & table.RxMask.PROMISCUOUS),
            "broadcast": bool(vnic.mask & table.RxMask.BCAST),
            "all_multicast": bool(vnic.mask & table.RxMask.ALL_MCAST),
            "multicast": vnic.multicast if vnic.mask & table.RxMask.MCAST else [],
            "hash": vnic.hash_type,
            "key": vnic.hash_key,
            "table": [pair for index in sorted(vnic.tables) for pair in vnic.tables[index]],
        }
        if vnic.rx is not None and vnic.cmpl is not None:
            fields |= {"receive": vnic.rx, "completions": vnic.cmpl}
        fields |= vnic.placement
        self._core.ethernet_vnic(vnic.id, fields)
        self._open_or_close()

    def _vnic_cfg(self, request: Fields) -> Answer:
        known_flags(request.flags, every(table.VnicCfgFlags))
        enables = request.enables
        known_enables(enables, every(table.VnicCfgEnables))
        if enables & table.VnicCfgEnables.DFLT_RING_GRP:
            raise Refused(INVALID_ENABLES, "this generation has no ring groups")
        vnic = self._vnic(request.vnic_id)
        rx, cmpl = vnic.rx, vnic.cmpl
        if enables & table.VnicCfgEnables.DEFAULT_RX_RING_ID:
            rx = self.ring(request.default_rx_ring_id, _RING.RX).id
        if enables & table.VnicCfgEnables.DEFAULT_CMPL_RING_ID:
            cmpl = self.ring(request.default_cmpl_ring_id, _RING.L2_CMPL).id
        # Linux gives the MRU without the bit that says so.
        if enables & table.VnicCfgEnables.MRU or request.mru:
            if request.mru > MRU:
                raise invalid(f"an MRU of {request.mru}: the port takes {MRU}")
            vnic.mru = request.mru
        vnic.rx, vnic.cmpl = rx, cmpl
        vnic.strip_vlan = bool(request.flags & table.VnicCfgFlags.VLAN_STRIP_MODE)
        self._tell(vnic)
        return {}

    def _vnic_free(self, request: Fields) -> Answer:
        vnic = self._vnic(request.vnic_id)
        users = [f"{filter.id:#x}" for filter in self._state.filters.values() if filter.vnic == vnic.id]
        if users:
            raise denied(f"VNIC {vnic.id:#x} is where filters {', '.join(users)} send packets")
        self._core.ethernet_vnic_remove(vnic.id)
        del self._state.vnics[vnic.id]
        self._state.vnic_pool.give(vnic.id)
        self._open_or_close()
        return {}

    def _vnic_qcaps(self, request: Fields) -> Answer:
        flags = ethernet.VnicQcapsFlags
        return {
            "mru": MRU,
            "flags": flags.VLAN_STRIP_CAP | flags.RX_CMPL_V3_CAP | flags.RING_SELECT_MODE_TOEPLITZ_CAP,
            "max_aggs_supported": 0,
        }

    def _rss_context_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        number = self._state.rss_pool.take()
        self._state.rss_contexts.add(number)
        return {"rss_cos_lb_ctx_id": number}

    def _rss_context(self, number: int) -> int:
        if number not in self._state.rss_contexts:
            raise invalid(f"RSS context {number:#x} does not exist")
        return number

    def _rss_context_free(self, request: Fields) -> Answer:
        number = self._rss_context(request.rss_cos_lb_ctx_id)
        self._state.rss_contexts.remove(number)
        self._state.rss_pool.give(number)
        return {}

    def _rss_cfg(self, request: Fields) -> Answer:
        vnic = self._vnic(request.vnic_id)
        known_flags(request.hash_type, every(ethernet.HashType), "hash types")
        known_flags(request.flags, ethernet.RssFlags.IPSEC_HASH_TYPE_CFG_SUPPORT)
        if request.ring_select_mode != ethernet.RingSelectMode.TOEPLITZ:
            raise invalid(f"ring selection {request.ring_select_mode}: this NIC hashes as Toeplitz")
        if not request.ring_grp_tbl_addr:  # all that Linux sends to turn it off
            vnic.tables.clear()
            vnic.hash_type = 0
            self._tell(vnic)
            return {}
        self._rss_context(request.rss_ctx_idx)
        core = self._core
        raw = core.dma_read(request.ring_grp_tbl_addr, RSS_ENTRIES * 4)
        pairs = []
        for at in range(0, len(raw), 4):
            rx = self.ring(int.from_bytes(raw[at : at + 2], "little"), _RING.RX)
            cmpl = self.ring(int.from_bytes(raw[at + 2 : at + 4], "little"), _RING.L2_CMPL)
            pairs.append((rx.id, cmpl.id))
        vnic.hash_key = core.dma_read(request.hash_key_tbl_addr, RSS_KEY)
        vnic.hash_type = request.hash_type
        if request.ring_table_pair_index == 0:
            vnic.tables.clear()
        vnic.tables[request.ring_table_pair_index] = pairs
        self._tell(vnic)
        return {}

    def _rss_qcfg(self, request: Fields) -> Answer:
        vnic = self._vnic(request.vnic_id)
        return {"hash_type": vnic.hash_type}

    def _placement_cfg(self, request: Fields) -> Answer:
        flags, enables = ethernet.PlacementFlags, ethernet.PlacementEnables
        vnic = self._vnic(request.vnic_id)
        known_flags(request.flags, every(flags))
        known_enables(request.enables, enables.JUMBO_THRESH_VALID | enables.HDS_THRESHOLD_VALID)
        jumbo = request.flags & flags.JUMBO_PLACEMENT and request.enables & enables.JUMBO_THRESH_VALID
        vnic.placement = {
            "jumbo_threshold": request.jumbo_thresh if jumbo else 0,
            "split_ipv4": bool(request.flags & flags.HDS_IPV4),
            "split_ipv6": bool(request.flags & flags.HDS_IPV6),
            "split_threshold": request.hds_threshold if request.enables & enables.HDS_THRESHOLD_VALID else 0,
        }
        self._tell(vnic)
        return {}

    def _filter_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        known_flags(request.flags & ~0x30, every(table.L2FilterFlags))
        enables = request.enables
        known_enables(enables, every(table.L2FilterEnables))
        if not enables & table.L2FilterEnables.L2_ADDR:
            raise Refused(INVALID_ENABLES, "a filter without an address (L2_ADDR)")
        if not enables & table.L2FilterEnables.DST_ID:
            raise Refused(INVALID_ENABLES, "a filter without a destination (DST_ID)")
        vnic = self._vnic(request.dst_id)
        mask = bytes(request.l2_addr_mask)
        if not enables & table.L2FilterEnables.L2_ADDR_MASK:
            mask = b"\xff" * 6
        receive = bool(request.flags & table.L2FilterFlags.PATH_RX)
        number = self._state.filter_pool.take()
        filter = Filter(number, vnic.id, bytes(request.l2_addr), mask, receive)
        self._state.filters[number] = filter
        if receive:
            self._core.ethernet_filter(number, filter.mac, mask, vnic.id)
        self._open_or_close()
        return {"l2_filter_id": number, "flow_id": number & 0x3FFFFFFF}

    def _filter_free(self, request: Fields) -> Answer:
        filter = self._state.filters.get(request.l2_filter_id)
        if filter is None:
            raise invalid(f"filter {request.l2_filter_id:#x} does not exist")
        if filter.receive:
            self._core.ethernet_filter_remove(filter.id)
        del self._state.filters[filter.id]
        self._state.filter_pool.give(filter.id)
        self._open_or_close()
        return {}

    def _set_rx_mask(self, request: Fields) -> Answer:
        vnic = self._vnic(request.vnic_id)
        known_flags(request.mask, every(table.RxMask), "masks")
        multicast: list[bytes] = []
        if request.mask & table.RxMask.MCAST and request.num_mc_entries:
            if request.num_mc_entries > self._firmware.limits.filters:
                raise invalid(f"{request.num_mc_entries} multicast addresses of {self._firmware.limits.filters}")
            raw = self._core.dma_read(request.mc_tbl_addr, request.num_mc_entries * 6)
            multicast = [raw[at : at + 6] for at in range(0, len(raw), 6)]
        vnic.mask, vnic.multicast = request.mask, multicast
        self._tell(vnic)
        return {}

    def _open_or_close(self) -> None:
        """RoCE packets come in once a filter for this MAC leads to a VNIC whose default rings exist."""
        state, mac = self._state, self._firmware.mac

        def leads(filter: Filter) -> bool:
            vnic = state.vnics.get(filter.vnic)
            return (
                filter.receive
                and all(a & m == b & m for a, b, m in zip(filter.mac, mac, filter.mask, strict=True))
                and vnic is not None
                and vnic.mru > 0
                and vnic.rx is not None
                and vnic.cmpl is not None
                and ring_key(_RING.RX, vnic.rx) in state.rings
                and ring_key(_RING.L2_CMPL, vnic.cmpl) in state.rings
            )

        self._core.ingress(any(leads(filter) for filter in state.filters.values()))

    # ---- tunnels: of which the NIC computes the inner packet's checksums ---------------------------------------------

    def _tunnel_alloc(self, request: Fields) -> Answer:
        kind = request.tunnel_type
        if kind not in (ethernet.TunnelType.VXLAN, ethernet.TunnelType.GENEVE):
            raise Refused(table.ErrorCode.CMD_NOT_SUPPORTED, f"tunnels of type {kind}")
        port = int.from_bytes(request["tunnel_dst_port_val"], "big")
        number = self._state.tunnel_pool.take()
        self._state.tunnels[number] = (kind, port)
        self._tell_tunnels()
        return {"tunnel_dst_port_id": number}

    def _tunnel_free(self, request: Fields) -> Answer:
        number = request.tunnel_dst_port_id
        if self._state.tunnels.get(number, (None, 0))[0] != request.tunnel_type:
            raise invalid(f"tunnel port {number:#x} of type {request.tunnel_type} does not exist")
        del self._state.tunnels[number]
        self._state.tunnel_pool.give(number)
        self._tell_tunnels()
        return {}

    def _tell_tunnels(self) -> None:
        def ports(wanted: ethernet.TunnelType) -> set[int]:
            return {port for kind, port in self._state.tunnels.values() if kind == wanted}

        self._core.ethernet_tunnels(ports(ethernet.TunnelType.VXLAN), ports(ethernet.TunnelType.GENEVE))

    # ---- the port ----------------------------------------------------------------------------------------------------

    def _port(self, number: int) -> None:
        if number not in (0, 0xFFFF):
            raise invalid(f"port {number} is not this function's, 0")

    def _queue_qportcfg(self, request: Fields) -> Answer:
        self._port(request.port_id)
        # Two queues: Ethernet traffic, lossy, and RoCE traffic, lossless.
        return {
            "max_configurable_queues": 2,
            "max_configurable_lossless_queues": 1,
            "queue_id0": 0,
            "queue_id0_service_profile": table.ServiceProfile.LOSSY,
            "queue_id1": 4,
            "queue_id1_service_profile": table.ServiceProfile.LOSSLESS_ROCE,
            "qid0_name": b"L2".ljust(16, b"\0"),
            "qid1_name": b"ROCE".ljust(16, b"\0"),
        }

    def _queue_pri2cos(self, request: Fields) -> Answer:
        """Every priority to the Ethernet queue, 0."""
        known_flags(request.flags, every(ethernet.PriToCosFlags))
        return {}

    def _queue_pfcenable(self, request: Fields) -> Answer:
        """Of no priority."""
        self._port(request.port_id)
        return {}

    def _port_phy_qcaps(self, request: Fields) -> Answer:
        self._port(request.port_id)
        flags = ethernet.PhyFlags2
        return {
            "flags": ethernet.PhyFlags.LOCAL_LPBK_NOT_SUPPORTED,
            "port_cnt": 1,
            "flags2": flags.SPEEDS2_SUPPORTED
            | flags.PAUSE_UNSUPPORTED
            | flags.PFC_UNSUPPORTED
            | flags.REMOTE_LPBK_UNSUPPORTED,
            "internal_port_cnt": 1,
            "supported_speeds2_force_mode": ethernet.Speeds2.N400GB_PAM4_112,
        }

    def _port_phy_qcfg(self, request: Fields) -> Answer:
        self._port(request.port_id)
        answer: Answer = {
            "link": table.PhyLink.NO_LINK,
            "duplex_cfg": table.Duplex.FULL,
            "duplex_state": table.Duplex.FULL,
            "force_link_speeds2": ethernet.ForceSpeeds2.N400GB_PAM4_112,
            "support_speeds2": ethernet.Speeds2.N400GB_PAM4_112,
            "option_flags": table.PhyOptions.SPEEDS2_SUPPORTED | table.PhyOptions.SIGNAL_MODE_KNOWN,
            "fec_cfg": ethernet.FecConfig.FEC_NONE_SUPPORTED,
            "phy_type": ethernet.PhyType.N400G_BASECR4,
            "media_type": ethernet.MediaType.DAC,
            "xcvr_pkg_type": ethernet.XcvrPackage.XCVR_EXTERNAL,
            "phy_vendor_name": b"userdma".ljust(16, b"\0"),
            "phy_vendor_partnumber": b"soft".ljust(16, b"\0"),
        }
        if self._state.link_up:
            answer |= {
                "link": table.PhyLink.LINK,
                "link_speed": LINK_SPEED,
                "signal_mode": ethernet.SignalMode.PAM4_112,
                "active_lanes": LANES,
            }
        return answer

    def _port_phy_cfg(self, request: Fields) -> Answer:
        """The link can be taken down and up; it has one speed."""
        self._port(request.port_id)
        enables = table.PhyCfgEnables
        known_enables(request.enables, every(enables))
        if request.enables & enables.FORCE_LINK_SPEEDS2 and (
            request.force_link_speeds2 != ethernet.ForceSpeeds2.N400GB_PAM4_112
        ):
            raise invalid(f"a speed of {request.force_link_speeds2:#x}: this port has 400 Gb/s")
        if request.enables & (enables.AUTO_MODE | enables.LPBK) and (request.auto_mode or request.lpbk):
            raise invalid("this port neither negotiates its speed nor loops back")
        up = not request.flags & table.PhyCfgFlags.FORCE_LINK_DWN
        if up != self._state.link_up:
            self._state.link_up = up
            self._state.link_downs += not up
            self._core.ethernet_link(up)
            self.event(ethernet.AsyncEvent.LINK_STATUS_CHANGE, int(up))
        return {}

    def _port_led_qcaps(self, request: Fields) -> Answer:
        self._port(request.port_id)
        return {"num_leds": 0}

    def _write(self, message: Message, address: int, size: int, values: Mapping[str, int]) -> int:
        """Counters, as many of the message's as fit in the driver's memory; how many bytes."""
        if not address or not size:
            return 0
        data = message.pack(**values)[: size - size % 8]
        self._core.dma_write(address, data)
        return len(data)

    def _port_qstats(self, request: Fields) -> Answer:
        self._port(request.port_id)
        known_flags(request.flags, 0)  # COUNTER_MASK comes with a capability that this NIC does not have
        sent, received = self._core.ethernet_port()
        written = {}
        for way, message, address, counts in (
            ("tx", ethernet.TX_PORT_STATS, request.tx_stat_host_addr, sent),
            ("rx", ethernet.RX_PORT_STATS, request.rx_stat_host_addr, received),
        ):
            values = {
                f"{way}_{name}_frames": counts["sizes"][i]
                for i, name in enumerate(
                    (
                        "64b",
                        "65b_127b",
                        "128b_255b",
                        "256b_511b",
                        "512b_1023b",
                        "1024b_1518b",
                        "1519b_2047b",
                        "2048b_4095b",
                        "4096b_9216b",
                        "9217b_16383b",
                    )
                )
            }
            values |= {
                f"{way}_good_vlan_frames": counts["tagged"],
                f"{way}_tagged_frames": counts["tagged"],
                f"{way}_total_frames": counts["frames"],
                f"{way}_good_frames": counts["frames"],
                f"{way}_ucast_frames": counts["unicast"],
                f"{way}_mcast_frames": counts["multicast"],
                f"{way}_bcast_frames": counts["broadcast"],
                f"{way}_bytes": counts["bytes"],
                f"{way}_stat_discard": counts["discards"],
            }
            values["tx_stat_error" if way == "tx" else "rx_stat_err"] = counts["errors"]
            written[f"{way}_stat_size"] = self._write(message, address, message.size, values)
        return written

    def _port_qstats_ext(self, request: Fields) -> Answer:
        self._port(request.port_id)
        known_flags(request.flags, 0)
        sent, received = self._core.ethernet_port()
        rx = {
            "link_down_events": self._state.link_downs,
            "rx_bytes_cos0": received["bytes"],
            "rx_packets_cos0": received["frames"],
        }
        tx = {"tx_bytes_cos0": sent["bytes"], "tx_packets_cos0": sent["frames"]}
        return {
            "tx_stat_size": self._write(
                ethernet.TX_PORT_STATS_EXT, request.tx_stat_host_addr, request.tx_stat_size, tx
            ),
            "rx_stat_size": self._write(
                ethernet.RX_PORT_STATS_EXT, request.rx_stat_host_addr, request.rx_stat_size, rx
            ),
            "total_active_cos_queues": 1,
        }
