"""The command queue of a ConnectX: entries and mailboxes in memory, a doorbell in the initialization segment.

An entry holds the first 16 bytes of a request and of its answer; what is longer goes on in chains of mailboxes, blocks
of 512 bytes. Entry and blocks of a command carry its token, and each is signed. Layouts: mlx5_ifc.h cmd_queue_entry,
cmd_if_box and initial_seg (userdma.mlx5.contexts); the order of steps is that of mlx5_core's cmd.c.

The last entry is kept for the pages that the firmware asks for while another command waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

from userdma import _core, trace
from userdma.errors import (
    DmaMemoryError,
    FirmwareAnswerError,
    FirmwareInternalError,
    FirmwareRefusedError,
    FirmwareTimeoutError,
    MachineError,
)
from userdma.firmware.channel import Channel, Firmware
from userdma.firmware.memory import read, write
from userdma.messages import Command, Fields
from userdma.mlx5.commands import COMMANDS
from userdma.mlx5.constants import Delivery, Pages, Status
from userdma.mlx5.contexts import CMD_IF_BOX, CMD_QUEUE_ENTRY

PAGE = 4096
_INLINE = 16  # bytes of a request and of an answer in the entry itself
_DATA = 512  # bytes of them in a mailbox
_BLOCK = CMD_IF_BOX.size
_STRIDE = 1024  # from one mailbox to the next: their addresses have no lower bits
_GROW = 64  # mailboxes taken at once
_TRANSPORT = 7  # cmd.c MLX5_PCI_CMD_XPORT
_INTERFACE = 5  # main.c mlx5_function_setup's CMD_IF_REV
_ENTRY_BYTES = CMD_QUEUE_ENTRY.size  # ownership is its last bit

# Bytes of the initialization segment (initial_seg's bits, device.h mlx5_init_seg).
_FIRMWARE, _QUEUE_HIGH, _QUEUE_LOW, _DOORBELL = 0x00, 0x10, 0x14, 0x18
_INITIALIZING = 0x1FC
_HEALTH_SYNDROME = 0x23C  # health_buffer's last word
_COMMAND_LIMIT = 0xFF8  # cmd_exec_to
_HEALTH_COUNTER = 0x1010

# What the firmware says of an internal error: mlx5_ifc.h MLX5_INITIAL_SEG_HEALTH_SYNDROME_*, and health.c's words.
_SYNDROMES = {
    0x1: "the firmware failed (FW_INTERNAL_ERR)",
    0x7: "one of its processors does not respond (DEAD_IRISC)",
    0x8: "a fatal error of the hardware (HW_FATAL_ERR)",
    0x9: "its firmware's CRC is wrong (FW_CRC_ERR)",
    0xA: "a PCI error as it fetched its own memory from this machine (ICM_FETCH_PCI_ERR)",
    0xB: "an error of its memory's pages (ICM_PAGE_ERR)",
    0xC: "an asynchronous event queue overran (ASYNCHRONOUS_EQ_BUF_OVERRUN)",
    0xD: "an event queue is broken (EQ_IN_ERR)",
    0xE: "an event queue that there is none of was named (EQ_INV)",
    0xF: "an error of its serial links (FFSER_ERR)",
    0x10: "it is too hot (HIGH_TEMP_ERR)",
    0x12: "poisoned data as it fetched its own memory from this machine (ICM_PCI_POISONED_ERR)",
}


def swap(value: int) -> int:
    """A 32-bit word of a register, which is big-endian, as a load or store of this machine has it."""
    return int.from_bytes(value.to_bytes(4, "big"), "little")


class Registers:
    """The initialization segment, at the front of BAR 0."""

    def __init__(self, function: _core.Function) -> None:
        self.bar = function.map(0)

    def read(self, at: int) -> int:
        return swap(self.bar.read32(at))

    def write(self, at: int, value: int) -> None:
        self.bar.write32(at, swap(value))

    @property
    def initializing(self) -> bool:
        return bool(self.read(_INITIALIZING) >> 31)

    @property
    def version(self) -> str:
        minor_major, revision_sub = self.read(_FIRMWARE), self.read(_FIRMWARE + 4)
        return f"{minor_major & 0xFFFF}.{minor_major >> 16}.{revision_sub & 0xFFFF:04}"

    @property
    def interface(self) -> int:
        return self.read(_FIRMWARE + 4) >> 16

    @property
    def command_limit(self) -> float:
        """Seconds that the firmware wants for a command, 0 if it does not say (lib/tout.c: units of milliseconds,
        seconds, minutes and hours)."""
        word = self.read(_COMMAND_LIMIT)
        return (word & 0xFFFFF) * (0.001, 1.0, 60.0, 3600.0)[word >> 29 & 3]

    def internal_error(self) -> str:
        """What the firmware's health buffer says of an internal error; "" if there is none."""
        word = self.read(_HEALTH_SYNDROME)
        syndrome, more = word >> 16 & 0xFF, word & 0xFFFF
        if not syndrome or syndrome == 0xFF:  # all ones: the function left the bus
            return ""
        return f"{_SYNDROMES.get(syndrome, 'one without a name here')} (health syndrome {syndrome:#x}, {more:#x})"

    @property
    def health(self) -> int:
        """A counter that a working firmware counts up."""
        return self.read(_HEALTH_COUNTER)


class Mailboxes:
    """Blocks of memory for what does not fit in an entry."""

    def __init__(self, function: _core.Function) -> None:
        self._function = function
        self._chunks: list[_core.Memory] = []
        self._used = 0  # of the chunks, those whose mailboxes were made
        self.free: list[Mailbox] = []

    def grow(self, n: int) -> None:
        """See that `n` are free."""
        while len(self.free) < n:
            if self._used == len(self._chunks):
                size = _STRIDE * max(_GROW, n - len(self.free))
                self._chunks.extend(map(self._function.alloc_dma, (size,)))  # in one call: Ctrl-C loses none
            memory = self._chunks[self._used]
            boxes = [
                Mailbox(memory, page * PAGE + at, address + at)
                for page, address in enumerate(memory.pages())
                for at in range(0, PAGE, _STRIDE)
            ]
            self.free += boxes
            self._used += 1

    def close(self) -> None:
        """The function was reset: free them all."""
        self.free.clear()
        while self._chunks:
            self._function.free_dma(self._chunks[-1])
            self._chunks.pop()


@dataclass(frozen=True, slots=True)
class Mailbox:
    memory: _core.Memory
    at: int
    address: int


@dataclass(slots=True)
class _Posted:
    """A command in an entry of the queue."""

    slot: int
    token: int
    boxes: list[Mailbox]
    answer: list[Mailbox]
    bytes: int  # of the answer
    sent: bool = False  # the doorbell may have been rung for it


class CommandQueue(Channel):
    """`pages` is asked, while a command waits, to give the firmware what it asked for."""

    def __init__(self, firmware: Firmware, registers: Registers, limit: float = 60.0) -> None:
        # lib/tout.c MLX5_TO_CMD_MS, where the firmware does not say itself.
        super().__init__(firmware, dict(COMMANDS), registers.command_limit or limit)
        function = firmware.function
        self.registers = registers
        self.attend: Callable[[], object] = lambda: None
        self.pages_of = 0  #: the function that pages are given to, as QUERY_PAGES says it
        self.signed = False  #: whether the firmware signs its answers (cmdif_checksum)
        self.mailboxes = Mailboxes(function)
        sizes = registers.read(_QUEUE_LOW) & 0xFF
        self._stride = 1 << (sizes & 0xF)
        self._slots = 1 << (sizes >> 4)
        if self._stride < _ENTRY_BYTES or self._stride * self._slots > PAGE or self._slots < 2:
            raise FirmwareAnswerError(
                f"{function.name}: its command queue has {self._slots} entries of {self._stride} bytes, which cannot be"
            )
        self.memory = function.alloc_dma(PAGE)
        self._number = 0
        self._posted: dict[int, _Posted] = {}
        self._delivery = Delivery.OK
        self._health = 0
        self._pages_slot = self._slots - 1

    def start(self) -> None:
        """Tell the NIC where the queue is. The low bits of its address are the queue's sizes, which are the NIC's."""
        address = self.memory.pages()[0]
        self.registers.write(_QUEUE_HIGH, address >> 32)
        self.registers.write(_QUEUE_LOW, address & 0xFFFF_F000)

    def close(self) -> None:
        """The function was reset: free the memory."""
        self.attend = lambda: None  # it leads back here: what is closed goes with its last reference
        self.mailboxes.close()
        self.firmware.function.free_dma(self.memory)

    # ---- Channel -------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self.attend()  # what came since the last command: an answer that is there at once leaves no other moment
        self._number += 1
        return self._number

    def _pack(self, number: int, command: Command, fields: dict[str, Any]) -> bytes:
        more = fields.pop("answer_bytes", 0)  # of a list at the end of the answer
        request = command.request.pack(**fields)
        self._prepare(command.name, number, request, command.response.size + more)
        return request

    def _prepare(self, name: str, number: int, request: bytes, answer: int, slot: int | None = None) -> _Posted:
        """An entry and mailboxes for a command."""
        if slot is None:
            for unsent in [n for n, posted in self._posted.items() if not posted.sent]:  # an exception came before
                self._taken(unsent)
                self._abandoned.pop(unsent, None)
            taken = {posted.slot for posted in self._posted.values()}
            free = [slot for slot in range(self._pages_slot) if slot not in taken]
            if not free:
                raise self._full(name)
            slot = free[0]
        token = number % 255 + 1
        blocks = [-(-max(size - _INLINE, 0) // _DATA) for size in (len(request), answer)]
        n = sum(blocks)
        self.mailboxes.grow(n)
        pool = self.mailboxes.free
        posted = _Posted(slot, token, pool[:n], pool[blocks[0] : n], answer)
        # Without a call in between, as in `_taken`: no exception of a signal's handler comes there.
        self._posted[number] = posted
        del pool[:n]
        return posted

    def _post(self, number: int, request: bytes) -> None:
        self._health = self.registers.health
        self._send(self._posted[number], request)

    def _condition(self) -> str:
        if self.registers.health == self._health:
            return ", and its health counter stood still: it hangs"
        return ", though its health counter goes on"

    def _send(self, posted: _Posted, request: bytes) -> None:
        inputs = posted.boxes[: len(posted.boxes) - len(posted.answer)]
        for chain, data in ((inputs, request[_INLINE:]), (posted.answer, b"")):
            for i, box in enumerate(chain):
                following = chain[i + 1].address if i + 1 < len(chain) else 0
                block = bytearray(
                    CMD_IF_BOX.pack(
                        mailbox_data=data[i * _DATA : (i + 1) * _DATA].ljust(_DATA, b"\0"),
                        next_pointer_63_32=following >> 32,
                        next_pointer_31_10=(following & 0xFFFF_FFFF) >> 10,
                        block_number=i,
                        token=posted.token,
                    )
                )
                # cmd.c calc_block_sig: of what follows the data, then of all.
                block[-2] = 0xFF ^ _xor(block[_DATA:-2])
                block[-1] = 0xFF ^ _xor(block)
                write(box.memory, box.at, bytes(block), self.firmware.generation)
        first, last = (chain[0].address if chain else 0 for chain in (inputs, posted.answer))
        entry = bytearray(
            CMD_QUEUE_ENTRY.pack(
                type=_TRANSPORT,
                input_length=len(request),
                input_mailbox_pointer_63_32=first >> 32,
                input_mailbox_pointer_31_9=(first & 0xFFFF_FFFF) >> 9,
                command_input_inline_data=request[:_INLINE].ljust(_INLINE, b"\0"),
                output_mailbox_pointer_63_32=last >> 32,
                output_mailbox_pointer_31_9=(last & 0xFFFF_FFFF) >> 9,
                output_length=posted.bytes,
                token=posted.token,
                ownership=1,
            )
        )
        entry[61] = 0xFF ^ _xor(entry)  # its signature
        at = posted.slot * self._stride
        write(self.memory, at, bytes(entry), self.firmware.generation)
        doorbell = swap(1 << posted.slot)
        posted.sent = True
        self.registers.bar.write32(_DOORBELL, doorbell)

    def _look(self, number: int, command: Command) -> bytes | None:
        posted = self._posted[number]
        answer = self._answer(posted)
        if answer is None:
            self._check_health(command.name)
            self.attend()
            return None
        if isinstance(answer, str):
            self._stray = answer
            return None
        self._taken(number)
        return answer

    def _check_health(self, name: str) -> None:
        """Raise if the firmware reports that it failed itself: it answers nothing any more."""
        if wrong := self.registers.internal_error():
            self.firmware.stopped = f"it reports an internal error: {wrong}"
            raise FirmwareInternalError(
                f"{name}: the firmware of {self.firmware.function.name} reports an internal error: "
                f"{wrong}; close the NIC and open it again to reset it",
                name,
            )

    def _answer(self, posted: _Posted) -> bytes | str | None:
        """The command's answer; what is wrong with it; or None while the entry is the NIC's."""
        at = posted.slot * self._stride
        if read(self.memory, at + _ENTRY_BYTES - 1, 1)[0] & 1:
            return None
        raw = read(self.memory, at, _ENTRY_BYTES)
        entry = CMD_QUEUE_ENTRY.unpack(raw)
        if entry.token != posted.token:
            return f"an answer with the token {entry.token:#x}, not {posted.token:#x}"
        if self.signed and _xor(raw) != 0xFF:
            return f"an answer whose signature {entry.signature:#x} is wrong"
        self._delivery = entry.status
        if entry.status:
            return bytes(_INLINE)
        data = bytes(entry.command_output_inline_data)
        for i, box in enumerate(posted.answer):
            block = read(box.memory, box.at, _BLOCK)
            told = CMD_IF_BOX.unpack(block)
            if told.token != posted.token:
                return f"an answer whose block {i} has the token {told.token:#x}, not {posted.token:#x}"
            if self.signed and (_xor(block[_DATA:-1]) != 0xFF or _xor(block) != 0xFF):
                return f"an answer whose block {i} has a wrong signature"
            data += told.mailbox_data
        return data[: posted.bytes]

    def _collect(self) -> None:
        for number in list(self._abandoned):
            posted = self._posted.get(number)
            if posted is None:  # an exception came between its answer and its end
                self._late(number)
            elif posted.sent and isinstance(self._answer(posted), bytes):
                self._taken(number)
                self._late(number)

    def _taken(self, number: int) -> None:
        posted = self._posted[number]
        del self._posted[number]
        self.mailboxes.free += posted.boxes

    def _status(self, answer: Fields) -> tuple[int, str]:
        if self._delivery:
            delivery, self._delivery = self._delivery, Delivery.OK
            return delivery, f"it was not delivered: {_name(Delivery, delivery)}"
        return answer.status, f"{_name(Status, answer.status)}, syndrome {answer.syndrome:#x}"

    # ---- pages -------------------------------------------------------------------------------------------------------

    def pages(self, operation: Pages, pages: list[int], wanted: int = 0) -> tuple[int, ...]:
        """MANAGE_PAGES, in an entry of its own: also while another command waits. The pages that were given back."""
        command = COMMANDS["manage_pages"]
        request = command.request.pack(
            op_mod=operation, function_id=self.pages_of, input_num_entries=wanted or len(pages), pas=pages
        )
        for earlier in [n for n, posted in self._posted.items() if posted.slot == self._pages_slot]:
            at = self._pages_slot * self._stride + _ENTRY_BYTES - 1
            if self._posted[earlier].sent and read(self.memory, at, 1)[0] & 1:
                raise FirmwareTimeoutError("manage_pages was not sent: the one before it has no answer", command.name)
            self._taken(earlier)
        self._number += 1
        posted = self._prepare(
            command.name,
            self._number,
            request,
            command.response.size + 8 * (wanted if operation == Pages.TAKE else 0),
            self._pages_slot,
        )
        if trace.listeners:
            self._tell(command.name, self._number, "sent", repr(command.request.unpack(request)), request)
        self._send(posted, request)
        end = time.monotonic() + self.limit
        pause = 0.0
        while not isinstance(data := self._answer(posted), bytes):
            if data is None:
                self._check_health(command.name)
            if self.firmware.function.failed:
                raise MachineError(f"{command.name}: {self.firmware.function.name} {self.firmware.function.failure}")
            if time.monotonic() > end:
                waited = f"{command.name} got no answer within {self.limit:g} s"
                if data is not None:
                    raise FirmwareAnswerError(f"{waited}, but the firmware sent {data}", command.name)
                raise FirmwareTimeoutError(waited, command.name)
            time.sleep(pause)
            pause = min(pause + 20e-6, 1e-3)
        self._taken(self._number)
        answer = command.response.unpack(data, short=True)
        status, meaning = self._status(answer)
        if trace.listeners:
            self._tell(command.name, self._number, "refused" if status else "answered", meaning, data)
        if status:
            raise FirmwareRefusedError(
                f"{command.name} was refused by the firmware of {self.firmware.function.name}: {meaning}",
                command.name,
                status,
            )
        return tuple(answer.pas[: answer.output_num_entries]) if operation == Pages.TAKE else ()


class GivenPages:
    """Memory that the firmware asked for, a page or more at a time, and keeps."""

    def __init__(self, queue: CommandQueue) -> None:
        self._queue = queue
        self._function = queue.firmware.function
        self._chunks: dict[int, tuple[_core.Memory, set[int]]] = {}  # by the chunk's first page: which are given
        self._chunk_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._chunk_of)

    def give(self, n: int) -> None:
        try:
            memory = self._function.alloc_dma(n * PAGE)
        except DmaMemoryError:
            self._queue.pages(Pages.CANT_GIVE, [])
            raise
        pages = memory.pages()[:n]
        self._chunks[pages[0]] = (memory, set(pages))
        self._chunk_of.update(dict.fromkeys(pages, pages[0]))
        self._queue.pages(Pages.GIVE, pages)

    def take(self, n: int) -> int:
        """Take pages back, at most `n`; how many it gave."""
        back = self._queue.pages(Pages.TAKE, [], n)
        for page in back:
            first = self._chunk_of.pop(page, None)
            if first is None:
                continue  # none of ours: nothing to free
            memory, given = self._chunks[first]
            given.discard(page)
            if not given:
                del self._chunks[first]
                self._function.free_dma(memory)
        return len(back)

    def after_reset(self) -> None:
        self._chunk_of.clear()
        while self._chunks:
            self._function.free_dma(self._chunks.popitem()[1][0])


def _xor(data: bytes | bytearray) -> int:
    return reduce(xor, data, 0)


def _name(kind: type[Delivery] | type[Status], value: int) -> str:
    try:
        return f"{kind(value).name} ({value:#x})"
    except ValueError:
        return f"{kind.__name__.lower()} {value:#x}"


def check_interface(registers: Registers, name: str) -> None:
    if registers.interface != _INTERFACE:
        raise FirmwareAnswerError(
            f"{name}: its firmware {registers.version} has command interface {registers.interface}; this driver speaks "
            f"{_INTERFACE}: it is no ConnectX that this driver fits, or is in recovery"
        )
