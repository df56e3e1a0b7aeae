"""The firmware of the soft ConnectX: what it answers to right and wrong commands, its faults, and that nothing breaks.

Numbers are those of the kernel's mlx5_ifc.h, device.h and cmd.c, by way of the message tables, which have their own
tests against those headers; the initialization segment and the command queue are put together by hand (bare_mlx5).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bare_mlx5
from bare import NoAnswer, refused
from bare_mlx5 import DATA, PAGE, SLOT, Bare, Undelivered, mailbox
from patience import SECONDS, eventually
from userdma import soft
from userdma.mlx5 import registers
from userdma.mlx5.capabilities import (
    ATOMIC_CAPS,
    CMD_HCA_CAP,
    FLOW_TABLE_NIC_CAP,
    ODP_CAP,
    PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS,
    ROCE_CAP,
)
from userdma.mlx5.commands import COMMANDS
from userdma.mlx5.constants import (
    Capability,
    CapabilityMode,
    Delivery,
    EventType,
    OptPar,
    Pages,
    QpState,
    Register,
    RegisterAccess,
    Status,
)
from userdma.soft import Mlx5Limits

NOWHERE = 0x7_FFFF_FFFF_F000  # an address where nothing is mapped


def new(limits: Mlx5Limits | None = None, **options: Any) -> Bare:
    return Bare(soft.mlx5(soft.Wire(), limits=limits, **options))


@contextmanager
def undelivered(status: Delivery) -> Iterator[None]:
    with pytest.raises(Undelivered) as raised:
        yield
    assert raised.value.status == status, f"{raised.value} is not {status:#x}"


def counts(bare: Bare) -> dict[str, int]:
    """What is given out, but for the memory of the test itself."""
    given = bare.function.firmware.counts()
    return {name: n for name, n in given.items() if n and "dma" not in name and "arena" not in name}


# ---- the initialization segment --------------------------------------------------------------------------------------


def test_initialization_segment(bare: Bare) -> None:
    """What mlx5_cmd_enable and wait_fw_init look at."""
    assert bare.read(bare_mlx5.CMDIF_REV) >> 16 == 5  # CMD_IF_REV
    sizes = bare.read(bare_mlx5.CMDQ_ADDR_L) & 0xFF
    log_entries, log_stride = sizes >> 4, sizes & 0xF
    assert 1 << log_entries <= 32  # MLX5_MAX_COMMANDS
    assert 1 << log_stride == SLOT
    assert log_entries + log_stride <= 12  # MLX5_ADAPTER_PAGE_SHIFT
    assert not bare.read(bare_mlx5.INITIALIZING) >> 31
    assert bare.read(bare_mlx5.INITIALIZING) >> 30 & 1  # MLX5_FW_RESET_SUPPORTED_OFFSET
    assert bare.read(bare_mlx5.HEALTH + 0x30) not in (0, 0xFFFFFFFF)  # fw_ver


def test_the_sizes_of_the_queue_are_read_only(bare: Bare) -> None:
    before = bare.read(bare_mlx5.CMDQ_ADDR_L) & 0xFF
    bare.attach()
    assert bare.read(bare_mlx5.CMDQ_ADDR_L) == bare.bus(bare.queue) & 0xFFFFF000 | before
    bare.write(bare_mlx5.CMDQ_ADDR_L, 0x12345000)
    assert bare.read(bare_mlx5.CMDQ_ADDR_L) == 0x12345000 | before


def test_the_health_counter_goes_on_while_the_firmware_does(bare: Bare) -> None:
    def moves() -> bool:
        first = bare.read(bare_mlx5.HEALTH_COUNTER)
        time.sleep(0.05)
        return bare.read(bare_mlx5.HEALTH_COUNTER) != first

    assert eventually(moves)
    bare.function.firmware.stop()
    assert not moves()
    bare.function.firmware.resume()
    assert eventually(moves)


def test_the_internal_timer_counts_nanoseconds(bare: Bare) -> None:
    """device_frequency_khz says so; the halves are as mlx5_read_internal_timer reads them."""

    def timer() -> int:
        high = bare.read(bare_mlx5.TIMER)
        low = bare.read(bare_mlx5.TIMER + 4)
        return high << 32 | low if bare.read(bare_mlx5.TIMER) == high else timer()

    start = time.monotonic_ns()
    before = timer()
    time.sleep(0.05)
    passed = timer() - before
    assert 0.05e9 <= passed <= time.monotonic_ns() - start


def test_registers_are_there_after_a_client_came(tmp_path: Any) -> None:
    """A served NIC's BARs do not answer until its memory space is enabled; what the firmware shows there is kept."""
    function = soft.mlx5(soft.Wire())
    with soft.serve(function, tmp_path / "nic"):
        function.reset()
        function.set_config16(4, 0)
        function.reset()
        function.set_config16(4, 6)
        assert function.bar_bytes(0, 4, 2) == b"\0\5"
    function.release()


# ---- configuration space ---------------------------------------------------------------------------------------------


class Gateway:
    """The vendor-specific capability as mlx5_core uses it (lib/pci_vsc.c)."""

    CONTROL, COUNTER, SEMAPHORE, ADDRESS, DATA = 0x4, 0x8, 0xC, 0x10, 0x14  # VSC_*_OFFSET
    SEMAPHORES, CRSPACE = 0xA, 0x7  # MLX5_SEMAPHORE_SPACE_DOMAIN, MLX5_VSC_SPACE_SCAN_CRSPACE

    def __init__(self, function: Any) -> None:
        self.function = function
        self.at = function.config8(0x34)
        while self.at and function.config8(self.at) != 0x09:  # PCI_CAP_ID_VNDR
            self.at = function.config8(self.at + 1)
        assert self.at
        assert function.config8(self.at + 2) == 0x18

    def read(self, offset: int) -> int:
        value: int = self.function.config32(self.at + offset)
        return value

    def write(self, offset: int, value: int) -> None:
        self.function.set_config32(self.at + offset, value)

    def lock(self) -> bool:
        """mlx5_vsc_gw_lock, once."""
        if self.read(self.SEMAPHORE):
            return False
        mine = self.read(self.COUNTER)
        self.write(self.SEMAPHORE, mine)
        return self.read(self.SEMAPHORE) == mine

    def space(self, number: int) -> bool:
        """mlx5_vsc_gw_set_space"""
        self.write(self.CONTROL, self.read(self.CONTROL) & ~0xFFFF | number)
        return self.read(self.CONTROL) >> 29 != 0

    def take(self, address: int, mine: int) -> bool:
        """mlx5_vsc_sem_set_space"""
        self.write(self.DATA, mine)
        self.write(self.ADDRESS, address | 1 << 31)
        assert not self.read(self.ADDRESS) >> 31
        self.write(self.ADDRESS, address)
        assert self.read(self.ADDRESS) >> 31
        return self.read(self.DATA) == mine


def test_gateway(bare: Bare) -> None:
    gateway = Gateway(bare.function)
    assert gateway.lock()
    assert not gateway.lock()
    gateway.write(gateway.SEMAPHORE, gateway.read(gateway.COUNTER))  # held: it stays who has it
    assert gateway.space(gateway.SEMAPHORES)
    assert not gateway.space(gateway.CRSPACE)
    assert gateway.space(gateway.SEMAPHORES)
    first = gateway.read(gateway.COUNTER)
    assert gateway.take(0x20, first)
    assert not gateway.take(0x20, first + 1)
    assert gateway.take(0x20, 0)
    assert gateway.take(0x20, first + 1)
    gateway.write(gateway.SEMAPHORE, 0)
    assert gateway.lock()
    bare.reset()
    assert gateway.lock()
    assert gateway.take(0x20, 5)


# ---- the command queue -----------------------------------------------------------------------------------------------


def test_a_command_and_its_answer(bare: Bare) -> None:
    bare.attach()
    bare.command("enable_hca")
    answer = bare.command("query_issi")
    assert answer.supported_issi_dw0 & 2


def test_the_answer_is_signed(up: Bare) -> None:
    """As verify_signature of cmd.c wants it: of the entry, and of each mailbox twice."""
    request = COMMANDS["query_hca_cap"].request.pack(op_mod=1)
    up.exchange(request, COMMANDS["query_hca_cap"].response.size)
    entry = bytes(memoryview(up.queue)[:SLOT])
    assert bare_mlx5.signature(entry) == 0
    memory = memoryview(up.boxes)
    for number in range(8):
        box = bytes(memory[(512 + number) * 1024 : (512 + number) * 1024 + 576])
        assert bare_mlx5.signature(box) == 0
        assert bare_mlx5.signature(box[512:575]) == 0
        assert box[573] == up.token


def test_the_entry_goes_back_last(up: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[tuple[int, int]] = []
    real = type(up.function).dma_write

    def watch(function: Any, bus: int, data: bytes) -> None:
        writes.append((bus, len(data)))
        real(function, bus, data)

    monkeypatch.setattr(type(up.function), "dma_write", watch)
    up.command("query_hca_cap", op_mod=1)
    assert writes[-1] == (up.bus(up.queue) + SLOT - 1, 1)
    assert len(writes) == 10  # eight mailboxes, the entry, its last byte


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"type": 6}, Delivery.CMD_DESCR_ERR),
        ({"reserved": b"\0\1\0"}, Delivery.RES_FLD_NOT_CLR_ERR),
        ({"last": 1}, Delivery.RES_FLD_NOT_CLR_ERR),
        ({"inlen": 0}, Delivery.IN_LENGTH_ERR),
        ({"inlen": 4}, Delivery.IN_LENGTH_ERR),
        ({"inlen": 1 << 31}, Delivery.IN_LENGTH_ERR),
        ({"outlen": 4}, Delivery.OUT_LENGTH_ERR),
        ({"outlen": 1 << 31}, Delivery.OUT_LENGTH_ERR),
        ({"inlen": 600, "in_ptr": 0}, Delivery.IN_PTR_ALIGN_ERR),
        ({"inlen": 600, "in_ptr": 0x1100}, Delivery.IN_PTR_ALIGN_ERR),
        ({"inlen": 600, "in_ptr": NOWHERE}, Delivery.FW_ERR),
        ({"outlen": 600, "out_ptr": 0}, Delivery.OUT_PTR_ALIGN_ERR),
        ({"outlen": 600, "out_ptr": 0x1180}, Delivery.OUT_PTR_ALIGN_ERR),
        ({"outlen": 600, "out_ptr": NOWHERE}, Delivery.FW_ERR),
    ],
)
def test_what_cannot_be_delivered(up: Bare, changes: dict[str, Any], status: Delivery) -> None:
    before = len(up.function.firmware.log)
    with undelivered(status):
        up.exchange(COMMANDS["alloc_pd"].request.pack(), 16, **changes)
    assert [entry.status for entry in up.function.firmware.log[before:]] == [None]
    assert counts(up)["pds"] == 1
    up.command("alloc_pd")


@pytest.mark.parametrize("way", ["in", "out"])
@pytest.mark.parametrize(
    ("number", "token", "status"),
    [(1, 0, Delivery.BAD_BLK_NUM_ERR), (0, 1, Delivery.TOK_ERR)],
)
def test_mailboxes_of_another_message(up: Bare, way: str, number: int, token: int, status: Delivery) -> None:
    """The number and the token of a mailbox are not the command's."""
    up.token = 7
    place = 0 if way == "in" else 512
    request = COMMANDS["query_hca_cap"].request.pack(op_mod=1)
    size = COMMANDS["query_hca_cap"].response.size
    data = COMMANDS["set_driver_version"].request.pack(driver_version=b"x".ljust(64, b"\0"))
    entry = up.entry(data if way == "in" else request, 16 if way == "in" else size, 8)
    box = bytes(memoryview(up.boxes)[place * 1024 : place * 1024 + 576])
    following = int.from_bytes(box[560:568], "big")
    memoryview(up.boxes)[place * 1024 : place * 1024 + 576] = mailbox(box[:DATA], following, number, 8 + token)
    up.post(0, bytes(entry))
    assert up.wait(0)[63] >> 1 == status


def test_an_entry_that_is_not_the_firmwares(up: Bare) -> None:
    up.patience = 0.05
    entry = up.entry(COMMANDS["alloc_pd"].request.pack(), 16, 9, owned=0)
    up.post(3, bytes(entry))
    assert up.function.firmware.dropped["not_owned"] == 1
    assert counts(up)["pds"] == 1


def test_a_queue_out_of_reach(bare: Bare) -> None:
    bare.write(bare_mlx5.CMDQ_ADDR_H, NOWHERE >> 32)
    bare.write(bare_mlx5.CMDQ_ADDR_L, NOWHERE & 0xFFFFFFFF)
    bare.write(bare_mlx5.DOORBELL, 1)
    assert bare.function.firmware.dropped["queue_fault"] == 1


def test_many_commands_at_once(up: Bare) -> None:
    """A doorbell of several bits: each entry is run, the lowest first."""
    for slot in (2, 5, 31):
        entry = up.entry(COMMANDS["alloc_pd"].request.pack(), 16, 9)
        memoryview(up.queue)[slot * SLOT : (slot + 1) * SLOT] = bytes(entry)
    up.write(bare_mlx5.DOORBELL, 1 << 2 | 1 << 5 | 1 << 31)
    numbers = [int.from_bytes(up.wait(slot)[40:44], "big") for slot in (2, 5, 31)]
    assert numbers == sorted(numbers) and len(set(numbers)) == 3
    assert counts(up)["pds"] == 4


def test_signatures_are_wanted_once_they_are_agreed_upon() -> None:
    """cmdif_checksum, which mlx5_core sets to 0: until it is set, mailboxes need none (cmd.c, checksum_disabled)."""
    bare = new().boot()
    bare.exchange(COMMANDS["query_issi"].request.pack(), 112, signature=0x12)
    answer = bare.command("query_hca_cap", op_mod=Capability.GENERAL << 1 | CapabilityMode.CUR)
    caps = CMD_HCA_CAP.update(answer.capability[: CMD_HCA_CAP.size], cmdif_checksum=3).ljust(4096, b"\0")
    bare.command("set_hca_cap", op_mod=Capability.GENERAL << 1, capability=caps)
    with undelivered(Delivery.SIGNAT_ERR):
        bare.exchange(COMMANDS["query_issi"].request.pack(), 112, signature=0x12)
    bare.command("query_issi")
    entry = bare.entry(COMMANDS["query_hca_cap"].request.pack(op_mod=1), 4112, 5)
    memoryview(bare.boxes)[513 * 1024 + 575] ^= 1
    bare.post(0, bytes(entry))
    assert bare.wait(0)[63] >> 1 == Delivery.SIGNAT_ERR


def test_an_event_tells_that_a_command_is_done(up: Bare) -> None:
    """From the next command on: the one that made the event queue was polled for (create_async_eqs)."""
    _, memory = up.new_eq(log_size=4, events=1 << EventType.CMD)
    view = memoryview(memory)
    assert view[63] & 1 == 1  # still as it was
    up.exchange(COMMANDS["nop"].request.pack(), 16, slot=6)
    event = bytes(view[:64])
    assert (event[1], event[63] & 1) == (EventType.CMD, 0)
    assert int.from_bytes(event[32:36], "big") == 1 << 6
    up.exchange(COMMANDS["nop"].request.pack(), 16, slot=1)
    assert int.from_bytes(bytes(view[96:100]), "big") == 1 << 1


def test_lengths_of_messages(up: Bare) -> None:
    with refused(Status.BAD_INP_LEN_ERR):
        up.command_bytes("create_cq", COMMANDS["create_cq"].request.pack()[:64])
    with refused(Status.BAD_OUTP_LEN_ERR):
        up.command("query_adapter", 64)


def test_commands_that_there_are_not(up: Bare) -> None:
    answer = up.exchange(struct.pack(">H14x", 0x7FE), 16)
    assert answer[0] == Status.BAD_OP_ERR
    assert answer[4:8] != bytes(4)
    with refused(Status.BAD_OP_ERR):
        up.command("create_uctx")  # no contexts of programs (DEVX)


# ---- up and down -----------------------------------------------------------------------------------------------------


def test_the_order_of_bring_up(bare: Bare) -> None:
    bare.attach()
    for name in ("query_issi", "query_pages", "query_hca_cap", "init_hca", "alloc_pd", "disable_hca", "teardown_hca"):
        with refused(Status.BAD_SYS_STATE_ERR):
            bare.command(name, op_mod=1)
    bare.command("enable_hca")
    with refused(Status.BAD_SYS_STATE_ERR):
        bare.command("enable_hca")
    for name in ("query_hca_cap", "init_hca", "alloc_pd", "query_adapter"):
        with refused(Status.BAD_SYS_STATE_ERR):
            bare.command(name)
    missing = bare.missing(1)
    bare.give_pages(missing - 1)
    with refused(Status.BAD_SYS_STATE_ERR):
        bare.command("query_hca_cap")
    assert bare.missing(1) == 1
    bare.give_pages(1)
    bare.command("query_hca_cap")
    with refused(Status.BAD_SYS_STATE_ERR):
        bare.command("init_hca")
    bare.give_pages(bare.missing(2))
    bare.command("init_hca")
    with refused(Status.BAD_SYS_STATE_ERR):
        bare.command("init_hca")
    for name in ("set_issi", "set_hca_cap"):
        with refused(Status.BAD_SYS_STATE_ERR):
            bare.command(name)
    with refused(Status.BAD_SYS_STATE_ERR):
        bare.command("disable_hca")
    bare.command("alloc_pd")


def test_down_and_up_again(up: Bare) -> None:
    given = counts(up)["pages"]
    up.down()
    assert len(up.spare) == given
    assert counts(up) == {}
    up.up()
    assert counts(up)["pages"] == given


def test_teardown_ends_every_object(up: Bare) -> None:
    cq = up.new_cq()
    up.new_mkey()
    up.new_gid()
    up.to(up.new_qp(cq), QpState.RTS)
    up.command("teardown_hca")
    assert set(counts(up)) == {"stage", "pages"}


@pytest.mark.parametrize("how", ["function", "interface"])
def test_reset_forgets_everything(up: Bare, how: str) -> None:
    """Function-level reset, and the reset by nic_interface of health.c (mlx5_set_nic_state, SW_RESET)."""
    cq = up.new_cq()
    up.new_mkey()
    up.new_gid()
    up.to(up.new_qp(cq), QpState.RTS)
    up.function.firmware.stop()
    if how == "function":
        up.reset()
    else:
        up.write(bare_mlx5.CMDQ_ADDR_L, up.bus(up.queue) & 0xFFFFF000 | 7 << 8)
        assert up.read(bare_mlx5.CMDQ_ADDR_L) >> 8 & 7 == 1  # MLX5_INITIAL_SEG_NIC_INTERFACE_DISABLED
        up.write(bare_mlx5.DOORBELL, 1)
        assert up.function.firmware.dropped["interface_disabled"] == 1
    assert counts(up) == {}
    up.up()
    up.new_qp(up.new_cq())


def test_one_function_only(bare: Bare) -> None:
    bare.attach()
    with refused(Status.BAD_PARAM_ERR):
        bare.command("enable_hca", function_id=1)
    bare.command("enable_hca")
    with refused(Status.BAD_PARAM_ERR):
        bare.command("query_pages", op_mod=1, function_id=2)


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_pages_that_are_none(bare: Bare) -> None:
    bare.attach()
    bare.command("enable_hca")
    memory = bare.dma(2 * PAGE)
    page = bare.bus(memory)
    for pages in ([0], [page + 8], [NOWHERE], [page, page]):
        with refused(Status.BAD_PARAM_ERR):
            bare.command("manage_pages", op_mod=Pages.GIVE, input_num_entries=len(pages), pas=pages)
    with refused(Status.BAD_PARAM_ERR):
        bare.command("manage_pages", op_mod=Pages.GIVE, input_num_entries=5, pas=[page])
    with refused(Status.BAD_OP_ERR):
        bare.command("manage_pages", op_mod=7)
    assert "pages" not in counts(bare)
    bare.command("manage_pages", op_mod=Pages.GIVE, input_num_entries=1, pas=[page])
    with refused(Status.BAD_PARAM_ERR):
        bare.command("manage_pages", op_mod=Pages.GIVE, input_num_entries=1, pas=[page])


def test_pages_come_back_as_they_were_given(up: Bare) -> None:
    pages = {page for memory in up.given for page in memory.pages()}
    up.command("teardown_hca")
    while up.take_pages(10):
        pass
    assert sorted(up.spare) == sorted(pages)


def test_pages_in_use_stay(up: Bare) -> None:
    before = counts(up)["pages"]
    up.take_pages()
    used = counts(up)["pages"]
    up.new_qp(up.new_cq())
    assert 0 < used <= before
    assert up.take_pages() == 0


def events_of(memory: Any, kind: EventType) -> list[bytes]:
    """The event data of that type in an event queue that has not wrapped."""
    view = bytes(memoryview(memory))
    entries = [view[at : at + 64] for at in range(0, len(view), 64)]
    return [entry[32:60] for entry in entries if not entry[63] & 1 and entry[1] == kind]


def test_more_pages_are_asked_for_and_given_back(up: Bare) -> None:
    """struct mlx5_eqe_page_req: function, and how many; fewer than none are to be taken back."""
    _, memory = up.new_eq(log_size=8, events=1 << EventType.PAGE_REQUEST)
    made = []
    while not events_of(memory, EventType.PAGE_REQUEST):
        made.append(up.command("alloc_pd").pd)
        assert len(made) < 5000
    function, wanted = struct.unpack(">2xHi20x", events_of(memory, EventType.PAGE_REQUEST)[0])
    assert (function, wanted > 0) == (0, True)
    up.give_pages(wanted)
    up.give_pages(200)  # more than was asked for: they are given back
    for pd in made:
        up.command("dealloc_pd", pd=pd)
    _, back = struct.unpack(">2xHi20x", events_of(memory, EventType.PAGE_REQUEST)[-1])
    assert back < 0
    assert up.take_pages(-back) == -back


def test_without_pages_no_objects(up: Bare) -> None:
    """Pages that the driver cannot give: objects past those that there are have no room."""
    up.new_eq(log_size=4, events=1 << EventType.PAGE_REQUEST)
    with refused(Status.LIM_ERR):
        for _ in range(10_000):
            up.command("alloc_pd")
    up.command("manage_pages", op_mod=Pages.CANT_GIVE)
    with refused(Status.LIM_ERR):
        up.command("alloc_pd")
    up.give_pages(1)
    up.command("alloc_pd")


# ---- capabilities ----------------------------------------------------------------------------------------------------


def capability(bare: Bare, kind: Capability, mode: CapabilityMode = CapabilityMode.CUR) -> bytes:
    data: bytes = bare.command("query_hca_cap", op_mod=kind << 1 | mode).capability
    return data


def test_general_capabilities(up: Bare) -> None:
    caps = CMD_HCA_CAP.unpack(capability(up, Capability.GENERAL))
    assert (caps.port_type, caps.num_ports, caps.roce, caps.eth_net_offloads) == (1, 1, 1, 1)
    assert caps.device_frequency_khz == 1_000_000
    assert 1 << caps.uar_sz + 20 == up.function.bar(0)[1]
    assert caps.log_bf_reg_size == 9
    # What is not there.
    for name in ("cqe_compression", "dct", "striding_rq", "tls_tx", "tls_rx", "log_max_uctx", "hairpin"):
        assert getattr(caps, name) == 0, name
    for name in ("eswitch_manager", "tag_matching", "lag_master", "crypto", "uc", "sctr_data_cqe"):
        assert getattr(caps, name) == 0, name
    # What mlx5_ib and mlx5e cannot do without (mlx5_ib_dev_res_init, mlx5e_attach_netdev).
    for name in ("xrc", "nic_flow_table", "vport_group_manager"):
        assert getattr(caps, name) == 1, name
    assert caps.max_wqe_sz_sq // 64 == 16
    assert caps.log_max_rqt_size >= 7


def test_other_capabilities(up: Bare) -> None:
    roce = ROCE_CAP.unpack(capability(up, Capability.ROCE))
    assert (roce.roce_version, roce.l3_type, roce.r_roce_dest_udp_port) == (1 << 2, 1 << 1 | 1 << 2, 4791)
    assert roce.roce_address_table_size == up.function.firmware.limits.gids
    atomic = ATOMIC_CAPS.unpack(capability(up, Capability.ATOMIC))
    assert atomic.atomic_operations & 3 == 3
    assert atomic.atomic_size_qp >> 3 & 1
    offloads = PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS.unpack(capability(up, Capability.ETHERNET_OFFLOADS))
    assert (offloads.csum_cap, offloads.vlan_cap, offloads.lro_cap) == (1, 1, 0)
    tables = FLOW_TABLE_NIC_CAP.unpack(capability(up, Capability.FLOW_TABLE)).flow_table_properties_nic_receive
    for name in ("ft_support", "flow_modify_en", "modify_root", "identified_miss_table_mode", "flow_table_modify"):
        assert getattr(tables, name) == 1, name  # FS_CHAINING_CAPS of fs_core.c
    odp = ODP_CAP.unpack(capability(up, Capability.ODP))
    assert not odp.mem_page_fault
    faults = odp.transport_page_fault_scheme_cap
    for name in ("send", "receive", "write", "read", "atomic", "srq_receive"):
        kinds = {kind: getattr(faults, f"{kind}_odp_caps") for kind in ("rc", "uc", "ud", "xrc", "dc")}
        served = {kind for kind, caps in kinds.items() if getattr(caps, name)}
        assert served == ({"rc", "ud"} if name == "send" else {"rc"}), name
    for kind in (Capability.TLS, Capability.ESWITCH):
        with refused(Status.BAD_PARAM_ERR):
            capability(up, kind)


def test_capabilities_follow_the_limits() -> None:
    limits = Mlx5Limits(qps=256, cqs=128, mkeys=512, gids=16, cqes=1 << 10, qp_wqes=1 << 8, rd_atomic=4)
    caps = CMD_HCA_CAP.unpack(capability(new(limits).up(), Capability.GENERAL))
    assert (caps.log_max_qp, caps.log_max_cq, caps.log_max_mkey, caps.log_max_cq_sz) == (8, 7, 9, 10)
    assert (caps.log_max_qp_sz, caps.log_max_ra_req_qp, caps.log_max_ra_res_qp) == (8, 2, 2)
    with pytest.raises(ValueError, match="limit qps is 100: a power of two"):
        Mlx5Limits(qps=100)


def test_capabilities_can_be_set(bare: Bare) -> None:
    bare.boot()
    kind = Capability.GENERAL
    now = capability(bare, kind)
    changed = CMD_HCA_CAP.update(now[: CMD_HCA_CAP.size], log_max_qp=5, cmdif_checksum=0).ljust(4096, b"\0")
    bare.command("set_hca_cap", op_mod=kind << 1, capability=changed)
    assert CMD_HCA_CAP.unpack(capability(bare, kind)).log_max_qp == 5
    assert CMD_HCA_CAP.unpack(capability(bare, kind, CapabilityMode.MAX)).log_max_qp == 17
    for fields in ({"log_max_qp": 18}, {"cqe_compression": 1}, {"striding_rq": 1}, {"roce": 1, "dct": 1}):
        wrong = CMD_HCA_CAP.update(now[: CMD_HCA_CAP.size], **fields).ljust(4096, b"\0")
        with refused(Status.BAD_PARAM_ERR):
            bare.command("set_hca_cap", op_mod=kind << 1, capability=wrong)
    atomic = ATOMIC_CAPS.pack(atomic_req_8B_endianness_mode=1).ljust(4096, b"\0")
    bare.command("set_hca_cap", op_mod=Capability.ATOMIC << 1, capability=atomic)
    now = capability(bare, Capability.ATOMIC)
    assert ATOMIC_CAPS.unpack(now).atomic_req_8B_endianness_mode == 1
    assert ATOMIC_CAPS.unpack(now).atomic_operations == 3
    # As handle_hca_cap_odp of mlx5_core does: what there is, and more.
    odp = capability(bare, Capability.ODP)
    bare.command("set_hca_cap", op_mod=Capability.ODP << 1, capability=odp)
    assert capability(bare, Capability.ODP) == odp
    for scheme in ({"xrc_odp_caps": {"send": 1}}, {"ud_odp_caps": {"srq_receive": 1}}):
        wrong = ODP_CAP.update(odp[: ODP_CAP.size], transport_page_fault_scheme_cap=scheme).ljust(4096, b"\0")
        with refused(Status.BAD_PARAM_ERR):
            bare.command("set_hca_cap", op_mod=Capability.ODP << 1, capability=wrong)
    with refused(Status.BAD_PARAM_ERR):
        bare.command("set_hca_cap", op_mod=Capability.FLOW_TABLE << 1)
    bare.reset()
    assert CMD_HCA_CAP.unpack(capability(bare.boot(), kind)).log_max_qp == 17


# ---- objects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "end", "field"),
    [
        ("alloc_pd", "dealloc_pd", "pd"),
        ("alloc_uar", "dealloc_uar", "uar"),
        ("alloc_transport_domain", "dealloc_transport_domain", "transport_domain"),
        ("alloc_xrcd", "dealloc_xrcd", "xrcd"),
        ("alloc_q_counter", "dealloc_q_counter", "counter_set_id"),
        ("alloc_flow_counter", "dealloc_flow_counter", "flow_counter_id"),
    ],
)
def test_what_is_only_a_number(up: Bare, make: str, end: str, field: str) -> None:
    before = counts(up)
    numbers = [getattr(up.command(make), field) for _ in range(3)]
    assert len(set(numbers)) == 3
    for number in numbers:
        up.command(end, **{field: number})
        with refused(Status.BAD_RES_ERR):
            up.command(end, **{field: number})
    assert counts(up) == before
    # A number that was freed is not the next to be given out.
    assert getattr(up.command(make), field) not in numbers


def test_uars_are_in_the_bar(up: Bare) -> None:
    most = up.function.bar(0)[1] // PAGE
    uars = [up.command("alloc_uar").uar for _ in range(20)]
    assert all(8 <= uar < most for uar in uars)


def test_limits_are_kept() -> None:
    bare = new(Mlx5Limits(pds=4, cqs=2, qps=2, mkeys=2)).up()
    cqs = [bare.new_cq() for _ in range(2)]
    with refused(Status.LIM_ERR):
        bare.new_cq()
    for _ in range(2):
        bare.new_qp(cqs[0])
    with refused(Status.LIM_ERR):
        bare.new_qp(cqs[1])
    for _ in range(2):
        bare.new_mkey()
    with refused(Status.LIM_ERR):
        bare.new_mkey()
    for _ in range(3):
        bare.command("alloc_pd")
    with refused(Status.LIM_ERR):
        bare.command("alloc_pd")


def test_what_others_stand_on_stays(up: Bare) -> None:
    cq = up.new_cq()
    key, _ = up.new_mkey()
    qp = up.new_qp(cq)
    busy = [
        ("destroy_cq", {"cqn": cq}),
        ("destroy_eq", {"eq_number": up.eq}),
        ("dealloc_pd", {"pd": up.pd}),
        ("dealloc_uar", {"uar": up.uar}),
    ]
    for name, fields in busy:
        with refused(Status.BAD_RES_STATE_ERR):
            up.command(name, **fields)
    up.command("destroy_qp", qpn=qp)
    up.command("destroy_mkey", mkey_index=key)
    for name, fields in busy:
        up.command(name, **fields)


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ({"log_eq_size": 31}, Status.LIM_ERR),
        ({"uar_page": 0x99}, Status.BAD_RES_ERR),
        ({"intr": 200}, Status.BAD_PARAM_ERR),
        ({"log_eq_size": 8}, Status.BAD_PARAM_ERR),  # one page is not enough
    ],
)
def test_event_queues_that_cannot_be(up: Bare, context: dict[str, int], status: Status) -> None:
    fields = {"log_eq_size": 6, "uar_page": up.uar} | context
    with refused(status):
        up.command("create_eq", eq_context_entry=fields, pas=up.dma(PAGE).pages())
    assert "eqs" not in counts(up)


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ({"log_cq_size": 31}, Status.LIM_ERR),
        ({"uar_page": 0x99}, Status.BAD_RES_ERR),
        ({"c_eqn_or_apu_element": 0x77}, Status.BAD_RES_ERR),
        ({"cqe_comp_en": 1}, Status.BAD_PARAM_ERR),
        ({"apu_cq": 1}, Status.BAD_PARAM_ERR),
        ({"cqe_sz": 5}, Status.BAD_PARAM_ERR),
        ({"log_cq_size": 7}, Status.BAD_PARAM_ERR),  # one page is not enough
        ({"page_offset": 8}, Status.BAD_PARAM_ERR),
        ({"dbr_addr": NOWHERE}, Status.BAD_PARAM_ERR),
        ({"dbr_addr": 2}, Status.BAD_PARAM_ERR),
    ],
)
def test_completion_queues_that_cannot_be(up: Bare, context: dict[str, int], status: Status) -> None:
    up.eq, _ = up.new_eq()
    with refused(status):
        fields = {
            "log_cq_size": 6,
            "uar_page": up.uar,
            "c_eqn_or_apu_element": up.eq,
            "dbr_addr": up.bus(up.dma(PAGE)),
        } | context
        up.command("create_cq", cq_context=fields, pas=up.dma(PAGE).pages())
    assert "cqs" not in counts(up)
    up.new_cq()


def test_doorbell_records_are_two_words_of_one_store(up: Bare) -> None:
    """Adapters PRM, CQ context: dbr_addr is a multiple of 8."""
    page = up.bus(up.dma(PAGE))
    for at in (1, 2, 4, 12):
        with refused(Status.BAD_PARAM_ERR):
            up.new_cq(dbr_addr=page + at)
    up.new_cq(dbr_addr=page + 8)


def test_a_page_that_is_none(up: Bare) -> None:
    up.new_cq()
    with refused(Status.BAD_PARAM_ERR):
        fields = {"log_cq_size": 6, "uar_page": up.uar, "c_eqn_or_apu_element": up.eq}
        up.command("create_cq", cq_context=fields, pas=[up.bus(up.dma(PAGE)) + 64])


def test_query_completion_queue(up: Bare) -> None:
    cq = up.new_cq(cq_period=5, cq_max_count=9)
    context = up.command("query_cq", cqn=cq).cq_context
    assert (context.log_cq_size, context.uar_page, context.cq_period, context.cq_max_count) == (6, up.uar, 5, 9)
    assert (context.status, context.producer_counter, context.consumer_counter) == (0, 0, 0)
    # Moderation (mlx5_core_modify_cq_moderation).
    up.command(
        "modify_cq",
        cqn=cq,
        modify_field_select_resize_field_select=b"\0\0\0\3",
        cq_context={"cq_period": 7, "cq_max_count": 3},
    )
    context = up.command("query_cq", cqn=cq).cq_context
    assert (context.cq_period, context.cq_max_count, context.log_cq_size) == (7, 3, 6)
    with refused(Status.BAD_PARAM_ERR):
        up.command("modify_cq", cqn=cq, modify_field_select_resize_field_select=b"\1\0\0\0")
    with refused(Status.BAD_PARAM_ERR):  # MLX5_CQ_MODIFY_OVERRUN: the data path cannot, so the firmware does not say so
        up.command("modify_cq", cqn=cq, modify_field_select_resize_field_select=b"\0\0\0\4", cq_context={"oi": 1})
    assert up.command("query_cq", cqn=cq).cq_context.oi == 0
    with refused(Status.BAD_OP_ERR):
        up.command("modify_cq", cqn=cq, op_mod=9)


def test_resize_completion_queue(up: Bare) -> None:
    cq = up.new_cq()
    memory = up.dma(2 * PAGE)
    select = b"\0\0\0\7"
    up.command(
        "modify_cq",
        op_mod=1,
        cqn=cq,
        modify_field_select_resize_field_select=select,
        cq_context={"log_cq_size": 7},
        pas=memory.pages(),
    )
    assert up.command("query_cq", cqn=cq).cq_context.log_cq_size == 7


# ---- memory keys -----------------------------------------------------------------------------------------------------


def test_memory_key(up: Bare) -> None:
    key, memory = up.new_mkey(3 * PAGE, mkey_7_0=0x5A, rw=1)
    context = up.command("query_mkey", mkey_index=key).memory_key_mkey_entry
    assert (context.mkey_7_0, context.pd, context.len) == (0x5A, up.pd, 3 * PAGE)
    assert (context.lw, context.rw, context.rr, context.a, context.free) == (1, 1, 0, 0, 0)
    assert context.start_addr == up.bus(memory)
    assert counts(up)["core_mr"] == 1
    up.command("destroy_mkey", mkey_index=key)
    assert "core_mr" not in counts(up)
    with refused(Status.BAD_RES_ERR):
        up.command("query_mkey", mkey_index=key)


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ({"pd": 0x999}, Status.BAD_RES_ERR),
        ({"bsf_en": 1}, Status.BAD_PARAM_ERR),
        ({"access_mode_1_0": 0, "access_mode_4_2": 1}, Status.BAD_PARAM_ERR),  # MLX5_MKC_ACCESS_MODE_SW_ICM
        ({"log_page_size": 5}, Status.BAD_PARAM_ERR),
        ({"len": 9 * PAGE}, Status.BAD_PARAM_ERR),  # more than its list
        ({"translations_octword_size": 0}, Status.BAD_PARAM_ERR),  # less than its list
    ],
)
def test_memory_keys_that_cannot_be(up: Bare, context: dict[str, int], status: Status) -> None:
    with refused(status):
        up.new_mkey(**context)
    assert "mkeys" not in counts(up)
    assert "core_mr" not in counts(up)


def test_a_key_of_all_memory(up: Bare) -> None:
    """As get_dma_mr of mlx5_ib makes it, and our driver."""
    context = {"access_mode_1_0": 0, "length64": 1, "lr": 1, "lw": 1, "pd": up.pd, "qpn": 0xFFFFFF}
    up.command("create_mkey", memory_key_mkey_entry=context)
    assert counts(up)["core_mr"] == 1


# ---- page faults -----------------------------------------------------------------------------------------------------


def test_a_page_fault(up: Bare) -> None:
    """Of an entry whose memory is absent: struct mlx5_eqe_page_fault, and PAGE_FAULT_RESUME as mlx5_ib sends it."""
    _, events = up.new_eq(events=1 << EventType.PAGE_FAULT)
    up.new_gid()
    memory, records, cq_memory = up.dma(2 * PAGE), up.dma(PAGE), up.dma(PAGE)
    cq = up.command(
        "create_cq",
        cq_context={
            "log_cq_size": 4,
            "uar_page": up.uar,
            "c_eqn_or_apu_element": up.new_eq()[0],
            "dbr_addr": up.bus(records) + 64,
        },
        pas=cq_memory.pages(),
    ).cqn
    context = {"st": 0, "pm_state": 3, "pd": up.pd, "uar_page": up.uar, "log_rq_size": 4, "log_sq_size": 4}
    context |= {"cqn_snd": cq, "cqn_rcv": cq, "user_index": 0x77, "dbr_addr": up.bus(records)}
    qp = up.command("create_qp", qpc=context, pas=memory.pages()).qpn
    up.to(qp, QpState.RTS)
    # Two pages that say of themselves that they are not there.
    data = up.dma(2 * PAGE)
    context = {"access_mode_1_0": 1, "lr": 1, "lw": 1, "pd": up.pd, "start_addr": 0x10000, "len": 2 * PAGE}
    context |= {"log_page_size": 12, "translations_octword_size": 1, "qpn": 0xFFFFFF}
    key = up.command(
        "create_mkey",
        pg_access=1,
        memory_key_mkey_entry=context,
        translations_octword_actual_size=1,
        klm_pas_mtt=struct.pack(">2Q", *data.pages()),
    ).mkey_index
    control = struct.pack(">IIII", 0x0A, qp << 8 | 2, 8, 0)  # MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE
    sent = 16 << 4  # past the receive ring
    memoryview(memory)[sent : sent + 32] = control + struct.pack(">IIQ", 100, key << 8, 0x10010)
    memoryview(records)[4:8] = (1).to_bytes(4, "big")
    up.registers.write64(up.uar * PAGE + 0x800, int.from_bytes(control[:8], "little"))

    def faults(count: int) -> list[bytes]:
        """The events, of which there are so many, now or soon: the NIC's thread may be at it."""
        assert eventually(lambda: len(events_of(events, EventType.PAGE_FAULT)) >= count)
        found = events_of(events, EventType.PAGE_FAULT)
        assert len(found) == count
        return found

    (event,) = faults(1)
    assert bytes(memoryview(events))[3] == 0  # MLX5_PFAULT_SUBTYPE_WQE
    committed, index, length, token, place = struct.unpack(">I2xH2xHI8xI", event)
    assert (committed, index, length) == (0, 0, 100)
    assert (place >> 24 & 7, place & 0xFFFFFF) == (1, qp)  # MLX5_WQE_PF_TYPE_REQ_SEND_OR_WRITE
    assert up.function.firmware.core.page_faults() == 1

    def resume(error: int = 0, kind: int = 1, queue: int = qp, fault: int = token) -> None:
        info = error << 63 | kind << 56 | queue << 32 | fault
        up.command("page_fault_resume", page_fault_info=info.to_bytes(8, "big"))

    for wrong, status in (
        ({"fault": token + 1}, Status.BAD_RES_ERR),
        ({"kind": 3}, Status.BAD_RES_ERR),
        ({"queue": qp + 1}, Status.BAD_PARAM_ERR),
    ):
        with refused(status):
            resume(**wrong)
    faults(1)
    resume()  # it is not there yet
    second = faults(2)[1]
    with refused(Status.BAD_RES_ERR):
        resume()
    again = struct.unpack(">I2xH2xHI8xI", second)[3]
    resume(error=1, fault=again)
    eventually(lambda: memoryview(cq_memory)[63] >> 4 == 13)
    completion = bytes(memoryview(cq_memory)[:64])
    assert (completion[63] >> 4, completion[55]) == (13, 4)  # MLX5_CQE_REQ_ERR, *_SYNDROME_LOCAL_PROT_ERR
    assert state_of(up, qp) == QpState.ERR
    assert up.function.firmware.core.page_faults() == 0


# ---- queue pairs -----------------------------------------------------------------------------------------------------


def state_of(bare: Bare, qp: int) -> int:
    state: int = bare.command("query_qp", qpn=qp).qpc.state
    return state


def test_queue_pair_from_state_to_state(up: Bare) -> None:
    up.new_gid()
    cq = up.new_cq()
    qp = up.new_qp(cq)
    assert state_of(up, qp) == QpState.RST
    up.to(qp, QpState.RTS)
    context = up.command("query_qp", qpn=qp).qpc
    assert context.state == QpState.RTS
    assert (context.remote_qpn, context.next_rcv_psn, context.next_send_psn) == (0x55, 7, 9)
    assert (context.mtu, context.retry_count, context.rnr_retry, context.min_rnr_nak) == (3, 7, 6, 12)
    assert (context.log_sra_max, context.log_rra_max, context.rwe, context.rre) == (2, 2, 1, 0)
    assert (context.primary_address_path.ack_timeout, context.primary_address_path.hop_limit) == (14, 64)
    assert (context.cqn_snd, context.cqn_rcv, context.pd, context.user_index) == (cq, cq, up.pd, 0x77)
    up.command("2err_qp", qpn=qp)
    assert state_of(up, qp) == QpState.ERR
    up.command("2rst_qp", qpn=qp)
    assert state_of(up, qp) == QpState.RST
    up.command("destroy_qp", qpn=qp)
    with refused(Status.BAD_RES_ERR):
        up.command("query_qp", qpn=qp)


@pytest.mark.parametrize(
    ("state", "wrong"),
    [
        (QpState.RST, ["init2init_qp", "init2rtr_qp", "rtr2rts_qp", "rts2rts_qp", "sqerr2rts_qp", "sqd_rts_qp"]),
        (QpState.INIT, ["rst2init_qp", "rtr2rts_qp", "rts2rts_qp", "sqd_rts_qp"]),
        (QpState.RTR, ["rst2init_qp", "init2init_qp", "init2rtr_qp", "rts2rts_qp"]),
        (QpState.RTS, ["rst2init_qp", "init2init_qp", "init2rtr_qp", "rtr2rts_qp", "sqerr2rts_qp"]),
        (QpState.ERR, ["rst2init_qp", "init2rtr_qp", "rtr2rts_qp", "rts2rts_qp"]),
    ],
)
def test_transitions_from_another_state(up: Bare, state: QpState, wrong: list[str]) -> None:
    up.new_gid()
    qp = up.new_qp(up.new_cq())
    if state is QpState.ERR:
        up.command("2err_qp", qpn=qp)
    elif state is not QpState.RST:
        up.to(qp, state)
    for name in wrong:
        with refused(Status.BAD_QP_STATE_ERR):
            up.command(name, qpn=qp)
    assert state_of(up, qp) == state


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ({"st": 1}, Status.BAD_PARAM_ERR),  # MLX5_QP_ST_UC
        ({"st": 5}, Status.BAD_PARAM_ERR),  # MLX5_QP_ST_DCI
        ({"st": 3}, Status.BAD_PARAM_ERR),  # MLX5_QP_ST_XRC
        ({"pd": 0x999}, Status.BAD_RES_ERR),
        ({"uar_page": 0x99}, Status.BAD_RES_ERR),
        ({"cqn_snd": 0x99}, Status.BAD_RES_ERR),
        ({"cqn_rcv": 0x99}, Status.BAD_RES_ERR),
        ({"rq_type": 1, "srqn_rmpn_xrqn": 5}, Status.BAD_RES_ERR),
        ({"rq_type": 2}, Status.BAD_PARAM_ERR),
        ({"wq_signature": 1}, Status.BAD_PARAM_ERR),
        ({"cs_req": 0x11}, Status.BAD_PARAM_ERR),
        ({"cs_res": 1}, Status.BAD_PARAM_ERR),
        ({"log_sq_size": 8}, Status.BAD_PARAM_ERR),  # more than its pages
        ({"log_rq_stride": 6}, Status.LIM_ERR),
        ({"dbr_addr": NOWHERE}, Status.BAD_PARAM_ERR),
    ],
)
def test_queue_pairs_that_cannot_be(up: Bare, context: dict[str, int], status: Status) -> None:
    cq = up.new_cq()
    with refused(status):
        up.new_qp(cq, **context)
    assert "qps" not in counts(up)
    assert "core_qp" not in counts(up)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"mtu": 0}, Status.BAD_PARAM_ERR),
        ({"mtu": 6}, Status.BAD_PARAM_ERR),
        ({"st": 2}, Status.BAD_PARAM_ERR),
        ({"log_rra_max": 7}, Status.LIM_ERR),
        ({"log_msg_max": 31}, Status.LIM_ERR),  # the capability log_max_msg is 30
        ({"path": {"src_addr_index": 3}}, Status.BAD_PARAM_ERR),
        ({"path": {"rmac_47_32": 0, "rmac_31_0": 0}}, Status.BAD_PARAM_ERR),
        ({"path": {"rmac_47_32": 0x0100}}, Status.BAD_PARAM_ERR),
        ({"path": {"rgid_rip": bytes(16)}}, Status.BAD_PARAM_ERR),
        ({"mask": OptPar.RNR_RETRY}, Status.BAD_PARAM_ERR),
    ],
)
def test_transitions_that_cannot_be(up: Bare, changes: dict[str, Any], status: Status) -> None:
    up.new_gid()
    qp = up.new_qp(up.new_cq())
    up.to(qp, QpState.INIT)
    path = {"rgid_rip": bytes(15) + b"\1", "rmac_47_32": 0x0200, "rmac_31_0": 9} | changes.pop("path", {})
    mask = changes.pop("mask", 0)
    context = {"st": 0, "mtu": 3, "remote_qpn": 5, "primary_address_path": path} | changes
    with refused(status):
        up.command("init2rtr_qp", qpn=qp, opt_param_mask=mask, qpc=context)
    assert state_of(up, qp) == QpState.INIT


def test_a_mask_says_what_else_changes(up: Bare) -> None:
    up.new_gid()
    qp = up.new_qp(up.new_cq())
    up.to(qp, QpState.RTS)
    up.command("rts2rts_qp", qpn=qp, qpc={"st": 0, "rre": 1, "min_rnr_nak": 3})
    context = up.command("query_qp", qpn=qp).qpc
    assert (context.rre, context.min_rnr_nak) == (0, 12)
    mask = OptPar.RRE | OptPar.RNR_TIMEOUT
    up.command("rts2rts_qp", qpn=qp, opt_param_mask=mask, qpc={"st": 0, "rre": 1, "min_rnr_nak": 3})
    context = up.command("query_qp", qpn=qp).qpc
    assert (context.rre, context.rwe, context.min_rnr_nak) == (1, 1, 3)


def test_one_queue_pair_1(up: Bare) -> None:
    cq = up.new_cq()
    qp = up.new_qp(cq, st=8)
    with refused(Status.LIM_ERR):
        up.new_qp(cq, st=8)
    up.command("destroy_qp", qpn=qp)
    up.new_qp(cq, st=8)


def test_a_queue_pair_that_joins_a_domain_later(up: Bare) -> None:
    """mlx5_ib makes the one that changes keys (MLX5_QP_ST_REG_UMR) without a domain, and names that in RST2INIT."""
    path = {"pkey_index": 0, "vhca_port_num": 1}
    qp = up.new_qp(up.new_cq(), st=12, pd=0)
    domain = up.command("alloc_pd").pd
    for wrong in ({"pkey_index": 3}, {"vhca_port_num": 2}):
        with refused(Status.BAD_PARAM_ERR):
            up.command("rst2init_qp", qpn=qp, qpc={"st": 12, "pd": domain, "primary_address_path": path | wrong})
    up.command("dealloc_pd", pd=domain)  # one that was refused did not join
    domain = up.command("alloc_pd").pd
    for _ in range(2):
        up.command("rst2init_qp", qpn=qp, qpc={"st": 12, "pd": domain, "primary_address_path": path})
        assert up.command("query_qp", qpn=qp).qpc.pd == domain
        with refused(Status.BAD_RES_STATE_ERR):
            up.command("dealloc_pd", pd=domain)
        up.command("2rst_qp", qpn=qp)
    up.command("destroy_qp", qpn=qp)
    up.command("dealloc_pd", pd=domain)


def test_multicast_groups(up: Bare) -> None:
    qp = up.new_qp(up.new_cq(), st=2)
    group = bytes.fromhex("ff0e0000000000000000ffffe0000001")
    with refused(Status.BAD_RES_ERR):
        up.command("detach_from_mcg", qpn=qp, multicast_gid=group)
    up.command("attach_to_mcg", qpn=qp, multicast_gid=group)
    with refused(Status.BAD_RES_STATE_ERR):
        up.command("destroy_qp", qpn=qp)
    up.command("detach_from_mcg", qpn=qp, multicast_gid=group)
    up.command("destroy_qp", qpn=qp)
    connected = up.new_qp(up.new_cq())
    with refused(Status.BAD_PARAM_ERR):  # only datagrams are for many
        up.command("attach_to_mcg", qpn=connected, multicast_gid=group)
    assert "groups" not in counts(up)


# ---- shared receive queues -------------------------------------------------------------------------------------------


def rmp(bare: Bare, **wq: int) -> int:
    memory = bare.dma(PAGE)
    fields: dict[str, Any] = {
        "wq_type": 0,
        "pd": bare.pd,
        "log_wq_sz": 4,
        "log_wq_stride": 5,
        "dbr_addr": bare.bus(bare.dma(PAGE)),
        "pas": [{"pa_h": page >> 32, "pa_l": page >> 12 & 0xFFFFF} for page in memory.pages()],
    }
    number: int = bare.command("create_rmp", ctx={"state": 1, "wq": fields | wq}).rmpn
    return number


def test_pool_of_receives(up: Bare) -> None:
    """A shared receive queue as mlx5_ib makes it since the interface step 1 (create_rmp_cmd)."""
    number = rmp(up)
    _, memory = up.new_eq(log_size=4, events=1 << EventType.SRQ_RQ_LIMIT)
    cq = up.new_cq()
    qp = up.new_qp(cq, rq_type=1, srqn_rmpn_xrqn=number)
    with refused(Status.BAD_RES_STATE_ERR):
        up.command("destroy_rmp", rmpn=number)
    up.command("modify_rmp", rmpn=number, rmp_state=1, bitmask={"lwm": 1}, ctx={"state": 1, "wq": {"lwm": 5}})
    context = up.command("query_rmp", rmpn=number).rmp_context
    assert (context.state, context.wq.lwm, context.wq.log_wq_sz, context.wq.pd) == (1, 0, 4, up.pd)
    with refused(Status.BAD_RES_STATE_ERR):  # MLX5_RMPC_STATE_ERR, which the data path has not
        up.command("modify_rmp", rmpn=number, rmp_state=1, ctx={"state": 3})
    assert up.command("query_rmp", rmpn=number).rmp_context.state == 1
    # It has no receives, which are fewer than 5: the event is due at once, and the limit is used up.
    (event,) = events_of(memory, EventType.SRQ_RQ_LIMIT)
    assert int.from_bytes(event[24:28], "big") & 0xFFFFFF == number  # struct mlx5_eqe_qp_srq
    up.command("destroy_qp", qpn=qp)
    up.command("destroy_rmp", rmpn=number)
    assert "core_srq" not in counts(up)
    for wrong, status in (
        ({"wq_type": 3}, Status.BAD_PARAM_ERR),
        ({"pd": 0x999}, Status.BAD_RES_ERR),
        ({"log_wq_sz": 20}, Status.LIM_ERR),
        ({"log_wq_stride": 12}, Status.LIM_ERR),
        ({"log_wq_sz": 8}, Status.BAD_PARAM_ERR),
    ):
        with refused(status):
            rmp(up, **wrong)


def test_shared_receive_queue_of_xrc(up: Bare) -> None:
    """Linux's driver makes one for itself (mlx5_ib_dev_res_srq_init)."""
    xrcd = up.command("alloc_xrcd").xrcd
    record = up.bus(up.dma(PAGE))
    context = {
        "log_xrc_srq_size": 1,
        "log_rq_stride": 1,
        "xrcd": xrcd,
        "cqn": up.new_cq(),
        "pd": up.pd,
        "db_record_addr_h": record >> 32,
        "db_record_addr_l": (record & 0xFFFFFFFF) >> 2,
    }
    number = up.command("create_xrc_srq", xrc_srq_context_entry=context, pas=up.dma(PAGE).pages()).xrc_srqn
    assert up.command("query_xrc_srq", xrc_srqn=number).xrc_srq_context_entry.xrcd == xrcd
    with refused(Status.BAD_RES_STATE_ERR):
        up.command("dealloc_xrcd", xrcd=xrcd)
    up.command("destroy_xrc_srq", xrc_srqn=number)
    up.command("dealloc_xrcd", xrcd=xrcd)


# ---- the port --------------------------------------------------------------------------------------------------------


def test_vport_context(up: Bare) -> None:
    context = up.command("query_nic_vport_context").nic_vport_context
    address = context.permanent_address
    mac = (address.mac_addr_47_32 << 32 | address.mac_addr_31_0).to_bytes(6, "big")
    assert mac == up.function.firmware.mac
    # The EUI-64 of the MAC (RFC 4291, appendix A).
    assert context.node_guid.to_bytes(8, "big") == bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    assert (context.roce_en, context.promisc_all) == (0, 0)
    up.command(
        "modify_nic_vport_context",
        field_select={"roce_en": 1, "promisc": 1},
        nic_vport_context={"roce_en": 1, "promisc_all": 1, "mtu": 99},
    )
    changed = up.command("query_nic_vport_context").nic_vport_context
    assert (changed.roce_en, changed.promisc_all, changed.mtu) == (1, 1, context.mtu)
    with refused(Status.LIM_ERR):
        up.command("modify_nic_vport_context", field_select={"mtu": 1}, nic_vport_context={"mtu": 0xFFFF})
    with refused(Status.BAD_PARAM_ERR):
        up.command("query_nic_vport_context", vport_number=2, other_vport=1)


def test_lists_of_addresses(up: Bare) -> None:
    """mlx5_modify_nic_vport_mac_list"""
    entries = [0x0000_3333_0000_0001, 0x0000_3333_0000_0002]
    up.command(
        "modify_nic_vport_context",
        field_select={"addresses_list": 1},
        nic_vport_context={
            "allowed_list_type": 1,
            "allowed_list_size": 2,
            "current_uc_mac_address": entries,
        },
    )
    size = COMMANDS["query_nic_vport_context"].response.size + 16
    context = up.command("query_nic_vport_context", size, allowed_list_type=1).nic_vport_context
    assert context.allowed_list_size == 2
    assert list(context.current_uc_mac_address) == entries
    assert up.command("query_nic_vport_context", allowed_list_type=0).nic_vport_context.allowed_list_size == 0


def test_roce_addresses(up: Bare) -> None:
    gid = up.new_gid(3)
    address = up.command("query_roce_address", roce_address_index=3).roce_address
    assert (address.source_l3_address, address.roce_version, address.source_mac_47_32) == (gid, 2, 0x0200)
    assert counts(up)["gids"] == 1
    wrong: list[tuple[dict[str, Any], Status]] = [
        ({"roce_version": 0}, Status.BAD_PARAM_ERR),  # RoCE v1
        ({"roce_l3_type": 1}, Status.BAD_PARAM_ERR),  # IPv6, which it is not
        ({"source_mac_47_32": 0, "source_mac_31_0": 0}, Status.BAD_PARAM_ERR),
    ]
    good = {"source_l3_address": gid, "source_mac_47_32": 0x0200, "source_mac_31_0": 1, "roce_version": 2}
    for changes, status in wrong:
        with refused(status):
            up.command("set_roce_address", roce_address_index=4, roce_address=good | changes)
    with refused(Status.BAD_RES_ERR):
        up.command("set_roce_address", roce_address_index=256, roce_address=good)
    # No address, whatever else it says (mlx5_ib's set_roce_addr).
    up.command("set_roce_address", roce_address_index=3, roce_address={"roce_version": 2, "roce_l3_type": 1})
    assert "gids" not in counts(up)


def test_counters(up: Bare) -> None:
    number = up.command("alloc_q_counter").counter_set_id
    answer = up.command("query_q_counter", counter_set_id=number, clear=1)
    assert (answer.out_of_buffer, answer.rx_write_requests) == (0, 0)
    with refused(Status.BAD_RES_ERR):
        up.command("query_q_counter", counter_set_id=number + 1)
    assert up.command("query_vport_counter").received_eth_unicast.packets == 0


# ---- registers -------------------------------------------------------------------------------------------------------


def register(bare: Bare, number: Register, layout: Any, *, write: bool = False, **fields: Any) -> Any:
    data = layout.pack(**fields)
    words = struct.unpack(f">{len(data) // 4}I", data)
    access = RegisterAccess.WRITE if write else RegisterAccess.READ
    answer = bare.command("access_reg", 16 + len(data), op_mod=access, register_id=number, register_data=words)
    return layout.unpack(answer["register_data"])


def test_the_link(up: Bare) -> None:
    _, memory = up.new_eq(log_size=4, events=1 << EventType.PORT_CHANGE)
    assert register(up, Register.PAOS, registers.PAOS_REG, local_port=1).oper_status == 1  # MLX5_PORT_UP
    assert up.command("query_vport_state").state == 1
    speed = register(up, Register.PTYS, registers.PTYS_REG, local_port=1, proto_mask=4)
    assert speed.eth_proto_oper & speed.eth_proto_capability == speed.eth_proto_oper != 0
    register(up, Register.PAOS, registers.PAOS_REG, write=True, local_port=1, admin_status=2, ase=1)
    assert register(up, Register.PAOS, registers.PAOS_REG, local_port=1).oper_status == 2
    assert up.command("query_vport_state").state == 0
    assert register(up, Register.PTYS, registers.PTYS_REG, local_port=1, proto_mask=4).eth_proto_oper == 0
    (event,) = events_of(memory, EventType.PORT_CHANGE)
    assert event[8] >> 4 == 1  # struct mlx5_eqe_port_state
    assert bytes(memoryview(memory))[3] == 1  # MLX5_PORT_CHANGE_SUBTYPE_DOWN
    register(up, Register.PAOS, registers.PAOS_REG, write=True, local_port=1, admin_status=1, ase=1)
    assert len(events_of(memory, EventType.PORT_CHANGE)) == 2


def test_frames(up: Bare) -> None:
    mtu = register(up, Register.PMTU, registers.PMTU_REG, local_port=1)
    assert mtu.max_mtu >= 9000 + 22
    register(up, Register.PMTU, registers.PMTU_REG, write=True, local_port=1, admin_mtu=4000)
    assert register(up, Register.PMTU, registers.PMTU_REG, local_port=1).oper_mtu == 4000
    with refused(Status.BAD_PARAM_ERR):
        register(up, Register.PMTU, registers.PMTU_REG, write=True, local_port=1, admin_mtu=0xFFFF)


def test_registers_that_are_not_there(up: Bare) -> None:
    with refused(Status.BAD_PARAM_ERR):
        register(up, Register.MFRL, registers.MFRL_REG)
    with refused(Status.BAD_PARAM_ERR):
        register(up, Register.PAOS, registers.PAOS_REG, local_port=2)
    with refused(Status.BAD_PARAM_ERR):
        register(up, Register.PCAM, registers.PCAM_REG, write=True)
    with refused(Status.BAD_OP_ERR):
        up.command("access_reg", op_mod=5, register_id=Register.PAOS)


def test_which_registers_there_are(up: Bare) -> None:
    """The mask's bit n is register 0x5000 + n (mlx5_ifc.h, mlx5_ifc_pcam_regs_5000_to_507f_bits)."""
    mask = int.from_bytes(register(up, Register.PCAM, registers.PCAM_REG).port_access_reg_cap_mask, "big")
    assert mask >> (Register.PAOS - 0x5000) & 1
    assert mask >> (Register.PPLM - 0x5000) & 1
    assert not mask >> (Register.PDDR - 0x5000) & 1


# ---- Ethernet --------------------------------------------------------------------------------------------------------


def receive_queue(bare: Bare, cq: int) -> int:
    memory = bare.dma(PAGE)
    wq = {
        "wq_type": 1,
        "pd": bare.pd,
        "log_wq_sz": 4,
        "log_wq_stride": 5,
        "dbr_addr": bare.bus(bare.dma(PAGE)),
        "pas": [{"pa_h": page >> 32, "pa_l": page >> 12 & 0xFFFFF} for page in memory.pages()],
    }
    number: int = bare.command("create_rq", ctx={"cqn": cq, "wq": wq}).rqn
    return number


def test_receiving_ethernet(up: Bare) -> None:
    cq, td = up.new_cq(), up.command("alloc_transport_domain").transport_domain
    rq = receive_queue(up, cq)
    with refused(Status.BAD_RES_STATE_ERR):
        up.command("modify_rq", rqn=rq, rq_state=1, ctx={"state": 0})
    up.command("modify_rq", rqn=rq, rq_state=0, ctx={"state": 1})
    assert up.command("query_rq", rqn=rq).rq_context.state == 1
    table = {"rqt_max_size": 4, "rqt_actual_size": 2, "rq_num": [{"rq_num": rq}, {"rq_num": rq}]}
    rqt = up.command("create_rqt", rqt_context=table).rqtn
    tir = up.command("create_tir", ctx={"disp_type": 1, "indirect_table": rqt, "transport_domain": td}).tirn
    for name, fields in (
        ("destroy_rq", {"rqn": rq}),
        ("destroy_rqt", {"rqtn": rqt}),
        ("dealloc_transport_domain", {"transport_domain": td}),
    ):
        with refused(Status.BAD_RES_STATE_ERR):
            up.command(name, **fields)
    other = receive_queue(up, cq)
    changed = {"rqt_actual_size": 1, "rq_num": [{"rq_num": other}]}
    up.command("modify_rqt", rqtn=rqt, bitmask={"rqn_list": 1}, ctx=changed)
    up.command("destroy_rq", rqn=rq)
    up.command("destroy_tir", tirn=tir)
    up.command("destroy_rqt", rqtn=rqt)
    up.command("destroy_rq", rqn=other)
    up.command("dealloc_transport_domain", transport_domain=td)
    for kind in ("rqs", "rqts", "tirs", "core_rq", "core_tir"):
        assert kind not in counts(up)


def test_flow_steering(up: Bare) -> None:
    td = up.command("alloc_transport_domain").transport_domain
    rq = receive_queue(up, up.new_cq())
    tir = up.command("create_tir", ctx={"disp_type": 0, "inline_rqn": rq, "transport_domain": td}).tirn
    first = up.command("create_flow_table", flow_table_context={"level": 1, "log_size": 4}).table_id
    second = up.command("create_flow_table", flow_table_context={"level": 2, "log_size": 2}).table_id
    up.command("set_flow_table_root", table_id=first)
    match = {"outer_headers": {"dmac_47_16": 0xFFFFFFFF, "dmac_15_0": 0xFFFF}}
    group = {"table_id": first, "start_flow_index": 0, "end_flow_index": 7, "match_criteria_enable": 1}
    number = up.command("create_flow_group", match_criteria=match, **group).group_id
    with refused(Status.BAD_PARAM_ERR):  # entries of another group
        up.command("create_flow_group", **(group | {"start_flow_index": 7, "end_flow_index": 8}))
    with refused(Status.BAD_PARAM_ERR):  # past the table
        up.command("create_flow_group", **(group | {"start_flow_index": 8, "end_flow_index": 16}))
    counter = up.command("alloc_flow_counter").flow_counter_id

    def entry(index: int, op_mod: int = 0, kind: int = 2, target: int = tir, **fields: Any) -> None:
        lists = struct.pack(">II", kind << 24 | target, 0) + struct.pack(">I4x", counter)
        context = {
            "group_id": number,
            "action": 4 | 8,  # MLX5_FLOW_CONTEXT_ACTION_FWD_DEST, _COUNT
            "destination_list_size": 1,
            "flow_counter_list_size": 1,
            "destination": lists,
            "match_value": {"outer_headers": {"dmac_47_16": 0x02000000, "dmac_15_0": index}},
        }
        up.command(
            "set_flow_table_entry", op_mod=op_mod, table_id=first, flow_index=index, flow_context=context | fields
        )

    entry(0)
    entry(1, kind=1, target=second)
    with refused(Status.BAD_RES_STATE_ERR):
        entry(0)
    with refused(Status.BAD_RES_ERR):
        entry(2, op_mod=1)
    with refused(Status.BAD_PARAM_ERR):
        entry(9)
    with refused(Status.BAD_PARAM_ERR):  # not behind it
        entry(2, kind=1, target=first)
    with refused(Status.BAD_RES_ERR):
        entry(2, target=tir + 1)
    with refused(Status.BAD_PARAM_ERR):
        entry(2, action=0x10)
    for name, fields in (
        ("destroy_tir", {"tirn": tir}),
        ("destroy_flow_table", {"table_id": second}),
        ("destroy_flow_group", {"table_id": first, "group_id": number}),
        ("dealloc_flow_counter", {"flow_counter_id": counter}),
    ):
        with refused(Status.BAD_RES_STATE_ERR):
            up.command(name, **fields)
    assert up.command("query_flow_table_entry", table_id=first, flow_index=1).flow_context.group_id == number
    size = COMMANDS["query_flow_counter"].response.size + 16
    assert up.command("query_flow_counter", size, flow_counter_id=counter).flow_statistics[0].packets == 0
    for index in (0, 1):
        up.command("delete_flow_table_entry", table_id=first, flow_index=index)
    up.command("destroy_flow_group", table_id=first, group_id=number)
    for table in (first, second):
        up.command("destroy_flow_table", table_id=table)
    up.command("dealloc_flow_counter", flow_counter_id=counter)
    up.command("destroy_tir", tirn=tir)
    for kind in ("flow_tables", "flow_groups", "flows", "roots", "core_flow_table"):
        assert kind not in counts(up)


# ---- faults ----------------------------------------------------------------------------------------------------------


def test_refuse(up: Bare) -> None:
    up.function.firmware.refuse("alloc_pd", 2, error=Status.NO_RES_ERR)
    up.command("alloc_pd")
    with refused(Status.NO_RES_ERR):
        up.command("alloc_pd")
    up.command("alloc_pd")
    up.function.firmware.refuse("*")
    with refused(Status.INT_ERR):
        up.command("nop")


def test_delay(up: Bare) -> None:
    up.function.firmware.delay("nop", 0.1)
    start = time.monotonic()
    up.command("nop")
    assert time.monotonic() - start >= 0.1


def test_lose(up: Bare) -> None:
    up.function.firmware.lose("alloc_pd")
    up.patience = 0.05
    with pytest.raises(NoAnswer):
        up.command("alloc_pd")
    assert counts(up)["pds"] == 2
    up.command("alloc_pd")


def test_wrong_token_and_bad_signature(up: Bare) -> None:
    up.function.firmware.wrong_token("nop")
    up.post(0, bytes(up.entry(COMMANDS["nop"].request.pack(), 16, 9)))
    entry = up.wait(0)
    assert entry[60] != 9
    assert bare_mlx5.signature(entry) == 0
    up.function.firmware.bad_signature("nop")
    up.post(0, bytes(up.entry(COMMANDS["nop"].request.pack(), 16, 9)))
    entry = up.wait(0)
    assert entry[60] == 9
    assert bare_mlx5.signature(entry) != 0


def test_undelivered(up: Bare) -> None:
    up.function.firmware.undelivered("alloc_pd", Delivery.TOK_ERR)
    with undelivered(Delivery.TOK_ERR):
        up.command("alloc_pd")
    assert counts(up)["pds"] == 1


def test_garbage(up: Bare) -> None:
    up.function.firmware.garbage("query_issi", data=b"\xaa" * 112)
    assert up.exchange(COMMANDS["query_issi"].request.pack(), 112) == b"\xaa" * 112
    up.function.firmware.garbage("query_issi")
    up.exchange(COMMANDS["query_issi"].request.pack(), 112)
    with pytest.raises(TypeError, match="data must be bytes"):
        up.function.firmware.garbage("nop", data="x")


@pytest.mark.parametrize(("where", "made", "answered"), [("at", 0, False), ("within", 1, False), ("after", 1, True)])
def test_stop_and_resume(up: Bare, where: str, made: int, answered: bool) -> None:
    firmware = up.function.firmware
    firmware.stop(**{where: "alloc_pd"})
    up.patience = 0.05
    up.post(0, bytes(up.entry(COMMANDS["alloc_pd"].request.pack(), 16, 9)))
    assert (up.done(0) is not None) == answered
    assert counts(up)["pds"] == 1 + made
    assert firmware.stopped
    up.post(1, bytes(up.entry(COMMANDS["alloc_pd"].request.pack(), 16, 9)))
    assert up.done(1) is None
    firmware.resume()
    assert up.wait(1)[63] == 0
    assert (up.done(0) is not None) == (where != "within")
    assert counts(up)["pds"] == 3


def test_internal_error(up: Bare) -> None:
    """What mlx5_health_check_fatal_sensors finds: a syndrome, and a request for a reset."""
    _, memory = up.new_eq(log_size=4, events=1 << EventType.INTERNAL_ERROR)
    up.function.firmware.internal_error()
    health = up.function.bar_bytes(0, bare_mlx5.HEALTH, 0x40)
    assert health[0x38] >> 7 == 1  # rfr_severity, MLX5_RFR_BIT_OFFSET
    assert health[0x3D] == 1  # MLX5_INITIAL_SEG_HEALTH_SYNDROME_FW_INTERNAL_ERR
    assert len(events_of(memory, EventType.INTERNAL_ERROR)) == 1
    up.patience = 0.05
    with pytest.raises(NoAnswer):
        up.command("nop")
    up.write(bare_mlx5.CMDQ_ADDR_L, 7 << 8)
    assert up.function.bar_bytes(0, bare_mlx5.HEALTH + 0x3D, 1) == b"\0"
    up.patience = SECONDS
    up.up()


# ---- anything --------------------------------------------------------------------------------------------------------

FUZZ = settings(
    max_examples=60,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(st.data())
def test_any_command_does_no_harm(up: Bare, data: st.DataObject) -> None:
    """Whatever a command says, it is answered or not delivered, and the next one works."""
    name = data.draw(st.sampled_from(sorted(COMMANDS)))
    if name in ("teardown_hca", "disable_hca"):
        return
    command = COMMANDS[name]
    request = bytearray(command.request.pack())
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(2, len(request) - 1))
        request[at] = data.draw(st.integers(0, 255))
    request += data.draw(st.binary(max_size=64))
    up.exchange(bytes(request), command.response.size + data.draw(st.integers(0, 64)))
    up.command("nop")
    assert up.function.firmware.bugs == []


@FUZZ
@given(st.binary(min_size=SLOT, max_size=SLOT))
def test_any_entry_does_no_harm(up: Bare, entry: bytes) -> None:
    up.post(4, entry[:63] + bytes([entry[63] | 1]))
    up.command("nop")
    assert up.function.firmware.bugs == []
