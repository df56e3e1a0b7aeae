"""Queue pairs: one test for each sentence of their contract, quoted in its docstring."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import userdma
from conftest import SECOND, commands, connect, connected, counts, done, take
from steps import firmware, pause, quick, sequence, steps, write_completion
from userdma import (
    Access,
    DmaMemoryError,
    Endpoint,
    Error,
    ErrorKind,
    FirmwareRefusedError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    Nic,
    Qp,
    Region,
    Side,
)

SEND, RECEIVE = Side.SEND, Side.RECEIVE
MEBI = 1 << 20
Soft = Callable[..., Nic]


# ---- A queue pair ---------------------------------------------------------------------------------------------------


def test_two_rings_connected_to_one_peer(nic: Nic) -> None:
    """A queue pair is a send ring and a receive ring connected to one queue pair of a peer."""
    a, b = connected(nic)
    _c, d = connected(nic)
    r = Region.host(nic, 4096)
    r.write(0, b"to b")
    for pair in (b, d):
        pair.receive(r, 1024, 64)
    a.send(r, 0, 4)
    assert done(b, RECEIVE) == 4
    assert d.poll(RECEIVE) is None
    # Both ways: each ring is its own.
    a.receive(r, 2048, 64)
    b.send(r, 0, 4)
    assert done(a, RECEIVE) == 4
    assert r.read(2048, 4) == b"to b"


def test_each_ring_holds_4095_entries(nic: Nic) -> None:
    """Each ring holds 4095 entries: Qp.room says how many more it takes."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    assert (a.room(SEND), a.room(RECEIVE)) == (4095, 4095)
    for n in range(4095):
        a.receive(r, 0, 8)
        assert a.room(RECEIVE) == 4094 - n
    with pytest.raises(ValueError, match="room"):
        a.receive(r, 0, 8)
    assert a.room(SEND) == 4095
    for _ in range(4095):
        b.send(r, 0, 8)
    assert b.room(SEND) == 0
    with pytest.raises(ValueError, match="room"):
        b.send(r, 0, 8)
    for _ in range(4095):
        assert done(a, RECEIVE) == 8
        assert done(b, SEND) == 8
    assert (a.room(RECEIVE), b.room(SEND)) == (4095, 4095)


def test_a_slot_is_free_once_its_completion_is_taken(nic: Nic) -> None:
    """An entry's slot is free once Qp.poll or Qp.wait has taken its completion."""
    a, b = connect(Qp.make(nic, send=2, receive=2), Qp.make(nic, send=2, receive=2))
    r = Region.host(nic, 4096)
    for _ in range(2):
        b.receive(r, 0, 8)
    for _ in range(2):
        a.send(r, 0, 8)
    take(b, RECEIVE), take(b, RECEIVE)  # both have completed now
    assert a.room(SEND) == 0
    assert done(a, SEND) == 8  # by wait
    assert a.room(SEND) == 1
    while (found := a.poll(SEND)) is None:
        pass
    assert found.ok
    assert a.room(SEND) == 2


def test_completions_in_the_order_of_the_entries(nic: Nic) -> None:
    """They take the completions of a ring in the order of its entries."""
    a, b = connected(nic)
    r = Region.host(nic, 65536)
    for n in range(1, 101):
        b.receive(r, 32768, 200)
        a.send(r, 0, n) if n % 3 else a.read((r, 0), (r, 4096), n)
    assert [done(a, SEND) for _ in range(100)] == list(range(1, 101))
    sent = [n for n in range(1, 101) if n % 3]
    assert [done(b, RECEIVE) for _ in sent] == sent


@pytest.mark.slow
def test_a_message_of_2_to_the_31_bytes(nic: Nic) -> None:
    """A message, the bytes of one send or read, is at most 2^31 bytes, or what the NIC takes."""
    n = nic.limits["message_bytes"]
    assert n <= 1 << 31
    try:
        src, dst = Region.host(nic, n + 4096), Region.host(nic, n)
    except DmaMemoryError as error:
        pytest.skip(str(error))
    a, b = connected(nic)
    marks = {0: b"first", n // 2: b"middle", n - 4: b"last"}
    for at, mark in marks.items():
        src.write(at, mark)
    b.receive(dst, 0, n)
    a.send(src, 0, n)
    assert done(a, SEND, 600 * SECOND) == n
    assert done(b, RECEIVE, 600 * SECOND) == n
    for at, mark in marks.items():
        assert dst.read(at, len(mark)) == mark
    for post in (lambda: a.send(src, 0, n + 1), lambda: a.read((src, 0), (src, 0), n + 1)):
        with pytest.raises(ValueError, match=f"more than a message takes: {n} at most"):
            post()


def test_a_message_over_2_to_the_31_bytes(soft: Soft) -> None:
    """Raises Invalid_argument if n is over 2^31, or over what the NIC takes."""
    nic = soft()
    r = Region.host(nic, (1 << 31) + 4096)
    a, _ = connected(nic)
    most = {"bnxt": 1 << 31, "mlx5": 1 << 30}[nic.family]  # of a ConnectX, its log_max_msg
    assert nic.limits["message_bytes"] == most
    for n in (most + 1, (1 << 31) + 1):
        for post in (lambda: a.send(r, 0, n), lambda: a.receive(r, 0, n), lambda: a.read((r, 0), (r, 0), n)):  # noqa: B023
            with pytest.raises(ValueError, match=f"more than a message takes: {most} at most"):
                post()
    assert (a.room(SEND), a.room(RECEIVE)) == (4095, 4095)


# ---- Failure --------------------------------------------------------------------------------------------------------


def test_it_fails_when_an_entry_fails(nic: Nic) -> None:
    """A queue pair fails when one of its entries fails."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 4)
    a.send(r, 0, 8)  # too long for it
    assert take(a, SEND).error is not None
    assert take(b, RECEIVE).error is ErrorKind.LOCAL_LENGTH
    assert a.failure and b.failure
    a.send(r, 0, 1)
    assert take(a, SEND).error is ErrorKind.FLUSHED


def test_it_fails_when_the_nic_reports_it(soft: Soft) -> None:
    """A queue pair fails when the NIC reports its failure."""
    nic = soft()
    a, _ = connected(nic)
    r = Region.host(nic, 4096)
    a.receive(r, 0, 64)
    nic.function.fail_qp(a.number)  # type: ignore[attr-defined]
    found = take(a, RECEIVE)
    assert found.error is ErrorKind.FLUSHED
    assert "NIC" in found.message
    a.send(r, 0, 1)
    assert take(a, SEND).error is ErrorKind.FLUSHED


@pytest.mark.parametrize("side", list(Side))
def test_it_fails_at_a_completion_of_an_unknown_kind(soft: Soft, side: Side) -> None:
    """A queue pair fails when its completions hold one of a kind its ring does not take."""
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    a.receive(r, 0, 64)
    write_completion(nic, a, side, steps(nic).unknown)
    found = take(a, RECEIVE)
    assert found.error is ErrorKind.FLUSHED
    assert "kind" in found.message
    assert a.failure and not b.failure


def test_immediate_data_is_of_an_unknown_kind(soft: Soft) -> None:
    """A kind its ring does not take, such as a receive's of a message with immediate data, unless made with it."""
    nic = soft()
    for immediate in (False, True):
        qp = Qp.make(nic, immediate=immediate)
        qp.connect(qp.endpoint)
        r = Region.host(nic, 4096)
        qp.receive(r, 0, 64)
        write_completion(nic, qp, RECEIVE, steps(nic).immediate(qp.number, 5, 0xABCD))
        found = take(qp, RECEIVE)
        if immediate:
            assert (found.ok, found.bytes, found.immediate) == (True, 5, 0xABCD)
        else:
            assert found.error is ErrorKind.FLUSHED
            assert "immediate" in found.message


def test_it_fails_when_the_machine_fails(soft: Soft) -> None:
    """A queue pair fails when the NIC's machine fails."""
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    a.receive(r, 0, 64)
    b.receive(r, 0, 64)
    nic.function.vanish()  # type: ignore[attr-defined]
    for qp in (a, b):
        found = take(qp, RECEIVE)
        assert found.error is ErrorKind.FLUSHED
        assert "left the bus" in found.message
    a.send(r, 0, 1)
    assert "left the bus" in take(a, SEND).message


def test_it_then_runs_none_of_its_entries(soft: Soft) -> None:
    """The NIC then runs none of its entries that have no completion, of either ring, nor those posted later."""
    nic = soft()
    a, b = connected(nic)
    src, dst = Region.host(nic, 4096), Region.host(nic, 4096)
    src.write(0, b"x" * 4096)
    a.receive(dst, 0, 64)
    b.receive(dst, 1024, 4)
    a.send(src, 0, 8)  # fails both
    a.send(src, 0, 8)
    take(a, SEND), take(b, RECEIVE)
    b.receive(dst, 2048, 64)
    a.send(src, 0, 8)
    b.send(src, 0, 8)  # into a's receive of before
    for qp, side in ((a, SEND), (a, SEND), (a, RECEIVE), (b, RECEIVE), (b, SEND)):
        assert take(qp, side).error is ErrorKind.FLUSHED
    time.sleep(0.05)
    assert dst.read(0, 1024) == bytes(1024)
    assert dst.read(2048, 64) == bytes(64)


def test_after_an_unknown_completion_it_may_run_them_until_destroy(soft: Soft) -> None:
    """After a completion of an unknown kind, it may run them until Qp.destroy."""
    nic = soft()
    a, b = connected(nic)
    src, dst = Region.host(nic, 4096), Region.host(nic, 4096)
    src.write(0, b"after")
    write_completion(nic, a, SEND, steps(nic).unknown)
    a.receive(dst, 0, 64)
    a.send(src, 0, 5)
    assert take(a, SEND).error is ErrorKind.FLUSHED
    assert take(a, RECEIVE).error is ErrorKind.FLUSHED
    b.send(src, 0, 5)  # the NIC does not know of the failure: it may land
    a.destroy()
    before = dst.read(0, 64)
    assert before in (bytes(64), b"after".ljust(64, b"\0"))
    time.sleep(0.02)
    assert dst.read(0, 64) == before


def test_completions_keep_the_order_through_a_failure(nic: Nic) -> None:
    """Completions keep the order: those before the failure keep their result, the entry that failed carries its error,
    and the rest complete with the failure's Error."""
    a, b = connected(nic)
    r = Region.host(nic, 8192)
    for n in (64, 64, 4, 64):
        b.receive(r, 4096, n)
    for n in (1, 2, 8, 3, 4):
        a.send(r, 0, n)
    assert [done(a, SEND), done(a, SEND)] == [1, 2]
    failed = take(a, SEND)
    assert failed.error is ErrorKind.REMOTE_INVALID_REQUEST
    rest = [take(a, SEND), take(a, SEND)]
    assert [c.error for c in rest] == [ErrorKind.FLUSHED] * 2
    assert all(a.failure in c.message for c in rest) and a.failure
    assert [done(b, RECEIVE), done(b, RECEIVE)] == [1, 2]
    assert take(b, RECEIVE).error is ErrorKind.LOCAL_LENGTH
    last = take(b, RECEIVE)
    assert last.error is ErrorKind.FLUSHED
    assert b.failure in last.message


def test_a_failed_entry_may_have_moved_bytes(nic: Nic) -> None:
    """A failed entry may have moved some or all of its bytes: its completion says none, and the memory is its own."""
    a, b = connected(nic)
    src, dst = Region.host(nic, 3 * nic.mtu), Region.host(nic, 4 * nic.mtu)
    src.write(0, b"x" * (3 * nic.mtu))
    b.receive(dst, 0, 2 * nic.mtu)
    a.send(src, 0, 3 * nic.mtu)
    assert take(a, SEND).bytes == 0
    failed = take(b, RECEIVE)
    assert (failed.ok, failed.bytes) == (False, 0)
    assert set(dst.read(0, 2 * nic.mtu)) <= {0, ord("x")}
    assert dst.read(2 * nic.mtu, 2 * nic.mtu) == bytes(2 * nic.mtu)  # nothing past what the receive gave


def test_a_failed_queue_pair_stays_failed(nic: Nic) -> None:
    """A failed queue pair stays failed."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 4)
    a.send(r, 0, 8)
    take(a, SEND), take(b, RECEIVE)
    for _ in range(3):
        for qp in (a, b):
            qp.send(r, 0, 1)
            qp.receive(r, 0, 1)
            assert take(qp, SEND).error is ErrorKind.FLUSHED
            assert take(qp, RECEIVE).error is ErrorKind.FLUSHED
            assert (qp.room(SEND), qp.room(RECEIVE)) == (4095, 4095)
    with pytest.raises(ValueError, match="has failed, and stays so: make another one"):
        a.connect(b.endpoint)


def test_poll_and_wait_send_the_firmware_nothing(soft: Soft) -> None:
    """Qp.poll and Qp.wait send the firmware no request, a failure's included."""
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    before = commands(nic)
    b.receive(r, 0, 64)
    a.send(r, 0, 8)
    done(a, SEND), done(b, RECEIVE)
    b.receive(r, 0, 4)
    a.send(r, 0, 8)
    a.send(r, 0, 8)
    assert not take(a, SEND).ok and not take(a, SEND).ok and not take(b, RECEIVE).ok
    assert a.poll(SEND) is None
    assert commands(nic) == before


# ---- Endpoint and side ----------------------------------------------------------------------------------------------


def test_an_endpoint(nic: Nic) -> None:
    """The type for what a peer needs to connect: the pair's number, the PSN its sends start at, its NIC's addresses."""
    a, b = Qp.make(nic), Qp.make(nic)
    assert a.endpoint.qp != b.endpoint.qp
    assert 0 <= a.endpoint.psn < 1 << 24
    assert (a.endpoint.gid, a.endpoint.mac) == (nic.gid, nic.mac)
    assert (len(nic.gid), len(nic.mac)) == (16, 6)


def test_an_endpoint_is_plain_data(two: tuple[Nic, Nic]) -> None:
    """It is plain data, which a program sends to the peer by any means."""
    a, b = Qp.make(two[0]), Qp.make(two[1])
    sent = a.endpoint.to_bytes(), b.endpoint.to_bytes()
    assert all(isinstance(data, bytes) for data in sent)
    a.connect(Endpoint.from_bytes(sent[1]))
    b.connect(Endpoint.from_bytes(sent[0]))
    r, s = Region.host(two[0], 4096), Region.host(two[1], 4096)
    r.write(0, b"hello")
    b.receive(s, 0, 64)
    a.send(r, 0, 5)
    assert done(b, RECEIVE) == 5
    assert s.read(0, 5) == b"hello"


def test_sides() -> None:
    """The type for a queue pair's rings."""
    assert [side.name for side in Side] == ["SEND", "RECEIVE"]


# ---- make -----------------------------------------------------------------------------------------------------------


def test_make(nic: Nic) -> None:
    """make nic is an unconnected queue pair of nic, whose sends start at a random packet sequence number."""
    pairs = [Qp.make(nic) for _ in range(8)]
    assert not any(qp.connected for qp in pairs)
    assert len({qp.endpoint.psn for qp in pairs}) > 4


def test_make_without_memory(soft: Soft) -> None:
    """Error msg if the machine has no memory for its rings."""
    nic = soft(memory=64 * MEBI)
    r = None
    for n in (32 * MEBI, 16 * MEBI, 8 * MEBI, 4 * MEBI, 2 * MEBI, MEBI, MEBI // 2):
        try:
            while True:
                r = Region.host(nic, n)
                nic.__dict__.setdefault("kept", []).append(r)
        except DmaMemoryError:
            pass
    before = counts(nic)
    with pytest.raises(DmaMemoryError):
        Qp.make(nic)
    assert counts(nic) == before
    for region in nic.__dict__["kept"]:
        region.deregister()
    Qp.make(nic)


def test_make_refused(soft: Soft) -> None:
    """Error msg if the firmware refuses it. A refused make gives back what it took."""
    nic = soft()
    names = sequence(nic, lambda: setattr(nic, "kept", Qp.make(nic)))
    assert names == steps(nic).make
    before = counts(nic)
    for k, name in enumerate(names, 1):
        firmware(nic).refuse("*", k)
        with pytest.raises(FirmwareRefusedError, match=f"{name}.*{steps(nic).refusal}") as raised:
            Qp.make(nic)
        assert (raised.value.command, raised.value.status) == (name, 1)
        assert counts(nic) == before
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 8)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_make_of_a_firmware_that_stops(soft: Soft, k: int) -> None:
    """But for memory a firmware that stopped answering may still name."""
    nic = quick(soft())
    kept = Qp.make(nic)  # so that every kind of memory has been used before
    before = counts(nic)
    firmware(nic).stop(within="*", k=k)
    with pytest.raises(FirmwareTimeoutError, match="no answer"):
        Qp.make(nic)
    assert counts(nic)["core_dma_pages"] > before["core_dma_pages"]
    quick(nic, seconds=300)
    start = time.monotonic()
    with pytest.raises(FirmwareStoppedError, match="stopped answering"):
        Qp.make(nic)
    assert time.monotonic() - start < 200  # at once, not after another time limit
    after = counts(nic)
    with pytest.raises(FirmwareStoppedError):
        Region.host(nic, 4096)
    assert counts(nic) == after  # what was never named is given back
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0
    assert kept.dead


# ---- connect --------------------------------------------------------------------------------------------------------


def test_connect(two: tuple[Nic, Nic]) -> None:
    """connect qp e connects qp to the peer's queue pair e and makes it ready to send."""
    a, b = Qp.make(two[0]), Qp.make(two[1])
    r, s = Region.host(two[0], 4096), Region.host(two[1], 4096)
    assert not a.connected
    connect(a, b)
    assert a.connected and b.connected
    r.write(0, b"there")
    s.write(0, b"and back")
    a.receive(r, 1024, 64)
    b.receive(s, 1024, 64)
    a.send(r, 0, 5)
    b.send(s, 0, 8)
    assert (done(a, SEND), done(b, SEND), done(a, RECEIVE), done(b, RECEIVE)) == (5, 8, 8, 5)
    assert (r.read(1024, 8), s.read(1024, 5)) == (b"and back", b"there")


@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
def test_connect_with_an_mtu(two: tuple[Nic, Nic], mtu: int) -> None:
    """The mtu of connect is in bytes; by default the largest that the port takes."""
    a, b = connected(*two, mtu=mtu)
    r, s = Region.host(two[0], 65536), Region.host(two[1], 65536)
    data = bytes(range(256)) * 100
    r.write(0, data)
    b.receive(s, 0, 65536)
    a.send(r, 0, len(data))
    assert done(b, RECEIVE) == len(data)
    assert s.read(0, len(data)) == data


def test_sends_wait_for_a_receive_without_end(timed: tuple[Nic, Nic], clock: Any) -> None:
    """A send to the peer is retried while the peer has posted no receive, without end."""
    a, b = connected(*timed)
    r, s = Region.host(timed[0], 4096), Region.host(timed[1], 4096)
    r.write(0, b"late")
    a.send(r, 0, 4)
    start = clock.now()
    while clock.now() - start < 60 * 1_000_000_000:  # a minute: far more than 7 retries of 67 ms
        assert a.poll(SEND) is None
    b.receive(s, 0, 64)
    assert done(a, SEND) == 4
    assert done(b, RECEIVE) == 4
    assert s.read(0, 4) == b"late"


@pytest.mark.hasty
def test_seven_retries_of_67_ms(timed: tuple[Nic, Nic], clock: Any) -> None:
    """A send the peer does not acknowledge is retried 7 times, each after 67 ms, before its completion fails."""
    a, b = connected(*timed)
    r = Region.host(timed[0], 4096)
    b.destroy()
    start = clock.now()
    a.send(r, 0, 4)
    found = take(a, SEND)
    assert found.error is ErrorKind.RETRY_EXCEEDED
    taken = (clock.now() - start) / 1e6
    # The eighth expiry of 4.096 us * 2^14 ends it. IBTA lets a timer run up to four times as long; this one does not.
    assert 8 * 67.1 * 0.99 < taken < 8 * 67.1 * 1.1


def test_connect_within_the_nic(nic: Nic) -> None:
    """e may be the endpoint of a queue pair of qp's own NIC, qp's own included."""
    a, b = connected(nic)
    alone = Qp.make(nic)
    alone.connect(alone.endpoint)
    r = Region.host(nic, 4096)
    r.write(0, b"echo")
    for to, via in ((b, a), (alone, alone)):
        to.receive(r, 1024, 64)
        via.send(r, 0, 4)
        assert done(via, SEND) == 4
        assert done(to, RECEIVE) == 4
        assert r.read(1024, 4) == b"echo"
        r.write(1024, bytes(4))


def test_it_then_serves_its_peers_reads(nic: Nic) -> None:
    """qp then serves its peer's reads (read), which take bytes of this process's regions."""
    a, b = connected(nic)
    alone = Qp.make(nic)
    alone.connect(alone.endpoint)
    r, s = Region.host(nic, 4096), Region.host(nic, 4096)
    for n, qp in enumerate((a, b, alone), 1):
        s.write(100, bytes([n]) * 10)
        qp.read((s, 100), (r, 200), 10)
        assert done(qp, SEND) == 10
        assert r.read(200, 10) == bytes([n]) * 10


def test_connect_refused(soft: Soft) -> None:
    """Error msg if the firmware refuses a change of qp's state."""
    nic = soft()
    a, b = Qp.make(nic), Qp.make(nic)
    # The first in the state that make left it in, the second in reset.
    for k, names in ((1, steps(nic).connect), (2, steps(nic).reconnect)):
        firmware(nic).refuse("*", k)
        with pytest.raises(FirmwareRefusedError, match=names[k - 1]):
            a.connect(b.endpoint)
        assert not a.connected
        firmware(nic).clear()


def test_connect_again_after_a_refusal(soft: Soft) -> None:
    """A connect the firmware refused part-way, called again, takes qp back to reset and connects it from there."""
    nic = soft()
    again = steps(nic).reconnect
    pairs = [(Qp.make(nic), Qp.make(nic)) for _ in range(2)]
    before = counts(nic)
    r = Region.host(nic, 4096)
    for k, (a, b) in enumerate(pairs, 1):
        firmware(nic).refuse("*", k)
        with pytest.raises(FirmwareRefusedError):
            a.connect(b.endpoint)
        for step, name in enumerate(again, 1):  # and a refusal of each step of the second try
            firmware(nic).refuse("*", step)
            with pytest.raises(FirmwareRefusedError, match=name):
                a.connect(b.endpoint)
            firmware(nic).clear()
        assert sequence(nic, lambda a=a, b=b: a.connect(b.endpoint)) == again  # type: ignore[misc]
        b.connect(a.endpoint)
        b.receive(r, 0, 8)
        a.send(r, 0, 8)
        assert done(b, RECEIVE) == 8
    r.deregister()
    assert counts(nic) == before


class Interruption(BaseException):
    """An exception in the middle of a call."""


def interrupt(nic: Nic, monkeypatch: pytest.MonkeyPatch, k: int = 1) -> None:
    """An exception ends the wait for the answer of the k-th command from now on."""

    def ended() -> None:
        raise Interruption

    pause(nic, monkeypatch, ended, k)


@pytest.mark.parametrize("k", [1, 2])
def test_connect_again_after_an_exception(soft: Soft, monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    """A connect an exception ended, called again, takes qp back to reset and connects it from there."""
    nic = soft()
    a, b = Qp.make(nic), Qp.make(nic)
    interrupt(nic, monkeypatch, k)
    with pytest.raises(Interruption):
        a.connect(b.endpoint)
    assert not a.connected
    connect(a, b)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 8)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8
    before = counts(nic)
    a.destroy()
    assert counts(nic)["qps"] == before["qps"] - 1


def test_connect_checks(two: tuple[Nic, Nic]) -> None:
    """Raises Invalid_argument if qp is connected, or e's gid is not 16 bytes or its mac not 6."""
    a, b = Qp.make(two[0]), Qp.make(two[1])
    e = b.endpoint
    for wrong in (
        Endpoint(e.qp, e.psn, e.gid[:15], e.mac),
        Endpoint(e.qp, e.psn, e.gid + b"\0", e.mac),
        Endpoint(e.qp, e.psn, e.gid, e.mac[:5]),
        Endpoint(e.qp, e.psn, e.gid, e.mac + b"\0"),
        Endpoint(1 << 24, e.psn, e.gid, e.mac),
        Endpoint(e.qp, -1, e.gid, e.mac),
    ):
        with pytest.raises(ValueError, match="endpoint"):
            a.connect(wrong)
    for mtu in (0, 1, 1000, 8192, -4096):
        with pytest.raises(ValueError, match="mtu"):
            a.connect(e, mtu=mtu)
    with pytest.raises(ValueError, match="remote"):
        a.connect(e, remote=8)  # type: ignore[arg-type]
    assert not a.connected
    connect(a, b)
    with pytest.raises(ValueError, match="connected"):
        a.connect(e)


# ---- send -----------------------------------------------------------------------------------------------------------


def test_send(two: tuple[Nic, Nic]) -> None:
    """send posts the send of the n bytes at offset at of r, which lands in the region of the peer's next receive."""
    a, b = connected(*two)
    r, s = Region.host(two[0], 8192), Region.host(two[1], 8192)
    data = bytes(n * 7 & 0xFF for n in range(8192))
    r.write(0, data)
    for n, (at, size) in enumerate([(0, 0), (1, 1), (17, 4095), (4000, 4192)]):
        s.write(0, bytes(8192))
        b.receive(s, n, 8192 - n)
        a.send(r, at, size)
        assert done(a, SEND) == size
        assert done(b, RECEIVE) == size
        assert s.read(n, size) == data[at : at + size]
        assert s.read(0, n) == bytes(n)
        assert s.read(n + size, 8192 - n - size) == bytes(8192 - n - size)


def check_posts(
    nic: Nic, other: Nic, post: Callable[[Qp, Region, int, int], None], side: Side, whole: int = 8192
) -> None:
    """What send, receive and read refuse for their own region."""
    r = Region.host(nic, whole)
    unconnected = Qp.make(nic)
    with pytest.raises(ValueError, match="not connected"):
        post(unconnected, r, 0, 1)
    a, b = connect(Qp.make(nic, send=3, receive=3), Qp.make(nic, send=3, receive=3))
    with pytest.raises(ValueError, match="region"):
        post(a, Region.host(other, whole), 0, 1)
    gone = Region.host(nic, whole)
    gone.deregister()
    with pytest.raises(ValueError, match="deregistered"):
        post(a, gone, 0, 1)
    for at, n in ((0, whole + 1), (whole, 1), (whole + 1, 0), (1, whole), (-1, 1), (0, -1), (1 << 63, 1), (1, 1 << 64)):
        with pytest.raises(ValueError):
            post(a, r, at, n)
    assert a.room(side) == 3
    for _ in range(3):
        post(a, r, 0, 1)
    with pytest.raises(ValueError, match="room"):
        post(a, r, 0, 1)
    assert b.room(side) == 3


@pytest.mark.two_nics
def test_send_checks(two: tuple[Nic, Nic]) -> None:
    """Raises Invalid_argument if not connected, not a region of qp's NIC, deregistered, outside, or no room."""
    check_posts(*two, lambda qp, r, at, n: qp.send(r, at, n), SEND)


# ---- read -----------------------------------------------------------------------------------------------------------


def test_read(nic: Nic) -> None:
    """read posts the read of the n bytes at offset i of s into the n bytes at offset at of r, on the Send ring."""
    a, _ = connected(nic)
    s, r = Region.host(nic, 3 * 4096), Region.host(nic, 3 * 4096)
    data = bytes(n * 11 & 0xFF for n in range(3 * 4096))
    s.write(0, data)
    a.read((s, 5), (r, 77), 9000)
    assert (a.room(SEND), a.room(RECEIVE)) == (4094, 4095)
    assert done(a, SEND) == 9000
    assert r.read(77, 9000) == data[5:9005]
    assert r.read(0, 77) == bytes(77)
    assert r.read(9077, 3) == bytes(3)


@pytest.mark.hasty
def test_read_is_served_by_the_peer(soft: Soft) -> None:
    """Whose peer serves it."""
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.destroy()
    a.read((r, 0), (r, 2048), 16)
    assert take(a, SEND).error is ErrorKind.RETRY_EXCEEDED


@pytest.mark.two_nics
def test_read_checks(two: tuple[Nic, Nic]) -> None:
    """Raises Invalid_argument as send does for r."""
    src = Region.host(two[0], 16384)
    check_posts(*two, lambda qp, r, at, n: qp.read((src, 0), (r, at), n), SEND)


@pytest.mark.two_nics
def test_read_checks_its_source(two: tuple[Nic, Nic]) -> None:
    """And if s is not a region of qp's NIC or is deregistered, or the bytes do not lie in s."""
    a, _ = connected(two[0])
    r = Region.host(two[0], 8192)
    with pytest.raises(ValueError, match="region"):
        a.read((Region.host(two[1], 4096), 0), (r, 0), 1)
    gone = Region.host(two[0], 4096)
    gone.deregister()
    with pytest.raises(ValueError, match="deregistered"):
        a.read((gone, 0), (r, 0), 1)
    s = Region.host(two[0], 4096)
    for i, n in ((0, 4097), (4096, 1), (4000, 97), (-1, 1)):
        with pytest.raises(ValueError):
            a.read((s, i), (r, 0), n)
    assert a.room(SEND) == 4095


@pytest.mark.two_nics
def test_read_only_within_the_nic(two: tuple[Nic, Nic]) -> None:
    """Or qp's peer is not a queue pair of qp's NIC."""
    a, _ = connected(*two)
    s, r = Region.host(two[0], 4096), Region.host(two[0], 4096)
    with pytest.raises(ValueError, match="peer"):
        a.read((s, 0), (r, 0), 16)


# ---- receive --------------------------------------------------------------------------------------------------------


def test_receive(two: tuple[Nic, Nic]) -> None:
    """receive posts the receive of up to n bytes at offset at of r, which the next send of qp's peer fills."""
    a, b = connected(*two)
    r, s = Region.host(two[0], 4096), Region.host(two[1], 4096)
    b.receive(s, 0, 10)
    b.receive(s, 100, 10)
    for n, data in enumerate((b"first", b"0123456789")):
        r.write(64 * n, data)
        a.send(r, 64 * n, len(data))
    assert (done(b, RECEIVE), done(b, RECEIVE)) == (5, 10)
    assert s.read(0, 10) == b"first\0\0\0\0\0"
    assert s.read(100, 11) == b"0123456789\0"


def test_a_send_longer_than_its_receive(two: tuple[Nic, Nic]) -> None:
    """A send longer than n fails the queue pair, and its peer's."""
    a, b = connected(*two)
    r, s = Region.host(two[0], 4096), Region.host(two[1], 4096)
    b.receive(s, 0, 10)
    a.send(r, 0, 11)
    assert take(b, RECEIVE).error is ErrorKind.LOCAL_LENGTH
    assert take(a, SEND).error is ErrorKind.REMOTE_INVALID_REQUEST
    assert a.failure and b.failure


@pytest.mark.two_nics
def test_receive_checks(two: tuple[Nic, Nic]) -> None:
    """Raises Invalid_argument as send does, for room qp Receive."""
    check_posts(*two, lambda qp, r, at, n: qp.receive(r, at, n), RECEIVE)


# ---- poll -----------------------------------------------------------------------------------------------------------


def test_poll(nic: Nic) -> None:
    """poll takes the completion of the oldest entry of side whose completion has not been taken, if it has one."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    for n in (1, 2, 3):
        b.receive(r, 0, 64)
        a.send(r, 0, n)
    found: list[int] = []
    until = time.monotonic() + 60
    while len(found) < 3 and time.monotonic() < until:
        if (completion := a.poll(SEND)) is not None:
            found.append(completion.bytes)
    assert found == [1, 2, 3]
    assert a.poll(SEND) is None


def test_poll_says_the_bytes(nic: Nic) -> None:
    """It is Some (Ok n) if the entry completed: a send's bytes, or the length of the message a receive took."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 100)
    a.send(r, 0, 33)
    sent, received = take(a, SEND), take(b, RECEIVE)
    for completion in (sent, received):
        assert (completion.ok, completion.bytes, completion.error, completion.vendor) == (True, 33, None, 0)


def test_poll_says_the_error(nic: Nic) -> None:
    """It is Some (Error msg) if the entry failed or the queue pair has, with msg saying why."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 8)
    a.send(r, 0, 9)
    a.send(r, 0, 1)
    failed, flushed = take(a, SEND), take(a, SEND)
    assert (failed.ok, failed.error) == (False, ErrorKind.REMOTE_INVALID_REQUEST)
    assert f"queue pair {a.number:#x}" in failed.message
    assert flushed.error is ErrorKind.FLUSHED
    assert failed.vendor != 0
    with pytest.raises(userdma.WorkError, match="queue pair"):
        failed.raise_for_status()


def test_poll_finds_nothing(nic: Nic) -> None:
    """And None if the entry has no completion yet or no entry is due."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    for qp in (a, b, Qp.make(nic)):
        assert qp.poll(SEND) is None
        assert qp.poll(RECEIVE) is None
    a.receive(r, 0, 8)
    for _ in range(100):
        assert a.poll(RECEIVE) is None
    assert a.room(RECEIVE) == 4094


# ---- wait -----------------------------------------------------------------------------------------------------------


def test_wait(nic: Nic) -> None:
    """wait is poll once the oldest due entry of side has a completion, waiting for it at most us microseconds."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 64)
    later = threading.Timer(0.05, lambda: a.send(r, 0, 7))
    start = time.monotonic()
    later.start()
    found = b.wait(RECEIVE, us=100 * SECOND)
    assert found is not None and found.bytes == 7
    assert 0.05 <= time.monotonic() - start < 90
    later.join()


def test_wait_at_its_bound(nic: Nic) -> None:
    """It is None at the bound, the entry still due."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 64)
    for us in (0, 1, 20_000):
        start = time.monotonic()
        assert b.wait(RECEIVE, us=us) is None
        assert us / 1e6 <= time.monotonic() - start < us / 1e6 + 30
    assert b.room(RECEIVE) == 4094
    a.send(r, 0, 9)
    assert done(b, RECEIVE) == 9


def test_a_long_wait_sleeps(nic: Nic) -> None:
    """A long wait sleeps between looks."""
    _, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 64)
    start, cpu = time.monotonic(), time.thread_time()
    assert b.wait(RECEIVE, us=SECOND) is None
    assert time.monotonic() - start >= 1
    assert time.thread_time() - cpu < 0.5


def test_wait_answers_signals(nic: Nic) -> None:
    """wait answers Ctrl-C, the entry still due."""
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 64)

    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, handler)
    try:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            b.wait(RECEIVE, us=100 * SECOND)
        assert time.monotonic() - start < 90
    finally:
        signal.signal(signal.SIGALRM, old)
    a.send(r, 0, 9)
    assert done(b, RECEIVE) == 9


def test_wait_checks(nic: Nic) -> None:
    """Raises Invalid_argument if us < 0 or no entry of side is due."""
    a, _ = connected(nic)
    r = Region.host(nic, 4096)
    for side in Side:
        with pytest.raises(ValueError, match="due"):
            a.wait(side, us=0)
    a.receive(r, 0, 8)
    with pytest.raises(ValueError, match="negative"):
        a.wait(RECEIVE, us=-1)
    with pytest.raises(ValueError, match="due"):
        a.wait(SEND, us=0)


# ---- destroy --------------------------------------------------------------------------------------------------------


def test_destroy_frees_its_rings(soft: Soft) -> None:
    """destroy qp destroys qp and frees its rings."""
    nic = soft()
    before = counts(nic)
    a, b = connected(nic)
    assert counts(nic)["core_dma_pages"] > before["core_dma_pages"]
    a.destroy()
    b.destroy()
    assert counts(nic) == before


def test_nothing_runs_after_destroy(soft: Soft) -> None:
    """The NIC runs none of its entries and writes no memory for it once destroy returns."""
    nic = soft()
    a, b = connected(nic)
    src, dst = Region.host(nic, 4096), Region.host(nic, 4 * MEBI)
    src.write(0, b"x" * 4096)
    for n in range(100):
        b.receive(dst, n * 4096, 4096)
    for _ in range(100):
        a.send(src, 0, 4096)
    b.destroy()
    before = dst.read(0, len(dst))
    time.sleep(0.02)
    a.poll(SEND)
    assert dst.read(0, len(dst)) == before


def test_the_peers_entries_fail_after_destroy(timed: tuple[Nic, Nic]) -> None:
    """The entries of its peer's queue pair fail once their retries end."""
    a, b = connected(*timed)
    r = Region.host(timed[0], 4096)
    b.destroy()
    a.send(r, 0, 8)
    a.send(r, 0, 8)
    assert take(a, SEND).error is ErrorKind.RETRY_EXCEEDED
    assert take(a, SEND).error is ErrorKind.FLUSHED


def test_destroy_refused(soft: Soft) -> None:
    """It is Error msg if the firmware refuses. qp then counts as destroyed, and its rings stay until close."""
    for k in (1, 2, 3):
        nic = soft()
        assert len(steps(nic).destroy) == 3
        empty = counts(nic)
        a, b = connected(nic)
        r = Region.host(nic, 4096)
        before = counts(nic)
        firmware(nic).refuse("*", k)
        with pytest.raises(FirmwareRefusedError, match=steps(nic).destroy[k - 1]):
            a.destroy()
        assert counts(nic)["core_dma_pages"] == before["core_dma_pages"]
        log = commands(nic)
        with pytest.raises(Error, match="counts as destroyed"):
            a.destroy()
        assert commands(nic) == log  # the firmware is not asked again
        for call in calls(a, r):
            with pytest.raises(ValueError, match="destroyed"):
                call()
        b.destroy()
        r.deregister()
        assert counts(nic)["core_dma_pages"] > empty["core_dma_pages"]
        nic.close()
        assert counts(nic)["core_dma_pages"] == 0
        assert counts(nic)["qps"] == counts(nic)["cqs"] == 0


@pytest.mark.parametrize("k", [1, 2, 3])
def test_destroy_after_an_exception(soft: Soft, monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    """And so is every call after one that an exception ended."""
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    before = counts(nic)
    interrupt(nic, monkeypatch, k)
    with pytest.raises(Interruption):
        a.destroy()
    for _ in range(2):
        with pytest.raises(Error, match="exception"):
            a.destroy()
    assert counts(nic)["core_dma_pages"] == before["core_dma_pages"]
    for call in calls(a, r):
        with pytest.raises(ValueError, match="destroyed"):
            call()
    b.destroy()  # the channel works on
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0


def calls(qp: Qp, r: Region) -> list[Callable[[], object]]:
    """Every call on a pair but destroy."""
    return [
        lambda: qp.connect(qp.endpoint),
        lambda: qp.send(r, 0, 1),
        lambda: qp.receive(r, 0, 1),
        lambda: qp.read((r, 0), (r, 0), 1),
        lambda: qp.write((r, 0), userdma.RemoteMemory(0, 0, 1), 1),
        lambda: qp.room(SEND),
        lambda: qp.poll(SEND),
        lambda: qp.wait(SEND, us=0),
    ]


def test_after_destroy(nic: Nic) -> None:
    """After destroy every call on the pair but destroy is an invalid argument; a second destroy does nothing."""
    a, _ = connected(nic)
    r = Region.host(nic, 4096)
    a.destroy()
    a.destroy()
    for call in calls(a, r):
        with pytest.raises(ValueError, match="destroyed"):
            call()


def test_destroy_while_a_thread_waits(nic: Nic) -> None:
    """A wait in another thread ends with destroy."""
    a, _ = connected(nic)
    r = Region.host(nic, 4096)
    a.receive(r, 0, 8)
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            a.wait(RECEIVE, us=300 * SECOND)
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    a.destroy()
    thread.join(100)
    assert not thread.is_alive()
    assert isinstance(seen[0], ValueError)


# ---- Peers on other NICs ---------------------------------------------------------------------------------------------


@pytest.mark.two_nics
def test_a_peer_serves_no_remote_request_by_default(two: tuple[Nic, Nic]) -> None:
    """A pair serves remote requests of another NIC only if connected with remote."""
    a, b = connected(*two)
    r = Region.host(two[0], 4096)
    s = Region.host(two[1], 4096, remote=Access.READ | Access.WRITE)
    a.read(s.remote(), (r, 0), 16)
    assert take(a, SEND).error in (ErrorKind.REMOTE_ACCESS, ErrorKind.REMOTE_INVALID_REQUEST)
    b.send(s, 0, 1) if not b.failure else None


@pytest.mark.two_nics
@pytest.mark.parametrize("rights", [Access.READ, Access.WRITE, Access.READ | Access.WRITE])
@pytest.mark.parametrize("granted", [Access.READ, Access.WRITE, Access.READ | Access.WRITE])
def test_remote_rights_of_pair_and_region(two: tuple[Nic, Nic], rights: Access, granted: Access) -> None:
    """What a peer may do is what both the region and the pair were given."""
    for what in (Access.READ, Access.WRITE):
        a, b = Qp.make(two[0]), Qp.make(two[1])
        a.connect(b.endpoint)
        b.connect(a.endpoint, remote=rights)
        r = Region.host(two[0], 4096)
        s = Region.host(two[1], 4096, remote=granted)
        r.write(0, b"mine")
        s.write(0, b"yours")
        if what is Access.READ:
            a.read(s.remote(), (r, 0), 5)
        else:
            a.write((r, 0), s.remote(), 4)
        found = take(a, SEND)
        if what & rights & granted:
            assert found.ok, found.message
            assert r.read(0, 5) == b"yours" if what is Access.READ else s.read(0, 5) == b"mines"
        else:
            assert found.error in (ErrorKind.REMOTE_ACCESS, ErrorKind.REMOTE_INVALID_REQUEST)
            assert (r.read(0, 5), s.read(0, 5)) == (b"mine\0", b"yours")
