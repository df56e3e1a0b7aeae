"""``userdma devices``: what can be opened here, and what to change where something cannot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from userdma import pci

SOFT = {"soft:bnxt": "a Thor2 in software, in this process"}


@dataclass(frozen=True)
class Device:
    """One name, whether `userdma.open` takes it, and if not, what to change."""

    name: str
    kind: str  # "soft", "pci", "rdma"
    what: str
    opens: bool
    change: str = ""


def find(sysfs: str = "/sys", dev: str = "/dev") -> list[Device]:
    """Soft NICs, the PCI functions that a driver here fits, the RDMA devices of the kernel."""
    functions = {f.bus: f for f in pci.functions(sysfs, dev)}
    found = [Device(name, "soft", what, True) for name, what in SOFT.items()]
    found += [Device(f.bus, "pci", f.product, bool(f.kind), f.change) for f in functions.values()]
    for folder in sorted(Path(sysfs, "class/infiniband").glob("*")):
        # This version opens no NIC by way of its kernel driver.
        function = functions.get((folder / "device").resolve().name)
        if function:
            change = f"open {function.bus} instead, which is the same NIC, once the kernel's driver has given it up"
        else:
            change = "nothing: no driver here fits it"
        found.append(Device(folder.name, "rdma", function.product if function else "of the kernel", False, change))
    return found


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def command(as_json: bool) -> None:
    """List what userdma.open takes here, and what to change where it cannot open something.

    Soft NICs, the PCI functions that a driver of this package fits, and the RDMA devices of the kernel.
    """
    found = find()
    if as_json:
        click.echo(json.dumps([asdict(d) for d in found], indent=2))
        return
    table = Table()
    for heading in ("name", "kind", "what", "opens", "to change"):
        table.add_column(heading, overflow="fold")
    for d in found:
        table.add_row(d.name, d.kind, d.what, "yes" if d.opens else "no", d.change)
    console = Console()
    console.print(table)
    if not any(d.kind == "pci" for d in found):
        console.print("No PCI function here fits a driver of this package.", soft_wrap=True)
