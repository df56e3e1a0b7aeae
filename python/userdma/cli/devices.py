"""``userdma devices``: what can be opened here, and what to change where something cannot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import click
from rich.console import Console

from userdma import _core, pci, uverbs
from userdma.cli.output import show

SOFT = {
    "soft:bnxt": "a Thor2 in software, in this process",
    "soft:mlx5": "a ConnectX-6 Dx in software, in this process",
}


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
    for device in uverbs.devices(sysfs, dev):
        function = functions.get(device.bus)
        what = f"{function.product if function else 'of the kernel'}, {device.driver or 'no PCI driver'}"
        found.append(Device(device.name, "rdma", what, not device.change, device.change))
    return found


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def command(as_json: bool) -> None:
    """List what userdma.open takes here, and what to change where it cannot open something.

    Soft NICs, the PCI functions that a driver of this package fits, and the RDMA devices of the kernel. What killed
    processes left of wires between processes is removed on the way.
    """
    _core.remove_abandoned_wires()
    found = find()
    if as_json:
        click.echo(json.dumps([asdict(d) for d in found], indent=2))
        return
    console = Console()
    rows = [(d.name, d.kind, d.what, "yes" if d.opens else "no", d.change) for d in found]
    show(console, ("name", "kind", "what", "opens", "to change"), rows)
    if not any(d.kind == "pci" for d in found):
        console.print("No PCI function here fits a driver of this package.", soft_wrap=True)
