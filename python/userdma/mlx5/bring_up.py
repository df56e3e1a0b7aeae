"""From a PCI function that was just taken to a ConnectX whose RoCE part works, in the order that its firmware needs:
that of mlx5_core's main.c (mlx5_function_setup, mlx5_load), and of rdma-core's mlx5_vfio.c.

Each step's opposite goes into a ledger, so that a refused step and `close` give back the same way: in reverse.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from userdma import _core
from userdma.errors import DmaMemoryError, Error, FirmwareError, FirmwareRefusedError, MachineError
from userdma.firmware import link
from userdma.firmware.channel import Firmware
from userdma.firmware.device import check_rings
from userdma.firmware.ledger import Ledger
from userdma.firmware.memory import write
from userdma.firmware.take import leave, take
from userdma.messages import Fields
from userdma.mlx5 import capabilities, registers
from userdma.mlx5.command_queue import PAGE, CommandQueue, GivenPages, Registers, check_interface
from userdma.mlx5.constants import Capability, CapabilityMode, EventType, GidType, Register, RegisterAccess
from userdma.mlx5.layouts import Layout

_STARTS = 120.0  # seconds that a firmware may take to start (main.c FW_PRE_INIT_TIMEOUT_MILI)
_BOOT, _INIT = 1, 2  # QUERY_PAGES' op_mod (mlx5_ifc.h MLX5_QUERY_PAGES_IN_OP_MOD_*)
# Entries of the event queue, as mlx5_core's (eq.h MLX5_NUM_ASYNC_EQE): one that runs full while nobody looks ends the
# function.
_EVENTS = 4096
_EVENT = 64  # bytes of one
_SIGNED = 3  # cmdif_checksum: requests and answers
_ROCE_HEADERS = 100  # Ethernet's payload beside RoCE's, as bytes: see the largest RoCE MTU below
_JUMBO = 9000
_UP = 1  # admin_status of PAOS (port.h MLX5_PORT_UP); state of QUERY_VPORT_STATE (vport.h VPORT_STATE_UP)
_KINDS = (
    EventType.WQ_CATAS_ERROR,
    EventType.WQ_INVAL_REQ_ERROR,
    EventType.WQ_ACCESS_ERROR,
    EventType.CQ_ERROR,
    EventType.PAGE_REQUEST,
)


@dataclass
class Chip:
    """What the bring-up found and made."""

    function: _core.Function
    firmware: Firmware
    domain: _core.Domain
    ledger: Ledger
    registers: Registers = field(init=False)
    queue: CommandQueue = field(init=False)
    pages: GivenPages = field(init=False)
    events: _core.Mlx5Events = field(init=False)
    general: Fields = field(init=False)  # capabilities
    version: str = ""
    mac: bytes = b""
    gid: bytes = b""
    gid_index: int = 0
    mtu: int = 0  # the largest RoCE MTU
    uar: int = 0
    pd: int = 0
    eqn: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    source_port: bool = False  # the driver chooses the UDP source port of a queue pair
    _untold: deque[bytes] = field(default_factory=deque)  # events that were taken: an exception loses none

    def attend(self) -> None:
        """Take the events that are no queue pair's: pages that the firmware asks for, or gives back."""
        self._untold.extend(self.events.events())
        while self._untold:
            self._event(self._untold[0])
            self._untold.popleft()

    def _event(self, raw: bytes) -> None:
        if raw[1] != EventType.PAGE_REQUEST:
            return
        # device.h mlx5_eqe_page_req, at byte 0x20 of the entry: function, then a signed number of pages.
        wanted = int.from_bytes(raw[0x24:0x28], "big", signed=True)
        try:
            if wanted > 0:
                self.pages.give(wanted)
            elif wanted < 0:
                self.pages.take(-wanted)
        except (FirmwareError, DmaMemoryError):
            pass  # what it was for fails, and says so


def bring_up(function: _core.Function, domain: _core.Domain) -> Chip:
    """Raises what refused, with everything given back and the function reset."""
    chip = Chip(function, Firmware(function), domain, Ledger(function))
    try:
        _take(chip)
        _enable(chip)
        _capabilities(chip)
        _start(chip)
        _events(chip)
        _port(chip)
        _address(chip)
    except BaseException:
        undo(chip)
        raise
    return chip


def undo(chip: Chip) -> None:
    """Give back as far as the firmware lets; then reset the function, so that what is left can be freed."""
    leave(chip.firmware, chip.ledger, getattr(chip, "events", None))


def _call(chip: Chip, name: str, then: Callable[[Fields], object] | None = None, /, **fields: Any) -> Fields:
    return chip.ledger.call(chip.queue, name, then, **fields)


def _take(chip: Chip) -> None:
    """Reset; let it master the bus; the registers and the command queue."""
    function, ledger = chip.function, chip.ledger
    take(function, ledger)
    chip.registers = Registers(function)
    _started(chip)
    check_interface(chip.registers, function.name)
    chip.version = chip.registers.version
    chip.queue = CommandQueue(chip.firmware, chip.registers)
    ledger.afterwards(chip.queue.close)
    chip.queue.start()
    _started(chip)
    chip.pages = GivenPages(chip.queue)
    _core.mlx5_watch(chip.domain, chip.registers.bar)


def _started(chip: Chip) -> None:
    end = time.monotonic() + _STARTS
    while chip.registers.initializing:
        if chip.function.failed:
            raise MachineError(f"{chip.function.name} {chip.function.failure}")
        if time.monotonic() > end:
            raise Error(f"{chip.function.name}: its firmware has not started within {_STARTS:g} s; try again later")
        time.sleep(0.01)


def _enable(chip: Chip) -> None:
    """The function, the interface version, and the memory with which its firmware boots."""
    _call(chip, "enable_hca", lambda _: chip.ledger.undo(chip.queue, "disable_hca"))
    if not _call(chip, "query_issi").supported_issi_dw0 & 1 << 1:
        raise Error(f"{chip.function.name}: its firmware {chip.version} has no interface step 1: update it")
    _call(chip, "set_issi", current_issi=1)
    _give(chip, _BOOT)
    chip.ledger.undo_by(lambda: _reclaim(chip))


def _give(chip: Chip, when: int) -> None:
    answer = _call(chip, "query_pages", op_mod=when)
    chip.queue.pages_of, wanted = answer.function_id, answer.num_pages
    if wanted and not wanted >> 31:
        # Memory that the firmware keeps: it is freed once it was given back, or after the reset.
        if not len(chip.pages):
            chip.ledger.afterwards(chip.pages.after_reset)
        chip.pages.give(wanted)


def _reclaim(chip: Chip) -> None:
    """Take back every page that the firmware was given."""
    while len(chip.pages):
        if not chip.pages.take(min(len(chip.pages), 512)):
            raise Error(f"{chip.function.name}: its firmware keeps {len(chip.pages)} pages of memory until a reset")


def _query(chip: Chip, kind: Capability, mode: CapabilityMode) -> bytes:
    return bytes(_call(chip, "query_hca_cap", op_mod=kind << 1 | mode).capability)


def _capabilities(chip: Chip) -> None:
    """What it can do; and what of it the driver asks for."""
    name = chip.function.name
    with suppress(FirmwareRefusedError):  # a virtual function, whose physical one has said so
        # Numbers in this machine's memory are little-endian (main.c set_hca_ctrl): what atomics are done on.
        _register(chip, Register.HOST_ENDIANNESS, bytes(16), RegisterAccess.WRITE)
    layout = capabilities.CMD_HCA_CAP
    most = layout.unpack(_query(chip, Capability.GENERAL, CapabilityMode.MAX))
    now = _query(chip, Capability.GENERAL, CapabilityMode.CUR)
    if not most.roce:
        raise Error(
            f"{name}: its firmware has RoCE turned off; turn it on (mlxconfig ROCE_CONTROL, devlink enable_roce)"
        )
    if layout.unpack(now).port_type != 1:
        raise Error(f"{name}: its port is InfiniBand's; this driver takes Ethernet (mlxconfig LINK_TYPE_P1=2)")
    signs = most.cmdif_checksum == _SIGNED
    wanted = {
        "cmdif_checksum": _SIGNED if signs else 0,
        "log_uar_page_sz": 0,  # 4 KiB
        "pkey_table_size": 0,  # one of 128: the field is its own logarithm, less 7
        "roce": 1,
        "cqe_version": min(most.cqe_version, 1),
        "log_max_qp": min(most.log_max_qp, 18),
    }
    _set(chip, Capability.GENERAL, layout, **wanted)
    chip.queue.signed = signs
    if most.atomic:
        atomic = capabilities.ATOMIC_CAPS
        if atomic.unpack(_query(chip, Capability.ATOMIC, CapabilityMode.MAX)).supported_atomic_req_8B_endianness_mode_1:
            # What atomics bring home is in this machine's order too (main.c handle_hca_cap_atomic).
            _set(chip, Capability.ATOMIC, atomic, atomic_req_8B_endianness_mode=1)
    roce = capabilities.ROCE_CAP
    if roce.unpack(_query(chip, Capability.ROCE, CapabilityMode.MAX)).sw_r_roce_src_udp_port:
        _set(chip, Capability.ROCE, roce, sw_r_roce_src_udp_port=1)
        chip.source_port = True


def _set(chip: Chip, kind: Capability, layout: Layout, **wanted: int) -> None:
    now = _query(chip, kind, CapabilityMode.CUR)
    page = layout.update(now[: layout.size], **wanted) + now[layout.size :]
    _call(chip, "set_hca_cap", op_mod=kind << 1, capability=page)


def _start(chip: Chip) -> None:
    """Memory for what it was asked for; the adapter starts."""
    ledger = chip.ledger
    _give(chip, _INIT)
    owner = [secrets.randbits(32) for _ in range(4)]
    _call(chip, "init_hca", lambda _: ledger.undo(chip.queue, "teardown_hca"), sw_owner_id=owner)
    chip.general = capabilities.CMD_HCA_CAP.unpack(_query(chip, Capability.GENERAL, CapabilityMode.CUR))
    general = chip.general
    roce = capabilities.ROCE_CAP.unpack(_query(chip, Capability.ROCE, CapabilityMode.CUR))
    if general.driver_version:
        text = b"Linux,userdma,1.0.0".ljust(64, b"\0")  # fw.c mlx5_set_driver_version: system, driver, version
        _call(chip, "set_driver_version", driver_version=text)
    chip.limits.update(
        queue_pairs=1 << general.log_max_qp,
        completion_queues=1 << general.log_max_cq,
        keys=1 << general.log_max_mkey,
        ring_entries=min(1 << general.log_max_qp_sz, 1 << 15),  # send rings count blocks of 64 bytes in 16 bits
        completion_entries=1 << general.log_max_cq_sz,
        region_bytes=1 << 48,
        message_bytes=1 << min(general.log_max_msg, 31),
        gids=roce.roce_address_table_size,
        reads=1 << general.log_max_ra_req_qp,
    )
    check_rings(chip.function.name, chip.limits)


def _events(chip: Chip) -> None:
    """A user access region, the event queue, a protection domain."""
    ledger, queue = chip.ledger, chip.queue
    chip.uar = _call(chip, "alloc_uar", lambda made: ledger.undo(queue, "dealloc_uar", uar=made.uar)).uar
    if (chip.uar + 1) * PAGE > chip.registers.bar.size:
        raise Error(
            f"{chip.function.name}: user access region {chip.uar} is past its BAR of {chip.registers.bar.size} bytes"
        )
    entries = min(_EVENTS, 1 << chip.general.log_max_eq_sz)
    memory = ledger.alloc(entries * _EVENT)
    empty = bytes(_EVENT - 1) + b"\1"  # the owner bit: not written
    write(memory, 0, empty * entries, chip.firmware.generation)
    kinds = set(_KINDS)
    if chip.general.page_request_disable:  # this firmware asks for none beside QUERY_PAGES (eq.c create_async_eqs)
        kinds.remove(EventType.PAGE_REQUEST)
    mask = sum(1 << kind for kind in kinds)
    chip.eqn = _call(
        chip,
        "create_eq",
        lambda made: ledger.undo(queue, "destroy_eq", eq_number=made.eq_number),
        eq_context_entry={"log_eq_size": entries.bit_length() - 1, "uar_page": chip.uar},
        event_bitmask=[mask & (1 << 64) - 1, 0, 0, 0],
        pas=memory.pages(),
    ).eq_number
    chip.events = _core.Mlx5Events(
        chip.domain, memory, entries, eqn=chip.eqn, bar=chip.registers.bar, uar=chip.uar * PAGE
    )
    ledger.afterwards(chip.events.close)
    queue.attend = chip.attend
    chip.pd = _call(chip, "alloc_pd", lambda made: ledger.undo(queue, "dealloc_pd", pd=made.pd)).pd


def _port(chip: Chip) -> None:
    """Its MAC address, RoCE on, the port's MTU."""
    context = _call(chip, "query_nic_vport_context").nic_vport_context
    mac = context.permanent_address
    chip.mac = mac.mac_addr_47_32.to_bytes(2, "big") + mac.mac_addr_31_0.to_bytes(4, "big")
    if not any(chip.mac) or chip.mac[0] & 1:
        raise Error(f"{chip.function.name}: its firmware gives it the MAC address {chip.mac.hex(':')}, which is none")
    select, values = {"roce_en": 1}, {"roce_en": 1}
    if chip.general.disable_local_lb_uc:
        select["disable_uc_local_lb"], values["disable_uc_local_lb"] = 1, 0  # pairs within the NIC
    off = {"field_select": {"roce_en": 1}, "nic_vport_context": {"roce_en": 0}}
    _call(
        chip,
        "modify_nic_vport_context",
        lambda _: chip.ledger.undo(chip.queue, "modify_nic_vport_context", **off),
        field_select=select,
        nic_vport_context=values,
    )
    with suppress(FirmwareRefusedError):  # a function that does not own the port
        # A driver before may have turned it down, as mlx5_core does with its network interface (port.c).
        up = registers.PAOS_REG.pack(local_port=1, admin_status=_UP, ase=1)
        _register(chip, Register.PAOS, up, RegisterAccess.WRITE)
        link.wait(lambda: _call(chip, "query_vport_state").state == _UP)
    layout = registers.PMTU_REG
    port = layout.unpack(_register(chip, Register.PMTU, layout.pack(local_port=1)))
    # The Ethernet MTU is the port's, which other functions of it may share: it is only ever raised.
    ethernet = port.oper_mtu
    if ethernet < min(port.max_mtu, _JUMBO):
        try:
            wanted = layout.pack(local_port=1, admin_mtu=min(port.max_mtu, _JUMBO))
            _register(chip, Register.PMTU, wanted, RegisterAccess.WRITE)
        except FirmwareRefusedError:
            pass  # a function that does not own the port
        else:
            ethernet = layout.unpack(_register(chip, Register.PMTU, layout.pack(local_port=1))).oper_mtu
    fits = [mtu for mtu in (256, 512, 1024, 2048, 4096) if mtu + _ROCE_HEADERS <= ethernet]
    if not fits:
        raise Error(f"{chip.function.name}: its port takes an MTU of {ethernet} bytes, less than RoCE needs: raise it")
    chip.mtu = fits[-1]
    chip.limits["ethernet_mtu"] = ethernet


def _register(chip: Chip, number: Register, data: bytes, access: RegisterAccess = RegisterAccess.READ) -> bytes:
    answer = _call(chip, "access_reg", op_mod=access, register_id=number, register_data=data, answer_bytes=len(data))
    return answer["register_data"]


def _address(chip: Chip) -> None:
    """A GID: IPv4-mapped, of network 10, with the MAC address's last three bytes."""
    chip.gid = bytes(10) + b"\xff\xff" + bytes([10]) + chip.mac[3:]
    address = {
        "source_l3_address": chip.gid,
        "source_mac_47_32": int.from_bytes(chip.mac[:2], "big"),
        "source_mac_31_0": int.from_bytes(chip.mac[2:], "big"),
        "roce_l3_type": 0,  # IPv4
        "roce_version": GidType.N2,
    }
    entry = {"roce_address_index": chip.gid_index, "vhca_port_num": 1}
    _call(
        chip,
        "set_roce_address",
        lambda _: chip.ledger.undo(chip.queue, "set_roce_address", **entry),
        **entry,
        roce_address=address,
    )
