"""The packets, as scapy sees them: every frame of an exchange says what was posted, with a right ICRC and IP checksum;
and what scapy made is taken, answered, or thrown away, as the InfiniBand specification (volume 1, chapter 9) says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

import roce
from roce import (
    ACK,
    NAK_ACCESS,
    NAK_INVALID,
    NAK_OPERATION,
    NAK_SEQUENCE,
    OPCODES,
    RNR,
    Frame,
    put_together,
    take_apart,
)
from userdma import Access, Completion, Endpoint, ErrorKind, Qp, Region, RemoteMemory, soft
from world import ALL, RECEIVE, SEND, TIMEOUT, World

pytestmark = pytest.mark.hasty  # on a virtual clock, of which half a second takes no time

MASK = 0xFFFFFF
LENGTHS = [0, 1, 2, 3, 4, 255, 256, 257, 511, 512, 513, 1027]
MTU = 256


def places(kind: str, packets: int) -> list[str]:
    """The opcodes of a message's packets (9.2, table 38)."""
    if packets == 1:
        return [f"{kind}_ONLY"]
    return [f"{kind}_FIRST", *[f"{kind}_MIDDLE"] * (packets - 2), f"{kind}_LAST"]


def packets_of(n: int) -> int:
    return max(1, -(-n // MTU))


class Exchange:
    """Two NICs whose every frame is kept, and one connection."""

    def __init__(self, psn: int = 0xFFFFFE) -> None:
        self.world = World(seed=4)
        self.a, self.b = self.world.pair(mtu=MTU, psns=(psn, 0x123456), send=8, receive=8)
        self.mine, self.theirs = (self.world.region(nic, 8192, fill=None) for nic in self.world.nics)
        for region in (self.mine, self.theirs):
            region.write(0, self.world.random.randbytes(8192))
        self.world.wire.capture(100_000)

    def frames(self) -> tuple[list[Frame], list[Frame]]:
        """What a sent and what b sent, after everything came to rest."""
        self.world.settle()
        sent: dict[bytes, list[Frame]] = {self.a.nic.mac: [], self.b.nic.mac: []}
        for raw in self.world.wire.take():
            frame = take_apart(raw)
            sent[raw[6:12]].append(frame)
            one, two = (self.a, self.b) if raw[6:12] == self.a.nic.mac else (self.b, self.a)
            assert raw[:6] == two.nic.mac
            assert frame.qp == two.number
            assert frame.packet[IP].src == roce.address(one.nic.gid)
            assert frame.packet[IP].dst == roce.address(two.nic.gid)
            assert frame.packet[IP].ttl == 64
            assert frame.packet[BTH].pkey == 0xFFFF
            assert frame.packet[BTH].solicited == 0
        return sent[self.a.nic.mac], sent[self.b.nic.mac]

    def done(self, qp: Qp, side: Any) -> Completion:
        found = self.world.take(qp, side)
        assert found.ok, found.message
        return found


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    made = Exchange()
    with made.world:
        yield made


def data_packets(frames: list[Frame], kind: str, psn: int, data: bytes) -> int:
    """Checks a message's packets; the PSN after them."""
    count = packets_of(len(data))
    assert [frame.name for frame in frames] == places(kind, count)
    assert [frame.psn for frame in frames] == [psn + i & MASK for i in range(count)]
    assert [frame.payload for frame in frames] == [data[i * MTU : (i + 1) * MTU] for i in range(count)]
    return psn + count & MASK


@pytest.mark.parametrize("n", LENGTHS)
def test_send(exchange: Exchange, n: int) -> None:
    """SEND FIRST, MIDDLE, LAST or ONLY; PSNs from the endpoint's on, past the last one; ACKs with the message count."""
    psn = exchange.a.endpoint.psn
    for count in (1, 2, 3):
        exchange.b.receive(exchange.theirs, 4096, 4096)
        exchange.a.send(exchange.mine, count, n)
        asked, answers = exchange.frames()
        psn = data_packets(asked, "SEND", psn, exchange.mine.read(count, n))
        assert asked[-1].ack
        assert [answer.name for answer in answers] == ["ACKNOWLEDGE"]
        assert answers[0].psn == psn - 1 & MASK
        assert (answers[0].syndrome, answers[0].msn) == (ACK, count)
        assert exchange.done(exchange.b, RECEIVE).bytes == n
        assert exchange.done(exchange.a, SEND).bytes == n


@pytest.mark.parametrize("n", LENGTHS)
def test_write(exchange: Exchange, n: int) -> None:
    """RDMA WRITE: the RETH, in the first packet only, has the posted address, key and length (9.3.3)."""
    psn = exchange.a.endpoint.psn
    for count in (1, 2):
        to = exchange.theirs.remote(count)
        exchange.a.write((exchange.mine, 7), to, n)
        asked, answers = exchange.frames()
        psn = data_packets(asked, "RDMA_WRITE", psn, exchange.mine.read(7, n))
        assert (asked[0].va, asked[0].rkey, asked[0].length) == (to.address, to.rkey, n)
        assert asked[-1].ack
        assert [(answer.name, answer.psn) for answer in answers] == [("ACKNOWLEDGE", psn - 1 & MASK)]
        assert (answers[0].syndrome, answers[0].msn) == (ACK, count)
        assert exchange.done(exchange.a, SEND).bytes == n


@pytest.mark.parametrize("n", LENGTHS)
def test_read(exchange: Exchange, n: int) -> None:
    """RDMA READ: one request; each packet of its response takes a PSN, from its own on; AETH at the ends (9.4.4)."""
    psn = exchange.a.endpoint.psn
    for count in (1, 2):
        source = exchange.theirs.remote(5)
        exchange.a.read(source, (exchange.mine, 4096), n)
        asked, answers = exchange.frames()
        assert [(request.name, request.psn, request.payload) for request in asked] == [("RDMA_READ_REQUEST", psn, b"")]
        assert (asked[0].va, asked[0].rkey, asked[0].length) == (source.address, source.rkey, n)
        psn = data_packets(answers, "RDMA_READ_RESPONSE", psn, exchange.theirs.read(5, n))
        for answer in answers:
            assert not answer.ack
            if not answer.name.endswith("MIDDLE"):
                assert (answer.syndrome, answer.msn) == (ACK, count)
        assert exchange.done(exchange.a, SEND).bytes == n


def test_an_exchange_both_ways(exchange: Exchange) -> None:
    """Requests of each direction have PSNs of their own, in the order they were posted; the MSN counts messages."""
    exchange.b.receive(exchange.theirs, 0, 1000)
    exchange.a.receive(exchange.mine, 0, 1000)
    exchange.a.write((exchange.mine, 4096), exchange.theirs.remote(4096), 600)
    exchange.a.read(exchange.theirs.remote(4096), (exchange.mine, 2048), 600)
    exchange.a.send(exchange.mine, 4096, 300)
    exchange.b.send(exchange.theirs, 2048, 700)
    for qp, side, count in ((exchange.a, SEND, 3), (exchange.b, SEND, 1), (exchange.a, RECEIVE, 1)):
        for _ in range(count):
            exchange.done(qp, side)
    exchange.done(exchange.b, RECEIVE)
    from_a, from_b = exchange.frames()
    for qp, sent, received, messages, psns in (
        (exchange.a, from_a, from_b, 3, 3 + 3 + 2),
        (exchange.b, from_b, from_a, 1, 3),
    ):
        requests = [f for f in sent if "RESPONSE" not in f.name and f.name != "ACKNOWLEDGE"]
        answers = [f for f in received if "RESPONSE" in f.name or f.name == "ACKNOWLEDGE"]
        assert requests[0].psn == qp.endpoint.psn
        for before, after in pairwise(requests):
            assert after.psn == before.psn + (3 if before.name == "RDMA_READ_REQUEST" else 1) & MASK
        assert answers[-1].psn == qp.endpoint.psn + psns - 1 & MASK
        assert answers[-1].msn == messages
        counts = [answer.msn for answer in answers if not answer.name.endswith("MIDDLE")]
        assert counts == sorted(counts)


def test_receiver_not_ready(exchange: Exchange) -> None:
    """RNR NAK (9.7.5.2.8): the PSN that found no receive, and a timer for which nothing is sent."""
    exchange.a.send(exchange.mine, 0, 600)
    for _ in range(4):
        exchange.world.clock.step()
    raw = exchange.world.wire.take()
    frames = [take_apart(each) for each in raw]
    nak = next(frame for frame in frames if frame.name == "ACKNOWLEDGE")
    assert nak.syndrome & 0xE0 == RNR
    assert (nak.psn, nak.msn) == (exchange.a.endpoint.psn, 0)
    exchange.b.receive(exchange.theirs, 0, 600)
    exchange.done(exchange.a, SEND)
    asked, answers = exchange.frames()
    assert [frame.name for frame in asked[-3:]] == places("SEND", 3)
    assert [(answers[-1].syndrome, answers[-1].msn)] == [(ACK, 1)]
    assert exchange.done(exchange.b, RECEIVE).bytes == 600


def test_the_naks_that_end_a_pair(exchange: Exchange) -> None:
    """9.9.3 class C: a NAK with the syndrome and the PSN of the request that is at fault."""
    exchange.b.receive(exchange.theirs, 0, 300)
    exchange.a.write((exchange.mine, 0), exchange.theirs.remote(0), 10)
    exchange.a.send(exchange.mine, 0, 600)
    _, answers = exchange.frames()
    nak = answers[-1]
    assert nak.name == "ACKNOWLEDGE"
    # The second packet of the send is where its receive ends: the write had one PSN.
    assert (nak.syndrome, nak.psn, nak.msn) == (NAK_INVALID, exchange.a.endpoint.psn + 2 & MASK, 1)
    assert exchange.done(exchange.a, SEND).bytes == 10
    assert exchange.world.take(exchange.a, SEND).error is ErrorKind.REMOTE_INVALID_REQUEST


# ---- a peer made of scapy --------------------------------------------------------------------------------------------


class Peer:
    """A queue pair of a soft NIC whose peer is this test: it sees the NIC's frames and sends what it likes."""

    MAC = bytes([2, 0, 0, 0, 0, 0x63])
    GID = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 0x63])
    QP = 0x123

    def __init__(self, world: World, *, psn: int = 0xFFFFFE, immediate: bool = True, remote: Access = ALL) -> None:
        self.world = world
        self.nic = world.nics[0]
        self.tap = soft.Tap(world.wire, self.MAC)
        self.qp = world.make(self.nic, 0xFFFFFF, send=8, receive=8, immediate=immediate)
        self.qp.connect(Endpoint(self.QP, psn, self.GID, self.MAC), mtu=MTU, remote=remote)
        self.psn = psn
        self.region: Region = world.region(self.nic, 8192, fill=None)
        self.data = world.random.randbytes(8192)
        self.region.write(0, self.data)

    def frame(self, name: str, psn: int, **fields: Any) -> bytes:
        ends = {"source": (self.MAC, self.GID), "destination": (self.nic.mac, self.nic.gid), "qp": self.qp.number}
        return put_together(name, **{**ends, "psn": psn & MASK, **fields})

    def send(self, name: str, psn: int | None = None, **fields: Any) -> None:
        """A packet to the NIC: the next PSN's, if none is given."""
        if psn is None:
            psn, self.psn = self.psn, self.psn + 1
        assert self.tap.send(self.frame(name, psn, **fields)) == ""

    def answers(self) -> list[Frame]:
        """What the NIC sent since, checked; no time passes."""
        self.world.clock.advance(0)
        frames = [take_apart(raw) for raw in self.tap.receive()]
        for frame in frames:
            assert frame.qp == self.QP
            assert frame.raw[:12] == self.MAC + self.nic.mac
        return frames

    def nak(self, syndrome: int, psn: int, msn: int) -> None:
        (answer,) = self.answers()
        assert (answer.name, answer.syndrome, answer.psn, answer.msn) == ("ACKNOWLEDGE", syndrome, psn & MASK, msn)

    def ok(self, side: Any) -> Completion:
        found = self.qp.poll(side)
        assert found is not None
        assert found.ok, found.message
        return found


@pytest.fixture
def peer() -> Iterator[Peer]:
    with World(1, seed=6) as world:
        made = Peer(world)
        yield made
        made.tap.close()


def test_scapys_sends_arrive(peer: Peer) -> None:
    peer.qp.receive(peer.region, 0, 600)
    data = bytes(range(256)) * 3
    peer.send("SEND_FIRST", payload=data[:256])
    peer.send("SEND_MIDDLE", payload=data[256:512])
    assert peer.answers() == []
    assert peer.qp.poll(RECEIVE) is None
    peer.send("SEND_LAST", payload=data[512:591], ack=True)
    peer.nak(ACK, peer.psn - 1, 1)
    assert peer.ok(RECEIVE) == Completion(bytes=591)
    assert peer.region.read(0, 592) == data[:591] + peer.data[591:592]
    for count, n in enumerate((0, 1, 2, 3, 4, 256), 2):
        peer.qp.receive(peer.region, 1024, 256)
        peer.send("SEND_ONLY", payload=data[:n], ack=True)
        peer.nak(ACK, peer.psn - 1, count)
        assert peer.ok(RECEIVE).bytes == n
        assert peer.region.read(1024, n) == data[:n]


def test_scapys_immediate_data_arrives(peer: Peer) -> None:
    for number, name in enumerate(
        ("SEND_ONLY_WITH_IMMEDIATE", "RDMA_WRITE_ONLY_WITH_IMMEDIATE", "SEND_FIRST", "RDMA_WRITE_FIRST"), 1
    ):
        place = peer.region.remote(4096)
        peer.qp.receive(peer.region, 0, 1024)
        payload = bytes([number]) * 256
        where = {"va": place.address, "rkey": place.rkey, "length": 256 if "ONLY" in name else 266}
        where = where if "WRITE" in name else {}
        if "ONLY" in name:
            peer.send(name, payload=payload, ack=True, immediate=0xFEEDF00D + number, **where)
        else:
            peer.send(name, payload=payload, **where)
            last = name.replace("FIRST", "LAST_WITH_IMMEDIATE")
            peer.send(last, payload=b"and the end"[:10], ack=True, immediate=0xFEEDF00D + number)
            payload += b"and the end"[:10]
        peer.nak(ACK, peer.psn - 1, number)
        assert peer.ok(RECEIVE) == Completion(bytes=len(payload), immediate=0xFEEDF00D + number)
        assert peer.region.read(4096 if "WRITE" in name else 0, len(payload)) == payload


def test_immediate_data_that_was_not_asked_for_fails_the_pair() -> None:
    with World(1) as world:
        peer = Peer(world, immediate=False)
        for at in (0, 64):
            peer.qp.receive(peer.region, at, 64)
        peer.send("SEND_ONLY_WITH_IMMEDIATE", payload=b"1234", ack=True, immediate=5)
        for _ in range(2):
            found = peer.qp.poll(RECEIVE)
            assert found is not None
            assert found.error is ErrorKind.FLUSHED
            assert "immediate" in found.message


def test_scapys_writes_land(peer: Peer) -> None:
    place = peer.region.remote(1000)
    data = bytes(range(1, 255)) * 3
    peer.send("RDMA_WRITE_FIRST", payload=data[:256], va=place.address, rkey=place.rkey, length=600)
    peer.send("RDMA_WRITE_MIDDLE", payload=data[256:512])
    peer.send("RDMA_WRITE_LAST", payload=data[512:600], ack=True)
    peer.nak(ACK, peer.psn - 1, 1)
    peer.send("RDMA_WRITE_ONLY", payload=b"123", ack=True, va=place.address + 600, rkey=place.rkey, length=3)
    peer.nak(ACK, peer.psn - 1, 2)
    peer.send("RDMA_WRITE_ONLY", ack=True, va=0, rkey=0, length=0)
    peer.nak(ACK, peer.psn - 1, 3)
    assert peer.region.read(0, 8192) == peer.data[:1000] + data[:600] + b"123" + peer.data[1603:]


def test_scapys_reads_are_answered(peer: Peer) -> None:
    place = peer.region.remote(3)
    for count, n in enumerate(LENGTHS, 1):
        psn = peer.psn
        peer.send("RDMA_READ_REQUEST", va=place.address, rkey=place.rkey, length=n, ack=True)
        peer.psn = psn + packets_of(n)
        answers = peer.answers()
        data_packets(answers, "RDMA_READ_RESPONSE", psn & MASK, peer.data[3 : 3 + n])
        ends = [(answer.syndrome, answer.msn) for answer in answers if not answer.name.endswith("MIDDLE")]
        assert set(ends) == {(ACK, count)}
    # A read that was answered is answered again, the whole or its rest (9.7.5.1.4).
    n, psn = LENGTHS[-1], peer.psn - packets_of(LENGTHS[-1])
    for skip in (0, 2, 0):
        peer.send(
            "RDMA_READ_REQUEST",
            psn + skip,
            va=place.address + skip * MTU,
            rkey=place.rkey,
            length=n - skip * MTU,
            ack=True,
        )
        data_packets(peer.answers(), "RDMA_READ_RESPONSE", psn + skip & MASK, peer.data[3 + skip * MTU : 3 + n])


def test_scapys_atomics_are_executed_once(peer: Peer) -> None:
    """FETCH ADD and COMPARE SWAP (9.4.5): the answer has the value before; a duplicate gets the same answer again."""

    def value() -> int:
        return struct.unpack("<Q", peer.region.read(16, 8))[0]

    peer.region.write(16, struct.pack("<Q", 1 << 40))
    place = peer.region.remote(16)
    where = {"va": place.address, "rkey": place.rkey}
    results = []
    for name, fields, before, after in (
        ("FETCH_ADD", {"swap_or_add": 5}, 1 << 40, (1 << 40) + 5),
        ("FETCH_ADD", {"swap_or_add": (1 << 64) - 6}, (1 << 40) + 5, (1 << 40) - 1),
        ("COMPARE_SWAP", {"compare": 9, "swap_or_add": 1}, (1 << 40) - 1, (1 << 40) - 1),
        ("COMPARE_SWAP", {"compare": (1 << 40) - 1, "swap_or_add": 77}, (1 << 40) - 1, 77),
    ):
        peer.send(name, ack=True, **where, **fields)
        (answer,) = peer.answers()
        assert (answer.name, answer.psn, answer.payload) == ("ATOMIC_ACKNOWLEDGE", peer.psn - 1 & MASK, b"")
        assert (answer.syndrome, answer.original) == (ACK, before)
        assert value() == after
        results.append((name, peer.psn - 1, fields, before))
        assert answer.msn == len(results)
    for name, psn, fields, before in reversed(results):
        peer.send(name, psn, ack=True, **where, **fields)
        (answer,) = peer.answers()
        assert (answer.name, answer.psn, answer.original) == ("ATOMIC_ACKNOWLEDGE", psn & MASK, before)
        assert value() == 77


def test_a_gap_is_asked_for_once(peer: Peer) -> None:
    """9.7.5.1.2, NAK 0: the PSN that is missing; what follows the gap is thrown away until it comes."""
    for at in (0, 64, 128):
        peer.qp.receive(peer.region, at, 64)
    peer.send("SEND_ONLY", payload=b"1st", ack=True)
    peer.nak(ACK, peer.psn - 1, 1)
    peer.send("SEND_ONLY", peer.psn + 1, payload=b"3rd", ack=True)
    peer.nak(NAK_SEQUENCE, peer.psn, 1)
    peer.send("SEND_ONLY", peer.psn + 2, payload=b"4th", ack=True)
    assert peer.answers() == []
    peer.send("SEND_ONLY", payload=b"2nd", ack=True)
    peer.nak(ACK, peer.psn - 1, 2)
    peer.send("SEND_ONLY", payload=b"3rd", ack=True)
    peer.nak(ACK, peer.psn - 1, 3)
    # A duplicate is acknowledged again, and lands nowhere.
    peer.send("SEND_ONLY", peer.psn - 3, payload=b"1st again", ack=True)
    peer.nak(ACK, peer.psn - 1, 3)
    for at, text in ((0, b"1st"), (64, b"2nd"), (128, b"3rd")):
        assert peer.ok(RECEIVE).bytes == 3
        assert peer.region.read(at, 3) == text
    assert peer.region.read(3, 61) == peer.data[3:64]


def test_no_receive(peer: Peer) -> None:
    peer.send("SEND_ONLY", peer.psn, payload=b"too early", ack=True)
    (answer,) = peer.answers()
    assert (answer.name, answer.psn, answer.msn) == ("ACKNOWLEDGE", peer.psn, 0)
    assert answer.syndrome & 0xE0 == RNR
    # What else is under way is thrown away, until the requester comes again.
    peer.send("SEND_ONLY", peer.psn + 1, payload=b"too early", ack=True)
    assert peer.answers() == []
    peer.qp.receive(peer.region, 0, 64)
    peer.send("SEND_ONLY", payload=b"now", ack=True)
    peer.nak(ACK, peer.psn - 1, 1)
    assert peer.ok(RECEIVE).bytes == 3


BAD: dict[str, tuple[str, dict[str, Any], int]] = {
    "a middle without a first": ("SEND_MIDDLE", {"payload": bytes(256)}, NAK_INVALID),
    "a last without a first": ("SEND_LAST", {"payload": bytes(6)}, NAK_INVALID),
    "a write's middle without a first": ("RDMA_WRITE_MIDDLE", {"payload": bytes(256)}, NAK_INVALID),
    "a first that is not a whole MTU": ("SEND_FIRST", {"payload": bytes(200)}, NAK_INVALID),
    "more than an MTU": ("SEND_ONLY", {"payload": bytes(257)}, NAK_INVALID),
    "more than the receive takes": ("SEND_ONLY", {"payload": bytes(65)}, NAK_INVALID),
    "a write of another length": ("RDMA_WRITE_ONLY", {"payload": bytes(8), "length": 9}, NAK_INVALID),
    "a write's first that is all": ("RDMA_WRITE_FIRST", {"payload": bytes(256), "length": 256}, NAK_INVALID),
    "a reserved opcode": ("SEND_ONLY", {"bth": {"opcode": 0x15}, "extension": b""}, NAK_INVALID),
    "a key that there is not": ("RDMA_WRITE_ONLY", {"payload": bytes(8), "length": 8, "rkey": 0x7700}, NAK_ACCESS),
    "a write past the end": ("RDMA_WRITE_ONLY", {"payload": bytes(8), "length": 8, "va": 8185}, NAK_ACCESS),
    "a write before the beginning": ("RDMA_WRITE_ONLY", {"payload": bytes(8), "length": 8, "va": -1}, NAK_ACCESS),
    "a read past the end": ("RDMA_READ_REQUEST", {"length": 8193, "va": 0}, NAK_ACCESS),
    "an atomic off its boundary": ("FETCH_ADD", {"va": 4}, NAK_INVALID),
    "an atomic past the end": ("FETCH_ADD", {"va": 8192}, NAK_ACCESS),
    "a read of more than a message": ("RDMA_READ_REQUEST", {"length": (1 << 31) + 1}, NAK_INVALID),
}


@pytest.mark.parametrize("what", BAD)
def test_a_wrong_request_is_refused(peer: Peer, what: str) -> None:
    """9.7.4, 9.9.3: a NAK that says why; then the pair is in error, says nothing more, and has changed nothing."""
    name, fields, syndrome = BAD[what]
    place = peer.region.remote()
    fields = dict(fields)
    if roce.has_reth(name) or name in ("FETCH_ADD", "COMPARE_SWAP"):
        fields["va"] = place.address + fields.get("va", 0)
        fields["rkey"] = fields.get("rkey", place.rkey)
    peer.qp.receive(peer.region, 0, 64)
    peer.send("SEND_ONLY", payload=b"good", ack=True)
    peer.nak(ACK, peer.psn - 1, 1)
    assert peer.ok(RECEIVE).bytes == 4
    peer.qp.receive(peer.region, 64, 64)
    peer.send(name, peer.psn, ack=True, **fields)
    peer.nak(syndrome, peer.psn, 1)
    peer.send("SEND_ONLY", peer.psn, payload=b"late", ack=True)
    assert peer.answers() == []
    found = peer.qp.poll(RECEIVE)
    assert found is not None
    assert not found.ok
    if what == "more than the receive takes":
        assert found.error is ErrorKind.LOCAL_LENGTH
    assert peer.region.read(0, 8192) == b"good" + peer.data[4:]


def test_a_receive_whose_region_is_gone(peer: Peer) -> None:
    """9.7.5.2.7, NAK 3: the responder could not, by no fault of the request."""
    region = peer.world.region(peer.nic, 4096)
    peer.qp.receive(region, 0, 64)
    region.deregister()
    peer.send("SEND_ONLY", peer.psn, payload=b"data", ack=True)
    peer.nak(NAK_OPERATION, peer.psn, 0)
    found = peer.qp.poll(RECEIVE)
    assert found is not None
    assert found.error is ErrorKind.LOCAL_PROTECTION


@pytest.mark.parametrize(
    ("right", "name", "fields"),
    [
        (Access.WRITE, "RDMA_WRITE_ONLY", {"length": 8, "payload": bytes(8)}),
        (Access.READ, "RDMA_READ_REQUEST", {"length": 8}),
        (Access.ATOMIC, "FETCH_ADD", {"swap_or_add": 1}),
    ],
)
@pytest.mark.parametrize("whose", ["pair", "region"])
def test_rights(right: Access, name: str, fields: dict[str, Any], whose: str) -> None:
    """9.7.4.1.3 (the pair does not do it: invalid request), 9.7.4.1.5 (the key does not allow it: access)."""
    with World(1, seed=2) as world:
        peer = Peer(world, remote=ALL & ~right if whose == "pair" else ALL)
        region = world.region(peer.nic, 4096, remote=ALL if whose == "pair" else ALL & ~right)
        before = region.read(0, 4096)
        place = region.remote()
        peer.send(name, peer.psn, ack=True, va=place.address, rkey=place.rkey, **fields)
        peer.nak(NAK_INVALID if whose == "pair" else NAK_ACCESS, peer.psn, 0)
        assert region.read(0, 4096) == before
        peer.tap.close()


def test_packets_of_no_concern_are_dropped(peer: Peer) -> None:
    """9.6.1: another queue pair, partition, address or transport; neither an answer nor any harm."""
    peer.qp.receive(peer.region, 0, 64)
    other = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 0x64])
    for fields in (
        {"qp": 0x3FFFFF},
        {"qp": 1},
        {"bth": {"pkey": 0x1234}},
        {"source": (Peer.MAC, other)},
        {"destination": (peer.nic.mac, other)},
        {"bth": {"opcode": 0x24}},  # of an unreliable connection
        {"bth": {"opcode": 0x64}, "extension": struct.pack("!II", 0x11111111, 5)},  # of a datagram
        {"bth": {"opcode": 0x81}, "extension": bytes(16), "payload": b""},  # a congestion notification
        {"bth": {"opcode": OPCODES["ACKNOWLEDGE"]}, "extension": bytes([ACK, 0, 0, 1]), "payload": b""},
        {"bth": {"opcode": OPCODES["RDMA_READ_RESPONSE_ONLY"]}, "extension": bytes([ACK, 0, 0, 1])},
    ):
        peer.send("SEND_ONLY", peer.psn, **{"payload": b"lost", "ack": True, **fields})
        assert peer.answers() == []
    assert peer.region.read(0, 8192) == peer.data
    peer.send("SEND_ONLY", payload=b"good", ack=True)
    peer.nak(ACK, peer.psn - 1, 1)
    assert peer.ok(RECEIVE).bytes == 4


# ---- scapy answers ---------------------------------------------------------------------------------------------------


def test_scapys_acknowledgements_complete_sends(peer: Peer) -> None:
    """One for several requests, and one in the middle of a message (9.7.5.1.1)."""
    for n in (10, 600, 20):
        peer.qp.send(peer.region, 0, n)
    asked = peer.answers()
    assert [frame.name for frame in asked] == ["SEND_ONLY", *places("SEND", 3), "SEND_ONLY"]
    assert [frame.psn for frame in asked] == [0xFFFFFF, 0, 1, 2, 3]
    assert peer.qp.room(SEND) == 5
    peer.send("ACKNOWLEDGE", 1, syndrome=ACK, msn=1)
    assert peer.ok(SEND).bytes == 10
    peer.send("ACKNOWLEDGE", 3, syndrome=ACK, msn=3)
    assert [peer.ok(SEND).bytes for _ in range(2)] == [600, 20]
    assert peer.answers() == []


def test_scapys_read_responses_land(peer: Peer) -> None:
    remote = RemoteMemory(0x1234_5678_9ABC_DEF0, 0xCAFE01, 600)
    peer.qp.read(remote, (peer.region, 100), 600)
    peer.qp.send(peer.region, 0, 1)
    asked = peer.answers()
    assert (asked[0].name, asked[0].psn, asked[0].ack) == ("RDMA_READ_REQUEST", 0xFFFFFF, True)
    assert (asked[0].va, asked[0].rkey, asked[0].length) == (remote.address, remote.rkey, 600)
    assert [(frame.name, frame.psn) for frame in asked[1:]] == [("SEND_ONLY", 2)]
    data = bytes(reversed(range(256))) * 3
    peer.send("RDMA_READ_RESPONSE_FIRST", 0xFFFFFF, payload=data[:256], msn=1)
    peer.send("RDMA_READ_RESPONSE_MIDDLE", 0, payload=data[256:512])
    # What is late is asked for again, but for what has landed.
    assert peer.answers() == []
    peer.world.clock.advance(TIMEOUT)
    again = peer.answers()
    assert [(frame.name, frame.psn) for frame in again] == [("RDMA_READ_REQUEST", 1), ("SEND_ONLY", 2)]
    assert (again[0].va, again[0].rkey, again[0].length) == (remote.address + 512, remote.rkey, 88)
    peer.send("RDMA_READ_RESPONSE_LAST", 1, payload=data[512:600], msn=1)
    assert peer.ok(SEND).bytes == 600
    peer.send("ACKNOWLEDGE", 2, syndrome=ACK, msn=2)
    assert peer.ok(SEND).bytes == 1
    assert peer.region.read(0, 8192) == peer.data[:100] + data[:600] + peer.data[700:]


@pytest.mark.parametrize(
    ("syndrome", "error"),
    [
        (NAK_INVALID, ErrorKind.REMOTE_INVALID_REQUEST),
        (NAK_ACCESS, ErrorKind.REMOTE_ACCESS),
        (NAK_OPERATION, ErrorKind.REMOTE_OPERATION),
        (0x7F, ErrorKind.BAD_RESPONSE),
        (0x9F, ErrorKind.BAD_RESPONSE),
    ],
)
def test_scapys_naks_fail_the_entry_they_name(peer: Peer, syndrome: int, error: ErrorKind) -> None:
    """9.9.2: the entries before it are done, it has the NAK's error, the rest are flushed."""
    for n in (1, 600, 2):
        peer.qp.send(peer.region, 0, n)
    assert len(peer.answers()) == 5
    peer.send("ACKNOWLEDGE", 1, syndrome=syndrome, msn=1)
    assert peer.ok(SEND).bytes == 1
    found = [peer.qp.poll(SEND), peer.qp.poll(SEND)]
    assert [each and each.error for each in found] == [error, ErrorKind.FLUSHED]
    peer.world.clock.advance(20 * TIMEOUT)
    assert peer.answers() == []


def test_scapys_sequence_nak_is_gone_back_for(peer: Peer) -> None:
    """9.7.5.1.2: it acknowledges what is before its PSN, and everything from there on is sent again, at once."""
    for n in (1, 600, 2):
        peer.qp.send(peer.region, 0, n)
    assert len(peer.answers()) == 5
    peer.send("ACKNOWLEDGE", 1, syndrome=NAK_SEQUENCE, msn=1)
    assert peer.ok(SEND).bytes == 1
    again = peer.answers()
    assert [(frame.name, frame.psn) for frame in again] == [("SEND_MIDDLE", 1), ("SEND_LAST", 2), ("SEND_ONLY", 3)]
    assert b"".join(frame.payload for frame in again) == peer.data[256:600] + peer.data[:2]
    peer.send("ACKNOWLEDGE", 3, syndrome=ACK, msn=3)
    assert [peer.ok(SEND).bytes for _ in range(2)] == [600, 2]


@pytest.mark.parametrize(("code", "microseconds"), [(1, 10), (12, 640), (20, 10240), (31, 491520), (0, 655360)])
def test_scapys_rnr_nak_is_waited_for(peer: Peer, code: int, microseconds: int) -> None:
    """9.7.5.2.8 and its table of timers: nothing is sent for that long, and then all of it again."""
    peer.qp.send(peer.region, 0, 600)
    asked = peer.answers()
    assert len(asked) == 3
    peer.send("ACKNOWLEDGE", 0xFFFFFF, syndrome=RNR | code, msn=0)
    assert peer.answers() == []
    peer.world.clock.advance(microseconds * 1000 - 1)
    assert peer.answers() == []
    peer.world.clock.advance(1)
    assert [frame.raw for frame in peer.answers()] == [frame.raw for frame in asked]
    peer.send("ACKNOWLEDGE", 1, syndrome=ACK, msn=1)
    assert peer.ok(SEND).bytes == 600


def test_a_timeout_sends_again_what_was_sent(peer: Peer) -> None:
    """9.7.6.1.3: the same frames, 7 times, each 67.1 ms after the one before."""
    peer.qp.send(peer.region, 0, 300)
    asked = [frame.raw for frame in peer.answers()]
    for _ in range(7):
        peer.world.clock.advance(TIMEOUT - 1)
        assert peer.answers() == []
        peer.world.clock.advance(1)
        assert [frame.raw for frame in peer.answers()] == asked
    peer.world.clock.advance(TIMEOUT)
    assert peer.answers() == []
    found = peer.qp.poll(SEND)
    assert found is not None
    assert found.error is ErrorKind.RETRY_EXCEEDED


def test_a_response_that_nobody_asked_for_is_ignored(peer: Peer) -> None:
    """9.7.5.1.3: ghosts of earlier tries. One that answers what is under way with what it cannot have is an error."""
    peer.qp.send(peer.region, 0, 5)
    assert len(peer.answers()) == 1
    for psn in (0xFFFFFE, 0, 1, 0x7FFFFF):
        for name, fields in (("ACKNOWLEDGE", {"syndrome": ACK}), ("RDMA_READ_RESPONSE_ONLY", {"payload": b"1234"})):
            peer.send(name, psn, **fields)
    assert peer.qp.poll(SEND) is None
    peer.send("RDMA_READ_RESPONSE_ONLY", 0xFFFFFF, payload=b"1234")
    found = peer.qp.poll(SEND)
    assert found is not None
    assert found.error is ErrorKind.BAD_RESPONSE
    assert peer.region.read(0, 8192) == peer.data


@pytest.mark.parametrize(
    ("name", "n"),
    [("FIRST", 255), ("FIRST", 600), ("ONLY", 600), ("ONLY", 3), ("LAST", 88), ("MIDDLE", 256), ("FIRST", 0)],
)
def test_read_responses_of_a_wrong_shape(peer: Peer, name: str, n: int) -> None:
    """9.9.2.4.2: none of them lands outside of where the read goes."""
    peer.qp.read(RemoteMemory(0x1000, 5, 600), (peer.region, 100), 600)
    peer.send(f"RDMA_READ_RESPONSE_{name}", 0xFFFFFF, payload=bytes(n))
    found = peer.qp.poll(SEND)
    assert found is not None
    assert found.error is ErrorKind.BAD_RESPONSE
    assert peer.region.read(0, 100) == peer.data[:100]
    assert peer.region.read(700, 7492) == peer.data[700:]


# ---- frames by themselves --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taps() -> Iterator[tuple[Any, Any]]:
    wire = soft.Wire(frames=True)
    pair = soft.Tap(wire, Peer.MAC), soft.Tap(wire, bytes([2, 0, 0, 0, 0, 9]))
    yield pair
    for tap in pair:
        tap.close()


RAW = st.binary(max_size=600)
U8, U16, U24, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 24, 32, 64))
FIELDS = st.fixed_dictionaries(
    {"va": U64, "rkey": U32, "length": U32, "swap_or_add": U64, "compare": U64, "syndrome": U8, "msn": U24}
    | {"original": U64, "immediate": U32}
)


@settings(max_examples=300)
@given(
    name=st.sampled_from(sorted(OPCODES)),
    fields=FIELDS,
    payload=RAW,
    numbers=st.tuples(U24, U24, U16, U8, st.integers(1, 255), U16),
    flags=st.tuples(*[st.booleans()] * 5),
    four=st.booleans(),
)
def test_scapys_frames_go_in_and_come_out_the_same(
    taps: tuple[Any, Any],
    name: str,
    fields: dict[str, int],
    payload: bytes,
    numbers: tuple[int, ...],
    flags: tuple[bool, ...],
    four: bool,
) -> None:
    """The codec takes a frame of any opcode apart and puts it together again, over IPv4 and IPv6."""
    if name in ("RDMA_READ_REQUEST", "ACKNOWLEDGE", "ATOMIC_ACKNOWLEDGE", "COMPARE_SWAP", "FETCH_ADD"):
        payload = b""
    qp, psn, pkey, tos, ttl, sport = numbers
    ack, solicited, migrated, fecn, becn = flags
    if four:
        ends = {"source": (Peer.MAC, Peer.GID), "destination": (bytes([2, 0, 0, 0, 0, 9]), Peer.GID[:15] + b"\x09")}
        ip: dict[str, Any] = {"tos": tos, "ttl": ttl}
    else:
        ends = {"source": (Peer.MAC, bytes(16)), "destination": (bytes([2, 0, 0, 0, 0, 9]), bytes(16))}
        ip = {"src": "fe80::63", "dst": "2001:db8::9", "tc": tos, "hlim": ttl}
    frame = put_together(
        name,
        **ends,
        qp=qp,
        psn=psn,
        payload=payload,
        ack=ack,
        ip=ip,
        udp={"sport": sport},
        bth={"pkey": pkey, "solicited": solicited, "migreq": migrated, "fecn": fecn, "becn": becn},
        **fields,
    )
    assert taps[0].send(frame) == ""
    assert taps[1].receive() == [frame]


def sealed(frame: bytes, change: Any) -> bytes:
    """The frame after a change that its sums do not betray."""
    packet = Ether(frame)
    change(packet)
    if IP in packet:
        del packet[IP].chksum
    if BTH in packet:
        packet[BTH].icrc = None
    return bytes(packet)


def edit(at: int, value: int) -> Any:
    return lambda frame: frame[:at] + bytes([value]) + frame[at + 1 :]


def setting(layer: Any, **fields: Any) -> Any:
    def change(packet: Any) -> None:
        for field, value in fields.items():
            setattr(packet[layer], field, value)

    return lambda frame: sealed(frame, change)


MALFORMED: dict[str, tuple[Any, str]] = {
    "cut off": (lambda frame: frame[:-1], "truncated"),
    "nothing but Ethernet": (lambda frame: frame[:14], "truncated"),
    "nothing": (lambda frame: b"", "truncated"),
    "ARP": (lambda frame: frame[:12] + b"\x08\x06" + frame[14:], "not IP"),
    "version 6 in version 4": (edit(14, 0x65), "wrong IP version"),
    "IP options": (edit(14, 0x46), "wrong IP header length"),
    "IP checksum": (lambda frame: edit(24, frame[24] ^ 1)(frame), "wrong IP header checksum"),
    "TCP": (setting(IP, proto=6), "not UDP"),
    "a fragment": (setting(IP, frag=4), "IP fragment"),
    "the first of fragments": (setting(IP, flags="MF"), "IP fragment"),
    "another port": (setting(UDP, dport=4790), "not UDP port 4791"),
    "UDP longer than IP": (setting(UDP, len=4000), "wrong IP length"),
    "another BTH version": (setting(BTH, version=1), "wrong transport header version"),
    "a reliable datagram": (setting(BTH, opcode=0x44), "opcode of another transport"),
    "more padding than payload": (lambda frame: put(b"", pad=3), "wrong padding"),
    "not a multiple of 4": (lambda frame: put(b"12345", pad=0, tail=b"12345"), "wrong padding"),
    "a payload where there is none": (lambda frame: put(b"1234", opcode=0x0C, tail=bytes(20)), "wrong padding"),
    "too short for its headers": (lambda frame: put(b"", opcode=0x0C, tail=bytes(12)), "wrong UDP length"),
    "ICRC": (lambda frame: edit(len(frame) - 1, frame[-1] ^ 1)(frame), "wrong ICRC"),
    "payload": (lambda frame: edit(60, frame[60] ^ 4)(frame), "wrong ICRC"),
    "PSN": (lambda frame: edit(53, frame[53] ^ 1)(frame), "wrong ICRC"),
}


def put(payload: bytes, *, pad: int = 0, opcode: int = 4, tail: bytes | None = None) -> bytes:
    ends = {"source": (Peer.MAC, Peer.GID), "destination": (bytes([2, 0, 0, 0, 0, 9]), Peer.GID)}
    tail = payload if tail is None else tail
    return put_together("SEND_ONLY", **ends, qp=1, psn=1, extension=tail, bth={"opcode": opcode, "padcount": pad})


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_frame_is_thrown_away(taps: tuple[Any, Any], what: str) -> None:
    """And why is said."""
    change, why = MALFORMED[what]
    assert taps[0].send(change(put(b"12345678"))) == why
    assert taps[1].receive() == []


def test_what_follows_the_packet_is_no_part_of_it(taps: tuple[Any, Any]) -> None:
    """The padding of a short Ethernet frame."""
    frame = put(b"")
    assert taps[0].send(frame + bytes(6)) == ""
    assert taps[1].receive() == [frame]


@settings(max_examples=300)
@given(flips=st.lists(st.integers(0, 8 * 86 - 1), min_size=1, max_size=4, unique=True))
def test_damage_is_found(taps: tuple[Any, Any], flips: list[int]) -> None:
    """Up to 4 bits anywhere: thrown away, but for bits that routers change, which the ICRC leaves out (A17.3.3)."""
    good = put_together(
        "SEND_ONLY",
        source=(Peer.MAC, Peer.GID),
        destination=(bytes([2, 0, 0, 0, 0, 9]), Peer.GID),
        qp=5,
        psn=6,
        payload=bytes(range(28)),
    )
    assert len(good) == 86
    bad = bytearray(good)
    for bit in flips:
        bad[bit // 8] ^= 1 << bit % 8
    taken = taps[0].send(bytes(bad)) == ""
    taps[1].receive()
    taps[0].receive()
    if taken:
        # The Ethernet header; type of service, time to live and checksum of IP; UDP's checksum; FECN, BECN, reserved.
        masked = {*range(12), 15, 22, 24, 25, 40, 41, 46}
        assert {bit // 8 for bit in flips} <= masked
        assert Ether(bytes(bad))[BTH].compute_icrc(None) == bytes(bad)[-4:]


@settings(max_examples=500)
@given(frame=st.binary(max_size=200), cut=st.integers(0, 90))
def test_garbage_is_thrown_away(taps: tuple[Any, Any], frame: bytes, cut: int) -> None:
    """Any bytes, and any bytes after a good beginning."""
    assert taps[0].send(frame) != ""
    whole = put(bytes(28))
    if cut < len(whole) and whole[cut:] != frame[: len(whole) - cut]:
        taps[0].send(whole[:cut] + frame)
    taps[1].receive()
