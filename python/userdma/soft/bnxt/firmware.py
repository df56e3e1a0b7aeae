"""The firmware of a soft Thor2: one processor that reads requests from two channels and answers them.

HWRM (hwrm.py): a request is stored in a window of BAR 0, the trigger says that it is there, and the answer goes by DMA
to the address that the request names. RCFW (rcfw.py): requests lie in a ring of the driver's (CMDQ), a trigger tells
how far it was filled, answers go to an event ring (CREQ).

The firmware runs in the thread that stored to a trigger. What it gives out lives in State; everything that moves data
(queues, keys) is made in the NIC's data path, ``_core.SoftBnxt``, at the same time. Faults (faults.py) act between a
command's decoding and its answer.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import TYPE_CHECKING

from userdma import _core
from userdma.bnxt import hwrm, rcfw
from userdma.soft import firmware
from userdma.soft.bnxt.hwrm import Hwrm
from userdma.soft.bnxt.rcfw import Rcfw
from userdma.soft.bnxt.state import State
from userdma.soft.faults import Fault, Kind

if TYPE_CHECKING:
    from userdma.soft.bnxt.resources import Limits


class Firmware(firmware.Firmware[_core.SoftBnxt]):
    """The firmware of one function: its state, the faults that a test asks of it, and its log.

    A fault's ``command`` is ``"hwrm_ver_get"``, ``"create_qp"``, or a pattern (userdma.soft.faults); ``k`` picks the
    k-th command from now on that matches. A refusal without ``error`` is FAIL, of either channel.
    """

    def __init__(self, function: _core.SoftBnxt, mac: bytes, limits: Limits, seed: int) -> None:
        super().__init__(function, seed)
        self.mac = mac
        self.limits = limits
        self.state = State(limits)
        self._hwrm = Hwrm(self)
        self._rcfw = Rcfw(self)
        self.start()

    def hwrm(self, window: bytes) -> None:
        """The HWRM trigger was stored to; ``window`` is what the request window holds."""
        self.take(lambda: self._hwrm.request(window))

    def rcfw(self, producer: int) -> None:
        """The RCFW trigger was stored to; ``producer`` is the producer word."""
        self.take(lambda: self._rcfw.trigger(producer))

    def start(self) -> None:
        """What its status register shows (BNXT_GRC_REG_STATUS_P5: BNXT_FW_STATUS_HEALTHY)."""
        self.core.bar_store(0, 0x520, (0x8000).to_bytes(4, "little"))

    def wrong_sequence(self, command: str, k: int = 1) -> None:
        """Answers a command under the next sequence number (HWRM) or cookie (RCFW) instead of its own."""
        self._plan(Fault(Kind.WRONG_SEQUENCE, command, k))

    def wrong_cookie(self, command: str, k: int = 1) -> None:
        """``wrong_sequence``, as the RoCE command channel calls it."""
        self.wrong_sequence(command, k)

    def garbage(self, command: str, k: int = 1, data: bytes | None = None) -> None:
        """Runs a command and answers with ``data``, or with random bytes.

        HWRM: the bytes at the answer's address, as they are. RCFW: 16 bytes of the event ring, but for the valid bit,
        which the ring's state decides.
        """
        of_a_ring = any(fnmatch.fnmatchcase(name, command) for name in rcfw.REQUESTS)
        if isinstance(data, bytes | bytearray | memoryview) and len(bytes(data)) != rcfw.SLOT and of_a_ring:
            raise ValueError(
                f"data must be the {rcfw.SLOT} bytes of an entry of the event ring, not {len(bytes(data))}"
            )
        super().garbage(command, k, data)

    def _commands(self) -> Iterable[str]:
        return (*hwrm.REQUESTS, *rcfw.REQUESTS)

    def _link_down(self) -> None:
        self.state.link_up = False
        self.core.ethernet_link(False)

    def _forget(self) -> None:
        self._rcfw.forget()
        self._hwrm.forget()
        self.state = State(self.limits)

    def _counts(self) -> dict[str, int]:
        return self.state.counts()
