"""Two processes on a wire in shared memory: traffic, peers that die or stop at any moment, and the wire's file."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import userdma
import userdma.soft
from conftest import SECOND, connect, done, hasten, take
from processes import Peer, ended, run, wire_file, wire_name
from userdma import Access, Error, ErrorKind, Nic, Qp, Region, RemoteMemory, Side

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
BYTES = 4 << 20
ALL = Access.READ | Access.WRITE

# What a peer does first: a NIC, a pair, a region of known bytes.
BEGIN = """
import random
nic = userdma.open(name, wire=wire)
qp = Qp.make(nic)
r = Region.host(nic, n, remote=Access.READ | Access.WRITE)
r.write(0, random.Random(seed).randbytes(n))
def done(side):
    found = qp.wait(side, us=60_000_000)
    assert found is not None and found.ok, found
    return found.bytes
answer = qp.endpoint, r.remote()
"""
CONNECT = "qp.connect(to, remote=Access.READ | Access.WRITE)"

BNXT, MLX5 = "soft:bnxt", "soft:mlx5"
# The NIC of this process, and that of the other: every pair of families where it is cheap, else one of each.
EVERY = pytest.mark.parametrize(
    "here", [(a, b) for a in (BNXT, MLX5) for b in (BNXT, MLX5)], indirect=True, ids="-".join
)
EACH = pytest.mark.parametrize("here", [(BNXT, BNXT), (MLX5, BNXT)], indirect=True, ids="-".join)
THERE: dict[str, str] = {}  # by wire, the other process's


def begin(
    peer: Peer, wire: str, nic: Nic, seed: int = 0, n: int = BYTES, to: Qp | None = None
) -> tuple[Qp, RemoteMemory]:
    """A pair of this process, connected to one of the peer's, and the peer's memory."""
    endpoint, memory = peer.run(BEGIN, name=THERE.get(wire, BNXT), wire=wire, seed=seed, n=n)
    qp = to or Qp.make(nic)
    qp.connect(endpoint, remote=ALL)
    peer.run(CONNECT, to=qp.endpoint)
    return qp, memory


@pytest.fixture
def wire() -> Iterator[str]:
    """A wire's name; its file is gone at the end, whatever happened on it."""
    name = wire_name()
    try:
        yield name
        assert not os.path.exists(wire_file(name))
    finally:
        Path(wire_file(name)).unlink(missing_ok=True)


@pytest.fixture
def here(wire: str, request: pytest.FixtureRequest) -> Iterator[Nic]:
    """This process's NIC on the wire."""
    name, THERE[wire] = getattr(request, "param", (BNXT, MLX5))
    with userdma.open(name, wire=wire) as nic:
        yield nic


# ---- traffic ---------------------------------------------------------------------------------------------------------


def exchange(peer: Peer, qp: Qp, memory: RemoteMemory, seed: int) -> None:
    """Sends both ways, writes and reads, of sizes from nothing to megabytes, byte for byte."""
    rng = random.Random(seed)
    r = Region.host(qp.nic, BYTES, remote=ALL)
    for n in (0, 1, 8, 63, 4096, 4097, 100_000, BYTES, rng.randrange(BYTES)):
        data = rng.randbytes(n)
        # There, by a send.
        peer.run("qp.receive(r, 0, n)", n=n)
        r.write(0, data)
        qp.send(r, 0, n)
        assert peer.run("answer = done(Side.RECEIVE), r.read(0, n)") == (n, data)
        assert done(qp, SEND) == n
        # And back.
        r.write(0, bytes(n))
        qp.receive(r, 0, n)
        peer.run("qp.send(r, 0, n); done(Side.SEND)")
        assert done(qp, RECEIVE) == n
        assert r.read(0, n) == data
        # The same by a write and a read of this side, which the peer's program takes no part in.
        data = rng.randbytes(n)
        r.write(0, data)
        qp.write((r, 0), memory, n)
        assert done(qp, SEND) == n
        r.write(0, bytes(n))
        qp.read(memory, (r, 0), n)
        assert done(qp, SEND) == n
        assert r.read(0, n) == data
    r.deregister()


@EVERY
def test_exchange(wire: str, here: Nic) -> None:
    with Peer() as peer:
        qp, memory = begin(peer, wire, here)
        exchange(peer, qp, memory, 1)
        assert peer.end() == 0


@EVERY
def test_many_messages_both_ways(wire: str, here: Nic) -> None:
    """Streams in both directions at once, of more messages than a ring holds."""
    count, n = 6000, 24
    with Peer() as peer:
        qp, _ = begin(peer, wire, here)
        stream = """
def stream(qp, r, wait, count, n, mark):
    sent = got = posted = due = 0
    while got < count or sent < count:
        while posted < count and posted - got < 500:
            qp.receive(r, 64 * (posted % 500), 64); posted += 1
        while sent < count and qp.room(Side.SEND) > 3000:
            r.write(100_000 + 64 * (sent % 2000), (str(sent) + mark).encode().rjust(n))
            qp.send(r, 100_000 + 64 * (sent % 2000), n); sent += 1
        while (found := qp.poll(Side.SEND)) is not None:
            assert found.ok and found.bytes == n, found
        while (found := qp.poll(Side.RECEIVE)) is not None:
            assert found.ok and found.bytes == n, found
            text = r.read(64 * (got % 500), n).decode()
            assert text.strip() == str(got) + ("ab".replace(mark, "")), text
            got += 1
    while qp.room(Side.SEND) < 4095:
        found = qp.wait(Side.SEND, us=wait)
        assert found is not None and found.ok, found
"""
        names: dict[str, Any] = {"Side": Side}
        exec(stream, names)
        peer.start(stream + "stream(qp, r, 60_000_000, count, n, 'b')", count=count, n=n)
        names["stream"](qp, Region.host(here, BYTES), 60 * SECOND, count, n, "a")
        peer.finish()


def _child(name: str, wire: str, pipe: Connection) -> None:
    with userdma.open(name, wire=wire) as nic:
        qp, r = Qp.make(nic), Region.host(nic, PAGE)
        pipe.send(qp.endpoint)
        qp.connect(pipe.recv())
        qp.receive(r, 0, PAGE)
        pipe.send("ready")
        n = done(qp, RECEIVE)
        r.write(0, r.read(0, n)[::-1])
        qp.send(r, 0, n)
        done(qp, SEND)


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing(wire: str, here: Nic, method: str) -> None:
    context = multiprocessing.get_context(method)
    mine, theirs = context.Pipe()
    process = context.Process(target=_child, args=(THERE[wire], wire, theirs))
    process.start()
    qp, r = Qp.make(here), Region.host(here, PAGE)
    qp.connect(mine.recv())
    mine.send(qp.endpoint)
    assert mine.recv() == "ready"
    r.write(0, b"endpoints are plain data")
    qp.receive(r, 100, 100)
    qp.send(r, 0, 24)
    assert done(qp, SEND) == done(qp, RECEIVE) == 24
    assert r.read(100, 24) == b"atad nialp era stniopdne"
    process.join(120)
    assert process.exitcode == 0


@EACH
@pytest.mark.parametrize("kind", ["write", "read", "send"])
def test_a_peers_request_is_served_while_this_process_sleeps(wire: str, here: Nic, kind: str) -> None:
    """In a read of a pipe: nobody rings or polls here, until the peer has said that its request is done."""
    r = Region.host(here, BYTES, remote=ALL)
    data = random.Random(7).randbytes(BYTES)
    with Peer() as peer:
        qp, _ = begin(peer, wire, here, seed=7)
        if kind == "read":
            r.write(0, data)
            peer.run("r.write(0, bytes(n))")
        else:
            qp.receive(r, 0, BYTES)
        peer.start(
            f"""
            time.sleep(0.3)  # the other one sleeps by now
            if {kind!r} == "write":
                qp.write((r, 0), there, n)
            elif {kind!r} == "read":
                qp.read(there, (r, 0), n)
            else:
                qp.send(r, 0, n)
            assert done(Side.SEND) == n
            answer = r.read(0, n)
            """,
            there=r.remote(),
        )
        theirs = peer.finish()
        found = r.read(0, BYTES)  # without a look at the NIC
        assert found == theirs == data


@pytest.mark.parametrize("names", [(BNXT, MLX5), (MLX5, BNXT)], ids="-".join)
def test_a_faulty_wire_between_processes(wire: str, names: tuple[str, str]) -> None:
    with Peer() as peer:
        peer.run("import userdma.soft; faulty = userdma.soft.Wire(wire, loss=0.05, reorder=0.05, seed=3)", wire=wire)
        faulty = userdma.soft.Wire(wire, loss=0.05, duplicate=0.1, corrupt=0.02, seed=4)
        with userdma.open(names[0], wire=faulty) as nic:
            begin_faulty = BEGIN.replace("wire=wire", "wire=faulty")
            endpoint, memory = peer.run(begin_faulty, name=names[1], wire=wire, seed=0, n=BYTES)
            qp = Qp.make(nic)
            qp.connect(endpoint, remote=ALL)
            peer.run(CONNECT, to=qp.endpoint)
            r = Region.host(nic, BYTES)
            rng = random.Random(5)
            for n in (1, 5000, 100_000, 300_000):
                data = rng.randbytes(n)
                r.write(0, data)
                qp.write((r, 0), memory, n)
                assert done(qp, SEND, 100 * SECOND) == n
                assert peer.run("answer = r.read(0, n)", n=n) == data
            qp.destroy()
        peer.end()


# ---- peers that die --------------------------------------------------------------------------------------------------


def drain(qp: Qp, side: Side) -> list[ErrorKind | None]:
    """Every completion that is due: good ones, then the failure, then flushed ones."""
    found: list[ErrorKind | None] = []
    while qp.room(side) < 4095:
        completion = take(qp, side)
        assert completion.error is None or isinstance(completion.error, ErrorKind), completion.message
        found.append(completion.error)
    good = next((i for i, error in enumerate(found) if error is not None), len(found))
    assert all(error is ErrorKind.FLUSHED for error in found[good + 1 :]), found
    return found


def counted(nic: Nic) -> tuple[int, int]:
    """ACK timers that expired, and entries that failed for it."""
    stats = nic.function.stats()  # type: ignore[attr-defined]
    return stats["timeouts"], stats["retries_exceeded"]


def usable(wire: str, here: Nic) -> None:
    """A new process on the same wire works with the same NIC at once."""
    with Peer() as peer:
        qp, memory = begin(peer, wire, here, seed=1)
        r = Region.host(here, BYTES, remote=ALL)
        qp.read(memory, (r, 0), BYTES)
        assert done(qp, SEND) == BYTES
        assert r.read(0, BYTES) == random.Random(1).randbytes(BYTES)
        peer.run("r.write(0, b'from a new process')")
        qp.receive(r, 0, 100)
        peer.run("qp.send(r, 0, 18); done(Side.SEND)")
        assert done(qp, RECEIVE) == 18
        qp.destroy()
        r.deregister()
        peer.end()


# What the peer does until it is killed, and what this process has under way meanwhile.
ROLES = {
    "sends to it": "while True:\n  if qp.room(Side.RECEIVE) > 4000: qp.receive(r, 0, n)\n  qp.poll(Side.RECEIVE)",
    "writes to it": "time.sleep(60)",
    "reads from it": "time.sleep(60)",
    "hears from it": "while True:\n  if qp.room(Side.SEND) > 4000: qp.send(r, 0, n)\n  qp.poll(Side.SEND)",
    "is written by it": (
        "while True:\n  if qp.room(Side.SEND) > 4000: qp.write((r, 0), there, n)\n  qp.poll(Side.SEND)"
    ),
}


def killed(wire: str, here: Nic, role: str, after: float, n: int) -> None:
    """A peer is killed `after` seconds into a transfer."""
    before = counted(here)
    content = random.Random(3).randbytes(n)
    with Peer() as peer:
        qp, memory = begin(peer, wire, here, seed=3, n=n)
        r = Region.host(here, n, remote=ALL)
        r.write(0, content)
        peer.start(ROLES[role], there=r.remote())
        posts = {
            "sends to it": lambda: qp.send(r, 0, n),
            "writes to it": lambda: qp.write((r, 0), memory, n),
            "reads from it": lambda: qp.read(memory, (r, 0), n),
        }
        post = posts.get(role)
        until = time.monotonic() + after
        while time.monotonic() < until:
            if post is not None:
                if qp.room(SEND) > 4000:
                    post()
                while (found := qp.poll(SEND)) is not None:
                    assert found.ok and found.bytes == n, found.message
            elif role == "hears from it":
                if qp.room(RECEIVE) > 4000:
                    qp.receive(r, 0, n)
                while (found := qp.poll(RECEIVE)) is not None:
                    assert found.ok and found.bytes == n, found.message
            else:
                time.sleep(0.001)
        if post is not None:
            for _ in range(3):
                post()
        peer.kill()
        hasten(qp)
        side = SEND if post is not None or role == "is written by it" else RECEIVE
        if role == "hears from it":
            # Nobody says so to one that only receives: what it waits for is still due. A send of its own tells it.
            while qp.room(RECEIVE) < 4095 and (found := qp.wait(RECEIVE, us=100_000)) is not None:
                assert found.ok, found.message
        if post is None:
            qp.send(r, 0, n)
        errors = drain(qp, SEND)
        if post is None:
            assert errors == [ErrorKind.RETRY_EXCEEDED]
        first = next((error for error in errors if error is not None), None)
        assert first in (None, ErrorKind.RETRY_EXCEEDED), first
        if first is not None:
            timeouts, exceeded = (now - then for now, then in zip(counted(here), before, strict=True))
            assert timeouts >= 8 and exceeded == 1  # the last acknowledgement's and seven retries'
        assert all(error is ErrorKind.FLUSHED for error in drain(qp, RECEIVE))
        assert r.read(0, n) == content  # the same bytes, however far it came
        assert side in (SEND, RECEIVE)
        qp.destroy()
        r.deregister()


@pytest.mark.no_sanitizer
@EACH
@pytest.mark.parametrize("role", ROLES)
def test_kill_of_a_peer(wire: str, here: Nic, role: str) -> None:
    """Its survivor's entries complete, or fail after the retries; the wire and the NIC are usable at once."""
    rng = random.Random(role)
    for n in (64, 1 << 20):
        killed(wire, here, role, rng.uniform(0.0, 0.05), n)
    usable(wire, here)


@pytest.mark.slow
@pytest.mark.no_sanitizer
@pytest.mark.timeout(3600)
@EVERY
@pytest.mark.parametrize("role", ROLES)
def test_kills_of_peers(wire: str, here: Nic, role: str) -> None:
    rng = random.Random(role)
    for _ in range(20):
        killed(wire, here, role, rng.uniform(0.0, 0.1), rng.choice([8, 4096, 9000, 1 << 20, BYTES]))
        usable(wire, here)


@pytest.mark.no_sanitizer
def test_kill_of_a_peer_that_only_began(wire: str, here: Nic) -> None:
    """At any moment of its bring-up, and with its pair not yet connected."""
    for after in (0.0, 0.002, 0.01, 0.02, 0.05):
        with Peer() as peer:
            peer.run("pass")
            peer.start(BEGIN, name=THERE[wire], wire=wire, seed=0, n=PAGE)
            time.sleep(after)
            peer.kill()
    usable(wire, here)


@pytest.mark.no_sanitizer
def test_kill_of_both(wire: str) -> None:
    """The file stays behind, and the next process takes it up again; the last one out removes it."""
    stays = 0
    for turn in range(6):
        with Peer() as one, Peer() as two:
            a, memory = one.run(BEGIN, name=BNXT, wire=wire, seed=0, n=BYTES)
            b, other = two.run(BEGIN, name=MLX5, wire=wire, seed=1, n=BYTES)
            one.run(CONNECT, to=b)
            two.run(CONNECT, to=a)
            flood = "while True:\n  if qp.room(Side.SEND) > 4000: qp.write((r, 0), there, n)\n  qp.poll(Side.SEND)"
            one.start(flood, there=other)
            two.start(flood, there=memory)
            time.sleep(0.01 * turn)
            for peer in (one, two):
                peer.process.kill()
            for peer in (one, two):
                peer.kill()
        stays += os.path.exists(wire_file(wire))
    assert stays  # another program of this user that joins a wire right then clears it away
    with userdma.open("soft:bnxt", wire=wire) as nic:
        usable(wire, nic)


@EACH
@pytest.mark.parametrize("how", ["end of the program", "close", "destroy"])
def test_a_peer_that_leaves(wire: str, here: Nic, how: str) -> None:
    """The entries of its peer's queue pair fail once their retries end, as if it were gone."""
    with Peer() as peer:
        qp, memory = begin(peer, wire, here)
        r = Region.host(here, PAGE)
        qp.write((r, 0), memory, PAGE)
        assert done(qp, SEND) == PAGE
        if how == "close":
            peer.run("nic.close()")
        elif how == "destroy":
            peer.run("qp.destroy()")
        else:
            assert peer.end() == 0
        hasten(qp)
        start = time.monotonic()
        qp.write((r, 0), memory, PAGE)
        qp.send(r, 0, 8)
        assert drain(qp, SEND) == [ErrorKind.RETRY_EXCEEDED, ErrorKind.FLUSHED]
        assert time.monotonic() - start > 0.4
    usable(wire, here)


@pytest.mark.no_sanitizer
def test_a_peer_that_stops_for_a_while(wire: str, here: Nic) -> None:
    """SIGSTOP, then SIGCONT before the retries end: everything completes, byte for byte."""
    with Peer() as peer:
        qp, memory = begin(peer, wire, here)
        r = Region.host(here, BYTES)
        rng = random.Random(6)
        for turn in range(4):
            data = rng.randbytes(BYTES)
            r.write(0, data)
            peer.signal(signal.SIGSTOP)
            for part in range(16):
                at = part * (BYTES // 16)
                qp.write((r, at), _shifted(memory, at), BYTES // 16)
            time.sleep(0.05 * (turn + 1))
            peer.signal(signal.SIGCONT)
            errors = drain(qp, SEND)
            assert errors == [None] * 16
            assert peer.run("answer = r.read(0, n)", n=BYTES) == data


def _shifted(memory: RemoteMemory, at: int) -> RemoteMemory:
    return RemoteMemory(memory.address + at, memory.rkey, memory.bytes - at)


@pytest.mark.no_sanitizer
def test_a_peer_that_stops_for_too_long(wire: str, here: Nic) -> None:
    """It counts as dead: the entries fail after the retries. Once it continues, new pairs work."""
    with Peer() as peer:
        qp, memory = begin(peer, wire, here)
        r = Region.host(here, BYTES)
        peer.signal(signal.SIGSTOP)
        hasten(qp)
        start = time.monotonic()
        qp.write((r, 0), memory, BYTES)
        qp.write((r, 0), memory, 8)
        assert drain(qp, SEND) == [ErrorKind.RETRY_EXCEEDED, ErrorKind.FLUSHED]
        assert time.monotonic() - start > 0.4
        qp.destroy()
        r.deregister()  # although it is stopped
        peer.signal(signal.SIGCONT)
        peer.run("qp.destroy(); r.deregister(); nic.close()")
        qp, memory = begin(peer, wire, here)
        exchange(peer, qp, memory, 2)


@pytest.mark.no_sanitizer
def test_this_process_stops_in_a_wait(wire: str, here: Nic) -> None:
    """SIGSTOP and SIGCONT of one that waits: the wait goes on, and a wait past its bound still looks once.

    It stops itself, once it has begun to wait.
    """
    with Peer() as peer:
        qp, _ = begin(peer, wire, here)
        r = Region.host(here, PAGE)
        peer.run("qp.receive(r, 0, 64)")
        peer.start(
            """
            import signal
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGSTOP)).start()
            found = qp.wait(Side.RECEIVE, us=3_000_000)
            answer = None if found is None else found.bytes
            """
        )
        peer.stopped()
        qp.send(r, 0, 33)
        time.sleep(3.1)
        peer.signal(signal.SIGCONT)
        assert peer.finish() == 33
        assert done(qp, SEND) == 33


def test_several_processes(wire: str, here: Nic) -> None:
    """Four others on the wire, each with a pair to this one; one dies, the rest go on."""
    peers = [Peer() for _ in range(4)]
    try:
        pairs = [begin(peer, wire, here, seed=n, n=PAGE) for n, peer in enumerate(peers)]
        r = Region.host(here, 4 * PAGE)
        for n, (qp, memory) in enumerate(pairs):
            qp.read(memory, (r, n * PAGE), PAGE)
        for n, (qp, _) in enumerate(pairs):
            assert done(qp, SEND) == PAGE
            assert r.read(n * PAGE, PAGE) == random.Random(n).randbytes(PAGE)
        peers[1].kill()
        hasten(pairs[1][0])
        for qp, memory in pairs:
            qp.read(memory, (r, 0), PAGE)
        assert [take(qp, SEND).error for qp, _ in pairs] == [None, ErrorKind.RETRY_EXCEEDED, None, None]
        # Two of the others talk with each other.
        a, b = (
            peers[0].run("two = Qp.make(nic); answer = two.endpoint"),
            peers[2].run("two = Qp.make(nic); answer = two.endpoint"),
        )
        peers[0].run("two.connect(to); two.receive(r, 0, 8)", to=b)
        peers[2].run("two.connect(to); two.send(r, 0, 8)", to=a)
        assert peers[0].run("answer = two.wait(Side.RECEIVE, us=60_000_000).bytes") == 8
    finally:
        for peer in peers:
            if peer.alive:
                peer.kill()


# ---- the wire's file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shm:", "shm:a/b", "shm:../x", "shm:a b", "shm:é", "shm:" + "x" * 101, "shm:a\0b"])
def test_names_that_no_wire_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="named"):
        userdma.soft.Wire(name)
    for nic in (BNXT, MLX5):
        with pytest.raises(ValueError, match="named"):
            userdma.open(nic, wire=name)


def test_a_name_of_any_other_kind() -> None:
    with pytest.raises(ValueError, match="udp"):
        userdma.soft.Wire("udp:1.2.3.4")


def test_a_wire_full_of_nics(wire: str) -> None:
    """64 NICs fit. One more is an error that says so, until one leaves."""
    makers = (userdma.soft.bnxt, userdma.soft.mlx5)
    functions = [makers[n % 2](wire=wire, thread=False) for n in range(64)]
    for make in makers:
        with pytest.raises(Error, match=r"full.*64"):
            make(wire=wire)
    functions.pop().release()
    with userdma.open("soft:bnxt", wire=wire) as a:
        b = userdma.open(functions[0])
        x, y = connect(Qp.make(a), Qp.make(b))
        r, s = Region.host(a, PAGE), Region.host(b, PAGE)
        y.receive(s, 0, 8)
        x.send(r, 0, 8)
        assert done(y, RECEIVE) == done(x, SEND) == 8
        b.close()
    for function in functions[1:]:
        function.release()


def test_the_same_mac_in_two_processes(wire: str, here: Nic) -> None:
    with Peer() as peer:
        text = peer.run(
            """
            import userdma.soft
            try:
                userdma.soft.mlx5(wire=wire, mac=mac)
            except Error as error:
                answer = str(error)
            """,
            wire=wire,
            mac=here.mac,
        )
    assert "MAC" in text and here.mac.hex(":") in text


def attempt(wire: str) -> str:
    """What opening a NIC on the wire says, "" if it works."""
    try:
        nic = userdma.open("soft:bnxt", wire=wire)
    except Error as error:
        return str(error)
    a, b = connect(Qp.make(nic), Qp.make(nic))
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 8)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8
    nic.close()
    return ""


def header(wire: str) -> bytes:
    """The first bytes of a good wire's file, and its size."""
    with userdma.open("soft:bnxt", wire=wire), open(wire_file(wire), "rb") as file:
        return file.read(16) + struct.pack("<Q", os.fstat(file.fileno()).st_size)


@pytest.mark.parametrize("content", [b"not a wire", b"\xff" * 100_000, b"\1" * 7, bytes(range(256)) * 64])
def test_a_file_that_is_no_wire(wire: str, content: bytes) -> None:
    """It is refused and left alone."""
    path = Path(wire_file(wire))
    path.write_bytes(content)
    text = attempt(wire)
    if text:
        assert "not a wire" in text and str(path) in text
        assert path.read_bytes() == content
        path.unlink()
    else:  # too short to be anything: as one that died before it had written its header
        assert len(content) < 16


def test_a_file_that_was_not_finished(wire: str) -> None:
    """Empty, or of zeros: its maker died before it was a wire."""
    for content in (b"", bytes(5), bytes(4096), bytes(1 << 20)):
        Path(wire_file(wire)).write_bytes(content)
        assert attempt(wire) == ""


def test_a_file_of_another_version(wire: str) -> None:
    """One that nobody has open is replaced; one in use is an error that says so."""
    good = header(wire)
    path = Path(wire_file(wire))
    other = good[:8] + struct.pack("<II", 999, 1) + bytes(4096)
    path.write_bytes(other)
    with Peer() as peer:
        peer.run("import fcntl; fcntl.lockf(os.open(path, os.O_RDWR), fcntl.LOCK_EX, 1, 5)", path=str(path))
        text = attempt(wire)
        assert "version" in text and str(path) in text
        assert path.read_bytes() == other
    assert attempt(wire) == ""


@pytest.mark.parametrize("size", [16, 4096, 100_000])
def test_a_file_that_was_cut_off(wire: str, size: int) -> None:
    good = header(wire)
    Path(wire_file(wire)).write_bytes(good[:16].ljust(size, b"\0"))
    assert attempt(wire) == ""


@pytest.mark.hasty
def test_a_file_that_is_cut_short_in_use(wire: str) -> None:
    """The pairs on it fail by their retries, as of a peer that is gone; nobody's process ends."""
    done = run(
        """
        import os, sys, userdma
        from userdma import Qp, Region, Side
        wire, path = sys.argv[1:]
        with userdma.open("soft:bnxt", wire=wire) as n, userdma.open("soft:bnxt", wire=wire) as m:
            r, a, b = Region.host(n, 1 << 16), Qp.make(n), Qp.make(m)
            s = Region.host(m, 1 << 16)
            a.connect(b.endpoint)
            b.connect(a.endpoint)
            for size in (8, 60000):
                b.receive(s, 0, size)
                a.send(r, 0, size)
                assert a.wait(Side.SEND, us=20_000_000).ok
            os.truncate(path, 0)
            for size in (8, 60000):
                b.receive(s, 0, size)
                a.send(r, 0, size)
            print(a.wait(Side.SEND, us=20_000_000).error, a.wait(Side.SEND, us=20_000_000).error)
        """,
        wire,
        wire_file(wire),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ErrorKind.RETRY_EXCEEDED", "ErrorKind.FLUSHED"]
    assert f"{wire_file(wire)} was cut short while NICs were on it" in done.stderr
    Path(wire_file(wire)).unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_file_full_of_garbage_behind_its_header(wire: str, seed: int) -> None:
    """Whatever lies in the records of a file that nobody has open, a NIC on it works or is refused."""
    good = header(wire)
    size = struct.unpack("<Q", good[16:])[0]
    with open(wire_file(wire), "wb") as file:
        file.truncate(size)
        file.write(good[:16] + random.Random(seed).randbytes(1 << 20))
    try:
        text = attempt(wire)
        assert text == "" or "wire" in text
    finally:
        Path(wire_file(wire)).unlink(missing_ok=True)


def test_a_link_or_folder_in_its_place(wire: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    path = Path(wire_file(wire))
    path.symlink_to(target)
    text = attempt(wire)
    assert str(path) in text
    assert target.read_bytes() == b"precious"
    path.unlink()
    path.mkdir()
    assert str(path) in attempt(wire)
    path.rmdir()
    os.mkfifo(path)
    text = attempt(wire)
    assert str(path) in text and "FIFO" in text
    path.unlink()


def test_what_killed_processes_left_goes_with_the_next_look_around(wire: str) -> None:
    for _ in range(5):  # another program of this user may look around right then
        with Peer() as peer:
            peer.run("nic = userdma.open('soft:bnxt', wire=wire)", wire=wire)
            subprocess.run([sys.executable, "-m", "userdma.cli", "devices"], check=True, capture_output=True)
            assert os.path.exists(wire_file(wire))  # somebody is on it
            peer.kill()
        if os.path.exists(wire_file(wire)):
            break
    else:
        raise AssertionError("nothing stays")
    subprocess.run([sys.executable, "-m", "userdma.cli", "devices"], check=True, capture_output=True)
    assert not os.path.exists(wire_file(wire))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_wire_of_another_user(wire: str, here: Nic) -> None:
    """Refused, and what to do about it: by the file's mode, and by its owner where that would not keep root out."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, attempt(wire).encode() or b"it worked")
        finally:
            os._exit(0)
    os.close(writer)
    assert ended(child) == 0
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert "another user's" in text and "Permission denied" in text and wire_file(wire) in text
    other = wire_name()
    path = Path(wire_file(other))
    path.write_bytes(b"")
    os.chown(path, 65534, 65534)
    assert "another user's" in attempt(other)
    path.unlink()


def test_the_file_goes_while_it_is_open(wire: str, here: Nic) -> None:
    """Somebody removes it: those on it go on, and the name is a new wire's."""
    with Peer() as peer:
        qp, memory = begin(peer, wire, here, n=PAGE)
        os.unlink(wire_file(wire))
        r = Region.host(here, PAGE)
        qp.read(memory, (r, 0), PAGE)
        assert done(qp, SEND) == PAGE
        with Peer() as other:
            other.run(BEGIN, name=MLX5, wire=wire, seed=0, n=PAGE)
            qp.read(memory, (r, 0), PAGE)
            assert done(qp, SEND) == PAGE
            other.end()
        peer.end()
