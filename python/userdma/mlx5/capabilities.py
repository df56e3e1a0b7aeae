"""ConnectX: what a function can do, as QUERY_HCA_CAP answers and SET_HCA_CAP takes it, a page of 4096 bytes a kind.

Names, offsets and widths are those of the kernel's mlx5_ifc.h, whose struct mlx5_ifc_NAME_bits is `Layout`'s name here;
reserved fields are left out.
"""

from __future__ import annotations

from userdma.mlx5.layouts import Layout

CMD_HCA_CAP = Layout(
    "cmd_hca_cap",
    0x100,
    """
    page_request_disable@0x6:1 shared_object_to_user_object_allowed@0x10:1 vhca_resource_manager@0x1f:1 hca_cap_2@0x20:1
    create_lag_when_not_master_up@0x21:1 dtor@0x22:1 event_on_vhca_state_teardown_request@0x23:1
    event_on_vhca_state_in_use@0x24:1 event_on_vhca_state_active@0x25:1 event_on_vhca_state_allocated@0x26:1
    event_on_vhca_state_invalid@0x27:1 vhca_id@0x30:16 log_max_srq_sz@0x80:8 log_max_qp_sz@0x88:8 event_cap@0x90:1
    isolate_vl_tc_new@0x93:1 prio_tag_required@0x98:1 log_max_qp@0x9b:5 ece_support@0xa3:1 reg_c_preserve@0xa9:1
    log_max_srq@0xab:5 uplink_follow@0xb1:1 ts_cqe_to_dest_cqn@0xb2:1 go_back_n@0xb9:1
    max_sgl_for_optimized_performance@0xc0:8 log_max_cq_sz@0xc8:8 relaxed_ordering_write_umr@0xd0:1
    relaxed_ordering_read_umr@0xd1:1 virtio_net_device_emualtion_manager@0xd9:1
    virtio_blk_device_emualtion_manager@0xda:1 log_max_cq@0xdb:5 log_max_eq_sz@0xe0:8 relaxed_ordering_write@0xe8:1
    relaxed_ordering_read_pci_enabled@0xe9:1 log_max_mkey@0xea:6 terminate_scatter_list_mkey@0xf6:1 repeated_mkey@0xf7:1
    dump_fill_mkey@0xf8:1 fast_teardown@0xfb:1 log_max_eq@0xfc:4 max_indirection@0x100:8 fixed_buffer_size@0x108:1
    log_max_mrw_sz@0x109:7 force_teardown@0x110:1 log_max_bsf_list_size@0x112:6 umr_extended_translation_offset@0x118:1
    null_mkey@0x119:1 log_max_klm_list_size@0x11a:6 qpc_extension@0x122:1 log_max_ra_req_dc@0x12a:6
    eth_wqe_too_small@0x132:1 vnic_env_cq_overrun@0x139:1 log_max_ra_res_dc@0x13a:6 release_all_pages@0x145:1
    must_not_use@0x146:1 roce_accl@0x149:1 log_max_ra_req_qp@0x14a:6 log_max_ra_res_qp@0x15a:6 end_pad@0x160:1
    cc_query_allowed@0x161:1 cc_modify_allowed@0x162:1 start_pad@0x163:1 cache_line_128byte@0x164:1
    rts2rts_qp_counters_set_id@0x169:1 vnic_env_int_rq_oob@0x16c:1 sbcam_reg@0x16d:1 qcam_reg@0x16f:1
    gid_table_size@0x170:16 out_of_seq_cnt@0x180:1 vport_counters@0x181:1 retransmission_q_counters@0x182:1
    debug@0x183:1 modify_rq_counter_set_id@0x184:1 rq_delay_drop@0x185:1 max_qp_cnt@0x186:10 pkey_table_size@0x190:16
    vport_group_manager@0x1a0:1 vhca_group_manager@0x1a1:1 ib_virt@0x1a2:1 eth_virt@0x1a3:1
    vnic_env_queue_counters@0x1a4:1 ets@0x1a5:1 nic_flow_table@0x1a6:1 eswitch_manager@0x1a7:1 device_memory@0x1a8:1
    mcam_reg@0x1a9:1 pcam_reg@0x1aa:1 local_ca_ack_delay@0x1ab:5 port_module_event@0x1b0:1
    enhanced_error_q_counters@0x1b1:1 ports_check@0x1b2:1 disable_link_up@0x1b4:1 beacon_led@0x1b5:1 port_type@0x1b6:2
    num_ports@0x1b8:8 pps@0x1c1:1 pps_modify@0x1c2:1 log_max_msg@0x1c3:5 max_tc@0x1cc:4 temp_warn_event@0x1d0:1
    dcbx@0x1d1:1 general_notification_event@0x1d2:1 fpga@0x1d5:1 rol_s@0x1d6:1 rol_g@0x1d7:1 wol_s@0x1d9:1 wol_g@0x1da:1
    wol_a@0x1db:1 wol_b@0x1dc:1 wol_m@0x1dd:1 wol_u@0x1de:1 wol_p@0x1df:1 stat_rate_support@0x1e0:16
    pci_sync_for_fw_update_event@0x1f1:1 init2_lag_tx_port_affinity@0x1f8:1 wqe_based_flow_table_update_cap@0x1fb:1
    cqe_version@0x1fc:4 compact_address_vector@0x200:1 striding_rq@0x201:1 ipoib_enhanced_offloads@0x203:1
    ipoib_basic_offloads@0x204:1 repeated_block_disabled@0x206:1 umr_modify_entity_size_disabled@0x207:1
    umr_modify_atomic_disabled@0x208:1 umr_indirect_mkey_disabled@0x209:1 umr_fence@0x20a:2 dc_req_scat_data_cqe@0x20c:1
    drain_sigerr@0x20f:1 cmdif_checksum@0x210:2 sigerr_cqe@0x212:1 wq_signature@0x214:1 sctr_data_cqe@0x215:1
    sho@0x217:1 tph@0x218:1 rf@0x219:1 dct@0x21a:1 qos@0x21b:1 eth_net_offloads@0x21c:1 roce@0x21d:1 atomic@0x21e:1
    cq_oi@0x220:1 cq_resize@0x221:1 cq_moderation@0x222:1 cq_period_mode_modify@0x223:1 cq_eq_remap@0x226:1 pg@0x227:1
    block_lb_mc@0x228:1 scqe_break_moderation@0x22a:1 cq_period_start_from_cqe@0x22b:1 cd@0x22c:1 apm@0x22e:1
    vector_calc@0x22f:1 umr_ptr_rlky@0x230:1 imaicl@0x231:1 qp_packet_based@0x232:1 qkv@0x236:1 pkv@0x237:1
    set_deth_sqpn@0x238:1 xrc@0x23c:1 ud@0x23d:1 uc@0x23e:1 rc@0x23f:1 uar_4k@0x240:1
    fl_rc_qp_when_roce_disabled@0x248:1 regexp_params@0x249:1 uar_sz@0x24a:6 port_selection_cap@0x250:1
    umem_uid_0@0x252:1 log_pg_sz@0x258:8 bf@0x260:1 driver_version@0x261:1 pad_tx_eth_packet@0x262:1
    mkey_by_name@0x266:1 log_bf_reg_size@0x26b:5 qp_error_syndrome@0x273:1 lag_dct@0x276:2 lag_tx_port_affinity@0x278:1
    lag_native_fdb_selection@0x279:1 lag_master@0x27b:1 num_lag_ports@0x27c:4 max_wqe_sz_sq@0x290:16 shampo@0x2ab:1
    max_wqe_sz_rq@0x2b0:16 max_flow_counter_31_16@0x2c0:16 max_wqe_sz_sq_dc@0x2d0:16 max_qp_mcg@0x2e7:25
    flow_counter_bulk_alloc@0x310:8 log_max_mcg@0x318:8 log_max_transport_domain@0x323:5 relaxed_ordering_read@0x32a:1
    log_max_pd@0x32b:5 pcie_reset_using_hotreset_method@0x335:1 pci_sync_for_fw_update_with_driver_unload@0x336:1
    vnic_env_cnt_steering_fail@0x337:1 vport_counter_local_loopback@0x338:1 q_counter_aggregation@0x339:1
    q_counter_other_vport@0x33a:1 log_max_xrcd@0x33b:5 nic_receive_steering_discard@0x340:1
    receive_discard_vport_down@0x341:1 transmit_discard_vport_down@0x342:1 eq_overrun_count@0x343:1
    invalid_command_count@0x345:1 quota_exceeded_count@0x346:1 log_max_flow_counter_bulk@0x348:8
    max_flow_counter_15_0@0x350:16 log_max_rq@0x363:5 log_max_sq@0x36b:5 log_max_tir@0x373:5 log_max_tis@0x37b:5
    basic_cyclic_rcv_wqe@0x380:1 log_max_rmp@0x383:5 log_max_rqt@0x38b:5 log_max_rqt_size@0x393:5
    log_max_tis_per_sq@0x39b:5 ext_stride_num_range@0x3a0:1 roce_rw_supported@0x3a1:1
    log_max_current_uc_list_wr_supported@0x3a2:1 log_max_stride_sz_rq@0x3a3:5 log_min_stride_sz_rq@0x3ab:5
    log_max_stride_sz_sq@0x3b3:5 log_min_stride_sz_sq@0x3bb:5 hairpin@0x3c0:1 log_max_hairpin_queues@0x3c3:5
    log_max_hairpin_wq_data_sz@0x3cb:5 log_max_hairpin_num_packets@0x3d3:5 log_max_wq_sz@0x3db:5
    nic_vport_change_event@0x3e0:1 disable_local_lb_uc@0x3e1:1 disable_local_lb_mc@0x3e2:1
    log_min_hairpin_wq_data_sz@0x3e3:5 silent_mode@0x3e9:1 vhca_state@0x3ea:1 log_max_vlan_list@0x3eb:5
    log_max_current_mc_list@0x3f3:5 log_max_current_uc_list@0x3fb:5 general_obj_types@0x400:64 sq_ts_format@0x440:2
    rq_ts_format@0x442:2 steering_format_version@0x444:4 create_qp_start_hint@0x448:24 ats@0x461:1
    cross_vhca_rqt@0x462:1 log_max_uctx@0x463:5 crypto@0x469:1 ipsec_offload@0x46a:1 log_max_umem@0x46b:5
    max_num_eqs@0x470:16 tls_tx@0x481:1 tls_rx@0x482:1 log_max_l2_table@0x483:5 log_uar_page_sz@0x490:16
    device_frequency_mhz@0x4c0:32 device_frequency_khz@0x4e0:32 num_of_uars_per_page@0x520:32
    flex_parser_protocols@0x540:32 max_geneve_tlv_options@0x560:8 max_geneve_tlv_option_data_len@0x56b:5
    adv_virtualization@0x579:1 log_max_dci_stream_channels@0x58b:5 log_max_dci_errored_streams@0x593:5
    enhanced_cqe_compression@0x5b0:1 crossing_vhca_mkey@0x5b2:1 log_max_dek@0x5b3:5 mini_cqe_resp_stride_index@0x5bc:1
    cqe_128_always@0x5bd:1 cqe_compression_128@0x5be:1 cqe_compression@0x5bf:1 cqe_compression_timeout@0x5c0:16
    cqe_compression_max_num@0x5d0:16 flex_parser_id_gtpu_dw_0@0x5e8:4 tag_matching@0x5f0:1 rndv_offload_rc@0x5f1:1
    rndv_offload_dc@0x5f2:1 log_tag_matching_list_sz@0x5f3:5 log_max_xrq@0x5fb:5 affiliate_nic_vport_criteria@0x600:8
    native_port_num@0x608:8 num_vhca_ports@0x610:8 flex_parser_id_gtpu_teid@0x618:4 sw_owner_id@0x61e:1
    max_num_of_monitor_counters@0x620:16 num_ppcnt_monitor_counters@0x630:16 max_num_sf@0x640:16
    num_q_monitor_counters@0x650:16 sf@0x680:1 sf_set_partition@0x681:1 log_max_sf@0x683:5 apu@0x688:1 migration@0x68d:1
    log_min_sf_size@0x690:8 max_num_sf_partitions@0x698:8 uctx_cap@0x6a0:32 flex_parser_id_geneve_tlv_option_0@0x6c4:4
    flex_parser_id_icmp_dw1@0x6c8:4 flex_parser_id_icmp_dw0@0x6cc:4 flex_parser_id_icmpv6_dw1@0x6d0:4
    flex_parser_id_icmpv6_dw0@0x6d4:4 flex_parser_id_outer_first_mpls_over_gre@0x6d8:4
    flex_parser_id_outer_first_mpls_over_udp_label@0x6dc:4 max_num_match_definer@0x6e0:16 sf_base_id@0x6f0:16
    flex_parser_id_gtpu_dw_2@0x700:4 flex_parser_id_gtpu_first_ext_dw_0@0x704:4 num_total_dynamic_vf_msix@0x708:24
    dynamic_msix_table_size@0x734:12 min_dynamic_vf_msix_table_size@0x74c:4 data_direct@0x752:1
    max_dynamic_vf_msix_table_size@0x754:12 log_max_num_header_modify_argument@0x763:5
    log_header_modify_argument_granularity_offset@0x768:4 log_header_modify_argument_granularity@0x76c:4
    log_header_modify_argument_max_alloc@0x773:5 vhca_tunnel_commands@0x780:64 match_definer_format_supported@0x7c0:64
    """,
)
CMD_HCA_CAP_2 = Layout(
    "cmd_hca_cap_2",
    0x100,
    """
    migratable@0x80:1 query_vuid@0x92:1 umr_log_entity_size_5@0x98:1 max_reformat_insert_size@0xa0:8
    max_reformat_insert_offset@0xa8:8 max_reformat_remove_size@0xb0:8 max_reformat_remove_offset@0xb8:8
    migration_multi_load@0xc8:1 migration_tracking_state@0xc9:1 multiplane_qp_ud@0xca:1 migration_in_chunks@0xd0:1
    sf_eq_usage@0xd2:1 multiplane@0xd8:1 cross_vhca_object_to_object_supported@0xe0:32
    allowed_object_for_other_vhca_access@0x100:64 flow_table_type_2_type@0x1a0:8 format_select_dw_8_6_ext@0x1aa:1
    log_min_mkey_entity_size@0x1ab:5 sw_vhca_id_valid@0x221:1 sw_vhca_id@0x222:14
    ts_cqe_metadata_size2wqe_counter@0x24b:5 format_select_dw_gtpu_dw_0@0x280:8 format_select_dw_gtpu_dw_1@0x288:8
    format_select_dw_gtpu_dw_2@0x290:8 format_select_dw_gtpu_first_ext_dw_0@0x298:8 generate_wqe_type@0x2a0:32
    min_mkey_log_entity_size_fixed_buffer@0x38b:5 ec_vf_vport_base@0x390:16 max_mkey_log_entity_size_mtt@0x3aa:6
    max_rqt_vhca_id@0x3b0:16 pcc_ifa2@0x3f0:1 min_mkey_log_entity_size_fixed_buffer_valid@0x401:1 return_reg_id@0x410:16
    flow_table_hash_type@0x43c:4 max_num_eqs_24b@0x448:24
    """,
)
PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS = Layout(
    "per_protocol_networking_offload_caps",
    0x100,
    """
    csum_cap@0x0:1 vlan_cap@0x1:1 lro_cap@0x2:1 lro_psh_flag@0x3:1 lro_time_stamp@0x4:1 wqe_vlan_insert@0x7:1
    self_lb_en_modifiable@0x8:1 max_lso_cap@0xb:5 multi_pkt_send_wqe@0x10:2 wqe_inline_mode@0x12:2
    rss_ind_tbl_cap@0x14:4 reg_umr_sq@0x18:1 scatter_fcs@0x19:1 enhanced_multi_pkt_send_wqe@0x1a:1
    tunnel_lso_const_out_ip_id@0x1b:1 tunnel_lro_gre@0x1c:1 tunnel_lro_vxlan@0x1d:1 tunnel_stateless_gre@0x1e:1
    tunnel_stateless_vxlan@0x1f:1 swp@0x20:1 swp_csum@0x21:1 swp_lso@0x22:1 cqe_checksum_full@0x23:1
    tunnel_stateless_geneve_tx@0x24:1 tunnel_stateless_mpls_over_udp@0x25:1 tunnel_stateless_mpls_over_gre@0x26:1
    tunnel_stateless_vxlan_gpe@0x27:1 tunnel_stateless_ipv4_over_vxlan@0x28:1 tunnel_stateless_ip_over_ip@0x29:1
    insert_trailer@0x2a:1 tunnel_stateless_ip_over_ip_rx@0x2c:1 tunnel_stateless_ip_over_ip_tx@0x2d:1
    max_vxlan_udp_ports@0x30:8 swp_csum_l4_partial@0x38:1 max_geneve_opt_len@0x3e:1 tunnel_stateless_geneve_rx@0x3f:1
    lro_min_mss_size@0x50:16 lro_timer_supported_periods@0x180:32[4]
    """,
)
ODP_PER_TRANSPORT_SERVICE_CAP = Layout(
    "odp_per_transport_service_cap",
    0x4,
    "send@0x0:1 receive@0x1:1 write@0x2:1 read@0x3:1 atomic@0x4:1 srq_receive@0x5:1",
)
ODP_SCHEME_CAP = Layout(
    "odp_scheme_cap",
    0x40,
    """
    sig@0x40:1 page_prefetch@0x45:1 rc_odp_caps@0x80:odp_per_transport_service_cap
    uc_odp_caps@0xa0:odp_per_transport_service_cap ud_odp_caps@0xc0:odp_per_transport_service_cap
    xrc_odp_caps@0xe0:odp_per_transport_service_cap dc_odp_caps@0x100:odp_per_transport_service_cap
    """,
)
ODP_CAP = Layout(
    "odp_cap",
    0x100,
    """
    transport_page_fault_scheme_cap@0x0:odp_scheme_cap memory_page_fault_scheme_cap@0x200:odp_scheme_cap
    mem_page_fault@0x600:1
    """,
)
ATOMIC_CAPS = Layout(
    "atomic_caps",
    0x100,
    """
    atomic_req_8B_endianness_mode@0x40:2 supported_atomic_req_8B_endianness_mode_1@0x46:1 atomic_operations@0x90:16
    atomic_size_qp@0xb0:16 atomic_size_dc@0xd0:16
    """,
)
ROCE_CAP = Layout(
    "roce_cap",
    0x100,
    """
    roce_apm@0x0:1 sw_r_roce_src_udp_port@0x4:1 fl_rc_qp_when_roce_disabled@0x5:1 fl_rc_qp_when_roce_enabled@0x6:1
    roce_cc_general@0x7:1 qp_ooo_transmit_default@0x8:1 qp_ts_format@0x1e:2 l3_type@0x8c:4 roce_version@0x98:8
    r_roce_dest_udp_port@0xb0:16 r_roce_max_src_udp_port@0xc0:16 r_roce_min_src_udp_port@0xd0:16
    roce_address_table_size@0xf0:16
    """,
)
FLOW_TABLE_FIELDS_SUPPORTED_2 = Layout(
    "flow_table_fields_supported_2",
    0x10,
    "inner_l4_type@0x2:1 outer_l4_type@0x3:1 bth_opcode@0xe:1 tunnel_header_0_1@0x10:1",
)
FLOW_TABLE_NIC_CAP = Layout(
    "flow_table_nic_cap",
    0x1000,
    """
    nic_rx_multi_path_tirs@0x0:1 nic_rx_multi_path_tirs_fts@0x1:1 allow_sniffer_and_nic_rx_shared_tir@0x2:1
    sw_owner_reformat_supported@0x7:1 encap_general_header@0x20:1 log_max_packet_reformat_context@0x2b:5
    max_encap_header_size@0x36:10 flow_table_properties_nic_receive@0x200:flow_table_prop_layout
    flow_table_properties_nic_receive_rdma@0x400:flow_table_prop_layout
    flow_table_properties_nic_receive_sniffer@0x600:flow_table_prop_layout
    flow_table_properties_nic_transmit@0x800:flow_table_prop_layout
    flow_table_properties_nic_transmit_rdma@0xa00:flow_table_prop_layout
    flow_table_properties_nic_transmit_sniffer@0xc00:flow_table_prop_layout
    ft_field_support_2_nic_receive@0x1400:flow_table_fields_supported_2
    ft_field_support_2_nic_receive_rdma@0x1500:flow_table_fields_supported_2
    ft_field_support_2_nic_transmit_rdma@0x1800:flow_table_fields_supported_2
    sw_steering_nic_rx_action_drop_icm_address@0x2000:64 sw_steering_nic_tx_action_drop_icm_address@0x2040:64
    sw_steering_nic_tx_action_allow_icm_address@0x2080:64
    """,
)
QOS_CAP = Layout(
    "qos_cap",
    0x100,
    """
    packet_pacing@0x0:1 esw_scheduling@0x1:1 esw_bw_share@0x2:1 esw_rate_limit@0x3:1 packet_pacing_burst_bound@0x5:1
    packet_pacing_typical_size@0x6:1 nic_sq_scheduling@0x8:1 nic_bw_share@0x9:1 nic_rate_limit@0xa:1
    packet_pacing_uid@0xb:1 log_esw_max_sched_depth@0xc:4 log_max_qos_nic_queue_group@0x2b:5
    packet_pacing_max_rate@0x40:32 packet_pacing_min_rate@0x60:32 packet_pacing_rate_table_size@0x90:16
    esw_element_type@0xa0:16 esw_tsar_type@0xb0:16 max_qos_para_vport@0xd0:16 max_tsar_bw_share@0xe0:32
    nic_element_type@0x100:16 nic_tsar_type@0x110:16 log_meter_aso_granularity@0x123:5 log_meter_aso_max_alloc@0x12b:5
    log_max_num_meter_aso@0x133:5
    """,
)
DEBUG_CAP = Layout(
    "debug_cap",
    0x100,
    "core_dump_general@0x0:1 core_dump_qp@0x1:1 resource_dump@0x9:1 stall_detect@0x22:1",
)
