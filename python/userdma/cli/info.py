"""``userdma info NAME``: open a NIC and say what it is."""

from __future__ import annotations

import ipaddress
import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import userdma


def describe(nic: userdma.Nic) -> dict[str, Any]:
    """What a program would want to know of an open NIC."""
    gid = ipaddress.IPv6Address(nic.gid)
    return {
        "name": nic.name,
        "family": nic.family,
        "firmware": nic.firmware,
        "mac": nic.mac.hex(":"),
        "gid": f"{gid} ({gid.ipv4_mapped})" if gid.ipv4_mapped else str(gid),
        "mtu": nic.mtu,
        "page": nic.machine.page,
        "limits": dict(nic.limits),
    }


@click.command("info")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(name: str, as_json: bool) -> None:
    """Open the NIC NAME (as userdma devices lists them), and show its addresses, firmware and limits."""
    try:
        with userdma.open(name) as nic:
            facts = describe(nic)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="NAME") from e
    except userdma.Error as e:
        click.echo(f"userdma info: {e}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    table = Table(show_header=False)
    for key, value in facts.items():
        if key == "limits":
            for limit, n in value.items():
                table.add_row(f"limit: {limit}", f"{n:,}" if isinstance(n, int) else str(n))
        else:
            table.add_row(key, str(value))
    Console().print(table)
