"""A Thor2 in software, as a PCI function: the data path of ``_core.SoftBnxt`` with its firmware."""

from __future__ import annotations

from userdma import _core
from userdma.soft.bnxt.firmware import Firmware
from userdma.soft.bnxt.resources import Limits
from userdma.soft.function import WithFirmware


class Function(WithFirmware[Limits], _core.SoftBnxt):
    """One NIC: configuration space 14e4:1760, BARs 0, 2 and 4, a port on a wire, memory of its own machine.

    ``firmware`` is its firmware: faults, log and counts (userdma.soft.bnxt.firmware).
    """

    family = "bnxt"
    firmware: Firmware

    def _load(self, mac: bytes, limits: Limits, seed: int) -> None:
        self.firmware = Firmware(self, mac, limits, seed)
        self.set_firmware(self.firmware.hwrm, self.firmware.rcfw, self.firmware.reset)
