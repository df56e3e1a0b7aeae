"""The driver of Broadcom's Thor2 (BCM57608): bring-up and firmware commands, in Python and off the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userdma import _core
    from userdma.nic import Device

__all__ = ["PRODUCTS", "open_device"]

#: (vendor, device) of the PCI functions that this driver fits, and what they are (pci_ids; bnxt.c bnxt_pci_tbl).
PRODUCTS: dict[tuple[int, int], str] = {(0x14E4, 0x1760): "Broadcom Thor2 (BCM57608)"}


def open_device(function: _core.Function) -> Device:
    """Bring the NIC up. The function stays the caller's if that fails."""
    from userdma.bnxt.device import BnxtDevice  # the soft firmware imports this package for its tables alone

    return BnxtDevice(function)
