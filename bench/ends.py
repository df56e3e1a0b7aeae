"""One end of a queue pair between two benchmark processes: NIC on the wire, pair connected over a socket."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass

from common import FIRST, NIC, SECOND, pin

import userdma
from userdma import Access, Endpoint, Qp, Region, RemoteMemory, Side


@dataclass
class End:
    first: bool
    nic: userdma.Nic
    qp: Qp
    region: Region
    far: RemoteMemory
    sock: socket.socket
    arguments: list[str]

    def meet(self) -> None:
        """Both processes are here."""
        self.sock.sendall(b"!")
        if self.sock.recv(1) != b"!":
            raise SystemExit("the other process ended")

    def take(self, side: Side) -> None:
        """The next completion, by polling."""
        poll = self.qp.poll
        while (done := poll(side)) is None:
            pass
        done.raise_for_status()

    def close(self) -> None:
        self.meet()
        self.qp.destroy()
        self.region.deregister()
        self.nic.close()


def start(size: int) -> End:
    """``SCRIPT first|second WIRE FD ARGUMENTS…``: open, register `size` bytes, connect."""
    role, wire, fd, *arguments = sys.argv[1:]
    first = role == "first"
    pin(FIRST if first else SECOND)
    sock = socket.socket(fileno=int(fd))
    nic = userdma.open(NIC, wire=wire)
    region = Region.host(nic, size, remote=Access.READ | Access.WRITE)
    region.write(0, b"\xff" * size)  # its pages are there
    qp = Qp.make(nic)
    mine = qp.endpoint.to_bytes(), region.remote().to_bytes()
    sock.sendall(b"".join(len(part).to_bytes(4, "little") + part for part in mine))
    endpoint, memory = (_part(sock) for _ in mine)
    qp.connect(Endpoint.from_bytes(endpoint), remote=Access.READ | Access.WRITE)
    end = End(first, nic, qp, region, RemoteMemory.from_bytes(memory), sock, arguments)
    end.meet()
    return end


def _part(sock: socket.socket) -> bytes:
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "little")
    return sock.recv(size, socket.MSG_WAITALL)
