"""The NIC families that there are drivers for, and which one fits a PCI function."""

from __future__ import annotations

from types import ModuleType

from userdma import bnxt, mlx5

#: By name. Each has `PRODUCTS`, {(vendor, device): what it is}, and `open_device(function)`.
FAMILIES: dict[str, ModuleType] = {"bnxt": bnxt, "mlx5": mlx5}


def find(vendor: int, device: int) -> tuple[str, str] | None:
    """(family, product) of a PCI function with these ids, if a driver here fits it."""
    for family, module in FAMILIES.items():
        product = module.PRODUCTS.get((vendor, device))
        if product is not None:
            return family, product
    return None
