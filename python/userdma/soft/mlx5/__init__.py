"""The ConnectX-6 Dx (mlx5) in software: firmware in Python, over the data path in C++."""

from userdma.soft.faults import Entry
from userdma.soft.mlx5.firmware import Firmware
from userdma.soft.mlx5.function import Function
from userdma.soft.mlx5.limits import Limits

__all__ = ["Entry", "Firmware", "Function", "Limits"]
