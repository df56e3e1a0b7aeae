"""A NIC in software as a PCI device of a virtual machine: served over vfio-user, which QEMU's vfio-user-pci speaks."""

from __future__ import annotations

import atexit
import json
import os
import select
import time
import weakref
from types import TracebackType

from userdma import _core

_servers: weakref.WeakSet[Server] = weakref.WeakSet()


class Server:
    """A NIC that one client after the other uses, such as a virtual machine. ``close`` it, or use it in a ``with``.

    Each client finds the NIC as at power-on. Meanwhile this process must not open the function, and may look at it:
    its counters, its wire, its firmware's faults and log.
    """

    def __init__(self, function: _core.Function, socket: str | os.PathLike[str], once: bool = False) -> None:
        self.function = function
        #: The path of the socket, as QEMU takes it.
        self.socket = os.path.abspath(os.fspath(socket))
        self._core = _core.VfioUserServer(function, self.socket, once=bool(once))
        _servers.add(self)

    @property
    def connected(self) -> bool:
        """Whether a client is there."""
        return self._core.connected

    @property
    def clients(self) -> int:
        """How many clients have come so far."""
        return self._core.clients

    @property
    def ended(self) -> bool:
        """Whether it serves no more: it was closed, or its one client has left."""
        return self._core.ended

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, at most `timeout` seconds; whether it has. A signal's handler may interrupt it."""
        until = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()  # takes descriptors past 1023, which select() does not
        poll.register(self, select.POLLIN)
        while not self._core.ended:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not poll.poll(None if left is None else left * 1000):
                break
        return self._core.ended

    def fileno(self) -> int:
        """Of a descriptor that is readable once it has ended, for ``select``."""
        return self._core.fileno()

    def close(self) -> None:
        """Let go of the client, remove the socket and end. The function stays the caller's. Idempotent."""
        self._core.close()

    def qemu_arguments(self, memory: str = "1G") -> list[str]:
        """What QEMU (10.1 or later) must be given to have the NIC: memory that it shares, and the device.

        A list for `subprocess`; for a shell, ``shlex.join`` quotes it.
        """
        device = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": self.socket}}
        return [
            *("-object", f"memory-backend-memfd,id=memory,size={memory},share=on"),
            *("-machine", "q35,memory-backend=memory"),
            *("-m", memory),
            *("-device", json.dumps(device, separators=(",", ":"))),
        ]

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "ended" if self.ended else "connected" if self.connected else "waiting"
        return f"<userdma.soft.Server of {self.function.name} at {self.socket}: {state}>"


@atexit.register
def _close_all() -> None:
    """The NICs' firmware is Python, which a server's thread could not call any more."""
    for server in list(_servers):
        server.close()
