"""What the RoCE part of the soft Thor2 has for the kernel's driver beyond this project's own: datagrams and the general
services, address vectors, shared receive queues, completion queues that change their size, keys that entries register,
bind and invalidate, congestion control and statistics.

Driven by hand over the firmware's message tables: WQEs, doorbells and completions byte by byte, as roce_hsi.h (Linux)
has them. What a test expects of packets is IBTA volume 1's and scapy's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

import userdma
from bare import refused
from bare_bnxt import PAGE, Bare
from patience import eventually
from userdma import Access, soft
from userdma.bnxt import rcfw
from userdma.bnxt.hwrm_ethernet import CTX_HW_STATS
from userdma.bnxt.rcfw import ModifyMask, QpState, QpType, Status
from userdma.soft.bnxt import statistics

QKEY = 0x1111_1111
LENGTH, WR_LOCAL_LENGTH, WR_MEMORY = 2, 2, 5  # CQ_RES_RC_STATUS_*, CQ_REQ_STATUS_*: LOCAL_LENGTH, MEMORY_MGT_OPERATION
REQ, RES_RC, RES_UD, TERMINAL, CUT_OFF = 0, 1, 2, 14, 15  # CQ_BASE_CQE_TYPE_*
SQ, RQ, SRQ, SRQ_ARM, CQ, CQ_ARMALL, CQ_ARMENA, SRQ_ARMENA, CUT_ACK = 0, 1, 2, 3, 4, 6, 7, 8, 9  # DBC_DBC_TYPE_*
SIGNAL, SOLICITED = 1, 8  # SQ_SEND_FLAGS_*
GRH = 40


class Cqe:
    """A completion of any type."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.type = data[24] >> 1 & 0xF
        self.resize_toggle = data[24] >> 5 & 3
        self.status = data[25]
        self.flags, self.tail = struct.unpack("<HI", data[26:32])
        self.wr_id = self.tail & 0xFFFFF
        self.length = struct.unpack("<I", data[:4])[0]
        self.immediate = struct.unpack("<I", data[4:8])[0]
        self.handle = struct.unpack("<Q", data[:8] if self.type in (REQ, TERMINAL) else data[8:16])[0]
        self.consumer = struct.unpack("<H", data[8:10])[0]
        self.source_qp = struct.unpack("<H", data[22:24])[0] | self.tail >> 24 << 16
        self.source_mac = data[16:22]


class Queue:
    """A completion queue of one or several pages."""

    def __init__(self, side: Side, entries: int) -> None:
        self.side, self.entries = side, entries
        self.memory = side.dma(-(-entries * 32 // PAGE) * PAGE)
        level, base = side.table(self.memory.pages())
        self.id = int(
            side.rcfw("create_cq", cq_size=entries, pbl=base, lvl=level, cnq_id=side.cnq, cq_handle=0x1_2345_6789).xid
        )
        self.head = 0
        self.base = 0

    def take(self) -> Cqe | None:
        at = self.head % self.entries * 32
        data = bytes(memoryview(self.memory)[at : at + 32])
        if (data[24] & 1) == (self.head // self.entries & 1):
            return None
        self.head += 1
        return Cqe(data)

    def one(self) -> Cqe:
        def look() -> Cqe | None:
            if (found := self.take()) is None:
                self.side.function.advance()
            return found

        found = eventually(look, pause=0)
        assert found is not None, "no completion"
        return found

    def none(self) -> None:
        for _ in range(100):
            self.side.function.advance()
        assert self.take() is None

    def ring(self, type: int = CQ, toggle: int = 0) -> None:
        epoch = self.base ^ self.head // self.entries & 1
        self.side.ring(type, self.id, self.head % self.entries, epoch, toggle)

    def resize(self, entries: int) -> None:
        memory = self.side.dma(-(-entries * 32 // PAGE) * PAGE)
        level, base = self.side.table(memory.pages())
        self.side.rcfw("resize_cq", cq_cid=self.id, new_cq_size=entries, new_pbl=base, lvl=level)
        self.next = (memory, entries)

    def switch(self, toggle: int) -> None:
        """As rdma-core's bnxt_re_resize_cq_complete: the next doorbell must not look older than the last."""
        self.head -= 1  # it does not count the cut-off entry
        if self.head % self.entries > 0:
            self.base ^= 1
        self.base ^= self.head // self.entries & 1
        self.memory, self.entries = self.next
        self.head = 0
        self.ring(CUT_ACK, toggle)


class Receives:
    """A receive ring of 128-byte WQEs: a queue pair's or a shared one."""

    def __init__(self, side: Side, entries: int) -> None:
        self.side, self.entries = side, entries
        self.memory = side.dma(entries * 128)
        self.level, self.base = side.table(self.memory.pages())
        self.posted = 0

    def write(self, wr_id: int, *sges: tuple[int, int, int]) -> None:
        at = self.posted % self.entries * 128
        body = b"".join(struct.pack("<QII", va, key, size) for va, key, size in sges)
        memoryview(self.memory)[at : at + 32 + len(body)] = (
            struct.pack("<BBBBIII16x", 0x80, 0, 2 + len(sges), 0, 0, wr_id, 0) + body
        )
        self.posted += 1

    def ring(self, type: int, xid: int) -> None:
        self.side.ring(type, xid, self.posted % self.entries, self.posted // self.entries & 1)


class Pair:
    """A queue pair of static WQEs."""

    def __init__(
        self, side: Side, type: int = QpType.UD, entries: int = 16, srq: int | None = None, cq: Queue | None = None
    ) -> None:
        self.side, self.type, self.entries = side, type, entries
        self.cq = cq or side.cq
        self.send_memory = side.dma(entries * 128 + PAGE)
        level, base = side.table(self.send_memory.pages())
        self.receives = Receives(side, entries)
        fields: dict[str, int] = {"rq_size": entries, "rq_pbl": self.receives.base, "rq_lvl": self.receives.level}
        if srq is not None:
            fields = {"srq_cid": srq}
        flags = rcfw.QpFlags.RESERVED_LKEY_ENABLE | rcfw.QpFlags.FR_PMR_ENABLED
        answer = side.rcfw(
            "create_qp",
            type=type,
            qp_handle=0xABCD,
            qp_flags=flags | (rcfw.QpFlags.SRQ_USED if srq is not None else 0),
            scq_cid=self.cq.id,
            rcq_cid=self.cq.id,
            sq_size=entries,
            sq_sge=6,
            rq_sge=6,
            sq_pbl=base,
            sq_lvl=level,
            **fields,
        )
        self.id = int(answer.xid)
        self.sent = 0

    def start(self, qkey: int = QKEY, mtu: int = rcfw.PathMtu.MTU_1024) -> Pair:
        """To RTS, with what the kernel's driver gives for datagrams."""
        side = self.side
        mask = ModifyMask.PKEY | ModifyMask.QKEY
        side.modify(self.id, QpState.INIT, mask, qkey=qkey)
        side.modify(self.id, QpState.RTR, ModifyMask.PATH_MTU | ModifyMask.SGID_INDEX, path_mtu=mtu)
        side.modify(self.id, QpState.RTS, ModifyMask.SQ_PSN, sq_psn=7)
        return self

    def connect(self, other: Pair) -> None:
        """To RTS, within the NIC."""
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            self.side.modify(self.id, state, dest_qp_id=other.id)

    def receive(self, wr_id: int, *sges: tuple[int, int, int]) -> None:
        self.receives.write(wr_id, *sges)
        self.receives.ring(RQ, self.id)

    def post(self, header: bytes, *sges: tuple[int, int, int]) -> None:
        body = b"".join(struct.pack("<QII", va, key, size) for va, key, size in sges)
        at = self.sent % self.entries * 128
        memoryview(self.send_memory)[at : at + 32 + len(body)] = header + body
        self.sent += 1
        self.side.ring(SQ, self.id, self.sent % self.entries, self.sent // self.entries & 1)

    def send(
        self,
        ah: int,
        qp: int,
        *sges: tuple[int, int, int],
        qkey: int = QKEY,
        immediate: int | None = None,
        flags: int = SIGNAL,
        length: int | None = None,
    ) -> None:
        """sq_send: a datagram."""
        size = sum(sge[2] for sge in sges) if length is None else length
        kind = 0 if immediate is None else 1
        header = struct.pack("<BBBBIIIIIII", kind, flags, 2 + len(sges), 0, immediate or 0, size, qkey, qp, ah, 0, 0)
        self.post(header, *sges)


class Side(Bare):
    """A NIC that is up, with a region of two pages and a completion queue."""

    va = 0x7000_0000
    errors: list[Any]  # events of queue pairs

    def __init__(self, wire: Any, mac: bytes, *, gid: bytes | None = None) -> None:
        super().__init__(soft.bnxt(wire, mac=mac, thread=False))
        self.errors = []
        self.up()
        self.function.ingress(True)
        self.mac = mac
        self.own_gid = gid or bytes(10) + b"\xff\xff\x0a" + mac[3:]
        answer = self.rcfw("add_gid", gid=rcfw.gid_bytes(self.own_gid), src_mac=rcfw.mac_bytes(mac))
        self.gid_index = int(answer.xid)
        self.memory = self.dma(2 * PAGE)
        self.key = self.region(self.memory)
        self.cq = Queue(self, 128)

    def next_event(self) -> bytes:
        while True:
            data = super().next_event()
            event = rcfw.QP_ERROR.unpack(data)
            if event.event != rcfw.Event.QP_ERROR_NOTIFICATION:
                return data
            self.errors.append(event)

    def region(self, memory: Any, access: int = 0x1F) -> int:
        level, base = self.table(memory.pages())
        return int(
            self.rcfw(
                "register_mr",
                flags=rcfw.RegisterMrFlags.ALLOC_MR,
                lvl=level,
                log2_pg_size=12,
                log2_pbl_pg_size=12,
                access=access,
                pbl=base,
                va=self.va,
                mr_size=2 * PAGE,
            ).xid
        )

    def ring(self, type: int, xid: int, index: int, epoch: int, toggle: int = 0) -> None:
        self.doorbells.write64(self.doorbell, (xid | type << 28 | 1 << 26) << 32 | index | epoch << 24 | toggle << 25)

    def sge(self, at: int, size: int) -> tuple[int, int, int]:
        return self.va + at, self.key, size

    def bytes(self, at: int, size: int) -> bytes:
        return bytes(memoryview(self.memory)[at : at + size])

    def fill(self, at: int, data: bytes) -> None:
        memoryview(self.memory)[at : at + len(data)] = data

    def address(self, other: Side, **fields: Any) -> int:
        mapped = other.own_gid.startswith(bytes(10) + b"\xff\xff")
        given = {
            "type": rcfw.AhType.V2IPV4 if mapped else rcfw.AhType.V2IPV6,
            "dgid": other.own_gid,
            "dest_mac": other.mac,
            "sgid_index": self.gid_index,
            "hop_limit": 9,
            "traffic_class": 0x28,
        }
        return int(self.rcfw("create_ah", **(given | fields)).xid)


@pytest.fixture
def wire() -> Any:
    return soft.Wire(frames=True)


@pytest.fixture
def sides(wire: Any) -> Iterator[tuple[Side, Side]]:
    pair = Side(wire, b"\x02\0\0\0\0\x01"), Side(wire, b"\x02\0\0\0\0\x02")
    yield pair
    for side in pair:
        assert side.function.firmware.bugs == []


# ---- datagrams -------------------------------------------------------------------------------------------------------


def checksum(header: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize("immediate", [None, 0x0102_0304])
def test_datagram(sides: tuple[Side, Side], wire: Any, immediate: int | None) -> None:
    a, b = sides
    sender, receiver = Pair(a).start(), Pair(b).start()
    b.fill(0, b"\xee" * 200)
    receiver.receive(5, b.sge(0, 20), b.sge(20, 100))
    a.fill(0, bytes(range(61)))
    wire.capture(10)
    sender.send(a.address(b), receiver.id, a.sge(0, 30), a.sge(30, 31), immediate=immediate)

    done = a.cq.one()
    assert (done.type, done.status, done.handle, done.consumer) == (REQ, 0, 0xABCD, 1)
    got = b.cq.one()
    assert (got.type, got.status, got.handle, got.wr_id) == (RES_UD, 0, 0xABCD, 5)
    assert got.length & 0x3FFF == GRH + 61  # CQ_RES_UD_LENGTH_MASK
    assert got.source_qp == sender.id
    assert got.source_mac == a.mac
    assert got.flags == (0x20 | (0x2 if immediate else 0))  # ROCE_IP_VER_V2IPV4, IMM
    if immediate:
        assert got.immediate == immediate
    # The GRH's place has the IPv4 header in its last 20 bytes (A17.4.5.1).
    header = b.bytes(20, 20)
    assert header[0] == 0x45
    assert checksum(header) == 0xFFFF
    assert (header[1], header[8], header[9]) == (0x28, 9, 17)
    assert header[12:] == a.own_gid[12:] + b.own_gid[12:]
    assert b.bytes(GRH, 61) == bytes(range(61))
    assert b.bytes(GRH + 61, 1) == b"\xee"

    [raw] = wire.take()
    packet = Ether(raw)
    bth = packet[BTH]
    assert (packet.src, packet.dst) == (a.mac.hex(":"), b.mac.hex(":"))
    assert (packet[IP].tos, packet[IP].ttl, packet[UDP].dport) == (0x28, 9, 4791)
    assert header[2:4] == struct.pack("!H", packet[IP].len)
    assert bth.opcode == (0x64 if immediate is None else 0x65)  # UD send only, with immediate: IBTA table 38
    assert (bth.dqpn, bth.psn, bth.padcount, bth.ackreq) == (receiver.id, 7, 3, 0)
    assert bth.compute_icrc(None) == raw[-4:]
    rest = raw[14 + 20 + 8 + 12 : -4]
    assert struct.unpack("!II", rest[:8]) == (QKEY, sender.id)  # DETH: IBTA 9.3.2
    rest = rest[8:] if immediate is None else rest[12:]
    assert rest == bytes(range(61)) + bytes(3)


def test_datagram_over_ipv6(wire: Any) -> None:
    a = Side(wire, b"\x02\0\0\0\0\x01", gid=bytes.fromhex("fe80000000000000000000fffe000001"))
    b = Side(wire, b"\x02\0\0\0\0\x02", gid=bytes.fromhex("fe80000000000000000000fffe000002"))
    sender, receiver = Pair(a).start(), Pair(b).start()
    receiver.receive(1, b.sge(0, 1024))
    a.fill(0, b"six")
    wire.capture(1)
    sender.send(a.address(b), receiver.id, a.sge(0, 3))
    got = b.cq.one()
    assert got.length & 0x3FFF == GRH + 3
    assert got.flags & 0x30 == 0x30  # V2IPV6
    assert b.bytes(GRH, 3) == b"six"
    [raw] = wire.take()
    packet = Ether(raw)
    assert b.bytes(0, GRH) == bytes(packet[IPv6])[:40]
    assert packet[BTH].compute_icrc(None) == raw[-4:]


def test_datagram_to_itself(sides: tuple[Side, Side]) -> None:
    a, _ = sides
    pair = Pair(a).start()
    pair.receive(3, a.sge(PAGE, 256))
    a.fill(0, b"own")
    pair.send(a.address(a), pair.id, a.sge(0, 3))
    kinds = sorted(a.cq.one().type for _ in range(2))
    assert kinds == [REQ, RES_UD]
    assert a.bytes(PAGE + GRH, 3) == b"own"


def test_queue_key(sides: tuple[Side, Side]) -> None:
    """IBTA 9.8.3: a datagram with another Q_Key is dropped; 10.2.5: the top bit stands for the sender's own."""
    a, b = sides
    sender, receiver = Pair(a).start(qkey=QKEY), Pair(b).start(qkey=QKEY)
    receiver.receive(1, b.sge(0, 256))
    ah = a.address(b)
    sender.send(ah, receiver.id, a.sge(0, 4), qkey=QKEY + 1)
    assert a.cq.one().status == 0
    b.cq.none()
    sender.send(ah, receiver.id, a.sge(0, 4), qkey=0x8000_0000)
    assert b.cq.one().wr_id == 1


def test_datagrams_without_a_receive_are_lost(sides: tuple[Side, Side]) -> None:
    a, b = sides
    sender, receiver = Pair(a).start(), Pair(b).start()
    ah = a.address(b)
    sender.send(ah, receiver.id, a.sge(0, 4))
    assert a.cq.one().status == 0
    b.cq.none()
    assert b.function.stats()["dropped_no_receive"] == 1
    receiver.receive(1, b.sge(0, 256))
    sender.send(ah, receiver.id, a.sge(0, 5))
    assert b.cq.one().length & 0x3FFF == GRH + 5


def test_datagram_longer_than_its_receive(sides: tuple[Side, Side]) -> None:
    a, b = sides
    sender, receiver = Pair(a).start(), Pair(b).start()
    receiver.receive(1, b.sge(0, GRH + 3))
    sender.send(a.address(b), receiver.id, a.sge(0, 4))
    got = b.cq.one()
    assert (got.type, got.status, got.wr_id) == (RES_UD, LENGTH, 1)
    assert b.query("query_qp", qp_cid=receiver.id).state == QpState.ERR


def test_datagram_longer_than_the_path_takes(sides: tuple[Side, Side]) -> None:
    a, b = sides
    sender = Pair(a).start(mtu=rcfw.PathMtu.MTU_1024)
    sender.send(a.address(b), 77, a.sge(0, 1025))
    assert a.cq.one().status == WR_LOCAL_LENGTH
    assert a.query("query_qp", qp_cid=sender.id).state == QpState.ERR


def test_datagram_by_a_wrong_address(sides: tuple[Side, Side]) -> None:
    a, b = sides
    ah = a.address(b)
    for wrong in (ah + 1, a.address(b, pd_id=5)):  # none, and one of another protection domain
        sender = Pair(a).start()
        sender.send(wrong, 77, a.sge(0, 4))
        assert a.cq.one().status == 3  # LOCAL_QP_OPERATION_ERR
    a.rcfw("destroy_ah", ah_cid=ah)
    with refused(Status.INVALID_PARAMETER):
        a.rcfw("destroy_ah", ah_cid=ah)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"type": rcfw.AhType.V1}, Status.NOT_IMPLEMENTED),
        ({"type": rcfw.AhType.V2IPV6}, Status.INVALID_PARAMETER),
        ({"sgid_index": 99}, Status.INVALID_PARAMETER),
        ({"dest_mac": bytes(6)}, Status.INVALID_PARAMETER),
        ({"pd_id": 1 << 20}, Status.INVALID_PARAMETER),
    ],
)
def test_address_vector_refusals(sides: tuple[Side, Side], fields: dict[str, Any], code: int) -> None:
    a, b = sides
    with refused(code):
        a.address(b, **fields)
    assert a.function.firmware.counts()["ahs"] == 0


def test_general_services(sides: tuple[Side, Side]) -> None:
    """Number 1 of each port (IBTA 3.9.4.2), with local memory by bus addresses under the reserved key."""
    a, b = sides
    pairs = [Pair(side, QpType.GSI).start(qkey=0x8001_0000) for side in sides]
    assert [pair.id for pair in pairs] == [1, 1]
    with refused(Status.RESOURCES):
        Pair(a, QpType.GSI)
    there = b.memory.pages()[1]
    pairs[1].receive(8, (there, 0xFFFF_FFFF, 296))
    a.fill(0, bytes(range(256)))
    pairs[0].send(a.address(b), 1, (a.memory.pages()[0], 0xFFFF_FFFF, 256), qkey=0x8001_0000)
    got = b.cq.one()
    assert (got.length & 0x3FFF, got.source_qp, got.wr_id) == (296, 1, 8)
    assert b.bytes(PAGE + GRH, 256) == bytes(range(256))
    a.rcfw("destroy_qp", qp_cid=1)
    assert Pair(a, QpType.GSI).id == 1


def test_states_of_datagrams(sides: tuple[Side, Side]) -> None:
    a, _ = sides
    pair = Pair(a)
    with refused(Status.INVALID_PARAMETER):  # no Q_Key
        a.modify(pair.id, QpState.INIT, ModifyMask.PKEY)
    a.modify(pair.id, QpState.INIT, ModifyMask.PKEY | ModifyMask.QKEY, qkey=5)
    with refused(Status.INVALID_PARAMETER):  # a path is a connection's
        a.modify(pair.id, QpState.RTR, ModifyMask.DGID)
    a.modify(pair.id, QpState.RTR, 0)
    a.modify(pair.id, QpState.RTS, ModifyMask.SQ_PSN, sq_psn=123)
    assert a.query("query_qp", qp_cid=pair.id).qkey == 5
    assert a.query("query_qp", qp_cid=pair.id).sq_psn == 123
    a.modify(pair.id, QpState.ERR, 0)
    terminal = a.cq.one()
    assert (terminal.type, terminal.handle) == (TERMINAL, 0xABCD)


# ---- shared receive queues -------------------------------------------------------------------------------------------


class Shared(Receives):
    def __init__(self, side: Side, entries: int = 32, **fields: Any) -> None:
        super().__init__(side, entries)
        given = {
            "srq_handle": 0x5555_6666_7777,
            "lvl": self.level,
            "pbl": self.base,
            "srq_size": entries,
            "eventq_id": side.cnq,
        }
        self.id = int(side.rcfw("create_srq", **(given | fields)).xid)
        side.ring(SRQ_ARMENA, self.id, 0, 0)

    def post(self, wr_id: int, *sges: tuple[int, int, int]) -> None:
        self.write(wr_id, *sges)
        self.ring(SRQ, self.id)

    def limit(self) -> int:
        return int(self.side.query("query_srq", srq_cid=self.id).srq_limit)


def notification(side: Side, index: int) -> bytes:
    return bytes(memoryview(side.cnq_memory)[index * 16 : index * 16 + 16])


def test_shared_receive_queue(sides: tuple[Side, Side]) -> None:
    a, b = sides
    shared = Shared(b)
    receivers = [Pair(b, srq=shared.id).start() for _ in range(2)]
    sender, ah = Pair(a).start(), a.address(b)
    tags = [17, 3, 9, 30, 4]
    for tag in tags:
        shared.post(tag, b.sge(0, 256))
    for number, tag in enumerate(tags):
        sender.send(ah, receivers[number % 2].id, a.sge(0, number + 1))
        got = b.cq.one()
        assert (got.wr_id, got.flags & 1, got.length & 0x3FFF) == (tag, 1, GRH + number + 1)
    sender.send(ah, receivers[0].id, a.sge(0, 1))
    b.cq.none()
    with refused(Status.FAIL):
        b.rcfw("destroy_srq", srq_cid=shared.id)
    for pair in receivers:
        b.rcfw("destroy_qp", qp_cid=pair.id)
    b.rcfw("destroy_srq", srq_cid=shared.id)
    assert b.function.firmware.counts()["srqs"] == 0


def test_shared_receive_queue_wraps(sides: tuple[Side, Side]) -> None:
    a, b = sides
    shared = Shared(b, 4)
    receiver, sender, ah = Pair(b, srq=shared.id).start(), Pair(a).start(), a.address(b)
    for number in range(11):
        shared.post(number, b.sge(0, 256))
        sender.send(ah, receiver.id, a.sge(0, 1))
        assert b.cq.one().wr_id == number


def test_limit_of_a_shared_receive_queue(sides: tuple[Side, Side]) -> None:
    """The event is due once fewer receives than the limit are left (IBTA 10.2.9.3), and comes once."""
    a, b = sides
    shared = Shared(b)
    receiver, sender, ah = Pair(b, srq=shared.id).start(), Pair(a).start(), a.address(b)
    for tag in range(10):
        shared.post(tag, b.sge(0, 256))
    b.ring(SRQ_ARM, shared.id, 7, 0, toggle=0)
    assert shared.limit() == 7
    for _ in range(3):
        sender.send(ah, receiver.id, a.sge(0, 1))
        b.cq.one()
    assert not any(notification(b, 0))
    sender.send(ah, receiver.id, a.sge(0, 1))
    b.cq.one()
    event = notification(b, 0)
    assert event[0] & 0x3F == 0x32  # NQ_SRQ_EVENT_TYPE_SRQ_EVENT
    assert event[0] >> 6 == 1  # the toggle
    assert event[1] == 1  # SRQ_THRESHOLD_EVENT
    low, _, high = struct.unpack("<III", event[4:])
    assert high << 32 | low == 0x5555_6666_7777
    assert shared.limit() == 0
    # Arming needs the event's toggle, and that events were enabled again.
    b.ring(SRQ_ARM, shared.id, 3, 0, toggle=1)
    b.ring(SRQ_ARMENA, shared.id, 0, 0, toggle=1)
    b.ring(SRQ_ARM, shared.id, 3, 0, toggle=0)
    assert shared.limit() == 0
    b.ring(SRQ_ARM, shared.id, 3, 0, toggle=1)
    assert shared.limit() == 3


def test_last_receive_of_a_queue_pair(sides: tuple[Side, Side]) -> None:
    """A pair with a shared queue that goes to the error state says so in an event without a reason (bnxt_re's
    bnxt_re_handle_qp_async_event makes IB_EVENT_QP_LAST_WQE_REACHED of it)."""
    _, b = sides
    pair = Pair(b, srq=Shared(b).id).start()
    b.modify(pair.id, QpState.ERR, 0)
    [event] = b.errors
    assert event.xid == pair.id
    assert (event.req_err_state_reason, event.res_err_state_reason) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [{"srq_size": 0}, {"pbl": 0x7_FFFF_FFFF_F000}, {"eventq_id": 0xFFF}, {"pd_id": 1 << 20}, {"lvl": 3}],
)
def test_shared_receive_queue_refusals(sides: tuple[Side, Side], fields: dict[str, int]) -> None:
    _, b = sides
    with refused(Status.INVALID_PARAMETER):
        Shared(b, **fields)
    with refused(Status.INVALID_PARAMETER):
        b.rcfw("query_srq", srq_cid=5, resp_addr=b.bus(b.memory), resp_size=2)


# ---- completion queues of another size -------------------------------------------------------------------------------


def test_completion_queue_is_resized(sides: tuple[Side, Side]) -> None:
    a, b = sides
    a.cq = Queue(a, 8)
    sender, ah = Pair(a, entries=64).start(), a.address(b)

    def send(count: int) -> None:
        for _ in range(count):
            sender.send(ah, 77, a.sge(0, 1))

    send(5)
    for _ in range(5):
        a.cq.one()
    a.cq.ring()
    send(6)  # around the ring's end
    a.cq.resize(32)
    for _ in range(6):
        assert a.cq.one().type == REQ
    cut = a.cq.one()
    assert cut.type == CUT_OFF
    send(20)  # more than the old ring had room for, before the driver has switched
    a.cq.switch(cut.resize_toggle)
    for _ in range(20):
        assert a.cq.one().type == REQ
    a.cq.ring()
    for _ in range(4):  # the new ring's end, with the doorbells' epoch as the driver counts it
        send(30)
        for _ in range(30):
            assert a.cq.one().status == 0
        a.cq.ring()
    # Smaller again.
    a.cq.resize(4)
    cut = a.cq.one()
    assert cut.type == CUT_OFF
    a.cq.switch(cut.resize_toggle)
    for _ in range(10):
        send(3)
        for _ in range(3):
            assert a.cq.one().status == 0
        a.cq.ring()


def test_full_completion_queue_is_not_resized(sides: tuple[Side, Side]) -> None:
    a, b = sides
    a.cq = Queue(a, 4)
    sender, ah = Pair(a).start(), a.address(b)
    for _ in range(4):
        sender.send(ah, 77, a.sge(0, 1))
    with refused(Status.RESOURCES):
        a.cq.resize(8)
    for _ in range(4):
        assert a.cq.one().type == REQ
    a.cq.ring()
    a.cq.resize(8)
    assert a.cq.one().type == CUT_OFF


@pytest.mark.parametrize("fields", [{"new_cq_size": 0}, {"new_pbl": 0x7_FFFF_FFFF_F000}, {"cq_cid": 3}])
def test_resize_refusals(sides: tuple[Side, Side], fields: dict[str, int]) -> None:
    a, _ = sides
    level, base = a.pages(PAGE)
    given = {"cq_cid": a.cq.id, "new_cq_size": 64, "new_pbl": base, "lvl": level}
    with refused(Status.INVALID_PARAMETER):
        a.rcfw("resize_cq", **(given | fields))
    a.cq.none()


# ---- keys that entries register, bind and invalidate -----------------------------------------------------------------


class Keys:
    """A pair that registers, binds and invalidates, its peer within the NIC, and a page table."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.pair, self.peer = (Pair(side, QpType.RC, cq=Queue(side, 64)) for _ in range(2))
        self.pair.connect(self.peer)
        self.peer.connect(self.pair)
        self.table = side.dma(PAGE)
        memoryview(self.table)[:16] = struct.pack("<QQ", *(page | 1 for page in side.memory.pages()))

    def allocate(self, kind: int, access: int = 0) -> int:
        return int(self.side.rcfw("allocate_mrw", mrw_flags=kind, access=access).xid)

    def register(self, key: int, length: int = 2 * PAGE, access: int = 0xF) -> int:
        """sq_fr_pmr: a table of one level over pages of 4 KiB. The completion's status."""
        size = struct.pack("<Q", length)[:5]
        header = struct.pack("<BBBBI", 0x0D, SIGNAL, access, 0, key) + size + bytes(2) + bytes([1 << 6])
        self.pair.post(header + struct.pack("<QQ", self.side.bus(self.table), 0x9000_0000))
        return self.pair.cq.one().status

    def invalidate(self, key: int) -> int:
        """sq_localinvalidate."""
        self.pair.post(struct.pack("<BBHI24x", 0x0C, SIGNAL, 0, key))
        return self.pair.cq.one().status

    def bind(self, window: int, parent: int, va: int, length: int, access: int, type2: bool) -> int:
        """sq_bind."""
        header = struct.pack("<BBBBBBHIIQ", 0x0E, SIGNAL, access, 0, 2 * type2, 0, 0, parent, window, va)
        self.pair.post(header + struct.pack("<Q", length)[:5] + bytes(3))
        return self.pair.cq.one().status

    def write(self, key: int, va: int, size: int = 8) -> int:
        """sq_rdma by the peer, from the region's beginning."""
        header = struct.pack("<BBBBIIIQII", 4, SIGNAL, 3, 0, 0, size, 0, va, key, 0)
        self.peer.post(header, self.side.sge(0, size))
        return self.peer.cq.one().status


CONSUMER_OWNED = 0x20  # CMDQ_ALLOCATE_MRW_ACCESS_CONSUMER_OWNED_KEY
REMOTE_ACCESS = 7  # CQ_REQ_STATUS_REMOTE_ACCESS_ERR


def test_fast_registration(sides: tuple[Side, Side]) -> None:
    a, _ = sides
    keys = Keys(a)
    key = keys.allocate(rcfw.MrwType.PMR, CONSUMER_OWNED)
    for consumer in (0, 1, 0xFF):  # the key's low byte is the consumer's
        a.fill(0, bytes([consumer]) * 8)
        assert keys.register(key | consumer) == 0
        assert keys.write(key | consumer, 0x9000_0000 + PAGE) == 0
        assert a.bytes(PAGE, 8) == bytes([consumer]) * 8
        assert keys.invalidate(key | consumer) == 0
    assert keys.write(key | 0xFF, 0x9000_0000) == REMOTE_ACCESS
    a.rcfw("deallocate_key", key=key | 0xFF)
    assert a.function.firmware.counts()["keys"] == 1


@pytest.mark.parametrize("wrong", ["twice", "not a key for it", "another domain", "a hole in the table", "no length"])
def test_fast_registration_refusals(sides: tuple[Side, Side], wrong: str) -> None:
    a, _ = sides
    keys = Keys(a)
    key, length = keys.allocate(rcfw.MrwType.PMR, CONSUMER_OWNED), 2 * PAGE
    if wrong == "twice":
        assert keys.register(key) == 0
    elif wrong == "not a key for it":
        key = keys.allocate(rcfw.MrwType.PMR)
    elif wrong == "another domain":
        key = int(a.rcfw("allocate_mrw", mrw_flags=rcfw.MrwType.PMR, access=CONSUMER_OWNED, pd_id=6).xid)
    elif wrong == "a hole in the table":
        length = 3 * PAGE
    else:
        length = 0
    assert keys.register(key, length) == WR_MEMORY
    assert a.query("query_qp", qp_cid=keys.pair.id).state == QpState.ERR


def test_registered_region_is_not_for_invalidation(sides: tuple[Side, Side]) -> None:
    a, _ = sides
    keys = Keys(a)
    assert keys.invalidate(a.key) == WR_MEMORY


def test_peer_invalidates(sides: tuple[Side, Side]) -> None:
    """A send with invalidation (IBTA 9.4.1.1.3): the receive says which key, which is none any more."""
    a, _ = sides
    keys = Keys(a)
    key = keys.allocate(rcfw.MrwType.PMR, CONSUMER_OWNED) | 7
    assert keys.register(key) == 0
    keys.pair.receive(2, a.sge(PAGE, 64))
    keys.peer.post(struct.pack("<BBBBII20x", 2, SIGNAL, 3, 0, key, 4), a.sge(0, 4))
    assert keys.peer.cq.one().status == 0
    got = keys.pair.cq.one()
    assert (got.type, got.flags & 4, got.immediate) == (RES_RC, 4, key)  # CQ_RES_RC_FLAGS_INV
    assert keys.write(key, 0x9000_0000) == REMOTE_ACCESS


@pytest.mark.parametrize("type2", [False, True])
def test_memory_windows(sides: tuple[Side, Side], type2: bool) -> None:
    a, _ = sides
    keys = Keys(a)
    window = keys.allocate(rcfw.MrwType.MW_TYPE2B if type2 else rcfw.MrwType.MW_TYPE1) | 1
    assert keys.bind(window, a.key, a.va + PAGE, 64, 0x4, type2) == 0  # remote write
    a.fill(0, b"windowed")
    assert keys.write(window, a.va + PAGE + 56) == 0
    assert a.bytes(PAGE + 56, 8) == b"windowed"
    if type2:
        assert keys.invalidate(window) == 0
        window += 1
        assert keys.bind(window, a.key, a.va + PAGE, 64, 0x4, type2) == 0
    else:
        window += 1
        assert keys.bind(window, a.key, a.va + PAGE, 64, 0x4, type2) == 0  # a new one instead of the old
    assert keys.write(window, a.va + PAGE + 57) == REMOTE_ACCESS  # past its end


def test_window_ends_with_its_region(sides: tuple[Side, Side]) -> None:
    a, _ = sides
    keys = Keys(a)
    other = a.region(a.memory)
    window = keys.allocate(rcfw.MrwType.MW_TYPE2B) | 1
    assert keys.bind(window, other, a.va, 64, 0x4, True) == 0
    a.rcfw("deregister_mr", lkey=other)
    assert keys.write(window, a.va) == REMOTE_ACCESS


@pytest.mark.parametrize(
    ("at", "length", "region_access", "access"),
    [
        (2 * PAGE - 8, 16, 0x1F, 0x4),  # past the region's end
        (0, 64, 0x0F, 0x4),  # a region that no window may show
        (0, 64, 0x1E, 0x4),  # remote writes where local ones are not allowed (IBTA 10.6.7.2.1)
    ],
)
def test_window_refusals(sides: tuple[Side, Side], at: int, length: int, region_access: int, access: int) -> None:
    a, _ = sides
    keys = Keys(a)
    region = a.region(a.memory, region_access)
    window = keys.allocate(rcfw.MrwType.MW_TYPE2B) | 1
    assert keys.bind(window, region, a.va + at, length, access, True) == WR_MEMORY


# ---- the rest of the firmware ----------------------------------------------------------------------------------------


def test_congestion_control(sides: tuple[Side, Side]) -> None:
    """In an envelope, with the newer parameters behind it (qplib_sp.c, bnxt_qplib_modify_cc)."""
    a, _ = sides
    mask = rcfw.ModifyCcMask.ENABLE_CC | rcfw.ModifyCcMask.CC_MODE | rcfw.ModifyCcMask.TOS_ECN
    inner = rcfw.MODIFY_ROCE_CC.request.pack(cookie=3, modify_mask=mask, enable_cc=1, cc_mode=1, tos_ecn=2, g=9)
    extension = struct.pack("<HBBHH8x", 0x8000, 0, 2, 0x5, 64) + bytes(64)
    whole = bytes(8) + inner + bytes(8) + extension
    slots = -(-(len(whole) + 8) // 16)
    a.put(struct.pack("<HBBHHB7x", 0x8000, 0, 3, 0x3, 56, slots) + inner + bytes(8) + extension)
    a.trigger()
    answer = rcfw.MODIFY_ROCE_CC.response.unpack(a.next_event())
    assert (answer.status, answer.cookie, answer.event) == (0, 3, 0x8C)
    buffer = a.dma(PAGE)
    a.cookie = 3
    a.rcfw("query_roce_cc", resp_addr=a.bus(buffer), resp_size=9)  # in an envelope too, where there is room
    data = bytes(memoryview(buffer))
    assert struct.unpack("<HBBHHB", data[:9]) == (0x8000, 0, 0, 3, 32, 9)
    assert rcfw.QUERY_ROCE_CC.buffer is not None
    now = rcfw.QUERY_ROCE_CC.buffer.unpack(data[16:])
    assert (now.enable_cc, now.cc_mode, now.tos_ecn, now.g) == (1, 1, 2, 0)
    now = a.query("query_roce_cc")
    assert (now.enable_cc, now.cc_mode, now.tos_ecn, now.g) == (1, 1, 2, 0)


def test_a_queue_pair_without_a_path_has_a_gid_that_there_is(sides: tuple[Side, Side]) -> None:
    """Linux looks for it in its table, and warns if it is not there (qplib_fp.c bnxt_qplib_query_qp)."""
    a, _ = sides
    other = bytes(10) + b"\xff\xff\x0a\x09\x09\x09"
    index = a.rcfw("add_gid", gid=rcfw.gid_bytes(other), src_mac=rcfw.mac_bytes(a.mac)).xid
    pair = Pair(a)
    assert a.query("query_qp", qp_cid=pair.id).sgid_index == a.gid_index
    a.rcfw("delete_gid", gid_index=a.gid_index)
    assert a.query("query_qp", qp_cid=pair.id).sgid_index == index


def test_statistics(sides: tuple[Side, Side]) -> None:
    a, b = sides
    sender, ah = Pair(a).start(), a.address(b)
    for _ in range(3):
        sender.send(ah, 77, a.sge(0, 10))
        a.cq.one()
    b.cq.none()
    sent, received = a.query("query_roce_stats_ext"), b.query("query_roce_stats_ext")
    assert (sent.tx_roce_pkts, sent.tx_roce_bytes) == (3, 30)
    assert (received.rx_roce_pkts, received.rx_roce_bytes) == (3, 30)
    assert (sent.tx_send_req_pkts, received.rx_send_req_pkts) == (3, 3)
    errors = a.query("query_roce_stats")
    assert (errors.active_qp_count_p0, errors.to_retransmits, errors.num_counters) == (1, 0, 44)
    # The statistics context of INITIALIZE_FW has them too; its memory gets them when it ends, at the latest.
    for side, counts in ((a, (3, 30, 0, 0)), (b, (0, 0, 3, 30))):
        side.hwrm("stat_ctx_free", stat_ctx_id=side.context)
        memory = CTX_HW_STATS.unpack(memoryview(side.counters))
        assert (memory.tx_ucast_pkts, memory.tx_ucast_bytes, memory.rx_ucast_pkts, memory.rx_ucast_bytes) == counts


def test_statistics_of_a_connection() -> None:
    """By packets of the MTU, in whatever size the wire carries them (IBTA 9.7: ceil(bytes / MTU); a read's request is
    one), and in the context's memory by its period."""
    wire = soft.Wire()
    with userdma.open("soft:bnxt", wire=wire) as near, userdma.open("soft:bnxt", wire=wire) as far:
        ours, theirs = (userdma.Region.host(nic, 1 << 16, remote=Access.READ | Access.WRITE) for nic in (near, far))
        a, b = userdma.Qp.make(near), userdma.Qp.make(far)
        a.connect(b.endpoint, mtu=1024)
        b.connect(a.endpoint, mtu=1024, remote=Access.READ | Access.WRITE)
        b.receive(theirs, 0, 1 << 16)
        a.send(ours, 0, 3000)
        a.write((ours, 0), theirs.remote(), 5000)
        a.read(theirs.remote(), (ours, 0), 10000)
        for _ in range(3):
            done = a.wait(userdma.Side.SEND, us=60_000_000)
            assert done is not None and done.ok
        sent, received = (statistics.extended(nic.function.stats()) for nic in (near, far))
        assert (sent["tx_send_req_pkts"], sent["tx_write_req_pkts"], sent["tx_read_req_pkts"]) == (3, 5, 1)
        assert (received["rx_send_req_pkts"], received["rx_write_req_pkts"], received["rx_read_req_pkts"]) == (3, 5, 1)
        assert (received["tx_read_res_pkts"], sent["rx_read_res_pkts"]) == (10, 10)
        assert (sent["tx_atomic_req_pkts"], sent["tx_roce_pkts"], received["rx_roce_pkts"]) == (0, 9, 9)
        # The response acknowledges what came before it (IBTA 9.7.5.1.2): acknowledgements of their own may be none.
        assert eventually(lambda: near.counters["rx_unicast_packets"] >= 10, pause=0.01), near.counters
        counted = near.counters
        assert (counted["tx_unicast_packets"], counted["tx_unicast_bytes"]) == (9, 8000)


def test_everything_is_given_back(sides: tuple[Side, Side]) -> None:
    a, b = sides
    before = a.function.firmware.counts()
    a.address(b)
    Pair(a, srq=Shared(a).id)
    Pair(a, QpType.GSI)
    a.rcfw("allocate_mrw", mrw_flags=rcfw.MrwType.PMR, access=CONSUMER_OWNED)
    assert a.function.firmware.counts() != before
    a.rcfw("deinitialize_fw")
    after = a.function.firmware.counts()
    for name in ("qps", "cqs", "srqs", "ahs", "keys", "core_qp", "core_cq", "core_srq", "core_ah", "core_mr"):
        assert after[name] == 0, name
