"""Each family's words for what its firmware does, so that one test speaks to all: the commands of the control calls,
what a refusal says, and completions that a NIC may write."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from userdma import Nic, Qp, Side


@dataclass(frozen=True)
class Steps:
    """The commands of each control call, in their order, and what else differs."""

    make: tuple[str, ...]
    connect: tuple[str, ...]
    reconnect: tuple[str, ...]  #: of a connect after one that was refused or ended: from reset on
    destroy: tuple[str, ...]
    register: str
    deregister: str
    close: tuple[str, ...]  #: of a close, among others
    query: tuple[str, str]  #: a command that changes nothing, and a field of its answer that is 1
    refusal: str  #: how the status of a refusal is called of which a test does not say more: it is 1
    resources: tuple[int, str]  #: the status for want of resources
    keys: str  #: how the firmware's counts call regions
    wrong: tuple[str, ...]  #: the firmware's faults that answer another command, or none
    channels: tuple[str, ...]  #: of the driver's chip; the last is the one of the control calls
    rings: Callable[[Any, int], tuple[int, int]]  #: the completion queues of a pair, of its send and receive ring
    unknown: bytes  #: a completion of a kind that there is none of
    immediate: Callable[[int, int, int], bytes]  #: a receive's, with (bytes, immediate data), of this queue pair


def _bnxt_rings(firmware: Any, number: int) -> tuple[int, int]:
    pair = firmware.state.qps[number]
    return pair.scq, pair.rcq


def _mlx5_rings(firmware: Any, number: int) -> tuple[int, int]:
    from userdma.mlx5.contexts import QPC

    context = QPC.unpack(firmware.state.objects["qp"][number].context)
    return context.cqn_snd, context.cqn_rcv


STEPS = {
    "bnxt": Steps(
        make=("create_cq", "create_cq", "create_qp", "modify_qp"),
        connect=("modify_qp",) * 2,  # RTR, RTS
        reconnect=("modify_qp",) * 4,  # reset, INIT, RTR, RTS
        destroy=("destroy_qp", "destroy_cq", "destroy_cq"),
        register="register_mr",
        deregister="deregister_mr",
        close=(
            "destroy_qp",
            "deregister_mr",
            "delete_gid",
            "hwrm_cfa_l2_filter_free",
            "hwrm_vnic_free",
            "deinitialize_fw",
            "hwrm_stat_ctx_free",
            "hwrm_func_drv_unrgtr",
        ),
        query=("query_version", "intf_maj"),
        refusal="FAIL",
        resources=(2, "RESOURCES"),
        keys="mrs",
        wrong=("wrong_sequence",),
        channels=("hwrm", "rcfw"),
        rings=_bnxt_rings,
        unknown=bytes(24) + bytes([10 << 1]) + bytes(7),  # CQ_BASE_CQE_TYPE: 10 is none of them
        # cq_res_rc: length, immediate data, handles, type RES_RC, status, flags IMM, the entry's index
        immediate=lambda qp, n, data: struct.pack("<IIQQBBHI", n, data, 0, 0, 1 << 1, 0, 0x2, 0),
    ),
    "mlx5": Steps(
        make=("create_cq", "create_cq", "create_qp", "rst2init_qp"),
        connect=("init2rtr_qp", "rtr2rts_qp"),
        reconnect=("2rst_qp", "rst2init_qp", "init2rtr_qp", "rtr2rts_qp"),
        destroy=("destroy_qp", "destroy_cq", "destroy_cq"),
        register="create_mkey",
        deregister="destroy_mkey",
        close=(
            "destroy_qp",
            "destroy_mkey",
            "set_roce_address",
            "modify_nic_vport_context",
            "dealloc_pd",
            "destroy_eq",
            "dealloc_uar",
            "teardown_hca",
            "manage_pages",
            "disable_hca",
        ),
        query=("query_issi", "current_issi"),
        refusal="INT_ERR",
        resources=(5, "BAD_RES_ERR"),
        keys="mkeys",
        wrong=("wrong_token", "bad_signature"),
        channels=("queue",),
        rings=_mlx5_rings,
        unknown=bytes(63) + bytes([9 << 4]),  # op_own: MLX5_CQE_* has none of 9
        # mlx5_cqe64: imm_inval_pkey, app and its kind, byte_cnt, timestamp, qpn, wqe_counter, signature, op_own
        # RESP_SEND_IMM
        immediate=lambda qp, n, data: bytes(36) + struct.pack(">IIIQIHBB", data, 0, n, 0, qp, 0, 0, 3 << 4),
    ),
}


def steps(nic: Nic) -> Steps:
    return STEPS[nic.family]


def chip(nic: Nic) -> Any:
    return nic._device._chip  # type: ignore[attr-defined]


def firmware(nic: Nic) -> Any:
    """The firmware of a soft NIC, which a test tells what to do."""
    return nic.function.firmware  # type: ignore[attr-defined]


def channels(nic: Nic) -> list[Any]:
    """The driver's command channels."""
    return [getattr(chip(nic), name) for name in steps(nic).channels]


def channel(nic: Nic) -> Any:
    """The one of the control calls' commands."""
    return channels(nic)[-1]


def quick(nic: Nic, seconds: float = 0.05) -> Nic:
    """Firmware commands of this NIC time out soon."""
    for one in channels(nic):
        one.limit = seconds
    return nic


def query(nic: Nic) -> None:
    """A command that changes nothing is answered as it must be."""
    name, field = steps(nic).query
    assert getattr(channel(nic).call(name), field) == 1


def sequence(nic: Nic, act: Callable[[], object]) -> tuple[str, ...]:
    """The firmware commands that this takes."""
    before = len(firmware(nic).log)
    act()
    return tuple(entry.name for entry in firmware(nic).log[before:])


def late(nic: Nic, command: str) -> Callable[[], None]:
    """The next of these commands is run at once, and answered when what this returns is called."""
    core = firmware(nic)
    held: list[Callable[[], None]] = []
    core.delay(command, 0)
    core.later = lambda seconds, call: held.append(call)

    def answer() -> None:
        del core.later
        with core.lock:
            while held:
                core.guard(held.pop(0))

    return answer


def sent(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the numbers of the commands that are sent from now on."""
    numbers: list[int] = []
    for one in channels(nic):

        def post(number: int, request: bytes, to: Callable[[int, bytes], None] = one._post) -> None:
            numbers.append(number)
            to(number, request)

        monkeypatch.setattr(one, "_post", post)
    return numbers


def pause(nic: Nic, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], k: int = 1) -> None:
    """`call` runs in the wait for the answer of the k-th command from now on, if it raises nothing before that."""
    one = channel(nic)
    wait, left = one._wait, [k]

    def paused(*args: Any) -> bytes:
        left[0] -= 1
        if left[0] == 0:
            call()
        return wait(*args)  # type: ignore[no-any-return]

    monkeypatch.setattr(one, "_wait", paused)


def give_up(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the wait for every answer."""

    def ended(*_: Any) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(channel(nic), "_wait", ended)


def write_completion(nic: Nic, qp: Qp, side: Side, entry: bytes) -> None:
    """The NIC writes this into the pair's completion ring."""
    send, receive = steps(nic).rings(firmware(nic), qp.number)
    nic.function.post_raw_cqe(send if side is Side.SEND else receive, entry)  # type: ignore[attr-defined]
