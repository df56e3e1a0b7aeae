"""The HWRM channel of the soft Thor2: what each command checks, does and answers.

Names, offsets and error codes are bnxt_hsi.h's (Linux). Where the header says what a field is but not what firmware
makes of a wrong value, the answer is the error code whose description fits: INVALID_PARAMS for numbers and memory that
are not there, INVALID_FLAGS and INVALID_ENABLES for bits that this interface version does not have,
RESOURCE_ACCESS_DENIED for what the function may not do now (it has not registered, or something still uses the
object), RESOURCE_ALLOC_ERROR for a limit reached, CMD_NOT_SUPPORTED for an unknown command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from userdma import _core
from userdma.bnxt import hwrm as table
from userdma.bnxt.hwrm_ethernet import FuncCfgFlags, NvmDevInfoFlags
from userdma.errors import Error
from userdma.messages import Command, Fields
from userdma.soft.bnxt import backing
from userdma.soft.bnxt.ethernet import ETHERNET_MTU, MRU, Ethernet
from userdma.soft.bnxt.refusal import INTERFACE as INTERFACE
from userdma.soft.bnxt.refusal import Answer, Refused, denied, every, invalid, known_enables, known_flags
from userdma.soft.bnxt.resources import BackingStore, BadTable
from userdma.soft.bnxt.state import State
from userdma.soft.faults import Fault, Kind
from userdma.soft.pools import Exhausted

if TYPE_CHECKING:
    from userdma.soft.bnxt.firmware import Firmware

FIRMWARE = (231, 0, 162, 0)  # firmware package
CHIP = 0x1760  # CHIP_NUM_57608 (bnxt.h)
FID = 0x0001
LONGEST_REQUEST = 1024  # of a short command's request, which lies in the driver's memory
LONGEST_ANSWER = 704  # HWRM_MAX_RESP_LEN
SECONDS = 30  # def_req_timeout: what answers is a process among others (DFLT_HWRM_CMD_TIMEOUT is 500 ms)
DOORBELL_KB = 64  # legacy_l2_db_size_kb: where, in BAR 2, the doorbells are
DRV_RGTR_FLAGS = 0x1FFF  # FUNC_DRV_RGTR_REQ_FLAGS_*: none of them changes what this firmware does

OK = table.ErrorCode.SUCCESS
FAIL = table.ErrorCode.FAIL
INVALID_PARAMS = table.ErrorCode.INVALID_PARAMS
ALLOC_ERROR = table.ErrorCode.RESOURCE_ALLOC_ERROR
INVALID_ENABLES = table.ErrorCode.INVALID_ENABLES
HWRM_ERROR = table.ErrorCode.HWRM_ERROR
NOT_SUPPORTED = table.ErrorCode.CMD_NOT_SUPPORTED


class Hwrm:
    """The channel and its commands. The firmware's lock is held in every call."""

    def __init__(self, firmware: Firmware) -> None:
        self._firmware = firmware
        self._commands = table.BY_CODE
        self._ethernet = Ethernet(firmware)
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
            "hwrm_func_cfg": self._func_cfg,
            "hwrm_fw_set_time": self._fw_set_time,
            "hwrm_nvm_get_dev_info": self._nvm_get_dev_info,
        }
        handlers |= self._ethernet.handlers
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
        self._respond(head, answer, fault)
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
            # FUNC_CFG grew past the window: drivers that put it there send what fits.
            if size < min(command.request.size, table.MAX_REQUEST):
                raise invalid(f"{size} bytes are not the {command.request.size} of the request")
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

    def _respond(self, head: Fields, answer: bytes, fault: Fault | None) -> None:
        kind = fault.kind if fault else None
        if kind is Kind.LOSE:
            return
        if fault and kind is Kind.GARBAGE:
            answer = fault.data if fault.data is not None else self._firmware.random.randbytes(len(answer))
        if fault and kind is Kind.DELAY:
            self._firmware.later(fault.seconds, lambda: self._write(head, answer))
        else:
            self._write(head, answer)

    def _write(self, head: Fields, answer: bytes) -> None:
        """The last byte, `valid`, after all others: the driver may look at any time. And right after them: once it sees
        the length, bnxt_en waits for it no longer than 50 ms. Then a completion, if asked."""
        try:
            self._firmware.core.dma_publish(head.resp_addr, answer)
        except _core.DmaFault:
            self._firmware.dropped["hwrm_answer_fault"] += 1
            return
        if head.cmpl_ring != table.NO_COMPLETION_RING:
            self._ethernet.done(head.cmpl_ring, head.seq_id)

    def forget(self) -> None:
        """Gives back what the Ethernet part has in the data path."""
        self._ethernet.forget()

    # ---- the function ------------------------------------------------------------------------------------------------

    def _self(self, fid: int) -> None:
        if fid not in (table.TARGET_SELF, FID):
            raise invalid(f"function {fid:#x} is not this one, {FID:#x}")

    def _must_be_registered(self) -> None:
        if not self._state.registered:
            raise denied("no driver is registered (FUNC_DRV_RGTR)")

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
            "flags": table.VerGetFlags.EXT_VER_AVAIL,
            "chip_num": CHIP,
            "chip_rev": 1,
            "chip_platform_type": table.ChipPlatform.ASIC,
            "max_req_win_len": table.MAX_REQUEST,
            "max_resp_len": LONGEST_ANSWER,
            "def_req_timeout": SECONDS * 1000,  # milliseconds
            "always_1": 1,
            "max_ext_req_len": LONGEST_REQUEST,
            "max_req_timeout": 40,  # seconds (HWRM_CMD_MAX_TIMEOUT is 40,000 ms)
        }

    def _func_reset(self, request: Fields) -> Answer:
        if request.enables:
            raise Refused(INVALID_ENABLES, "this function has no virtual functions")
        if request.func_reset_level not in (table.FuncResetLevel.RESETALL, table.FuncResetLevel.RESETME):
            raise invalid(f"reset level {request.func_reset_level}: no virtual functions to reset")
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
        # What FUNC_CFG reserved, else all that there are.
        limits = self._firmware.limits
        allocated = {
            "cmpl_rings": limits.completion_rings,
            "tx_rings": limits.tx_rings,
            "rx_rings": limits.rx_rings,
            "l2_ctx": limits.filters,
            "vnics": limits.vnics,
            "stat_ctx": limits.stat_contexts,
            "rsscos_ctx": limits.vnics,
            "msix": limits.nqs,
        } | state.reserved
        return {
            "fid": FID,
            "port_id": 0,
            "mac_address": self._firmware.mac,
            **{f"alloc_{kind}": number for kind, number in allocated.items()},
            "evb_mode": table.EvbMode.NO_EVB,
            "admin_mtu": ETHERNET_MTU,
            "max_mtu_configured": ETHERNET_MTU,
            "mru": MRU,
            "stat_ctx_id": next(iter(state.stat_contexts), 0xFFFF),
            "dflt_vnic_id": next(iter(state.vnics), 0xFFFF),
            "l2_doorbell_bar_size_kb": 2 * DOORBELL_KB,  # the rest is for the doorbell pages of RoCE programs
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
        known_flags(request.flags, DRV_RGTR_FLAGS)
        known_enables(request.enables, every(table.DrvRgtrEnables))
        state = self._state
        # A driver that is registered may only change the events that it wants.
        if state.registered and request.enables != table.DrvRgtrEnables.ASYNC_EVENT_FWD:
            raise denied("a driver is registered already")
        state.registered = True
        if request.enables & table.DrvRgtrEnables.ASYNC_EVENT_FWD:
            state.events = int.from_bytes(request["async_event_fwd"], "little")
        return {}

    def _func_drv_unrgtr(self, request: Fields) -> Answer:
        if not self._state.registered:
            raise denied("no driver is registered")
        self._state.registered = False
        self._state.events = 0
        return {}

    def _func_cfg(self, request: Fields) -> Answer:
        self._self(request.fid)
        enables = request.enables
        known_enables(enables, every(table.FuncCfgEnables))
        known_flags(request.flags, every(FuncCfgFlags))
        limits = self._firmware.limits
        reserved: dict[str, int] = {}
        for bit, kind, wanted, most in (
            (table.FuncCfgEnables.NUM_RSSCOS_CTXS, "rsscos_ctx", request.num_rsscos_ctxs, limits.vnics),
            (table.FuncCfgEnables.NUM_CMPL_RINGS, "cmpl_rings", request.num_cmpl_rings, limits.completion_rings),
            (table.FuncCfgEnables.NUM_TX_RINGS, "tx_rings", request.num_tx_rings, limits.tx_rings),
            (table.FuncCfgEnables.NUM_RX_RINGS, "rx_rings", request.num_rx_rings, limits.rx_rings),
            (table.FuncCfgEnables.NUM_L2_CTXS, "l2_ctx", request.num_l2_ctxs, limits.filters),
            (table.FuncCfgEnables.NUM_VNICS, "vnics", request.num_vnics, limits.vnics),
            (table.FuncCfgEnables.NUM_STAT_CTXS, "stat_ctx", request.num_stat_ctxs, limits.stat_contexts),
            (table.FuncCfgEnables.NUM_MSIX, "msix", request.num_msix, limits.nqs),
        ):
            if enables & bit:
                if wanted > most:
                    raise Refused(ALLOC_ERROR, f"{bit.name}: {wanted} of {most}")
                reserved[kind] = wanted
        if enables & table.FuncCfgEnables.ASYNC_EVENT_CR:
            number = request.async_event_cr
            self._state.event_ring = self._ethernet.ring(number, table.RingType.NQ).id if number != 0xFFFF else None
        if not request.flags:  # else it was a question
            self._state.reserved |= reserved
        return {}

    def _fw_set_time(self, request: Fields) -> Answer:
        return {}

    def _nvm_get_dev_info(self, request: Fields) -> Answer:
        """There is no flash memory; what would be in it is what runs."""
        answer: Answer = {}
        for part in ("hwrm_fw", "mgmt_fw", "roce_fw", "netctrl_fw"):
            for name, number in zip(("major", "minor", "build", "patch"), FIRMWARE, strict=True):
                answer[f"{part}_{name}"] = number
        answer["pkg_name"] = ".".join(map(str, FIRMWARE)).encode().ljust(16, b"\0")
        return answer | {
            "nvm_cfg_ver_maj": 1,
            "flags": NvmDevInfoFlags.FW_VER_VALID,
        }

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
        known_flags(flags, done)
        if request.enables:
            raise Refused(INVALID_ENABLES, f"enables {request.enables:#x} are for types that this NIC does not have")
        if self._state.backing_done:
            raise denied("the backing store is configured and in use until the function is reset")
        types = backing.types(self._firmware.limits)
        kind = types.get(request.type)
        if kind is None:
            raise invalid(f"type {request.type:#x} is not one of this NIC's")
        if request.instance != 0 and not kind.instances >> request.instance & 1:
            raise invalid(f"{kind.name} has no instance {request.instance}")
        if request.entry_size != kind.entry_size:
            raise invalid(f"an entry of {kind.name} has {kind.entry_size} bytes")
        if not kind.least <= request.num_entries <= kind.most or request.num_entries % max(1, kind.multiple):
            raise invalid(
                f"{request.num_entries} entries of {kind.name}: {kind.least} to {kind.most}, "
                f"in multiples of {max(1, kind.multiple)}, are possible",
            )
        if request.subtype_valid_cnt > 4:
            raise invalid(f"{request.subtype_valid_cnt} splits: there are fields for 4")
        splits = tuple(getattr(request, f"split_entry_{i}") for i in range(min(request.subtype_valid_cnt, 4)))
        if sum(splits) > request.num_entries:
            raise invalid(f"splits {splits} of {kind.name} are more than {request.num_entries} entries")
        size = request.num_entries * kind.entry_size
        level, number = request.pbl_level, request.page_size
        if number >= len(backing.PAGE_SHIFTS):
            raise invalid(f"page size {number} is not one of this NIC's")
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
                raise invalid(f"{', '.join(missing)} not configured yet")
        self._state.backing[request.type, request.instance] = BackingStore(request.num_entries, size, splits)
        if flags & done:
            self._state.backing_done = True
        return {}
