"""A Thor2 in software, as a PCI function: the data path of ``_core.SoftBnxt`` with its firmware."""

from __future__ import annotations

import itertools

from userdma import _core
from userdma.soft.bnxt.firmware import Firmware
from userdma.soft.bnxt.resources import Limits

_numbers = itertools.count()


class Function(_core.SoftBnxt):
    """One NIC: configuration space 14e4:1760, BARs 0, 2 and 4, a port on a wire, memory of its own machine.

    ``firmware`` is its firmware: faults, log and counts (userdma.soft.bnxt.firmware).
    """

    firmware: Firmware

    def __init__(
        self,
        wire: _core.Wire,
        mac: bytes,
        *,
        iommu: bool,
        clock: _core.Clock,
        seed: int,
        memory: int,
        pin_limit: int,
        limits: Limits,
        thread: bool,
    ) -> None:
        super().__init__(
            f"soft:bnxt#{next(_numbers)}",
            wire,
            mac,
            iommu=iommu,
            clock=clock,
            seed=seed,
            memory=memory,
            pin_limit=pin_limit,
            thread=thread,
        )
        self.firmware = Firmware(self, mac, limits, seed)
        self.set_firmware(self.firmware.hwrm, self.firmware.rcfw, self.firmware.reset)
