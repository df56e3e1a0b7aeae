"""The demo's second process: does what the first asks for over the link, until that closes it.

Started as ``python -m userdma.cli.peer FD NIC WIRE WINDOW MESSAGE``.
"""

from __future__ import annotations

import hashlib
import socket
import sys
import time
from typing import Any

from userdma import Access, RemoteMemory, Side
from userdma.cli.link import Link, LinkClosedError
from userdma.cli.transfer import STALL, End, pieces


class Peer:
    def __init__(self, link: Link, name: str, wire: str, window: int, message: int) -> None:
        self.link = link
        self.message = message
        self.end = End(name, wire, window, message, Access.WRITE, link)
        self.digest = hashlib.sha256()

    def run(self) -> None:
        end = self.end
        self.link.send(endpoint=end.qp.endpoint.to_bytes().hex())
        while True:
            order = self.link.receive(STALL)
            if order is not None:
                self._obey(order)

    def _obey(self, order: dict[str, Any]) -> None:
        do = order.pop("do")
        getattr(self, "do_" + do)(**order)

    def do_connect(self, endpoint: str) -> None:
        self.end.connect(bytes.fromhex(endpoint))
        self.link.send(memory=self.end.memory.remote().to_bytes().hex())

    def do_start(self) -> None:
        """A new way: forget what the last one left."""
        self.digest = hashlib.sha256()
        self.link.send(started=True)

    def do_clear(self, total: int) -> None:
        """No byte of an earlier way may pass for one of the next."""
        with memoryview(self.end.memory) as view:
            view[:total] = bytes(total)
        self.link.send(cleared=True)

    def do_receive(self, total: int) -> None:
        """Take the first process's sends."""
        end, qp, memory = self.end, self.end.qp, self.end.memory
        ahead = list(pieces(total, self.message))
        posted = min(qp.room(Side.RECEIVE), len(ahead))
        for at, n in ahead[:posted]:
            qp.receive(memory, at, n)
        self.link.send(ready=True)
        for _, n in ahead:
            taken = end.completion(Side.RECEIVE, "a receive").bytes
            if taken != n:
                raise ValueError(f"a receive took {taken} bytes where {n} were sent")
            if posted < len(ahead):
                qp.receive(memory, *ahead[posted])
                posted += 1
        self.link.send(received=True)

    def do_read(self, total: int, memory: str) -> None:
        """Read the first process's memory."""
        source = RemoteMemory.from_bytes(bytes.fromhex(memory))
        end, qp, into = self.end, self.end.qp, self.end.memory
        done, told = 0, time.monotonic()

        def progress(n: int) -> None:
            nonlocal done, told
            done += n
            if time.monotonic() - told > 0.05:
                self.link.send(progress=done)
                done, told = 0, time.monotonic()

        def post(at: int, n: int) -> None:
            qp.read(RemoteMemory(source.address + at, source.rkey, n), (into, at), n)

        start = time.perf_counter()
        end.push(Side.SEND, pieces(total, self.message), post, "an RDMA read", progress)
        self.link.send(seconds=time.perf_counter() - start, progress=done)

    def do_digest(self, total: int) -> None:
        """The digest of all that arrived in this way, `total` more bytes included."""
        with memoryview(self.end.memory) as view:
            self.digest.update(view[:total])
        self.link.send(digest=self.digest.hexdigest())

    def do_echo(self, rounds: int) -> None:
        """Send every 8 bytes back."""
        end, qp, ping = self.end, self.end.qp, self.end.ping
        qp.receive(ping, 0, 8)
        self.link.send(ready=True)
        for i in range(rounds):
            end.completion(Side.RECEIVE, "a receive")
            if i + 1 < rounds:
                # The peer sends the next 8 bytes after these came back: the one receive buffer is free by then.
                qp.receive(ping, 8 if i % 2 == 0 else 0, 8)
            qp.send(ping, 0 if i % 2 == 0 else 8, 8)
            if i:
                end.completion(Side.SEND, "a send")
        end.completion(Side.SEND, "a send")
        self.link.send(echoed=True)


def main() -> None:
    fd, name, wire, window, message = sys.argv[1:]
    link = Link(socket.socket(fileno=int(fd)))
    peer = None
    try:
        peer = Peer(link, name, wire, int(window), int(message))
        peer.run()
    except LinkClosedError:  # the first process is done, or gone
        pass
    except Exception as e:
        try:
            link.send(error=f"{e}" or type(e).__name__)
            link.receive(STALL)
        except LinkClosedError:
            pass
    finally:
        if peer is not None:
            peer.end.abandon()


if __name__ == "__main__":
    main()
