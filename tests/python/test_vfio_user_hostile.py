"""A NIC in software, served over vfio-user, and clients that mean it harm: the server's process goes on."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import userdma
import vfio_user_client as vu
from patience import eventually
from userdma import soft
from userdma.bnxt import hwrm
from vfio_user_client import Client, Closed, Refused

pytestmark = pytest.mark.no_sanitizer

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "nic.sock")


@pytest.fixture
def process(path: str) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """A server in a process of its own, which runs some code once it has said "up"."""
    started: list[subprocess.Popen[str]] = []

    def start(then: str = "server.wait(600)") -> subprocess.Popen[str]:
        code = "import faulthandler, os, resource, time\nfrom userdma import soft\nnic = soft.bnxt(soft.Wire())\n"
        code += f"server = soft.serve(nic, {path!r})\nprint('up', flush=True)\n" + textwrap.dedent(then)
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def ask_version(client: Client, answer: int) -> None:
    """HWRM_VER_GET (bnxt_hsi.h), with its answer to be written at that address."""
    client.write(vu.CONFIG, 4, b"\x06\0")  # memory space, bus mastering
    request = hwrm.REQUESTS["hwrm_ver_get"].request.pack(resp_addr=answer, seq_id=7)
    bar = vu.Bar(client, 0)
    bar.write_words(0, request.ljust(hwrm.MAX_REQUEST, b"\0"))
    bar.write32(0x100, 1)


def serves(path: str) -> None:
    """The next client is served as any."""
    end = time.monotonic() + 100
    while True:
        try:
            with Client(path) as client:
                assert client.read(vu.CONFIG, 0, 4) == bytes.fromhex("e4146017")
            return
        except (Closed, ConnectionRefusedError):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_huge_pages_that_are_not_there(process: Callable[..., Any], path: str) -> None:
    """A file of huge pages maps whether or not there are any; the first access is a SIGBUS then."""
    child = process()
    with Client(path) as client:
        try:
            fd = os.memfd_create("huge", os.MFD_HUGETLB)
        except OSError:
            pytest.skip("this kernel has no huge pages (CONFIG_HUGETLBFS)")
        with os.fdopen(fd, "rb+") as file:
            os.ftruncate(file.fileno(), 2 * MIB)
            client.dma_map(0x10000000, 2 * MIB, file.fileno())
            ask_version(client, 0x10000000 + MIB)
            with suppress(Closed):  # its connection may be ended, as its memory is lost
                client.region_info(7)
    serves(path)
    assert child.poll() is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_another_handler_of_sigbus(process: Callable[..., Any], path: str, when: str) -> None:
    """faulthandler takes the signal too; memory that is mapped after that is guarded all the same."""
    child = process(
        """
        while not server.connected:
            time.sleep(0.01)
        faulthandler.enable()
        print("on", flush=True)
        server.wait(600)
        """
    )
    with Client(path) as client, os.fdopen(os.memfd_create("memory"), "rb+") as file:
        os.ftruncate(file.fileno(), MIB)
        if when == "before":  # the signal was ours, then faulthandler's
            client.dma_map(0x10000000, MIB, file.fileno())
        assert child.stdout.readline() == "on\n"
        with os.fdopen(os.memfd_create("more"), "rb+") as more:
            os.ftruncate(more.fileno(), MIB)
            client.dma_map(0x20000000, MIB, more.fileno())
            os.ftruncate(more.fileno(), 0)
            os.ftruncate(file.fileno(), 0)
            ask_version(client, 0x20000000)
            with suppress(Closed):
                client.region_info(7)
    serves(path)
    assert child.poll() is None


def test_a_message_that_never_ends(path: str) -> None:
    """A client that leaves off in the middle while the NIC asks it for memory: the NIC works on, and Python too."""
    nic = soft.bnxt(soft.Wire())
    with soft.serve(nic, path), Client(path) as client:
        client.dma_map(0x10000, 4096)
        ask_version(client, 0x10000)
        client.message()  # it asks
        client.put(b"\0" * 8)  # half a header
        found: list[int] = []
        looking = threading.Thread(target=lambda: found.append(nic.config16(0)), daemon=True)
        looking.start()
        begin = time.monotonic()
        while time.monotonic() - begin < 1:
            time.sleep(0.01)  # this thread has the GIL again and again, whatever the other one waits for
        looking.join(100)
        assert found == [0x14E4]
        assert nic.firmware.counts()  # its locks are free
        with pytest.raises(Closed):
            while True:
                client.take(1)
    nic.release()


def test_replies_that_nobody_takes(path: str) -> None:
    """A client that asks and asks and reads nothing is let go: its replies fill its socket."""
    nic = soft.bnxt(soft.Wire())
    with soft.serve(nic, path) as server, Client(path) as client:
        head = struct.pack("<QII", 0, 0, 65536)
        message = vu.HEADER.pack(1, vu.REGION_READ, 16 + len(head), 0, 0) + head
        client.sock.settimeout(60)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                client.sock.sendall(message)
        assert eventually(lambda: not server.connected)
        serves(path)
    nic.release()


def test_commands_without_end(process: Callable[..., Any], path: str) -> None:
    """While the NIC waits for the client's memory, what comes meanwhile is kept, but not without bound."""
    child = process()
    with Client(path) as client:
        client.dma_map(0x10000, 4096)
        ask_version(client, 0x10000)
        body = struct.pack("<QII", 0, 0, MIB) + bytes(MIB)
        message = vu.HEADER.pack(1, vu.REGION_WRITE, 16 + len(body), vu.NO_REPLY, 0) + body
        end = time.monotonic() + 5
        try:
            while time.monotonic() < end:
                client.sock.sendall(message)
        except OSError:
            pass
        status = Path(f"/proc/{child.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak < 250 << 10  # KiB; 64 MiB of it may be commands
    serves(path)


def test_interrupts_beyond_the_limit_of_descriptors(process: Callable[..., Any], path: str) -> None:
    """All are connected, or none is, and it is said."""
    child = process(
        """
        used = len(os.listdir("/proc/self/fd"))
        limit = used + 1 + 16 + 8  # the client's socket, what it sends, and too few of the server's own
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        print("limited", flush=True)
        server.wait(600)
        """
    )
    assert child.stdout.readline() == "limited\n"
    with Client(path) as client:
        events = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(16)]
        with pytest.raises(Refused, match="EMFILE"):
            client.set_irqs(vu.DATA_EVENTFD | vu.TRIGGER, 0, 16, events)
        client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 0, 16)
        time.sleep(0.2)
        for event in events:
            with pytest.raises(BlockingIOError):
                os.eventfd_read(event)
            os.close(event)
        assert client.read(vu.CONFIG, 0, 2) == b"\xe4\x14"


@pytest.mark.parametrize("index", [3, 4], ids=["error", "request"])
def test_events_that_a_client_triggers_by_hand(path: str, index: int) -> None:
    """VFIO_PCI_ERR_IRQ_INDEX and VFIO_PCI_REQ_IRQ_INDEX (linux/vfio.h) take DATA_NONE and DATA_BOOL."""
    nic = soft.bnxt(soft.Wire())
    with soft.serve(nic, path), Client(path) as client:
        event = os.eventfd(0, os.EFD_NONBLOCK)
        client.set_irqs(vu.DATA_EVENTFD | vu.TRIGGER, 0, 1, [event], index=index)
        client.set_irqs(vu.DATA_NONE | vu.TRIGGER, 0, 1, index=index)
        assert os.eventfd_read(event) == 1
        client.set_irqs(vu.DATA_BOOL | vu.TRIGGER, 0, 1, data=b"\x01", index=index)
        assert os.eventfd_read(event) == 1
        client.set_irqs(vu.DATA_BOOL | vu.TRIGGER, 0, 1, data=b"\x00", index=index)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(event)
        os.close(event)
    nic.release()


def test_a_server_that_is_dropped(path: str) -> None:
    """With a client, and without close(): it ends as by close()."""
    nic = soft.bnxt(soft.Wire())
    server = soft.serve(nic, path)
    with Client(path) as client:
        client.read(vu.CONFIG, 0, 2)
        del server
        assert eventually(lambda: not Path(path).exists())
    nic.release()


def test_who_only_looks(path: str) -> None:
    """A second server at the path is refused, and what it did to find out is no client of the first."""
    one, two = soft.bnxt(soft.Wire()), soft.bnxt(soft.Wire())
    with soft.serve(one, path, once=True) as server:
        with pytest.raises(userdma.Error, match="somebody listens on it already"):
            soft.serve(two, path)
        assert not server.wait(0.3)
        assert (server.clients, server.ended) == (0, False)
        serves(path)
        assert server.wait(60)
    one.release()
    two.release()


def test_many_descriptors(path: str) -> None:
    """More than select() takes."""
    nic = soft.bnxt(soft.Wire())
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard_limit), hard_limit))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1030)]
    try:
        with soft.serve(nic, path) as server:
            assert server.fileno() > 1023
            assert not server.wait(0.01)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))
        nic.release()
