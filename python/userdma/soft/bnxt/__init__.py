"""The Thor2 (bnxt) in software: firmware in Python, over the data path in C++."""

from userdma.soft.bnxt.firmware import Firmware
from userdma.soft.bnxt.function import Function
from userdma.soft.bnxt.resources import Limits
from userdma.soft.faults import Entry

__all__ = ["Entry", "Firmware", "Function", "Limits"]
