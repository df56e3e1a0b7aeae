"""NICs of several processes on one wire: a guest with a program of the host, and guests of two servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from guest import Guest, vfio_user
from lab import LISTENING, Machine, mend_rdma_core, until

import userdma
from conftest import HERE
from userdma import Endpoint, Qp, Region, RemoteMemory, Side

sys.path.insert(0, str(HERE / "inside"))

import patient  # noqa: F401
from pattern import PIECE, pattern
from peer import RIGHTS, expect

BUS = "0000:00:05.0"


@pytest.fixture
def wire() -> str:
    return f"shm:guests-{os.getpid()}"


@contextmanager
def served(wire: str, *sockets: Path) -> Iterator[None]:
    """``userdma serve`` in a process of its own, until SIGTERM."""
    command = [sys.executable, "-m", "userdma.cli", "serve", "--wire", wire]
    for socket in sockets:
        command += ["--vfio-user", str(socket)]
    command += ["soft:bnxt"] * len(sockets)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        for socket in sockets:
            assert f"at {socket}, for QEMU" in server.stdout.readline()
            assert "vfio-user-pci" in server.stdout.readline()
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0


def test_a_guest_and_a_program_of_the_host(kernel: str, tmp_path: Path, wire: str) -> None:
    """Sends both ways, and the guest's RDMA write and read, by our driver on both ends."""
    socket = tmp_path / "nic"
    with (
        served(wire, socket),
        Guest(kernel, iommu=True, devices=[vfio_user(socket)], name="across") as guest,
        userdma.open("soft:bnxt", wire=wire) as nic,
    ):
        guest.install()
        guest.bind(BUS, "vfio-pci")
        guest.put(HERE / "inside", "/work/inside")
        program = guest.start(["python3", "peer.py", BUS], cwd="/work/inside", input=None)
        words = program.expect("ready\n", timeout=600).split("here: ")[1].split()
        endpoint, there = Endpoint.from_bytes(bytes.fromhex(words[0])), RemoteMemory.from_bytes(bytes.fromhex(words[1]))

        # What is sent, where the answer lands, what the guest reads, what it writes.
        region, qp = Region.host(nic, 4 * PIECE, remote=RIGHTS), Qp.make(nic)
        region.write(0, pattern(1))
        region.write(2 * PIECE, pattern(4))
        qp.connect(endpoint, remote=RIGHTS)
        qp.receive(region, PIECE, PIECE)
        program.write(f"{qp.endpoint.to_bytes().hex()} {region.remote(2 * PIECE).to_bytes().hex()}\n".encode())
        program.expect("connected", timeout=600)
        qp.send(region, 0, PIECE)
        expect(qp, Side.SEND, PIECE)
        expect(qp, Side.RECEIVE, PIECE)
        assert region.read(PIECE, PIECE) == pattern(2)
        program.expect("all of it arrived", timeout=600)
        assert region.read(3 * PIECE, PIECE) == pattern(3)

        # And the other way: this program reads and writes the guest's memory, which does nothing meanwhile.
        qp.read(there, (region, 0), PIECE)
        expect(qp, Side.SEND, PIECE)
        assert region.read(0, PIECE) == pattern(4)
        qp.write((region, PIECE), there, PIECE)
        expect(qp, Side.SEND, PIECE)
        program.write(b"\n")
        result = program.wait(600)
        assert result.status == 0, result.output
        assert "the first half has pattern 2" in result.output


def test_guests_of_two_servers(kernel: str, tmp_path: Path, wire: str) -> None:
    """Each NIC in a server of its own: Ethernet and RDMA between the guests' kernels."""
    sockets = [tmp_path / f"nic{i}" for i in range(2)]
    with ExitStack() as stack:
        machines = []
        for number, socket in enumerate(sockets, 1):
            stack.enter_context(served(wire, socket))
            guest = stack.enter_context(Guest(kernel, devices=[vfio_user(socket)], name=f"server{number}"))
            machines.append(Machine(guest, None, f"10.0.0.{number}"))
        for machine in machines:
            env = mend_rdma_core(kernel, machine.guest)
            machine.load()
            machine.up(mtu=9000)
        one, two = machines
        two.ping(one.address)
        listening = one.guest.start("rping -s -a 10.0.0.1 -C 5 -V", env=env)
        one.run(until(LISTENING))
        said = two.guest.run("rping -c -a 10.0.0.1 -C 5 -V -v", env=env).output
        assert said.count("rdma-ping-") == 5
        assert listening.wait(600).status == 0
        assert [machine.complaints() for machine in machines] == [[], []]
