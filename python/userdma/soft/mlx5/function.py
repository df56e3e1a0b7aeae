"""A ConnectX-6 Dx in software, as a PCI function: the data path of ``_core.SoftMlx5`` with its firmware."""

from __future__ import annotations

from userdma import _core
from userdma.soft.function import WithFirmware
from userdma.soft.mlx5.firmware import Firmware
from userdma.soft.mlx5.limits import Limits


class Function(WithFirmware[Limits], _core.SoftMlx5):
    """One NIC: configuration space 15b3:101d, BAR 0, a port on a wire, memory of its own machine.

    ``firmware`` is its firmware: faults, log and counts (userdma.soft.mlx5.firmware).
    """

    family = "mlx5"
    firmware: Firmware

    def _load(self, mac: bytes, limits: Limits, seed: int) -> None:
        self.firmware = Firmware(self, mac, limits, seed)
        self.set_firmware(self.firmware.command, self.firmware.reset, self.firmware.interface)
