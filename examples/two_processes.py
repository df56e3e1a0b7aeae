"""Two processes, started by hand: `two_processes.py serve PORT`, then `two_processes.py HOST PORT FILE`.

The first registers memory that its peer may write. The second writes a file there by RDMA and sends a message that says
how long it is. They share a wire over shared memory, so both run on this machine; the endpoints go over TCP.
"""

from __future__ import annotations

import hashlib
import socket
import sys
from pathlib import Path

import userdma
from userdma import Access, Endpoint, Qp, Region, RemoteMemory, Side

WIRE = "shm:example"
ROOM = 64 << 20


def swap(sock: socket.socket, mine: bytes) -> bytes:
    """Give the peer `mine` and get what it gave."""
    sock.sendall(len(mine).to_bytes(4, "big") + mine)
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
    return sock.recv(size, socket.MSG_WAITALL)


def take(qp: Qp, side: Side) -> userdma.Completion:
    completion = qp.wait(side, us=10_000_000)
    if completion is None:
        raise SystemExit("nothing came within ten seconds")
    completion.raise_for_status()
    return completion


def serve(port: int) -> None:
    with (
        userdma.open("soft:bnxt", wire=WIRE) as nic,
        Region.host(nic, ROOM, remote=Access.WRITE) as room,
        Region.host(nic, 4096) as note,
        socket.create_server(("127.0.0.1", port)) as server,
    ):
        print(f"waiting on port {server.getsockname()[1]}", flush=True)
        sock, _ = server.accept()
        qp = Qp.make(nic)
        qp.connect(Endpoint.from_bytes(swap(sock, qp.endpoint.to_bytes())), remote=Access.WRITE)
        qp.receive(note, 0, 8)
        swap(sock, room.remote().to_bytes())
        take(qp, Side.RECEIVE)
        size = int.from_bytes(note.read(0, 8), "big")
        print(f"{size} bytes, SHA-256 {hashlib.sha256(room.read(0, size)).hexdigest()}")
        swap(sock, b"done")
        qp.destroy()


def write(host: str, port: int, path: Path) -> None:
    data = path.read_bytes()
    if not 0 < len(data) <= ROOM:
        raise SystemExit(f"{path} has {len(data)} bytes; 1 to {ROOM} fit")
    with (
        userdma.open("soft:bnxt", wire=WIRE) as nic,
        Region.host(nic, len(data)) as region,
        Region.host(nic, 8) as note,
        socket.create_connection((host, port)) as sock,
    ):
        qp = Qp.make(nic)
        qp.connect(Endpoint.from_bytes(swap(sock, qp.endpoint.to_bytes())))
        room = RemoteMemory.from_bytes(swap(sock, b""))
        region.write(0, data)
        note.write(0, len(data).to_bytes(8, "big"))
        qp.write((region, 0), room, len(data))
        qp.send(note, 0, 8)  # the peer takes it after what was written before has landed
        take(qp, Side.SEND)
        take(qp, Side.SEND)
        print(f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")
        swap(sock, b"done")
        qp.destroy()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    elif len(sys.argv) == 4:
        write(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    else:
        raise SystemExit(__doc__)
