"""``userdma selftest NAME [PEER]``: this project's own tests on one's own NIC, with a report to send in."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from userdma import selftest
from userdma.cli.output import show
from userdma.opening import check_name


@click.command("selftest")
@click.argument("name")
@click.argument("peer", required=False)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the report goes; userdma-selftest-DATE.txt if not said, '-' for standard output.",
)
@click.option("--only", default="", metavar="EXPRESSION", help="Some of the tests: words of their names, as pytest -k.")
@click.option("--slow", is_flag=True, help="Those that take minutes, or gigabytes of memory, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(name: str, peer: str | None, report: Path | None, only: str, slow: bool, as_json: bool) -> None:
    """Run the tests that need no particular NIC on the NIC NAME, with queue pairs connected within it.

    With PEER, a second NIC that reaches it, the tests of two NICs run as well. A report of what was tried and what
    held is written, with the machine, the NICs and their firmware, and around each failure every firmware command and
    answer. The exit status is 0 if everything that was tried held.

    The tests need pytest and a few more: pip install "userdma[selftest]"
    """
    from userdma.selftest.report import text

    if report is None:
        report = Path(time.strftime("userdma-selftest-%Y%m%d-%H%M%S.txt"))
    elif str(report) != "-" and not report.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {report.absolute().parent}", param_hint="--report")
    names = [name] if peer is None else [name, peer]
    _check_names(names)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("opening", total=None)

        def progress(test: str, i: int, n: int) -> None:
            bar.update(task, description=test.rpartition("::")[2][:50].replace("[", r"\["), completed=i, total=n)

        try:
            result = selftest.run(names, only=only, slow=slow, progress=progress)
        except RuntimeError as error:
            raise click.ClickException(str(error)) from error
    if result.none_fits:
        raise click.BadParameter(result.broken, param_hint="--only")
    if result.nothing_tried and not as_json:
        raise click.ClickException(result.broken)
    whole = text(result)
    if str(report) == "-":
        click.echo(whole)
    else:
        report.write_text(whole, encoding="utf-8")
    if as_json:
        click.echo(json.dumps({**asdict(result), "held": result.held}, indent=2))
    elif str(report) != "-":
        _summary(result)
        click.echo(f"The report is in {report}.")
    if result.broken:
        click.echo(f"userdma selftest: {result.broken}", err=True)
    sys.exit(0 if result.held else 1)


def _check_names(names: list[str]) -> None:
    """That they are names; whether they can be opened is found out by the tests' own process."""
    for given, hint in zip(names, ("NAME", "PEER"), strict=False):
        try:
            check_name(given)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint=hint) from error


def _summary(result: selftest.Result) -> None:
    console = Console()
    rows = [(what, str(len(result.of(what)))) for what in ("held", "failed", "left out")]
    show(console, ("", "tests"), rows, numbers=("tests",))
    for outcome in result.of("failed"):
        last = next((line for line in reversed(outcome.why.splitlines()) if line.strip()), "")
        console.print(f"failed: {outcome.test}: {last}", markup=False, soft_wrap=True)
    reasons: dict[str, int] = {}
    for outcome in result.of("left out"):
        reasons[outcome.why] = reasons.get(outcome.why, 0) + 1
    for reason, n in reasons.items():
        console.print(f"left out, {n}: {reason}", markup=False, soft_wrap=True)
