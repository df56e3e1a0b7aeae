"""The port: the virtual port's context and state, RoCE addresses, counters, congestion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5.constants import VportState
from userdma.mlx5.contexts import MAC_ADDRESS_LAYOUT, NIC_VPORT_CONTEXT, ROCE_ADDR_LAYOUT
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, bad_op, bad_param, bad_resource, past_limit
from userdma.soft.mlx5.state import Object

PORT = 1
UP, DOWN, FOLLOW = 1, 0, 2  # vport.h: states, and the administrative ones (MLX5_ESW_VPORT_ADMIN_STATE_*)
ROCE_V2 = 2  # device.h, MLX5_ROCE_VERSION_2
IPV4, IPV6 = 0, 1  # MLX5_ROCE_L3_TYPE_*
UNICAST, MULTICAST, VLAN = 0, 1, 2  # device.h, MLX5_NVPRT_LIST_TYPE_*
PKEY, PKEYS, ALL = 0xFFFF, 128, 0xFFFF  # the default; as many as pkey_table_size 0 means; every one
MTU = 9978  # bytes of an Ethernet frame's payload

# Counters of the data path (SoftMlx5.stats), by what QUERY_Q_COUNTER calls them.
_COUNTERS = {
    "rx_write_requests": "writes_received",
    "rx_read_requests": "read_requests_received",
    "rx_atomic_requests": "atomics_received",
    "out_of_buffer": "dropped_no_receive",
    "out_of_sequence": "dropped_sequence",
    "duplicate_request": "duplicates",
    "rnr_nak_retry_err": "rnr_naks_received",
    "packet_seq_err": "sequence_naks_received",
    "implied_nak_seq_err": "implied_naks",
    "local_ack_timeout_err": "timeouts",
    "req_transport_retries_exceeded": "retries_exceeded",
}
# What MODIFY_NIC_VPORT_CONTEXT's field_select names, and the fields that it stands for.
_SELECTED = {
    "disable_uc_local_lb": ("disable_uc_local_lb",),
    "disable_mc_local_lb": ("disable_mc_local_lb",),
    "node_guid": ("node_guid",),
    "port_guid": ("port_guid",),
    "min_inline": ("min_wqe_inline_mode",),
    "mtu": ("mtu",),
    "change_event": (
        *("arm_change_event", "event_on_mtu", "event_on_promisc_change", "event_on_vlan_change"),
        *("event_on_mc_address_change", "event_on_uc_address_change"),
    ),
    "promisc": ("promisc_uc", "promisc_mc", "promisc_all"),
    "permanent_address": ("permanent_address",),
    "roce_en": ("roce_en",),
}


def guid(mac: bytes) -> int:
    """Of a port with this MAC: its EUI-64."""
    return int.from_bytes(bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:], "big")


class Ports(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {
            "query_vport_state": self._query_state,
            "modify_vport_state": self._modify_state,
            "query_nic_vport_context": self._query_context,
            "modify_nic_vport_context": self._modify_context,
            "query_hca_vport_pkey": self._query_pkey,
            "query_roce_address": self._query_address,
            "set_roce_address": self._set_address,
            "query_vnic_env": lambda request: {},
            "query_vport_counter": self._query_traffic,
            "alloc_q_counter": self._alloc_counters,
            "dealloc_q_counter": lambda request: self.destroy("q_counter", request.counter_set_id),
            "query_q_counter": self._query_counters,
            "query_cong_status": lambda request: {},
            "query_cong_params": lambda request: {"congestion_parameters": bytes(256)},
            "query_cong_statistics": lambda request: {},
            "add_vxlan_udp_dport": self._add_vxlan,
            "delete_vxlan_udp_dport": self._delete_vxlan,
            "query_wol_rol": lambda request: {},
        }

    def _own(self, request: Fields) -> None:
        if request.other_vport or request.vport_number:
            raise bad_param(f"virtual port {request.vport_number}: there is one, of this function")

    # ---- the virtual port ----

    def _query_state(self, request: Fields) -> Answer:
        self._own(request)
        if request.op_mod not in (VportState.VNIC_VPORT, VportState.UPLINK):
            raise bad_op(f"modifier {request.op_mod} is not one of virtual ports")
        return {"admin_state": self.state.vport_admin, "state": UP if self.state.link_up else DOWN}

    def _modify_state(self, request: Fields) -> Answer:
        self._own(request)
        if request.admin_state not in (DOWN, UP, FOLLOW):
            raise bad_param(f"administrative state {request.admin_state}")
        self.state.vport_admin = request.admin_state
        return {}

    def _vport(self) -> bytes:
        if not self.state.vport:
            mac, own = self.firmware.mac, guid(self.firmware.mac)
            self.state.vport = NIC_VPORT_CONTEXT.pack(
                mtu=MTU,
                system_image_guid=own,
                port_guid=own,
                node_guid=own,
                permanent_address=_address(mac),
                disable_mc_local_lb=1,
                disable_uc_local_lb=1,
            )
        return self.state.vport

    def _query_context(self, request: Fields) -> Answer:
        self._own(request)
        kind = request.allowed_list_type
        if kind not in (UNICAST, MULTICAST, VLAN):
            raise bad_param(f"list {kind} is not one of a virtual port")
        entries = self.state.lists.get(kind, ())
        context = NIC_VPORT_CONTEXT.update(
            self._vport(), allowed_list_type=kind, allowed_list_size=len(entries), current_uc_mac_address=entries
        )
        return {"nic_vport_context": context}

    def _modify_context(self, request: Fields) -> Answer:
        self._own(request)
        select, given = request.field_select, request.nic_vport_context
        if select.affiliation:
            raise bad_param("ports cannot be affiliated with each other")
        changes: dict[str, Any] = {}
        for name, fields in _SELECTED.items():
            if getattr(select, name):
                changes.update({field: getattr(given, field) for field in fields})
        if changes.get("mtu", 0) > MTU:
            raise past_limit(f"an MTU of {changes['mtu']}: {MTU} is possible")
        if select.addresses_list:
            kind, size = given.allowed_list_type, given.allowed_list_size
            entries = given.current_uc_mac_address
            if kind not in (UNICAST, MULTICAST, VLAN):
                raise bad_param(f"list {kind} is not one of a virtual port")
            if len(entries) < size:
                raise bad_param(f"{len(entries)} entries are not the {size} of the list")
            self.state.lists[kind] = entries[:size]
        self.state.vport = NIC_VPORT_CONTEXT.update(self._vport(), **changes)
        if "roce_en" in changes:
            self.ingress()
        if "disable_mc_local_lb" in changes:
            self.core.ethernet_loopback(not changes["disable_mc_local_lb"])
        return {}

    def ingress(self) -> None:
        """RoCE takes packets if the driver wants it and the link is up."""
        self.core.ingress(bool(NIC_VPORT_CONTEXT.unpack(self._vport()).roce_en) and self.state.link_up)

    def _query_pkey(self, request: Fields) -> Answer:
        """A RoCE port has one partition key, the default; the table that there might be is of it."""
        self._own(request)
        index = request.pkey_index
        if index == ALL:
            return {"pkey": [{"pkey": PKEY}] + [{}] * (PKEYS - 1)}
        if index >= PKEYS:
            raise bad_resource(f"partition key {index}: there are {PKEYS}")
        return {"pkey": [{"pkey": PKEY if index == 0 else 0}]}

    # ---- RoCE addresses ----

    def _index(self, request: Fields) -> int:
        index: int = request.roce_address_index
        if request.vhca_port_num not in (0, PORT):
            raise bad_param(f"port {request.vhca_port_num}: there is {PORT}")
        if index >= self.limits.gids:
            raise bad_resource(f"RoCE address {index}: there are {self.limits.gids}")
        return index

    def _query_address(self, request: Fields) -> Answer:
        index = self._index(request)
        return {"roce_address": self.state.gids.get(index, bytes(ROCE_ADDR_LAYOUT.size))}

    def _set_address(self, request: Fields) -> Answer:
        index, address = self._index(request), request.roce_address
        gid = address.source_l3_address
        if not any(gid):  # nothing, whatever it says of a version and a type
            if self.state.gids.pop(index, None) is not None:
                self.core.gid_clear(index)
            return {}
        if address.roce_version != ROCE_V2:
            raise bad_param(f"RoCE version {address.roce_version} is not supported: {ROCE_V2} is")
        if address.roce_l3_type != (IPV4 if _is_mapped(gid) else IPV6):
            raise bad_param(f"type {address.roce_l3_type} is not that of the address {gid.hex()}")
        mac = (address.source_mac_47_32 << 32 | address.source_mac_31_0).to_bytes(6, "big")
        if not any(mac):
            raise bad_param("the MAC is all zeros")
        self.core.gid_set(index, gid, mac)
        self.state.gids[index] = bytes(address)
        return {}

    # ---- counters ----

    def _alloc_counters(self, request: Fields) -> Answer:
        made = self.new("q_counter")
        made.more.update(self._counted())
        return {"counter_set_id": made.id}

    def _counted(self) -> dict[str, int]:
        stats = self.core.stats()
        counted = {name: stats.get(ours, 0) for name, ours in _COUNTERS.items()}
        counted["out_of_buffer"] += self.core.ethernet_lost()
        return counted

    def _query_counters(self, request: Fields) -> Answer:
        if request.other_vport or request.aggregate:
            raise bad_param("counters of other virtual ports, and sums of sets, are not supported")
        found: Object = self.state.get("q_counter", request.counter_set_id)
        now = self._counted()
        answer = {name: now[name] - found.more[name] & 0xFFFFFFFF for name in now}
        if request.clear:
            found.more.update(now)
        return answer

    def _query_traffic(self, request: Fields) -> Answer:
        self._own(request)
        stats = self.core.stats()

        def counter(packets: str, octets: str) -> dict[str, int]:
            return {"packets": stats.get(packets, 0), "octets": stats.get(octets, 0)}

        answer = {
            "received_ib_unicast": counter("mtu_packets_received", "bytes_received"),
            "transmitted_ib_unicast": counter("mtu_packets_sent", "bytes_sent"),
        }
        # The port counts the bytes of all frames together, which are those of single stations here.
        for way, counts in zip(("transmitted", "received"), self.core.ethernet_port(), strict=True):
            for kind in ("unicast", "multicast", "broadcast"):
                octets = counts["bytes"] if kind == "unicast" else 0
                answer[f"{way}_eth_{kind}"] = {"packets": counts[kind], "octets": octets}
        return answer

    # ---- ports of VXLAN ----

    def _add_vxlan(self, request: Fields) -> Answer:
        self.state.vxlan_ports.add(request.vxlan_udp_port)
        return {}

    def _delete_vxlan(self, request: Fields) -> Answer:
        if request.vxlan_udp_port not in self.state.vxlan_ports:
            raise bad_resource(f"UDP port {request.vxlan_udp_port} is not one of VXLAN")
        self.state.vxlan_ports.remove(request.vxlan_udp_port)
        return {}


def _is_mapped(gid: bytes) -> bool:
    """Whether it is an IPv4 address."""
    return gid[:12] == bytes(10) + b"\xff\xff"


def _address(mac: bytes) -> bytes:
    return MAC_ADDRESS_LAYOUT.pack(
        mac_addr_47_32=int.from_bytes(mac[:2], "big"), mac_addr_31_0=int.from_bytes(mac[2:], "big")
    )
