"""1 MiB messages between two processes: prints GB/s. Arguments: "send", "write", "read" or "memcpy"; messages."""

from __future__ import annotations

import ctypes
import time

from ends import End, start

from userdma import RemoteMemory, Side

SIZE = 1 << 20
DEPTH = 16
WARM = 64


def stream(end: End, way: str, messages: int) -> float:
    """DEPTH messages in flight, all out of one buffer and into one, as ucx_perftest has them."""
    qp, region = end.qp, end.region
    there = RemoteMemory(end.far.address, end.far.rkey, SIZE)
    post = {
        "send": lambda: qp.send(region, 0, SIZE),
        "write": lambda: qp.write((region, 0), there, SIZE),
        "read": lambda: qp.read(there, (region, 0), SIZE),
    }[way]

    def run(n: int) -> None:
        for i in range(n):
            post()
            if i >= DEPTH:
                end.take(Side.SEND)
        for _ in range(min(n, DEPTH)):
            end.take(Side.SEND)

    run(WARM)
    begin = time.perf_counter()
    run(messages)
    return messages * SIZE / (time.perf_counter() - begin) / 1e9


def memcpy(messages: int) -> float:
    source, target = bytearray(b"\xff" * SIZE), bytearray(SIZE)
    a, b = (ctypes.addressof(ctypes.c_char.from_buffer(x)) for x in (source, target))
    copy = ctypes.memmove
    for _ in range(WARM):
        copy(b, a, SIZE)
    begin = time.perf_counter()
    for _ in range(messages):
        copy(b, a, SIZE)
    return messages * SIZE / (time.perf_counter() - begin) / 1e9


def serve(end: End, way: str, messages: int) -> None:
    """The other process: takes sends by polling; for writes and reads it only waits, and its NIC does the work."""
    if way != "send":
        return
    qp, region = end.qp, end.region
    total = messages + WARM
    for _ in range(min(2 * DEPTH, total)):
        qp.receive(region, 0, SIZE)
    end.meet()
    for i in range(total):
        end.take(Side.RECEIVE)
        if i + 2 * DEPTH < total:
            qp.receive(region, 0, SIZE)


def main() -> None:
    end = start(SIZE)
    way, messages = end.arguments[0], int(end.arguments[1])
    if end.first:
        if way == "memcpy":
            print(memcpy(messages))
        else:
            if way == "send":
                end.meet()
            print(stream(end, way, messages))
    else:
        serve(end, way, messages)
    end.close()


if __name__ == "__main__":
    main()
