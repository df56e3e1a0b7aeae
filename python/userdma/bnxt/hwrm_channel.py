"""The HWRM channel: a request window in BAR 0, a trigger, and answers by DMA.

Offsets: bnxt.h BNXT_GRCPF_REG_CHIMP_COMM and BNXT_GRCPF_REG_CHIMP_COMM_TRIGGER.
"""

from __future__ import annotations

from typing import Any

from userdma import _core
from userdma.bnxt import hwrm
from userdma.errors import FirmwareBusyError
from userdma.firmware.channel import Channel, Firmware
from userdma.firmware.memory import read, write
from userdma.messages import Command, Fields

_WINDOW = 0x0
_TRIGGER = 0x100
# Each answer has a page of its own, so that a late one cannot be written over another.
_SLOTS = 8
_SLOT = 4096


class HwrmChannel(Channel):
    def __init__(self, firmware: Firmware, bar: _core.Bar, limit: float = 10.0) -> None:
        super().__init__(firmware, hwrm.REQUESTS, limit)
        self.limits["hwrm_func_reset"] = 4 * limit  # bnxt_hwrm.h HWRM_RESET_TIMEOUT
        self._bar = bar
        self.memory = firmware.function.alloc_dma(_SLOTS * _SLOT)
        self._addresses = self.memory.pages()
        self._number = 0

    def _next(self) -> int:
        taken = {number % _SLOTS for number in self._abandoned}
        for _ in range(_SLOTS):
            self._number = self._number % 0xFFFF + 1
            if self._number % _SLOTS not in taken:
                return self._number
        raise FirmwareBusyError(
            f"nothing was sent: {_SLOTS} commands ({', '.join(self._abandoned.values())}) have not been answered yet; "
            f"close the NIC and open it again to reset it"
        )

    def _pack(self, number: int, command: Command, fields: dict[str, Any]) -> bytes:
        request = command.request.pack(seq_id=number, resp_addr=self._addresses[number % _SLOTS], **fields)
        if len(request) > hwrm.MAX_REQUEST:
            raise ValueError(f"{command.name}: {len(request)} bytes do not fit in the window of {hwrm.MAX_REQUEST}")
        return request

    def _post(self, number: int, request: bytes) -> None:
        write(self.memory, number % _SLOTS * _SLOT, bytes(_SLOT), self.firmware.generation)
        self._bar.write_words(_WINDOW, request.ljust(hwrm.MAX_REQUEST, b"\0"))
        self._bar.write32(_TRIGGER, 1)

    def _look(self, number: int, command: Command) -> bytes | None:
        answer = self._answer(number)
        if answer is None:
            return None
        header = hwrm.RESPONSE_HEADER.unpack(answer)
        if header.seq_id != number:
            self._stray = f"an answer with the sequence number {header.seq_id}, not {number}"
        elif header.req_type != command.code:
            self._stray = f"an answer to the command {header.req_type:#x}, not {command.code:#x}"
        elif not hwrm.RESPONSE_HEADER.size < header.resp_len <= _SLOT:
            self._stray = f"an answer of {header.resp_len} bytes"
        elif answer[-1]:
            # The last byte is written last: what is read once it was seen is the whole. A newer firmware has it
            # elsewhere, so it is no part of the message.
            whole = read(self.memory, number % _SLOTS * _SLOT, len(answer))
            return whole[:-1] + b"\0"
        return None

    def _answer(self, number: int) -> bytes | None:
        """What lies in the answer's page, up to the length it says it has; None before it says so."""
        at = number % _SLOTS * _SLOT
        size = int.from_bytes(read(self.memory, at + 6, 2), "little")
        return read(self.memory, at, min(max(size, 8), _SLOT)) if size else None

    def _collect(self) -> None:
        for number in list(self._abandoned):
            answer = self._answer(number)
            if answer is not None and len(answer) > 8 and answer[-1] and answer[4:6] == number.to_bytes(2, "little"):
                self._late(number)

    def _status(self, answer: Fields) -> tuple[int, str]:
        code = answer.error_code
        try:
            return code, f"{hwrm.ErrorCode(code).name} ({code:#x})"
        except ValueError:
            return code, f"error code {code:#x}"
