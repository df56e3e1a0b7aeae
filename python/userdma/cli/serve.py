"""``userdma serve``: NICs in software as PCI devices of virtual machines."""

from __future__ import annotations

import select
import shlex
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from userdma import soft
from userdma.errors import Error

_MAKERS: dict[str, Any] = {"soft:bnxt": soft.bnxt, "soft:mlx5": soft.mlx5}


@click.command("serve")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--vfio-user",
    "sockets",
    multiple=True,
    required=True,
    metavar="SOCKET",
    help="Where the NIC is served: a Unix socket. Given once for each NAME.",
)
@click.option("--wire", help='The wire they are all on, such as "shm:NAME"; without it one of this process.')
@click.option(
    "--mac", "macs", multiple=True, help="The MAC of a NIC, in the order of NAME; the others have random ones."
)
@click.option("--memory", default="1G", show_default=True, help="The guest's memory in the arguments that are printed.")
@click.option("--once", is_flag=True, help="End when the client has left, and not wait for another one.")
def command(
    names: tuple[str, ...], sockets: tuple[str, ...], wire: str | None, macs: tuple[str, ...], memory: str, once: bool
) -> None:
    """Serve NICs in software over vfio-user: PCI devices of virtual machines, or of one.

    NAME is soft:bnxt, a Thor2, or soft:mlx5, a ConnectX-6 Dx. The arguments for QEMU (10.1 or later) are printed; the
    NICs are served until SIGINT or SIGTERM.

    \b
    userdma serve --vfio-user /tmp/a.sock soft:bnxt \\
                  --vfio-user /tmp/b.sock soft:mlx5
    """
    if len(sockets) != len(names):
        raise click.UsageError(f"{len(names)} NICs and {len(sockets)} sockets: --vfio-user is wanted once for each NIC")
    for name in names:
        if name not in _MAKERS:
            raise click.BadParameter(f"{name!r}: {' and '.join(_MAKERS)} can be served", param_hint="NAME")
    if len(macs) > len(names):
        raise click.UsageError(f"{len(macs)} MACs for {len(names)} NICs")
    addresses: list[bytes | None] = [_mac(text) for text in macs]
    addresses += [None] * (len(names) - len(macs))
    with ExitStack() as stack, _stop_signals() as stopped:
        try:
            on = soft.Wire(wire) if wire is not None else soft.Wire()
            served = []
            for name, path, mac in zip(names, sockets, addresses, strict=True):
                function = _MAKERS[name](on, mac=mac)
                stack.callback(function.release)
                served.append((function, stack.enter_context(soft.serve(function, path, once=once))))
        except (Error, ValueError) as e:
            raise click.ClickException(str(e)) from e
        for function, server in served:
            click.echo(f"{function.name} {function.firmware.mac.hex(':')} at {server.socket}, for QEMU:")
            click.echo("  " + shlex.join(server.qemu_arguments(memory)))
        waiting = {server.fileno(): server for _, server in served}
        poll = select.poll()  # takes descriptors past 1023, which select() does not
        for descriptor in (stopped.fileno(), *waiting):
            poll.register(descriptor, select.POLLIN)
        while waiting:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if stopped.fileno() in ready:
                break
            for descriptor in ready:
                poll.unregister(descriptor)
                del waiting[descriptor]


def _mac(text: str) -> bytes:
    try:
        mac = bytes.fromhex(text.replace(":", "").replace("-", ""))
    except ValueError:
        mac = b""
    if len(mac) != 6:
        raise click.BadParameter(f"{text!r} is no MAC such as 02:00:00:00:00:01", param_hint="--mac")
    return mac


@contextmanager
def _stop_signals() -> Iterator[socket.socket]:
    """A socket that is readable once SIGINT or SIGTERM came, which do nothing else meanwhile."""
    ours, wakeup = socket.socketpair()
    with ours, wakeup:
        wakeup.setblocking(False)
        before = [(s, signal.signal(s, lambda *_: None)) for s in (signal.SIGINT, signal.SIGTERM)]
        old = signal.set_wakeup_fd(wakeup.fileno())
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(old)
            for number, handler in before:
                signal.signal(number, handler)
