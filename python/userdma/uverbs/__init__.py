"""NICs that stay the kernel's, driven from this process through the kernel's uverbs files: which there are, and taking
one. Nobody needs to be root for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from userdma import _core, families
from userdma.errors import Error
from userdma.nic import Device

__all__ = ["Found", "devices", "open_device", "take"]


@dataclass(frozen=True)
class Found:
    """An RDMA device of the kernel."""

    name: str  #: such as "mlx5_0"
    bus: str  #: its PCI function's name; "" if it has none
    driver: str  #: that of its PCI function; "" if it has none
    family: str  #: the driver here that fits it; "" if none does
    change: str  #: what to change so that it can be opened; "" if it can


def devices(sysfs: str = "/sys", dev: str = "/dev") -> list[Found]:
    """The RDMA devices of this machine's kernel, by name."""
    found = []
    for folder in sorted(Path(sysfs, "class/infiniband").glob("*")):
        device = folder / "device"
        bus = device.resolve().name if (device / "vendor").exists() else ""
        driver = (device / "driver").resolve().name if (device / "driver").exists() else ""
        family = _family(driver)
        change = (
            _core.Uverbs.obstacle(folder.name, sysfs=sysfs, dev=dev) if family else _unfit(folder.name, driver, device)
        )
        found.append(Found(folder.name, bus, driver, family, change))
    return found


def take(name: str, sysfs: str = "/sys", dev: str = "/dev") -> _core.Uverbs:
    """Open the device's file. `Error` says what to change where it cannot be opened."""
    for found in devices(sysfs, dev):
        if found.name == name and not found.family:
            raise Error(found.change)
    return _core.Uverbs(name, sysfs=sysfs, dev=dev)


def open_device(function: _core.Uverbs, sysfs: str = "/sys") -> Device:
    """Bring the NIC up. The function stays the caller's if that fails."""
    for found in devices(sysfs):
        if found.name == function.name and found.family:
            device: Device = families.FAMILIES[found.family].open_kernel_device(function)
            return device
    raise Error(f"{function.name}: no driver here fits it")


def _family(driver: str) -> str:
    """The family of a device by its driver's name, which has more of it for a part of a function ("mlx5_core.sf")."""
    for name, family in families.FAMILIES.items():
        if driver and driver.split(".")[0] == getattr(family, "KERNEL_DRIVER", None):
            return name
    return ""


def _unfit(name: str, driver: str, device: Path) -> str:
    known = ", ".join(module.KERNEL_DRIVER for module in families.FAMILIES.values() if hasattr(module, "KERNEL_DRIVER"))
    whose = f"the driver {driver}'s" if driver else "no PCI function's"
    text = f"{name} is {whose}, and of the kernel's devices userdma drives those of {known}"
    if families.find(*_identity(device)):
        text += (
            f"; open {device.resolve().name} instead, which is the same NIC, once the kernel's driver has given it up"
        )
    return text


def _identity(device: Path) -> tuple[int, int]:
    """(vendor, device) of its PCI function; what none has where it is of no such function."""
    try:
        return int((device / "vendor").read_text(), 16), int((device / "device").read_text(), 16)
    except (OSError, ValueError):
        return -1, -1
