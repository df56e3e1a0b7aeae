"""Runs the benchmarks and prints each row: ours, what it is beside, ratio, target, holds or not.

``make bench``, or ``make bench BENCH="calls streams"`` for some. Nothing here is an absolute time: the two sides of a
ratio are measured in the same run, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from common import Row

GROUPS = ["calls", "instructions", "pingpong", "native", "streams", "packets", "pairs", "regions"]


def run(group: str, build: Path) -> list[Row]:
    if group == "calls":
        import calls

        return calls.rows()
    if group == "instructions":
        import instructions

        return instructions.rows(build)
    if group == "packets":
        import packets

        return packets.rows()
    if group in ("pairs", "regions"):
        import scale

        return scale.pairs() if group == "pairs" else scale.regions()
    import processes

    return {"pingpong": processes.ping_pong, "native": processes.ping_pong_native, "streams": processes.streams}[
        group
    ]()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    arguments.add_argument("--build", type=Path, required=True, help="the build folder of USERDMA_BENCH")
    arguments.add_argument("--family", default="bnxt", choices=["bnxt", "mlx5"], help="of the NICs and the driver")
    arguments.add_argument("--json", type=Path, help="write the rows there too")
    options = arguments.parse_args()
    os.environ["USERDMA_BENCH_FAMILY"] = options.family  # before anything reads it
    for group in options.groups:
        if group not in GROUPS:
            arguments.error(f"{group}: not one of {', '.join(GROUPS)}")
    console = Console(width=150)
    table = Table()
    for heading in ("what", "ours", "beside", "theirs", "ratio", "target", ""):
        table.add_column(heading, justify="left" if heading in ("what", "beside", "") else "right")
    found: list[Row] = []
    for group in options.groups or GROUPS:
        with console.status(group):
            rows = run(group, options.build)
        found += rows
        for r in rows:
            ours, theirs = (f"{x:,.2f} {r.unit}" for x in (r.ours, r.theirs))
            target = f"{'≤' if r.at_most else '≥'} {r.target:.2f}"
            verdict = "[green]holds[/]" if r.holds else "[red]does not hold[/]"
            table.add_row(r.name, ours, r.beside, theirs, f"{r.ratio:.2f}", target, verdict)
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) | {"ratio": r.ratio, "holds": r.holds} for r in found], indent=2))


if __name__ == "__main__":
    main()
