"""What the commands print: tables, and what becomes of output that nobody takes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

NARROW = 40  # columns; in fewer a table folds into a letter a line

# What a write to a stream fails with: full, closed, gone.
_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE)


class Commands(click.Group):
    """Commands whose output must arrive: else they say so in one line on standard error, with the exit status 1."""

    def main(self, *args: Any, **options: Any) -> Any:
        if sys.stdout is None:
            _fail("it is closed")
        try:
            try:
                return super().main(*args, **options)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.filename is not None or error.errno not in _LOST:
                raise
            _fail(os.strerror(error.errno))


def _fail(why: str) -> NoReturn:
    # What is still buffered would fail again at the end of the interpreter.
    with suppress(OSError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    with suppress(OSError):
        click.echo(f"userdma: standard output: {why}", err=True)
    sys.exit(1)


def show(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    """A table of plain texts; the columns that `numbers` names stand to the right. Lines where there is no room."""
    if console.width < NARROW:
        for row in rows:
            texts = [f"{heading}: {text}" if heading else text for heading, text in zip(headings, row, strict=True)]
            click.echo(", ".join(text for text in texts if not text.endswith(": ")))
        return
    table = Table(show_header=any(headings))
    for i, heading in enumerate(headings):
        justify: Literal["right", "left"] = "right" if heading in numbers else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=i == 0)  # a name stays whole
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
