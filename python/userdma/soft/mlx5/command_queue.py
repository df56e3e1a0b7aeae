"""The command queue: entries of 64 bytes in the driver's memory, and mailboxes for what does not fit there.

An entry (contexts.CMD_QUEUE_ENTRY) holds the first 16 bytes of a command and of its answer; the rest is in chains of
mailboxes (contexts.CMD_IF_BOX), 512 bytes each, numbered from 0, with the entry's token. The entry is the firmware's
while its ownership bit is set. How the delivery went is its status (constants.Delivery): only a command that was
delivered is run, and then its answer begins with a status of its own (constants.Status). When an event queue takes
events of commands, one tells that the command is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from userdma import _core
from userdma.errors import Error
from userdma.messages import Fields
from userdma.mlx5.commands import BY_OPCODE
from userdma.mlx5.constants import Delivery, EventType, Status
from userdma.mlx5.contexts import CMD_IF_BOX, CMD_QUEUE_ENTRY
from userdma.mlx5.layouts import Command, Layout
from userdma.soft.faults import Fault, Kind
from userdma.soft.mlx5.access import Access
from userdma.soft.mlx5.bring_up import BringUp
from userdma.soft.mlx5.ethernet import Ethernet
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.ports import Ports
from userdma.soft.mlx5.queue_pairs import QueuePairs
from userdma.soft.mlx5.queues import Queues
from userdma.soft.mlx5.refusal import Answer, Refused, bad_op, syndrome
from userdma.soft.mlx5.resources import Resources
from userdma.soft.mlx5.shared_queues import SharedQueues
from userdma.soft.mlx5.signatures import DATA, ENTRY, mailbox_signed, sign_entry, sign_mailbox, xor
from userdma.soft.mlx5.state import Object
from userdma.soft.mlx5.steering import Steering
from userdma.soft.pools import Exhausted

if TYPE_CHECKING:
    from userdma.soft.mlx5.firmware import Firmware

SIZE = CMD_QUEUE_ENTRY.size
ENTRIES = 32
INLINE = 16  # bytes of a command, and of an answer, in the entry
PCI = 7  # cmd.c MLX5_PCI_CMD_XPORT
LONGEST = 16 << 20  # bytes of a message
HEAD = 8  # status and syndrome, opcode and modifier

_REQUEST = Layout("mbox_in", 16, "opcode@0x0:16 uid@0x10:16 op_mod@0x30:16")  # cmd.c
_REFUSAL = Layout("mbox_out", 16, "status@0x0:8 syndrome@0x20:32")  # cmd.c


class _Undelivered(Exception):
    def __init__(self, status: Delivery, why: str) -> None:
        super().__init__(why)
        self.status = status


class CommandQueue:
    """The queue and its commands. The firmware's lock is held in every call."""

    def __init__(self, firmware: Firmware) -> None:
        self._firmware = firmware
        self._bring_up = BringUp(firmware)
        self._parts: list[Part] = [
            self._bring_up,
            Resources(firmware),
            Queues(firmware),
            QueuePairs(firmware),
            SharedQueues(firmware),
            Ports(firmware),
            Access(firmware),
            Ethernet(firmware),
            Steering(firmware),
        ]
        self._handlers: dict[str, Callable[[Fields], Answer]] = {}
        self._releases: dict[str, Callable[[Object], object]] = {}
        for part in self._parts:
            self._handlers |= part.handlers()
            self._releases |= part.releases()

    def release(self, found: Object) -> None:
        """Gives back what an object has in the data path."""
        release = self._releases.get(found.kind)
        if release:
            release(found)

    def doorbell(self, bits: int) -> None:
        """Runs the commands that the bits name, the lowest first."""
        for index in range(ENTRIES):
            if not bits >> index & 1:
                continue
            if self._firmware.stopped:
                self._firmware.pend(lambda left=bits >> index << index: self._firmware.command(left))  # type: ignore[misc]
                return
            if not self._firmware.enabled:
                self._firmware.dropped["interface_disabled"] += 1
                return
            try:
                self._entry(index)
            except _core.DmaFault:
                self._firmware.dropped["queue_fault"] += 1

    # ---- delivery ----

    def _entry(self, index: int) -> None:
        firmware, core = self._firmware, self._firmware.core
        address = firmware.queue_address + index * SIZE
        raw = core.dma_read(address, SIZE)
        entry = CMD_QUEUE_ENTRY.unpack(raw)
        if not entry.ownership:
            firmware.dropped["not_owned"] += 1
            return
        # The command that makes the event queue of commands is not told of there: its driver still polls.
        told = any(eq.more["commands"] for eq in self._firmware.state.objects["eq"].values())
        try:
            data, boxes = self._receive(raw, entry)
        except _Undelivered as wrong:
            firmware.note("undelivered", entry, None, str(wrong))
            firmware.dropped[f"undelivered_{wrong.status.name.lower()}"] += 1
            self._complete(index, address, bytearray(raw), wrong.status, None, told)
            return

        head = _REQUEST.unpack(data, short=True)
        command = BY_OPCODE.get(head.opcode)
        name = command.name if command else f"unknown_{head.opcode:#06x}"
        request = command.request.unpack(data, short=True) if command else head
        fault = firmware.faults.next(name)
        kind = fault.kind if fault else None
        if kind is Kind.STOP_AT:
            firmware.note(name, request, None, "the firmware stopped at it, as it was told")
            firmware.halt()
            firmware.pend(lambda: firmware.command(1 << index))
            return
        if fault and kind is Kind.UNDELIVERED:
            firmware.note(name, request, None, "not delivered, as it was told")
            self._complete(index, address, bytearray(raw), fault.status or Delivery.FW_ERR, fault, told)
            return
        answer, status, why = self._run(name, command, request, len(data), entry.output_length, fault)
        firmware.note(name, request, status, why)
        if kind is Kind.STOP_IN:
            firmware.halt()
            return
        if kind is not Kind.LOSE:
            if fault and kind is Kind.GARBAGE:
                answer = fault.data if fault.data is not None else firmware.random.randbytes(len(answer))

            def respond() -> None:
                self._answer(index, address, bytearray(raw), answer[: entry.output_length], boxes, fault, told)

            if fault and kind is Kind.DELAY:
                firmware.later(fault.seconds, respond)
            else:
                respond()
        if kind is Kind.STOP_AFTER:
            firmware.halt()
        self._bring_up.page_requests()

    def _receive(self, raw: bytes, entry: Fields) -> tuple[bytes, list[tuple[int, bytes]]]:
        """The command's bytes, and the mailboxes for its answer: address and content. Raises _Undelivered."""
        if entry.type != PCI:
            raise _Undelivered(Delivery.CMD_DESCR_ERR, f"type {entry.type} is not {PCI}")
        if any(raw[1:4]) or raw[SIZE - 2]:
            raise _Undelivered(Delivery.RES_FLD_NOT_CLR_ERR, "reserved bytes of the entry are not 0")
        signed = self._bring_up.checksums
        if signed and xor(raw) != 0xFF:
            raise _Undelivered(Delivery.SIGNAT_ERR, f"signature {entry.signature:#x} of the entry is wrong")
        if not HEAD <= entry.input_length <= LONGEST:
            raise _Undelivered(Delivery.IN_LENGTH_ERR, f"an input of {entry.input_length} bytes")
        if not HEAD <= entry.output_length <= LONGEST:
            raise _Undelivered(Delivery.OUT_LENGTH_ERR, f"an output of {entry.output_length} bytes")
        first = entry.command_input_inline_data
        at = int.from_bytes(raw[8:16], "big")
        inputs = self._chain(at, entry.input_length, entry.token, Delivery.IN_PTR_ALIGN_ERR, signed)
        data = (first + b"".join(box[:DATA] for _, box in inputs))[: entry.input_length]
        at = int.from_bytes(raw[48:56], "big")
        return data, self._chain(at, entry.output_length, entry.token, Delivery.OUT_PTR_ALIGN_ERR, signed)

    def _chain(self, at: int, length: int, token: int, misplaced: Delivery, signed: bool) -> list[tuple[int, bytes]]:
        """The mailboxes of a message of `length` bytes."""
        read = self._firmware.core.dma_read
        boxes = []
        for number in range(-(-max(0, length - INLINE) // DATA)):
            if not at or at % DATA:
                raise _Undelivered(misplaced, f"mailbox {number} is at {at:#x}")
            try:
                box = read(at, CMD_IF_BOX.size)
            except _core.DmaFault as fault:
                raise _Undelivered(Delivery.FW_ERR, f"mailbox {number} cannot be reached: {fault}") from None
            if signed and not mailbox_signed(box):
                raise _Undelivered(Delivery.SIGNAT_ERR, f"the signatures of mailbox {number} are wrong")
            fields = CMD_IF_BOX.unpack(box)
            if fields.token != token:
                raise _Undelivered(
                    Delivery.TOK_ERR, f"mailbox {number} has the token {fields.token:#x}, not {token:#x}"
                )
            if fields.block_number != number:
                raise _Undelivered(Delivery.BAD_BLK_NUM_ERR, f"mailbox {number} has the number {fields.block_number}")
            boxes.append((at, box))
            at = int.from_bytes(box[DATA + 48 : DATA + 56], "big")
        return boxes

    def _answer(
        self,
        index: int,
        address: int,
        entry: bytearray,
        answer: bytes,
        boxes: list[tuple[int, bytes]],
        fault: Fault | None,
        told: bool,
    ) -> None:
        """Writes the answer: the mailboxes, then the entry, whose ownership goes back last."""
        kind = fault.kind if fault else None
        token = CMD_IF_BOX.fields["token"].first
        for number, (at, content) in enumerate(boxes):
            data = answer[INLINE + number * DATA : INLINE + (number + 1) * DATA]
            box = bytearray(content)
            box[: len(data)] = data
            if kind is Kind.WRONG_SEQUENCE:
                box[token] ^= 0xFF
            sign_mailbox(box)
            try:
                self._firmware.core.dma_write(at, bytes(box))
            except _core.DmaFault:
                self._firmware.dropped["answer_fault"] += 1
        entry[32 : 32 + INLINE] = answer[:INLINE].ljust(INLINE, b"\0")
        self._complete(index, address, entry, Delivery.OK, fault, told)

    def _complete(
        self, index: int, address: int, entry: bytearray, status: int, fault: Fault | None, told: bool
    ) -> None:
        kind = fault.kind if fault else None
        entry[SIZE - 1] = (status & 0x7F) << 1
        if kind is Kind.WRONG_SEQUENCE:
            entry[SIZE - 4] ^= 0xFF
        sign_entry(entry)
        if kind is Kind.BAD_SIGNATURE:
            entry[ENTRY] ^= 0x55
        core = self._firmware.core
        try:
            core.dma_write(address, bytes(entry[: SIZE - 1]))
            core.dma_write(address + SIZE - 1, bytes(entry[SIZE - 1 :]))
        except _core.DmaFault:
            self._firmware.dropped["answer_fault"] += 1
            return
        if told:
            core.event(EventType.CMD, 0, (1 << index).to_bytes(4, "big") + bytes(24))

    # ---- commands ----

    def _run(
        self, name: str, command: Command | None, request: Fields, size: int, room: int, fault: Fault | None
    ) -> tuple[bytes, int, str]:
        """The answer's bytes, its status, and why."""
        try:
            if fault and fault.kind is Kind.REFUSE:
                raise Refused(Status.INT_ERR if fault.status is None else fault.status, "refused, as it was told")
            handler = self._handlers.get(name)
            if command is None or handler is None:
                raise bad_op(f"there is no command {request.opcode:#x}")
            self._bring_up.check_stage(name)
            if size < command.request.size:
                raise Refused(Status.BAD_INP_LEN_ERR, f"{size} bytes are not the {command.request.size} of the command")
            if room < command.response.size:
                raise Refused(
                    Status.BAD_OUTP_LEN_ERR, f"{room} bytes are not the {command.response.size} of the answer"
                )
            return command.response.pack(**handler(request)), Status.OK, ""
        except Refused as refused:
            status, why = refused.status, refused.why
        except Exhausted:
            status, why = Status.LIM_ERR, "all that there are of them are taken"
        except _core.DmaFault as dma:
            status, why = Status.BAD_PARAM_ERR, f"memory that the command names cannot be reached: {dma}"
        except Error as gone:
            status, why = Status.INT_ERR, str(gone)
        except Exception as bug:
            status, why = Status.INT_ERR, f"a bug of the firmware: {bug!r}"
            self._firmware.bug(bug)
        return _REFUSAL.pack(status=status & 0xFF, syndrome=syndrome(name, why)), status, why
