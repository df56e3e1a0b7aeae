"""``userdma info NAME``: open a NIC and say what it is."""

from __future__ import annotations

import json
import sys

import click
from rich.console import Console

import userdma
from userdma import facts
from userdma.cli.output import show


@click.command("info")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(name: str, as_json: bool) -> None:
    """Open the NIC NAME (as userdma devices lists them), and show its addresses, firmware and limits."""
    try:
        with userdma.open(name) as nic:
            found = facts.of_nic(nic)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="NAME") from e
    except userdma.Error as e:
        click.echo(f"userdma info: {e}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    show(Console(), ("", ""), facts.rows(found))
