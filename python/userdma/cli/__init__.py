"""The command line: ``userdma demo``, ``userdma devices``, ``userdma info``."""

from __future__ import annotations

import click

from userdma.cli import demo, devices, info


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="userdma", prog_name="userdma")
def main() -> None:
    """RDMA NICs driven from user space; NICs in software where there is no hardware."""


for module in (demo, devices, info):
    main.add_command(module.command)
