"""What a failed entry says: its own cause and what to change, at both ends."""

from __future__ import annotations

import pytest

from conftest import connect, done, take
from userdma import Access, ErrorKind, Nic, Qp, Region, RemoteMemory, Side, _core

SEND, RECEIVE = Side.SEND, Side.RECEIVE
ALL = Access.READ | Access.WRITE | Access.ATOMIC
PAGE = 4096


def test_one_sentence_for_each_kind() -> None:
    """The seed's names, and a sentence for each that nothing else says."""
    assert {kind.name: kind.value for kind in ErrorKind} == dict(_core.ERRORS)
    assert len({kind.value for kind in ErrorKind}) == len(ErrorKind) == 11
    assert "connect(..., remote=...)" in ErrorKind.REMOTE_INVALID_REQUEST.value


def waiting(two: tuple[Nic, Nic], **options: Access) -> tuple[Qp, Qp, Region, Region]:
    """A pair of each NIC, with a receive at the second, and memory of both."""
    a, b = Qp.make(two[0]), Qp.make(two[1])
    connect(a, b, **options)
    r, s = Region.host(two[0], 2 * PAGE), Region.host(two[1], 2 * PAGE, remote=ALL)
    b.receive(s, 0, 64)
    return a, b, r, s


def test_a_write_to_a_pair_that_does_not_allow_it(two: tuple[Nic, Nic]) -> None:
    """The commonest mistake: connect without remote=. Both ends say so."""
    a, b, r, s = waiting(two)
    a.write((r, 0), s.remote(), 8)
    found = take(a, SEND)
    assert found.error is ErrorKind.REMOTE_INVALID_REQUEST
    assert "does not allow it (connect(..., remote=...) there)" in found.message
    found = take(b, RECEIVE)
    assert found.error is ErrorKind.FLUSHED
    assert "of its peer's requests: a request that this queue pair does not take (connect(..., remote=...) here" in (
        found.message
    )
    assert "terminal" not in found.message
    assert {"bnxt": "(responder reason 0x", "mlx5": "(event "}[two[1].family] in found.message


def test_a_write_past_the_region(two: tuple[Nic, Nic]) -> None:
    a, b, r, s = waiting(two, remote=ALL)
    there = s.remote()
    a.write((r, 0), RemoteMemory(there.address + PAGE, there.rkey, 2 * PAGE), 2 * PAGE)
    found = take(a, SEND)
    assert found.error is ErrorKind.REMOTE_ACCESS
    assert "outside the region there" in found.message
    found = take(b, RECEIVE)
    assert found.error is ErrorKind.FLUSHED
    assert "of its peer's requests: memory outside a region" in found.message


def test_a_receive_that_is_too_short(two: tuple[Nic, Nic]) -> None:
    a, b, r, s = waiting(two)
    b.receive(s, 64, 64)
    a.send(r, 0, 65)
    found = take(b, RECEIVE)
    assert found.error is ErrorKind.LOCAL_LENGTH
    assert "the message is longer than the receive" in found.message
    assert "receive entry 0: the message is longer than the receive" in take(b, RECEIVE).message
    found = take(a, SEND)
    assert found.error is ErrorKind.REMOTE_INVALID_REQUEST
    assert "its receive is shorter than the message" in found.message


def test_ends_that_have_not_the_same_mtu(two: tuple[Nic, Nic]) -> None:
    _, _, r, s = waiting(two)
    a, b = Qp.make(two[0]), Qp.make(two[1])
    a.connect(b.endpoint, mtu=4096)
    b.connect(a.endpoint, mtu=1024)
    b.receive(s, 0, 2 * PAGE)
    a.send(r, 0, 2 * PAGE)
    found = take(a, SEND)
    assert found.error is ErrorKind.REMOTE_INVALID_REQUEST
    assert "the two ends have not the same mtu" in found.message
    assert "mtu" in take(b, RECEIVE).message


def test_memory_deregistered_meanwhile(two: tuple[Nic, Nic]) -> None:
    a, b, r, s = waiting(two)
    s.deregister()
    a.send(r, 0, 8)
    found = take(b, RECEIVE)
    assert found.error is ErrorKind.LOCAL_PROTECTION
    assert "deregistered meanwhile" in found.message
    found = take(a, SEND)
    assert found.error is ErrorKind.REMOTE_OPERATION
    assert "its receive names memory" in found.message


def test_a_peer_that_is_gone(timed: tuple[Nic, Nic]) -> None:
    a, b, r, s = waiting(timed)
    b.receive(s, 0, 8)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == done(a, SEND) == 8
    b.destroy()
    a.send(r, 0, 8)
    found = take(a, SEND)
    assert found.error is ErrorKind.RETRY_EXCEEDED
    assert "not connected to this queue pair yet, has failed or was destroyed" in found.message


def test_nothing_public_gives_the_private_key(two: tuple[Nic, Nic]) -> None:
    """The key and the address of the NIC's own entries, of a region that peers may only write."""
    r = Region.host(two[0], PAGE, remote=Access.WRITE)
    private = r._registration
    assert private.key != private.remote_key and private.va != private.remote_va
    assert _core.Region.remote(r, 5) == r.remote(5) == RemoteMemory(private.remote_va + 5, private.remote_key, PAGE - 5)
    for name in dir(r):
        if name.startswith("_"):
            continue
        assert getattr(r, name) not in (private.key, private.va), name
    local = Region.host(two[0], PAGE)
    for remote in (local.remote, lambda: _core.Region.remote(local)):
        with pytest.raises(ValueError, match="made without remote rights"):
            remote()
    # What a program must not call by mistake is not public.
    for kind in (Region, Qp):
        assert not {"retire", "fail", "set_connected", "domain"} & set(dir(kind))
