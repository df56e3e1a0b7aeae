"""Run in a guest (see ../README.md), as a user with no privilege: a ConnectX that Linux's mlx5_ib keeps, mlx5_0."""

from __future__ import annotations

import array
import fcntl
import mmap
import os
from collections.abc import Iterator

import pytest

import userdma
from userdma import Access, ErrorKind, MachineError, Nic, Qp, Region, RemoteMemory, Side

PAGE = 4096
SECOND = 1_000_000


@pytest.fixture
def nic() -> Iterator[Nic]:
    with userdma.open("mlx5_0") as nic:
        yield nic


def done(qp: Qp, side: Side) -> userdma.Completion:
    found = qp.wait(side, us=120 * SECOND)
    assert found is not None
    return found


def dma_buf(n: int) -> tuple[int, mmap.mmap]:
    """A dma-buf of `n` bytes, and a view of its memory: linux/udmabuf.h."""
    memory = os.memfd_create("dma-buf", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, n)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    device = os.open("/dev/udmabuf", os.O_RDWR)
    request = array.array("Q", [memory, 0, n])  # memfd and flags, offset, size
    shared = fcntl.ioctl(device, 0x40187542, request)  # UDMABUF_CREATE
    os.close(device)
    view = mmap.mmap(memory, n)
    os.close(memory)
    return shared, view


def test_a_region_of_a_dma_buf(nic: Nic) -> None:
    """Sent from, received into, read and written by a peer: at an offset, and with the descriptor closed."""
    shared, view = dma_buf(16 * PAGE)
    there = Region.dmabuf(nic, shared, PAGE, 8 * PAGE, remote=Access.READ | Access.WRITE)
    os.close(shared)
    here = Region.host(nic, 8 * PAGE)
    qp = Qp.make(nic)
    qp.connect(qp.endpoint, remote=Access.READ | Access.WRITE)
    here.write(0, b"into the dma-buf")
    qp.receive(there, 100, PAGE)
    qp.send(here, 0, 16)
    assert done(qp, Side.SEND).ok and done(qp, Side.RECEIVE).bytes == 16
    assert view[PAGE + 100 : PAGE + 116] == b"into the dma-buf"
    view[PAGE + 8000 : PAGE + 8006] = b"out of"
    qp.read(there.remote(8000), (here, 50), 6)
    assert done(qp, Side.SEND).ok and here.read(50, 6) == b"out of"
    qp.write((here, 0), there.remote(3), 16)
    assert done(qp, Side.SEND).ok and view[PAGE + 3 : PAGE + 19] == b"into the dma-buf"
    with pytest.raises(ValueError, match="do not lie in"):
        qp.send(there, 8 * PAGE - 1, 2)
    there.deregister()


def test_what_is_no_dma_buf(nic: Nic) -> None:
    with (
        open("/dev/null") as file,
        pytest.raises(userdma.Error, match="is no dma-buf's, or the bytes do not lie in it"),
    ):
        Region.dmabuf(nic, file.fileno(), 0, PAGE)
    shared, _ = dma_buf(2 * PAGE)
    with pytest.raises(userdma.Error, match="is no dma-buf's, or the bytes do not lie in it"):
        Region.dmabuf(nic, shared, PAGE, 2 * PAGE)
    os.close(shared)


def test_what_the_kernel_tells_of_a_pair(nic: Nic) -> None:
    """A peer's write without the right to: this end hears of it by the kernel's event."""
    region = Region.host(nic, PAGE)
    a, b = Qp.make(nic), Qp.make(nic)
    a.connect(b.endpoint)
    b.connect(a.endpoint, remote=Access.WRITE)
    b.receive(region, 0, PAGE)
    target = region._registration
    a.write((region, 0), RemoteMemory(target.remote_va, target.remote_key, 8), 8)
    assert done(a, Side.SEND).error is ErrorKind.REMOTE_ACCESS
    found = done(b, Side.RECEIVE)
    assert found.error is ErrorKind.FLUSHED
    assert found.message.endswith(
        "flushed, as the queue pair had failed: the NIC reported its failure, of its peer's requests: memory outside a "
        "region, or without the rights for it (remote=... of the region) (event QP_ACCESS_ERR)"
    )


def test_processes_of_one_nic(nic: Nic) -> None:
    """Another process's pair at the same address is another peer: it reads what it is given, and no more."""
    ours = Region.host(nic, PAGE, remote=Access.READ)
    a = Qp.make(nic)
    ours.write(0, b"to be read")
    to_parent, from_child = os.pipe()
    from_parent, to_child = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with userdma.open("mlx5_0") as other, Region.host(other, PAGE) as mine, Qp.make(other) as b:
                os.write(from_child, b.endpoint.to_bytes())
                data = os.read(from_parent, 1000)
                endpoint = userdma.Endpoint.from_bytes(data[:40])
                memory = RemoteMemory.from_bytes(data[40:])
                b.connect(endpoint)
                with pytest.raises(ValueError, match="is not a queue pair of its own NIC"):
                    b.read((mine, 0), (mine, 0), 8)
                b.read(memory, (mine, 0), 10)
                assert done(b, Side.SEND).ok and mine.read(0, 10) == b"to be read"
                status = 0
        finally:
            os._exit(status)
    a.connect(userdma.Endpoint.from_bytes(os.read(to_parent, 1000)), remote=Access.READ)
    os.write(to_child, a.endpoint.to_bytes() + ours.remote().to_bytes())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_more_pairs_than_fit_are_refused_and_leave_nothing(nic: Nic) -> None:
    with pytest.raises(ValueError):
        Qp.make(nic, send=nic.limits["ring_entries"])
    pairs = [Qp.make(nic, send=31, receive=31) for _ in range(64)]
    assert len({pair.number for pair in pairs}) == 64
    for pair in pairs:
        pair.destroy()


def test_what_the_driver_keeps(nic: Nic) -> None:
    function = nic.function
    assert (function.config16(0), function.config16(2)) == (0x15B3, 0x101D)
    for call in (function.reset, lambda: function.map(0), lambda: function.interrupt(0)):
        with pytest.raises(MachineError, match="stays its kernel driver's"):
            call()
