"""The HWRM channel of the soft Thor2: what each command checks, does and answers.

Names, offsets and error codes are bnxt_hsi.h's (Linux). Where the header says what a field is but not what firmware
makes of a wrong value, the answer is the error code whose description fits: INVALID_PARAMS for numbers and memory that
are not there, INVALID_FLAGS and INVALID_ENABLES for bits that this interface version does not have,
RESOURCE_ACCESS_DENIED for what the function may not do now (it has not registered, or something still uses the
object), RESOURCE_ALLOC_ERROR for a limit reached, CMD_NOT_SUPPORTED for an unknown command.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import IntFlag
from typing import TYPE_CHECKING, Any

from userdma import _core
from userdma.bnxt import hwrm as table
from userdma.errors import Error
from userdma.messages import Command, Fields
from userdma.soft.bnxt import backing
from userdma.soft.bnxt.faults import Fault, Kind
from userdma.soft.bnxt.resources import (
    BackingStore,
    BadTable,
    Exhausted,
    Filter,
    Ring,
    Vnic,
    check_buffer,
    check_pages,
)
from userdma.soft.bnxt.state import State, ring_key

if TYPE_CHECKING:
    from userdma.soft.bnxt.firmware import Firmware

INTERFACE = (1, 10, 3, 85)  # HWRM interface: major, minor, update, patch
FIRMWARE = (231, 0, 162, 0)  # firmware package
CHIP = 0x1760  # CHIP_NUM_57608 (bnxt.h)
FID = 0x0001
LONGEST_REQUEST = 1024  # of a short command's request, which lies in the driver's memory
LONGEST_ANSWER = 704  # HWRM_MAX_RESP_LEN
SECONDS = 0.5  # def_req_timeout (DFLT_HWRM_CMD_TIMEOUT is 500 ms)
LINK_SPEED = 4000  # hundreds of Mb/s: a Thor2 port has 400 Gb/s
DOORBELL_KB = 64  # legacy_l2_db_size_kb: where, in BAR 2, the doorbells are
DRV_RGTR_FLAGS = 0x1FFF  # FUNC_DRV_RGTR_REQ_FLAGS_*: none of them changes what this firmware does
ETHERNET_MTU = 9500  # BNXT_MAX_MTU

OK = table.ErrorCode.SUCCESS
FAIL = table.ErrorCode.FAIL
INVALID_PARAMS = table.ErrorCode.INVALID_PARAMS
ACCESS_DENIED = table.ErrorCode.RESOURCE_ACCESS_DENIED
ALLOC_ERROR = table.ErrorCode.RESOURCE_ALLOC_ERROR
INVALID_FLAGS = table.ErrorCode.INVALID_FLAGS
INVALID_ENABLES = table.ErrorCode.INVALID_ENABLES
HWRM_ERROR = table.ErrorCode.HWRM_ERROR
NOT_SUPPORTED = table.ErrorCode.CMD_NOT_SUPPORTED

Answer = dict[str, Any]


class Refused(Exception):
    """The command is answered with an error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


def _every(flags: type[IntFlag]) -> int:
    """All bits that the tables know."""
    return sum(flags)


def _known(bits: int, known: int, what: str, code: int) -> None:
    unknown = bits & ~int(known)  # of an int: a flag's complement has known bits only
    if unknown:
        raise Refused(code, f"{what} {unknown:#x} are not known to interface {'.'.join(map(str, INTERFACE))}")


class Hwrm:
    """The channel and its commands. The firmware's lock is held in every call."""

    def __init__(self, firmware: Firmware) -> None:
        self._firmware = firmware
        self._commands = table.BY_CODE
        handlers: dict[str, Callable[[Fields], Answer]] = {
            "hwrm_ver_get": self._ver_get,
            "hwrm_func_reset": self._func_reset,
            "hwrm_func_qcaps": self._func_qcaps,
            "hwrm_func_qcfg": self._func_qcfg,
            "hwrm_func_resource_qcaps": self._func_resource_qcaps,
            "hwrm_func_drv_rgtr": self._func_drv_rgtr,
            "hwrm_func_drv_unrgtr": self._func_drv_unrgtr,
            "hwrm_func_backing_store_qcaps_v2": self._backing_store_qcaps,
            "hwrm_func_backing_store_cfg_v2": self._backing_store_cfg,
            "hwrm_ring_alloc": self._ring_alloc,
            "hwrm_ring_free": self._ring_free,
            "hwrm_stat_ctx_alloc": self._stat_ctx_alloc,
            "hwrm_stat_ctx_free": self._stat_ctx_free,
            "hwrm_vnic_alloc": self._vnic_alloc,
            "hwrm_vnic_cfg": self._vnic_cfg,
            "hwrm_vnic_free": self._vnic_free,
            "hwrm_cfa_l2_filter_alloc": self._filter_alloc,
            "hwrm_cfa_l2_filter_free": self._filter_free,
            "hwrm_queue_qportcfg": self._queue_qportcfg,
            "hwrm_port_phy_qcfg": self._port_phy_qcfg,
            "hwrm_func_cfg": self._func_cfg,
            "hwrm_cfa_l2_set_rx_mask": self._set_rx_mask,
        }
        self._handlers = {table.REQUESTS[name].code: call for name, call in handlers.items()}

    @property
    def _state(self) -> State:
        return self._firmware.state

    # ---- the channel ---------------------------------------------------------------------------------------------

    def request(self, window: bytes) -> None:
        """One request, as the window holds it."""
        firmware = self._firmware
        head = table.REQUEST_HEADER.unpack(window, short=True)
        data = window
        if head.cmpl_ring == table.SHORT_SIGNATURE:
            short = table.SHORT.unpack(window, short=True)
            if not table.REQUEST_HEADER.size <= short.size <= LONGEST_REQUEST:
                firmware.dropped["hwrm_short_size"] += 1
                return
            try:
                data = firmware.core.dma_read(short.req_addr, short.size)
            except _core.DmaFault:
                firmware.dropped["hwrm_request_fault"] += 1
                return
            head = table.REQUEST_HEADER.unpack(data)

        command = self._commands.get(head.req_type)
        name = command.name if command else f"unknown_{head.req_type:#06x}"
        request = command.request.unpack(data, short=True) if command else head
        fault = firmware.faults.next(name)
        kind = fault.kind if fault else None
        if kind is Kind.STOP_AT:
            firmware.note(name, request, None, "the firmware stopped at it, as it was told")
            firmware.halt()
            firmware.pend(lambda: firmware.hwrm(window))
            return

        answer, code, why = self._run(
            head, command, request, len(data) if data is not window else table.MAX_REQUEST, fault
        )
        firmware.note(name, request, code, why)
        if kind is Kind.STOP_IN:
            firmware.halt()
            return
        self._respond(head.resp_addr, answer, fault)
        if kind is Kind.STOP_AFTER:
            firmware.halt()

    def _run(
        self, head: Fields, command: Command | None, request: Fields, size: int, fault: Fault | None
    ) -> tuple[bytes, int, str]:
        """The answer's bytes, its error code, and why."""
        sequence = head.seq_id
        if fault and fault.kind is Kind.WRONG_SEQUENCE:
            sequence = sequence + 1 & 0xFFFF
        common: Answer = {"req_type": head.req_type, "seq_id": sequence}
        try:
            if fault and fault.kind is Kind.REFUSE:
                raise Refused(FAIL if fault.status is None else fault.status, "refused, as it was told")
            handler = self._handlers.get(head.req_type)
            if command is None or handler is None:
                raise Refused(NOT_SUPPORTED, f"request type {head.req_type:#x} is not supported")
            if size < command.request.size:
                raise Refused(INVALID_PARAMS, f"{size} bytes are not the {command.request.size} of the request")
            fields = handler(request)
            answer = command.response.pack(**common, **fields)
            return answer, OK, ""
        except Refused as refused:
            code, why = refused.code, refused.why
        except Exhausted:
            code, why = ALLOC_ERROR, "all that there are of them are taken"
        except BadTable as bad:
            code, why = INVALID_PARAMS, str(bad)
        except _core.DmaFault as dma:
            code, why = INVALID_PARAMS, f"memory that the request names cannot be reached: {dma}"
        except Error as gone:
            code, why = HWRM_ERROR, str(gone)
        except Exception as bug:
            code, why = HWRM_ERROR, f"a bug of the firmware: {bug!r}"
            self._firmware.bug(bug)
        answer = table.REFUSAL.pack(**common, error_code=code)
        return answer, code, why

    def _respond(self, address: int, answer: bytes, fault: Fault | None) -> None:
        kind = fault.kind if fault else None
        if kind is Kind.LOSE:
            return
        if fault and kind is Kind.GARBAGE:
            answer = fault.data if fault.data is not None else self._firmware.random.randbytes(len(answer))
        if fault and kind is Kind.DELAY:
            self._firmware.later(fault.seconds, lambda: self._write(address, answer))
        else:
            self._write(address, answer)

    def _write(self, address: int, answer: bytes) -> None:
        """The last byte, `valid`, after all others: the driver may look at any time."""
        core = self._firmware.core
        try:
            if len(answer) > 1:
                core.dma_write(address, answer[:-1])
            core.dma_write(address + len(answer) - 1, answer[-1:])
        except _core.DmaFault:
            self._firmware.dropped["hwrm_answer_fault"] += 1

    def forget(self) -> None:
        """Gives back what the Ethernet part has in the data path. A reset may have ended it there already."""
        core = self._firmware.core
        core.ingress(False)
        for ring in self._state.rings.values():
            if ring.type == table.RingType.NQ:
                with suppress(KeyError):
                    core.nq_destroy(ring.id)

    # ---- the function ------------------------------------------------------------------------------------------------

    def _self(self, fid: int) -> None:
        if fid not in (table.TARGET_SELF, FID):
            raise Refused(INVALID_PARAMS, f"function {fid:#x} is not this one, {FID:#x}")

    def _must_be_registered(self) -> None:
        if not self._state.registered:
            raise Refused(ACCESS_DENIED, "no driver is registered (FUNC_DRV_RGTR)")

    def _ver_get(self, request: Fields) -> Answer:
        answer: Answer = {}
        for part, version in (
            ("hwrm_intf", INTERFACE),
            ("hwrm_fw", FIRMWARE),
            ("mgmt_fw", FIRMWARE),
            ("netctrl_fw", FIRMWARE),
            ("roce_fw", FIRMWARE),
        ):
            for short, long, number in zip(
                ("maj_8b", "min_8b", "upd_8b" if part == "hwrm_intf" else "bld_8b", "rsvd_8b"),
                ("major", "minor", "build", "patch"),
                version,
                strict=True,
            ):
                answer[f"{part}_{short}"] = min(number, 0xFF)
                answer[f"{part}_{long}"] = number
        for part in ("hwrm_fw_name", "mgmt_fw_name", "netctrl_fw_name", "roce_fw_name"):
            answer[part] = b"soft".ljust(16, b"\0")
        answer["active_pkg_name"] = ".".join(map(str, FIRMWARE)).encode().ljust(16, b"\0")
        answer["dev_caps_cfg"] = table.VerGetDevCaps.SHORT_CMD_SUPPORTED
        return answer | {
            "chip_num": CHIP,
            "chip_rev": 1,
            "chip_platform_type": table.ChipPlatform.ASIC,
            "max_req_win_len": table.MAX_REQUEST,
            "max_resp_len": LONGEST_ANSWER,
            "def_req_timeout": int(SECONDS * 1000),  # milliseconds
            "always_1": 1,
            "max_ext_req_len": LONGEST_REQUEST,
            "max_req_timeout": 40,  # seconds (HWRM_CMD_MAX_TIMEOUT is 40,000 ms)
        }

    def _func_reset(self, request: Fields) -> Answer:
        if request.enables:
            raise Refused(INVALID_ENABLES, "this function has no virtual functions")
        if request.func_reset_level not in (table.FuncResetLevel.RESETALL, table.FuncResetLevel.RESETME):
            raise Refused(INVALID_PARAMS, f"reset level {request.func_reset_level}: no virtual functions to reset")
        self._firmware.forget()
        return {}

    def _func_qcaps(self, request: Fields) -> Answer:
        self._self(request.fid)
        limits = self._firmware.limits
        return {
            "fid": FID,
            "port_id": 0,
            "flags": table.FuncQcapsFlags.ROCE_V2_SUPPORTED,
            "mac_address": self._firmware.mac,
            "max_rsscos_ctx": limits.vnics,
            "max_cmpl_rings": limits.completion_rings,
            "max_tx_rings": limits.tx_rings,
            "max_rx_rings": limits.rx_rings,
            "max_l2_ctxs": limits.filters,
            "max_vnics": limits.vnics,
            "first_vf_id": 0xFFFF,
            "max_stat_ctx": limits.stat_contexts,
            "max_mcast_filters": limits.filters,
            "flags_ext": table.FuncQcapsFlagsExt.BS_V2_SUPPORTED | table.FuncQcapsFlagsExt.BS_V2_REQUIRED,
        }

    def _func_qcfg(self, request: Fields) -> Answer:
        self._self(request.fid)
        state = self._state
        bar_kb = self._firmware.core.bar(2)[1] // 1024
        return {
            "fid": FID,
            "port_id": 0,
            "mac_address": self._firmware.mac,
            "alloc_cmpl_rings": self._firmware.limits.completion_rings,
            "alloc_tx_rings": self._firmware.limits.tx_rings,
            "alloc_rx_rings": self._firmware.limits.rx_rings,
            "alloc_l2_ctx": self._firmware.limits.filters,
            "alloc_vnics": self._firmware.limits.vnics,
            "alloc_stat_ctx": self._firmware.limits.stat_contexts,
            "alloc_msix": self._firmware.limits.nqs,
            "admin_mtu": ETHERNET_MTU,
            "max_mtu_configured": ETHERNET_MTU,
            "mru": ETHERNET_MTU + 22,  # and the Ethernet header with two VLAN tags
            "stat_ctx_id": next(iter(state.stat_contexts), 0xFFFF),
            "dflt_vnic_id": next(iter(state.vnics), 0xFFFF),
            "l2_doorbell_bar_size_kb": min(bar_kb, 0xFFFF),
            "legacy_l2_db_size_kb": DOORBELL_KB,
            "always_1": 1,
        }

    def _func_resource_qcaps(self, request: Fields) -> Answer:
        self._self(request.fid)
        limits = self._firmware.limits
        most = {
            "msix": limits.nqs,
            "rsscos_ctx": limits.vnics,
            "cmpl_rings": limits.completion_rings,
            "tx_rings": limits.tx_rings,
            "rx_rings": limits.rx_rings,
            "l2_ctxs": limits.filters,
            "vnics": limits.vnics,
            "stat_ctx": limits.stat_contexts,
        }
        return (
            {f"max_{name}": number for name, number in most.items()}
            | {f"min_{name}": min(1, number) for name, number in most.items()}
            | {"max_tx_scheduler_inputs": limits.tx_rings}
        )

    def _func_drv_rgtr(self, request: Fields) -> Answer:
        _known(request.flags, DRV_RGTR_FLAGS, "flags", INVALID_FLAGS)
        _known(request.enables, _every(table.DrvRgtrEnables), "enables", INVALID_ENABLES)
        if self._state.registered:
            raise Refused(ACCESS_DENIED, "a driver is registered already")
        self._state.registered = True
        return {}

    def _func_drv_unrgtr(self, request: Fields) -> Answer:
        if not self._state.registered:
            raise Refused(ACCESS_DENIED, "no driver is registered")
        self._state.registered = False
        return {}

    def _func_cfg(self, request: Fields) -> Answer:
        self._self(request.fid)
        enables = request.enables
        _known(enables, _every(table.FuncCfgEnables), "enables", INVALID_ENABLES)
        limits = self._firmware.limits
        for bit, wanted, most in (
            (table.FuncCfgEnables.NUM_RSSCOS_CTXS, request.num_rsscos_ctxs, limits.vnics),
            (table.FuncCfgEnables.NUM_CMPL_RINGS, request.num_cmpl_rings, limits.completion_rings),
            (table.FuncCfgEnables.NUM_TX_RINGS, request.num_tx_rings, limits.tx_rings),
            (table.FuncCfgEnables.NUM_RX_RINGS, request.num_rx_rings, limits.rx_rings),
            (table.FuncCfgEnables.NUM_L2_CTXS, request.num_l2_ctxs, limits.filters),
            (table.FuncCfgEnables.NUM_VNICS, request.num_vnics, limits.vnics),
            (table.FuncCfgEnables.NUM_STAT_CTXS, request.num_stat_ctxs, limits.stat_contexts),
            (table.FuncCfgEnables.NUM_MSIX, request.num_msix, limits.nqs),
        ):
            if enables & bit and wanted > most:
                raise Refused(ALLOC_ERROR, f"{bit.name}: {wanted} of {most}")
        if enables & table.FuncCfgEnables.ASYNC_EVENT_CR:
            self._ring(request.async_event_cr, table.RingType.NQ, "NQ")
        return {}

    # ---- backing store -----------------------------------------------------------------------------------------------

    def _backing_store_qcaps(self, request: Fields) -> Answer:
        types = backing.types(self._firmware.limits)
        following = [number for number in sorted(types) if number > request.type]
        answer: Answer = {"type": request.type, "next_valid_type": following[0] if following else backing.NO_TYPE}
        kind = types.get(request.type)
        if kind is None:
            return answer  # without TYPE_VALID
        flags = table.BackingStoreQcapsFlags.TYPE_VALID
        if kind.initial is not None:
            flags |= table.BackingStoreQcapsFlags.ENABLE_CTX_KIND_INIT
            answer["ctx_init_value"], answer["ctx_init_offset"] = kind.initial
        return answer | {
            "entry_size": kind.entry_size,
            "flags": flags,
            "instance_bit_map": kind.instances,
            "entry_multiple": kind.multiple,
            "max_num_entries": kind.most,
            "min_num_entries": kind.least,
            "subtype_valid_cnt": len(kind.splits),
            **{f"split_entry_{i}": number for i, number in enumerate(kind.splits)},
        }

    def _backing_store_cfg(self, request: Fields) -> Answer:
        flags = request.flags
        done = table.BackingStoreCfgFlags.BS_CFG_ALL_DONE
        _known(flags, done, "flags", INVALID_FLAGS)
        if request.enables:
            raise Refused(INVALID_ENABLES, f"enables {request.enables:#x} are for types that this NIC does not have")
        if self._state.backing_done:
            raise Refused(ACCESS_DENIED, "the backing store is configured and in use until the function is reset")
        types = backing.types(self._firmware.limits)
        kind = types.get(request.type)
        if kind is None:
            raise Refused(INVALID_PARAMS, f"type {request.type:#x} is not one of this NIC's")
        if request.instance != 0 and not kind.instances >> request.instance & 1:
            raise Refused(INVALID_PARAMS, f"{kind.name} has no instance {request.instance}")
        if request.entry_size != kind.entry_size:
            raise Refused(INVALID_PARAMS, f"an entry of {kind.name} has {kind.entry_size} bytes")
        if not kind.least <= request.num_entries <= kind.most or request.num_entries % max(1, kind.multiple):
            raise Refused(
                INVALID_PARAMS,
                f"{request.num_entries} entries of {kind.name}: {kind.least} to {kind.most}, "
                f"in multiples of {max(1, kind.multiple)}, are possible",
            )
        if request.subtype_valid_cnt > 4:
            raise Refused(INVALID_PARAMS, f"{request.subtype_valid_cnt} splits: there are fields for 4")
        splits = tuple(getattr(request, f"split_entry_{i}") for i in range(min(request.subtype_valid_cnt, 4)))
        if sum(splits) > request.num_entries:
            raise Refused(INVALID_PARAMS, f"splits {splits} of {kind.name} are more than {request.num_entries} entries")
        size = request.num_entries * kind.entry_size
        level, number = request.pbl_level, request.page_size
        if number >= len(backing.PAGE_SHIFTS):
            raise Refused(INVALID_PARAMS, f"page size {number} is not one of this NIC's")
        backing.check(self._firmware.core.dma_read, request.page_dir, level, backing.PAGE_SHIFTS[number], size, kind)
        if flags & done:
            missing = [
                f"{other.name}[{instance}]"
                for type, other in types.items()
                for instance in other.every_instance()
                if (type, instance) not in self._state.backing
                and (type, instance) != (request.type, request.instance)
                and other.needed
            ]
            if missing:
                raise Refused(INVALID_PARAMS, f"{', '.join(missing)} not configured yet")
        self._state.backing[request.type, request.instance] = BackingStore(request.num_entries, size, splits)
        if flags & done:
            self._state.backing_done = True
        return {}

    # ---- rings -------------------------------------------------------------------------------------------------------

    def _ring_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        state, core = self._state, self._firmware.core
        enables = request.enables
        _known(enables, _every(table.RingAllocEnables), "enables", INVALID_ENABLES)
        _known(request.flags, _every(table.RingAllocFlags), "flags", INVALID_FLAGS)
        kind = request.ring_type
        entry = _ENTRY_BYTES.get(kind)
        if entry is None:
            raise Refused(INVALID_PARAMS, f"ring type {kind} is not one of this NIC's")
        length = request.length
        if not 2 <= length <= _LONGEST_RING or length & (length - 1):
            raise Refused(INVALID_PARAMS, f"{length} entries: a power of two from 2 to {_LONGEST_RING} is possible")
        level, shift = request.page_tbl_depth, request.page_size
        if level == 0:
            # One stretch of memory; page_size is not looked at.
            if request.page_tbl_addr % 16:
                raise Refused(INVALID_PARAMS, f"ring {request.page_tbl_addr:#x} does not start on a multiple of 16")
            check_buffer(core.dma_read, request.page_tbl_addr, length * entry)
        elif level in (1, 2) and 12 <= shift <= 30:
            check_pages(core.dma_read, request.page_tbl_addr, level, shift, length * entry)
        else:
            raise Refused(INVALID_PARAMS, f"page table of depth {level} over pages of 2^{shift} bytes")

        ring = Ring(0, kind, length)
        if enables & table.RingAllocEnables.NQ_RING_ID_VALID:
            ring.nq = self._ring(request.nq_ring_id, table.RingType.NQ, "NQ").id
        if enables & table.RingAllocEnables.STAT_CTX_ID_VALID and request.stat_ctx_id not in state.stat_contexts:
            raise Refused(INVALID_PARAMS, f"statistics context {request.stat_ctx_id:#x} does not exist")
        limits = self._firmware.limits
        if kind == table.RingType.NQ:
            if request.int_mode not in (table.RingIntMode.MSIX, table.RingIntMode.POLL):
                raise Refused(INVALID_PARAMS, f"interrupt mode {request.int_mode}: MSI-X or polling is possible")
            if request.logical_id >= limits.nqs:
                raise Refused(INVALID_PARAMS, f"MSI-X vector {request.logical_id}: there are {limits.nqs}")
            ring.id = state.nq_pool.take()
            try:
                core.nq_create(
                    ring.id,
                    request.page_tbl_addr,
                    level,
                    1 << shift if level else 4096,
                    length,
                    request.logical_id,  # its MSI-X vector (bnxt.c hwrm_ring_alloc_send_msg)
                )
            except BaseException:
                state.nq_pool.give(ring.id)
                raise
        elif kind == table.RingType.L2_CMPL:
            if ring.nq is None:
                raise Refused(INVALID_ENABLES, "a completion ring needs a notification queue (NQ_RING_ID_VALID)")
            ring.id = state.cmpl_pool.take()
        elif kind == table.RingType.TX:
            ring.cmpl = self._ring(request.cmpl_ring_id, table.RingType.L2_CMPL, "completion ring").id
            ring.id = state.tx_pool.take()
        else:
            if not enables & table.RingAllocEnables.RX_BUF_SIZE_VALID or not request.rx_buf_size:
                raise Refused(INVALID_ENABLES, "a receive ring needs the size of its buffers (RX_BUF_SIZE_VALID)")
            if kind == table.RingType.RX_AGG:
                if not enables & table.RingAllocEnables.RX_RING_ID_VALID:
                    raise Refused(INVALID_ENABLES, "an aggregation ring needs its receive ring (RX_RING_ID_VALID)")
                ring.rx = self._ring(request.rx_ring_id, table.RingType.RX, "receive ring").id
            ring.id = state.rx_pool.take()
        state.rings[ring_key(kind, ring.id)] = ring
        return {"ring_id": ring.id, "logical_ring_id": request.logical_id}

    def _ring(self, number: int, kind: int, what: str) -> Ring:
        ring = self._state.rings.get(ring_key(kind, number))
        if ring is None or ring.type != kind:
            raise Refused(INVALID_PARAMS, f"{what} {number:#x} does not exist")
        return ring

    def _ring_free(self, request: Fields) -> Answer:
        state = self._state
        kind = request.ring_type
        if request.flags:
            raise Refused(INVALID_FLAGS, f"flags {request.flags:#x} are for virtio rings")
        if kind not in _ENTRY_BYTES:
            raise Refused(INVALID_PARAMS, f"ring type {kind} is not one of this NIC's")
        ring = self._ring(request.ring_id, kind, "ring")
        users = []
        if kind == table.RingType.NQ:
            users = [f"ring {other.id:#x}" for other in state.rings.values() if other.nq == ring.id]
            users += [f"CQ {cq.id:#x}" for cq in state.cqs.values() if cq.nq == ring.id]
            if state.creq == ring.id and state.initialized:
                users.append("the RoCE command channel")
        elif kind == table.RingType.L2_CMPL:
            users = [f"ring {other.id:#x}" for other in state.rings.values() if other.cmpl == ring.id]
        elif kind == table.RingType.RX:
            users = [f"ring {other.id:#x}" for other in state.rings.values() if other.rx == ring.id]
        if users:
            raise Refused(ACCESS_DENIED, f"ring {ring.id:#x} is in use by {', '.join(users)}")
        if kind == table.RingType.NQ:
            if state.creq == ring.id:
                state.creq = None
            self._firmware.core.nq_destroy(ring.id)
            state.nq_pool.give(ring.id)
        elif kind == table.RingType.L2_CMPL:
            state.cmpl_pool.give(ring.id)
        elif kind == table.RingType.TX:
            state.tx_pool.give(ring.id)
        else:
            state.rx_pool.give(ring.id)
        del state.rings[ring_key(kind, ring.id)]
        self._open_or_close()
        return {}

    def _stat_ctx_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        known = table.StatCtxFlags.ROCE | table.StatCtxFlags.DUP_HOST_BUF
        _known(request.stat_ctx_flags, known, "flags", INVALID_FLAGS)
        if request.stats_dma_addr:
            if request.stats_dma_addr % 8:
                raise Refused(INVALID_PARAMS, f"counters at {request.stats_dma_addr:#x}: not on a multiple of 8")
            check_buffer(self._firmware.core.dma_read, request.stats_dma_addr, max(1, request.stats_dma_length))
        number = self._state.stat_pool.take()
        self._state.stat_contexts[number] = request.stats_dma_addr
        return {"stat_ctx_id": number}

    def _stat_ctx_free(self, request: Fields) -> Answer:
        if request.stat_ctx_id not in self._state.stat_contexts:
            raise Refused(INVALID_PARAMS, f"statistics context {request.stat_ctx_id:#x} does not exist")
        del self._state.stat_contexts[request.stat_ctx_id]
        self._state.stat_pool.give(request.stat_ctx_id)
        return {"stat_ctx_id": request.stat_ctx_id}

    # ---- the receive path --------------------------------------------------------------------------------------------

    def _vnic_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        _known(request.flags, table.VnicAllocFlags.DEFAULT, "flags", INVALID_FLAGS)
        number = self._state.vnic_pool.take()
        self._state.vnics[number] = Vnic(number)
        return {"vnic_id": number}

    def _vnic(self, number: int) -> Vnic:
        vnic = self._state.vnics.get(number)
        if vnic is None:
            raise Refused(INVALID_PARAMS, f"VNIC {number:#x} does not exist")
        return vnic

    def _vnic_cfg(self, request: Fields) -> Answer:
        _known(request.flags, _every(table.VnicCfgFlags), "flags", INVALID_FLAGS)
        enables = request.enables
        _known(enables, _every(table.VnicCfgEnables), "enables", INVALID_ENABLES)
        if enables & table.VnicCfgEnables.DFLT_RING_GRP:
            raise Refused(INVALID_ENABLES, "this generation has no ring groups")
        vnic = self._vnic(request.vnic_id)
        rx, cmpl = vnic.rx, vnic.cmpl
        if enables & table.VnicCfgEnables.DEFAULT_RX_RING_ID:
            rx = self._ring(request.default_rx_ring_id, table.RingType.RX, "receive ring").id
        if enables & table.VnicCfgEnables.DEFAULT_CMPL_RING_ID:
            kind = table.RingType.L2_CMPL
            cmpl = self._ring(request.default_cmpl_ring_id, kind, "completion ring").id
        if enables & table.VnicCfgEnables.MRU:
            vnic.mru = request.mru
        vnic.rx, vnic.cmpl = rx, cmpl
        self._open_or_close()
        return {}

    def _vnic_free(self, request: Fields) -> Answer:
        vnic = self._vnic(request.vnic_id)
        users = [f"{filter.id:#x}" for filter in self._state.filters.values() if filter.vnic == vnic.id]
        if users:
            raise Refused(ACCESS_DENIED, f"VNIC {vnic.id:#x} is where filters {', '.join(users)} send packets")
        del self._state.vnics[vnic.id]
        self._state.vnic_pool.give(vnic.id)
        self._open_or_close()
        return {}

    def _filter_alloc(self, request: Fields) -> Answer:
        self._must_be_registered()
        _known(request.flags & ~0x30, _every(table.L2FilterFlags), "flags", INVALID_FLAGS)
        enables = request.enables
        _known(enables, _every(table.L2FilterEnables), "enables", INVALID_ENABLES)
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
        self._state.filters[number] = Filter(number, vnic.id, bytes(request.l2_addr), mask, receive)
        self._open_or_close()
        return {"l2_filter_id": number, "flow_id": number & 0x3FFFFFFF}

    def _set_rx_mask(self, request: Fields) -> Answer:
        self._vnic(request.vnic_id)
        _known(request.mask, _every(table.RxMask), "masks", INVALID_FLAGS)
        read = self._firmware.core.dma_read
        if request.mask & table.RxMask.MCAST and request.num_mc_entries:
            check_buffer(read, request.mc_tbl_addr, request.num_mc_entries * 6)
        return {}

    def _filter_free(self, request: Fields) -> Answer:
        if request.l2_filter_id not in self._state.filters:
            raise Refused(INVALID_PARAMS, f"filter {request.l2_filter_id:#x} does not exist")
        del self._state.filters[request.l2_filter_id]
        self._state.filter_pool.give(request.l2_filter_id)
        self._open_or_close()
        return {}

    def _open_or_close(self) -> None:
        """RoCE packets come in once a filter for this MAC leads to a VNIC whose default rings exist."""
        state, mac = self._state, self._firmware.mac
        rx_type, cmpl_type = table.RingType.RX, table.RingType.L2_CMPL

        def leads(filter: Filter) -> bool:
            vnic = state.vnics.get(filter.vnic)
            return (
                filter.receive
                and all(a & m == b & m for a, b, m in zip(filter.mac, mac, filter.mask, strict=True))
                and vnic is not None
                and vnic.mru > 0
                and vnic.rx is not None
                and vnic.cmpl is not None
                and ring_key(rx_type, vnic.rx) in state.rings
                and ring_key(cmpl_type, vnic.cmpl) in state.rings
            )

        self._firmware.core.ingress(any(leads(filter) for filter in state.filters.values()))

    # ---- the port ----------------------------------------------------------------------------------------------------

    def _port(self, number: int) -> None:
        if number not in (0, 0xFFFF):
            raise Refused(INVALID_PARAMS, f"port {number} is not this function's, 0")

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

    def _port_phy_qcfg(self, request: Fields) -> Answer:
        self._port(request.port_id)
        return {
            "link": table.PhyLink.LINK,
            "link_speed": LINK_SPEED,
            "duplex_cfg": table.Duplex.FULL,
            "duplex_state": table.Duplex.FULL,
            "phy_vendor_name": b"userdma".ljust(16, b"\0"),
            "phy_vendor_partnumber": b"soft".ljust(16, b"\0"),
        }


_LONGEST_RING = 1 << 17  # BNXT_QPLIB_NQE_MAX_CNT is the longest that Linux asks for

_ENTRY_BYTES = {
    table.RingType.L2_CMPL: 16,
    table.RingType.TX: 16,
    table.RingType.RX: 16,
    table.RingType.RX_AGG: 16,
    table.RingType.NQ: 16,
}
