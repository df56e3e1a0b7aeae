"""A program as a user writes it, for mypy --strict; it runs as well."""

from __future__ import annotations

import mmap

import userdma
from userdma import Access, Completion, Endpoint, ErrorKind, OtherError, Qp, Region, RemoteMemory, Side


def describe(error: ErrorKind | OtherError | None) -> str:
    if error is None:
        return "no error"
    if isinstance(error, OtherError):
        return f"number {error.number}"
    return error.name


def take(qp: Qp, side: Side) -> Completion:
    completion = qp.wait(side, us=1_000_000)
    if completion is None:
        raise SystemExit("nothing completed within a second")
    completion.raise_for_status()
    return completion


def main() -> None:
    with userdma.open("soft:bnxt") as nic, userdma.open("soft:bnxt") as far:
        mac: bytes = nic.mac
        page: int = nic.machine.page
        with Region.host(nic, 4096) as source, Region.host(far, page, remote=Access.READ | Access.WRITE) as target:
            a, b = Qp.make(nic), Qp.make(far, send=64, receive=64)
            a.connect(Endpoint.from_bytes(b.endpoint.to_bytes()), remote=Access.READ)
            b.connect(a.endpoint, remote=Access.READ | Access.WRITE)

            source.write(0, b"hello")
            b.receive(target, 0, 64)
            a.send(source, 0, 5)
            received: int = take(b, Side.RECEIVE).bytes
            sent: int = take(a, Side.SEND).bytes
            assert received == sent == 5
            data: bytes = target.read(0, 5)
            assert data == b"hello"

            there: RemoteMemory = target.remote(at=64)
            a.write((source, 0), there, 5)
            take(a, Side.SEND)
            a.read(there, (source, 100), 5)
            assert take(a, Side.SEND).error is None
            with memoryview(source) as view:
                assert bytes(view[100:105]) == b"hello"

            nothing: Completion | None = a.poll(Side.RECEIVE)
            assert nothing is None
            room: int = a.room(Side.SEND)
            assert room == 4095, room
            a.destroy()
            b.destroy()
        with mmap.mmap(-1, page) as memory:
            memory[:4] = b"page"
        print(f"{mac.hex(':')}, {page} bytes a page, {describe(None)}, {describe(OtherError(3))}")


if __name__ == "__main__":
    main()
