"""From a PCI function that was just taken to a NIC whose RoCE part works, in the order that the firmware needs.

Each step's opposite goes into a ledger, so that a refused step and `close` give back the same way: in reverse.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

from userdma import _core
from userdma.bnxt import hwrm, rcfw
from userdma.bnxt.hwrm_channel import HwrmChannel
from userdma.bnxt.page_table import PAGE, PAGE_SHIFT, PageTable, build
from userdma.bnxt.rcfw_channel import ENTRIES as CMDQ_ENTRIES
from userdma.bnxt.rcfw_channel import RcfwChannel
from userdma.errors import DmaMemoryError, Error, FirmwareRefusedError
from userdma.firmware import link
from userdma.firmware.channel import Firmware
from userdma.firmware.device import check_rings
from userdma.firmware.ledger import Ledger
from userdma.firmware.memory import read, write
from userdma.firmware.take import leave, take
from userdma.messages import Fields

_NQ_ENTRIES = 16  # of a ring that nobody reads
_CREQ_ENTRIES = PAGE // 16
_L2_ENTRIES = 16
_L2_BUFFER = 640  # bytes of a receive buffer, of which none is posted
_JUMBO = 9000  # Ethernet MTU that the VNIC takes, where the port takes it
_MAX_ETHERNET_MTU = 9500  # bnxt.h BNXT_MAX_MTU: of a port that does not say
# RoCEv2 over IPv6: IP 40, UDP 8, BTH 12, RETH 16, ICRC 4, and what extended headers may add.
_ROCE_HEADERS = 100

# (queue pairs, keys) that the firmware gets memory for: as much as the machine has room for.
_BACKING = ((16384, 131072), (2048, 16384), (64, 1024))
_TYPE = hwrm.BackingStoreType
# The order matters: TIM carries the flag that ends the configuration.
_TYPES = (
    _TYPE.QP,
    _TYPE.SRQ,
    _TYPE.CQ,
    _TYPE.VNIC,
    _TYPE.STAT,
    _TYPE.SP_TQM_RING,
    _TYPE.FP_TQM_RING,
    _TYPE.MRAV,
    _TYPE.TIM,
)
_NO_OFFSET = 0xFF  # bnxt.h BNXT_CTX_INIT_INVALID_OFFSET: every byte is initialized


@dataclass
class Chip:
    """What the bring-up found and made."""

    function: _core.Function
    firmware: Firmware
    domain: _core.Domain
    ledger: Ledger
    backing: Ledger  # the memory of the backing store
    hwrm: HwrmChannel = field(init=False)
    rcfw: RcfwChannel = field(init=False)
    events: _core.BnxtEvents = field(init=False)
    registers: _core.Bar = field(init=False)
    bar: _core.Bar = field(init=False)  # of the doorbells
    doorbell: int = 0  # their offset
    version: str = ""
    mac: bytes = b""
    gid: bytes = b""
    gid_index: int = 0
    mtu: int = 0  # the largest RoCE MTU
    nq: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    statistics: _core.Memory = field(init=False)
    max_reads: int = 1  # RDMA reads and atomics of a queue pair under way, in each direction


def bring_up(function: _core.Function, domain: _core.Domain) -> Chip:
    """Raises what refused, with everything given back and the function reset."""
    chip = Chip(function, Firmware(function), domain, Ledger(function), Ledger(function))
    try:
        _take(chip)
        _identify(chip)
        _register(chip)
        _backing_store(chip)
        _command_queue(chip)
        _notifications(chip)
        _ethernet(chip)
        _address(chip)
    except BaseException:
        undo(chip)
        raise
    return chip


def undo(chip: Chip) -> None:
    """Give back as far as the firmware lets; then reset the function, so that what is left can be freed."""
    leave(chip.firmware, chip.ledger, getattr(chip, "events", None))


def _take(chip: Chip) -> None:
    """Reset; let it master the bus; in order. Map the registers."""
    function = chip.function
    take(function, chip.ledger)
    chip.registers = function.map(0)
    chip.bar = function.map(2)
    chip.hwrm = HwrmChannel(chip.firmware, chip.registers)
    memory = chip.hwrm.memory
    chip.ledger.afterwards(lambda: function.free_dma(memory))


def _identify(chip: Chip) -> None:
    """Which firmware, which interface."""
    for wait in (0.1, 0.4, 0.5, 1.0, 2.0, 4.0, 0):
        answer = chip.ledger.call(chip.hwrm, "hwrm_ver_get", hwrm_intf_maj=1, hwrm_intf_min=10, hwrm_intf_upd=3)
        if not answer.flags & hwrm.VerGetFlags.DEV_NOT_RDY:
            break
        time.sleep(wait)
    else:
        raise Error(f"{chip.function.name}: its firmware is still starting; try again later")
    interface = (answer.hwrm_intf_maj_8b, answer.hwrm_intf_min_8b, answer.hwrm_intf_upd_8b)
    version = (answer.hwrm_fw_major, answer.hwrm_fw_minor, answer.hwrm_fw_build, answer.hwrm_fw_patch)
    if not any(version):
        version = (
            answer.hwrm_fw_maj_8b,
            answer.hwrm_fw_min_8b,
            answer.hwrm_fw_bld_8b,
            answer.hwrm_fw_rsvd_8b,
        )
    chip.version = ".".join(map(str, version))
    # Interface 1.10.0 has the backing store and queries that the chips of this driver need; 2 would be another one.
    if interface[0] != 1 or interface < (1, 10, 0):
        raise Error(
            f"{chip.function.name}: its firmware {chip.version} speaks HWRM interface {'.'.join(map(str, interface))}; "
            f"this driver needs 1.10.0 or a later 1.x: update the NIC's firmware"
        )
    if answer.dev_caps_cfg & hwrm.VerGetDevCaps.SHORT_CMD_REQUIRED:
        raise Error(f"{chip.function.name}: its firmware {chip.version} takes only short commands, which are not built")


def _register(chip: Chip) -> None:
    """Start from nothing, and let the firmware know of a driver."""
    ledger, channel, name = chip.ledger, chip.hwrm, chip.function.name
    ledger.call(channel, "hwrm_func_reset")
    ledger.afterwards(chip.backing.give_back)
    ledger.undo(channel, "hwrm_func_reset")  # takes the backing store from the firmware: unregistering does not
    caps = ledger.call(channel, "hwrm_func_qcaps", fid=hwrm.TARGET_SELF)
    if not caps.flags & hwrm.FuncQcapsFlags.ROCE_V2_SUPPORTED:
        raise Error(f"{name}: its firmware has RoCE turned off; turn on support_rdma in its NVM (niccli)")
    if not caps.flags_ext & hwrm.FuncQcapsFlagsExt.BS_V2_SUPPORTED:
        raise Error(f"{name}: its firmware has no backing store of version 2: it is no Thor2, or its firmware is old")
    chip.mac = caps.mac_address
    if not any(chip.mac) or chip.mac[0] & 1:
        raise Error(f"{name}: its firmware gives it the MAC address {chip.mac.hex(':')}, which is none")
    ledger.call(
        channel,
        "hwrm_func_drv_rgtr",
        lambda _: ledger.undo(channel, "hwrm_func_drv_unrgtr"),
        enables=hwrm.DrvRgtrEnables.OS_TYPE | hwrm.DrvRgtrEnables.VER,
        flags=hwrm.DrvRgtrFlags.N16BIT_VER_MODE,
        os_type=hwrm.OsType.OTHER,
    )
    config = ledger.call(channel, "hwrm_func_qcfg", fid=hwrm.TARGET_SELF)
    chip.doorbell = config.legacy_l2_db_size_kb * 1024
    if chip.doorbell + 8 > chip.bar.size:
        raise Error(f"{name}: its doorbells would be at {chip.doorbell:#x}, past its BAR of {chip.bar.size} bytes")
    ethernet = config.max_mtu_configured or _MAX_ETHERNET_MTU
    fits = [mtu for mtu in (256, 512, 1024, 2048, 4096) if mtu + _ROCE_HEADERS <= ethernet]
    if not fits:
        raise Error(f"{name}: its port takes an MTU of {ethernet} bytes, less than RoCE needs")
    chip.mtu = fits[-1]
    chip.limits["ethernet_mtu"] = ethernet
    with suppress(FirmwareRefusedError):  # a function that does not own the port
        _link(chip, caps.port_id)


def _link(chip: Chip, port: int) -> None:
    """The port's link, which Linux's driver takes down with its network interface (bnxt.c bnxt_hwrm_shutdown_link): as
    it was set to come up, it is turned on again (bnxt_hwrm_set_link_common)."""

    def asked() -> Fields:
        return chip.ledger.call(chip.hwrm, "hwrm_port_phy_qcfg", port_id=port)

    now = asked()
    if now.link == hwrm.PhyLink.LINK:
        return
    flags, enables = hwrm.PhyCfgFlags, hwrm.PhyCfgEnables
    speeds2 = now.option_flags & hwrm.PhyOptions.SPEEDS2_SUPPORTED
    wanted: dict[str, int] = {"port_id": port, "flags": flags.RESET_PHY, "enables": 0}

    def want(enable: int, name: str, value: int) -> None:
        wanted["enables"] |= enable
        wanted[name] = value

    if now.auto_mode != hwrm.PhyAutoMode.NONE:
        wanted["flags"] |= flags.RESTART_AUTONEG
        want(enables.AUTO_MODE, "auto_mode", hwrm.PhyAutoMode.SPEED_MASK)
        if speeds2:
            want(enables.AUTO_LINK_SPEEDS2_MASK, "auto_link_speeds2_mask", now.auto_link_speeds2)
        else:
            if now.auto_link_speed_mask:
                want(enables.AUTO_LINK_SPEED_MASK, "auto_link_speed_mask", now.auto_link_speed_mask)
            if now.auto_pam4_link_speed_mask:
                want(enables.AUTO_PAM4_LINK_SPEED_MASK, "auto_link_pam4_speed_mask", now.auto_pam4_link_speed_mask)
    else:
        wanted["flags"] |= flags.FORCE
        if speeds2:
            want(enables.FORCE_LINK_SPEEDS2, "force_link_speeds2", now.force_link_speeds2)
        elif now.force_pam4_link_speed:
            want(enables.FORCE_PAM4_LINK_SPEED, "force_pam4_link_speed", now.force_pam4_link_speed)
        else:
            wanted["force_link_speed"] = now.force_link_speed
    chip.ledger.call(chip.hwrm, "hwrm_port_phy_cfg", **wanted)
    link.wait(lambda: asked().link == hwrm.PhyLink.LINK)


@dataclass
class _Kind:
    """A kind of context: what the firmware says of it, and how much memory it gets."""

    type: int
    entry: int
    splits: tuple[int, ...]
    instances: list[int]
    initial: int | None
    offset: int
    least: int
    most: int
    multiple: int
    entries: int = 0


def _backing_store(chip: Chip) -> None:
    """Give the firmware the memory where it keeps its queue pairs, completion queues, keys and so on."""
    kinds = [_ask(chip, kind) for kind in _TYPES]
    for pairs, keys in _BACKING:
        _size(kinds, pairs, keys)
        try:
            tables = [(kind, [_context(chip, kind) for _ in kind.instances]) for kind in kinds]
            break
        except DmaMemoryError:
            chip.backing.give_back()
            if (pairs, keys) == _BACKING[-1]:
                raise
    for kind, addresses in tables:
        for instance, table in zip(kind.instances, addresses, strict=True):
            last = kind is kinds[-1] and instance == kind.instances[-1]
            chip.ledger.call(
                chip.hwrm,
                "hwrm_func_backing_store_cfg_v2",
                type=kind.type,
                instance=instance,
                flags=hwrm.BackingStoreCfgFlags.BS_CFG_ALL_DONE if last else 0,
                page_dir=table.address,
                num_entries=kind.entries,
                entry_size=kind.entry,
                page_size=hwrm.BackingStorePageSize.PG_4K,
                pbl_level=table.level,
                subtype_valid_cnt=len(kind.splits),
                **{f"split_entry_{i}": split for i, split in enumerate(kind.splits)},
            )


def _ask(chip: Chip, type: int) -> _Kind:
    answer = chip.ledger.call(chip.hwrm, "hwrm_func_backing_store_qcaps_v2", type=type)
    count = min(answer.subtype_valid_cnt, 4)
    initial = answer.flags & hwrm.BackingStoreQcapsFlags.ENABLE_CTX_KIND_INIT
    return _Kind(
        type,
        answer.entry_size,
        tuple(getattr(answer, f"split_entry_{i}") for i in range(count)),
        [i for i in range(32) if answer.instance_bit_map >> i & 1] or [0],  # no bit: one instance
        answer.ctx_init_value if initial else None,
        answer.ctx_init_offset,
        answer.min_num_entries,
        answer.max_num_entries,
        answer.entry_multiple or 1,
    )


def _size(kinds: list[_Kind], pairs: int, keys: int) -> None:
    """How many entries each kind gets, beside those that the firmware keeps for itself (the splits)."""
    more = {
        _TYPE.QP: pairs,
        _TYPE.CQ: 2 * pairs,
        _TYPE.STAT: 2,
        _TYPE.SP_TQM_RING: 2 * pairs,
        _TYPE.FP_TQM_RING: 2 * pairs,
        _TYPE.MRAV: keys,
    }
    for kind in kinds:
        if kind.type == _TYPE.TIM:
            entries = kinds[0].entries  # a timer for each queue pair
        else:
            entries = max(kind.least, sum(kind.splits) + more.get(_TYPE(kind.type), 0))
        entries += -entries % kind.multiple
        kind.entries = min(entries, kind.most) if kind.most else entries


def _context(chip: Chip, kind: _Kind) -> PageTable:
    """Memory for one instance of a kind. Marked as free where the firmware asks for it."""
    room = chip.backing
    size = max(kind.entries * kind.entry, 1)
    memory = room.alloc(-(-size // PAGE) * PAGE)
    if kind.initial:
        content = bytearray(memory.size)
        if kind.offset == _NO_OFFSET:
            content[:] = bytes([kind.initial]) * len(content)
        else:
            at = kind.offset * 4
            content[at :: kind.entry] = bytes([kind.initial]) * len(range(at, len(content), kind.entry))
        write(memory, 0, bytes(content), chip.firmware.generation)
    return build(room, memory.pages(PAGE_SHIFT))


def _ring(chip: Chip, kind: hwrm.RingType, entries: int, size: int, **fields: int) -> tuple[int, _core.Memory]:
    """A ring of the Ethernet part: its number, and its memory."""
    ledger = chip.ledger
    memory = ledger.alloc(entries * size)
    table = build(ledger, memory.pages(PAGE_SHIFT), queue=True)
    answer = ledger.call(
        chip.hwrm,
        "hwrm_ring_alloc",
        lambda made: ledger.undo(chip.hwrm, "hwrm_ring_free", ring_type=kind, ring_id=made.ring_id),
        ring_type=kind,
        page_tbl_addr=table.address,
        page_tbl_depth=table.level,
        page_size=PAGE_SHIFT,
        length=entries,
        **fields,
    )
    return answer.ring_id, memory


def _command_queue(chip: Chip) -> None:
    """The RoCE command channel: its event ring, its queue, the counters; then the RoCE firmware starts."""
    ledger = chip.ledger
    creq, memory = _ring(chip, hwrm.RingType.NQ, _CREQ_ENTRIES, 16, int_mode=hwrm.RingIntMode.MSIX)
    chip.events = _core.BnxtEvents(chip.domain, memory, _CREQ_ENTRIES, ring=creq, bar=chip.bar, doorbell=chip.doorbell)
    ledger.afterwards(chip.events.close)
    chip.events.arm()

    chip.statistics = ledger.alloc(PAGE)
    answer = ledger.call(
        chip.hwrm,
        "hwrm_stat_ctx_alloc",
        lambda made: ledger.undo(chip.hwrm, "hwrm_stat_ctx_free", stat_ctx_id=made.stat_ctx_id),
        stats_dma_addr=chip.statistics.pages(PAGE_SHIFT)[0],
        stats_dma_length=hwrm.STATISTICS_SIZE,
        update_period_ms=1000,
        stat_ctx_flags=hwrm.StatCtxFlags.ROCE,
    )

    queue = ledger.alloc(CMDQ_ENTRIES * rcfw.SLOT)
    chip.rcfw = RcfwChannel(chip.firmware, chip.registers, queue, chip.events)
    chip.rcfw.start(queue.pages(PAGE_SHIFT)[0], creq)

    _query(chip)
    flags = rcfw.InitializeFwFlags(0)
    if chip.limits.pop("_retransmission"):
        flags |= rcfw.InitializeFwFlags.HW_REQUESTER_RETX_SUPPORTED
    ledger.call(
        chip.rcfw,
        "initialize_fw",
        lambda _: ledger.undo(chip.rcfw, "deinitialize_fw"),
        stat_ctx_id=answer.stat_ctx_id,
        flags=flags,
    )


def _query(chip: Chip) -> None:
    """What the RoCE part has, and whether it is the kind that this driver writes entries for."""
    command = rcfw.REQUESTS["query_func"]
    layout = command.buffer
    assert layout is not None
    room = Ledger(chip.function)
    memory = room.alloc(PAGE)
    try:
        room.call(
            chip.rcfw,
            "query_func",
            resp_addr=memory.pages(PAGE_SHIFT)[0],
            resp_size=rcfw.slots(layout.size),
        )
        answer = layout.unpack(read(memory, 0, layout.size))
    except BaseException:
        chip.ledger.afterwards(room.after_reset)
        chip.ledger.unsure = chip.ledger.unsure or room.unsure
        raise
    room.give_back()
    if answer.req_retransmission_support != rcfw.Retransmission.HOST_MSN_TABLE:
        raise Error(
            f"{chip.function.name}: its RoCE part keeps no MSN table in the driver's memory "
            f"(mode {answer.req_retransmission_support}): it is no Thor2"
        )
    both = rcfw.DevCapFlags.HW_REQUESTER_RETX_ENABLED | rcfw.DevCapFlags.HW_RESPONDER_RETX_ENABLED
    # Linux's bnxt_re: 126 at most (BNXT_QPLIB_MAX_OUT_RD_ATOM). 16 fill any link, and their queues fit in a page.
    chip.max_reads = max(1, min(16, answer.max_qp_rd_atom, answer.max_qp_init_rd_atom))
    chip.limits.update(
        queue_pairs=answer.max_qp,
        completion_queues=answer.max_cq,
        keys=answer.max_mr,
        region_bytes=answer.max_mr_size,
        message_bytes=1 << 31,  # InfiniBand volume 1, 9.4: no command says less
        ring_entries=answer.max_qp_wr,
        completion_entries=answer.max_cqe,
        gids=answer.max_gid,
        _retransmission=int(answer.dev_cap_flags & both == both),
    )
    check_rings(chip.function.name, chip.limits)


def _notifications(chip: Chip) -> None:
    """The notification ring that completion queues name. Nothing asks it to notify, so nobody reads it."""
    chip.nq, _ = _ring(chip, hwrm.RingType.NQ, _NQ_ENTRIES, 16, int_mode=hwrm.RingIntMode.MSIX, logical_id=1)


def _ethernet(chip: Chip) -> None:
    """The Ethernet receive path. RoCE packets come in by it, though it has no buffer."""
    ledger, channel = chip.ledger, chip.hwrm
    valid = hwrm.RingAllocEnables.NQ_RING_ID_VALID
    completions, _ = _ring(chip, hwrm.RingType.L2_CMPL, _L2_ENTRIES, 16, enables=valid, nq_ring_id=chip.nq)
    ring, _ = _ring(
        chip,
        hwrm.RingType.RX,
        _L2_ENTRIES,
        16,
        enables=valid | hwrm.RingAllocEnables.RX_BUF_SIZE_VALID,
        nq_ring_id=chip.nq,
        cmpl_ring_id=completions,
        rx_buf_size=_L2_BUFFER,
    )
    vnic = ledger.call(
        channel, "hwrm_vnic_alloc", lambda made: ledger.undo(channel, "hwrm_vnic_free", vnic_id=made.vnic_id)
    ).vnic_id
    enables = hwrm.VnicCfgEnables
    ledger.call(
        channel,
        "hwrm_vnic_cfg",
        enables=enables.MRU | enables.DEFAULT_RX_RING_ID | enables.DEFAULT_CMPL_RING_ID,
        vnic_id=vnic,
        mru=min(_JUMBO, chip.limits["ethernet_mtu"]) + 18,  # Ethernet header and VLAN tag
        default_rx_ring_id=ring,
        default_cmpl_ring_id=completions,
    )
    ledger.call(
        channel,
        "hwrm_cfa_l2_filter_alloc",
        lambda made: ledger.undo(channel, "hwrm_cfa_l2_filter_free", l2_filter_id=made.l2_filter_id),
        flags=hwrm.L2FilterFlags.PATH_RX,
        enables=hwrm.L2FilterEnables.L2_ADDR | hwrm.L2FilterEnables.L2_ADDR_MASK | hwrm.L2FilterEnables.DST_ID,
        l2_addr=chip.mac,
        l2_addr_mask=b"\xff" * 6,
        dst_id=vnic,
    )


def _address(chip: Chip) -> None:
    """A GID: IPv4-mapped, of network 10, with the MAC address's last three bytes."""
    chip.gid = bytes(10) + b"\xff\xff" + bytes([10]) + chip.mac[3:]
    ledger = chip.ledger
    answer = ledger.call(
        chip.rcfw,
        "add_gid",
        lambda made: ledger.undo(chip.rcfw, "delete_gid", gid_index=made.xid),
        gid=rcfw.gid_bytes(chip.gid),
        src_mac=rcfw.mac_bytes(chip.mac),
    )
    chip.gid_index = answer.xid
