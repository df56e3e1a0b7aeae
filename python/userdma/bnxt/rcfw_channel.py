"""The RoCE command channel: commands in a ring of 16-byte slots (CMDQ), answers in an event ring (CREQ).

Offsets: qplib_rcfw.h RCFW_COMM_BASE_OFFSET, RCFW_PF_VF_COMM_PROD_OFFSET, RCFW_COMM_TRIG_OFFSET. The producer word of
the first command carries FIRMWARE_FIRST_FLAG, which makes the firmware reset its own pointers.
"""

from __future__ import annotations

from typing import Any

from userdma import _core
from userdma.bnxt import rcfw
from userdma.firmware.channel import Channel, Firmware
from userdma.firmware.memory import write
from userdma.messages import Command, Fields

_BASE = 0x600
_PRODUCER = _BASE + 0xC
_TRIGGER = _BASE + 0x100
_FIRST = 1 << 31
ENTRIES = 256  # slots: one page
_COOKIES = 0x1FFF  # RCFW_MAX_COOKIE_VALUE; 0 is not used, so that an empty answer matches none


class RcfwChannel(Channel):
    def __init__(
        self, firmware: Firmware, bar: _core.Bar, memory: _core.Memory, ring: _core.BnxtEvents, limit: float = 20.0
    ) -> None:
        super().__init__(firmware, rcfw.REQUESTS, limit)
        self._bar = bar
        self._ring = ring
        self._memory = memory
        self._first = True
        self._producer = 0  # slots, counted without end
        self._number = 0
        self._slots: dict[int, int] = {}  # of commands that may not have been taken, oldest first

    def start(self, address: int, creq: int) -> None:
        """Tell the firmware where the rings are: the CMDQ's page, and the CREQ's number."""
        init = rcfw.INIT.pack(cmdq_pbl=address, cmdq_size=ENTRIES, creq_ring_id=creq)
        self._bar.write_words(_BASE, init)

    def _next(self) -> int:
        number = self._number
        while True:
            number = number % _COOKIES + 1
            if number not in self._abandoned:
                self._number = number
                return number

    def _pack(self, number: int, command: Command, fields: dict[str, Any]) -> bytes:
        slots = rcfw.slots(command.request.size)
        # One slot stays free, or a full ring would look empty.
        if sum(self._slots.values()) + slots >= ENTRIES:
            raise self._full(command.name)
        return command.request.pack(cookie=number, **fields)

    def _post(self, number: int, request: bytes) -> None:
        slots = rcfw.slots(len(request))
        data = request.ljust(slots * rcfw.SLOT, b"\0")
        for i in range(slots):
            at = (self._producer + i) % ENTRIES * rcfw.SLOT
            write(self._memory, at, data[i * rcfw.SLOT : (i + 1) * rcfw.SLOT], self.firmware.generation)
        self._slots.pop(number, None)
        self._slots[number] = slots
        self._producer += slots
        word = self._producer & 0xFFFF
        if self._first:
            word, self._first = word | _FIRST, False
        self._bar.write32(_PRODUCER, word)
        self._bar.write32(_TRIGGER, 1)

    def _look(self, number: int, command: Command) -> bytes | None:
        while (entry := self._ring.poll()) is not None:
            answer = rcfw.ANSWER.unpack(entry)
            cookie = answer.cookie & _COOKIES
            if cookie == number and answer.event == command.code:
                self._taken(number)
                return entry
            if cookie == number:
                self._stray = f"an answer with the event {answer.event:#x}, not {command.code:#x}"
            elif self._late(cookie):
                self._taken(cookie)
            else:
                self._stray = f"an answer with the cookie {cookie}, not {number}"
        return None

    def _collect(self) -> None:
        while (entry := self._ring.poll()) is not None:
            cookie = rcfw.ANSWER.unpack(entry).cookie & _COOKIES
            if self._late(cookie):
                self._taken(cookie)

    def _taken(self, number: int) -> None:
        """Free the command's slots, and all before them: the firmware takes commands in the order of the ring.

        An exception may have lost an answer between the ring and here: its slots are free from the next one on.
        """
        if number not in self._slots:
            return
        for earlier in list(self._slots):
            self._slots.pop(earlier)
            if earlier == number:
                return

    def _status(self, answer: Fields) -> tuple[int, str]:
        code = answer.status
        try:
            return code, f"{rcfw.Status(code).name} ({code:#x})"
        except ValueError:
            return code, f"status {code:#x}"
