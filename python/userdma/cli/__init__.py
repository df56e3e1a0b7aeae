"""The command line: ``userdma demo``, ``devices``, ``info``, ``selftest``, ``serve``."""

from __future__ import annotations

import os

import click

from userdma import trace
from userdma.cli import demo, devices, info, selftest, serve
from userdma.cli.output import Commands


def _trace(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and trace.to_stderr not in trace.listeners:
        os.environ["USERDMA_TRACE"] = "1"  # for the processes that the command starts
        context.with_resource(trace.listening(trace.to_stderr))


_trace_option = click.option(
    "--trace",
    is_flag=True,
    expose_value=False,
    callback=_trace,
    help="Print every firmware command and its answer, decoded, to standard error (as USERDMA_TRACE=1 does).",
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="userdma", prog_name="userdma")
@_trace_option
def main() -> None:
    """RDMA NICs driven from user space; NICs in software where there is no hardware."""


for module in (demo, devices, info, selftest, serve):
    main.add_command(_trace_option(module.command))
