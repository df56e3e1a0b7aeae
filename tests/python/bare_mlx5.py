"""The smallest driver of a ConnectX: what tests send its firmware commands with, right and wrong ones.

It has nothing of the driver under test but the message tables. The command queue and its mailboxes are as cmd.c
(mlx5_core) has them: struct mlx5_cmd_layout, struct mlx5_cmd_prot_block, struct mlx5_init_seg.
"""

from __future__ import annotations

import struct
import time
from functools import reduce
from operator import xor
from typing import Any

from bare import NoAnswer, Refusal
from patience import SECONDS
from userdma.messages import Fields
from userdma.mlx5.commands import COMMANDS
from userdma.mlx5.constants import Pages, QpState

PAGE = 4096
BOX = 1024  # where the next mailbox is; it takes 576 bytes
DATA = 512
SLOT = 64
EQE = 64

# struct mlx5_init_seg
FW_REV, CMDIF_REV, CMDQ_ADDR_H, CMDQ_ADDR_L, DOORBELL, INITIALIZING = 0x0, 0x4, 0x10, 0x14, 0x18, 0x1FC
HEALTH, TIMER, HEALTH_COUNTER = 0x200, 0x1000, 0x1010


class Undelivered(Exception):
    """The command's queue entry came back with a delivery status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"delivery status {status:#x}")
        self.status = status


def signature(data: bytes) -> int:
    return reduce(xor, data, 0) ^ 0xFF


def mailbox(data: bytes, following: int, number: int, token: int) -> bytes:
    """A mailbox with both signatures."""
    head = data.ljust(DATA, b"\0") + bytes(48) + struct.pack(">QIBB", following, number, 0, token)
    head += bytes([signature(head[DATA:])])
    return head + bytes([signature(head)])


class Bare:
    """One function, and its command queue."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.enable()
        self.registers = function.map(0)
        self.token = 0
        self.patience = SECONDS
        self.queue = self.dma(PAGE)
        self.boxes = self.dma(1 << 20)
        self.given: list[Any] = []  # memory behind pages
        self.spare: list[int] = []  # pages that were taken back
        self.uar = self.pd = self.eq = 0

    def enable(self) -> None:
        """Memory space and bus mastering (PCI_COMMAND), which a reset turns off."""
        self.function.set_config16(4, self.function.config16(4) | 0x6)

    def reset(self) -> None:
        """Function-level reset."""
        self.function.reset()
        self.enable()

    def dma(self, size: int) -> Any:
        return self.function.alloc_dma(size)

    @staticmethod
    def bus(memory: Any) -> int:
        address: int = memory.pages()[0]
        return address

    # ---- registers ---------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> int:
        """A register, big-endian."""
        return int.from_bytes(self.registers.read32(offset).to_bytes(4, "little"), "big")

    def write(self, offset: int, value: int) -> None:
        self.registers.write32(offset, int.from_bytes(value.to_bytes(4, "big"), "little"))

    def attach(self) -> None:
        """Tells where the command queue is (mlx5_cmd_enable)."""
        address = self.bus(self.queue)
        self.write(CMDQ_ADDR_H, address >> 32)
        self.write(CMDQ_ADDR_L, address & 0xFFFFFFFF)

    # ---- the command queue -------------------------------------------------------------------------------------------

    def at(self, box: int) -> int:
        """The bus address of a mailbox."""
        page, offset = divmod(box * BOX, PAGE)
        address: int = self.boxes.pages()[page] + offset
        return address

    def chain(self, first: int, data: bytes, token: int) -> int:
        """Writes mailboxes for the data, from number `first` of the pool on; the bus address of that, 0 for none."""
        count = -(-len(data) // DATA)
        memory = memoryview(self.boxes)
        for number in range(count):
            following = self.at(first + number + 1) if number + 1 < count else 0
            box = mailbox(data[number * DATA : (number + 1) * DATA], following, number, token)
            place = (first + number) * BOX
            memory[place : place + len(box)] = box
        return self.at(first) if count else 0

    def entry(self, request: bytes, room: int, token: int, **changes: Any) -> bytearray:
        """A queue entry whose mailboxes are written: the request's from the pool's start, the answer's from 512 on."""
        fields = {
            "type": 7,
            "reserved": bytes(3),
            "inlen": len(request),
            "in_ptr": self.chain(0, request[16:], token),
            "in": request[:16].ljust(16, b"\0"),
            "out_ptr": self.chain(512, bytes(max(0, room - 16)), token),
            "outlen": room,
            "token": token,
            "last": 0,
            "owned": 1,
        } | changes
        entry = bytearray(
            bytes([fields["type"]])
            + fields["reserved"]
            + struct.pack(">IQ", fields["inlen"], fields["in_ptr"])
            + fields["in"]
            + bytes(16)
            + struct.pack(">QIBBBB", fields["out_ptr"], fields["outlen"], token, 0, fields["last"], fields["owned"])
        )
        entry[61] = changes.get("signature", signature(bytes(entry)))
        return entry

    def post(self, slot: int, entry: bytes) -> None:
        """Puts an entry into the queue, and rings."""
        memoryview(self.queue)[slot * SLOT : (slot + 1) * SLOT] = entry
        self.write(DOORBELL, 1 << slot)

    def done(self, slot: int) -> bytes | None:
        """The entry once it is the driver's again."""
        entry = bytes(memoryview(self.queue)[slot * SLOT : (slot + 1) * SLOT])
        return entry if not entry[63] & 1 else None

    def wait(self, slot: int) -> bytes:
        until = time.monotonic() + self.patience
        while (entry := self.done(slot)) is None:
            if time.monotonic() > until:
                raise NoAnswer
            time.sleep(0.001)
        return entry

    def exchange(self, request: bytes, room: int, slot: int = 0, **changes: Any) -> bytes:
        """The answer's bytes. Undelivered, NoAnswer."""
        self.token = self.token % 255 + 1
        self.post(slot, bytes(self.entry(request, room, self.token, **changes)))
        entry = self.wait(slot)
        if entry[63] >> 1:
            raise Undelivered(entry[63] >> 1)
        assert entry[60] == self.token
        data = entry[32:48]
        memory = memoryview(self.boxes)
        for number in range(-(-max(0, room - 16) // DATA)):
            place = (512 + number) * BOX
            data += bytes(memory[place : place + DATA])
        return data[:room]

    def command(self, name: str, room: int | None = None, /, **fields: Any) -> Fields:
        """The command's answer. Refusal, Undelivered, NoAnswer."""
        return self.command_bytes(name, COMMANDS[name].request.pack(**fields), room)

    def command_bytes(self, name: str, request: bytes, room: int | None = None) -> Fields:
        """The same with the request as it is."""
        response = COMMANDS[name].response
        size = response.size if room is None else room
        answer = response.unpack(self.exchange(request, size), short=True)
        if answer.status:
            refusal = Refusal(f"{name}: status {answer.status:#x}, syndrome {answer.syndrome:#x}", answer.status)
            refusal.syndrome = answer.syndrome
            raise refusal
        return answer

    # ---- up and down -------------------------------------------------------------------------------------------------

    def give_pages(self, count: int) -> list[int]:
        pages = [self.spare.pop() for _ in range(min(count, len(self.spare)))]
        if count > len(pages):
            memory = self.dma((count - len(pages)) * PAGE)
            self.given.append(memory)
            pages += memory.pages()
        self.command("manage_pages", op_mod=Pages.GIVE, input_num_entries=count, pas=pages)
        return pages

    def take_pages(self, most: int = 64) -> int:
        """Takes back what the firmware gives."""
        answer = self.command("manage_pages", 16 + 8 * most, op_mod=Pages.TAKE, input_num_entries=most)
        self.spare += answer.pas[: answer.output_num_entries]
        count: int = answer.output_num_entries
        return count

    def missing(self, kind: int) -> int:
        """The pages that the firmware wants: 1 to boot, 2 to initialize."""
        count: int = self.command("query_pages", op_mod=kind).num_pages
        return count

    def boot(self) -> Bare:
        self.attach()
        self.command("enable_hca")
        self.command("set_issi", current_issi=1)
        self.give_pages(self.missing(1))
        return self

    def up(self) -> Bare:
        """As far as INIT_HCA, with a UAR, a protection domain and an event queue."""
        self.boot()
        self.give_pages(self.missing(2))
        self.command("init_hca")
        self.eq = 0
        self.uar = self.command("alloc_uar").uar
        self.pd = self.command("alloc_pd").pd
        return self

    def down(self) -> None:
        self.command("teardown_hca")
        while self.take_pages():
            pass
        self.command("disable_hca")

    # ---- objects -----------------------------------------------------------------------------------------------------

    def new_eq(self, log_size: int = 6, events: int = 0, vector: int = 0) -> tuple[int, Any]:
        memory = self.dma(max(PAGE, EQE << log_size))
        view = memoryview(memory)
        for at in range(EQE - 1, EQE << log_size, EQE):
            view[at] = 1  # MLX5_EQE_OWNER_INIT_VAL
        answer = self.command(
            "create_eq",
            eq_context_entry={"log_eq_size": log_size, "uar_page": self.uar, "intr": vector},
            event_bitmask=[events, 0, 0, 0],
            pas=memory.pages(),
        )
        return answer.eq_number, memory

    def new_cq(self, log_size: int = 6, **context: Any) -> int:
        memory = self.dma(max(PAGE, 64 << log_size))
        if not self.eq:
            self.eq, _ = self.new_eq()
        fields = {
            "log_cq_size": log_size,
            "uar_page": self.uar,
            "c_eqn_or_apu_element": self.eq,
            "dbr_addr": self.bus(self.dma(PAGE)),
        } | context
        number: int = self.command("create_cq", cq_context=fields, pas=memory.pages()).cqn
        return number

    def new_mkey(self, size: int = PAGE, **context: Any) -> tuple[int, Any]:
        """The index of a key over new memory, and the memory."""
        memory = self.dma(size)
        pages = memory.pages()
        entries = struct.pack(f">{len(pages)}Q", *(page | 3 for page in pages))
        entries += bytes(-len(entries) % 16)
        fields = {
            "access_mode_1_0": 1,
            "lr": 1,
            "lw": 1,
            "pd": self.pd,
            "start_addr": self.bus(memory),
            "len": size,
            "log_page_size": 12,
            "translations_octword_size": len(entries) // 16,
            "qpn": 0xFFFFFF,
        } | context
        answer = self.command(
            "create_mkey",
            memory_key_mkey_entry=fields,
            translations_octword_actual_size=len(entries) // 16,
            klm_pas_mtt=entries,
        )
        return answer.mkey_index, memory

    def new_qp(self, cq: int, **context: Any) -> int:
        memory = self.dma(2 * PAGE)
        fields = {
            "st": 0,
            "pm_state": 3,
            "pd": self.pd,
            "uar_page": self.uar,
            "log_rq_size": 4,
            "log_rq_stride": 0,
            "log_sq_size": 4,
            "cqn_snd": cq,
            "cqn_rcv": cq,
            "user_index": 0x77,
            "dbr_addr": self.bus(self.dma(PAGE)),
        } | context
        number: int = self.command("create_qp", qpc=fields, pas=memory.pages()).qpn
        return number

    def new_gid(self, index: int = 0, last: int = 1) -> bytes:
        """An IPv4 address in the RoCE address table."""
        gid = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, last])
        self.command(
            "set_roce_address",
            roce_address_index=index,
            roce_address={
                "source_l3_address": gid,
                "source_mac_47_32": 0x0200,
                "source_mac_31_0": last,
                "roce_version": 2,
            },
        )
        return gid

    def to(self, qp: int, state: QpState) -> None:
        """Brings a queue pair of a connection there, from RST."""
        path: dict[str, Any] = {"pkey_index": 0, "vhca_port_num": 1}
        self.command("rst2init_qp", qpn=qp, qpc={"st": 0, "pm_state": 3, "rwe": 1, "primary_address_path": path})
        if state == QpState.INIT:
            return
        peer = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 9])
        path |= {"rgid_rip": peer, "rmac_47_32": 0x0200, "rmac_31_0": 9, "hop_limit": 64, "src_addr_index": 0}
        context = {"st": 0, "pm_state": 3, "mtu": 3, "log_msg_max": 30, "remote_qpn": 0x55, "next_rcv_psn": 7}
        context |= {"log_rra_max": 2, "min_rnr_nak": 12, "primary_address_path": path}
        self.command("init2rtr_qp", qpn=qp, qpc=context)
        if state == QpState.RTR:
            return
        context = {"st": 0, "pm_state": 3, "retry_count": 7, "rnr_retry": 6, "next_send_psn": 9, "log_sra_max": 2}
        self.command("rtr2rts_qp", qpn=qp, qpc=context | {"primary_address_path": {"ack_timeout": 14}})
