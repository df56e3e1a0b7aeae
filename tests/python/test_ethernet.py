"""The Ethernet part of the soft Thor2, driven as the kernel's driver does (l2.py); scapy makes and reads the frames."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from scapy.all import GRE, ICMP, IP, TCP, UDP, Dot1AD, Dot1Q, Ether, IPv6, Raw
from scapy.layers.vxlan import VXLAN

import userdma.soft
from bare import NoAnswer, Refusal
from l2 import CQ_ARM_ALL, KEY, L2, NQ_ARM
from patience import eventually
from processes import wire_name
from userdma.bnxt import hwrm, hwrm_ethernet

BROADCAST = b"\xff" * 6
GROUP = bytes.fromhex("01005e010203")
L4, IP_SUM, LSO = 0x1, 0x2, 0x20  # TX_BD_FLAGS_*
TCP4 = hwrm_ethernet.HashType.TCP_IPV4 | hwrm_ethernet.HashType.IPV4


@pytest.fixture
def make() -> Iterator[Callable[..., L2]]:
    """NICs on a wire of the test's own."""
    wire = userdma.soft.Wire()
    with ExitStack() as stack:

        def one(wire: Any = wire, mac: bytes | None = None, **options: Any) -> L2:
            function = userdma.soft.bnxt(wire, mac=mac)
            stack.callback(function.release)
            return L2(function, **options)

        yield one


def frame(a: L2, b: L2, size: int = 100) -> bytes:
    return bytes(Ether(src=a.mac, dst=b.mac, type=0x88B5) / Raw(bytes(i & 0xFF for i in range(size - 14))))


def packet(a: L2, b: L2, *layers: Any) -> bytes:
    """With right checksums, by scapy."""
    built = Ether(src=a.mac, dst=b.mac)
    for layer in layers:
        built = built / layer
    return bytes(built)


def unsummed(raw: bytes, *where: type) -> bytes:
    """The same without the checksums of these layers: what a driver leaves to the NIC."""
    p = Ether(raw)
    for layer in where:
        p[layer].chksum = 0
    return bytes(p)


# ---- Frames -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [60, 61, 100, 1514])
def test_a_frame_crosses(make: Callable[..., L2], size: int) -> None:
    a, b = make(), make()
    sent = frame(a, b, size)
    a.send(sent)
    got = b.wait()
    assert (got.frame, got.kind, got.misc >> 1 & 0x1F) == (sent, 23, 0)
    assert got.checks == {"ip": None, "l4": None}
    assert a.wait_sent() == (0, 0)
    assert b.received() is None


def test_a_short_frame_is_padded(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    a.send(frame(a, b, 20))
    assert b.wait().frame == frame(a, b, 20).ljust(60, b"\0")


def test_a_packet_of_many_fragments(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    sent = frame(a, b, 1400)
    cuts = [0, 14, 15, 100, 700, 1399, 1400]
    a.send(*(sent[i:j] for i, j in pairwise(cuts)))
    assert b.wait().frame == sent


def test_rings_go_round_many_times(make: Callable[..., L2]) -> None:
    a, b = make(entries=8), make(entries=8)
    for number in range(100):
        sent = frame(a, b, 60 + number)
        a.send(sent)
        assert b.wait().frame == sent
        assert a.wait_sent() == (2 * number % 8, 0)


def test_a_completion_tells_of_the_packets_before_it(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    for number in range(3):
        a.send(frame(a, b, 60 + number), completion=number == 2, ring=number == 2)
        # one buffer in memory: the next packet must not overwrite it before it was rung
        if number < 2:
            a.tx.ring(0)
            b.wait()
    assert len(b.wait().frame) == 62
    assert a.wait_sent() == (4, 0)
    assert a.sent() is None


def test_frames_for_others_are_not_taken(make: Callable[..., L2]) -> None:
    a, b, c = make(), make(), make()
    a.send(frame(a, b))
    assert b.wait().frame == frame(a, b)
    assert c.all() == []


def test_broadcast_and_multicast(make: Callable[..., L2]) -> None:
    a, b, c = make(), make(), make()
    b.mask(hwrm.RxMask.BCAST | hwrm.RxMask.MCAST, [GROUP])
    c.mask(hwrm.RxMask.ALL_MCAST)
    other = bytes.fromhex("01005e7f0001")
    for to in (BROADCAST, GROUP, other):
        a.send(to + a.mac + b"\x88\xb5" + to * 10)
        a.wait_sent()
    assert [got.frame[:6] for got in b.all(2)] == [BROADCAST, GROUP]
    assert [got.frame[:6] for got in c.all(2)] == [GROUP, other]
    assert a.all() == []  # not to itself
    assert b.counted(rx_bcast_pkts=1, rx_mcast_pkts=1, rx_ucast_pkts=0)


def test_a_nic_takes_the_macs_that_it_listens_to(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    mac = bytes.fromhex("0200000000aa")
    sent = mac + a.mac + b"\x88\xb5" + bytes(50)
    a.send(sent)
    assert b.took(1) and b.all() == []
    number = b.listen(mac)
    a.send(sent)
    assert b.wait().frame == sent
    b.bare.hwrm("cfa_l2_filter_free", l2_filter_id=number)
    a.send(sent)
    assert b.took(3) and b.all() == []
    b.mask(hwrm.RxMask.PROMISCUOUS)
    a.send(sent)
    assert b.wait().frame == sent


def test_a_packet_without_a_buffer_is_dropped_and_counted(make: Callable[..., L2]) -> None:
    a, b = make(), make(post=False)
    for _ in range(3):
        a.send(frame(a, b))
        a.wait_sent()
    assert b.counted(rx_discard_pkts=3)
    b.post()
    a.send(frame(a, b))
    assert b.wait().frame == frame(a, b)
    assert b.counted(rx_discard_pkts=3, rx_ucast_pkts=1)


def test_a_packet_longer_than_the_mru_is_dropped_and_counted(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    a.send(frame(a, b, 1519))
    a.wait_sent()
    a.send(frame(a, b, 1518))
    assert len(b.wait().frame) == 1518
    assert b.counted(rx_error_pkts=1)


def test_a_packet_that_does_not_fit_its_buffer(make: Callable[..., L2]) -> None:
    a, b = make(), make(buffer=128)
    a.send(frame(a, b, 200))
    got = b.wait()
    assert got.frame == frame(a, b, 200)[:128]
    assert got.errors & 0xE == 0x2  # RX_CMPL_ERRORS_BUFFER_ERROR_DID_NOT_FIT
    assert got.flags & 0x40


def test_statistics_reach_memory(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    for size in (60, 200, 1000):
        a.send(frame(a, b, size))
        a.wait_sent()
    assert len(b.all(3)) == 3
    assert a.counted(tx_ucast_pkts=3, tx_ucast_bytes=1260)
    assert b.counted(rx_ucast_pkts=3, rx_ucast_bytes=1260)
    memory = b.bare.dma(4096)
    answer = b.bare.hwrm("port_qstats", rx_stat_host_addr=b.bare.bus(memory), tx_stat_host_addr=0)
    assert (answer.rx_stat_size, answer.tx_stat_size) == (hwrm_ethernet.RX_PORT_STATS.size, 0)
    port = hwrm_ethernet.RX_PORT_STATS.unpack(memoryview(memory))
    assert (port.rx_total_frames, port.rx_ucast_frames, port.rx_bytes) == (3, 3, 1260 + 3 * 4)
    assert (port.rx_64b_frames, port.rx_128b_255b_frames, port.rx_512b_1023b_frames) == (1, 1, 1)
    b.bare.hwrm("stat_ctx_clr_stats", stat_ctx_id=b.context)
    assert not any(b.counters().values())


# ---- Checksums ----------------------------------------------------------------------------------------------------

PACKETS = {
    "tcp": (IP(src="10.0.0.1", dst="10.0.0.2"), TCP(sport=1, dport=2), Raw(b"x" * 101)),
    "udp": (IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2), Raw(b"x" * 100)),
    "tcp6": (IPv6(src="fd00::1", dst="fd00::2"), TCP(sport=1, dport=2), Raw(b"x" * 33)),
    "udp6": (IPv6(src="fd00::1", dst="fd00::2"), UDP(sport=1, dport=2), Raw(b"")),
    "vlan": (Dot1Q(vlan=5), IP(src="10.0.0.1", dst="10.0.0.2"), TCP(sport=1, dport=2), Raw(b"yz")),
}


@pytest.mark.parametrize("name", PACKETS)
def test_checksums_are_made_and_looked_at(make: Callable[..., L2], name: str) -> None:
    a, b = make(), make()
    right = packet(a, b, *PACKETS[name])
    transport = TCP if "tcp" in name or name == "vlan" else UDP
    a.send(unsummed(right, transport), lflags=L4)
    got = b.wait()
    assert got.frame == right.ljust(60, b"\0")
    assert got.checks == {"ip": True, "l4": True}
    a.wait_sent()
    # As they are, and with a byte changed on the way.
    a.send(right)
    assert b.wait().checks == {"ip": True, "l4": True}
    a.wait_sent()
    wrong = bytearray(right)
    wrong[-1] ^= 0x10
    a.send(bytes(wrong))
    assert b.wait().checks == {"ip": True, "l4": False}


def test_the_checksum_of_the_ip_header(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    right = packet(a, b, *PACKETS["tcp"])
    a.send(unsummed(right, IP, TCP), lflags=L4 | IP_SUM)
    assert b.wait().frame == right
    a.wait_sent()
    a.send(unsummed(right, IP))
    assert b.wait().checks == {"ip": False, "l4": True}


def test_a_udp_sum_of_zero_is_written_as_ones(make: Callable[..., L2]) -> None:
    """RFC 768: all zeros say that there is none."""
    a, b = make(), make()
    layers = (IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2))
    # A word of the payload that makes the sum all ones, whose complement is zero.
    word = Ether(packet(a, b, *layers, Raw(bytes(40))))[UDP].chksum
    made = packet(a, b, *layers, Raw(struct.pack(">H", word) + bytes(38)))
    a.send(unsummed(made, UDP), lflags=L4)
    got = b.wait()
    assert Ether(got.frame)[UDP].chksum == 0xFFFF
    assert got.checks == {"ip": True, "l4": True}


def test_a_udp_packet_without_a_checksum_and_a_fragment_are_not_looked_at(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    for layers in (
        (IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2, chksum=0), Raw(b"x" * 40)),
        (IP(src="10.0.0.1", dst="10.0.0.2", flags="MF", proto=17), Raw(b"x" * 40)),
        (IP(src="10.0.0.1", dst="10.0.0.2"), ICMP(), Raw(b"x" * 40)),
    ):
        a.send(packet(a, b, *layers))
        assert b.wait().checks == {"ip": True, "l4": None}
        a.wait_sent()


# ---- Segmentation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("payload", [1, 1000, 1001, 2999, 60000])
def test_segmentation(make: Callable[..., L2], version: int, payload: int) -> None:
    a, b = make(entries=256), make(entries=256)
    data = bytes(i * 7 & 0xFF for i in range(payload))
    network = (
        IP(src="10.0.0.1", dst="10.0.0.2", id=0xFFFE, len=0)
        if version == 4
        else IPv6(src="fd00::1", dst="fd00::2", plen=0)
    )
    tcp = TCP(
        sport=1, dport=2, seq=0xFFFFFF00, flags="FPAC", options=[("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
    )
    head = packet(a, b, network, tcp)
    header = 14 + (20 if version == 4 else 40) + 32
    assert len(head) == header
    mss = 1000
    pieces = [data[i : i + 16000] for i in range(0, payload, 16000)]
    a.send(head, *pieces, lflags=LSO, mss=mss, header=header)
    segments = [Ether(b.wait().frame) for _ in range(-(-payload // mss))]
    assert a.wait_sent() == (0, 0)
    assert b.all() == []
    joined = b""
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        length = min(mss, payload - number * mss)
        layer = segment[IP if version == 4 else IPv6]
        body = bytes(layer[TCP].payload)[:length]
        assert layer[TCP].seq == 0xFFFFFF00 + number * mss & 0xFFFFFFFF
        # FIN and PSH with the last one, CWR with the first.
        assert str(layer[TCP].flags) == ("FPA" if last else "A") + ("C" if number == 0 else "")
        if version == 4:
            assert (layer.len, layer.id) == (20 + 32 + length, 0xFFFE + number & 0xFFFF)
        else:
            assert layer.plen == 32 + length
        joined += body
        # scapy's checksums
        again = Ether(bytes(segment)[: header + length])
        for summed in (IP, TCP):
            if summed in again:
                del again[summed].chksum
        assert bytes(again) == bytes(segment)[: header + length]
    assert joined == data


def test_segmentation_of_a_tunnel(make: Callable[..., L2]) -> None:
    a, b = make(entries=256), make(entries=256)
    port = a.bare.hwrm("tunnel_dst_port_alloc", tunnel_type=1, tunnel_dst_port_val=0xB512).tunnel_dst_port_id  # 4789
    inner = (
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="1.0.0.1", dst="1.0.0.2", id=7) / TCP(seq=5)
    )
    outer = (IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=9, dport=4789, chksum=0), VXLAN(vni=3))
    head = packet(a, b, *outer, inner)
    header = 14 + 20 + 8 + 8 + 14 + 20 + 20
    data = bytes(range(200)) * 10
    a.send(head, data, lflags=LSO, mss=700, header=header)
    got = [Ether(b.wait().frame) for _ in range(3)]
    assert b"".join(bytes(p[VXLAN][TCP].payload) for p in got) == data
    assert [p[VXLAN][IP].id for p in got] == [7, 8, 9]
    assert [p[UDP].chksum for p in got] == [0, 0, 0]
    for p in got:
        again = Ether(bytes(p))
        inner_again = again[VXLAN].payload
        del again[IP].chksum, inner_again[IP].chksum, inner_again[TCP].chksum, again[UDP].len, again[IP].len
        assert bytes(again) == bytes(p)
    a.bare.hwrm("tunnel_dst_port_free", tunnel_type=1, tunnel_dst_port_id=port)


@pytest.mark.parametrize("header", [0, 52, 54 + 2, 400])
def test_segmentation_with_a_wrong_header_length_sends_nothing(make: Callable[..., L2], header: int) -> None:
    a, b = make(), make()
    head = packet(a, b, IP(src="10.0.0.1", dst="10.0.0.2"), TCP())
    a.send(head, bytes(300), lflags=LSO, mss=100, header=header)
    assert a.wait_sent()[0] == 0
    assert b.all() == []
    assert a.counted(tx_error_pkts=1)


def test_checksum_of_the_inner_packet_of_gre(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    inner = IP(src="1.0.0.1", dst="1.0.0.2") / TCP(sport=1, dport=2) / Raw(b"inner")
    right = packet(a, b, IP(src="10.0.0.1", dst="10.0.0.2"), GRE(), inner)
    wrong = Ether(right)
    wrong[TCP].chksum = 0
    a.send(bytes(wrong), lflags=L4)
    assert b.wait().frame == right


# ---- VLAN ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tpid", "layer"), [(1, Dot1Q), (0, Dot1AD)])
def test_a_tag_is_put_in_and_taken_off(make: Callable[..., L2], tpid: int, layer: Any) -> None:
    a, b, c = make(), make(strip=True), make()
    plain = packet(a, b, *PACKETS["tcp"])
    a.send(unsummed(plain, TCP), lflags=L4, vlan=3 << 13 | 77, tpid=tpid)
    got = b.wait()
    assert (got.frame, got.vlan) == (plain, 3 << 13 | 77)
    assert got.misc >> 28 & 7 == tpid  # RX_CMP_METADATA1_TPID_SEL
    assert got.checks == {"ip": True, "l4": True}
    a.wait_sent()
    to_c = packet(a, c, *PACKETS["tcp"])
    a.send(to_c, vlan=77, tpid=tpid)
    got = c.wait()
    assert got.vlan is None
    assert got.frame == bytes(Ether(src=a.mac, dst=c.mac) / layer(vlan=77) / Ether(to_c).payload)


# ---- RSS ----------------------------------------------------------------------------------------------------------


def toeplitz(data: bytes) -> int:
    """As Microsoft's specification of receive-side scaling describes it: a long shift register."""
    key = int.from_bytes(KEY, "big")
    result = 0
    for i in range(len(data) * 8):
        if data[i // 8] >> (7 - i % 8) & 1:
            result ^= key >> (len(KEY) * 8 - 32 - i) & 0xFFFFFFFF
    return result


def test_rss_spreads_by_the_hash(make: Callable[..., L2]) -> None:
    a, b = make(), make(queues=4, rss=TCP4)
    seen = set()
    for port in range(1, 25):
        sent = packet(a, b, IP(src="10.0.0.1", dst="10.0.0.2"), TCP(sport=port, dport=80))
        a.send(sent)
        a.wait_sent()
        expected = toeplitz(bytes([10, 0, 0, 1, 10, 0, 0, 2]) + struct.pack(">HH", port, 80))
        queue = expected % 64 % 4
        got = b.wait(queue)
        assert (got.hash_valid, got.hash, got.frame) == (True, expected, sent.ljust(60, b"\0"))
        assert got.misc >> 12 & 0xF == 0  # EXT_OP_INNER_4
        seen.add(queue)
    assert len(seen) > 1


def test_rss_hashes_what_it_was_told(make: Callable[..., L2]) -> None:
    a, b = make(), make(queues=2, rss=TCP4)
    a.send(packet(a, b, IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2), Raw(b"x" * 20)))
    expected = toeplitz(bytes([10, 0, 0, 1, 10, 0, 0, 2]))
    got = b.wait(expected % 64 % 2)
    assert (got.hash_valid, got.hash) == (True, expected)
    assert got.misc >> 12 & 0xF not in (0x0, 0x2, 0x8, 0xA)  # none of bnxt_rss_ext_op's 4-tuples
    a.wait_sent()
    a.send(packet(a, b, IPv6(src="fd00::1", dst="fd00::2"), TCP(sport=1, dport=2)))
    assert not b.wait(0).hash_valid
    b.bare.hwrm("vnic_rss_cfg", vnic_id=b.vnic)
    a.wait_sent()
    a.send(packet(a, b, IP(src="10.0.0.1", dst="10.0.0.2"), TCP(sport=1, dport=2)))
    assert not b.wait(0).hash_valid


def test_the_toeplitz_hash_of_the_specification(make: Callable[..., L2]) -> None:
    """Microsoft's verification suite: 66.9.149.187:2794 to 161.142.100.80:1766."""
    key = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
    a, b = make(), make(rss=TCP4, key=key)
    a.send(packet(a, b, IP(src="66.9.149.187", dst="161.142.100.80"), TCP(sport=2794, dport=1766)))
    assert b.wait().hash == 0x51CCC178


# ---- Jumbo frames -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [60, 255, 257, 1514, 4352, 9018])
def test_jumbo_frames_go_on_in_aggregation_buffers(make: Callable[..., L2], size: int) -> None:
    a, b = make(), make(buffer=320, aggregation=4096, mtu=9000)
    for _ in range(3):
        sent = frame(a, b, size)
        a.send(*(sent[i : i + 4096] for i in range(0, size, 4096)))
        got = b.wait()
        assert got.frame == sent
        assert got.misc >> 1 & 0x1F == (0 if size <= 256 else -(-(size - 256) // 4096))
        a.wait_sent()


@pytest.mark.parametrize("name", ["tcp", "tcp6", "udp"])
def test_headers_are_split_from_payload(make: Callable[..., L2], name: str) -> None:
    a, b = make(), make(buffer=320, aggregation=4096, mtu=9000)
    network, transport, _ = PACKETS[name]
    sent = packet(a, b, network, transport, Raw(bytes(range(250)) * 4))
    a.send(sent)
    got = b.wait()
    assert got.frame == sent
    assert got.first == len(sent) - 1000
    assert got.flags >> 7 & 7 == 2  # RX_TPA_START_CMP_FLAGS_PLACEMENT_HDS


def test_a_jumbo_frame_without_aggregation_buffers_takes_none(make: Callable[..., L2]) -> None:
    a, b = make(), make(entries=4, buffer=320, aggregation=4096, mtu=9000)
    big, small = frame(a, b, 9018), frame(a, b, 100)
    for _ in range(2):  # three buffers each; three are there
        a.send(*(big[i : i + 4096] for i in range(0, len(big), 4096)))
        a.wait_sent()
    a.send(small)
    # Buffers that go back could be there for the second.
    assert b.wait(repost=False).frame == big
    assert b.wait(repost=False).frame == small
    assert b.received() is None


# ---- Notifications, and what the driver does wrong ------------------------------------------------------------------


def notification(nic: L2) -> tuple[int, int, int] | None:
    entry = nic.nq.get()
    if entry is None:
        return None
    nic.nq.count += 1
    kind, _, low, _, _ = struct.unpack("<HHIII", entry)
    return kind & 0x3F, kind >> 6 & 3, low


def test_an_armed_ring_notifies_once(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    fd = b.bare.function.interrupt(0)
    a.send(frame(a, b))
    b.wait()
    assert notification(b) == (0x30, 1, 0)
    a.send(frame(a, b))
    b.wait()
    assert notification(b) is None
    b.rx_done[0].ring(CQ_ARM_ALL, toggle=0)  # of the notification before
    a.send(frame(a, b))
    b.wait()
    assert notification(b) is None
    b.rx_done[0].ring(CQ_ARM_ALL, toggle=1)
    a.send(frame(a, b))
    b.wait()
    assert notification(b) == (0x30, 2, 0)
    b.nq.ring(NQ_ARM)
    assert fd >= 0


def test_arming_notifies_of_what_is_there(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    a.send(frame(a, b))
    b.wait()
    assert notification(b) is not None
    a.send(frame(a, b))
    a.wait_sent()
    assert eventually(b.rx_done[0].get)
    assert notification(b) is None
    b.rx_done[0].ring(CQ_ARM_ALL, toggle=1)
    assert notification(b) == (0x30, 2, 0)


def test_errors_of_descriptors_are_told_and_harm_nothing(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    a.send(frame(a, b), address=0x1234_5678_9000)  # not mapped
    assert a.wait_sent() == (0, 0x40)  # TX_CMP_ERRORS_DMA_ERROR
    a.send(b"short")
    assert a.wait_sent() == (2, 0x10)  # TX_CMP_ERRORS_ZERO_LENGTH_PKT
    a.tx.put(struct.pack("<IIQ", 0x3F | 1 << 8 | 60 << 16, 4, a.tx_buses[0]))
    a.tx.ring(0)
    assert a.wait_sent() == (4, 0x4)  # TX_CMP_ERRORS_BUFFER_ERROR_BAD_FORMAT << 1
    a.send(frame(a, b))
    assert a.wait_sent()[1] == 0
    assert b.wait().frame == frame(a, b)
    a.send(frame(a, b, 9700 - 9700 % 4096 - 100), frame(a, b, 4000), frame(a, b, 4000))  # longer than any frame
    a.wait_sent()
    assert b.all() == []


def test_a_transmit_ring_waits_for_room_in_its_completion_ring(make: Callable[..., L2]) -> None:
    a, b = make(entries=4), make(entries=256)
    for number in range(40):  # the completion ring has 16 entries, which nobody takes
        a.send(frame(a, b, 60 + number))
        b.all(seconds=0.002)
    before = a.tx_done.count
    while a.sent() is not None:
        pass
    assert a.tx_done.count - before >= 16


def test_rings_can_be_freed_with_packets_on_their_way(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    for _ in range(10):
        a.send(frame(a, b))
    for ring, kind in ((b.rx[0], hwrm.RingType.RX), (b.rx_done[0], hwrm.RingType.L2_CMPL)):
        b.bare.hwrm("ring_free", ring_type=kind, ring_id=ring.id)
    a.send(frame(a, b))
    a.bare.reset()
    b.bare.reset()
    with pytest.raises((NoAnswer, Refusal)):
        a.bare.hwrm("ring_free", ring_type=hwrm.RingType.TX, ring_id=a.tx.id)
    assert not b.bare.function.firmware.bugs


def test_the_answer_to_a_freed_ring_comes_by_the_completion_ring(make: Callable[..., L2]) -> None:
    a = make()
    a.bare.hwrm("ring_free", ring_type=hwrm.RingType.TX, ring_id=a.tx.id, cmpl_ring=a.tx_done.id)
    entry = a.tx_done.get()
    assert entry is not None
    kind, sequence = struct.unpack_from("<HH", entry)
    assert (kind & 0x3F, sequence) == (0x20, a.bare.sequence)  # CMPL_BASE_TYPE_HWRM_DONE


def test_the_link_goes_down_and_up_with_an_event(make: Callable[..., L2]) -> None:
    a, b = make(), make()
    b.bare.hwrm("func_cfg", fid=0xFFFF, enables=hwrm.FuncCfgEnables.ASYNC_EVENT_CR, async_event_cr=b.nq.id)
    for flags, up in ((hwrm.PhyCfgFlags.FORCE_LINK_DWN, False), (hwrm.PhyCfgFlags.FORCE, True)):
        b.bare.hwrm("port_phy_cfg", flags=flags)
        entry = b.nq.get()
        assert entry is not None
        b.nq.count += 1
        kind, event, _, _, data = struct.unpack("<HHIII", entry)
        assert (kind & 0x3F, event, data & 1) == (0x2E, 0, int(up))
        assert (b.bare.hwrm("port_phy_qcfg").link == 2) == up
        a.send(frame(a, b))
        a.wait_sent()
        assert b.took(1 + up)
        assert [got.frame for got in b.all(int(up))] == ([frame(a, b)] if up else [])


# ---- Wires --------------------------------------------------------------------------------------------------------


def test_frames_cross_a_wire_in_shared_memory(make: Callable[..., L2]) -> None:
    wire = userdma.soft.Wire(wire_name())
    a, b, c = (make(wire=wire, entries=128, mtu=9000, buffer=4096 if i else 2048) for i in range(3))
    for size in (60, 600, 3000):
        a.send(frame(a, b, size))
        assert b.wait().frame == frame(a, b, size)
        a.wait_sent()
    a.send(BROADCAST + a.mac + b"\x88\xb5" + bytes(1000))
    assert len(b.wait().frame) == len(c.wait().frame) == 1014


def test_faults_act_on_frames(make: Callable[..., L2]) -> None:
    wire = userdma.soft.Wire(loss=0.3, duplicate=0.3, corrupt=0.3, seed=5)
    a, b = make(wire=wire, entries=256), make(wire=wire, entries=256)
    b.mask(hwrm.RxMask.PROMISCUOUS)
    right = packet(a, b, *PACKETS["tcp"])
    wire.capture(1000)
    for _ in range(60):
        a.send(right)
        a.wait_sent()
    frames = wire.take()
    got = b.all(len(frames))
    assert [one.frame for one in got] == frames
    assert 0 < sum(one.frame != right for one in got) < len(got)
    intact = [one for one in got if one.frame == right]
    assert len(intact) not in (0, 60)
    assert all(one.checks == {"ip": True, "l4": True} for one in intact)


def test_a_tap_sends_and_sees_frames(make: Callable[..., L2]) -> None:
    wire = userdma.soft.Wire(frames=True)
    b = make(wire=wire)
    mac = bytes.fromhex("020000000001")
    tap = userdma.soft.Tap(wire, mac)
    tap.send_ethernet(b.mac + mac + b"\x08\x06" + bytes(46))
    assert b.wait().frame == b.mac + mac + b"\x08\x06" + bytes(46)
    b.send(mac + b.mac + b"\x08\x06" + bytes(46))
    b.wait_sent()
    assert tap.receive() == [mac + b.mac + b"\x08\x06" + bytes(46)]
    for wrong in (b"", bytes(13)):
        with pytest.raises(ValueError, match="a frame of"):
            tap.send_ethernet(wrong)
    tap.close()


def test_packets_of_roce_and_ethernet_share_a_nic() -> None:
    """A NIC whose driver moves both: frames of a tap, RoCE of a peer."""
    wire = userdma.soft.Wire(frames=True)
    with userdma.open(userdma.soft.bnxt(wire)) as one, userdma.open(userdma.soft.bnxt(wire)) as two:
        tap = userdma.soft.Tap(wire, bytes.fromhex("020000000001"))
        p, q = userdma.Qp.make(one), userdma.Qp.make(two)
        p.connect(q.endpoint)
        q.connect(p.endpoint)
        source, into = userdma.Region.host(one, 4096), userdma.Region.host(two, 4096)
        for number in range(20):
            tap.send_ethernet(two.mac + bytes.fromhex("020000000001") + b"\x08\x06" + bytes(46))
            source.write(0, bytes([number]) * 64)
            q.receive(into, 0, 64)
            p.send(source, 0, 64)
            done = q.wait(userdma.Side.RECEIVE, us=60_000_000)
            assert done is not None and done.ok
            assert into.read(0, 64) == bytes([number]) * 64
        tap.close()


def test_objects_are_given_back(make: Callable[..., L2]) -> None:
    a = make(queues=2, rss=TCP4, buffer=320, aggregation=4096)
    firmware = a.bare.function.firmware
    counts = firmware.counts()
    assert (counts["rings"], counts["rss_contexts"], counts["vnics"]) == (9, 1, 1)
    a.bare.hwrm("func_reset")
    counts = firmware.counts()
    assert not any(counts[name] for name in ("rings", "rss_contexts", "vnics", "filters", "stat_contexts"))
    L2(a.bare.function, queues=2, rss=TCP4)  # its numbers are free again
    assert not firmware.bugs
