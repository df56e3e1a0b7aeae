"""The RoCE command channel of the soft Thor2 (RCFW): its ring of commands, and what each command does and answers.

Names, offsets and statuses are roce_hsi.h's (Linux), the channel is qplib_rcfw.c's. Where those do not say what
firmware makes of a wrong value, the answer is the status whose name fits: INVALID_PARAMETER for numbers, memory and
attributes that cannot be, RESOURCES for a limit reached, INVALID_CMD for an opcode that there is none of or that cannot
come now, NOT_IMPLEMENTED for a known command that this firmware does not have, FAIL for an object still in use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from userdma import _core
from userdma.bnxt import rcfw as table
from userdma.bnxt.rcfw import ModifyMask as Mask
from userdma.bnxt.rcfw import QpState, Status
from userdma.errors import Error
from userdma.messages import Command, Fields
from userdma.soft.bnxt import backing, statistics, transitions
from userdma.soft.bnxt.hwrm import FIRMWARE, INTERFACE
from userdma.soft.bnxt.resources import (
    PAGE_SHIFTS,
    REGION_PAGE_SHIFTS,
    BadTable,
    Cq,
    Gid,
    Key,
    Qp,
    Srq,
    check_pages,
    find_page,
)
from userdma.soft.bnxt.state import GSI
from userdma.soft.faults import Fault, Kind
from userdma.soft.pools import Exhausted

if TYPE_CHECKING:
    from userdma.soft.bnxt.firmware import Firmware
    from userdma.soft.bnxt.state import State

BASE = 0x600  # RCFW_COMM_BASE_OFFSET, in BAR 0
FIRST = 1 << 31  # FIRMWARE_FIRST_FLAG: the channel starts anew
INDEX = 0xFFFF  # the producer counts slots modulo 2^16
TLV = 0x8000  # CMD_DISCR_TLV_ENCAP (qplib_tlv.h): the first two bytes of a command in an envelope
ROCE_COMMAND = 3  # TLV_TYPE_ROCE_SP_COMMAND: what the envelope is about

STATIC_WQE = 128  # sizeof(struct sq_send)
SLOT = 16  # sizeof(struct sq_sge): what variable-size WQEs are made of
RECEIVE_HEADER = 32  # sizeof(struct rq_wqe_hdr)
MSN_ENTRY = 8  # sizeof(struct sq_msn_search)
CQE = 32  # sizeof(struct cq_base)

# roce_tlv (qplib_tlv.h): discriminator, flags, type, length of what is in it, slots in all.
_ENVELOPE = struct.Struct("<HBBHHB7x")
# Commands that may come in an envelope, with more than the table has behind them.
_ENVELOPED = frozenset({"modify_roce_cc", "query_roce_cc"})

# What older versions of the header (Linux 6.12) have less than the tables.
_SHORTEST = {"modify_qp": 128}

# Commands that can come before INITIALIZE_FW (qplib_rcfw.c __send_message_basic_sanity).
_EARLY = frozenset({"query_func", "query_version", "initialize_fw"})

Answer = dict[str, Any]
T = TypeVar("T")


class Refused(Exception):
    """The command is answered with a status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def _wrong(why: str) -> Refused:
    return Refused(Status.INVALID_PARAMETER, why)


@dataclass(slots=True)
class _Ring:
    """The ring of commands, as the driver described it."""

    base: int
    level: int
    slots: int
    consumer: int = 0


class Rcfw:
    """The channel and its commands. The firmware's lock is held in every call."""

    def __init__(self, firmware: Firmware) -> None:
        self._firmware = firmware
        self._ring: _Ring | None = None
        self._handlers: dict[str, Callable[[Fields], Answer]] = {
            "initialize_fw": self._initialize,
            "deinitialize_fw": self._deinitialize,
            "query_version": self._query_version,
            "query_func": self._query_func,
            "create_qp": self._create_qp,
            "modify_qp": self._modify_qp,
            "query_qp": self._query_qp,
            "destroy_qp": self._destroy_qp,
            "create_cq": self._create_cq,
            "destroy_cq": self._destroy_cq,
            "resize_cq": self._resize_cq,
            "create_srq": self._create_srq,
            "query_srq": self._query_srq,
            "destroy_srq": self._destroy_srq,
            "create_ah": self._create_ah,
            "destroy_ah": self._destroy_ah,
            "allocate_mrw": self._allocate_mrw,
            "register_mr": self._register_mr,
            "deregister_mr": self._deregister_mr,
            "deallocate_key": self._deallocate_key,
            "add_gid": self._add_gid,
            "modify_gid": self._modify_gid,
            "query_gid": self._query_gid,
            "delete_gid": self._delete_gid,
            "map_tc_to_cos": self._map_tc_to_cos,
            "modify_roce_cc": self._modify_roce_cc,
            "query_roce_cc": self._query_roce_cc,
            "query_roce_stats": self._query_roce_stats,
            "query_roce_stats_ext": self._query_roce_stats_ext,
        }

    @property
    def _state(self) -> State:
        return self._firmware.state

    # ---- the channel ---------------------------------------------------------------------------------------------

    def trigger(self, producer: int) -> None:
        """Runs the commands up to the producer."""
        firmware = self._firmware
        if producer & FIRST:
            self._start()
        ring = self._ring
        if ring is None:
            firmware.dropped["rcfw_not_started"] += 1
            return
        end = producer & INDEX
        if (end - ring.consumer) & INDEX > ring.slots:
            firmware.dropped["rcfw_producer"] += 1  # no ring has so many commands in it
            return
        while ring.consumer != end and not firmware.stopped:
            try:
                self._command(ring, (end - ring.consumer) & INDEX)
            except (_core.DmaFault, BadTable):
                firmware.dropped["rcfw_command_fault"] += 1
                ring.consumer = end
        if ring.consumer != end:
            firmware.pend(lambda: firmware.rcfw(end))

    def _start(self) -> None:
        """Reads the ring's description out of the channel's registers (cmdq_init)."""
        firmware = self._firmware
        self._ring = None
        init = table.INIT.unpack(firmware.core.bar_bytes(0, BASE, table.INIT.size))
        state = self._state
        nq = state.nq(init.creq_ring_id)
        slots = init.cmdq_size
        if nq is None or not slots or slots & (slots - 1) or init.cmdq_lvl > 2:
            firmware.dropped["rcfw_init"] += 1
            return
        # Level 0 is one stretch of memory of any size (qplib_rcfw.c bnxt_qplib_alloc_rcfw_channel).
        self._ring = _Ring(init.cmdq_pbl, init.cmdq_lvl, slots)
        state.creq = nq.id
        firmware.core.creq_set(nq.id)

    def _slots(self, ring: _Ring, count: int) -> bytes:
        """The next ``count`` slots. Raises DmaFault, BadTable."""
        read = self._firmware.core.dma_read
        data = b""
        while len(data) < count * table.SLOT:
            at = (ring.consumer + len(data) // table.SLOT) % ring.slots * table.SLOT
            n = min(count * table.SLOT - len(data), ring.slots * table.SLOT - at, 4096 - (at & 0xFFF))
            page = find_page(read, ring.base, ring.level, 12, at >> 12)
            data += read(page + (at & 0xFFF), n)
        return data

    def _command(self, ring: _Ring, there: int) -> None:
        firmware = self._firmware
        data = self._slots(ring, 1)
        envelope = int.from_bytes(data[:2], "little") == TLV
        size = _ENVELOPE.unpack(data)[-1] if envelope else data[1]  # in slots, as cmdq_base.cmd_size
        count = min(max(size, 1), there)
        if count > 1:
            data = self._slots(ring, count)
        content = data[table.SLOT :] if envelope else data
        head = table.COMMAND.unpack(content, short=True)
        command = table.BY_CODE.get(head.opcode)
        if envelope and command and command.name not in _ENVELOPED:
            command = None
        name = command.name if command else f"unknown_{head.opcode:#04x}"
        request = command.request.unpack(content, short=True) if command else head

        fault = firmware.faults.next(name)
        kind = fault.kind if fault else None
        if kind is Kind.STOP_AT:
            firmware.note(name, request, None, "the firmware stopped at it, as it was told")
            firmware.halt()
            return
        ring.consumer = (ring.consumer + count) & INDEX
        verdict: Refused | None
        if envelope and command is None:
            verdict = Refused(Status.NOT_IMPLEMENTED, f"opcode {head.opcode:#x} is not implemented in an envelope")
        elif size == 0 or size > there:
            verdict = Refused(Status.INVALID_CMD, f"a command of {size} slots, of which {there} are there")
        else:
            verdict = None
        entry, status, why = self._run(head, command, request, len(content), fault, verdict)
        firmware.note(name, request, status, why)
        if kind is Kind.STOP_IN:
            firmware.halt()
            return
        self._respond(entry, fault)
        if kind is Kind.STOP_AFTER:
            firmware.halt()

    def _run(
        self,
        head: Fields,
        command: Command | None,
        request: Fields,
        size: int,
        fault: Fault | None,
        verdict: Refused | None,
    ) -> tuple[bytes, int, str]:
        """The answer's bytes, its status, and why."""
        cookie = head.cookie
        if fault and fault.kind is Kind.WRONG_SEQUENCE:
            cookie = cookie + 1 & 0xFFFF
        try:
            if fault and fault.kind is Kind.REFUSE:
                raise Refused(Status.FAIL if fault.status is None else fault.status, "refused, as it was told")
            if verdict:
                raise verdict
            if command is None:
                raise Refused(Status.INVALID_CMD, f"there is no opcode {head.opcode:#x}")
            handler = self._handlers.get(command.name)
            if handler is None:
                raise Refused(Status.NOT_IMPLEMENTED, f"{command.name} is not implemented")
            needed = _SHORTEST.get(command.name, command.request.size)
            if size < needed:
                raise _wrong(f"{size} bytes are not the {needed} of the command")
            if not self._state.initialized and command.name not in _EARLY:
                raise Refused(Status.INVALID_CMD, "INITIALIZE_FW comes first")
            fields = handler(request)
            answer = command.response.pack(cookie=cookie, **fields)
            return answer, Status.SUCCESS, ""
        except Refused as refused:
            status, why = refused.status, refused.why
        except Exhausted:
            status, why = Status.RESOURCES, "all that there are of them are taken"
        except BadTable as bad:
            status, why = Status.INVALID_PARAMETER, str(bad)
        except _core.DmaFault as dma:
            status, why = Status.INVALID_PARAMETER, f"memory that the command names cannot be reached: {dma}"
        except Error as gone:
            status, why = Status.HARDWARE_ERROR, str(gone)
        except Exception as bug:
            status, why = Status.INTERNAL_ERROR, f"a bug of the firmware: {bug!r}"
            self._firmware.bug(bug)
        return table.ANSWER.pack(cookie=cookie, status=status & 0xFF, event=head.opcode), status, why

    def _respond(self, entry: bytes, fault: Fault | None) -> None:
        kind = fault.kind if fault else None
        if kind is Kind.LOSE:
            return
        if fault and kind is Kind.GARBAGE:
            entry = fault.data if fault.data is not None else self._firmware.random.randbytes(len(entry))
        if fault and kind is Kind.DELAY:
            self._firmware.later(fault.seconds, lambda: self._post(entry))
        else:
            self._post(entry)

    def _post(self, entry: bytes) -> None:
        self._firmware.core.creq_post(entry)

    def _side_buffer(self, request: Fields, command: Command, fields: Answer, *, envelope: bool = False) -> Answer:
        """Writes the answer's larger part where the command wants it; the size in the answer is its bytes.

        ``envelope``: where the buffer is larger than it, in an envelope.
        """
        assert command.buffer is not None
        room = request.resp_size * table.SLOT
        if not room or not request.resp_addr:
            raise _wrong(f"{command.name} needs a buffer for its answer")
        data = command.buffer.pack(cookie=request.cookie, resp_size=request.resp_size, **fields)
        if envelope and room > len(data):
            slots = request.resp_size
            head = _ENVELOPE.pack(TLV, 0, 0, ROCE_COMMAND, len(data), slots)
            data = (head + data).ljust(room, b"\0")
        data = data[:room]
        self._firmware.core.dma_write(request.resp_addr, data)
        return {"size": len(data)}

    def forget(self) -> None:
        """Forgets the channel, and gives back what the RoCE part has in the data path."""
        self._ring = None
        self._drop_objects()

    def _drop_objects(self) -> None:
        """Gives back every object. A reset of the function may have ended those of the data path already."""
        core, state = self._firmware.core, self._state
        for qp in list(state.qps):
            with suppress(KeyError):
                core.qp_destroy(qp)
            del state.qps[qp]
            if qp != GSI:
                state.qp_pool.give(qp)
        for srq in list(state.srqs):
            with suppress(KeyError):
                core.srq_destroy(srq)
            del state.srqs[srq]
            state.srq_pool.give(srq)
        for ah in list(state.ahs):
            with suppress(KeyError):
                core.ah_destroy(ah)
            state.ahs.remove(ah)
            state.ah_pool.give(ah)
        for cq in list(state.cqs):
            with suppress(KeyError):
                core.cq_destroy(cq)
            del state.cqs[cq]
            state.cq_pool.give(cq)
        for key in list(state.keys.values()):
            with suppress(KeyError):
                self._empty(key)
            state.drop_key(key)
        for gid in list(state.gids):
            del state.gids[gid]
            state.gid_pool.give(gid)

    # ---- the function ------------------------------------------------------------------------------------------------

    def _initialize(self, request: Fields) -> Answer:
        state = self._state
        if state.initialized:
            raise Refused(Status.INVALID_CMD, "the RoCE firmware is initialized already")
        if request.stat_ctx_id not in state.stat_contexts:
            raise _wrong(f"statistics context {request.stat_ctx_id:#x} does not exist")
        if not state.backing_done:
            raise Refused(Status.FAIL, "the backing store is not configured (FUNC_BACKING_STORE_CFG_V2)")
        self._firmware.core.ethernet_statistics_of_roce(request.stat_ctx_id)
        state.initialized = True
        return {}

    def _deinitialize(self, request: Fields) -> Answer:
        self._drop_objects()
        self._firmware.core.ethernet_statistics_of_roce(None)
        self._state.initialized = False
        return {}

    def _query_version(self, request: Fields) -> Answer:
        parts = ("maj", "minor", "bld", "rsvd")
        return {
            **{f"fw_{part}": number & 0xFF for part, number in zip(parts, FIRMWARE, strict=True)},
            **{f"intf_{part}": number & 0xFF for part, number in zip(parts, INTERFACE, strict=True)},
        }

    def _query_func(self, request: Fields) -> Answer:
        limits = self._firmware.limits
        return self._side_buffer(
            request,
            table.QUERY_FUNC,
            {
                "max_mr_size": limits.mr_bytes,
                "max_qp": self._most_qps(),
                "max_qp_wr": min(limits.qp_wqes, 0xFFFF),
                "dev_cap_flags": table.DevCapFlags.EXT_STATS
                | table.DevCapFlags.MR_REGISTER_ALLOC
                | table.DevCapFlags.HW_REQUESTER_RETX_ENABLED
                | table.DevCapFlags.HW_RESPONDER_RETX_ENABLED,
                "max_cq": self._most_cqs(),
                "max_cqe": limits.cqes,
                "max_pd": limits.pds,
                "max_sge": limits.sges,
                "max_srq_sge": limits.sges,
                "max_qp_rd_atom": limits.rd_atomic,
                "max_qp_init_rd_atom": limits.rd_atomic,
                "max_mr": min(limits.mrs, self._most_keys()),
                "max_mw": min(limits.mws, self._most_keys()),
                "max_ah": limits.ahs,
                "max_srq_wr": limits.srq_wqes,
                "max_pkeys": 1,
                "max_inline_data": limits.inline,
                "max_srq": min(self._most_srqs(), 0xFFFF),
                "max_gid": limits.gids,
                "max_dpi": limits.dpis,
                "max_sge_var_wqe": limits.sges_variable,
                "max_inline_data_var_wqe": limits.inline_variable,
                "start_qid": 1024,
                "req_retransmission_support": table.Retransmission.HOST_MSN_TABLE,
            },
        )

    def _map_tc_to_cos(self, request: Fields) -> Answer:
        for cos in (request.cos0, request.cos1):
            if cos not in (0xFFFF, 0x8000) and cos > 7:  # ..._NO_CHANGE, ..._DISABLE
                raise _wrong(f"queue {cos}: there are 8")
        return {}

    # ---- congestion control and statistics ---------------------------------------------------------------------------

    def _modify_roce_cc(self, request: Fields) -> Answer:
        """Kept to be asked for; no packet of a soft NIC's wire waits in a switch."""
        if request.modify_mask & ~_CC_MASK:
            raise _wrong(f"attributes {request.modify_mask & ~_CC_MASK:#x} are not known")
        for bit, name in _CC_FIELDS.items():
            if request.modify_mask & bit:
                self._state.congestion[name] = getattr(request, name)
        return {}

    def _query_roce_cc(self, request: Fields) -> Answer:
        now = dict(self._state.congestion)
        now["alt_tos_dscp"] = now.get("alt_tos_dscp", 0) & 0x3F  # CREQ_QUERY_ROCE_CC_RESP_SB_ALT_TOS_DSCP_MASK
        return self._side_buffer(request, table.QUERY_ROCE_CC, now, envelope=True)  # qplib_tlv.h

    def _query_roce_stats(self, request: Fields) -> Answer:
        counted = statistics.errors(self._firmware.core.stats(), len(self._state.qps))
        return self._side_buffer(request, table.QUERY_ROCE_STATS, counted)

    def _query_roce_stats_ext(self, request: Fields) -> Answer:
        counted = statistics.extended(self._firmware.core.stats())
        return self._side_buffer(request, table.QUERY_ROCE_STATS_EXT, counted)

    # What the backing store has room for, past what it keeps for the Ethernet part.

    def _room(self, type: int, limit: int, *, splits: int) -> int:
        store = self._state.backing.get((type, 0))
        if store is None:
            return limit
        return max(0, min(limit, store.entries - sum(store.splits[:splits])))

    def _most_qps(self) -> int:
        return self._room(backing.QP, self._firmware.limits.qps, splits=2)

    def _most_cqs(self) -> int:
        return self._room(backing.CQ, self._firmware.limits.cqs, splits=1)

    def _most_srqs(self) -> int:
        return self._room(backing.SRQ, self._firmware.limits.srqs, splits=1)

    def _most_keys(self) -> int:
        return self._room(backing.MRAV, self._firmware.limits.mrs + self._firmware.limits.mws, splits=1)

    def _made(self, make: Callable[[], T], give_back: Callable[[], None]) -> T:
        """An object of the data path, which has the last word on what a command describes."""
        try:
            return make()
        except (ValueError, _core.DmaFault) as error:
            give_back()
            raise _wrong(str(error)) from None
        except BaseException:
            give_back()
            raise

    # ---- completion queues -------------------------------------------------------------------------------------------

    def _page_shift(self, number: int) -> int:
        if number >= len(PAGE_SHIFTS):
            raise _wrong(f"page size {number} is not one of this NIC's")
        return PAGE_SHIFTS[number]

    def _check_cq_size(self, size: int) -> None:
        most = self._firmware.limits.cqes + 1  # bnxt_re keeps one entry more than a program asks for
        if not 1 <= size <= most:
            raise _wrong(f"{size} entries: 1 to {most} are possible")

    def _create_cq(self, request: Fields) -> Answer:
        state, core = self._state, self._firmware.core
        if request.flags & ~_CQ_FLAGS:
            raise _wrong(f"flags {request.flags:#x} are not known")
        self._check_cq_size(request.cq_size)
        nq = state.nq(request.cnq_id)
        if nq is None:
            raise _wrong(f"notification queue {request.cnq_id:#x} does not exist")
        shift = self._page_shift(request.pg_size)
        check_pages(core.dma_read, request.pbl, request.lvl, shift, request.cq_size * CQE)
        number = state.cq_pool.take(self._most_cqs())
        self._made(
            lambda: core.cq_create(number, request.cq_size, request.pbl, request.lvl, shift, nq.id, request.cq_handle),
            lambda: state.cq_pool.give(number),
        )
        state.cqs[number] = Cq(number, request.cq_size, nq.id)
        return {"xid": number}

    def _cq(self, number: int) -> Cq:
        cq = self._state.cqs.get(number)
        if cq is None:
            raise _wrong(f"completion queue {number:#x} does not exist")
        return cq

    def _destroy_cq(self, request: Fields) -> Answer:
        state = self._state
        cq = self._cq(request.cq_cid)
        if cq.users:
            raise Refused(Status.FAIL, f"completion queue {cq.id:#x} is in use by {cq.users} rings")
        notifications = self._firmware.core.cq_destroy(cq.id)
        del state.cqs[cq.id]
        state.cq_pool.give(cq.id)
        # A driver waits until it has seen as many in the notification queue (bnxt_re's __wait_for_all_nqes).
        return {"xid": cq.id, "total_cnq_events": notifications & 0xFFFF}

    def _resize_cq(self, request: Fields) -> Answer:
        cq, core = self._cq(request.cq_cid), self._firmware.core
        size = request.new_cq_size
        self._check_cq_size(size)
        shift = self._page_shift(request.pg_size)
        check_pages(core.dma_read, request.new_pbl, request.lvl, shift, size * CQE)
        resized = self._made(
            lambda: core.cq_resize(cq.id, size, request.new_pbl, request.lvl, shift),
            lambda: None,
        )
        if not resized:
            raise Refused(Status.RESOURCES, f"completion queue {cq.id:#x} is full: its last entry has no room")
        cq.entries = size
        return {"xid": cq.id}

    # ---- shared receive queues ---------------------------------------------------------------------------------------

    def _create_srq(self, request: Fields) -> Answer:
        state, core, limits = self._state, self._firmware.core, self._firmware.limits
        if not 1 <= request.srq_size <= limits.srq_wqes:
            raise _wrong(f"{request.srq_size} entries: 1 to {limits.srq_wqes} are possible")
        if request.pd_id >= limits.pds:
            raise _wrong(f"protection domain {request.pd_id}: there are {limits.pds}")
        nq = state.nq(request.eventq_id & 0xFFF)  # CMDQ_CREATE_SRQ_EVENTQ_ID_MASK
        if nq is None:
            raise _wrong(f"notification queue {request.eventq_id:#x} does not exist")
        shift = self._page_shift(request.pg_size)
        check_pages(core.dma_read, request.pbl, request.lvl, shift, request.srq_size * STATIC_WQE)
        number = state.srq_pool.take(self._most_srqs())
        description = {
            "pd": request.pd_id,
            "entries": request.srq_size,
            "pbl": request.pbl,
            "level": request.lvl,
            "page_shift": shift,
            "nq": nq.id,
            "handle": request.srq_handle,
        }
        self._made(lambda: core.srq_create(number, description), lambda: state.srq_pool.give(number))
        state.srqs[number] = Srq(number, request.pd_id, nq.id)
        return {"xid": number}

    def _srq(self, number: int) -> Srq:
        srq = self._state.srqs.get(number)
        if srq is None:
            raise _wrong(f"shared receive queue {number:#x} does not exist")
        return srq

    def _query_srq(self, request: Fields) -> Answer:
        srq = self._srq(request.srq_cid)
        limit = self._firmware.core.srq_limit(srq.id)
        return self._side_buffer(request, table.QUERY_SRQ, {"xid": srq.id, "srq_limit": limit & 0xFFFF})

    def _destroy_srq(self, request: Fields) -> Answer:
        state = self._state
        srq = self._srq(request.srq_cid)
        if srq.users:
            raise Refused(Status.FAIL, f"shared receive queue {srq.id:#x} is in use by {srq.users} queue pairs")
        self._firmware.core.srq_destroy(srq.id)
        del state.srqs[srq.id]
        state.srq_pool.give(srq.id)
        return {"xid": srq.id}

    # ---- address vectors ---------------------------------------------------------------------------------------------

    def _create_ah(self, request: Fields) -> Answer:
        state, core, limits = self._state, self._firmware.core, self._firmware.limits
        if request.pd_id >= limits.pds:
            raise _wrong(f"protection domain {request.pd_id}: there are {limits.pds}")
        source = state.gids.get(request.sgid_index)
        if source is None:
            raise _wrong(f"GID {request.sgid_index} does not exist")
        gid, mac = _raw(request, "dgid"), _raw(request, "dest_mac")
        if request.type == table.AhType.V1:
            raise Refused(Status.NOT_IMPLEMENTED, "RoCE v1 is not implemented: a GID of RoCE v2 is wanted")
        if request.type != (table.AhType.V2IPV4 if _mapped(gid) else table.AhType.V2IPV6):
            raise _wrong(f"type {request.type} is not that of GID {gid.hex()}")
        if not any(mac):
            raise _wrong("the MAC is zero")
        number = state.ah_pool.take()
        description = {
            "pd": request.pd_id,
            "dmac": mac,
            "smac": source.mac,
            "sgid": source.gid,
            "dgid": gid,
            "hop_limit": request.hop_limit,
            "traffic_class": request.traffic_class,
        }
        self._made(lambda: core.ah_create(number, description), lambda: state.ah_pool.give(number))
        state.ahs.add(number)
        return {"xid": number}

    def _destroy_ah(self, request: Fields) -> Answer:
        state = self._state
        if request.ah_cid not in state.ahs:
            raise _wrong(f"address vector {request.ah_cid:#x} does not exist")
        self._firmware.core.ah_destroy(request.ah_cid)
        state.ahs.remove(request.ah_cid)
        state.ah_pool.give(request.ah_cid)
        return {"xid": request.ah_cid}

    # ---- queue pairs -------------------------------------------------------------------------------------------------

    def _create_qp(self, request: Fields) -> Answer:
        state, core, limits = self._state, self._firmware.core, self._firmware.limits
        flags = request.qp_flags
        if flags & ~_QP_FLAGS:
            raise _wrong(f"flags {flags & ~_QP_FLAGS:#x} are not known")
        if request.type == table.QpType.RAW_ETHERTYPE:
            raise Refused(Status.NOT_IMPLEMENTED, "queue pairs of raw Ethernet are not implemented")
        if request.type not in (table.QpType.RC, table.QpType.UD, table.QpType.GSI):
            raise _wrong(f"type {request.type} is not one of a queue pair")
        connected = request.type == table.QpType.RC
        srq = self._srq(request.srq_cid) if flags & table.QpFlags.SRQ_USED else None
        variable = bool(flags & table.QpFlags.VARIABLE_SIZED_WQE_ENABLED)
        slots = STATIC_WQE // SLOT if variable else 1
        rings = [("send", request.sq_size)] + ([] if srq else [("receive", request.rq_size)])
        for what, size in rings:
            if not 1 <= size <= limits.qp_wqes * slots:
                raise _wrong(f"{size} entries in the {what} ring: 1 to {limits.qp_wqes * slots} are possible")
        most = limits.sges_variable if variable else limits.sges
        for what, sges in (("send", request.sq_sge), ("receive", request.rq_sge)):
            if sges > most:
                raise _wrong(f"{sges} SGEs in a WQE of the {what} ring: {most} are possible")
        if request.pd_id >= limits.pds:
            raise _wrong(f"protection domain {request.pd_id}: there are {limits.pds}")
        scq, rcq = self._cq(request.scq_cid), self._cq(request.rcq_cid)
        sq_shift, rq_shift = self._page_shift(request.sq_pg_size), self._page_shift(request.rq_pg_size)
        # Behind a connection's send ring lies the MSN table: as many entries, or half as many as slots (qplib_fp.c).
        messages = 1 << (request.sq_size - 1).bit_length() if connected else 0
        if variable:
            sq_bytes = request.sq_size * SLOT + messages // 2 * MSN_ENTRY
            rq_bytes = request.rq_size * (RECEIVE_HEADER + request.rq_sge * SLOT)
        else:
            sq_bytes = request.sq_size * STATIC_WQE + messages * MSN_ENTRY
            rq_bytes = request.rq_size * STATIC_WQE
        check_pages(core.dma_read, request.sq_pbl, request.sq_lvl, sq_shift, sq_bytes)
        if not srq:
            check_pages(core.dma_read, request.rq_pbl, request.rq_lvl, rq_shift, rq_bytes)
        # The general services' queue pair is number 1 of every port (IBTA 3.9.4.2), and one that the count leaves out.
        gsi = request.type == table.QpType.GSI
        if gsi and GSI in state.qps:
            raise Exhausted
        number = GSI if gsi else state.qp_pool.take(self._most_qps())
        inline = limits.inline_variable if variable else limits.inline
        description: dict[str, Any] = {
            "type": request.type,
            "scq": scq.id,
            "rcq": rcq.id,
            "srq": srq.id if srq else None,
            "pd": request.pd_id,
            "sq_size": request.sq_size,
            "rq_size": 0 if srq else request.rq_size,
            "sq_pbl": request.sq_pbl,
            "sq_level": request.sq_lvl,
            "sq_page_shift": sq_shift,
            "sq_sges": request.sq_sge,
            "rq_sges": request.rq_sge,
            "handle": request.qp_handle,
            "variable": variable,
            "msn_table": connected,
            "signal_all": bool(flags & table.QpFlags.FORCE_COMPLETION),
            "reserved_lkey": bool(flags & table.QpFlags.RESERVED_LKEY_ENABLE),
            "fast_register": bool(flags & table.QpFlags.FR_PMR_ENABLED),
            "inline_max": inline,
        }
        if not srq:
            description |= {
                "rq_pbl": request.rq_pbl,
                "rq_level": request.rq_lvl,
                "rq_page_shift": rq_shift,
            }
        self._made(lambda: core.qp_create(number, description), lambda: None if gsi else state.qp_pool.give(number))
        state.qps[number] = Qp(
            number,
            request.type,
            request.pd_id,
            scq.id,
            rcq.id,
            request.sq_size,
            request.rq_size,
            request.sq_sge,
            request.rq_sge,
            inline,
            srq.id if srq else None,
        )
        scq.users += 1
        rcq.users += 1
        if srq:
            srq.users += 1
        return {"xid": number}

    def _qp(self, number: int) -> Qp:
        qp = self._state.qps.get(number)
        if qp is None:
            raise _wrong(f"queue pair {number:#x} does not exist")
        return qp

    def _modify_qp(self, request: Fields) -> Answer:
        qp = self._qp(request.qp_cid)
        mask = request.modify_mask
        before = QpState(self._firmware.core.qp_query(qp.id)["state"])
        after = before
        if mask & Mask.STATE:
            if request.new_state not in transitions.STATES:
                raise _wrong(f"state {request.new_state} is not one of a queue pair")
            after = QpState(request.new_state)
        try:
            datagram = qp.type != table.QpType.RC
            transitions.check(before, after, mask, with_state=bool(mask & Mask.STATE), datagram=datagram)
        except ValueError as error:
            raise _wrong(str(error)) from None
        ends = bool(mask & Mask.STATE) and after in (QpState.RESET, QpState.ERR)
        if datagram:
            mask &= ~Mask.SGID_INDEX  # each datagram has that of its address vector
        values = {} if ends else self._attributes(request, mask)
        changes: dict[str, int | bytes] = {}
        if mask & Mask.STATE:
            changes["state"] = int(after)
        for name, value in values.items():
            changes.update(self._for_core(name, value))
        self._made(lambda: self._firmware.core.qp_modify(qp.id, changes), lambda: None)
        if mask & Mask.STATE and after == QpState.RESET:
            qp.attributes.clear()
        else:
            qp.attributes.update(values)
        return {"xid": qp.id}

    def _attributes(self, request: Fields, mask: int) -> dict[str, int | bytes]:
        """The attributes that the mask names, by their field's name, checked."""
        limits = self._firmware.limits
        values: dict[str, int | bytes] = {}

        def number(bit: Mask, name: str, most: int, least: int = 0) -> None:
            if mask & bit:
                value = int(getattr(request, name))
                if not least <= value <= most:
                    raise _wrong(f"{name} is {value}: {least} to {most} are possible")
                values[name] = value

        if mask & Mask.ACCESS:  # drivers pass the rights of regions along, which mean nothing here
            values["access"] = request.access & _QP_ACCESS
        number(Mask.PKEY, "pkey", 0xFFFF)
        number(Mask.QKEY, "qkey", 0xFFFFFFFF)
        number(Mask.FLOW_LABEL, "flow_label", 0xFFFFF)
        number(Mask.HOP_LIMIT, "hop_limit", 0xFF)
        number(Mask.TRAFFIC_CLASS, "traffic_class", 0xFF)
        number(Mask.PATH_MTU, "path_mtu", (limits.mtu >> 8).bit_length() - 1)
        number(Mask.TIMEOUT, "timeout", 31)
        number(Mask.RETRY_CNT, "retry_cnt", 7)
        number(Mask.RNR_RETRY, "rnr_retry", 7)
        number(Mask.MIN_RNR_TIMER, "min_rnr_timer", 31)
        number(Mask.RQ_PSN, "rq_psn", 0xFFFFFF)
        number(Mask.SQ_PSN, "sq_psn", 0xFFFFFF)
        number(Mask.MAX_RD_ATOMIC, "max_rd_atomic", 0xFF, 1)
        number(Mask.MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", 0xFF, 1)
        number(Mask.DEST_QP_ID, "dest_qp_id", 0xFFFFFF)
        if mask & Mask.SGID_INDEX:
            if request.sgid_index not in self._state.gids:
                raise _wrong(f"GID {request.sgid_index} does not exist")
            values["sgid_index"] = request.sgid_index
        if mask & Mask.DGID:
            gid = _raw(request, "dgid")
            wanted = table.NetworkType.ROCEV2_IPV4 if _mapped(gid) else table.NetworkType.ROCEV2_IPV6
            if request.network_type != wanted:
                raise _wrong(f"network type {request.network_type} is not that of GID {gid.hex()}, {wanted}")
            values["dgid"] = gid
        if mask & Mask.DEST_MAC:
            mac = _raw(request, "dest_mac")
            if not any(mac) or mac[0] & 1:
                raise _wrong(f"MAC {mac.hex(':')} is not that of one port")
            values["dest_mac"] = mac
        return values

    def _for_core(self, name: str, value: int | bytes) -> dict[str, int | bytes]:
        """An attribute as the data path calls it."""
        if name == "sgid_index":
            assert isinstance(value, int)
            gid = self._state.gids[value]
            return {"sgid": gid.gid, "smac": gid.mac}
        if name == "path_mtu":
            assert isinstance(value, int)
            return {"mtu": 256 << value}
        if name == "max_rd_atomic":  # ORRQ_SLOTS_TO_ORD_LIMIT
            assert isinstance(value, int)
            return {name: max(1, min(value - 1, self._firmware.limits.rd_atomic))}
        if name == "max_dest_rd_atomic":  # IRRQ_SLOTS_TO_IRD_LIMIT
            assert isinstance(value, int)
            return {name: max(1, min((value >> 1) - 1, self._firmware.limits.rd_atomic))}
        if name == "flow_label":
            return {}
        return {_CORE_NAMES.get(name, name): value}

    def _query_qp(self, request: Fields) -> Answer:
        qp = self._qp(request.qp_cid)
        now = self._firmware.core.qp_query(qp.id)
        fields: Answer = {
            "xid": qp.id,
            "sq_size": qp.sq_size,
            "rq_size": qp.rq_size,
            "sq_sge": qp.sq_sges,
            "rq_sge": qp.rq_sges,
            "max_inline_data": qp.inline,
            **qp.attributes,
            "state": now["state"],
        }
        gid = self._state.gids.get(fields.get("sgid_index", -1))
        if gid is not None:
            fields["src_mac"] = gid.mac
        else:  # none as yet; but drivers look for what is said (qplib_fp.c bnxt_qplib_query_qp)
            fields["sgid_index"] = min(self._state.gids, default=0)
        for name in ("rq_psn", "sq_psn"):
            if name in now:
                fields[name] = now[name]
        return self._side_buffer(request, table.QUERY_QP, fields)

    def _destroy_qp(self, request: Fields) -> Answer:
        state = self._state
        qp = self._qp(request.qp_cid)
        self._firmware.core.qp_destroy(qp.id)
        del state.qps[qp.id]
        if qp.id != GSI:
            state.qp_pool.give(qp.id)
        for number in (qp.scq, qp.rcq):
            state.cqs[number].users -= 1
        if qp.srq is not None:
            state.srqs[qp.srq].users -= 1
        return {"xid": qp.id}

    # ---- keys --------------------------------------------------------------------------------------------------------

    def _new_key(self, kind: int, pd: int, *, unified: bool) -> Key:
        state, limits = self._state, self._firmware.limits
        if pd >= limits.pds:
            raise _wrong(f"protection domain {pd}: there are {limits.pds}")
        window = kind >= table.MrwType.MW_TYPE1
        taken = state.windows if window else len(state.keys) - state.windows
        if taken >= (limits.mws if window else limits.mrs):
            raise Exhausted
        return Key(state.key_pool.take(self._most_keys()), kind, pd, unified)

    def _allocate_mrw(self, request: Fields) -> Answer:
        kind = request.mrw_flags & 0xF
        if kind > table.MrwType.MW_TYPE2B:
            raise _wrong(f"type {kind} is not one of a region or a window")
        key = self._new_key(kind, request.pd_id, unified=False)
        claim = _CLAIMS.get(kind)
        if kind == table.MrwType.PMR and not request.access & table.MrwAccess.CONSUMER_OWNED_KEY:
            claim = None
        if claim:
            core, give = self._firmware.core, self._state.key_pool.give
            self._made(lambda: core.key_claim(key.key, key.pd, claim), lambda: give(key.key))
            key.claimed = True
        self._state.add_key(key)
        return {"xid": key.key}

    def _key(self, number: int) -> Key:
        key = self._state.keys.get(number)
        if key is None:
            raise _wrong(f"key {number:#x} does not exist")
        return key

    def _register_mr(self, request: Fields) -> Answer:
        state, core, limits = self._state, self._firmware.core, self._firmware.limits
        flags = request.flags
        if flags & ~_MR_FLAGS:
            raise _wrong(f"flags {flags & ~_MR_FLAGS:#x} are not known")
        if request.access & ~_MR_ACCESS:
            raise _wrong(f"access {request.access:#x} is not known")
        unified = bool(flags & table.RegisterMrFlags.ALLOC_MR)
        kind: int = table.MrwType.MR
        if not unified:
            key = self._key(request.key)
            kind = key.kind
            if kind not in (table.MrwType.MR, table.MrwType.PMR):
                raise _wrong(f"key {key.key:#x} is a memory window's")
            if key.registered or key.claimed:
                raise _wrong(f"key {key.key:#x} has a region already, or is for entries of queue pairs")
        physical = kind == table.MrwType.PMR and request.lvl == 0 and request.pbl == 0
        shift = request.log2_pg_size
        table_shift = request.log2_pbl_pg_size & 0x1F
        size = request.mr_size
        if shift not in REGION_PAGE_SHIFTS or table_shift not in REGION_PAGE_SHIFTS:
            raise _wrong(f"pages of 2^{shift} and tables of 2^{table_shift} bytes: not this NIC's")
        if not physical:
            if not 1 <= size <= limits.mr_bytes or request.va + size > 1 << 64:
                raise _wrong(f"{size} bytes at {request.va:#x}: 1 to {limits.mr_bytes} are possible")
            lead = request.va & (1 << shift) - 1
            check_pages(core.dma_read, request.pbl, request.lvl, shift, lead + size, table_shift=table_shift)
        if unified:
            key = self._new_key(kind, request.key, unified=True)
        description = {
            "pd": key.pd,
            "va": request.va,
            "bytes": size,
            "access": request.access,
            "pbl": request.pbl,
            "level": request.lvl,
            "page_shift": shift,
            "pbl_page_shift": table_shift,
            "physical": physical,
        }
        self._made(
            lambda: core.mr_register(key.key, description),
            lambda: state.key_pool.give(key.key) if unified else None,
        )
        key.registered, key.bytes = True, size
        if unified:
            state.add_key(key)
        return {"xid": key.key}

    def _empty(self, key: Key) -> None:
        """Nothing is under the key any more."""
        if key.registered:
            self._firmware.core.mr_deregister(key.key)
            key.registered, key.bytes = False, 0
        if key.claimed:
            self._firmware.core.key_release(key.key)
            key.claimed = False

    def _deregister_mr(self, request: Fields) -> Answer:
        key = self._key(request.lkey)
        if not key.registered:
            raise _wrong(f"key {key.key:#x} has no region")
        self._empty(key)
        if key.unified:
            self._state.drop_key(key)
        return {"xid": key.key}

    def _deallocate_key(self, request: Fields) -> Answer:
        key = self._key(request.key & ~0xFF)  # the low byte is the consumer's
        self._empty(key)
        self._state.drop_key(key)
        return {"xid": key.key}

    # ---- GIDs --------------------------------------------------------------------------------------------------------

    def _gid_of(self, request: Fields, index: int) -> Gid:
        gid = table.gid_bytes(_raw(request, "gid"))
        if not any(gid):
            raise _wrong("the GID is zero")
        return Gid(index, gid, table.mac_bytes(_raw(request, "src_mac")), request.vlan)

    def _add_gid(self, request: Fields) -> Answer:
        state = self._state
        gid = self._gid_of(request, -1)
        gid.index = state.gid_pool.take()
        state.gids[gid.index] = gid
        return {"xid": gid.index}

    def _gid(self, index: int) -> Gid:
        gid = self._state.gids.get(index)
        if gid is None:
            raise _wrong(f"GID {index} does not exist")
        return gid

    def _modify_gid(self, request: Fields) -> Answer:
        index = self._gid(request.gid_index).index
        self._state.gids[index] = self._gid_of(request, index)
        return {"xid": index}

    def _query_gid(self, request: Fields) -> Answer:
        gid = self._gid(request.gid_index)
        return self._side_buffer(
            request,
            table.QUERY_GID,
            {
                "gid": table.gid_bytes(gid.gid),
                "src_mac": table.mac_bytes(gid.mac),
                "vlan": gid.vlan,
                "gid_index": gid.index,
            },
        )

    def _delete_gid(self, request: Fields) -> Answer:
        index = self._gid(request.gid_index).index
        del self._state.gids[index]
        self._state.gid_pool.give(index)
        return {"xid": index}


# As plain ints: a flag's complement has known bits only.
_QP_FLAGS = int(sum(table.QpFlags))
_CQ_FLAGS = int(table.CqFlags.DISABLE_CQ_OVERFLOW_DETECTION | table.CqFlags.STEERING_TAG_VALID)
_MR_FLAGS = int(table.RegisterMrFlags.ALLOC_MR | table.RegisterMrFlags.ENABLE_RO)
_MR_ACCESS = int(sum(table.MrAccess))
_QP_ACCESS = int(sum(table.QpAccess))
_CC_MASK = int(sum(table.ModifyCcMask))
_CC_FIELDS = {
    table.ModifyCcMask.ENABLE_CC: "enable_cc",
    table.ModifyCcMask.G: "g",
    table.ModifyCcMask.NUMPHASEPERSTATE: "num_phases_per_state",
    table.ModifyCcMask.INIT_CR: "init_cr",
    table.ModifyCcMask.INIT_TR: "init_tr",
    table.ModifyCcMask.TOS_ECN: "tos_ecn",
    table.ModifyCcMask.TOS_DSCP: "tos_dscp",
    table.ModifyCcMask.ALT_VLAN_PCP: "alt_vlan_pcp",
    table.ModifyCcMask.ALT_TOS_DSCP: "alt_tos_dscp",
    table.ModifyCcMask.RTT: "rtt",
    table.ModifyCcMask.CC_MODE: "cc_mode",
    table.ModifyCcMask.TCP_CP: "tcp_cp",
    table.ModifyCcMask.TX_QUEUE: "tx_queue",
    table.ModifyCcMask.INACTIVITY_CP: "inactivity_th",
    table.ModifyCcMask.TIME_PER_PHASE: "time_per_phase",
    table.ModifyCcMask.PKTS_PER_PHASE: "pkts_per_phase",
}
# What entries of queue pairs do under a key that ALLOCATE_MRW gave, by its type.
_CLAIMS = {
    table.MrwType.PMR: "fast_register",
    table.MrwType.MW_TYPE1: "window1",
    table.MrwType.MW_TYPE2A: "window2",
    table.MrwType.MW_TYPE2B: "window2",
}
_CORE_NAMES = {"dest_qp_id": "dest_qp", "dest_mac": "dmac", "retry_cnt": "retry"}


def _raw(request: Fields, name: str) -> bytes:
    """An array's bytes as they lie in the message."""
    width = 2 if name.endswith("mac") else 4
    items: tuple[int, ...] = getattr(request, name)
    return b"".join(item.to_bytes(width, "little") for item in items)


def _mapped(gid: bytes) -> bool:
    """An IPv4 address in a GID (::ffff:a.b.c.d)."""
    return gid[:12] == bytes(10) + b"\xff\xff"
