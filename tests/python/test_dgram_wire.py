"""The wire of datagrams: frames to and from one peer at a Unix socket, such as QEMU's `-netdev dgram`."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import userdma
from l2 import L2
from roce import put_together, take_apart
from userdma import Access, Endpoint, Error, Qp, Region, Side, soft

MAC = bytes.fromhex("020000000099")
GID = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 99])


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[socket.socket]:
    """The other end, of bytes: at `b`, sending to `a`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "b"))
        end.settimeout(60)
        yield end


def name(folder: Path, local: str = "a", remote: str = "b") -> str:
    return f"dgram:{folder / local},{folder / remote}"


def test_roce_goes_out_as_the_bytes_of_rocev2(peer: socket.socket, tmp_path: Path) -> None:
    with userdma.open(soft.bnxt(name(tmp_path), mac=MAC[:5] + b"\x01")) as nic:
        pair = Qp.make(nic)
        region = Region.host(nic, 4096)
        region.write(0, b"over the wire")
        pair.connect(Endpoint(0x1234, 77, GID, MAC), mtu=1024)
        pair.send(region, 0, 13)
        frame = take_apart(peer.recv(65536))
        assert (frame.name, frame.qp, frame.payload, frame.ack) == ("SEND_ONLY", 0x1234, b"over the wire", True)
        answer = put_together(
            "ACKNOWLEDGE",
            source=(MAC, GID),
            destination=(nic.mac, nic.gid),
            qp=pair.endpoint.qp,
            psn=frame.psn,
            msn=1,
        )
        wrong = answer[:-1] + bytes([answer[-1] ^ 1])
        peer.sendto(wrong, str(tmp_path / "a"))  # its ICRC is: nobody's
        assert pair.wait(Side.SEND, us=50_000) is None
        peer.sendto(answer, str(tmp_path / "a"))
        done = pair.wait(Side.SEND, us=60_000_000)
        assert done is not None and done.ok


def test_two_nics_over_datagrams(tmp_path: Path) -> None:
    with (
        userdma.open(soft.bnxt(name(tmp_path))) as one,
        userdma.open(soft.bnxt(name(tmp_path, "b", "a"))) as two,
    ):
        p, q = Qp.make(one), Qp.make(two)
        p.connect(q.endpoint)
        q.connect(p.endpoint, remote=Access.WRITE)
        size = 1 << 20
        source, into = Region.host(one, size), Region.host(two, size, remote=Access.WRITE)
        data = bytes(i * 31 >> 3 & 0xFF for i in range(size))
        source.write(0, data)
        p.write((source, 0), into.remote(), size)
        done = p.wait(Side.SEND, us=60_000_000)
        assert done is not None and done.ok
        assert into.read(0, size) == data


def test_ethernet_over_datagrams(peer: socket.socket, tmp_path: Path) -> None:
    function = soft.bnxt(name(tmp_path))
    nic = L2(function)
    sent = MAC + nic.mac + b"\x88\xb5" + bytes(range(100))
    nic.send(sent)
    assert peer.recv(65536) == sent
    back = nic.mac + MAC + b"\x88\xb5" + bytes(range(50))
    for runt in (b"", b"runt"):
        peer.sendto(runt, str(tmp_path / "a"))
    peer.sendto(back, str(tmp_path / "a"))
    assert nic.wait().frame == back


def test_a_peer_that_is_not_there_loses_what_is_sent(tmp_path: Path) -> None:
    nic = L2(soft.bnxt(name(tmp_path)))
    nic.send(MAC + nic.mac + b"\x88\xb5" + bytes(50))
    assert nic.wait_sent() == (0, 0)
    assert nic.bare.function.stats()["wire_dropped"] == 1


def test_a_peer_that_does_not_read_holds_the_sender_up(peer: socket.socket, tmp_path: Path) -> None:
    nic = L2(soft.bnxt(name(tmp_path)), entries=1024)
    sent = [MAC + nic.mac + b"\x88\xb5" + number.to_bytes(2, "big") + bytes(50) for number in range(300)]
    for number, frame in enumerate(sent):
        # Each from a place of its own in memory.
        at = number * 128
        memoryview(nic.tx_memory)[at : at + len(frame)] = frame
        address = nic.tx_buses[at // 4096] + at % 4096
        nic.tx.put(struct.pack("<IIQ", 0x10 | 2 << 8 | 0x40 | len(frame) << 16, 0, address))
        nic.tx.put(bytes(16))
    nic.tx.ring(0)
    assert [peer.recv(65536) for _ in sent] == sent


@pytest.mark.parametrize("paths", ["", "a", "a,", ",b", "a,b,c", f"{'x' * 200},b"])
def test_names_that_are_none(paths: str) -> None:
    with pytest.raises(ValueError, match="dgram:LOCAL,REMOTE"):
        soft.Wire(f"dgram:{paths}")


def test_a_socket_in_use_and_one_that_was_left(tmp_path: Path) -> None:
    first = soft.bnxt(name(tmp_path))
    with pytest.raises(Error, match=r"the socket .*/a of dgram:.*: Address already in use"):
        soft.bnxt(name(tmp_path))
    first.release()
    assert not (tmp_path / "a").exists()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(tmp_path / "a"))
    soft.bnxt(name(tmp_path)).release()
    with pytest.raises(Error, match="the socket /nowhere/at/all"):
        soft.bnxt("dgram:/nowhere/at/all,b")
