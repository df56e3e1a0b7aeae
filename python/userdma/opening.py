"""Opening a NIC by its name, or by the PCI function that is already taken."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from userdma import _core, bnxt, pci
from userdma.errors import Error
from userdma.nic import Nic

if TYPE_CHECKING:
    from userdma.soft import Wire

_SOFT = {"soft:bnxt": "bnxt"}
_KERNEL = re.compile(r"(mlx[45]|bnxt_re|irdma|hns|efa|erdma|mana|qedr|cxgb4|hfi1|siw|rxe|rocep|roceo|ibp)[\w.\-]*")


def open(name: str | _core.Function, wire: str | Wire | None = None, iommu: bool = True) -> Nic:
    """Open a NIC and bring it up. Closed by its `close`, or at the end of a `with`.

    `name`: "soft:bnxt", a new NIC in software; "0000:17:00.0", a PCI function, which VFIO or this process takes; or a
    `Function`, which becomes the NIC's (its close releases it).

    `wire` and `iommu` are for NICs in software: the wire it is on (a `userdma.soft.Wire` or the name of one, such as
    "shm:NAME"; by default the process's own), and whether it is behind an IOMMU.
    """
    if isinstance(name, _core.Function):
        _no_soft_options(name.name, wire, iommu)
        return _bring_up(name)
    if not isinstance(name, str):
        raise TypeError(f"a NIC's name or Function wanted, not {type(name).__name__}")
    if name in _SOFT:
        from userdma import soft

        return _own(soft.bnxt(wire=_wire(wire), iommu=bool(iommu)))
    if pci.is_name(name):
        _no_soft_options(name, wire, iommu)
        return _own(pci.take(name))
    if name == "soft:mlx5" or _is_kernel_device(name):
        raise Error(f"{name}: this version has no driver for it; {_known()}")
    raise ValueError(f"no NIC is called {name!r}; {_known()}")


def _known() -> str:
    return 'names are "soft:bnxt" and the PCI functions that `userdma devices` lists, such as "0000:17:00.0"'


def _is_kernel_device(name: str) -> bool:
    """Whether it is an RDMA device of the kernel, or has the name of one."""
    return _KERNEL.fullmatch(name) is not None or (
        re.fullmatch(r"[\w.\-]+", name) is not None and os.path.exists(f"/sys/class/infiniband/{name}")
    )


def _no_soft_options(name: str, wire: object, iommu: bool) -> None:
    if wire is not None or not iommu:
        raise ValueError(f"{name}: wire and iommu are for NICs in software that are opened by name")


def _wire(wire: Any) -> Any:
    from userdma import soft

    return soft.Wire(wire) if isinstance(wire, str) else wire


def _own(function: _core.Function) -> Nic:
    """Bring up a function that was taken for it: given back if that fails."""
    try:
        return _bring_up(function)
    except BaseException:
        function.release()
        raise


def _bring_up(function: _core.Function) -> Nic:
    vendor, device = function.config16(0x00), function.config16(0x02)
    if (vendor, device) in bnxt.PRODUCTS:
        return Nic(bnxt.open_device(function))
    if (vendor, device) == (0xFFFF, 0xFFFF):
        raise Error(f"{function.name} left the bus: its registers read all ones")
    known = ", ".join(f"{v:04x}:{d:04x} ({what})" for (v, d), what in bnxt.PRODUCTS.items())
    raise Error(f"{function.name} is {vendor:04x}:{device:04x}, which no driver here fits; they fit {known}")
