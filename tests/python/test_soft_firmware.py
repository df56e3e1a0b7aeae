"""The firmware of the soft Thor2: what it answers to right and to wrong commands, its faults, and that nothing breaks.

Numbers are those of the kernel's bnxt_hsi.h and roce_hsi.h, by way of the message tables, which have their own tests
against those headers.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bare import NoAnswer, Refusal, refused, why
from bare_bnxt import INIT, NEEDED, PAGE, RTR, RTS, Bare
from userdma import _core, soft
from userdma.bnxt import hwrm, rcfw
from userdma.bnxt.hwrm import ErrorCode
from userdma.bnxt.rcfw import ModifyMask, QpState, Status
from userdma.soft import Limits

NOWHERE = 0x7_FFFF_FFFF_F000  # an address where nothing is mapped


def new(limits: Limits | None = None, **options: Any) -> Bare:
    return Bare(soft.bnxt(soft.Wire(), limits=limits, **options))


# ---- the HWRM channel ------------------------------------------------------------------------------------------------


def test_version(bare: Bare) -> None:
    version = bare.hwrm("ver_get", hwrm_intf_maj=1, hwrm_intf_min=10, hwrm_intf_upd=3)
    assert (version.hwrm_intf_major, version.hwrm_intf_minor, version.hwrm_intf_build) == (1, 10, 3)
    assert (version.hwrm_intf_maj_8b, version.hwrm_intf_min_8b, version.hwrm_intf_upd_8b) == (1, 10, 3)
    assert version.chip_num == 0x1760  # CHIP_NUM_57608, the PCI device id
    assert version.max_req_win_len == 128
    assert version.def_req_timeout
    assert version.max_req_timeout
    assert version.always_1 == 1
    assert not version.flags & hwrm.VerGetFlags.DEV_NOT_RDY


def test_answer_header(bare: Bare) -> None:
    answer = bare.hwrm("func_reset")
    assert answer.req_type == 0x11
    assert answer.seq_id == bare.sequence
    assert answer.resp_len == 16
    assert answer.valid == 1


def test_valid_is_written_last(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    """And right after the others, however busy the machine is: bnxt_en waits for it no longer than 50 ms."""
    writes: list[tuple[str, int, int]] = []
    firmware = bare.function.firmware

    def watched(name: str) -> Callable[[Any, int, bytes], None]:
        real = getattr(type(bare.function), name)

        def watch(function: Any, bus: int, data: bytes) -> None:
            writes.append((name, bus, len(data)))
            real(function, bus, data)

        return watch

    for name in ("dma_write", "dma_publish"):
        monkeypatch.setattr(type(bare.function), name, watched(name))
    answer = bare.hwrm("ver_get")
    assert firmware.bugs == []
    assert writes == [("dma_publish", bare.bus(bare.answer_memory), answer.resp_len)]


def test_what_is_published_is_whole_or_a_fault(bare: Bare) -> None:
    core = bare.function.firmware.core
    memory = bare.dma(2 * PAGE)
    first = bare.bus(memory)
    for at, data in ((0, b"x"), (100, bytes(range(256)) * 3), (PAGE - 5, b"over a page")):
        core.dma_publish(first + at, data)
        assert bytes(memoryview(memory)[at : at + len(data)]) == data
    core.dma_publish(first, b"")
    for data in (b"x", b"xy"):
        with pytest.raises(_core.DmaFault):
            core.dma_publish(NOWHERE, data)


def test_unknown_command(bare: Bare) -> None:
    window = hwrm.REQUEST_HEADER.pack(
        req_type=0x7FFE, cmpl_ring=0xFFFF, seq_id=77, target_id=0xFFFF, resp_addr=bare.bus(bare.answer_memory)
    )
    bare.send(window)
    data = bare.answered(77)
    assert data is not None
    answer = hwrm.REFUSAL.unpack(data)
    assert answer.error_code == ErrorCode.CMD_NOT_SUPPORTED
    assert answer.req_type == 0x7FFE
    assert answer.resp_len == len(data) == 16


def test_answer_that_cannot_be_written(bare: Bare) -> None:
    bare.patience = 0.05
    with pytest.raises(NoAnswer):
        bare.hwrm("ver_get", resp_addr=NOWHERE)
    assert bare.function.firmware.dropped["hwrm_answer_fault"] == 1
    bare.hwrm("ver_get")


def test_answer_on_the_edge_of_memory(bare: Bare) -> None:
    """The answer's last byte cannot be written: there is none."""
    memory = bare.dma(PAGE)
    bare.patience = 0.05
    with pytest.raises(NoAnswer):
        bare.hwrm("ver_get", resp_addr=bare.bus(memory) + PAGE - 175)
    assert bare.function.firmware.dropped["hwrm_answer_fault"] >= 1


def short(bare: Bare, size: int, address: int | None = None, type: int = 0x15) -> None:
    memory = bare.dma(PAGE)
    request = hwrm.REQUESTS["hwrm_func_qcaps"].request.pack(
        fid=0xFFFF, seq_id=9, resp_addr=bare.bus(bare.answer_memory)
    )
    memoryview(memory)[: len(request)] = request
    where = bare.bus(memory) if address is None else address
    bare.send(hwrm.SHORT.pack(req_type=type, size=size, req_addr=where))


def test_short_command(bare: Bare) -> None:
    """The request lies in memory (hwrm_short_input)."""
    short(bare, 24)
    data = bare.answered(9)
    assert data is not None
    assert hwrm.REQUESTS["hwrm_func_qcaps"].response.unpack(data).mac_address == bare.function.firmware.mac


def test_short_command_of_a_wrong_size(bare: Bare) -> None:
    short(bare, 20)
    data = bare.answered(9)
    assert data is not None
    assert hwrm.REFUSAL.unpack(data).error_code == ErrorCode.INVALID_PARAMS


@pytest.mark.parametrize("size", [0, 15, 1025, 0xFFFF])
def test_short_command_of_an_impossible_size(bare: Bare, size: int) -> None:
    short(bare, size)
    assert bare.answered(9) is None
    assert bare.function.firmware.dropped["hwrm_short_size"] == 1


def test_short_command_out_of_reach(bare: Bare) -> None:
    short(bare, 24, NOWHERE)
    assert bare.answered(9) is None
    assert bare.function.firmware.dropped["hwrm_request_fault"] == 1


def test_capabilities(bare: Bare) -> None:
    caps = bare.hwrm("func_qcaps", fid=0xFFFF)
    assert caps.mac_address == bare.function.firmware.mac
    assert caps.flags & hwrm.FuncQcapsFlags.ROCE_V2_SUPPORTED
    assert caps.flags_ext & hwrm.FuncQcapsFlagsExt.BS_V2_SUPPORTED
    assert bare.hwrm("func_qcaps", fid=caps.fid) is not None
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("func_qcaps", fid=5)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("func_qcfg", fid=5)


def test_doorbells_are_where_qcfg_says(bare: Bare) -> None:
    config = bare.hwrm("func_qcfg", fid=0xFFFF)
    assert 0 < config.legacy_l2_db_size_kb * 1024 < bare.function.bar(2)[1]
    assert config.mac_address == bare.function.firmware.mac
    assert config.max_mtu_configured >= 9000


def test_limits_are_reported(bare: Bare) -> None:
    limits = bare.function.firmware.limits
    resources = bare.hwrm("func_resource_qcaps", fid=0xFFFF)
    assert resources.max_vnics == limits.vnics
    assert resources.max_stat_ctx == limits.stat_contexts
    assert resources.max_cmpl_rings == limits.completion_rings


def test_link_is_up(bare: Bare) -> None:
    assert bare.hwrm("port_phy_qcfg").link == hwrm.PhyLink.LINK
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("port_phy_qcfg", port_id=3)
    queues = bare.hwrm("queue_qportcfg")
    assert queues.max_configurable_queues == 2
    assert queues.queue_id1_service_profile == hwrm.ServiceProfile.LOSSLESS_ROCE


def test_registration(bare: Bare) -> None:
    with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
        bare.hwrm("func_drv_unrgtr")
    for name in ("stat_ctx_alloc", "vnic_alloc", "cfa_l2_filter_alloc", "ring_alloc"):
        with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
            bare.hwrm(name)
    bare.hwrm("func_drv_rgtr")
    with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
        bare.hwrm("func_drv_rgtr")
    with refused(ErrorCode.INVALID_ENABLES):
        bare.hwrm("func_drv_rgtr", enables=0x8000)
    with refused(ErrorCode.INVALID_FLAGS):
        bare.hwrm("func_drv_rgtr", flags=0x8000_0000)
    bare.hwrm("func_drv_unrgtr")
    bare.hwrm("func_drv_rgtr")


def test_function_reset_is_of_this_function_only(bare: Bare) -> None:
    with refused(ErrorCode.INVALID_ENABLES):
        bare.hwrm("func_reset", enables=1)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("func_reset", func_reset_level=hwrm.FuncResetLevel.RESETVF)


@pytest.mark.parametrize("how", ["hwrm", "function"])
def test_reset_forgets_everything(bare: Bare, how: str) -> None:
    clean = {k: v for k, v in bare.function.firmware.counts().items() if "dma" not in k and "arena" not in k}
    assert not any(clean.values()), clean
    bare.up()
    open_receive_path(bare)
    bare.gid()
    cq = bare.cq()
    bare.qp(cq)
    bare.mr()
    counts = bare.function.firmware.counts()
    for name in ("rings", "vnics", "filters", "stat_contexts", "backing_stores", "qps", "cqs", "mrs", "gids"):
        assert counts[name], name
    if how == "hwrm":
        bare.hwrm("func_reset")
    else:
        bare.reset()
    after = bare.function.firmware.counts()
    assert {name: after[name] for name in clean} == clean


# ---- backing store ---------------------------------------------------------------------------------------------------


def test_backing_store_types(bare: Bare) -> None:
    """The chain of valid types that bnxt_en walks (bnxt_hwrm_func_backing_store_qcaps_v2)."""
    seen = []
    type = 0
    while type < 0xFFFF:
        caps = bare.hwrm("func_backing_store_qcaps_v2", type=type)
        assert caps.type == type
        assert caps.flags & hwrm.BackingStoreQcapsFlags.TYPE_VALID
        assert caps.entry_size
        assert caps.min_num_entries <= caps.max_num_entries
        seen.append(type)
        assert caps.next_valid_type > type
        type = caps.next_valid_type
    kinds = hwrm.BackingStoreType
    assert {kinds.QP, kinds.SRQ, kinds.CQ, kinds.VNIC, kinds.STAT, kinds.MRAV, kinds.TIM} < set(seen)
    absent = bare.hwrm("func_backing_store_qcaps_v2", type=kinds.TX_CK)
    assert not absent.flags & hwrm.BackingStoreQcapsFlags.TYPE_VALID
    assert absent.next_valid_type == 0xFFFF


def store(bare: Bare, **fields: Any) -> None:
    """SP_TQM_RING, which needs no initialization, in good order but for the fields given."""
    caps = bare.hwrm("func_backing_store_qcaps_v2", type=5)
    level, base = bare.pages(caps.min_num_entries * caps.entry_size)
    given = {
        "type": 5,
        "entry_size": caps.entry_size,
        "num_entries": caps.min_num_entries,
        "page_dir": base,
        "pbl_level": level,
    }
    bare.hwrm("func_backing_store_cfg_v2", **(given | fields))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"type": 0x13}, ErrorCode.INVALID_PARAMS),
        ({"instance": 1}, ErrorCode.INVALID_PARAMS),
        ({"entry_size": 8}, ErrorCode.INVALID_PARAMS),
        ({"num_entries": 0}, ErrorCode.INVALID_PARAMS),
        ({"num_entries": 1 << 30}, ErrorCode.INVALID_PARAMS),
        ({"num_entries": 1025}, ErrorCode.INVALID_PARAMS),  # multiples of 32
        ({"num_entries": 2048}, ErrorCode.INVALID_PARAMS),  # more than the table has
        ({"page_dir": NOWHERE}, ErrorCode.INVALID_PARAMS),
        ({"page_dir": 0x1234}, ErrorCode.INVALID_PARAMS),
        ({"pbl_level": 0}, ErrorCode.INVALID_PARAMS),
        ({"pbl_level": 3}, ErrorCode.INVALID_PARAMS),
        ({"page_size": 9}, ErrorCode.INVALID_PARAMS),
        ({"subtype_valid_cnt": 5}, ErrorCode.INVALID_PARAMS),
        ({"subtype_valid_cnt": 1, "split_entry_0": 5000}, ErrorCode.INVALID_PARAMS),
        ({"flags": hwrm.BackingStoreCfgFlags.BS_CFG_ALL_DONE}, ErrorCode.INVALID_PARAMS),  # the others are missing
        ({"flags": 0x80}, ErrorCode.INVALID_FLAGS),
        ({"enables": 1}, ErrorCode.INVALID_ENABLES),
    ],
)
def test_backing_store_refusals(bare: Bare, fields: dict[str, int], code: int) -> None:
    with refused(code):
        store(bare, **fields)
    assert bare.function.firmware.counts()["backing_stores"] == 0
    store(bare)


def test_backing_store_with_a_hole_in_its_table(bare: Bare) -> None:
    caps = bare.hwrm("func_backing_store_qcaps_v2", type=5)
    memory = bare.dma(caps.min_num_entries * caps.entry_size)
    table = bare.dma(PAGE)
    for i, page in enumerate(memory.pages()):
        memoryview(table)[i * 8 : i * 8 + 8] = (page | (i != 2)).to_bytes(8, "little")  # PTU_PTE_VALID
    with refused(ErrorCode.INVALID_PARAMS):
        store(bare, page_dir=bare.bus(table), pbl_level=1)
    assert "not valid" in why(bare)


def test_backing_store_that_is_not_initialized(bare: Bare) -> None:
    """ctx_init_value at ctx_init_offset * 4 of each entry (bnxt_init_ctx_mem)."""
    with refused(ErrorCode.INVALID_PARAMS):
        bare.backing_store(spoil=hwrm.BackingStoreType.CQ)
    assert "not initialized" in why(bare)


def test_backing_store_is_configured_once(bare: Bare) -> None:
    bare.backing_store()
    with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
        store(bare)
    bare.hwrm("func_reset")
    bare.backing_store()


def test_queue_pairs_need_their_backing_store() -> None:
    """Two more queue pairs than the Ethernet part's own: the third is refused."""
    bare = new().up(extra={0: 2})
    assert bare.query("query_func").max_qp == 2
    cq = bare.cq()
    bare.qp(cq)
    bare.qp(cq)
    with refused(Status.RESOURCES):
        bare.qp(cq)


# ---- rings, VNICs, filters -------------------------------------------------------------------------------------------


@pytest.fixture
def registered(bare: Bare) -> Bare:
    bare.hwrm("func_drv_rgtr")
    return bare


def ring(bare: Bare, type: int, **fields: Any) -> int:
    memory = bare.dma(PAGE)
    given = {"ring_type": type, "page_tbl_addr": bare.bus(memory), "page_size": 12, "length": 16, "int_mode": 2}
    return int(bare.hwrm("ring_alloc", **(given | fields)).ring_id)


NQ, CMPL, RX, TX, AGG = (
    hwrm.RingType.NQ,
    hwrm.RingType.L2_CMPL,
    hwrm.RingType.RX,
    hwrm.RingType.TX,
    hwrm.RingType.RX_AGG,
)
ENABLES = hwrm.RingAllocEnables
WITH_NQ, WITH_SIZE = ENABLES.NQ_RING_ID_VALID, ENABLES.RX_BUF_SIZE_VALID


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"ring_type": 9}, ErrorCode.INVALID_PARAMS),
        ({"enables": 0x1000}, ErrorCode.INVALID_ENABLES),
        ({"flags": 0x100}, ErrorCode.INVALID_FLAGS),
        ({"length": 0}, ErrorCode.INVALID_PARAMS),
        ({"length": 100}, ErrorCode.INVALID_PARAMS),
        ({"length": 1 << 20}, ErrorCode.INVALID_PARAMS),
        ({"page_tbl_addr": NOWHERE}, ErrorCode.INVALID_PARAMS),
        ({"page_tbl_addr": 8}, ErrorCode.INVALID_PARAMS),
        ({"page_tbl_depth": 3}, ErrorCode.INVALID_PARAMS),
        ({"page_tbl_depth": 1, "page_size": 5}, ErrorCode.INVALID_PARAMS),
        ({"page_tbl_depth": 1}, ErrorCode.INVALID_PARAMS),  # the zeroed page is no table
        ({"int_mode": 0}, ErrorCode.INVALID_PARAMS),
        ({"logical_id": 5000}, ErrorCode.INVALID_PARAMS),
        ({"enables": ENABLES.STAT_CTX_ID_VALID, "stat_ctx_id": 7}, ErrorCode.INVALID_PARAMS),
    ],
)
def test_notification_queue_refusals(registered: Bare, fields: dict[str, int], code: int) -> None:
    with refused(code):
        ring(registered, NQ, **fields)
    assert registered.function.firmware.counts()["rings"] == 0


def test_rings_that_need_others(registered: Bare) -> None:
    bare = registered
    with refused(ErrorCode.INVALID_ENABLES):
        ring(bare, CMPL)
    with refused(ErrorCode.INVALID_PARAMS):
        ring(bare, CMPL, enables=WITH_NQ, nq_ring_id=3)
    nq = ring(bare, NQ)
    cmpl = ring(bare, CMPL, enables=WITH_NQ, nq_ring_id=nq)
    with refused(ErrorCode.INVALID_PARAMS):
        ring(bare, CMPL, enables=WITH_NQ, nq_ring_id=cmpl)  # a ring, but not of that type
    with refused(ErrorCode.INVALID_ENABLES):
        ring(bare, RX)
    with refused(ErrorCode.INVALID_PARAMS):
        ring(bare, TX, cmpl_ring_id=nq)
    tx = ring(bare, TX, cmpl_ring_id=cmpl)
    rx = ring(bare, RX, enables=WITH_SIZE | WITH_NQ, rx_buf_size=640, nq_ring_id=nq)
    with refused(ErrorCode.INVALID_ENABLES):
        ring(bare, AGG, enables=WITH_SIZE, rx_buf_size=640)
    agg = ring(bare, AGG, enables=WITH_SIZE | ENABLES.RX_RING_ID_VALID, rx_buf_size=640, rx_ring_id=rx)

    for type, number in ((NQ, nq), (CMPL, cmpl)):  # in use
        with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
            bare.hwrm("ring_free", ring_type=type, ring_id=number)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("ring_free", ring_type=NQ, ring_id=cmpl)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("ring_free", ring_type=8, ring_id=nq)
    # Linux frees a receive ring before its aggregation ring.
    for type, number in ((RX, rx), (AGG, agg), (TX, tx), (CMPL, cmpl), (NQ, nq)):
        bare.hwrm("ring_free", ring_type=type, ring_id=number)
        with refused(ErrorCode.INVALID_PARAMS):
            bare.hwrm("ring_free", ring_type=type, ring_id=number)
    assert bare.function.firmware.counts()["rings"] == 0


def test_limits_are_kept() -> None:
    bare = new(Limits(nqs=3, stat_contexts=2, vnics=2, filters=2))
    bare.hwrm("func_drv_rgtr")
    numbers = [ring(bare, NQ, logical_id=i) for i in range(3)]
    with refused(ErrorCode.RESOURCE_ALLOC_ERROR):
        ring(bare, NQ)
    bare.hwrm("ring_free", ring_type=NQ, ring_id=numbers[0])
    assert ring(bare, NQ) != numbers[0]  # a number rests before it comes back
    for name, fields in (
        ("stat_ctx_alloc", {}),
        ("vnic_alloc", {}),
        (
            "cfa_l2_filter_alloc",
            {"enables": hwrm.L2FilterEnables.L2_ADDR | hwrm.L2FilterEnables.DST_ID, "dst_id": 0x5000},
        ),
    ):
        bare.hwrm(name, **fields)
        bare.hwrm(name, **fields)
        with refused(ErrorCode.RESOURCE_ALLOC_ERROR):
            bare.hwrm(name, **fields)


def test_notification_queue_over_a_page_table(registered: Bare) -> None:
    number, _ = registered.nq(1024)  # four pages
    registered.hwrm("ring_free", ring_type=NQ, ring_id=number)


def test_statistics_contexts(registered: Bare) -> None:
    with refused(ErrorCode.INVALID_PARAMS):
        registered.hwrm("stat_ctx_alloc", stats_dma_addr=NOWHERE, stats_dma_length=176)
    number = registered.statistics()
    with refused(ErrorCode.INVALID_PARAMS):
        registered.hwrm("stat_ctx_free", stat_ctx_id=number + 1)
    registered.hwrm("stat_ctx_free", stat_ctx_id=number)
    with refused(ErrorCode.INVALID_PARAMS):
        registered.hwrm("stat_ctx_free", stat_ctx_id=number)


VNIC = hwrm.VnicCfgEnables
FILTER = hwrm.L2FilterEnables


def open_receive_path(bare: Bare) -> dict[str, int]:
    nq = ring(bare, NQ, logical_id=2)
    cmpl = ring(bare, CMPL, enables=WITH_NQ, nq_ring_id=nq)
    rx = ring(bare, RX, enables=WITH_SIZE | WITH_NQ, rx_buf_size=640, nq_ring_id=nq)
    vnic = int(bare.hwrm("vnic_alloc").vnic_id)
    bare.hwrm(
        "vnic_cfg",
        vnic_id=vnic,
        enables=VNIC.MRU | VNIC.DEFAULT_RX_RING_ID | VNIC.DEFAULT_CMPL_RING_ID,
        mru=9018,
        default_rx_ring_id=rx,
        default_cmpl_ring_id=cmpl,
    )
    filter = mac_filter(bare, vnic)
    return {"nq": nq, "cmpl": cmpl, "rx": rx, "vnic": vnic, "filter": filter}


def mac_filter(bare: Bare, vnic: int, **fields: Any) -> int:
    given = {
        "flags": hwrm.L2FilterFlags.PATH_RX,
        "enables": FILTER.L2_ADDR | FILTER.L2_ADDR_MASK | FILTER.DST_ID,
        "l2_addr": bare.function.firmware.mac,
        "l2_addr_mask": b"\xff" * 6,
        "dst_id": vnic,
    }
    return int(bare.hwrm("cfa_l2_filter_alloc", **(given | fields)).l2_filter_id)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether RoCE packets come in, each time that the firmware says so."""
    said = [False]
    real = soft.Function.ingress

    def watch(function: Any, open: bool) -> None:
        said.append(open)
        real(function, open)

    monkeypatch.setattr(soft.Function, "ingress", watch)
    return said


def test_receive_path_opens_last(registered: Bare, gate: list[bool]) -> None:
    """NQ, L2 completion ring, RX ring, VNIC with both as defaults, L2 filter with the MAC: RoCE needs all of them."""
    bare = registered
    parts = open_receive_path(bare)
    assert gate[-1]
    assert not any(gate[:-1])
    bare.hwrm("cfa_l2_filter_free", l2_filter_id=parts["filter"])
    assert not gate[-1]
    mac_filter(bare, parts["vnic"], l2_addr=b"\2\0\0\0\0\1")  # another's MAC
    assert not gate[-1]
    mac_filter(bare, parts["vnic"], flags=0)  # the transmit path
    assert not gate[-1]
    mac_filter(bare, parts["vnic"], l2_addr=b"\2\0\0\0\0\1", l2_addr_mask=bytes(6))  # everybody's
    assert gate[-1]
    bare.hwrm("ring_free", ring_type=RX, ring_id=parts["rx"])
    assert not gate[-1]


def test_receive_path_in_another_order(registered: Bare, gate: list[bool]) -> None:
    bare = registered
    vnic = int(bare.hwrm("vnic_alloc").vnic_id)
    mac_filter(bare, vnic)
    nq = ring(bare, NQ)
    cmpl = ring(bare, CMPL, enables=WITH_NQ, nq_ring_id=nq)
    rx = ring(bare, RX, enables=WITH_SIZE, rx_buf_size=640)
    bare.hwrm("vnic_cfg", vnic_id=vnic, enables=VNIC.MRU | VNIC.DEFAULT_RX_RING_ID, mru=9018, default_rx_ring_id=rx)
    assert not gate[-1]
    bare.hwrm("vnic_cfg", vnic_id=vnic, enables=VNIC.DEFAULT_CMPL_RING_ID, default_cmpl_ring_id=cmpl)
    assert gate[-1]
    bare.hwrm("func_reset")
    assert not gate[-1]


def test_vnic_and_filter_refusals(registered: Bare) -> None:
    bare = registered
    parts = open_receive_path(bare)
    vnic = parts["vnic"]
    with refused(ErrorCode.INVALID_FLAGS):
        bare.hwrm("vnic_alloc", flags=0x100)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("vnic_cfg", vnic_id=vnic + 1)
    with refused(ErrorCode.INVALID_ENABLES):
        bare.hwrm("vnic_cfg", vnic_id=vnic, enables=VNIC.DFLT_RING_GRP)  # no ring groups in this generation
    with refused(ErrorCode.INVALID_ENABLES):
        bare.hwrm("vnic_cfg", vnic_id=vnic, enables=0x8000)
    with refused(ErrorCode.INVALID_FLAGS):
        bare.hwrm("vnic_cfg", vnic_id=vnic, flags=0x8000)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("vnic_cfg", vnic_id=vnic, enables=VNIC.DEFAULT_RX_RING_ID, default_rx_ring_id=parts["cmpl"])
    with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
        bare.hwrm("vnic_free", vnic_id=vnic)
    with refused(ErrorCode.INVALID_PARAMS):
        mac_filter(bare, vnic + 1)
    with refused(ErrorCode.INVALID_ENABLES):
        mac_filter(bare, vnic, enables=FILTER.DST_ID)
    with refused(ErrorCode.INVALID_ENABLES):
        mac_filter(bare, vnic, enables=FILTER.L2_ADDR)
    with refused(ErrorCode.INVALID_ENABLES):
        mac_filter(bare, vnic, enables=1 << 30)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("cfa_l2_filter_free", l2_filter_id=parts["filter"] + 1)
    bare.hwrm("cfa_l2_set_rx_mask", vnic_id=vnic, mask=hwrm.RxMask.BCAST)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("cfa_l2_set_rx_mask", vnic_id=vnic, mask=hwrm.RxMask.MCAST, num_mc_entries=2, mc_tbl_addr=NOWHERE)
    with refused(ErrorCode.INVALID_PARAMS):
        bare.hwrm("cfa_l2_set_rx_mask", vnic_id=vnic + 1)
    bare.hwrm("cfa_l2_filter_free", l2_filter_id=parts["filter"])
    bare.hwrm("vnic_free", vnic_id=vnic)


# ---- the RoCE command channel ----------------------------------------------------------------------------------------


def test_channel_must_be_started(registered: Bare) -> None:
    bare = registered
    bare.start()
    bare.first = 0  # no first-command flag: the firmware does not know the ring
    bare.patience = 0.05
    with pytest.raises(NoAnswer):
        bare.rcfw("query_version")
    assert bare.function.firmware.dropped["rcfw_not_started"] == 1
    bare.first = 1 << 31
    bare.producer = 0
    version = bare.rcfw("query_version")
    assert version.intf_maj == 1
    assert version.intf_minor == 10


@pytest.mark.parametrize(("slots", "entries"), [(16, 8), (256, 256), (1024, 512)])
def test_channel_wraps(registered: Bare, slots: int, entries: int) -> None:
    """Rings of one page and of several, filled many times over; 2^16 slots are more than the producer counts."""
    bare = registered
    bare.start(slots, entries)
    for _ in range(max(3 * slots, 3 * entries)):
        bare.rcfw("query_version")


def test_producer_wraps(registered: Bare) -> None:
    """The producer counts slots modulo 2^16, whatever the ring's size is."""
    bare = registered
    bare.start()
    long = rcfw.REQUESTS["query_version"].request.pack(cmd_size=200).ljust(200 * 16, b"\0")
    for _ in range(2 * 65536 // 200):
        bare.put(long)
        bare.trigger()
        assert rcfw.ANSWER.unpack(bare.next_event()).status == 0


def test_several_commands_under_one_trigger(up: Bare) -> None:
    for cookie in range(20):
        bare_request = rcfw.REQUESTS["query_version"].request.pack(cookie=100 + cookie)
        up.put(bare_request)
    up.trigger()
    assert [rcfw.ANSWER.unpack(up.next_event()).cookie for _ in range(20)] == list(range(100, 120))


@pytest.mark.parametrize(
    "init",
    [
        {"cmdq_size": 0},
        {"cmdq_size": 100},
        {"cmdq_lvl": 3},
        {"creq_ring_id": 7},
    ],
)
def test_channel_that_cannot_start(registered: Bare, init: dict[str, int]) -> None:
    bare = registered
    bare.start()
    good = {"cmdq_pbl": bare.bus(bare.command_ring), "cmdq_size": 256, "creq_ring_id": bare.creq}
    bare.registers.write_words(0x600, rcfw.INIT.pack(**(good | init)))
    bare.patience = 0.05
    with pytest.raises(NoAnswer):
        bare.rcfw("query_version")
    assert bare.function.firmware.dropped["rcfw_init"] == 1


def test_command_ring_out_of_reach(registered: Bare) -> None:
    bare = registered
    bare.start()
    init = rcfw.INIT.pack(cmdq_pbl=NOWHERE, cmdq_size=256, creq_ring_id=bare.creq)
    bare.registers.write_words(0x600, init)
    bare.patience = 0.05
    with pytest.raises(NoAnswer):
        bare.rcfw("query_version")
    assert bare.function.firmware.dropped["rcfw_command_fault"] == 1


def raw_command(bare: Bare, data: bytes) -> Any:
    bare.put(data)
    bare.trigger()
    return rcfw.ANSWER.unpack(bare.next_event())


def test_unknown_opcode(up: Bare) -> None:
    answer = raw_command(up, rcfw.COMMAND.pack(opcode=0x60, cmd_size=1, cookie=9))
    assert (answer.status, answer.cookie, answer.event) == (Status.INVALID_CMD, 9, 0x60)


def test_command_that_is_not_implemented(up: Bare) -> None:
    with refused(Status.NOT_IMPLEMENTED):
        up.qp(up.cq(), type=rcfw.QpType.RAW_ETHERTYPE)
    # an envelope (qplib_tlv.h): discriminator, total_size in slots at byte 8, and the command behind it
    envelope = bytes([0x00, 0x80]) + bytes(6) + bytes([3]) + bytes(7)
    answer = raw_command(up, envelope + rcfw.COMMAND.pack(opcode=0x8B, cmd_size=2, cookie=11) + bytes(16))
    assert (answer.status, answer.cookie) == (Status.NOT_IMPLEMENTED, 11)
    up.rcfw("query_version")


def test_command_of_a_wrong_size(up: Bare) -> None:
    command = rcfw.REQUESTS["create_cq"].request.pack(cmd_size=2, cookie=5)[:32]
    assert raw_command(up, command).status == Status.INVALID_PARAMETER
    assert raw_command(up, rcfw.COMMAND.pack(opcode=0x8B, cmd_size=0)).status == Status.INVALID_CMD
    assert raw_command(up, rcfw.COMMAND.pack(opcode=0x8B, cmd_size=200)).status == Status.INVALID_CMD
    up.rcfw("query_version")


def test_older_layout_of_modify_qp(up: Bare) -> None:
    """Linux 6.12 has 128 bytes of it."""
    up.gid()
    qp = up.qp(up.cq())
    mask = ModifyMask.STATE | ModifyMask.ACCESS | ModifyMask.PKEY
    data = rcfw.REQUESTS["modify_qp"].request.pack(
        cmd_size=8, qp_cid=qp, modify_mask=mask, new_state=QpState.INIT, pkey=0xFFFF
    )
    assert raw_command(up, data[:128]).status == Status.SUCCESS


def test_order_of_initialization(registered: Bare) -> None:
    bare = registered
    bare.start()
    with refused(Status.INVALID_CMD):
        bare.rcfw("create_cq")
    bare.query("query_func")  # bnxt_re asks before
    with refused(Status.INVALID_PARAMETER):
        bare.rcfw("initialize_fw", stat_ctx_id=1)
    context = bare.statistics()
    with refused(Status.FAIL):
        bare.rcfw("initialize_fw", stat_ctx_id=context)
    assert "backing store" in why(bare)
    bare.backing_store()
    bare.rcfw("initialize_fw", stat_ctx_id=context)
    with refused(Status.INVALID_CMD):
        bare.rcfw("initialize_fw", stat_ctx_id=context)
    with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
        bare.hwrm("ring_free", ring_type=NQ, ring_id=bare.creq)
    bare.rcfw("deinitialize_fw")
    bare.hwrm("ring_free", ring_type=NQ, ring_id=bare.creq)


def test_query_func(up: Bare) -> None:
    caps = up.query("query_func")
    assert caps.max_sge == 6
    assert caps.max_inline_data == 96
    assert caps.max_qp_wr >= 4096
    assert caps.dev_cap_flags & rcfw.DevCapFlags.MR_REGISTER_ALLOC
    assert caps.dev_cap_flags & rcfw.DevCapFlags.HW_REQUESTER_RETX_ENABLED
    assert caps.req_retransmission_support == rcfw.Retransmission.HOST_MSN_TABLE
    with refused(Status.INVALID_PARAMETER):
        up.rcfw("query_func")  # no buffer
    with refused(Status.INVALID_PARAMETER):
        up.rcfw("query_func", resp_addr=NOWHERE, resp_size=10)


def test_query_func_of_an_older_driver(up: Bare) -> None:
    """A shorter buffer takes the answer's beginning and nothing is written past it."""
    memory = up.dma(PAGE)
    memoryview(memory)[:] = b"\xee" * PAGE
    up.rcfw("query_func", resp_addr=up.bus(memory), resp_size=9)
    data = bytes(memoryview(memory))
    assert data[0] == 0x83
    assert data[144:] == b"\xee" * (PAGE - 144)


# ---- completion queues and queue pairs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"cq_size": 0},
        {"cq_size": 1 << 24},
        {"cnq_id": 5},
        {"pbl": NOWHERE},
        {"pbl": 0x10},
        {"lvl": 3},
        {"pg_size": 7},
        {"flags": 0x100},
        {"cq_size": 4096},  # the page given is too small
    ],
)
def test_completion_queue_refusals(up: Bare, fields: dict[str, int]) -> None:
    before = up.function.firmware.counts()["cqs"]
    with refused(Status.INVALID_PARAMETER):
        up.cq(**fields)
    assert up.function.firmware.counts()["cqs"] == before
    up.cq()


def test_completion_queue_in_use(up: Bare) -> None:
    cq = up.cq()
    qp = up.qp(cq)
    with refused(Status.FAIL):
        up.rcfw("destroy_cq", cq_cid=cq)
    with refused(ErrorCode.RESOURCE_ACCESS_DENIED):
        up.hwrm("ring_free", ring_type=NQ, ring_id=up.cnq)
    up.rcfw("destroy_qp", qp_cid=qp)
    up.rcfw("destroy_cq", cq_cid=cq)
    for _ in range(2):
        with refused(Status.INVALID_PARAMETER):
            up.rcfw("destroy_cq", cq_cid=cq)
    up.hwrm("ring_free", ring_type=NQ, ring_id=up.cnq)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"type": rcfw.QpType.RAW_ETHERTYPE}, Status.NOT_IMPLEMENTED),
        ({"type": 1}, Status.INVALID_PARAMETER),
        ({"qp_flags": rcfw.QpFlags.SRQ_USED}, Status.INVALID_PARAMETER),
        ({"qp_flags": 1 << 20}, Status.INVALID_PARAMETER),
        ({"scq_cid": 3}, Status.INVALID_PARAMETER),
        ({"rcq_cid": 3}, Status.INVALID_PARAMETER),
        ({"sq_size": 0}, Status.INVALID_PARAMETER),
        ({"rq_size": 1 << 20}, Status.INVALID_PARAMETER),
        ({"sq_sge": 7}, Status.INVALID_PARAMETER),
        ({"rq_sge": 15}, Status.INVALID_PARAMETER),
        ({"sq_pbl": NOWHERE}, Status.INVALID_PARAMETER),
        ({"rq_pbl": NOWHERE}, Status.INVALID_PARAMETER),
        ({"sq_lvl": 9}, Status.INVALID_PARAMETER),
        ({"sq_pg_size": 9}, Status.INVALID_PARAMETER),
        ({"pd_id": 1 << 20}, Status.INVALID_PARAMETER),
    ],
)
def test_queue_pair_refusals(up: Bare, fields: dict[str, int], status: int) -> None:
    cq = up.cq()
    before = up.function.firmware.counts()["qps"]
    with refused(status):
        up.qp(cq, **fields)
    assert up.function.firmware.counts()["qps"] == before
    up.qp(cq)


def test_send_ring_needs_room_for_its_msn_table(up: Bare) -> None:
    """8 bytes an entry behind the ring (struct sq_msn_search)."""
    cq = up.cq()
    level, base = up.pages(64 * 128)
    with refused(Status.INVALID_PARAMETER):
        up.qp(cq, sq_pbl=base, sq_lvl=level)


def test_number_of_a_queue_pair_rests(up: Bare) -> None:
    cq = up.cq()
    numbers = []
    for _ in range(10):
        numbers.append(up.qp(cq))
        up.rcfw("destroy_qp", qp_cid=numbers[-1])
    assert len(set(numbers)) == 10
    for name in ("destroy_qp", "query_qp", "modify_qp"):
        with refused(Status.INVALID_PARAMETER):
            up.rcfw(name, qp_cid=numbers[0])


S = QpState
STATES = [S.RESET, S.INIT, S.RTR, S.RTS, S.SQD, S.ERR]
# IBTA volume 1, figure 129 and 10.3.1: what a consumer can ask for. Any state leads to RESET and to ERR.
WAYS = {(a, b) for a in STATES for b in (S.RESET, S.ERR)} | {
    (S.RESET, S.INIT),
    (S.INIT, S.INIT),
    (S.INIT, S.RTR),
    (S.RTR, S.RTS),
    (S.RTS, S.RTS),
    (S.RTS, S.SQD),
    (S.SQD, S.RTS),
    (S.SQD, S.SQD),
}


def attributes(before: QpState, after: QpState) -> int:
    needed = {(S.RESET, S.INIT): INIT, (S.INIT, S.RTR): RTR, (S.RTR, S.RTS): RTS}
    return int(needed.get((before, after), 0))


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, [*STATES, S.SQE])))
def test_state_transitions(up: Bare, before: QpState, after: QpState) -> None:
    up.gid()
    qp = up.qp(up.cq())
    up.move(qp, before)
    assert up.query("query_qp", qp_cid=qp).state == before
    if (before, after) in WAYS:
        up.modify(qp, after, attributes(before, after))
        assert up.query("query_qp", qp_cid=qp).state == after
    else:
        with refused(Status.INVALID_PARAMETER):
            up.modify(qp, after, attributes(before, after))
        assert up.query("query_qp", qp_cid=qp).state == before


@pytest.mark.parametrize(
    ("before", "after", "bit"),
    [
        (a, b, bit)
        for (a, b) in ((S.RESET, S.INIT), (S.INIT, S.RTR), (S.RTR, S.RTS))
        for bit in rcfw.ModifyMask(NEEDED[b])
    ],
)
def test_required_attributes(up: Bare, before: QpState, after: QpState, bit: ModifyMask) -> None:
    up.gid()
    qp = up.qp(up.cq())
    up.move(qp, before)
    with refused(Status.INVALID_PARAMETER):
        up.modify(qp, after, attributes(before, after) & ~bit)
    assert bit.name is not None
    assert bit.name in why(up)
    up.modify(qp, after)


@pytest.mark.parametrize("bit", [ModifyMask.PKEY, ModifyMask.DGID, ModifyMask.PATH_MTU, ModifyMask.RQ_PSN])
def test_attributes_that_rtr_to_rts_does_not_take(up: Bare, bit: ModifyMask) -> None:
    """qplib_fp.c, __modify_flags_from_rtr_state."""
    up.gid()
    qp = up.qp(up.cq())
    up.move(qp, S.RTR)
    with refused(Status.INVALID_PARAMETER):
        up.modify(qp, S.RTS, RTS | bit)


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        (S.RTR, {"sgid_index": 3}),
        (S.RTR, {"path_mtu": rcfw.PathMtu.MTU_8192}),
        (S.RTR, {"network_type": rcfw.NetworkType.ROCEV1}),
        (S.RTR, {"network_type": rcfw.NetworkType.ROCEV2_IPV6}),
        (S.RTR, {"dgid": b"\xfe\x80" + bytes(14)}),
        (S.RTR, {"dest_mac": bytes(6)}),
        (S.RTR, {"dest_mac": b"\xff" * 6}),
        (S.RTR, {"dest_qp_id": 1 << 24}),
        (S.RTR, {"rq_psn": 1 << 24}),
        (S.RTR, {"min_rnr_timer": 32}),
        (S.RTS, {"timeout": 32}),
        (S.RTS, {"retry_cnt": 8}),
        (S.RTS, {"rnr_retry": 8}),
        (S.RTS, {"sq_psn": 1 << 24}),
    ],
)
def test_values_of_attributes(up: Bare, state: QpState, fields: dict[str, Any]) -> None:
    up.gid()
    qp = up.qp(up.cq())
    up.move(qp, S.INIT if state == S.RTR else S.RTR)
    with refused(Status.INVALID_PARAMETER):
        up.modify(qp, state, **fields)
    up.modify(qp, state)


def test_query_of_a_queue_pair(up: Bare) -> None:
    index, gid = up.gid()
    qp = up.qp(up.cq())
    up.move(qp, S.RTS)
    found = up.query("query_qp", qp_cid=qp)
    assert found.xid == qp
    assert found.state == S.RTS
    assert b"".join(word.to_bytes(4, "little") for word in found.dgid) == gid
    assert b"".join(word.to_bytes(2, "little") for word in found.dest_mac) == up.function.firmware.mac
    assert (found.sgid_index, found.path_mtu, found.timeout, found.retry_cnt, found.rnr_retry) == (index, 2, 14, 7, 7)
    assert (found.dest_qp_id, found.sq_size, found.rq_size, found.pkey) == (qp, 64, 64, 0xFFFF)
    with refused(Status.INVALID_PARAMETER):
        up.rcfw("query_qp", qp_cid=qp)


def test_reset_forgets_attributes(up: Bare) -> None:
    up.gid()
    qp = up.qp(up.cq())
    up.move(qp, S.RTS)
    up.modify(qp, S.RESET)
    assert up.query("query_qp", qp_cid=qp).timeout == 0
    up.move(qp, S.RTS)


def test_variable_size_wqes(up: Bare) -> None:
    level, base = up.pages(512 * 16 + 256 * 8)
    cq = up.cq()
    flags = rcfw.QpFlags.VARIABLE_SIZED_WQE_ENABLED
    qp = up.qp(cq, qp_flags=flags, sq_size=512, sq_pbl=base, sq_lvl=level, sq_sge=13, rq_sge=1)
    up.rcfw("destroy_qp", qp_cid=qp)
    with refused(Status.INVALID_PARAMETER):
        up.qp(cq, qp_flags=flags, sq_size=512, sq_pbl=base, sq_lvl=level, sq_sge=14, rq_sge=1)


# ---- keys and GIDs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"pbl": NOWHERE},
        {"pbl": 0x123},
        {"lvl": 3},
        {"lvl": 0},
        {"log2_pg_size": 11},
        {"log2_pbl_pg_size": 3},
        {"mr_size": 0},
        {"mr_size": 1 << 50},
        {"mr_size": 513 * PAGE},  # more pages than the table's page has entries that are valid
        {"va": (1 << 64) - PAGE},
        {"access": 0x40},
        {"flags": 0x101},
        {"key": 1 << 20},  # with ALLOC_MR: the protection domain
        {"flags": 0, "key": 0x12300},  # without: a key that was not allocated
    ],
)
def test_region_refusals(up: Bare, fields: dict[str, int]) -> None:
    before = up.function.firmware.counts()
    before = {name: before[name] for name in ("keys", "mrs")}
    with refused(Status.INVALID_PARAMETER):
        up.mr(**fields)
    after = up.function.firmware.counts()
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("size", [1, PAGE, PAGE + 1, 512 * PAGE, 513 * PAGE, 1500 * PAGE])
def test_region_sizes(up: Bare, size: int) -> None:
    """Page tables of level 0, 1 and 2."""
    key = up.mr(size)
    assert key & 0xFF == 0
    assert up.function.firmware.counts()["mrs"] == 1
    up.rcfw("deregister_mr", lkey=key)
    assert up.function.firmware.counts()["keys"] == 0
    for name, fields in (("deregister_mr", {"lkey": key}), ("deallocate_key", {"key": key})):
        with refused(Status.INVALID_PARAMETER):
            up.rcfw(name, **fields)


def test_region_with_a_hole_in_its_table(up: Bare) -> None:
    memory = up.dma(PAGE)
    for i, page in enumerate(up.dma(5 * PAGE).pages()):
        memoryview(memory)[i * 8 : i * 8 + 8] = (page | (i != 3)).to_bytes(8, "little")  # PTU_PTE_VALID
    with refused(Status.INVALID_PARAMETER):
        up.mr(5 * PAGE, pbl=up.bus(memory), lvl=1)
    assert "not valid" in why(up)
    up.mr(3 * PAGE, pbl=up.bus(memory), lvl=1)


def test_keys_by_hand(up: Bare) -> None:
    """ALLOCATE_MRW, REGISTER_MR under that key, DEREGISTER_MR, again, DEALLOCATE_KEY."""
    key = int(up.rcfw("allocate_mrw", mrw_flags=rcfw.MrwType.MR).xid)
    for _ in range(2):
        assert up.mr(flags=0, key=key) == key
        with refused(Status.INVALID_PARAMETER):
            up.mr(flags=0, key=key)
        up.rcfw("deregister_mr", lkey=key)
        with refused(Status.INVALID_PARAMETER):
            up.rcfw("deregister_mr", lkey=key)
    up.mr(flags=0, key=key)
    up.rcfw("deallocate_key", key=key)
    assert up.function.firmware.counts()["keys"] == 0
    window = int(up.rcfw("allocate_mrw", mrw_flags=rcfw.MrwType.MW_TYPE1).xid)
    with refused(Status.INVALID_PARAMETER):
        up.mr(flags=0, key=window)
    with refused(Status.INVALID_PARAMETER):
        up.rcfw("allocate_mrw", mrw_flags=7)


def test_keys_run_out() -> None:
    bare = new(Limits(mrs=3, mws=1, ahs=0)).up(extra={14: 4})
    keys = [bare.mr() for _ in range(3)]
    with refused(Status.RESOURCES):
        bare.mr()
    bare.rcfw("allocate_mrw", mrw_flags=rcfw.MrwType.MW_TYPE1)
    with refused(Status.RESOURCES):
        bare.rcfw("allocate_mrw", mrw_flags=rcfw.MrwType.MW_TYPE1)
    bare.rcfw("deregister_mr", lkey=keys[0])
    assert bare.mr() not in keys


def test_gids() -> None:
    bare = new(Limits(gids=2)).up()
    index, gid = bare.gid()
    found = bare.query("query_gid", gid_index=index)
    raw = b"".join(word.to_bytes(4, "little") for word in found.gid)
    assert rcfw.gid_bytes(raw) == gid
    other, _ = bare.gid()
    assert other != index
    with refused(Status.RESOURCES):
        bare.gid()
    with refused(Status.INVALID_PARAMETER):
        bare.rcfw("add_gid")  # zero
    bare.rcfw("delete_gid", gid_index=other)
    for name in ("delete_gid", "query_gid", "modify_gid"):
        with refused(Status.INVALID_PARAMETER):
            bare.rcfw(name, gid_index=other)
    address = bytes(10) + b"\xff\xff\x0a\1\2\3"
    bare.rcfw("modify_gid", gid_index=index, gid=rcfw.gid_bytes(address))
    found = bare.query("query_gid", gid_index=index)
    assert rcfw.gid_bytes(b"".join(word.to_bytes(4, "little") for word in found.gid)) == address


def test_map_tc_to_cos(up: Bare) -> None:
    up.rcfw("map_tc_to_cos", cos0=0xFFFF, cos1=0x8000)
    with refused(Status.INVALID_PARAMETER):
        up.rcfw("map_tc_to_cos", cos0=8)


def test_nothing_leaks(up: Bare) -> None:
    counts: Callable[[], dict[str, int]] = up.function.firmware.counts
    names = [name for name in counts() if "dma" not in name and "arena" not in name]  # the test's own memory
    before = {name: counts()[name] for name in names}
    index, _ = up.gid()
    cq = up.cq()
    qp = up.qp(cq)
    up.move(qp, S.RTS)
    key = up.mr()
    assert {name: counts()[name] for name in names} != before
    up.rcfw("deregister_mr", lkey=key)
    up.rcfw("destroy_qp", qp_cid=qp)
    up.rcfw("destroy_cq", cq_cid=cq)
    up.rcfw("delete_gid", gid_index=index)
    assert {name: counts()[name] for name in names} == before


# ---- faults ----------------------------------------------------------------------------------------------------------


def test_refuse_the_third(up: Bare) -> None:
    firmware = up.function.firmware
    firmware.refuse("create_cq", 3)
    kept = [up.cq(), up.cq()]
    with refused(Status.FAIL):
        up.cq()
    kept.append(up.cq())
    assert firmware.counts()["cqs"] == len(kept)
    firmware.refuse("create_cq", error=Status.HARDWARE_ERROR)
    with refused(Status.HARDWARE_ERROR):
        up.cq()
    firmware.refuse("hwrm_vnic_alloc", error=ErrorCode.BUSY)
    with refused(ErrorCode.BUSY):
        up.hwrm("vnic_alloc")
    firmware.refuse("hwrm_vnic_alloc")
    with refused(ErrorCode.FAIL):
        up.hwrm("vnic_alloc")
    assert len(firmware.faults) == 0


def test_refuse_each_command_of_a_sequence(bare: Bare) -> None:
    """A pattern counts every command: the bring-up fails at its k-th command, for every k, and then succeeds."""
    firmware = bare.function.firmware
    bare.up()
    total = len(firmware.log)
    assert total > 20
    for k in range(1, total + 1):
        bare.reset()
        firmware.refuse("*", k)
        before = len(firmware.log)
        with pytest.raises(Refusal):
            bare.up()
        assert len(firmware.log) - before == k
        assert firmware.log[-1].why == "refused, as it was told"
    bare.reset()
    bare.up()


def test_log(up: Bare) -> None:
    up.cq(cq_size=100)
    entry = up.function.firmware.log[-1]
    assert entry.name == "create_cq"
    assert entry.request.cq_size == 100
    assert entry.status == 0
    with refused(Status.INVALID_PARAMETER):
        up.rcfw("destroy_qp", qp_cid=5)
    assert up.function.firmware.log[-1].status == Status.INVALID_PARAMETER
    assert "queue pair 0x5 does not exist" in why(up)


def test_delay(up: Bare) -> None:
    firmware = up.function.firmware
    firmware.delay("create_cq", 0.1)
    start = time.monotonic()
    up.cq()
    assert time.monotonic() - start >= 0.1
    firmware.delay("hwrm_ver_get", 0.1)
    start = time.monotonic()
    up.hwrm("ver_get")
    assert time.monotonic() - start >= 0.1
    with pytest.raises(ValueError, match="late"):
        firmware.delay("hwrm_ver_get", -1)


def test_a_reset_cancels_late_answers(up: Bare) -> None:
    firmware = up.function.firmware
    firmware.delay("hwrm_ver_get", 1000)
    up.patience = 0.0
    with pytest.raises(NoAnswer):
        up.hwrm("ver_get")
    (timer,) = firmware._timers
    up.reset()
    memoryview(up.answer_memory)[:] = bytes(PAGE)
    assert timer.finished.is_set()
    timer.function()  # had it been too late to end it
    assert up.answered(up.sequence) is None


def test_wrong_sequence_and_cookie(up: Bare) -> None:
    firmware = up.function.firmware
    firmware.wrong_sequence("hwrm_ver_get")
    up.patience = 0.05
    with pytest.raises(NoAnswer):
        up.hwrm("ver_get")
    assert up.answered(up.sequence + 1) is not None
    up.hwrm("ver_get")
    firmware.wrong_cookie("query_version")
    up.put(rcfw.REQUESTS["query_version"].request.pack(cookie=50))
    up.trigger()
    assert rcfw.ANSWER.unpack(up.next_event()).cookie == 51


def test_garbage(up: Bare) -> None:
    firmware = up.function.firmware
    firmware.garbage("hwrm_ver_get", data=b"\x5a" * 64)
    up.patience = 0.05
    with pytest.raises(NoAnswer):
        up.hwrm("ver_get")
    assert bytes(memoryview(up.answer_memory)[:65]) == b"\x5a" * 64 + b"\0"
    firmware.garbage("query_version", data=bytes(range(16)))
    up.put(rcfw.REQUESTS["query_version"].request.pack())
    up.trigger()
    data = up.next_event()
    assert data[:8] == bytes(range(8))
    assert data[9:] == bytes(range(9, 16))
    for data in (b"", bytes(15), bytes(64)):
        for command in ("query_version", "*", "query_*"):
            with pytest.raises(ValueError, match="16 bytes"):
                firmware.garbage(command, data=data)
    with pytest.raises(TypeError, match="data must be bytes, not str"):
        firmware.garbage("hwrm_ver_get", data="text")
    firmware.garbage("query_version")
    up.put(rcfw.REQUESTS["query_version"].request.pack())
    up.trigger()
    up.next_event()
    up.rcfw("query_version")


def test_lose(up: Bare) -> None:
    up.function.firmware.lose("create_cq")
    up.patience = 0.05
    with pytest.raises(NoAnswer):
        up.cq()
    assert up.function.firmware.counts()["cqs"] == 1
    up.cq()


@pytest.mark.parametrize(("where", "run", "answered"), [("at", 0, False), ("within", 1, False), ("after", 1, True)])
def test_stop(up: Bare, where: str, run: int, answered: bool) -> None:
    firmware = up.function.firmware
    firmware.stop(**{where: "create_cq"})
    up.patience = 0.05
    if answered:
        up.cq()
    else:
        with pytest.raises(NoAnswer):
            up.cq()
    assert firmware.stopped
    assert firmware.counts()["cqs"] == run
    with pytest.raises(NoAnswer):
        up.rcfw("query_version")
    with pytest.raises(NoAnswer):
        up.hwrm("ver_get")
    up.reset()
    assert not firmware.stopped
    up.hwrm("ver_get")


def test_stop_and_resume(up: Bare) -> None:
    """What came while it was stopped is run and answered late."""
    firmware = up.function.firmware
    firmware.stop()
    up.patience = 0.02
    with pytest.raises(NoAnswer):
        up.cq()
    with pytest.raises(NoAnswer):
        up.hwrm("ver_get")
    firmware.resume()
    assert rcfw.ANSWER.unpack(up.next_event()).status == 0
    assert up.answered(up.sequence) is not None
    assert firmware.counts()["cqs"] == 1
    up.cq()
    firmware.stop(at="query_version", k=2)
    for cookie in (1, 2, 3):
        up.put(rcfw.REQUESTS["query_version"].request.pack(cookie=cookie))
    up.trigger()
    assert rcfw.ANSWER.unpack(up.next_event()).cookie == 1
    assert up.event() is None
    firmware.resume()
    assert [rcfw.ANSWER.unpack(up.next_event()).cookie for _ in range(2)] == [2, 3]
    with pytest.raises(ValueError, match="only one"):
        firmware.stop(at="a", within="b")
    firmware.stop(at="create_cq")
    firmware.clear()
    up.cq()


class Alarm(BaseException):
    """Out of a signal's handler, as KeyboardInterrupt is."""


def test_signals_do_not_end_a_command_halfway(bare: Bare) -> None:
    """An exception out of a signal's handler is for the program that stored to the trigger, not for the firmware."""

    def ring_out(number: int, frame: object) -> None:
        raise Alarm

    up = bare.up(extra={2: 1000})
    cqs: set[int] = set()
    interrupted = 0
    before = signal.signal(signal.SIGALRM, ring_out)
    try:
        for i in range(300):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 + i * 2e-6)
                    cqs.add(up.cq())
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                interrupted += 1
                up.trigger()
                while up.event():  # the answer to the command that was left
                    pass
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    firmware = up.function.firmware
    assert firmware.bugs == []
    counts = firmware.counts()
    assert counts["cqs"] == counts["core_cq"] >= len(cqs)
    commands = [entry for entry in firmware.log if entry.name == "create_cq"]
    assert all(entry.status == 0 for entry in commands)
    assert len(commands) == counts["cqs"]
    up.rcfw("query_version")


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="qps"):
        Limits(qps=-1)
    with pytest.raises(ValueError, match="mtu"):
        Limits(mtu=1500)
    with pytest.raises(ValueError, match="counted from 1"):
        new().function.firmware.refuse("*", 0)


def test_macs() -> None:
    function = soft.bnxt(soft.Wire(), mac=bytes.fromhex("02aabbccddee"))
    assert function.firmware.mac == bytes.fromhex("02aabbccddee")
    macs = {soft.bnxt(soft.Wire()).firmware.mac for _ in range(4)}
    assert len(macs) == 4
    assert all(mac[0] == 2 for mac in macs)  # locally administered, one port's
    for mac in (b"\1\0\0\0\0\0", bytes(6), b"\2"):
        with pytest.raises(ValueError, match="MAC"):
            soft.bnxt(soft.Wire(), mac=mac)


# ---- fuzz ------------------------------------------------------------------------------------------------------------

FUZZ = settings(
    max_examples=100,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(data=st.binary(max_size=128))
def test_random_windows(up: Bare, data: bytes) -> None:
    up.send(data)
    assert up.function.firmware.bugs == []


def number(width: int) -> st.SearchStrategy[int]:
    top = (1 << 8 * width) - 1
    return st.one_of(st.integers(0, 20), st.integers(0, top), st.just(top))


def fields_of(layout: Any, fixed: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    each: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in layout.fields.items():
        if name in fixed:
            continue
        each[name] = st.binary(min_size=field.size, max_size=field.size) if field.count else number(field.width)
    return st.fixed_dictionaries({}, optional=each)


@FUZZ
@given(data=st.data())
def test_random_fields_of_hwrm(up: Bare, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in hwrm.REQUESTS if "reset" not in name]))
    fixed = {"req_type", "cmpl_ring", "seq_id", "target_id", "resp_addr"}
    fields = data.draw(fields_of(hwrm.REQUESTS[name].request, fixed))
    memory = up.bus(up.dma(2 * PAGE))
    for address in ("page_tbl_addr", "page_dir", "stats_dma_addr", "mc_tbl_addr"):
        if address in fields and data.draw(st.booleans()):
            fields[address] = memory
    try:
        up.hwrm(name.removeprefix("hwrm_"), **fields)
    except Refusal:
        pass
    finally:
        assert up.function.firmware.bugs == []


@FUZZ
@given(data=st.data())
def test_random_fields_of_rcfw(up: Bare, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in rcfw.REQUESTS if name != "deinitialize_fw"]))
    fields = data.draw(fields_of(rcfw.REQUESTS[name].request, {"opcode", "cmd_size", "cookie"}))
    memory = up.bus(up.dma(2 * PAGE))
    for address in ("pbl", "sq_pbl", "rq_pbl", "resp_addr"):
        if address in fields and data.draw(st.booleans()):
            fields[address] = memory
    if "cnq_id" not in fields and data.draw(st.booleans()) and name == "create_cq":
        fields.pop("cq_fco_cnq_id", None)
        fields["cnq_id"] = up.cnq
    try:
        up.rcfw(name, **fields)
    except Refusal:
        pass
    finally:
        assert up.function.firmware.bugs == []


@FUZZ
@given(slots=st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=20), index=st.integers(0, 0xFFFF_FFFF))
def test_random_slots(up: Bare, slots: list[bytes], index: int) -> None:
    for slot in slots:
        up.put(slot)
    up.trigger()
    while up.event():
        pass
    assert up.function.firmware.bugs == []
    # a producer out of the blue, and registers full of noise
    up.registers.write32(0x60C, index)
    up.registers.write32(0x700, 1)
    while up.event():
        pass
    assert up.function.firmware.bugs == []
    up.producer = index & 0xFFFF if up.function.firmware.dropped["rcfw_producer"] == 0 else up.producer
