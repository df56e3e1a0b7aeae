"""Opening a NIC by its name, or by the PCI function that is already taken."""

from __future__ import annotations

import importlib
import os
import re
import threading
from typing import TYPE_CHECKING, Any

from userdma import _core, families, pci, uverbs
from userdma.errors import Error, MachineError
from userdma.nic import Nic

if TYPE_CHECKING:
    from userdma.soft import Wire

_SOFT = ("soft:bnxt", "soft:mlx5")
_KERNEL = re.compile(r"(mlx[45]|bnxt_re|irdma|hns|efa|erdma|mana|qedr|cxgb4|hfi1|siw|rxe|rocep|roceo|ibp)[\w.\-]+")


# What a NIC needs is imported with the first that is opened. A fork waits for that, or the child would find modules
# that a thread which it has not was importing, and wait for them.
_importing = threading.RLock()
os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)


def _module(name: str) -> Any:
    with _importing:
        return importlib.import_module(name)


def open(name: str | _core.Function, wire: str | Wire | None = None, iommu: bool = True) -> Nic:
    """Open a NIC and bring it up. Closed by its `close`, or at the end of a `with`.

    `name`: "soft:bnxt" or "soft:mlx5", a new NIC in software (a Thor2, a ConnectX); "0000:17:00.0", a PCI function,
    which VFIO or this process takes; "mlx5_0", an RDMA device of the kernel, which stays its driver's; or a `Function`,
    which becomes the NIC's (its close releases it).

    `wire` and `iommu` are for NICs in software: the wire it is on (a `userdma.soft.Wire` or the name of one, such as
    "shm:NAME"; by default the process's own), and whether it is behind an IOMMU.
    """
    if isinstance(name, _core.Function):
        _no_soft_options(name.name, wire, iommu)
        return _bring_up(name)
    if not isinstance(name, str):
        raise TypeError(f"a NIC's name or Function wanted, not {type(name).__name__}")
    if name in _SOFT:
        make = getattr(_module("userdma.soft"), name.removeprefix("soft:"))
        return _own(make(wire=_wire(wire), iommu=bool(iommu)))
    if pci.is_name(name):
        _no_soft_options(name, wire, iommu)
        return _own(pci.take(name))
    if _is_kernel_device(name):
        _no_soft_options(name, wire, iommu)
        return _own(uverbs.take(name))
    raise _no_name(name)


def check_name(name: str) -> None:
    """`ValueError` for what no NIC is ever called. One that has a NIC's name need not be there."""
    if name not in _SOFT and not pci.is_name(name) and not _is_kernel_device(name):
        raise _no_name(name)


def _no_name(name: str) -> ValueError:
    return ValueError(
        f'no NIC is called {name!r}; names are "soft:bnxt", "soft:mlx5", and the PCI functions and the RDMA devices of '
        f'the kernel that `userdma devices` lists, such as "0000:17:00.0" and "mlx5_0"'
    )


def _is_kernel_device(name: str) -> bool:
    """Whether it is an RDMA device of the kernel, or has the name of one."""
    return _KERNEL.fullmatch(name) is not None or (
        re.fullmatch(r"[\w.\-]+", name) is not None and os.path.exists(f"/sys/class/infiniband/{name}")
    )


def _no_soft_options(name: str, wire: object, iommu: bool) -> None:
    if wire is not None or not iommu:
        raise ValueError(f"{name}: wire and iommu are for NICs in software that are opened by name")


def _wire(wire: Any) -> Any:
    return _core.Wire(wire) if isinstance(wire, str) else wire


def _own(function: _core.Function) -> Nic:
    """Bring up a function that was taken for it: given back if that fails."""
    try:
        return _bring_up(function)
    except BaseException:
        function.release()
        raise


def _bring_up(function: _core.Function) -> Nic:
    if function.released:
        raise MachineError(f"{function.name} was released: no NIC can be opened on it any more")
    if isinstance(function, _core.Uverbs):
        _module("userdma.mlx5.kernel")
        return Nic._make(uverbs.open_device(function))
    vendor, device = function.config16(0x00), function.config16(0x02)
    fits = families.find(vendor, device)
    if fits is not None:
        _module(f"userdma.{fits[0]}.device")
        return Nic._make(families.FAMILIES[fits[0]].open_device(function))
    if function.failed:
        raise Error(f"{function.name} {function.failure}")
    known = ", ".join(
        f"{v:04x}:{d:04x} ({what})" for one in families.FAMILIES.values() for (v, d), what in one.PRODUCTS.items()
    )
    raise Error(f"{function.name} is {vendor:04x}:{device:04x}, which no driver here fits; they fit {known}")
