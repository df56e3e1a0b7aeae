"""What a soft ConnectX-6 Dx can do, as QUERY_HCA_CAP tells: what it has, and what it could be set to.

Not there, and refused if asked for: compression of completions, contexts of programs of their own (DEVX), an embedded
switch, striding receive queues, TLS and IPsec, hairpin queues, link aggregation, tag matching.
"""

from __future__ import annotations

from typing import Any

from userdma.mlx5.capabilities import (
    ATOMIC_CAPS,
    CMD_HCA_CAP,
    FLOW_TABLE_NIC_CAP,
    ODP_CAP,
    PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS,
    ROCE_CAP,
)
from userdma.mlx5.constants import Capability
from userdma.mlx5.layouts import Layout
from userdma.soft.mlx5.limits import Limits, log2

SIZE = 4096  # bytes of every kind
LEVELS = 128  # of flow tables
CLOCK = 1_000_000  # kHz of the internal timer, which counts nanoseconds
KLM_LIST = 16  # log2 of the entries of an indirect key's list

LAYOUTS: dict[int, Layout] = {
    Capability.GENERAL: CMD_HCA_CAP,
    Capability.ETHERNET_OFFLOADS: PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS,
    Capability.ODP: ODP_CAP,
    Capability.ATOMIC: ATOMIC_CAPS,
    Capability.ROCE: ROCE_CAP,
    Capability.FLOW_TABLE: FLOW_TABLE_NIC_CAP,
}

# What SET_HCA_CAP may change, by kind; it may say of everything else only what is there.
SETTABLE: dict[int, frozenset[str]] = {
    Capability.GENERAL: frozenset(
        {
            *("cmdif_checksum", "log_max_qp", "pkey_table_size", "log_uar_page_sz", "uar_4k", "cache_line_128byte"),
            *("roce", "log_max_current_uc_list", "log_max_current_mc_list", "num_vhca_ports", "log_max_srq"),
        }
    ),
    Capability.ODP: frozenset(),  # Linux's driver says which of it it takes
    Capability.ATOMIC: frozenset({"atomic_req_8B_endianness_mode"}),
    Capability.ROCE: frozenset({"sw_r_roce_src_udp_port"}),
}


def general(limits: Limits, uars: int) -> dict[str, Any]:
    return {
        # queues
        "log_max_qp": log2(limits.qps),
        "log_max_qp_sz": log2(limits.qp_wqes),
        "max_wqe_sz_sq": limits.send_wqe,
        "max_wqe_sz_rq": limits.receive_wqe,
        "log_max_msg": log2(limits.message),
        "log_max_ra_req_qp": log2(limits.rd_atomic),
        "log_max_ra_res_qp": log2(limits.rd_atomic),
        "log_max_cq": log2(limits.cqs),
        "log_max_cq_sz": log2(limits.cqes),
        "log_max_eq": log2(limits.eqs),
        "log_max_eq_sz": log2(limits.eqes),
        "max_num_eqs": limits.eqs,
        "log_max_srq": log2(limits.srqs),
        "log_max_srq_sz": log2(limits.srq_wqes),
        "log_max_rmp": log2(limits.srqs),
        "log_max_xrcd": log2(limits.xrcds),
        "log_max_pd": log2(limits.pds),
        "log_max_transport_domain": log2(limits.transport_domains),
        "max_qp_cnt": limits.counters,
        "cqe_version": 1,
        "cq_oi": 1,
        "cq_resize": 1,
        "cq_moderation": 1,
        "compact_address_vector": 1,
        "rc": 1,
        "ud": 1,
        "xrc": 1,  # domains and queues, which Linux's driver makes for itself; no connections
        "set_deth_sqpn": 1,
        "pkv": 1,
        "qkv": 1,
        # keys
        "log_max_mkey": log2(limits.mkeys),
        "log_max_mrw_sz": 64,
        "log_max_klm_list_size": KLM_LIST,
        "max_indirection": 4,
        "fixed_buffer_size": 1,
        "umr_ptr_rlky": 1,
        "imaicl": 1,  # memory windows
        "umr_extended_translation_offset": 1,
        "pg": 1,  # on-demand paging
        "null_mkey": 1,
        "log_pg_sz": 12,
        # the function
        "cmdif_checksum": 0,
        "driver_version": 1,
        "vport_group_manager": 1,
        "port_type": 1,  # MLX5_CAP_PORT_TYPE_ETH
        "num_ports": 1,
        "bf": 1,
        "log_bf_reg_size": 9,
        "uar_sz": log2(uars * 4096 >> 20),
        "num_of_uars_per_page": 1,
        "device_frequency_khz": CLOCK,
        "device_frequency_mhz": CLOCK // 1000,
        "pcam_reg": 1,
        "mcam_reg": 1,
        "max_tc": 8,
        "local_ca_ack_delay": 15,
        "roce": 1,
        "roce_rw_supported": 1,
        "atomic": 1,
        "retransmission_q_counters": 1,
        "out_of_seq_cnt": 1,
        "enhanced_error_q_counters": 1,
        "vport_counters": 1,
        "nic_vport_change_event": 1,
        "disable_local_lb_uc": 1,
        "disable_local_lb_mc": 1,
        "block_lb_mc": 1,
        "log_max_mcg": 12,
        "max_qp_mcg": 64,
        # Ethernet
        "eth_net_offloads": 1,
        "nic_flow_table": 1,
        "basic_cyclic_rcv_wqe": 1,
        "log_max_sq": log2(limits.sqs),
        "log_max_rq": log2(limits.rqs),
        "log_max_rqt": log2(limits.rqts),
        "log_max_rqt_size": log2(limits.rqt_entries),
        "log_max_tir": log2(limits.tirs),
        "log_max_tis": log2(limits.tiss),
        "log_max_wq_sz": log2(limits.wq_entries),
        "log_max_stride_sz_rq": 11,
        "log_min_stride_sz_rq": 4,
        "log_max_stride_sz_sq": 6,
        "log_min_stride_sz_sq": 6,
        "log_max_current_uc_list": 7,
        "log_max_current_mc_list": 11,
        "log_max_vlan_list": 12,
        "max_flow_counter_15_0": limits.flow_counters & 0xFFFF,
        "max_flow_counter_31_16": limits.flow_counters >> 16,
    }


ETHERNET = {
    "csum_cap": 1,
    "vlan_cap": 1,
    "wqe_vlan_insert": 1,
    "self_lb_en_modifiable": 1,
    "max_lso_cap": 18,  # log2 of bytes
    "wqe_inline_mode": 2,  # MLX5_CAP_INLINE_MODE_NOT_REQUIRED
    "rss_ind_tbl_cap": 8,
    "cqe_checksum_full": 1,
}

# Page faults by the transport: what waits is a queue pair. A datagram that arrives waits for nothing.
_SERVED = ("send", "receive", "write", "read", "atomic", "srq_receive")
ODP = {
    "transport_page_fault_scheme_cap": {"rc_odp_caps": dict.fromkeys(_SERVED, 1), "ud_odp_caps": {"send": 1}},
}

ATOMIC = {
    "supported_atomic_req_8B_endianness_mode_1": 1,
    "atomic_operations": 0x3,  # MLX5_ATOMIC_OPS_CMP_SWAP, MLX5_ATOMIC_OPS_FETCH_ADD
    "atomic_size_qp": 1 << 3,  # MLX5_ATOMIC_SIZE_QP_8BYTES
}


def roce(limits: Limits) -> dict[str, Any]:
    return {
        "l3_type": 0x6,  # MLX5_ROCE_L3_TYPE_IPV4_CAP, MLX5_ROCE_L3_TYPE_IPV6_CAP
        "roce_version": 1 << 2,  # MLX5_ROCE_VERSION_2_CAP
        "r_roce_dest_udp_port": 4791,
        "r_roce_max_src_udp_port": 0xFFFF,
        "r_roce_min_src_udp_port": 0xC000,
        "roce_address_table_size": limits.gids,
    }


def flow_table(limits: Limits) -> dict[str, Any]:
    fields = dict.fromkeys(
        (
            *("outer_dmac", "outer_smac", "outer_ether_type", "outer_first_vid", "outer_ip_version"),
            *("outer_frag", "outer_ip_protocol", "outer_ip_ecn", "outer_ip_dscp", "outer_sip", "outer_dip"),
            *("outer_udp_sport", "outer_udp_dport", "outer_tcp_sport", "outer_tcp_dport", "outer_tcp_flags"),
        ),
        1,
    )
    properties = {
        "ft_support": 1,
        "flow_counter": 1,
        "flow_modify_en": 1,
        "modify_root": 1,
        "identified_miss_table_mode": 1,
        "flow_table_modify": 1,
        "log_max_ft_size": log2(limits.flows),
        "max_ft_level": LEVELS,
        "log_max_ft_num": log2(limits.flow_tables),
        "log_max_flow_counter": 1,
        "log_max_destination": 4,
        "log_max_flow": log2(limits.flows),
        "ft_field_support": fields,
        "ft_field_bitmask_support": fields,
    }
    return {"flow_table_properties_nic_receive": properties, "flow_table_properties_nic_transmit": properties}


def all_of(limits: Limits, uars: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """By kind: what there is after a reset, and what can be set at most."""
    now = {
        Capability.GENERAL: general(limits, uars),
        Capability.ETHERNET_OFFLOADS: ETHERNET,
        Capability.ODP: ODP,
        Capability.ATOMIC: ATOMIC,
        Capability.ROCE: roce(limits),
        Capability.FLOW_TABLE: flow_table(limits),
    }
    most: dict[int, dict[str, Any]] = {kind: dict(fields) for kind, fields in now.items()}
    most[Capability.GENERAL] |= {
        "cmdif_checksum": 3,
        "pkey_table_size": 5,
        "log_uar_page_sz": 4,
        "cache_line_128byte": 1,
        "log_max_current_mc_list": 12,
        "log_max_current_uc_list": 8,
    }
    most[Capability.ATOMIC]["atomic_req_8B_endianness_mode"] = 1
    most[Capability.ROCE]["sw_r_roce_src_udp_port"] = 1

    def packed(kinds: dict[int, dict[str, Any]]) -> dict[int, bytes]:
        return {kind: LAYOUTS[kind].pack(**fields).ljust(SIZE, b"\0") for kind, fields in kinds.items()}

    return packed({int(kind): fields for kind, fields in now.items()}), packed(most)
