"""NVIDIA's ConnectX: `completion`, what it writes; `wqe` and `doorbell`, what a program writes; and its driver, in
Python and off the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userdma import _core
    from userdma.nic import Device

__all__ = ["KERNEL_DRIVER", "PRODUCTS", "open_device", "open_kernel_device"]

#: Whose the NICs are that the kernel keeps and lets a process drive.
KERNEL_DRIVER = "mlx5_core"

#: (vendor, device) of the PCI functions that this driver fits, and what they are (mlx5_core's main.c, pci_ids).
PRODUCTS: dict[tuple[int, int], str] = {
    (0x15B3, 0x101B): "NVIDIA ConnectX-6",
    (0x15B3, 0x101D): "NVIDIA ConnectX-6 Dx",
    (0x15B3, 0x101E): "NVIDIA ConnectX family, virtual function",
    (0x15B3, 0x101F): "NVIDIA ConnectX-6 Lx",
    (0x15B3, 0x1021): "NVIDIA ConnectX-7",
    (0x15B3, 0x1023): "NVIDIA ConnectX-8",
}


def open_device(function: _core.Function) -> Device:
    """Bring the NIC up. The function stays the caller's if that fails."""
    from userdma.mlx5.device import Mlx5Device  # the soft firmware imports this package for its tables alone

    return Mlx5Device(function)


def open_kernel_device(function: _core.Uverbs) -> Device:
    """The same of a NIC that stays the kernel's."""
    from userdma.mlx5.kernel import Mlx5KernelDevice

    return Mlx5KernelDevice(function)
