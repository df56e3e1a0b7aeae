"""Regions: one test for each sentence of their contract, quoted in its docstring."""

from __future__ import annotations

import ctypes
import mmap
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import userdma
from conftest import connect, connected, counts, done, take
from steps import firmware, give_up, quick, steps
from userdma import (
    Access,
    DmaMemoryError,
    Error,
    ErrorKind,
    FirmwareRefusedError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    Nic,
    Qp,
    Region,
    RemoteMemory,
    Side,
    _core,
)

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
MEBI = 1 << 20
Soft = Callable[..., Nic]


class Pages:
    """Anonymous memory of this process, on a page."""

    def __init__(self, n: int, flags: int = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) -> None:
        self.map = mmap.mmap(-1, n, flags=flags)
        self._holds = ctypes.c_char.from_buffer(self.map)
        self.address = ctypes.addressof(self._holds)

    def drop(self) -> None:
        del self._holds
        self.map.close()


# ---- A region --------------------------------------------------------------------------------------------------------


def test_a_region_is_memory_the_nic_writes_and_reads(nic: Nic) -> None:
    """A region is memory the NIC writes and reads."""
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    r.write(0, b"bytes")
    b.receive(r, 100, 10)
    a.send(r, 0, 5)  # read
    assert done(b, RECEIVE) == 5
    assert r.read(100, 5) == b"bytes"  # written


def test_sends_write_it_only_through_a_posted_receive(two: tuple[Nic, Nic]) -> None:
    """It is local to its NIC: a peer's sends write it only through a receive this process posted."""
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    r.write(0, b"x" * PAGE)
    a.send(r, 0, 64)
    time.sleep(0.02)
    assert s.read(0, PAGE) == bytes(PAGE)
    b.receive(s, 1000, 64)
    assert done(b, RECEIVE) == 64
    assert s.read(0, PAGE) == bytes(1000) + b"x" * 64 + bytes(PAGE - 1064)


@pytest.mark.parametrize("rights", [Access.NONE, Access.READ, Access.READ | Access.WRITE | Access.ATOMIC])
@pytest.mark.parametrize("granted", [Access.NONE, Access.WRITE])
def test_only_pairs_of_its_own_nic_read_it(two: tuple[Nic, Nic], rights: Access, granted: Access) -> None:
    """And only queue pairs connected to queue pairs of its own NIC read it (Qp.read)."""
    s = Region.host(two[1], PAGE, remote=granted)
    s.write(0, b"secret")
    # A peer that guesses the region's keys, and has what it was given.
    registration = s._registration
    guesses = [RemoteMemory(at, key, PAGE) for key in {registration.key, registration.remote_key} for at in (0, PAGE)]
    guesses.append(RemoteMemory(ctypes.addressof(ctypes.c_char()), registration.key, PAGE))
    if granted:
        guesses.append(s.remote())
        guesses.append(RemoteMemory(s.remote().address, registration.key, PAGE))
    for guess in guesses:
        a, b = Qp.make(two[0]), Qp.make(two[1])
        a.connect(b.endpoint)
        b.connect(a.endpoint, remote=rights)
        r = Region.host(two[0], PAGE)
        a.read(guess, (r, 0), 6)
        found = take(a, SEND)
        assert found.error in (ErrorKind.REMOTE_ACCESS, ErrorKind.REMOTE_INVALID_REQUEST), (guess, found)
        assert r.read(0, 6) == bytes(6)
    a, _ = connected(two[1])
    t = Region.host(two[1], PAGE)
    a.read((s, 0), (t, 0), 6)
    assert done(a, SEND) == 6
    assert t.read(0, 6) == b"secret"


def test_written_in_the_order_of_the_entries(nic: Nic) -> None:
    """The NIC writes a region in the order of the entries that write it."""
    a, b = connected(nic)
    src, dst = Region.host(nic, 65536), Region.host(nic, 65536)
    for n in range(64):
        src.write(n * 1024, bytes([n]) * 1024)
        b.receive(dst, n * 8, 1024)  # each over most of the one before
        a.send(src, n * 1024, 1024)
    for _ in range(64):
        done(b, RECEIVE)
    expected = b"".join(bytes([n]) * 8 for n in range(63)) + bytes([63]) * 1024
    assert dst.read(0, len(expected)) == expected


def test_bytes_are_there_before_the_completion(nic: Nic) -> None:
    """The bytes of a receive or a read are there once Qp.poll or Qp.wait has taken its completion."""
    a, b = connected(nic)
    src, dst = Region.host(nic, MEBI), Region.host(nic, MEBI)
    for n in range(1, 9):
        src.write(0, bytes([n]) * MEBI)
        b.receive(dst, 0, MEBI)
        a.send(src, 0, MEBI)
        while b.poll(RECEIVE) is None:
            pass
        assert dst.read(0, MEBI) == bytes([n]) * MEBI
        assert done(a, SEND) == MEBI
        src.write(0, bytes([n + 100]) * MEBI)
        a.read((src, 0), (dst, 0), MEBI)
        while a.poll(SEND) is None:
            pass
        assert dst.read(0, MEBI) == bytes([n + 100]) * MEBI


@pytest.mark.pci
def test_relaxed_ordering_is_off(nic: Nic) -> None:
    """This holds because open_ turns the NIC's relaxed ordering off."""
    from userdma.firmware.take import capabilities

    express = dict(capabilities(nic.function))[0x10]
    assert not nic.function.config16(express + 8) & 0x10  # PCI_EXP_DEVCTL_RELAX_EN


# ---- host ------------------------------------------------------------------------------------------------------------


def test_host_is_new_zeroed_memory(nic: Nic) -> None:
    """host nic n is a region over new, zeroed system memory, which the process reads and writes with read and write."""
    for _ in range(3):
        r = Region.host(nic, 3 * PAGE)
        assert r.read(0, 3 * PAGE) == bytes(3 * PAGE)
        r.write(0, b"\xff" * 3 * PAGE)
        assert r.read(0, 3 * PAGE) == b"\xff" * 3 * PAGE
        r.deregister()


def test_host_rounds_up(nic: Nic) -> None:
    """Of n bytes rounded up to the machine's page."""
    page = nic.machine.page
    for n, size in ((1, page), (page - 1, page), (page, page), (page + 1, 2 * page), (10 * page, 10 * page)):
        with Region.host(nic, n) as r:
            assert len(r) == size
            assert len(r.read(0, size)) == size


def test_host_without_memory(soft: Soft) -> None:
    """Error msg if the machine has no memory for it, as alloc_dma states."""
    nic = soft(memory=64 * MEBI)
    before = counts(nic)
    for n in (65 * MEBI, 1 << 40, 1 << 60, 1 << 70):
        with pytest.raises(DmaMemoryError):
            Region.host(nic, n)
        assert counts(nic) == before


def test_host_refused(soft: Soft) -> None:
    """Or the firmware refuses it."""
    nic = soft()
    before = counts(nic)
    for remote, commands in ((Access.NONE, 1), (Access.READ | Access.WRITE, 1), (Access.WRITE, 2)):
        for k in range(1, commands + 1):
            firmware(nic).refuse("*", k)
            with pytest.raises(FirmwareRefusedError, match=steps(nic).register):
                Region.host(nic, MEBI, remote=remote)
            assert counts(nic) == before


def test_host_of_a_firmware_that_stops(soft: Soft) -> None:
    """Memory that a firmware which stopped answering may still name stays until close."""
    nic = soft()
    quick(nic)
    before = counts(nic)["core_dma_pages"]
    firmware(nic).stop(within=steps(nic).register)
    with pytest.raises(FirmwareTimeoutError):
        Region.host(nic, MEBI)
    assert counts(nic)["core_dma_pages"] >= before + MEBI // PAGE
    with pytest.raises(FirmwareStoppedError):
        Region.host(nic, MEBI)
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0


def test_host_checks(nic: Nic) -> None:
    """Raises Invalid_argument if n <= 0."""
    for n in (0, -1, -(1 << 70)):
        with pytest.raises(ValueError, match="positive"):
            Region.host(nic, n)
    with pytest.raises(ValueError, match="remote"):
        Region.host(nic, 1, remote=16)  # type: ignore[arg-type]


# ---- pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.pages
@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS])
def test_pages_of_the_process(nic: Nic, flags: int) -> None:
    """pages nic a n is a region over the n bytes at address a of the process."""
    pages = Pages(4 * PAGE, flags)
    pages.map[:] = b"before" + bytes(4 * PAGE - 6)
    r = Region.pages(nic, pages.address, 3 * PAGE + 10)
    assert len(r) == 3 * PAGE + 10
    h = Region.host(nic, 4 * PAGE)
    a, b = connected(nic)
    b.receive(h, 0, 64)
    a.send(r, 0, 6)
    assert done(b, RECEIVE) == 6
    assert h.read(0, 6) == b"before"
    h.write(0, b"after")
    b.receive(r, 3 * PAGE, 10)
    a.send(h, 0, 5)
    assert done(b, RECEIVE) == 5
    assert pages.map[3 * PAGE : 3 * PAGE + 5] == b"after"
    with pytest.raises(ValueError):
        a.send(r, 3 * PAGE, 11)
    r.deregister()
    pages.drop()


def test_pages_that_start_on_a_page(nic: Nic) -> None:
    """Which start on a page of nic's machine. Raises Invalid_argument if n <= 0 or a is not on a page."""
    pages = Pages(2 * PAGE)
    for address, n in ((pages.address + 1, PAGE), (pages.address + PAGE // 2, 1)):
        with pytest.raises(ValueError, match="page"):
            Region.pages(nic, address, n)
    for n in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            Region.pages(nic, pages.address, n)
    with pytest.raises(ValueError, match="page"):
        Region.pages(nic, -PAGE, PAGE)


def test_pinned_until_deregistered_or_closed(soft: Soft) -> None:
    """Pinned for nic as Rig_pci.Function.pin pins them until the region is deregistered or nic closes."""
    nic = soft()
    before = counts(nic)
    pages = Pages(64 * PAGE)
    r = Region.pages(nic, pages.address, 64 * PAGE)
    assert counts(nic)["core_dma_pages"] >= before["core_dma_pages"] + 64
    r.deregister()
    assert counts(nic) == before
    kept = Region.pages(nic, pages.address, 64 * PAGE)
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0
    assert not kept.alive
    pages.map[:] = b"x" * 64 * PAGE
    pages.drop()


@pytest.mark.pages
@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS])
def test_the_pages_that_held_the_bytes(nic: Nic, flags: int) -> None:
    """The NIC reaches the pages that held the bytes when pages ran, whatever the process maps there later."""
    pages = Pages(4 * PAGE, flags)
    address = pages.address
    pages.map[:4] = b"held"
    r = Region.pages(nic, address, 4 * PAGE)
    pages.map[4:8] = b"more"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    fixed = 0x10
    over = libc.mmap(address, 4 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags | fixed, -1, 0)
    assert over == address
    new = (ctypes.c_char * (4 * PAGE)).from_address(address)
    memoryview(new).cast("B")[:8] = b"new here"
    h = Region.host(nic, PAGE)
    a, b = connected(nic)
    b.receive(h, 0, 64)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8
    assert h.read(0, 8) == b"heldmore"
    h.write(0, b"\xee" * PAGE)
    b.receive(r, PAGE, PAGE)
    a.send(h, 0, PAGE)
    assert done(b, RECEIVE) == PAGE
    assert bytes(new) == b"new here" + bytes(4 * PAGE - 8)
    r.deregister()


@pytest.mark.pages
def test_pages_of_a_buffer(nic: Nic) -> None:
    """Any page-aligned writable buffer can be a region without a copy."""
    buffer = mmap.mmap(-1, 4 * PAGE)
    r = Region.pages(nic, buffer)
    assert len(r) == 4 * PAGE
    part = Region.pages(nic, memoryview(buffer)[PAGE:], 10)
    assert len(part) == 10
    a, b = connected(nic)
    h = Region.host(nic, PAGE)
    h.write(0, b"straight in")
    b.receive(r, 2 * PAGE, PAGE)
    a.send(h, 0, 11)
    assert done(b, RECEIVE) == 11
    assert buffer[2 * PAGE : 2 * PAGE + 11] == b"straight in"
    with pytest.raises(BufferError):
        buffer.close()  # the region holds it
    part.deregister()
    r.deregister()
    buffer.close()
    for wrong in (bytes(PAGE), memoryview(bytearray(2 * PAGE))[::2], "text", None, 1.5):
        with pytest.raises(TypeError, match="buffer"):
            Region.pages(nic, wrong, 1)


@pytest.mark.pages
def test_pages_of_a_numpy_array(nic: Nic) -> None:
    """NumPy, mmap, a host torch tensor."""
    numpy = pytest.importorskip("numpy")
    whole = numpy.zeros(3 * PAGE, dtype=numpy.uint8)
    start = -whole.ctypes.data % PAGE
    array = whole[start : start + PAGE].view(numpy.uint32)
    with Region.pages(nic, array) as r:
        assert len(r) == PAGE
        a, b = connected(nic)
        h = Region.host(nic, PAGE)
        h.write(0, (7).to_bytes(4, "little"))
        b.receive(r, 4, 4)
        a.send(h, 0, 4)
        done(b, RECEIVE)
        assert array[1] == 7


def test_pages_without_room(soft: Soft) -> None:
    """Error msg if the machine has no room to pin them for nic."""
    nic = soft(pin_limit=64 * MEBI)
    pages = Pages(128 * MEBI)
    before = counts(nic)
    with pytest.raises(DmaMemoryError):
        Region.pages(nic, pages.address, 128 * MEBI)
    assert counts(nic) == before


@pytest.mark.pages
def test_pages_the_system_refuses(nic: Nic) -> None:
    """The system refuses to pin them."""
    with pytest.raises(Error):
        Region.pages(nic, 1 << 40, PAGE)  # nothing is mapped there
    readonly = mmap.mmap(-1, PAGE, prot=mmap.PROT_READ)
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(r"([0-9a-f]+)-[0-9a-f]+ r--", line)
        if found:
            with pytest.raises(Error):
                Region.pages(nic, int(found[1], 16), PAGE)
            break
    readonly.close()


def test_pages_refused(soft: Soft) -> None:
    """Or the firmware refuses the region."""
    nic = soft()
    pages = Pages(64 * PAGE)
    Region.pages(nic, pages.address, 64 * PAGE).deregister()
    before = counts(nic)
    firmware(nic).refuse(steps(nic).register)
    with pytest.raises(FirmwareRefusedError):
        Region.pages(nic, pages.address, 64 * PAGE)
    assert counts(nic) == before


def test_pages_without_an_iommu(soft: Soft) -> None:
    """A NIC that is not behind an IOMMU takes only memory alloc_dma gave; pages of any other memory is Error msg."""
    nic = soft(iommu=False)
    assert nic.function.addressing == "physical"
    pages = Pages(PAGE)
    before = counts(nic)
    with pytest.raises(Error, match="IOMMU"):
        Region.pages(nic, pages.address, PAGE)
    assert counts(nic) == before
    given = nic.function.alloc_dma(4 * PAGE)
    r = Region.pages(nic, given.address, 4 * PAGE)
    a, b = connected(nic)
    h = Region.host(nic, PAGE)
    h.write(0, b"physical")
    b.receive(r, 0, 64)
    a.send(h, 0, 8)
    assert done(b, RECEIVE) == 8
    assert bytes(memoryview(given)[:8]) == b"physical"
    r.deregister()


# ---- device ----------------------------------------------------------------------------------------------------------


def test_device_memory(soft: Soft) -> None:
    """device nic runs is a region over another device's memory at runs, (bus address, bytes) pairs in order."""
    import userdma.soft

    gpu = userdma.soft.gpu(16 * PAGE)
    nic = soft(iommu=False)
    runs = [(gpu.bus + 8 * PAGE, 2 * PAGE), (gpu.bus, PAGE)]
    r = Region.device(nic, runs)
    assert len(r) == 3 * PAGE
    h = Region.host(nic, 3 * PAGE)
    h.write(0, bytes(n // 64 & 0xFF for n in range(3 * PAGE)))
    a, b = connected(nic)
    b.receive(r, 0, 3 * PAGE)
    a.send(h, 0, 3 * PAGE)
    assert done(b, RECEIVE) == 3 * PAGE
    data = h.read(0, 3 * PAGE)
    assert gpu.read(8 * PAGE, 2 * PAGE) == data[: 2 * PAGE]
    assert gpu.read(0, PAGE) == data[2 * PAGE :]
    gpu.write(0, b"from the GPU")
    b.receive(h, 0, 64)
    a.send(r, 2 * PAGE, 12)
    assert done(b, RECEIVE) == 12
    assert h.read(0, 12) == b"from the GPU"
    with pytest.raises(ValueError, match="host"):
        r.read(0, 1)
    r.deregister()


def test_device_behind_an_iommu(soft: Soft) -> None:
    """Error msg if nic is behind an IOMMU, which maps no other device's memory for it."""
    import userdma.soft

    gpu = userdma.soft.gpu(PAGE)
    nic = soft(iommu=True)
    before = counts(nic)
    with pytest.raises(Error, match=r"behind an IOMMU, .* open it with iommu=False"):
        Region.device(nic, [(gpu.bus, PAGE)])
    assert counts(nic) == before
    pci = _core.Function.without_iommu.__get__(nic.function)  # type: ignore[attr-defined]
    assert "physical addresses" in pci and f"set-override {nic.name} none" in pci


def test_device_refused(soft: Soft) -> None:
    """Or the firmware refuses it."""
    import userdma.soft

    gpu = userdma.soft.gpu(4 * PAGE)
    nic = soft(iommu=False)
    before = counts(nic)
    firmware(nic).refuse(steps(nic).register)
    with pytest.raises(FirmwareRefusedError):
        Region.device(nic, [(gpu.bus, 2 * PAGE), (gpu.bus + 3 * PAGE, PAGE)])
    assert counts(nic) == before


@pytest.mark.parametrize("iommu", [True, False])
def test_device_checks(soft: Soft, iommu: bool) -> None:
    """Raises Invalid_argument if runs is empty, an address negative, a size not positive, or no multiple of 4096."""
    nic = soft(iommu=iommu)
    for runs, what in (
        ([], "empty"),
        ([(-PAGE, PAGE)], "negative"),
        ([(0, PAGE), (-PAGE, PAGE)], "negative"),
        ([(PAGE, 0)], "positive"),
        ([(PAGE, -PAGE)], "positive"),
        ([(PAGE + 1, PAGE)], "4096"),
        ([(PAGE, PAGE + 1)], "4096"),
        ([(PAGE, 100)], "4096"),
    ):
        with pytest.raises(ValueError, match=what):
            Region.device(nic, runs)


# ---- read and write --------------------------------------------------------------------------------------------------


def test_read_is_a_copy(nic: Nic) -> None:
    """read r at n is a copy of the n bytes at offset at of r."""
    r = Region.host(nic, PAGE)
    r.write(10, b"abcdef")
    copy = r.read(11, 3)
    assert copy == b"bcd"
    r.write(10, b"ABCDEF")
    assert copy == b"bcd"
    assert r.read(PAGE, 0) == b""


def test_read_after_a_receive(two: tuple[Nic, Nic]) -> None:
    """The bytes a receive wrote are there once its completion has been taken."""
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    for n in range(200):
        r.write(0, n.to_bytes(8, "little") * 512)
        b.receive(s, 0, PAGE)
        a.send(r, 0, PAGE)
        while b.poll(RECEIVE) is None:
            pass
        assert s.read(0, PAGE) == n.to_bytes(8, "little") * 512
        done(a, SEND)


def test_read_and_write_checks(nic: Nic) -> None:
    """Raises Invalid_argument if the bytes do not lie in r, or r is not of host or is deregistered. write: as read."""
    r = Region.host(nic, PAGE)
    for at, n in ((0, PAGE + 1), (PAGE, 1), (PAGE + 1, 0), (-1, 1), (0, -1), (1, PAGE), (1 << 70, 1)):
        with pytest.raises(ValueError):
            r.read(at, n)
        if n >= 0:
            with pytest.raises(ValueError):
                r.write(at, bytes(n))
    pages = nic.function.alloc_dma(PAGE) if nic.function.addressing == "physical" else Pages(PAGE)
    p = Region.pages(nic, pages.address, PAGE)
    for of in (p, r):
        if of is r:
            r.deregister()
        with pytest.raises(ValueError):
            of.read(0, 1)
        with pytest.raises(ValueError):
            of.write(0, b"x")
        with pytest.raises(ValueError):
            memoryview(of)
    p.deregister()


def test_write_then_send(nic: Nic) -> None:
    """write r at s writes s at offset at of r. A send posted after write returns sends them."""
    a, b = connected(nic)
    r = Region.host(nic, 2 * PAGE)
    for n in range(200):
        r.write(5, n.to_bytes(4, "little"))
        b.receive(r, PAGE, 64)
        a.send(r, 5, 4)
        assert done(b, RECEIVE) == 4
        assert r.read(PAGE, 4) == n.to_bytes(4, "little")
        done(a, SEND)
    r.write(0, bytearray(b"any"))
    r.write(3, memoryview(b" buffer"))
    assert r.read(0, 10) == b"any buffer"


def test_a_view(nic: Nic) -> None:
    """memoryview(r) is the memory itself; while it is alive deregister is BufferError."""
    r = Region.host(nic, PAGE)
    view = memoryview(r)
    view[0:4] = b"view"
    assert r.read(0, 4) == b"view"
    with pytest.raises(BufferError):
        r.deregister()
    assert r.alive
    with pytest.raises(BufferError):
        nic.close()
    assert not nic.closed
    view.release()
    r.deregister()


# ---- deregister ------------------------------------------------------------------------------------------------------


def test_deregister_frees(soft: Soft) -> None:
    """deregister r deregisters r and frees the memory the library allocated for it, and unpins what pages pinned."""
    nic = soft()
    before = counts(nic)
    pages = Pages(MEBI)
    regions = [
        Region.host(nic, 3 * MEBI),
        Region.host(nic, MEBI, remote=Access.READ),
        Region.host(nic, MEBI, remote=Access.WRITE),
        Region.pages(nic, pages.address, MEBI),
    ]
    assert counts(nic)[steps(nic).keys] == before[steps(nic).keys] + 5
    for r in regions:
        r.deregister()
        r.deregister()  # a second time does nothing
        with pytest.raises(ValueError, match="deregistered"):
            r.remote()
    assert counts(nic) == before


@pytest.mark.pages
def test_the_nic_reaches_it_no_more(two: tuple[Nic, Nic]) -> None:
    """The NIC reads and writes r no more once deregister returns Ok ()."""
    a, b = connected(*two)
    r = Region.host(two[0], PAGE)
    pages = Pages(PAGE)
    s = Region.pages(two[1], pages.address, PAGE)
    b.receive(s, 0, 64)
    s.deregister()
    r.write(0, b"x" * 64)
    a.send(r, 0, 64)
    assert take(b, RECEIVE).error is ErrorKind.LOCAL_PROTECTION
    assert not take(a, SEND).ok
    assert pages.map[:] == bytes(PAGE)
    pages.drop()


def test_deregister_refused(soft: Soft) -> None:
    """It is Error msg if the firmware refuses. The memory stays allocated and pinned until close."""
    for remote, k in ((Access.NONE, 1), (Access.WRITE, 1), (Access.WRITE, 2)):
        nic = soft()
        pages = Pages(MEBI)
        for make in (
            lambda nic=nic, remote=remote: Region.host(nic, MEBI, remote=remote),
            lambda nic=nic, remote=remote, pages=pages: Region.pages(nic, pages.address, MEBI, remote=remote),
        ):
            r = make()  # type: ignore[no-untyped-call]
            before = counts(nic)["core_dma_pages"]
            firmware(nic).refuse("*", k)
            with pytest.raises(FirmwareRefusedError, match=steps(nic).deregister):
                r.deregister()
            log = len(firmware(nic).log)
            with pytest.raises(Error, match="counts as deregistered"):
                r.deregister()
            assert len(firmware(nic).log) == log
            assert counts(nic)["core_dma_pages"] == before
            with pytest.raises(ValueError, match="deregistered"):
                connected(nic)[0].send(r, 0, 1)
        nic.close()
        assert counts(nic)["core_dma_pages"] == counts(nic)[steps(nic).keys] == 0
        pages.drop()


def test_deregister_after_an_exception(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is every call after one that an exception ended."""
    nic = soft()
    r = Region.host(nic, MEBI)
    before = counts(nic)["core_dma_pages"]
    with monkeypatch.context() as patch:
        give_up(nic, patch)
        with pytest.raises(KeyboardInterrupt):
            r.deregister()
    for _ in range(2):
        with pytest.raises(Error, match="exception"):
            r.deregister()
    assert counts(nic)["core_dma_pages"] == before
    Region.host(nic, MEBI).deregister()  # the channel works on
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0


def test_context_managers(soft: Soft) -> None:
    """A region is a context manager: its end deregisters it."""
    nic = soft()
    before = counts(nic)
    with Region.host(nic, PAGE) as r, Qp.make(nic) as qp:
        assert r.alive and not qp.dead
    assert counts(nic) == before
    with Region.host(nic, PAGE) as r:
        r.deregister()
    assert counts(nic) == before


# ---- remote ----------------------------------------------------------------------------------------------------------


def test_remote(two: tuple[Nic, Nic]) -> None:
    """r.remote() of a region without it is ValueError; with it a peer reads and writes by it, from at on."""
    local = Region.host(two[1], PAGE)
    with pytest.raises(ValueError, match="remote"):
        local.remote()
    s = Region.host(two[1], 2 * PAGE, remote=Access.READ | Access.WRITE)
    a, b = Qp.make(two[0]), Qp.make(two[1])
    connect(a, b, remote=Access.READ | Access.WRITE)
    r = Region.host(two[0], 2 * PAGE)
    r.write(0, b"written from afar")
    there = RemoteMemory.from_bytes(s.remote(100).to_bytes())
    assert there.bytes == 2 * PAGE - 100
    a.write((r, 0), there, 17)
    assert done(a, SEND) == 17
    a.read(there, (r, PAGE), 17)
    assert done(a, SEND) == 17
    assert s.read(100, 17) == r.read(PAGE, 17) == b"written from afar"
    for n in (2 * PAGE - 99, 1 << 40):
        with pytest.raises(ValueError):
            a.write((r, 0), there, n)
    for at in (-1, 2 * PAGE + 1):
        with pytest.raises(ValueError):
            s.remote(at)
    assert s.remote(2 * PAGE).bytes == 0
    # What was given ends with the region.
    s.deregister()
    a.read(there, (r, 0), 1)
    assert take(a, SEND).error is ErrorKind.REMOTE_ACCESS


def test_a_region_past_what_was_given(two: tuple[Nic, Nic]) -> None:
    """A peer reaches nothing past the region it was given."""
    s = Region.host(two[1], PAGE, remote=Access.READ | Access.WRITE)
    for at in (-1, 1, PAGE):
        a, b = Qp.make(two[0]), Qp.make(two[1])
        connect(a, b, remote=Access.READ | Access.WRITE)
        r = Region.host(two[0], 2 * PAGE)
        there = s.remote()
        a.write((r, 0), RemoteMemory(there.address + at, there.rkey, PAGE), PAGE)
        assert take(a, SEND).error is ErrorKind.REMOTE_ACCESS
        assert s.read(0, PAGE) == bytes(PAGE)


def test_dmabuf(nic: Nic) -> None:
    """.dmabuf(nic, fd, at, n) is where the NIC is the kernel's."""
    with pytest.raises(Error, match="dma-buf"):
        Region.dmabuf(nic, 0, 0, PAGE)
    assert userdma.Region is Region


def test_a_with_that_an_exception_leaves(nic: Nic) -> None:
    """The exception comes out, although its traceback holds a buffer of the region; without one the buffer is named."""
    with pytest.raises(RuntimeError, match="its own"), Region.host(nic, PAGE) as r:
        held = memoryview(r)
        raise RuntimeError("its own")
    assert r.alive
    held.release()
    r.deregister()
    with pytest.raises(BufferError, match="delete its memoryviews and arrays first"), Region.host(nic, PAGE) as r:
        held = memoryview(r)
    held.release()
    r.deregister()
