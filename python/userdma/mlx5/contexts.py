"""ConnectX: the contexts that commands create, modify and query.

Names, offsets and widths are those of the kernel's mlx5_ifc.h, whose struct mlx5_ifc_NAME_bits is `Layout`'s name here;
reserved fields are left out.
"""

from __future__ import annotations

from userdma.mlx5.layouts import Layout

ADS = Layout(
    "ads",
    0x2C,
    """
    fl@0x0:1 free_ar@0x1:1 pkey_index@0x10:16 plane_index@0x20:8 grh@0x28:1 mlid@0x29:7 rlid@0x30:16 ack_timeout@0x40:5
    src_addr_index@0x48:8 stat_rate@0x54:4 hop_limit@0x58:8 tclass@0x64:8 flow_label@0x6c:20 rgid_rip@0x80:8[16]
    f_dscp@0x104:1 f_ecn@0x105:1 f_eth_prio@0x107:1 ecn@0x108:2 dscp@0x10a:6 udp_sport@0x110:16 dei_cfi@0x120:1
    eth_prio@0x121:3 sl@0x124:4 vhca_port_num@0x128:8 rmac_47_32@0x130:16 rmac_31_0@0x140:32
    """,
)
QPC = Layout(
    "qpc",
    0xE8,
    """
    state@0x0:4 lag_tx_port_affinity@0x4:4 st@0x8:8 isolate_vl_tc@0x12:1 pm_state@0x13:2 req_e2e_credit_mode@0x16:2
    offload_type@0x18:4 end_padding_mode@0x1c:2 wq_signature@0x20:1 block_lb_mc@0x21:1 atomic_like_write_en@0x22:1
    latency_sensitive@0x23:1 drain_sigerr@0x25:1 pd@0x28:24 mtu@0x40:3 log_msg_max@0x43:5 log_rq_size@0x49:4
    log_rq_stride@0x4d:3 no_sq@0x50:1 log_sq_size@0x51:4 retry_mode@0x56:2 ts_format@0x58:2 rlky@0x5b:1
    ulp_stateless_offload_mode@0x5c:4 counter_set_id@0x60:8 uar_page@0x68:24 user_index@0x88:24 log_page_size@0xa3:5
    remote_qpn@0xa8:24 primary_address_path@0xc0:ads secondary_address_path@0x220:ads log_ack_req_freq@0x380:4
    log_sra_max@0x388:3 retry_count@0x38d:3 rnr_retry@0x390:3 fre@0x394:1 cur_rnr_retry@0x395:3 cur_retry_count@0x398:3
    next_send_psn@0x3c8:24 log_num_dci_stream_channels@0x3e3:5 cqn_snd@0x3e8:24 log_num_dci_errored_streams@0x403:5
    deth_sqpn@0x408:24 last_acked_psn@0x448:24 ssn@0x468:24 log_rra_max@0x488:3 atomic_mode@0x48c:4 rre@0x490:1
    rwe@0x491:1 rae@0x492:1 page_offset@0x494:6 cd_slave_receive@0x49d:1 cd_slave_send@0x49e:1 cd_master@0x49f:1
    min_rnr_nak@0x4a3:5 next_rcv_psn@0x4a8:24 xrcd@0x4c8:24 cqn_rcv@0x4e8:24 dbr_addr@0x500:64 q_key@0x540:32
    rq_type@0x565:3 srqn_rmpn_xrqn@0x568:24 rmsn@0x588:24 hw_sq_wqebb_counter@0x5a0:16 sw_sq_wqebb_counter@0x5b0:16
    hw_rq_counter@0x5c0:32 sw_rq_counter@0x5e0:32 cgs@0x62f:1 cs_req@0x630:8 cs_res@0x638:8 dc_access_key@0x640:64
    dbr_umem_valid@0x683:1
    """,
)
CQC = Layout(
    "cqc",
    0x40,
    """
    status@0x0:4 dbr_umem_valid@0x6:1 apu_cq@0x7:1 cqe_sz@0x8:3 cc@0xb:1 scqe_break_moderation_en@0xd:1 oi@0xe:1
    cq_period_mode@0xf:2 cqe_comp_en@0x11:1 mini_cqe_res_format@0x12:2 st@0x14:4 cqe_compression_layout@0x1e:2
    page_offset@0x54:6 log_cq_size@0x63:5 uar_page@0x68:24 cq_period@0x84:12 cq_max_count@0x90:16
    c_eqn_or_apu_element@0xa0:32 log_page_size@0xc3:5 last_notified_index@0x108:24 last_solicit_index@0x128:24
    consumer_counter@0x148:24 producer_counter@0x168:24 dbr_addr@0x1c0:64
    """,
)
EQC = Layout(
    "eqc",
    0x40,
    """
    status@0x0:4 ec@0xd:1 oi@0xe:1 st@0x14:4 page_offset@0x54:6 log_eq_size@0x63:5 uar_page@0x68:24 intr@0xb4:12
    log_page_size@0xc3:5 consumer_counter@0x148:24 producer_counter@0x168:24
    """,
)
MKC = Layout(
    "mkc",
    0x40,
    """
    free@0x1:1 access_mode_4_2@0x3:3 relaxed_ordering_write@0xd:1 small_fence_on_rdma_read_response@0xf:1 umr_en@0x10:1
    a@0x11:1 rw@0x12:1 rr@0x13:1 lw@0x14:1 lr@0x15:1 access_mode_1_0@0x16:2 ma_translation_mode@0x1a:2 qpn@0x20:24
    mkey_7_0@0x38:8 length64@0x60:1 bsf_en@0x61:1 sync_umr@0x62:1 expected_sigerr_count@0x65:1 en_rinval@0x67:1
    pd@0x68:24 start_addr@0x80:64 len@0xc0:64 bsf_octword_size@0x100:32 crossing_target_vhca_id@0x180:16
    translations_octword_size@0x1a0:32 relaxed_ordering_read@0x1d9:1 log_page_size@0x1da:6
    """,
)
CMD_PAS = Layout("cmd_pas", 0x8, "pa_h@0x0:32 pa_l@0x20:20")
WQ = Layout(
    "wq",
    0xC0,
    """
    wq_type@0x0:4 wq_signature@0x4:1 end_padding_mode@0x5:2 cd_slave@0x7:1 hds_skip_first_sge@0x20:1
    log2_hds_buf_size@0x21:3 page_offset@0x2b:5 lwm@0x30:16 pd@0x48:24 uar_page@0x68:24 dbr_addr@0x80:64
    hw_counter@0xc0:32 sw_counter@0xe0:32 log_wq_stride@0x10c:4 log_wq_pg_sz@0x113:5 log_wq_sz@0x11b:5
    dbr_umem_valid@0x120:1 wq_umem_valid@0x121:1 log_hairpin_num_packets@0x123:5 log_hairpin_data_sz@0x12b:5
    log_wqe_num_of_strides@0x134:4 two_byte_shift_en@0x138:1 log_wqe_stride_size@0x13d:3 dbr_umem_id@0x140:32
    wq_umem_id@0x160:32 wq_umem_offset@0x180:64 headers_mkey@0x1c0:32 shampo_enable@0x1e0:1 log_reservation_size@0x1e5:3
    log_max_num_of_packets_per_reservation@0x1ed:3 log_headers_entry_size@0x1f6:2 log_headers_buffer_entry_num@0x1fc:4
    pas@0x600:cmd_pas[]
    """,
)
SRQC = Layout(
    "srqc",
    0x40,
    """
    state@0x0:4 log_srq_size@0x4:4 wq_signature@0x20:1 cont_srq@0x21:1 rlky@0x23:1 log_rq_stride@0x25:3 xrcd@0x28:24
    page_offset@0x40:6 cqn@0x48:24 log_page_size@0x82:6 pd@0xc8:24 lwm@0xe0:16 wqe_cnt@0xf0:16 dbr_addr@0x140:64
    """,
)
XRC_SRQC = Layout(
    "xrc_srqc",
    0x40,
    """
    state@0x0:4 log_xrc_srq_size@0x4:4 wq_signature@0x20:1 cont_srq@0x21:1 rlky@0x23:1 basic_cyclic_rcv_wqe@0x24:1
    log_rq_stride@0x25:3 xrcd@0x28:24 page_offset@0x40:6 dbr_umem_valid@0x47:1 cqn@0x48:24
    user_index_equal_xrc_srqn@0x80:1 log_page_size@0x82:6 user_index@0x88:24 pd@0xc8:24 lwm@0xe0:16 wqe_cnt@0xf0:16
    db_record_addr_h@0x140:32 db_record_addr_l@0x160:30
    """,
)
RMPC = Layout("rmpc", 0xF0, "state@0x8:4 basic_cyclic_rcv_wqe@0x20:1 wq@0x180:wq")
RQC = Layout(
    "rqc",
    0xF0,
    """
    rlky@0x0:1 delay_drop_en@0x1:1 scatter_fcs@0x2:1 vsd@0x3:1 mem_rq_type@0x4:4 state@0x8:4 flush_in_error_en@0xd:1
    hairpin@0xe:1 ts_format@0x1a:2 user_index@0x28:24 cqn@0x48:24 counter_set_id@0x60:8 rmpn@0x88:24
    hairpin_peer_sq@0xa8:24 hairpin_peer_vhca@0xd0:16 shampo_no_match_alignment_granularity@0x126:2
    shampo_match_criteria_type@0x12e:2 reservation_timeout@0x130:16 wq@0x180:wq
    """,
)
SQC = Layout(
    "sqc",
    0xF0,
    """
    rlky@0x0:1 cd_master@0x1:1 fre@0x2:1 flush_in_error_en@0x3:1 allow_multi_pkt_send_wqe@0x4:1
    min_wqe_inline_mode@0x5:3 state@0x8:4 reg_umr@0xc:1 allow_swp@0xd:1 hairpin@0xe:1 non_wire@0xf:1 ts_format@0x1a:2
    user_index@0x28:24 cqn@0x48:24 hairpin_peer_rq@0x68:24 hairpin_peer_vhca@0x90:16 ts_cqe_to_dest_cqn@0xc8:24
    packet_pacing_rate_limit_index@0xf0:16 tis_lst_sz@0x100:16 qos_queue_group_id@0x110:16 tis_num_0@0x168:24
    wq@0x180:wq
    """,
)
TISC = Layout(
    "tisc",
    0xA0,
    """
    strict_lag_tx_port_affinity@0x0:1 tls_en@0x1:1 lag_tx_port_affinity@0x4:4 prio@0xc:4 transport_domain@0x128:24
    underlay_qpn@0x148:24 pd@0x168:24
    """,
)
RX_HASH_FIELD_SELECT = Layout(
    "rx_hash_field_select",
    0x4,
    "l3_prot_type@0x0:1 l4_prot_type@0x1:1 selected_fields@0x2:30",
)
TIRC = Layout(
    "tirc",
    0xF0,
    """
    disp_type@0x20:4 tls_en@0x24:1 lro_timeout_period_usecs@0x84:16 packet_merge_mask@0x94:4
    lro_max_ip_payload_size@0x98:8 inline_rqn@0xe8:24 rx_hash_symmetric@0x100:1 tunneled_offload_en@0x102:1
    indirect_table@0x108:24 rx_hash_fn@0x120:4 self_lb_block@0x126:2 transport_domain@0x128:24
    rx_hash_toeplitz_key@0x140:32[10] rx_hash_field_selector_outer@0x280:rx_hash_field_select
    rx_hash_field_selector_inner@0x2a0:rx_hash_field_select
    """,
)
RQ_NUM = Layout("rq_num", 0x4, "rq_num@0x8:24")
RQ_VHCA = Layout("rq_vhca", 0x8, "rq_num@0x8:24 rq_vhca_id@0x30:16")
RQTC = Layout(
    "rqtc",
    0xF0,
    """
    list_q_type@0xa5:3 rqt_max_size@0xb0:16 rq_vhca_id_format@0xc0:1 rqt_actual_size@0xd0:16 rq_num@0x780:rq_num[]
    rq_vhca@0x780:rq_vhca[]
    """,
)
ROCE_ADDR_LAYOUT = Layout(
    "roce_addr_layout",
    0x20,
    """
    source_l3_address@0x0:8[16] vlan_valid@0x83:1 vlan_id@0x84:12 source_mac_47_32@0x90:16 source_mac_31_0@0xa0:32
    roce_l3_type@0xd4:4 roce_version@0xd8:8
    """,
)
MAC_ADDRESS_LAYOUT = Layout("mac_address_layout", 0x8, "mac_addr_47_32@0x10:16 mac_addr_31_0@0x20:32")
NIC_VPORT_CONTEXT = Layout(
    "nic_vport_context",
    0x100,
    """
    min_wqe_inline_mode@0x5:3 disable_mc_local_lb@0x1d:1 disable_uc_local_lb@0x1e:1 roce_en@0x1f:1
    arm_change_event@0x20:1 event_on_mtu@0x3b:1 event_on_promisc_change@0x3c:1 event_on_vlan_change@0x3d:1
    event_on_mc_address_change@0x3e:1 event_on_uc_address_change@0x3f:1 vhca_id_type@0x40:1 affiliation_criteria@0x4c:4
    affiliated_vhca_id@0x50:16 sd_group@0x101:3 mtu@0x130:16 system_image_guid@0x140:64 port_guid@0x180:64
    node_guid@0x1c0:64 qkey_violation_counter@0x340:16 promisc_uc@0x780:1 promisc_mc@0x781:1 promisc_all@0x782:1
    allowed_list_type@0x785:3 allowed_list_size@0x794:12 permanent_address@0x7a0:mac_address_layout
    current_uc_mac_address@0x800:64[]
    """,
)
VLAN_LAYOUT = Layout("vlan_layout", 0x8, "vlan@0x14:12")
HCA_VPORT_CONTEXT = Layout(
    "hca_vport_context",
    0x200,
    """
    field_select@0x0:32 sm_virt_aware@0x100:1 has_smi@0x101:1 has_raw@0x102:1 grh_required@0x103:1
    num_port_plane@0x108:8 port_physical_state@0x110:4 vport_state_policy@0x114:4 port_state@0x118:4 vport_state@0x11c:4
    system_image_guid@0x140:64 port_guid@0x180:64 node_guid@0x1c0:64 cap_mask1@0x200:32 cap_mask1_field_select@0x220:32
    cap_mask2@0x240:32 cap_mask2_field_select@0x260:32 lid@0x300:16 init_type_reply@0x314:4 lmc@0x318:3
    subnet_timeout@0x31b:5 sm_lid@0x320:16 sm_sl@0x330:4 qkey_violation_counter@0x340:16 pkey_violation_counter@0x350:16
    """,
)
ESW_VPORT_CONTEXT = Layout(
    "esw_vport_context",
    0x100,
    """
    fdb_to_vport_reg_c@0x0:1 vport_svlan_strip@0x3:1 vport_cvlan_strip@0x4:1 vport_svlan_insert@0x5:1
    vport_cvlan_insert@0x6:2 fdb_to_vport_reg_c_id@0x8:8 svlan_cfi@0x40:1 svlan_pcp@0x41:3 svlan_id@0x44:12
    cvlan_cfi@0x50:1 cvlan_pcp@0x51:3 cvlan_id@0x54:12 sw_steering_vport_icm_address_rx@0x780:64
    sw_steering_vport_icm_address_tx@0x7c0:64
    """,
)
SCHEDULING_CONTEXT = Layout(
    "scheduling_context",
    0x40,
    """
    element_type@0x0:8 element_attributes@0x20:32 parent_element_id@0x40:32 bw_share@0xa0:32 max_average_bw@0xc0:32
    """,
)
VNIC_DIAGNOSTIC_STATISTICS = Layout(
    "vnic_diagnostic_statistics",
    0x200,
    """
    counter_error_queues@0x0:32 total_error_queues@0x20:32 send_queue_priority_update_flow@0x40:32
    nic_receive_steering_discard@0x80:64 receive_discard_vport_down@0xc0:64 transmit_discard_vport_down@0x100:64
    async_eq_overrun@0x140:32 comp_eq_overrun@0x160:32 invalid_command@0x1a0:32 quota_exceeded_command@0x1c0:32
    internal_rq_out_of_buffer@0x1e0:32 cq_overrun@0x200:32 eth_wqe_too_small@0x220:32
    generated_pkt_steering_fail@0x300:64 handled_pkt_steering_fail@0x340:64
    """,
)
QUERY_ADAPTER_PARAM_BLOCK = Layout(
    "query_adapter_param_block",
    0x100,
    "ieee_vendor_id@0xc8:24 vsd_vendor_id@0xf0:16 vsd@0x100:8[208] vsd_contd_psid@0x780:8[16]",
)
CONG_CONTROL_R_ROCE_ECN_NP = Layout(
    "cong_control_r_roce_ecn_np",
    0x100,
    "min_time_between_cnps@0xa0:32 cnp_dscp@0xd2:6 cnp_prio_mode@0xdc:1 cnp_802p_prio@0xdd:3",
)
CONG_CONTROL_R_ROCE_ECN_RP = Layout(
    "cong_control_r_roce_ecn_rp",
    0x100,
    """
    clamp_tgt_rate@0x64:1 clamp_tgt_rate_after_time_inc@0x68:1 rpg_time_reset@0xa0:32 rpg_byte_reset@0xc0:32
    rpg_threshold@0xe0:32 rpg_max_rate@0x100:32 rpg_ai_rate@0x120:32 rpg_hai_rate@0x140:32 rpg_gd@0x160:32
    rpg_min_dec_fac@0x180:32 rpg_min_rate@0x1a0:32 rate_to_set_on_first_cnp@0x2a0:32 dce_tcp_g@0x2c0:32
    dce_tcp_rtt@0x2e0:32 rate_reduce_monitor_period@0x300:32 initial_alpha_value@0x340:32
    """,
)
HEALTH_BUFFER = Layout(
    "health_buffer",
    0x40,
    """
    assert_existptr@0x100:32 assert_callra@0x120:32 time@0x160:32 fw_version@0x180:32 hw_id@0x1a0:32 rfr@0x1c0:1
    valid@0x1c4:1 severity@0x1c5:3 irisc_index@0x1e0:8 synd@0x1e8:8 ext_synd@0x1f0:16
    """,
)
INITIAL_SEG = Layout(
    "initial_seg",
    0x400C,
    """
    fw_rev_minor@0x0:16 fw_rev_major@0x10:16 cmd_interface_rev@0x20:16 fw_rev_subminor@0x30:16
    cmdq_phy_addr_63_32@0x80:32 cmdq_phy_addr_31_12@0xa0:20 nic_interface@0xb6:2 log_cmdq_size@0xb8:4
    log_cmdq_stride@0xbc:4 command_doorbell_vector@0xc0:32 initializing@0xfe0:1 nic_interface_supported@0xfe5:3
    embedded_cpu@0xfe8:1 health_buffer@0x1000:health_buffer no_dram_nic_offset@0x1200:32 clear_int@0x807f:1
    health_syndrome@0x8080:8 health_counter@0x8088:24
    """,
)
CMD_QUEUE_ENTRY = Layout(
    "cmd_queue_entry",
    0x40,
    """
    type@0x0:8 input_length@0x20:32 input_mailbox_pointer_63_32@0x40:32 input_mailbox_pointer_31_9@0x60:23
    command_input_inline_data@0x80:8[16] command_output_inline_data@0x100:8[16] output_mailbox_pointer_63_32@0x180:32
    output_mailbox_pointer_31_9@0x1a0:23 output_length@0x1c0:32 token@0x1e0:8 signature@0x1e8:8 status@0x1f8:7
    ownership@0x1ff:1
    """,
)
CMD_IF_BOX = Layout(
    "cmd_if_box",
    0x240,
    """
    mailbox_data@0x0:8[512] next_pointer_63_32@0x1180:32 next_pointer_31_10@0x11a0:22 block_number@0x11c0:32
    token@0x11e8:8 ctrl_signature@0x11f0:8 signature@0x11f8:8
    """,
)
TRANS_PAGE_FAULT_INFO = Layout(
    "trans_page_fault_info",
    0x8,
    "error@0x0:1 page_fault_type@0x5:3 wq_number@0x8:24 fault_token@0x28:24",
)
UCTX = Layout("uctx", 0x30, "cap@0x0:32")
RMP_BITMASK = Layout("rmp_bitmask", 0x8, "lwm@0x3f:1")
MODIFY_NIC_VPORT_FIELD_SELECT = Layout(
    "modify_nic_vport_field_select",
    0x4,
    """
    affiliation@0x12:1 disable_uc_local_lb@0x14:1 disable_mc_local_lb@0x15:1 node_guid@0x16:1 port_guid@0x17:1
    min_inline@0x18:1 mtu@0x19:1 change_event@0x1a:1 promisc@0x1b:1 permanent_address@0x1c:1 addresses_list@0x1d:1
    roce_en@0x1e:1
    """,
)
ARRAY128_AUTO = Layout("array128_auto", 0x10, "array128_auto@0x0:8[16]")
PKEY = Layout("pkey", 0x4, "pkey@0x10:16")
LAGC = Layout(
    "lagc",
    0x8,
    """
    fdb_selection_mode@0x0:1 port_select_mode@0x15:3 lag_state@0x1d:3 active_port@0x2c:4 tx_remap_affinity_2@0x34:4
    tx_remap_affinity_1@0x3c:4
    """,
)
MODIFY_TIS_BITMASK = Layout(
    "modify_tis_bitmask",
    0x8,
    "lag_tx_port_affinity@0x3d:1 strict_lag_tx_port_affinity@0x3e:1 prio@0x3f:1",
)
RQT_BITMASK = Layout("rqt_bitmask", 0x8, "rqn_list@0x3f:1")
MODIFY_TIR_BITMASK = Layout("modify_tir_bitmask", 0x8, "self_lb_en@0x3b:1 hash@0x3d:1 packet_merge@0x3f:1")
