"""RoCEv2 frames by scapy: what a wire carried, taken apart and checked; and frames that no NIC here made.

scapy has the BTH, the AETH of an acknowledgement and the ICRC. The other extension headers are taken apart here, by
the InfiniBand specification, volume 1, chapter 9.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from scapy.contrib.roce import AETH, BTH, _bth_opcodes
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

OPCODES: dict[str, int] = {name.removeprefix("RC_"): code for code, name in _bth_opcodes.items() if code < 0x20}
OPCODES |= {"SEND_LAST_WITH_INVALIDATE": 0x16, "SEND_ONLY_WITH_INVALIDATE": 0x17}  # scapy lacks them; IBTA table 38
NAMES = {code: name for name, code in OPCODES.items()}
ACK, RNR, NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_OPERATION = 0x1F, 0x20, 0x60, 0x61, 0x62, 0x63  # IBTA table 45


def has_reth(name: str) -> bool:
    return name.startswith(("RDMA_WRITE_FIRST", "RDMA_WRITE_ONLY")) or name == "RDMA_READ_REQUEST"


def has_aeth(name: str) -> bool:
    return "ACKNOWLEDGE" in name or (name.startswith("RDMA_READ_RESPONSE") and not name.endswith("MIDDLE"))


@dataclass(frozen=True)
class Frame:
    raw: bytes
    packet: Any  # scapy's
    name: str
    psn: int
    qp: int
    ack: bool
    payload: bytes
    va: int = 0
    rkey: int = 0
    length: int = 0
    swap_or_add: int = 0
    compare: int = 0
    syndrome: int = 0
    msn: int = 0
    original: int = 0
    immediate: int = 0


def take_apart(raw: bytes) -> Frame:
    """A frame, after everything that does not depend on what was posted was checked."""
    packet = Ether(raw)
    ip, udp, bth = packet[IP], packet[UDP], packet[BTH]
    assert packet.type == 0x0800
    assert (ip.version, ip.ihl, ip.proto, ip.frag, int(ip.flags)) == (4, 5, 17, 0, 2)
    assert ip.len == len(raw) - 14
    unsummed = ip.copy()
    del unsummed.chksum
    assert IP(bytes(unsummed)).chksum == ip.chksum, "the IPv4 header's checksum"
    assert udp.dport == 4791
    assert udp.sport >= 0xC000  # A17: flow entropy of the ports that nobody registers
    assert udp.len == ip.len - 20
    assert udp.chksum == 0
    assert bth.compute_icrc(None) == raw[-4:], "the ICRC"
    assert (bth.version, bth.resv6, bth.resv7, bth.fecn, bth.becn) == (0, 0, 0, 0, 0)
    name = NAMES[bth.opcode]
    rest = raw[14 + 20 + 8 + 12 : -4]
    fields: dict[str, int] = {}

    def header(layout: str, *names: str) -> None:
        nonlocal rest
        size = struct.calcsize(layout)
        fields.update(zip(names, struct.unpack(layout, rest[:size]), strict=True))
        rest = rest[size:]

    if has_reth(name):
        header("!QII", "va", "rkey", "length")
    if name in ("COMPARE_SWAP", "FETCH_ADD"):
        header("!QIQQ", "va", "rkey", "swap_or_add", "compare")
    if has_aeth(name):
        header("!I", "syndrome")
        fields["msn"] = fields["syndrome"] & 0xFFFFFF
        fields["syndrome"] >>= 24
        if AETH in packet:
            assert (packet[AETH].syndrome, packet[AETH].msn) == (fields["syndrome"], fields["msn"])
    if name == "ATOMIC_ACKNOWLEDGE":
        header("!Q", "original")
    if name.endswith(("IMMEDIATE", "INVALIDATE")):
        header("!I", "immediate")
    assert len(rest) % 4 == 0
    assert not any(rest[len(rest) - bth.padcount :]), "pad bytes"
    payload = rest[: len(rest) - bth.padcount]
    assert bth.padcount == -len(payload) % 4
    return Frame(raw, packet, name, bth.psn, bth.dqpn, bool(bth.ackreq), payload, **fields)


def address(gid: bytes) -> str:
    """The IPv4 address of a GID that maps one."""
    assert gid[:12] == bytes(10) + b"\xff\xff"
    return ".".join(map(str, gid[12:]))


def put_together(
    name: str,
    *,
    source: tuple[bytes, bytes],
    destination: tuple[bytes, bytes],
    qp: int,
    psn: int,
    payload: bytes = b"",
    ack: bool = False,
    extension: bytes | None = None,
    ip: dict[str, Any] | None = None,
    udp: dict[str, Any] | None = None,
    bth: dict[str, Any] | None = None,
    **fields: int,
) -> bytes:
    """The frame of these fields, by scapy. `source`, `destination`: MAC and GID. `fields`: of the extension headers."""
    code = OPCODES[name]
    if extension is None:
        get = fields.get
        extension = b""
        if has_reth(name):
            extension += struct.pack("!QII", get("va", 0), get("rkey", 0), get("length", 0))
        if name in ("COMPARE_SWAP", "FETCH_ADD"):
            extension += struct.pack("!QIQQ", get("va", 0), get("rkey", 0), get("swap_or_add", 0), get("compare", 0))
        if has_aeth(name):
            extension += struct.pack("!I", get("syndrome", ACK) << 24 | get("msn", 0))
        if name == "ATOMIC_ACKNOWLEDGE":
            extension += struct.pack("!Q", get("original", 0))
        if name.endswith(("IMMEDIATE", "INVALIDATE")):
            extension += struct.pack("!I", get("immediate", 0))
    pad = -len(payload) % 4
    ether = Ether(src=source[0].hex(":"), dst=destination[0].hex(":"))
    if source[1].startswith(bytes(10) + b"\xff\xff"):
        network = IP(**{"src": address(source[1]), "dst": address(destination[1]), "flags": "DF", "id": 0} | (ip or {}))
    else:
        network = IPv6(**{"src": source[1], "dst": destination[1]} | (ip or {}))
    transport = BTH(**{"opcode": code, "psn": psn, "dqpn": qp, "ackreq": ack, "padcount": pad} | (bth or {}))
    datagram = UDP(**{"sport": 0xC123, "dport": 4791, "chksum": 0} | (udp or {}))
    return bytes(ether / network / datagram / transport / Raw(extension + payload + bytes(pad)))
