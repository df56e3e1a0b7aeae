"""The driver of a ConnectX: its command queue, what its firmware answers and asks for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from scapy.all import UDP, Ether

import userdma
from conftest import connected, counts, done, take
from steps import channel, firmware, query, quick, steps
from userdma import (
    Error,
    ErrorKind,
    FirmwareAnswerError,
    FirmwareError,
    FirmwareRefusedError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    Nic,
    Qp,
    Region,
    Side,
    soft,
)
from userdma.mlx5 import capabilities
from userdma.mlx5.constants import Delivery, EventType, Status

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
Soft = Callable[..., Nic]

pytestmark = pytest.mark.families("mlx5")


def works(nic: Nic) -> None:
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 8)
    a.send(r, 8, 8)
    assert done(b, RECEIVE) == done(a, SEND) == 8
    for thing in (a, b):
        thing.destroy()
    r.deregister()


def test_a_firmware_of_another_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    from userdma.soft.mlx5 import firmware

    for interface in (0, 4, 6, 0xFFFF):
        monkeypatch.setattr(firmware, "INTERFACE", interface)
        with pytest.raises(Error, match=f"command interface {interface}; this driver speaks 5"):
            userdma.open("soft:mlx5")


def test_a_port_that_was_turned_down_is_turned_up(function: Callable[..., Any]) -> None:
    """By register MLX5_REG_PAOS (0x5006), admin_status MLX5_PORT_UP (1), as mlx5_core's port.c sets it."""
    one = function()
    one.firmware.link_after_reset = False
    with userdma.open(one) as nic:
        asked = [entry.request for entry in firmware(nic).log if entry.name == "access_reg"]
        (paos,) = [request for request in asked if (request.register_id, request.op_mod) == (0x5006, 0)]
        assert paos.register_data == (0x00010100, 1 << 31, 0, 0)
        assert channel(nic).call("query_vport_state").state == 1  # VPORT_STATE_UP
        works(nic)


def test_a_link_that_comes_up_late_is_waited_for(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """QUERY_VPORT_STATE says when it is up. One that stays down keeps nobody from the pairs within the NIC."""
    from userdma.firmware import link
    from userdma.soft.mlx5 import ports

    states = [0, 0, 0]  # VPORT_STATE_DOWN
    answer = ports.Ports._query_state
    monkeypatch.setattr(
        ports.Ports, "_query_state", lambda self, request: {"state": states.pop()} if states else answer(self, request)
    )
    with userdma.open(function()) as nic:
        assert not states
        assert [entry.name for entry in firmware(nic).log].count("query_vport_state") == 4
    monkeypatch.setattr(ports.Ports, "_query_state", lambda self, request: {"state": 0})
    monkeypatch.setattr(link, "LIMIT", 0.1)
    with userdma.open(function()) as nic:
        works(nic)


def test_room_for_events(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as mlx5_core has room for (eq.h MLX5_NUM_ASYNC_EQE), or as the firmware can have; of those that this
    driver has a use for, and of requests for pages only where the firmware makes some."""
    from userdma.soft.mlx5 import capabilities

    general = capabilities.general
    for log_max_eq_sz, disabled, entries, kinds in (
        (22, 0, 12, {4, 5, 0x10, 0x11, 0xB}),
        (8, 1, 8, {4, 5, 0x10, 0x11}),
    ):
        monkeypatch.setattr(
            capabilities,
            "general",
            lambda *of: general(*of) | {"log_max_eq_sz": log_max_eq_sz, "page_request_disable": disabled},  # noqa: B023
        )
        with userdma.open(function()) as nic:
            (request,) = [entry.request for entry in firmware(nic).log if entry.name == "create_eq"]
            assert request.eq_context_entry.log_eq_size == entries
            assert request.event_bitmask == (sum(1 << kind for kind in kinds), 0, 0, 0)
            works(nic)


def test_how_long_a_command_may_take(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute, or as the firmware says: units of milliseconds, seconds, minutes, hours (lib/tout.c)."""
    from userdma.mlx5.command_queue import Registers

    read = Registers.read
    for word, seconds in ((0, 60), (2500, 2.5), (1 << 29 | 90, 90), (2 << 29 | 2, 120), (3 << 29 | 1, 3600)):
        monkeypatch.setattr(Registers, "read", lambda self, at: word if at == 0xFF8 else read(self, at))  # noqa: B023
        with userdma.open(function()) as nic:
            assert channel(nic).limit == pytest.approx(seconds)


def test_what_atomics_bring_home_is_in_this_machines_order(function: Callable[..., Any]) -> None:
    """ATOMIC capabilities (kind 3), atomic_req_8B_endianness_mode: 1 is the host's order (main.c
    handle_hca_cap_atomic). It is set before INIT_HCA, as all capabilities."""
    with userdma.open(function()) as nic:
        names = [(entry.name, getattr(entry.request, "op_mod", None)) for entry in firmware(nic).log]
        assert names.index(("set_hca_cap", 3 << 1)) < names.index(("init_hca", 0))
        answer = channel(nic).call("query_hca_cap", op_mod=3 << 1 | 1)
        assert capabilities.ATOMIC_CAPS.unpack(bytes(answer.capability)).atomic_req_8B_endianness_mode == 1


def test_the_udp_source_port_is_of_both_queue_pairs(family: str) -> None:
    """As rdma-core and the kernel choose it (ib_verbs.h rdma_calc_flow_label, rdma_flow_label_to_udp_sport), where the
    firmware leaves it to the driver (ROCE capability sw_r_roce_src_udp_port)."""
    wire = soft.Wire(frames=True)
    with userdma.open("soft:mlx5", wire=wire) as nic, userdma.open("soft:mlx5", wire=wire) as far:
        a, b = connected(nic, far)
        wire.capture(100)
        source, target = Region.host(nic, PAGE), Region.host(far, PAGE)
        b.receive(target, 0, 8)
        a.send(source, 0, 8)
        assert done(b, RECEIVE) == done(a, SEND) == 8
        packets = [Ether(raw) for raw in wire.take()]
        assert {packet[Ether].src for packet in packets} == {nic.mac.hex(":"), far.mac.hex(":")}
        mixed = a.endpoint.qp * b.endpoint.qp
        mixed ^= mixed >> 20
        mixed ^= mixed >> 40
        label = mixed & 0xFFFFF
        assert {packet[UDP].sport for packet in packets} == {(label & 0x3FFF) ^ ((label & 0xFC000) >> 14) | 0xC000}


@pytest.mark.parametrize("refused", [False, True])
def test_it_is_told_of_the_machines_byte_order(function: Callable[..., Any], refused: bool) -> None:
    """Before INIT_HCA, register MLX5_REG_HOST_ENDIANNESS (0x7004) says little-endian: MLX5_SET_HOST_ENDIANNESS is 0
    there. A virtual function is refused it and works on."""
    one = function()
    if refused:
        one.firmware.refuse("access_reg")
    with userdma.open(one) as nic:
        names = [entry.name for entry in firmware(nic).log]
        first = names.index("access_reg")
        assert first < names.index("init_hca")
        request = firmware(nic).log[first].request
        assert (request.register_id, request.op_mod) == (0x7004, 0)  # MLX5_ACCESS_REGISTER_IN_OP_MOD_WRITE
        assert not any(request.register_data)
        works(nic)


# ---- how a command may end -------------------------------------------------------------------------------------------


def test_a_command_that_never_completes(soft: Soft) -> None:
    nic = quick(soft())
    before = counts(nic)
    firmware(nic).lose("create_mkey")
    with pytest.raises(FirmwareTimeoutError, match=r"create_mkey: .* gave no answer within 0\.05 s"):
        Region.host(nic, PAGE)
    # It may name that memory yet.
    assert counts(nic)["core_dma_pages"] > before["core_dma_pages"]
    with pytest.raises(FirmwareStoppedError, match="create_mkey got no answer"):
        Region.host(nic, PAGE)
    nic.close()
    assert counts(nic)["core_dma_pages"] == 0


def test_a_wrong_token(soft: Soft) -> None:
    nic = quick(soft())
    firmware(nic).wrong_token("create_mkey")
    with pytest.raises(FirmwareAnswerError, match=r"create_mkey .* an answer with the token 0x\w+, not 0x\w+"):
        Region.host(nic, PAGE)
    works(nic)  # it answers: it has not stopped


def test_a_bad_signature(soft: Soft) -> None:
    nic = quick(soft())
    firmware(nic).bad_signature("create_mkey")
    with pytest.raises(FirmwareAnswerError, match=r"create_mkey .* an answer whose signature 0x\w+ is wrong"):
        Region.host(nic, PAGE)
    works(nic)


@pytest.mark.parametrize("status", [Delivery.SIGNAT_ERR, Delivery.TOK_ERR, Delivery.BAD_BLK_NUM_ERR, 0x7F])
def test_a_command_that_is_not_delivered(soft: Soft, status: int) -> None:
    """The queue's entry comes back with a status of its own: the command was not run."""
    nic = soft()
    before = counts(nic)
    name = status.name if isinstance(status, Delivery) else "0x7f"
    firmware(nic).undelivered("create_mkey", status)
    with pytest.raises(FirmwareRefusedError, match=f"create_mkey .* it was not delivered: .*{name}") as raised:
        Region.host(nic, PAGE)
    assert raised.value.status == status
    assert counts(nic) == before
    works(nic)


@pytest.mark.parametrize("status", Status)
def test_every_status(soft: Soft, status: Status) -> None:
    """A refusal says its name."""
    nic = soft()
    if status == Status.OK:
        return works(nic)
    firmware(nic).refuse("create_mkey", error=int(status))
    with pytest.raises(FirmwareRefusedError, match=rf"create_mkey .*{status.name} \({int(status):#x}\), syndrome 0x"):
        Region.host(nic, PAGE)
    return works(nic)


def test_answers_of_any_bytes(soft: Soft) -> None:
    """Whatever the firmware answers ends in an error, or in fields that are there."""
    nic = quick(soft(), 0.01)
    for n in range(20):
        for name in ("create_cq", "create_qp", "rst2init_qp"):
            firmware(nic).garbage(name)
            with suppress(Error):
                Qp.make(nic, send=7, receive=7)
            firmware(nic).garbage(name, data=bytes([0, 0, 0, 0, 0, 0, 0, 0, n, n, n, n]))
            with suppress(Error):
                Qp.make(nic, send=7, receive=7)
        firmware(nic).garbage("query_vport_counter")
        with suppress(Error):
            assert all(isinstance(value, int) for value in nic.counters.values())
    nic.close()
    assert not firmware(nic).bugs


# ---- asynchronous events: linux/mlx5/device.h, struct mlx5_eqe and what its data is ---------------------------------


def cq_error(cqn: int, syndrome: int) -> bytes:
    """mlx5_eqe_cq_err: cqn, 7 bytes, syndrome; of the data's 28."""
    return struct.pack(">I7xB16x", cqn, syndrome)


def qp_error(qpn: int) -> bytes:
    """mlx5_eqe_qp_srq: 5 words, type, 3 bytes, qp_srq_n."""
    return struct.pack(">20xB3xI", 0, qpn)


def tell(nic: Nic, kind: EventType, data: bytes, subtype: int = 0) -> None:
    """The NIC's firmware writes an event."""
    assert nic.function.event(kind, subtype, data)  # type: ignore[attr-defined]


def flushed(qp: Qp, side: Side, why: str) -> None:
    found = take(qp, side)
    assert found.error is ErrorKind.FLUSHED
    assert why in found.message


def moves(a: Qp, b: Qp, r: Region) -> None:
    b.receive(r, 0, 8)
    a.send(r, 8, 8)
    assert done(a, SEND) == done(b, RECEIVE) == 8


@pytest.mark.parametrize("ring", [SEND, RECEIVE])
@pytest.mark.parametrize(("syndrome", "words"), [(1, ", which overran"), (5, " (syndrome 0x5)")])
def test_an_error_of_a_completion_queue(soft: Soft, ring: Side, syndrome: int, words: str) -> None:
    """Its pair fails, and says so for entries of either ring; no other pair does."""
    nic = soft()
    r = Region.host(nic, PAGE)
    (a, b), others = connected(nic), connected(nic)
    cqn = steps(nic).rings(firmware(nic), b.number)[ring is RECEIVE]
    b.receive(r, 0, 8)
    tell(nic, EventType.CQ_ERROR, cq_error(cqn, syndrome))
    flushed(b, RECEIVE, f"the NIC ended its completion queue {cqn:#x}{words}")
    b.send(r, 0, 8)
    flushed(b, SEND, f"{cqn:#x}")
    moves(*others, r)
    a.destroy()
    b.destroy()  # the control calls go on


@pytest.mark.parametrize("kind", [EventType.WQ_CATAS_ERROR, EventType.WQ_INVAL_REQ_ERROR, EventType.WQ_ACCESS_ERROR])
def test_an_error_of_a_queue_pair(soft: Soft, kind: EventType) -> None:
    nic = soft()
    r = Region.host(nic, PAGE)
    (a, b), others = connected(nic), connected(nic)
    b.receive(r, 0, 8)
    tell(nic, kind, qp_error(b.number))
    flushed(b, RECEIVE, f"(event {int(kind):#x})")
    moves(*others, r)
    a.destroy()


def test_events_that_are_of_no_pair_here(soft: Soft) -> None:
    """Queues and pairs that there are none of change nothing; of other kinds the driver asked for none."""
    nic = soft()
    r = Region.host(nic, PAGE)
    a, b = connected(nic)
    core = nic.function
    for n in range(200):
        tell(nic, EventType.CQ_ERROR, cq_error(0xFFFF00 + n, 1))
        tell(nic, EventType.WQ_CATAS_ERROR, qp_error(0xFFFF00 + n))
        for kind in (EventType.PORT_CHANGE, EventType.INTERNAL_ERROR, 0xF0):
            assert not core.event(kind, 0, bytes(28))  # type: ignore[attr-defined]
        if n % 40 == 0:
            moves(a, b, r)
            Region.host(nic, PAGE).deregister()
    moves(a, b, r)
    works(nic)


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_pages_that_the_firmware_asks_for(soft: Soft) -> None:
    """It asks by events for more as more objects are made, and for fewer again; there are answers all the while."""
    nic = soft()
    before = counts(nic)
    regions = [Region.host(nic, PAGE) for _ in range(6000)]
    assert counts(nic)["mkeys"] == before["mkeys"] + 6000
    most = counts(nic)["pages"]
    assert most > before["pages"]
    for r in regions:
        r.deregister()
    query(nic)
    assert counts(nic)["mkeys"] == before["mkeys"]
    assert before["pages"] <= counts(nic)["pages"] < most
    nic.close()
    assert counts(nic)["pages"] == counts(nic)["core_dma_pages"] == 0


def test_no_memory_for_pages_that_the_firmware_asks_for(soft: Soft) -> None:
    """It is told that there is none, and refuses what it has no room for; what there is works on."""
    nic = soft(memory=8 << 20)
    regions = []
    with pytest.raises(Error):
        for _ in range(6000):
            regions.append(Region.host(nic, PAGE))
    works_on = regions.pop()
    works_on.write(0, b"here")
    assert works_on.read(0, 4) == b"here"
    for r in regions:
        r.deregister()
    works(nic)


@pytest.mark.parametrize("how", ["refuse", "lose", "wrong_token", "bad_signature"])
def test_pages_that_it_does_not_take(soft: Soft, how: str) -> None:
    """What it asked them for fails, and says so, or works with those that it has."""
    nic = quick(soft(), 0.02)
    getattr(firmware(nic), how)("manage_pages")
    regions = []
    with suppress(FirmwareError):
        for _ in range(1100):
            regions.append(Region.host(nic, PAGE))
    assert any(entry.name == "manage_pages" for entry in firmware(nic).log)
    assert len(regions) > 500
    for r in regions:
        with suppress(Error):
            r.deregister()
    nic.close()
    assert counts(nic)["pages"] == counts(nic)["core_dma_pages"] == 0
