"""Messages between the two processes of the demo: JSON lines over a local stream socket."""

from __future__ import annotations

import json
import select
import socket
from typing import Any


class LinkClosedError(Exception):
    """The other process ended, or closed its end."""


class Link:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._arrived = b""

    def send(self, **message: Any) -> None:
        try:
            self._sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError as e:
            raise LinkClosedError from e

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message, or None after `timeout` seconds without a whole one."""
        while b"\n" not in self._arrived:
            if not select.select([self._sock], [], [], timeout)[0]:
                return None
            try:
                data = self._sock.recv(65536)
            except OSError as e:
                raise LinkClosedError from e
            if not data:
                raise LinkClosedError
            self._arrived += data
        line, self._arrived = self._arrived.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def check(self) -> None:
        """Raise ``LinkClosedError`` if the other process ended. Reads nothing."""
        try:
            if self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"" and not self._arrived:
                raise LinkClosedError
        except BlockingIOError:
            pass
        except OSError as e:
            raise LinkClosedError from e

    def close(self) -> None:
        self._sock.close()
