"""The smallest driver of a Thor2: what tests send its firmware commands with, right and wrong ones.

It has nothing of the driver under test but the message tables.
"""

from __future__ import annotations

import struct
import time
from typing import Any

from bare import NoAnswer, Refusal
from patience import SECONDS
from userdma import _core
from userdma.bnxt import hwrm, rcfw
from userdma.messages import Fields

PAGE = 4096


# What a transition needs (IBTA volume 1, 11.2.5.2).
INIT = rcfw.ModifyMask.ACCESS | rcfw.ModifyMask.PKEY
RTR = (
    rcfw.ModifyMask.DGID
    | rcfw.ModifyMask.SGID_INDEX
    | rcfw.ModifyMask.DEST_MAC
    | rcfw.ModifyMask.PATH_MTU
    | rcfw.ModifyMask.DEST_QP_ID
    | rcfw.ModifyMask.RQ_PSN
    | rcfw.ModifyMask.MAX_DEST_RD_ATOMIC
    | rcfw.ModifyMask.MIN_RNR_TIMER
)
RTS = (
    rcfw.ModifyMask.SQ_PSN
    | rcfw.ModifyMask.TIMEOUT
    | rcfw.ModifyMask.RETRY_CNT
    | rcfw.ModifyMask.RNR_RETRY
    | rcfw.ModifyMask.MAX_RD_ATOMIC
)
NEEDED: dict[rcfw.QpState, int] = {rcfw.QpState.INIT: INIT, rcfw.QpState.RTR: RTR, rcfw.QpState.RTS: RTS}


class Bare:
    """One function, and the two channels of its firmware."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.enable()
        self.registers = function.map(0)
        self.doorbells = function.map(2)
        self.answer_memory = self.dma(PAGE)
        self.sequence = 0
        self.patience = SECONDS
        self.doorbell = 0
        self.command_ring: Any = None
        self.slots = 0

    def enable(self) -> None:
        """Memory space and bus mastering (PCI_COMMAND), which a reset turns off."""
        self.function.set_config16(4, self.function.config16(4) | 0x6)

    def reset(self) -> None:
        """Function-level reset."""
        self.function.reset()
        self.enable()

    # ---- memory ------------------------------------------------------------------------------------------------------

    def dma(self, size: int) -> Any:
        return self.function.alloc_dma(size)

    @staticmethod
    def bus(memory: Any) -> int:
        address: int = memory.pages()[0]
        return address

    def table(self, pages: list[int]) -> tuple[int, int]:
        """(level, base) of a page table over these pages of 4096 bytes."""
        if len(pages) == 1:
            return 0, pages[0]
        memory = self.dma(-(-len(pages) * 8 // PAGE) * PAGE)
        memoryview(memory)[: len(pages) * 8] = struct.pack(f"<{len(pages)}Q", *(page | 1 for page in pages))
        if len(pages) <= 512:
            return 1, self.bus(memory)
        top = self.dma(PAGE)
        tables = [page | 1 for page in memory.pages()]
        memoryview(top)[: len(tables) * 8] = struct.pack(f"<{len(tables)}Q", *tables)
        return 2, self.bus(top)

    def pages(self, size: int) -> tuple[int, int]:
        """(level, base) of new memory."""
        return self.table(self.dma(size).pages())

    # ---- HWRM --------------------------------------------------------------------------------------------------------

    def send(self, window: bytes) -> None:
        """Stores a request and the trigger."""
        self.registers.write_words(0, window.ljust(hwrm.MAX_REQUEST, b"\0"))
        self.registers.write32(0x100, 1)

    def answered(self, sequence: int) -> bytes | None:
        """The answer's bytes if they are there."""
        data = bytes(memoryview(self.answer_memory))
        head = hwrm.RESPONSE_HEADER.unpack(data)
        if not head.resp_len or head.resp_len > len(data) or head.seq_id != sequence or data[head.resp_len - 1] != 1:
            return None
        return data[: head.resp_len]

    def hwrm(self, name: str, **fields: Any) -> Fields:
        """The command's answer. Refusal, NoAnswer."""
        self.sequence = self.sequence + 1 & 0xFFFF
        command = hwrm.REQUESTS[f"hwrm_{name}"]
        memoryview(self.answer_memory)[:] = bytes(PAGE)
        fields = {"resp_addr": self.bus(self.answer_memory), "seq_id": self.sequence} | fields
        self.send(command.request.pack(**fields))
        until = time.monotonic() + self.patience
        while (data := self.answered(self.sequence)) is None:
            if time.monotonic() > until:
                raise NoAnswer(name)
            time.sleep(0.001)
        code = hwrm.RESPONSE_HEADER.unpack(data).error_code
        if code:
            raise Refusal(f"{name}: error {code:#x}", code)
        return command.response.unpack(data)

    # ---- RCFW --------------------------------------------------------------------------------------------------------

    def nq(self, entries: int = 256, vector: int = 0) -> tuple[int, Any]:
        memory = self.dma(entries * 16)
        level, base = self.table(memory.pages())
        answer = self.hwrm(
            "ring_alloc",
            ring_type=hwrm.RingType.NQ,
            page_tbl_addr=base,
            page_size=12,
            page_tbl_depth=level,
            length=entries,
            logical_id=vector,
            int_mode=hwrm.RingIntMode.MSIX,
        )
        return int(answer.ring_id), memory

    def start(self, slots: int = 256, entries: int = 256) -> None:
        """Starts the RoCE command channel. The driver must be registered."""
        self.doorbell = self.hwrm("func_qcfg", fid=0xFFFF).legacy_l2_db_size_kb * 1024
        self.creq, self.event_ring = self.nq(entries)
        self.events = entries
        self.consumer = 0
        self.arm()
        self.command_ring = self.dma(slots * 16)
        self.slots = slots
        self.producer = 0
        self.cookie = 0
        self.first = 1 << 31
        pages = self.command_ring.pages()
        level, base = self.table(pages)
        init = rcfw.INIT.pack(cmdq_pbl=base, cmdq_size=slots, cmdq_lvl=level, creq_ring_id=self.creq)
        self.registers.write_words(0x600, init)

    def arm(self) -> None:
        index, epoch = self.consumer % self.events, self.consumer // self.events & 1
        value = (self.creq | 0xB << 28 | 1 << 26) << 32 | index | epoch << 24
        self.doorbells.write64(self.doorbell, value)

    def put(self, data: bytes) -> None:
        """Writes slots and moves the producer, without a trigger."""
        data = data.ljust(-(-len(data) // 16) * 16, b"\0")
        view = memoryview(self.command_ring)
        for at in range(0, len(data), 16):
            slot = (self.producer + at // 16) % self.slots * 16
            view[slot : slot + 16] = data[at : at + 16]
        self.producer += len(data) // 16

    def trigger(self) -> None:
        self.registers.write32(0x60C, self.producer & 0xFFFF | self.first)
        self.first = 0
        self.registers.write32(0x700, 1)

    def event(self) -> bytes | None:
        """The next entry of the event ring."""
        at = self.consumer % self.events * 16
        data = bytes(memoryview(self.event_ring)[at : at + 16])
        if (data[8] & 1) == (self.consumer // self.events & 1):
            return None
        self.consumer += 1
        self.arm()
        return data

    def next_event(self) -> bytes:
        until = time.monotonic() + self.patience
        while (data := self.event()) is None:
            if time.monotonic() > until:
                raise NoAnswer
            time.sleep(0.001)
        return data

    def rcfw(self, name: str, **fields: Any) -> Fields:
        """The command's answer. Refusal, NoAnswer."""
        command = rcfw.REQUESTS[name]
        self.cookie = self.cookie + 1 & 0x7FFF
        self.put(command.request.pack(**({"cookie": self.cookie} | fields)))
        self.trigger()
        answer = command.response.unpack(self.next_event())
        assert answer.type == rcfw.EventType.QP_EVENT
        assert answer.event == command.code
        assert answer.cookie == self.cookie
        if answer.status:
            raise Refusal(f"{name}: status {answer.status:#x}", answer.status)
        return answer

    def query(self, name: str, **fields: Any) -> Fields:
        """What the command writes to its side buffer."""
        layout = rcfw.REQUESTS[name].buffer
        assert layout is not None
        memory = self.dma(PAGE)
        self.rcfw(name, resp_addr=self.bus(memory), resp_size=-(-layout.size // 16), **fields)
        return layout.unpack(bytes(memoryview(memory)[: layout.size]))

    # ---- bring-up ----------------------------------------------------------------------------------------------------

    def backing_store(self, extra: dict[int, int] | None = None, *, spoil: int | None = None) -> None:
        """Every type, in the order of the chain, as bnxt_en does it. ``spoil``: a type that is left uninitialized."""
        more = {0: 64, 1: 16, 2: 128, 14: 512} | (extra or {})
        plan = []
        type = 0
        while type < 0xFFFF:
            caps = self.hwrm("func_backing_store_qcaps_v2", type=type)
            plan += [(type, caps, i) for i in range(8) if caps.instance_bit_map >> i & 1] or [(type, caps, 0)]
            type = caps.next_valid_type
        for number, (type, caps, instance) in enumerate(plan):
            splits = {f"split_entry_{i}": getattr(caps, f"split_entry_{i}") for i in range(caps.subtype_valid_cnt)}
            entries = max(caps.min_num_entries, sum(splits.values()) + more.get(type, 0))
            entries += -entries % max(1, caps.entry_multiple)
            memory = self.dma(entries * caps.entry_size)
            if caps.flags & hwrm.BackingStoreQcapsFlags.ENABLE_CTX_KIND_INIT and type != spoil:
                at, size = caps.ctx_init_offset * 4, caps.entry_size
                memoryview(memory)[at : entries * size : size] = bytes([caps.ctx_init_value]) * entries
            level, base = self.table(memory.pages())
            self.hwrm(
                "func_backing_store_cfg_v2",
                type=type,
                instance=instance,
                entry_size=caps.entry_size,
                num_entries=entries,
                page_dir=base,
                pbl_level=level,
                subtype_valid_cnt=caps.subtype_valid_cnt,
                flags=hwrm.BackingStoreCfgFlags.BS_CFG_ALL_DONE if number == len(plan) - 1 else 0,
                **splits,
            )

    def statistics(self) -> int:
        self.counters = self.dma(PAGE)
        answer = self.hwrm(
            "stat_ctx_alloc", stats_dma_addr=self.bus(self.counters), stats_dma_length=hwrm.STATISTICS_SIZE
        )
        self.context = int(answer.stat_ctx_id)
        return self.context

    def up(self, *, slots: int = 256, entries: int = 256, extra: dict[int, int] | None = None) -> Bare:
        """Everything that the RoCE commands need."""
        self.hwrm("ver_get", hwrm_intf_maj=1, hwrm_intf_min=10, hwrm_intf_upd=3)
        self.hwrm("func_reset")
        self.hwrm("func_drv_rgtr")
        self.backing_store(extra)
        self.start(slots, entries)
        self.rcfw("initialize_fw", stat_ctx_id=self.statistics())
        self.cnq, self.cnq_memory = self.nq(entries, 1)
        return self

    def gid(self) -> tuple[int, bytes]:
        mac = self.function.firmware.mac
        gid = bytes(10) + b"\xff\xff\x0a" + mac[3:]
        answer = self.rcfw("add_gid", gid=rcfw.gid_bytes(gid), src_mac=rcfw.mac_bytes(mac))
        return int(answer.xid), gid

    def cq(self, entries: int = 128, **fields: Any) -> int:
        level, base = self.pages(entries * 32)
        answer = self.rcfw(
            "create_cq", **({"cq_size": entries, "pbl": base, "lvl": level, "cnq_id": self.cnq} | fields)
        )
        return int(answer.xid)

    def qp(self, cq: int, entries: int = 64, **fields: Any) -> int:
        sq_level, sq = self.pages(entries * (128 + 8))
        rq_level, rq = self.pages(entries * 128)
        given = {
            "type": rcfw.QpType.RC,
            "scq_cid": cq,
            "rcq_cid": cq,
            "sq_size": entries,
            "rq_size": entries,
            "sq_sge": 6,
            "rq_sge": 6,
            "sq_pbl": sq,
            "sq_lvl": sq_level,
            "rq_pbl": rq,
            "rq_lvl": rq_level,
        }
        return int(self.rcfw("create_qp", **(given | fields)).xid)

    def mr(self, size: int = 3 * PAGE, va: int = 0x7000_0000, **fields: Any) -> int:
        level, base = self.pages(size)
        given = {
            "flags": rcfw.RegisterMrFlags.ALLOC_MR,
            "lvl": level,
            "log2_pg_size": 12,
            "log2_pbl_pg_size": 12,
            "access": rcfw.MrAccess.LOCAL_WRITE,
            "pbl": base,
            "va": va,
            "mr_size": size,
        }
        return int(self.rcfw("register_mr", **(given | fields)).xid)

    # ---- queue pairs -------------------------------------------------------------------------------------------------

    def modify(self, qp: int, state: int, mask: int | None = None, **fields: Any) -> None:
        """To a state, with what it needs and good values, or another mask and other values."""
        mac = self.function.firmware.mac
        gid = bytes(10) + b"\xff\xff\x0a" + mac[3:]
        if mask is None:
            mask = NEEDED.get(rcfw.QpState(state), 0)
        given = {
            "qp_type": rcfw.QpType.RC,
            "new_state": state,
            "network_type": rcfw.NetworkType.ROCEV2_IPV4,
            "access": 7,
            "pkey": 0xFFFF,
            "dgid": gid,
            "dest_mac": mac,
            "sgid_index": 0,
            "path_mtu": rcfw.PathMtu.MTU_1024,
            "dest_qp_id": qp,
            "rq_psn": 100,
            "sq_psn": 100,
            "max_dest_rd_atomic": 10,
            "max_rd_atomic": 5,
            "min_rnr_timer": 1,
            "timeout": 14,
            "retry_cnt": 7,
            "rnr_retry": 7,
        }
        self.rcfw("modify_qp", qp_cid=qp, modify_mask=mask | rcfw.ModifyMask.STATE, **(given | fields))

    def move(self, qp: int, state: int) -> None:
        """From RESET to a state, by the way that the specification has."""
        S = rcfw.QpState  # noqa: N806
        way = {
            S.RESET: [],
            S.INIT: [S.INIT],
            S.RTR: [S.INIT, S.RTR],
            S.RTS: [S.INIT, S.RTR, S.RTS],
            S.SQD: [S.INIT, S.RTR, S.RTS, S.SQD],
            S.ERR: [S.ERR],
        }
        for step in way[S(state)]:
            self.modify(qp, step)


def core_has_soft() -> bool:
    """Whether the compiled module has soft NICs."""
    return hasattr(_core, "SoftBnxt")
