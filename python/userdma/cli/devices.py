"""``userdma devices``: what can be opened here, and what to change where something cannot."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from userdma import _core

# (vendor, device): family and product of the functions that a driver here fits.
FITTING = {(0x14E4, 0x1760): ("bnxt", "Broadcom Thor2 (BCM57608)")}
SOFT = {"soft:bnxt": "a Thor2 in software, in this process"}


@dataclass(frozen=True)
class Device:
    """One name, whether `userdma.open` takes it, and if not, what to do, in order."""

    name: str
    kind: str  # "soft", "pci", "rdma"
    what: str
    opens: bool
    change: tuple[str, ...] = ()


def soft_devices() -> list[Device]:
    return [Device(name, "soft", what, True) for name, what in SOFT.items()]


def pci_devices(sys_root: Path = Path("/sys"), dev_root: Path = Path("/dev")) -> list[Device]:
    """The PCI functions that a driver here fits."""
    found = []
    for folder in sorted((sys_root / "bus/pci/devices").glob("*")):
        known = FITTING.get((_number(folder / "vendor"), _number(folder / "device")))
        if known:
            kind, change = _core.pci_openable(folder.name, sysfs=str(sys_root), dev=str(dev_root))
            found.append(Device(folder.name, "pci", known[1], bool(kind), () if kind else (change,)))
    return found


def rdma_devices(sys_root: Path = Path("/sys")) -> list[Device]:
    """The RDMA devices of the kernel. This version opens none of them by its kernel driver."""
    found = []
    for folder in sorted((sys_root / "class/infiniband").glob("*")):
        function = (folder / "device").resolve() if (folder / "device").exists() else None
        known = FITTING.get((_number(function / "vendor"), _number(function / "device"))) if function else None
        if function and known:
            change = f"open its PCI function instead, {function.name}, which its kernel driver must give up first"
        else:
            change = "nothing: no driver here fits it"
        found.append(Device(folder.name, "rdma", known[1] if known else "of the kernel", False, (change,)))
    return found


def _number(path: Path) -> int:
    try:
        return int(path.read_text(), 16)
    except (OSError, ValueError):
        return -1


def is_pci_name(name: str) -> bool:
    return re.fullmatch(r"([0-9a-fA-F]{4,}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", name) is not None


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def devices(as_json: bool) -> None:
    """List what userdma.open takes here, and what to change where it cannot open something.

    Soft NICs, the PCI functions that a driver of this package fits, and the RDMA devices of the kernel.
    """
    found = soft_devices() + pci_devices() + rdma_devices()
    if as_json:
        click.echo(json.dumps([asdict(d) for d in found], indent=2))
        return
    table = Table()
    for heading in ("name", "kind", "what", "opens", "to change"):
        table.add_column(heading, overflow="fold")
    for d in found:
        table.add_row(d.name, d.kind, d.what, "yes" if d.opens else "no", "\n".join(d.change))
    console = Console()
    console.print(table)
    if not any(d.kind == "pci" for d in found):
        console.print("No PCI function here fits a driver of this package.", soft_wrap=True)
