"""PCI functions: taking one, and which ones a driver here fits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from userdma import _core, families

__all__ = ["Found", "functions", "is_name", "take"]

_NAME = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


@dataclass(frozen=True)
class Found:
    """A PCI function that a driver here fits."""

    bus: str  #: such as "0000:17:00.0"
    vendor: int
    device: int
    family: str
    product: str
    kind: str  #: "vfio" or "physical": how `take` would take it; "" if it cannot
    change: str  #: what to change so that it can


def is_name(name: str) -> bool:
    """Whether it is written as a PCI function's name."""
    return _NAME.fullmatch(name) is not None


def take(bus: str) -> _core.Function:
    """Take the function at `bus`, such as "0000:17:00.0" or "17:00.0": by VFIO if vfio-pci has it, else as root.

    `Error` says what to change where it cannot be taken.
    """
    found = _NAME.fullmatch(bus)
    if found is None:
        raise ValueError(f"{bus!r} is no PCI function's name, such as 0000:17:00.0")
    domain, number, slot, function = found.groups()
    return _core.pci_open(f"{int(domain or '0', 16):04x}:{number.lower()}:{slot.lower()}.{function}")


def functions(sysfs: str = "/sys", dev: str = "/dev") -> list[Found]:
    """The functions of this machine that a driver here fits, by name."""
    found = []
    for folder in sorted(Path(sysfs, "bus/pci/devices").glob("*")):
        vendor, device = _number(folder / "vendor"), _number(folder / "device")
        fits = families.find(vendor, device)
        if fits is not None:
            kind, change = _core.pci_openable(folder.name, sysfs=sysfs, dev=dev)
            found.append(Found(folder.name, vendor, device, *fits, kind, change))
    return found


def _number(path: Path) -> int:
    try:
        return int(path.read_text(), 16)
    except (OSError, ValueError):
        return -1
