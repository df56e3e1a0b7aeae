"""ConnectX: the registers that ACCESS_REG reads and writes.

Names, offsets and widths are those of the kernel's mlx5_ifc.h, whose struct mlx5_ifc_NAME_bits is `Layout`'s name here;
reserved fields are left out.
"""

from __future__ import annotations

from userdma.mlx5.layouts import Layout

PAOS_REG = Layout(
    "paos_reg",
    0x10,
    "swid@0x0:8 local_port@0x8:8 admin_status@0x14:4 oper_status@0x1c:4 ase@0x20:1 ee@0x21:1 e@0x3e:2",
)
PTYS_REG = Layout(
    "ptys_reg",
    0x40,
    """
    an_disable_admin@0x1:1 an_disable_cap@0x2:1 local_port@0x8:8 plane_ind@0x18:4 proto_mask@0x1d:3 an_status@0x20:4
    data_rate_oper@0x30:16 ext_eth_proto_capability@0x40:32 eth_proto_capability@0x60:32
    ib_link_width_capability@0x80:16 ib_proto_capability@0x90:16 ext_eth_proto_admin@0xa0:32 eth_proto_admin@0xc0:32
    ib_link_width_admin@0xe0:16 ib_proto_admin@0xf0:16 ext_eth_proto_oper@0x100:32 eth_proto_oper@0x120:32
    ib_link_width_oper@0x140:16 ib_proto_oper@0x150:16 connector_type@0x17c:4 eth_proto_lp_advertise@0x180:32
    """,
)
PMTU_REG = Layout("pmtu_reg", 0x10, "local_port@0x8:8 max_mtu@0x20:16 admin_mtu@0x40:16 oper_mtu@0x60:16")
PPLM_REG = Layout(
    "pplm_reg",
    0x50,
    """
    local_port@0x8:8 port_profile_mode@0x40:8 static_port_profile@0x48:8 active_port_profile@0x50:8
    retransmission_active@0x60:8 fec_mode_active@0x68:24 rs_fec_correction_bypass_cap@0x80:4 fec_override_cap_56g@0x8c:4
    fec_override_cap_100g@0x90:4 fec_override_cap_50g@0x94:4 fec_override_cap_25g@0x98:4 fec_override_cap_10g_40g@0x9c:4
    rs_fec_correction_bypass_admin@0xa0:4 fec_override_admin_56g@0xac:4 fec_override_admin_100g@0xb0:4
    fec_override_admin_50g@0xb4:4 fec_override_admin_25g@0xb8:4 fec_override_admin_10g_40g@0xbc:4
    fec_override_cap_400g_8x@0xc0:16 fec_override_cap_200g_4x@0xd0:16 fec_override_cap_100g_2x@0xe0:16
    fec_override_cap_50g_1x@0xf0:16 fec_override_admin_400g_8x@0x100:16 fec_override_admin_200g_4x@0x110:16
    fec_override_admin_100g_2x@0x120:16 fec_override_admin_50g_1x@0x130:16 fec_override_cap_800g_8x@0x140:16
    fec_override_cap_400g_4x@0x150:16 fec_override_cap_200g_2x@0x160:16 fec_override_cap_100g_1x@0x170:16
    fec_override_admin_800g_8x@0x220:16 fec_override_admin_400g_4x@0x230:16 fec_override_admin_200g_2x@0x240:16
    fec_override_admin_100g_1x@0x250:16
    """,
)
PPCNT_REG = Layout(
    "ppcnt_reg",
    0x100,
    """
    swid@0x0:8 local_port@0x8:8 pnat@0x10:2 grp@0x1a:6 clr@0x20:1 plane_ind@0x34:4 prio_tc@0x3b:5
    counter_set@0x40:8[248]
    """,
)
PCAM_REG = Layout(
    "pcam_reg",
    0x50,
    """
    feature_group@0x8:8 access_reg_group@0x18:8 port_access_reg_cap_mask@0x40:8[16] feature_cap_mask@0x140:8[16]
    """,
)
MCAM_REG = Layout(
    "mcam_reg",
    0x48,
    """
    feature_group@0x8:8 access_reg_group@0x18:8 mng_access_reg_cap_mask@0x40:8[16] mng_feature_cap_mask@0x140:8[16]
    """,
)
QCAM_REG = Layout(
    "qcam_reg",
    0x48,
    """
    feature_group@0x8:8 access_reg_group@0x18:8 qos_access_reg_cap_mask@0x40:8[16] qos_feature_cap_mask@0x140:8[16]
    """,
)
PMLP_REG = Layout(
    "pmlp_reg",
    0x40,
    """
    rxtx@0x0:1 local_port@0x8:8 width@0x18:8 lane0_module_mapping@0x20:32 lane1_module_mapping@0x40:32
    lane2_module_mapping@0x60:32 lane3_module_mapping@0x80:32
    """,
)
PCMR_REG = Layout(
    "pcmr_reg",
    0xC,
    """
    local_port@0x8:8 entropy_force_cap@0x20:1 entropy_calc_cap@0x21:1 entropy_gre_calc_cap@0x22:1
    rx_ts_over_crc_cap@0x32:1 fcs_cap@0x3e:1 entropy_force@0x40:1 entropy_calc@0x41:1 entropy_gre_calc@0x42:1
    rx_ts_over_crc@0x52:1 fcs_chk@0x5e:1
    """,
)
PFCC_REG = Layout(
    "pfcc_reg",
    0x20,
    """
    buf_ownership@0x4:2 local_port@0x8:8 ppan_mask_n@0x1b:1 minor_stall_mask@0x1c:1 critical_stall_mask@0x1d:1
    ppan@0x20:4 prio_mask_tx@0x28:8 prio_mask_rx@0x38:8 pptx@0x40:1 aptx@0x41:1 pptx_mask_n@0x42:1 pfctx@0x48:8
    pprx@0x60:1 aprx@0x61:1 pprx_mask_n@0x62:1 pfcrx@0x68:8 device_stall_minor_watermark@0x80:16
    device_stall_critical_watermark@0x90:16
    """,
)
PPLR_REG = Layout("pplr_reg", 0x8, "local_port@0x8:8 lb_cap@0x28:8 lb_en@0x38:8")
PVLC_REG = Layout("pvlc_reg", 0x10, "local_port@0x8:8 vl_hw_cap@0x3c:4 vl_admin@0x5c:4 vl_operational@0x7c:4")
PMAOS_REG = Layout(
    "pmaos_reg",
    0x10,
    "module@0x8:8 admin_status@0x14:4 oper_status@0x1c:4 ase@0x20:1 ee@0x21:1 e@0x3e:2",
)
PPTB_REG = Layout(
    "pptb_reg",
    0xC,
    """
    mm@0x2:2 local_port@0x8:8 cm@0x16:1 um@0x17:1 pm@0x18:8 prio_x_buff@0x20:32 pm_msb@0x40:8 ctrl_buff@0x58:4
    untagged_buff@0x5c:4
    """,
)
BUFFERX_REG = Layout(
    "bufferx_reg",
    0x8,
    "lossy@0x6:1 epsb@0x7:1 size@0x10:16 xoff_threshold@0x20:16 xon_threshold@0x30:16",
)
PBMC_REG = Layout(
    "pbmc_reg",
    0x6C,
    """
    local_port@0x8:8 xoff_timer_value@0x20:16 xoff_refresh@0x30:16 fullness_threshold@0x49:7 port_buffer_size@0x50:16
    buffer@0x60:bufferx_reg[10]
    """,
)
SBCAM_REG = Layout(
    "sbcam_reg",
    0x4C,
    """
    feature_group@0x8:8 access_reg_group@0x18:8 sb_access_reg_cap_mask@0x40:32[4] sb_feature_cap_mask@0x140:32[4]
    cap_total_buffer_size@0x200:32 cap_cell_size@0x220:16 cap_max_pg_buffers@0x230:8 cap_num_pool_supported@0x238:8
    cap_sbsr_stat_size@0x248:8 cap_max_tclass_data@0x250:8 cap_max_cpu_ingress_tclass_sb@0x258:8
    """,
)
QTCT_REG = Layout("qtct_reg", 0x8, "port_number@0x8:8 prio@0x1d:3 tclass@0x3d:3")
ETS_TCN_CONFIG_REG = Layout(
    "ets_tcn_config_reg",
    0x8,
    "g@0x0:1 b@0x1:1 r@0x2:1 group@0xc:4 bw_allocation@0x19:7 max_bw_units@0x2c:4 max_bw_value@0x38:8",
)
ETS_GLOBAL_CONFIG_REG = Layout("ets_global_config_reg", 0x8, "r@0x2:1 max_bw_units@0x2c:4 max_bw_value@0x38:8")
QETC_REG = Layout(
    "qetc_reg",
    0x50,
    """
    port_number@0x8:8 tc_configuration@0x40:ets_tcn_config_reg[8] global_configuration@0x240:ets_global_config_reg
    """,
)
QPTS_REG = Layout("qpts_reg", 0x8, "local_port@0x8:8 trust_state@0x3d:3")
QPDPM_DSCP_REG = Layout("qpdpm_dscp_reg", 0x2, "e@0x0:1 prio@0xc:4")
QPDPM_REG = Layout("qpdpm_reg", 0x84, "local_port@0x8:8 dscp@0x20:qpdpm_dscp_reg[64]")
DCBX_PARAM = Layout(
    "dcbx_param",
    0x40,
    """
    dcbx_cee_cap@0x0:1 dcbx_ieee_cap@0x1:1 dcbx_standby_cap@0x2:1 port_number@0x8:8 max_application_table_size@0x1a:6
    version_oper@0x35:3 version_admin@0x3d:3 willing_admin@0x40:1 pfc_cap_oper@0x44:4 pfc_cap_admin@0x4c:4
    num_of_tc_oper@0x54:4 num_of_tc_admin@0x5c:4 remote_willing@0x60:1 remote_pfc_cap@0x64:4 remote_num_of_tc@0x7c:4
    error@0x98:8
    """,
)
MTPPS_REG = Layout(
    "mtpps_reg",
    0x3C,
    """
    cap_number_of_pps_pins@0xc:4 cap_max_num_of_pps_in_pins@0x14:4 cap_max_num_of_pps_out_pins@0x1c:4
    cap_log_min_npps_period@0x33:5 cap_log_min_out_pulse_duration_ns@0x3b:5 cap_pin_3_mode@0x44:4 cap_pin_2_mode@0x4c:4
    cap_pin_1_mode@0x54:4 cap_pin_0_mode@0x5c:4 cap_pin_7_mode@0x64:4 cap_pin_6_mode@0x6c:4 cap_pin_5_mode@0x74:4
    cap_pin_4_mode@0x7c:4 field_select@0x80:32 npps_period@0xc0:64 enable@0x100:1 pattern@0x10c:4 pin_mode@0x114:4
    pin@0x118:8 out_pulse_duration_ns@0x122:30 time_stamp@0x140:64 out_pulse_duration@0x180:16
    out_periodic_adjustment@0x190:16 enhanced_out_periodic_adjustment@0x1a0:32
    """,
)
MTPPSE_REG = Layout("mtppse_reg", 0x10, "pin@0x18:8 event_arm@0x20:1 event_generation_mode@0x3c:4")
MTUTC_REG = Layout(
    "mtutc_reg",
    0x1C,
    """
    freq_adj_units@0x5:3 log_max_freq_adjustment@0xb:5 operation@0x1c:4 freq_adjustment@0x20:32 utc_sec@0x80:32
    utc_nsec@0xa2:30 time_adjustment@0xc0:32
    """,
)
MPCNT_REG = Layout("mpcnt_reg", 0x100, "pcie_index@0x8:8 grp@0x1a:6 clr@0x20:1 counter_set@0x40:8[248]")
MPEGC_REG = Layout(
    "mpegc_reg",
    0x2C,
    """
    field_select@0x30:16 tx_overflow_sense@0x40:1 mark_cqe@0x41:1 mark_cnp@0x42:1 tx_lossy_overflow_oper@0x5e:2
    """,
)
MCIA_REG = Layout(
    "mcia_reg",
    0x90,
    """
    l@0x0:1 module@0x8:8 status@0x18:8 i2c_device_address@0x20:8 page_number@0x28:8 device_address@0x30:16 size@0x50:16
    dwords@0x80:1024
    """,
)
MFRL_REG = Layout(
    "mfrl_reg",
    0x8,
    """
    pci_sync_for_fw_update_start@0x22:1 pci_sync_for_fw_update_resp@0x23:2 rst_type_sel@0x25:3
    pci_reset_req_method@0x28:3 reset_state@0x2c:4 reset_type@0x30:8 reset_level@0x38:8
    """,
)
MCQS_REG = Layout(
    "mcqs_reg",
    0x10,
    """
    last_index_flag@0x0:1 fw_device@0x8:8 component_index@0x10:16 identifier@0x30:16 component_status@0x57:5
    component_update_state@0x5c:4 last_update_state_changer_type@0x60:4 last_update_state_changer_host_id@0x64:4
    """,
)
MCQI_REG = Layout(
    "mcqi_reg",
    0x18,
    """
    read_pending_component@0x0:1 component_index@0x10:16 info_type@0x5b:5 info_size@0x60:32 offset@0x80:32
    data_size@0xb0:16 data@0xc0:8[]
    """,
)
MIRC_REG = Layout("mirc_reg", 0x8, "status_code@0x18:8")
MRTC_REG = Layout("mrtc_reg", 0x10, "time_synced@0x0:1 time_h@0x40:32 time_l@0x60:32")
MTCAP_REG = Layout("mtcap_reg", 0x10, "sensor_count@0x19:7 sensor_map@0x40:64")
MTMP_REG = Layout(
    "mtmp_reg",
    0x20,
    """
    sensor_index@0x14:12 temperature@0x30:16 mte@0x40:1 mtr@0x41:1 max_temperature@0x50:16 tee@0x60:2
    temp_threshold_hi@0x70:16 temp_threshold_lo@0x90:16 sensor_name_hi@0xc0:32 sensor_name_lo@0xe0:32
    """,
)
PDDR_REG = Layout("pddr_reg", 0x100, "local_port@0x8:8 pnat@0x10:2 page_select@0x38:8 page_data@0x40:8[248]")
MPIR_REG = Layout("mpir_reg", 0x10, "sdm@0x0:1 host_buses@0x1c:4 local_port@0x40:8")
DEFAULT_TIMEOUT = Layout("default_timeout", 0x4, "to_multiplier@0x0:3 to_value@0xc:20")
DTOR_REG = Layout(
    "dtor_reg",
    0x40,
    """
    pcie_toggle_to@0x20:default_timeout health_poll_to@0xa0:default_timeout full_crdump_to@0xc0:default_timeout
    fw_reset_to@0xe0:default_timeout flush_on_err_to@0x100:default_timeout pci_sync_update_to@0x120:default_timeout
    tear_down_to@0x140:default_timeout fsm_reactivate_to@0x160:default_timeout reclaim_pages_to@0x180:default_timeout
    reclaim_vfs_pages_to@0x1a0:default_timeout reset_unload_to@0x1c0:default_timeout
    """,
)
SBPR_REG = Layout(
    "sbpr_reg",
    0x18,
    """
    desc@0x0:1 snap@0x1:1 dir@0x6:2 pool@0x1c:4 infi_size@0x20:1 size@0x28:24 mode@0x5c:4 buff_occupancy@0x68:24
    clr@0x80:1 max_buff_occupancy@0x88:24 ext_buff_occupancy@0xa8:24
    """,
)
SBCM_REG = Layout(
    "sbcm_reg",
    0x28,
    """
    desc@0x0:1 snap@0x1:1 local_port@0x8:8 pnat@0x10:2 pg_buff@0x12:6 dir@0x1e:2 exc@0x3f:1 buff_occupancy@0x88:24
    clr@0xa0:1 max_buff_occupancy@0xa8:24 min_buff@0xc8:24 infi_max@0xe0:1 max_buff@0xe8:24 pool@0x13c:4
    """,
)
ETH_802_3_CNTRS_GRP_DATA_LAYOUT = Layout(
    "eth_802_3_cntrs_grp_data_layout",
    0xF8,
    """
    a_frames_transmitted_ok_high@0x0:32 a_frames_transmitted_ok_low@0x20:32 a_frames_received_ok_high@0x40:32
    a_frames_received_ok_low@0x60:32 a_frame_check_sequence_errors_high@0x80:32
    a_frame_check_sequence_errors_low@0xa0:32 a_alignment_errors_high@0xc0:32 a_alignment_errors_low@0xe0:32
    a_octets_transmitted_ok_high@0x100:32 a_octets_transmitted_ok_low@0x120:32 a_octets_received_ok_high@0x140:32
    a_octets_received_ok_low@0x160:32 a_multicast_frames_xmitted_ok_high@0x180:32
    a_multicast_frames_xmitted_ok_low@0x1a0:32 a_broadcast_frames_xmitted_ok_high@0x1c0:32
    a_broadcast_frames_xmitted_ok_low@0x1e0:32 a_multicast_frames_received_ok_high@0x200:32
    a_multicast_frames_received_ok_low@0x220:32 a_broadcast_frames_received_ok_high@0x240:32
    a_broadcast_frames_received_ok_low@0x260:32 a_in_range_length_errors_high@0x280:32
    a_in_range_length_errors_low@0x2a0:32 a_out_of_range_length_field_high@0x2c0:32
    a_out_of_range_length_field_low@0x2e0:32 a_frame_too_long_errors_high@0x300:32 a_frame_too_long_errors_low@0x320:32
    a_symbol_error_during_carrier_high@0x340:32 a_symbol_error_during_carrier_low@0x360:32
    a_mac_control_frames_transmitted_high@0x380:32 a_mac_control_frames_transmitted_low@0x3a0:32
    a_mac_control_frames_received_high@0x3c0:32 a_mac_control_frames_received_low@0x3e0:32
    a_unsupported_opcodes_received_high@0x400:32 a_unsupported_opcodes_received_low@0x420:32
    a_pause_mac_ctrl_frames_received_high@0x440:32 a_pause_mac_ctrl_frames_received_low@0x460:32
    a_pause_mac_ctrl_frames_transmitted_high@0x480:32 a_pause_mac_ctrl_frames_transmitted_low@0x4a0:32
    """,
)
ETH_2863_CNTRS_GRP_DATA_LAYOUT = Layout(
    "eth_2863_cntrs_grp_data_layout",
    0xF8,
    """
    if_in_octets_high@0x0:32 if_in_octets_low@0x20:32 if_in_ucast_pkts_high@0x40:32 if_in_ucast_pkts_low@0x60:32
    if_in_discards_high@0x80:32 if_in_discards_low@0xa0:32 if_in_errors_high@0xc0:32 if_in_errors_low@0xe0:32
    if_in_unknown_protos_high@0x100:32 if_in_unknown_protos_low@0x120:32 if_out_octets_high@0x140:32
    if_out_octets_low@0x160:32 if_out_ucast_pkts_high@0x180:32 if_out_ucast_pkts_low@0x1a0:32
    if_out_discards_high@0x1c0:32 if_out_discards_low@0x1e0:32 if_out_errors_high@0x200:32 if_out_errors_low@0x220:32
    if_in_multicast_pkts_high@0x240:32 if_in_multicast_pkts_low@0x260:32 if_in_broadcast_pkts_high@0x280:32
    if_in_broadcast_pkts_low@0x2a0:32 if_out_multicast_pkts_high@0x2c0:32 if_out_multicast_pkts_low@0x2e0:32
    if_out_broadcast_pkts_high@0x300:32 if_out_broadcast_pkts_low@0x320:32
    """,
)
ETH_2819_CNTRS_GRP_DATA_LAYOUT = Layout(
    "eth_2819_cntrs_grp_data_layout",
    0xF8,
    """
    ether_stats_drop_events_high@0x0:32 ether_stats_drop_events_low@0x20:32 ether_stats_octets_high@0x40:32
    ether_stats_octets_low@0x60:32 ether_stats_pkts_high@0x80:32 ether_stats_pkts_low@0xa0:32
    ether_stats_broadcast_pkts_high@0xc0:32 ether_stats_broadcast_pkts_low@0xe0:32
    ether_stats_multicast_pkts_high@0x100:32 ether_stats_multicast_pkts_low@0x120:32
    ether_stats_crc_align_errors_high@0x140:32 ether_stats_crc_align_errors_low@0x160:32
    ether_stats_undersize_pkts_high@0x180:32 ether_stats_undersize_pkts_low@0x1a0:32
    ether_stats_oversize_pkts_high@0x1c0:32 ether_stats_oversize_pkts_low@0x1e0:32 ether_stats_fragments_high@0x200:32
    ether_stats_fragments_low@0x220:32 ether_stats_jabbers_high@0x240:32 ether_stats_jabbers_low@0x260:32
    ether_stats_collisions_high@0x280:32 ether_stats_collisions_low@0x2a0:32 ether_stats_pkts64octets_high@0x2c0:32
    ether_stats_pkts64octets_low@0x2e0:32 ether_stats_pkts65to127octets_high@0x300:32
    ether_stats_pkts65to127octets_low@0x320:32 ether_stats_pkts128to255octets_high@0x340:32
    ether_stats_pkts128to255octets_low@0x360:32 ether_stats_pkts256to511octets_high@0x380:32
    ether_stats_pkts256to511octets_low@0x3a0:32 ether_stats_pkts512to1023octets_high@0x3c0:32
    ether_stats_pkts512to1023octets_low@0x3e0:32 ether_stats_pkts1024to1518octets_high@0x400:32
    ether_stats_pkts1024to1518octets_low@0x420:32 ether_stats_pkts1519to2047octets_high@0x440:32
    ether_stats_pkts1519to2047octets_low@0x460:32 ether_stats_pkts2048to4095octets_high@0x480:32
    ether_stats_pkts2048to4095octets_low@0x4a0:32 ether_stats_pkts4096to8191octets_high@0x4c0:32
    ether_stats_pkts4096to8191octets_low@0x4e0:32 ether_stats_pkts8192to10239octets_high@0x500:32
    ether_stats_pkts8192to10239octets_low@0x520:32
    """,
)
ETH_PER_PRIO_GRP_DATA_LAYOUT = Layout(
    "eth_per_prio_grp_data_layout",
    0xF8,
    """
    rx_octets_high@0x0:32 rx_octets_low@0x20:32 rx_frames_high@0x100:32 rx_frames_low@0x120:32 tx_octets_high@0x140:32
    tx_octets_low@0x160:32 tx_frames_high@0x240:32 tx_frames_low@0x260:32 rx_pause_high@0x280:32 rx_pause_low@0x2a0:32
    rx_pause_duration_high@0x2c0:32 rx_pause_duration_low@0x2e0:32 tx_pause_high@0x300:32 tx_pause_low@0x320:32
    tx_pause_duration_high@0x340:32 tx_pause_duration_low@0x360:32 rx_pause_transition_high@0x380:32
    rx_pause_transition_low@0x3a0:32 rx_discards_high@0x3c0:32 rx_discards_low@0x3e0:32
    device_stall_minor_watermark_cnt_high@0x400:32 device_stall_minor_watermark_cnt_low@0x420:32
    device_stall_critical_watermark_cnt_high@0x440:32 device_stall_critical_watermark_cnt_low@0x460:32
    """,
)
PHYS_LAYER_CNTRS = Layout(
    "phys_layer_cntrs",
    0xF8,
    """
    time_since_last_clear_high@0x0:32 time_since_last_clear_low@0x20:32 symbol_errors_high@0x40:32
    symbol_errors_low@0x60:32 sync_headers_errors_high@0x80:32 sync_headers_errors_low@0xa0:32
    edpl_bip_errors_lane0_high@0xc0:32 edpl_bip_errors_lane0_low@0xe0:32 edpl_bip_errors_lane1_high@0x100:32
    edpl_bip_errors_lane1_low@0x120:32 edpl_bip_errors_lane2_high@0x140:32 edpl_bip_errors_lane2_low@0x160:32
    edpl_bip_errors_lane3_high@0x180:32 edpl_bip_errors_lane3_low@0x1a0:32 fc_fec_corrected_blocks_lane0_high@0x1c0:32
    fc_fec_corrected_blocks_lane0_low@0x1e0:32 fc_fec_corrected_blocks_lane1_high@0x200:32
    fc_fec_corrected_blocks_lane1_low@0x220:32 fc_fec_corrected_blocks_lane2_high@0x240:32
    fc_fec_corrected_blocks_lane2_low@0x260:32 fc_fec_corrected_blocks_lane3_high@0x280:32
    fc_fec_corrected_blocks_lane3_low@0x2a0:32 fc_fec_uncorrectable_blocks_lane0_high@0x2c0:32
    fc_fec_uncorrectable_blocks_lane0_low@0x2e0:32 fc_fec_uncorrectable_blocks_lane1_high@0x300:32
    fc_fec_uncorrectable_blocks_lane1_low@0x320:32 fc_fec_uncorrectable_blocks_lane2_high@0x340:32
    fc_fec_uncorrectable_blocks_lane2_low@0x360:32 fc_fec_uncorrectable_blocks_lane3_high@0x380:32
    fc_fec_uncorrectable_blocks_lane3_low@0x3a0:32 rs_fec_corrected_blocks_high@0x3c0:32
    rs_fec_corrected_blocks_low@0x3e0:32 rs_fec_uncorrectable_blocks_high@0x400:32
    rs_fec_uncorrectable_blocks_low@0x420:32 rs_fec_no_errors_blocks_high@0x440:32 rs_fec_no_errors_blocks_low@0x460:32
    rs_fec_single_error_blocks_high@0x480:32 rs_fec_single_error_blocks_low@0x4a0:32
    rs_fec_corrected_symbols_total_high@0x4c0:32 rs_fec_corrected_symbols_total_low@0x4e0:32
    rs_fec_corrected_symbols_lane0_high@0x500:32 rs_fec_corrected_symbols_lane0_low@0x520:32
    rs_fec_corrected_symbols_lane1_high@0x540:32 rs_fec_corrected_symbols_lane1_low@0x560:32
    rs_fec_corrected_symbols_lane2_high@0x580:32 rs_fec_corrected_symbols_lane2_low@0x5a0:32
    rs_fec_corrected_symbols_lane3_high@0x5c0:32 rs_fec_corrected_symbols_lane3_low@0x5e0:32 link_down_events@0x600:32
    successful_recovery_events@0x620:32
    """,
)
IB_PORT_CNTRS_GRP_DATA_LAYOUT = Layout(
    "ib_port_cntrs_grp_data_layout",
    0x28,
    """
    symbol_error_counter@0x0:16 link_error_recovery_counter@0x10:8 link_downed_counter@0x18:8 port_rcv_errors@0x20:16
    port_rcv_remote_physical_errors@0x30:16 port_rcv_switch_relay_errors@0x40:16 port_xmit_discards@0x50:16
    port_xmit_constraint_errors@0x60:8 port_rcv_constraint_errors@0x68:8 link_overrun_errors@0x78:8
    vl_15_dropped@0x90:16 port_xmit_wait@0x120:32
    """,
)
ETH_EXTENDED_CNTRS_GRP_DATA_LAYOUT = Layout(
    "eth_extended_cntrs_grp_data_layout",
    0xF8,
    """
    port_transmit_wait_high@0x0:32 port_transmit_wait_low@0x20:32 rx_buffer_almost_full_high@0x140:32
    rx_buffer_almost_full_low@0x160:32 rx_buffer_full_high@0x180:32 rx_buffer_full_low@0x1a0:32
    rx_icrc_encapsulated_high@0x1c0:32 rx_icrc_encapsulated_low@0x1e0:32
    """,
)
PHYS_LAYER_STATISTICAL_CNTRS = Layout(
    "phys_layer_statistical_cntrs",
    0xF8,
    """
    time_since_last_clear_high@0x0:32 time_since_last_clear_low@0x20:32 phy_received_bits_high@0x40:32
    phy_received_bits_low@0x60:32 phy_symbol_errors_high@0x80:32 phy_symbol_errors_low@0xa0:32
    phy_corrected_bits_high@0xc0:32 phy_corrected_bits_low@0xe0:32 phy_corrected_bits_lane0_high@0x100:32
    phy_corrected_bits_lane0_low@0x120:32 phy_corrected_bits_lane1_high@0x140:32 phy_corrected_bits_lane1_low@0x160:32
    phy_corrected_bits_lane2_high@0x180:32 phy_corrected_bits_lane2_low@0x1a0:32 phy_corrected_bits_lane3_high@0x1c0:32
    phy_corrected_bits_lane3_low@0x1e0:32
    """,
)
PCIE_PERF_CNTRS_GRP_DATA_LAYOUT = Layout(
    "pcie_perf_cntrs_grp_data_layout",
    0xF8,
    """
    life_time_counter_high@0x0:32 life_time_counter_low@0x20:32 rx_errors@0x40:32 tx_errors@0x60:32
    l0_to_recovery_eieos@0x80:32 l0_to_recovery_ts@0xa0:32 l0_to_recovery_framing@0xc0:32 l0_to_recovery_retrain@0xe0:32
    crc_error_dllp@0x100:32 crc_error_tlp@0x120:32 tx_overflow_buffer_pkt_high@0x140:32
    tx_overflow_buffer_pkt_low@0x160:32 outbound_stalled_reads@0x180:32 outbound_stalled_writes@0x1a0:32
    outbound_stalled_reads_events@0x1c0:32 outbound_stalled_writes_events@0x1e0:32
    """,
)
