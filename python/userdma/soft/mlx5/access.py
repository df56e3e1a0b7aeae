"""The registers that ACCESS_REG reads and writes: of the port, of the module, of time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5 import registers
from userdma.mlx5.constants import EventType, Register, RegisterAccess
from userdma.mlx5.layouts import Layout
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.ports import Ports
from userdma.soft.mlx5.refusal import Answer, bad_op, bad_param

PORT = 1
UP, DOWN = 1, 2  # oper_status, admin_status (port.h, MLX5_PORT_UP, MLX5_PORT_DOWN)
DOWN_EVENT, UP_EVENT = 1, 4  # device.h, MLX5_PORT_CHANGE_SUBTYPE_*
LONGEST_FRAME = 9978 + 22  # PMTU counts the Ethernet header, VLAN tag and FCS (en.h, MLX5E_ETH_HARD_MTU)
FRAME = 1500 + 22
ETHERNET = 4  # proto_mask (port.h, MLX5_PTYS_EN)
SPEEDS = 1 << 22 | 1 << 20  # eth_proto: 100GBASE-LR4, 100GBASE-CR4 (port.h, MLX5E_100GBASE_*)
SPEED = 1 << 20
LANES = 4
HOST_ENDIANNESS = Layout("host_endianness", 16, "he@0x0:8")  # main.c, struct mlx5_reg_host_endianness
NODE_DESC = Layout("node_desc", 64, "desc@0x0:8[64]")  # mlx5_ib's main.c, struct mlx5_reg_node_desc

# What can be read and is all zeros but for what was written.
_PLAIN: dict[int, Layout] = {
    Register.PFCC: registers.PFCC_REG,
    Register.PVLC: registers.PVLC_REG,
    Register.PCMR: registers.PCMR_REG,
    Register.PPLM: registers.PPLM_REG,
    Register.QPTS: registers.QPTS_REG,
    Register.QPDPM: registers.QPDPM_REG,
    Register.QTCT: registers.QTCT_REG,
    Register.QETCR: registers.QETC_REG,
    Register.PBMC: registers.PBMC_REG,
    Register.PPTB: registers.PPTB_REG,
    Register.HOST_ENDIANNESS: HOST_ENDIANNESS,
    Register.NODE_DESC: NODE_DESC,
    Register.DTOR: registers.DTOR_REG,
}


class Access(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {"access_reg": self._access}

    def _access(self, request: Fields) -> Answer:
        number = request.register_id
        if request.op_mod not in (RegisterAccess.READ, RegisterAccess.WRITE):
            raise bad_op(f"modifier {request.op_mod} is not one of registers")
        read, layout = self._registers().get(number, (None, None))
        if layout is None or read is None:
            raise bad_param(f"register {number:#x} is not there")
        data = request["register_data"]
        if len(data) < layout.size:
            data = data.ljust(layout.size, b"\0")
        given = layout.unpack(data[: layout.size] if layout.name != "mcia_reg" else data)
        if "local_port" in layout.fields and given.local_port not in (0, PORT):
            raise bad_param(f"port {given.local_port}: there is {PORT}")
        if request.op_mod == RegisterAccess.WRITE:
            write = self._writers().get(number)
            if write is not None:
                write(given)
            elif number in _PLAIN:
                self.state.registers[number] = bytes(given)
            else:
                raise bad_param(f"register {number:#x} cannot be written")
        answer = read(given)
        padded = answer + bytes(-len(answer) % 4)
        return {"register_data": struct.unpack(f">{len(padded) // 4}I", padded)}

    def _registers(self) -> dict[int, tuple[Callable[[Fields], bytes], Layout]]:
        """By number: what reads it, and its layout."""
        plain = {number: ((lambda given, n=number: self._plain(n)), layout) for number, layout in _PLAIN.items()}
        special: dict[int, tuple[Callable[[Fields], bytes], Layout]] = {
            Register.PAOS: (self._paos, registers.PAOS_REG),
            Register.PTYS: (self._ptys, registers.PTYS_REG),
            Register.PMTU: (self._pmtu, registers.PMTU_REG),
            Register.PMLP: (self._pmlp, registers.PMLP_REG),
            Register.PPCNT: (self._ppcnt, registers.PPCNT_REG),
            Register.PCAM: (self._pcam, registers.PCAM_REG),
            Register.MCAM: (self._mcam, registers.MCAM_REG),
        }
        return {**plain, **special}

    def _writers(self) -> dict[int, Callable[[Fields], None]]:
        return {Register.PAOS: self._write_paos, Register.PTYS: lambda given: None, Register.PMTU: self._write_pmtu}

    def _plain(self, number: int) -> bytes:
        return self.state.registers.get(number, bytes(_PLAIN[number].size))

    # ---- the link ----

    def _paos(self, given: Fields) -> bytes:
        up = self.state.link_up
        return registers.PAOS_REG.pack(
            local_port=PORT, admin_status=self.state.port_admin, oper_status=UP if up else DOWN
        )

    def _write_paos(self, given: Fields) -> None:
        if not given.ase:
            return
        if given.admin_status not in (UP, DOWN):
            raise bad_param(f"administrative status {given.admin_status}")
        self.state.port_admin = given.admin_status
        self.set_link(given.admin_status == UP)

    def set_link(self, up: bool) -> None:
        """The link comes or goes, and an event says so."""
        if up == self.state.link_up:
            return
        self.state.link_up = up
        Ports(self.firmware).ingress()
        self.core.ethernet_link(up)
        data = bytes(8) + bytes([PORT << 4]) + bytes(19)  # struct mlx5_eqe_port_state
        self.core.event(EventType.PORT_CHANGE, UP_EVENT if up else DOWN_EVENT, data)

    def _ptys(self, given: Fields) -> bytes:
        if given.proto_mask != ETHERNET:
            raise bad_param(f"protocols {given.proto_mask}: the port is of Ethernet")
        return registers.PTYS_REG.pack(
            local_port=PORT,
            proto_mask=ETHERNET,
            eth_proto_capability=SPEEDS,
            eth_proto_admin=SPEEDS,
            eth_proto_oper=SPEED if self.state.link_up else 0,
            connector_type=1,
        )

    def _pmtu(self, given: Fields) -> bytes:
        mtu = self.state.frame or FRAME
        return registers.PMTU_REG.pack(local_port=PORT, max_mtu=LONGEST_FRAME, admin_mtu=mtu, oper_mtu=mtu)

    def _write_pmtu(self, given: Fields) -> None:
        if given.admin_mtu > LONGEST_FRAME:
            raise bad_param(f"frames of {given.admin_mtu} bytes: {LONGEST_FRAME} are possible")
        self.state.frame = given.admin_mtu

    def _pmlp(self, given: Fields) -> bytes:
        return registers.PMLP_REG.pack(local_port=PORT, width=LANES)

    def _ppcnt(self, given: Fields) -> bytes:
        layout, counters = self._counters().get(given.grp, (None, {}))
        data = bytes(248)
        if layout is not None:
            halves: dict[str, int] = {}
            for name, value in counters.items():
                halves |= {f"{name}_high": value >> 32, f"{name}_low": value & 0xFFFFFFFF}
            data = layout.pack(**halves)
        return registers.PPCNT_REG.pack(local_port=PORT, grp=given.grp, prio_tc=given.prio_tc, counter_set=data)

    def _counters(self) -> dict[int, tuple[Layout, dict[str, int]]]:
        """By the group of counters (port.h, MLX5_*_COUNTERS_GROUP): of IEEE 802.3, RFC 2863 and RFC 2819."""
        sent, received = self.core.ethernet_port()
        sizes = [one + other for one, other in zip(sent["sizes"], received["sizes"], strict=True)]
        return {
            0: (
                registers.ETH_802_3_CNTRS_GRP_DATA_LAYOUT,
                {
                    "a_frames_transmitted_ok": sent["frames"],
                    "a_frames_received_ok": received["frames"],
                    "a_octets_transmitted_ok": sent["bytes"],
                    "a_octets_received_ok": received["bytes"],
                    "a_multicast_frames_xmitted_ok": sent["multicast"],
                    "a_multicast_frames_received_ok": received["multicast"],
                    "a_broadcast_frames_xmitted_ok": sent["broadcast"],
                    "a_broadcast_frames_received_ok": received["broadcast"],
                },
            ),
            1: (
                registers.ETH_2863_CNTRS_GRP_DATA_LAYOUT,
                {
                    "if_in_octets": received["bytes"],
                    "if_in_ucast_pkts": received["unicast"],
                    "if_in_multicast_pkts": received["multicast"],
                    "if_in_broadcast_pkts": received["broadcast"],
                    "if_out_octets": sent["bytes"],
                    "if_out_ucast_pkts": sent["unicast"],
                    "if_out_multicast_pkts": sent["multicast"],
                    "if_out_broadcast_pkts": sent["broadcast"],
                },
            ),
            2: (
                registers.ETH_2819_CNTRS_GRP_DATA_LAYOUT,
                {
                    "ether_stats_octets": sent["bytes"] + received["bytes"],
                    "ether_stats_pkts": sent["frames"] + received["frames"],
                    "ether_stats_broadcast_pkts": sent["broadcast"] + received["broadcast"],
                    "ether_stats_multicast_pkts": sent["multicast"] + received["multicast"],
                    "ether_stats_pkts64octets": sizes[0],
                    "ether_stats_pkts65to127octets": sizes[1],
                    "ether_stats_pkts128to255octets": sizes[2],
                    "ether_stats_pkts256to511octets": sizes[3],
                    "ether_stats_pkts512to1023octets": sizes[4],
                    "ether_stats_pkts1024to1518octets": sizes[5],
                    "ether_stats_pkts1519to2047octets": sizes[6],
                    "ether_stats_pkts2048to4095octets": sizes[7],
                    "ether_stats_pkts4096to8191octets": sizes[8],
                    "ether_stats_pkts8192to10239octets": sizes[9],
                },
            ),
        }

    # ---- which registers there are ----

    def _mask(self, first: int) -> bytes:
        """The 128 registers from a number on, of those that are there."""
        bits = sum(1 << number - first for number in self._registers() if first <= number < first + 128)
        return bits.to_bytes(16, "big")

    def _pcam(self, given: Fields) -> bytes:
        changes: dict[str, Any] = {"feature_group": given.feature_group, "access_reg_group": given.access_reg_group}
        if not given.access_reg_group:
            changes["port_access_reg_cap_mask"] = self._mask(0x5000)
        return registers.PCAM_REG.pack(**changes)

    def _mcam(self, given: Fields) -> bytes:
        changes: dict[str, Any] = {"feature_group": given.feature_group, "access_reg_group": given.access_reg_group}
        first = {0: 0x9000, 2: 0x9100, 3: 0x9180}.get(given.access_reg_group)
        if first is not None:
            changes["mng_access_reg_cap_mask"] = self._mask(first)
        return registers.MCAM_REG.pack(**changes)
