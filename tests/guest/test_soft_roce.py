"""The kernel's soft-RoCE (rdma_rxe) in a guest and a soft NIC of this process, by RoCEv2 frames in Ethernet's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest
from guest import Guest

import userdma
from conftest import HERE
from userdma import Access, Endpoint, Qp, Region, RemoteMemory, Side, soft

sys.path.insert(0, str(HERE / "inside"))

import patient  # noqa: F401
from pattern import PIECE, pattern
from peer import expect

ADDRESS, MAC = "10.0.0.2", bytes([2, 0, 0, 0, 0, 2])


@pytest.mark.each_kernel
@pytest.mark.parametrize(("mtu", "loss"), [(1024, 0.0), (4096, 0.0), (1024, 0.01)], ids=["1024", "4096", "lossy"])
def test_both_ways(kernel: str, boot: Callable[..., Guest], tmp_path: Path, mtu: int, loss: float) -> None:
    """Send and receive, RDMA write and read by each end, and rxe's atomics; with frames lost too."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    wire = soft.Wire(f"dgram:{ours},{theirs}", loss=loss, seed=5)
    with userdma.open(soft.bnxt(wire)) as nic:
        peers = ",".join(f"{end}.type=unix,{end}.path={path}" for end, path in (("local", theirs), ("remote", ours)))
        guest = boot(
            kernel,
            arguments=["-netdev", f"dgram,id=wire,{peers}"],
            devices=[{"driver": "virtio-net-pci", "netdev": "wire", "mac": MAC.hex(":"), "addr": "04.0"}],
            name="soft-roce",
        )
        address = IPv6Address(nic.gid).ipv4_mapped
        guest.run(
            "modprobe virtio_net && modprobe rdma_rxe && modprobe ib_uverbs && "
            f"ip link set eth0 mtu {mtu + 476} up && ip address add {ADDRESS}/24 dev eth0 && "
            # The soft NIC's program has no ARP.
            f"ip route add {address}/32 dev eth0 && ip neigh add {address} lladdr {nic.mac.hex(':')} dev eth0 && "
            "rdma link add rxe0 type rxe netdev eth0"
        )
        guest.put(HERE / "inside", "/work/inside")
        rounds = 3
        program = guest.start(
            ["python3", "soft_roce.py", "rxe0", ADDRESS, str(mtu), str(rounds)], cwd="/work/inside", input=None
        )
        there: dict[str, Any] = json.loads(program.expect("}\n", timeout=600).split("here: ")[1].splitlines()[0])
        gid = bytes(10) + b"\xff\xff" + bytes(map(int, ADDRESS.split(".")))
        memory = RemoteMemory(there["address"], there["rkey"], 2 * PIECE)

        everything = Access.READ | Access.WRITE | Access.ATOMIC
        # What is sent, where the answer lands, what rxe reads, what it writes, its counter.
        region, qp = Region.host(nic, 4 * PIECE + 8, remote=everything), Qp.make(nic)
        region.write(4 * PIECE, (7).to_bytes(8, sys.byteorder))
        qp.connect(Endpoint(there["qp"], there["psn"], gid, MAC), mtu=mtu, remote=everything)
        mine, counter = region.remote(2 * PIECE), region.remote(4 * PIECE)
        here = {"qp": qp.endpoint.qp, "psn": qp.endpoint.psn, "gid": str(IPv6Address(nic.gid))}
        here |= {"address": mine.address, "rkey": mine.rkey, "counter": counter.address}
        program.write(json.dumps(here).encode() + b"\n")
        for n in range(rounds):
            region.write(0, pattern(10 * n + 1))
            region.write(2 * PIECE, pattern(10 * n + 4))
            qp.receive(region, PIECE, PIECE)
            program.expect(f"round {n}", timeout=600)
            qp.send(region, 0, PIECE)
            expect(qp, Side.SEND, PIECE)
            expect(qp, Side.RECEIVE, PIECE)
            assert region.read(PIECE, PIECE) == pattern(10 * n + 2)
            program.expect(f"the host's turn {n}", timeout=600)
            assert region.read(3 * PIECE, PIECE) == pattern(10 * n + 3)
            assert int.from_bytes(region.read(4 * PIECE, 8), sys.byteorder) == 7 + 5 * (n + 1)
            qp.read(memory, (region, 0), PIECE)
            expect(qp, Side.SEND, PIECE)
            assert region.read(0, PIECE) == pattern(10 * n + 5)
            region.write(0, pattern(10 * n + 6))
            qp.write((region, 0), RemoteMemory(memory.address + PIECE, memory.rkey, PIECE), PIECE)
            expect(qp, Side.SEND, PIECE)
            program.write(b"\n")
        result = program.wait(600)
        assert result.status == 0, result.output
        assert "all of it arrived" in result.output
