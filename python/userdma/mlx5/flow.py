"""ConnectX: how packets are matched and what becomes of them: the contexts of flow tables, groups and entries.

Names, offsets and widths are those of the kernel's mlx5_ifc.h, whose struct mlx5_ifc_NAME_bits is `Layout`'s name here;
reserved fields are left out. What a flow context's list holds depends on its action, so it is bytes: destinations
(DEST_FORMAT), destinations with packet reformat (EXTENDED_DEST_FORMAT) and counters (FLOW_COUNTER_LIST).
"""

from __future__ import annotations

from userdma.mlx5.layouts import Layout

FTE_MATCH_SET_LYR_2_4 = Layout(
    "fte_match_set_lyr_2_4",
    0x40,
    """
    smac_47_16@0x0:32 smac_15_0@0x20:16 ethertype@0x30:16 dmac_47_16@0x40:32 dmac_15_0@0x60:16 first_prio@0x70:3
    first_cfi@0x73:1 first_vid@0x74:12 ip_protocol@0x80:8 ip_dscp@0x88:6 ip_ecn@0x8e:2 cvlan_tag@0x90:1 svlan_tag@0x91:1
    frag@0x92:1 ip_version@0x93:4 tcp_flags@0x97:9 tcp_sport@0xa0:16 tcp_dport@0xb0:16 l4_type@0xc0:2 ipv4_ihl@0xd0:4
    ttl_hoplimit@0xd8:8 udp_sport@0xe0:16 udp_dport@0xf0:16 src_ipv4_src_ipv6@0x100:8[16] dst_ipv4_dst_ipv6@0x180:8[16]
    """,
)
FTE_MATCH_SET_MISC = Layout(
    "fte_match_set_misc",
    0x40,
    """
    gre_c_present@0x0:1 gre_k_present@0x2:1 gre_s_present@0x3:1 source_vhca_port@0x4:4 source_sqn@0x8:24
    source_eswitch_owner_vhca_id@0x20:16 source_port@0x30:16 outer_second_prio@0x40:3 outer_second_cfi@0x43:1
    outer_second_vid@0x44:12 inner_second_prio@0x50:3 inner_second_cfi@0x53:1 inner_second_vid@0x54:12
    outer_second_cvlan_tag@0x60:1 inner_second_cvlan_tag@0x61:1 outer_second_svlan_tag@0x62:1
    inner_second_svlan_tag@0x63:1 gre_protocol@0x70:16 gre_key@0x80:8[4] vxlan_vni@0xa0:24 bth_opcode@0xb8:8
    geneve_vni@0xc0:24 geneve_tlv_option_0_exist@0xde:1 geneve_oam@0xdf:1 outer_ipv6_flow_label@0xec:20
    inner_ipv6_flow_label@0x10c:20 geneve_opt_len@0x12a:6 geneve_protocol_type@0x130:16 bth_dst_qp@0x148:24
    inner_esp_spi@0x160:32 outer_esp_spi@0x180:32
    """,
)
FTE_MATCH_MPLS = Layout("fte_match_mpls", 0x4, "mpls_label@0x0:20 mpls_exp@0x14:3 mpls_s_bos@0x17:1 mpls_ttl@0x18:8")
FTE_MATCH_SET_MISC2 = Layout(
    "fte_match_set_misc2",
    0x40,
    """
    outer_first_mpls@0x0:fte_match_mpls inner_first_mpls@0x20:fte_match_mpls
    outer_first_mpls_over_gre@0x40:fte_match_mpls outer_first_mpls_over_udp@0x60:fte_match_mpls metadata_reg_c_7@0x80:32
    metadata_reg_c_6@0xa0:32 metadata_reg_c_5@0xc0:32 metadata_reg_c_4@0xe0:32 metadata_reg_c_3@0x100:32
    metadata_reg_c_2@0x120:32 metadata_reg_c_1@0x140:32 metadata_reg_c_0@0x160:32 metadata_reg_a@0x180:32
    macsec_syndrome@0x1a8:8 ipsec_syndrome@0x1b0:8
    """,
)
FTE_MATCH_SET_MISC3 = Layout(
    "fte_match_set_misc3",
    0x40,
    """
    inner_tcp_seq_num@0x0:32 outer_tcp_seq_num@0x20:32 inner_tcp_ack_num@0x40:32 outer_tcp_ack_num@0x60:32
    outer_vxlan_gpe_vni@0x88:24 outer_vxlan_gpe_next_protocol@0xa0:8 outer_vxlan_gpe_flags@0xa8:8
    icmp_header_data@0xc0:32 icmpv6_header_data@0xe0:32 icmp_type@0x100:8 icmp_code@0x108:8 icmpv6_type@0x110:8
    icmpv6_code@0x118:8 geneve_tlv_option_0_data@0x120:32 gtpu_teid@0x140:32 gtpu_msg_type@0x160:8
    gtpu_msg_flags@0x168:8 gtpu_dw_2@0x180:32 gtpu_first_ext_dw_0@0x1a0:32 gtpu_dw_0@0x1c0:32
    """,
)
FTE_MATCH_SET_MISC4 = Layout(
    "fte_match_set_misc4",
    0x40,
    """
    prog_sample_field_value_0@0x0:32 prog_sample_field_id_0@0x20:32 prog_sample_field_value_1@0x40:32
    prog_sample_field_id_1@0x60:32 prog_sample_field_value_2@0x80:32 prog_sample_field_id_2@0xa0:32
    prog_sample_field_value_3@0xc0:32 prog_sample_field_id_3@0xe0:32
    """,
)
FTE_MATCH_SET_MISC5 = Layout(
    "fte_match_set_misc5",
    0x40,
    """
    macsec_tag_0@0x0:32 macsec_tag_1@0x20:32 macsec_tag_2@0x40:32 macsec_tag_3@0x60:32 tunnel_header_0@0x80:32
    tunnel_header_1@0xa0:32 tunnel_header_2@0xc0:32 tunnel_header_3@0xe0:32
    """,
)
FTE_MATCH_PARAM = Layout(
    "fte_match_param",
    0x200,
    """
    outer_headers@0x0:fte_match_set_lyr_2_4 misc_parameters@0x200:fte_match_set_misc
    inner_headers@0x400:fte_match_set_lyr_2_4 misc_parameters_2@0x600:fte_match_set_misc2
    misc_parameters_3@0x800:fte_match_set_misc3 misc_parameters_4@0xa00:fte_match_set_misc4
    misc_parameters_5@0xc00:fte_match_set_misc5
    """,
)
VLAN = Layout("vlan", 0x4, "ethtype@0x0:16 prio@0x10:3 cfi@0x13:1 vid@0x14:12")
EXECUTE_ASO = Layout("execute_aso", 0x8, "valid@0x0:1 aso_object_id@0x8:24 exe_aso_ctrl@0x20:8[4]")
FLOW_CONTEXT = Layout(
    "flow_context",
    0x300,
    """
    push_vlan@0x0:vlan group_id@0x20:32 flow_tag@0x48:24 action@0x70:16 extended_destination@0x80:1
    uplink_hairpin_en@0x81:1 flow_source@0x82:2 encrypt_decrypt_type@0x84:4 destination_list_size@0x88:24
    flow_counter_list_size@0xa8:24 packet_reformat_id@0xc0:32 modify_header_id@0xe0:32 push_vlan_2@0x100:vlan
    encrypt_decrypt_obj_id@0x120:32 match_value@0x200:fte_match_param execute_aso@0x1200:execute_aso[4]
    destination@0x1800:8[]
    """,
)
FLOW_TABLE_CONTEXT = Layout(
    "flow_table_context",
    0x28,
    """
    reformat_en@0x0:1 decap_en@0x1:1 sw_owner@0x2:1 termination_table@0x3:1 table_miss_action@0x4:4 level@0x8:8
    rtc_valid@0x10:1 log_size@0x18:8 table_miss_id@0x28:24 lag_master_next_table_id@0x48:24 sws@0xc0:8[16]
    hws@0xc0:8[16]
    """,
)
DEST_FORMAT = Layout(
    "dest_format",
    0x8,
    """
    destination_type@0x0:8 destination_id@0x8:24 destination_eswitch_owner_vhca_id_valid@0x20:1 packet_reformat@0x21:1
    destination_eswitch_owner_vhca_id@0x30:16
    """,
)
DEST_FORMAT_STRUCT = Layout(
    "dest_format_struct",
    0x8,
    """
    destination_type@0x0:8 destination_id@0x8:24 destination_eswitch_owner_vhca_id_valid@0x20:1 packet_reformat@0x21:1
    destination_table_type@0x28:8 destination_eswitch_owner_vhca_id@0x30:16
    """,
)
EXTENDED_DEST_FORMAT = Layout(
    "extended_dest_format",
    0x10,
    "destination_entry@0x0:dest_format_struct packet_reformat_id@0x40:32",
)
FLOW_COUNTER_LIST = Layout("flow_counter_list", 0x8, "flow_counter_id@0x0:32")
FLOW_TABLE_FIELDS_SUPPORTED = Layout(
    "flow_table_fields_supported",
    0x10,
    """
    outer_dmac@0x0:1 outer_smac@0x1:1 outer_ether_type@0x2:1 outer_ip_version@0x3:1 outer_first_prio@0x4:1
    outer_first_cfi@0x5:1 outer_first_vid@0x6:1 outer_ipv4_ttl@0x7:1 outer_second_prio@0x8:1 outer_second_cfi@0x9:1
    outer_second_vid@0xa:1 outer_sip@0xc:1 outer_dip@0xd:1 outer_frag@0xe:1 outer_ip_protocol@0xf:1 outer_ip_ecn@0x10:1
    outer_ip_dscp@0x11:1 outer_udp_sport@0x12:1 outer_udp_dport@0x13:1 outer_tcp_sport@0x14:1 outer_tcp_dport@0x15:1
    outer_tcp_flags@0x16:1 outer_gre_protocol@0x17:1 outer_gre_key@0x18:1 outer_vxlan_vni@0x19:1 outer_geneve_vni@0x1a:1
    outer_geneve_oam@0x1b:1 outer_geneve_protocol_type@0x1c:1 outer_geneve_opt_len@0x1d:1 source_vhca_port@0x1e:1
    source_eswitch_port@0x1f:1 inner_dmac@0x20:1 inner_smac@0x21:1 inner_ether_type@0x22:1 inner_ip_version@0x23:1
    inner_first_prio@0x24:1 inner_first_cfi@0x25:1 inner_first_vid@0x26:1 inner_second_prio@0x28:1
    inner_second_cfi@0x29:1 inner_second_vid@0x2a:1 inner_sip@0x2c:1 inner_dip@0x2d:1 inner_frag@0x2e:1
    inner_ip_protocol@0x2f:1 inner_ip_ecn@0x30:1 inner_ip_dscp@0x31:1 inner_udp_sport@0x32:1 inner_udp_dport@0x33:1
    inner_tcp_sport@0x34:1 inner_tcp_dport@0x35:1 inner_tcp_flags@0x36:1 geneve_tlv_option_0_data@0x40:1
    geneve_tlv_option_0_exist@0x41:1 outer_first_mpls_over_udp@0x45:4 outer_first_mpls_over_gre@0x49:4
    inner_first_mpls@0x4d:4 outer_first_mpls@0x51:4 outer_esp_spi@0x57:1 bth_dst_qp@0x5a:1 metadata_reg_c_7@0x78:1
    metadata_reg_c_6@0x79:1 metadata_reg_c_5@0x7a:1 metadata_reg_c_4@0x7b:1 metadata_reg_c_3@0x7c:1
    metadata_reg_c_2@0x7d:1 metadata_reg_c_1@0x7e:1 metadata_reg_c_0@0x7f:1
    """,
)
FLOW_TABLE_PROP_LAYOUT = Layout(
    "flow_table_prop_layout",
    0x40,
    """
    ft_support@0x0:1 flow_counter@0x2:1 flow_modify_en@0x3:1 modify_root@0x4:1 identified_miss_table_mode@0x5:1
    flow_table_modify@0x6:1 reformat@0x7:1 decap@0x8:1 reset_root_to_default@0x9:1 pop_vlan@0xa:1 push_vlan@0xb:1
    pop_vlan_2@0xd:1 push_vlan_2@0xe:1 reformat_and_vlan_action@0xf:1 sw_owner@0x11:1 reformat_l3_tunnel_to_l2@0x12:1
    reformat_l2_to_l3_tunnel@0x13:1 reformat_and_modify_action@0x14:1 ignore_flow_level@0x15:1
    table_miss_action_domain@0x17:1 termination_table@0x18:1 reformat_and_fwd_to_table@0x19:1 ipsec_encrypt@0x1c:1
    ipsec_decrypt@0x1d:1 sw_owner_v2@0x1e:1 termination_table_raw_traffic@0x20:1 log_max_ft_size@0x22:6
    log_max_modify_header_context@0x28:8 max_modify_header_actions@0x30:8 max_ft_level@0x38:8
    reformat_add_esp_trasport@0x40:1 reformat_l2_to_l3_esp_tunnel@0x41:1 reformat_add_esp_transport_over_udp@0x42:1
    reformat_del_esp_trasport@0x43:1 reformat_l3_esp_tunnel_to_l2@0x44:1 reformat_del_esp_transport_over_udp@0x45:1
    execute_aso@0x46:1 reformat_insert@0x62:1 reformat_remove@0x63:1 macsec_encrypt@0x64:1 macsec_decrypt@0x65:1
    reformat_add_macsec@0x68:1 reformat_remove_macsec@0x69:1 reparse@0x6a:1 cross_vhca_object@0x6c:1
    reformat_l2_to_l3_audp_tunnel@0x6d:1 reformat_l3_audp_tunnel_to_l2@0x6e:1 ignore_flow_level_rtc_valid@0x6f:1
    log_max_ft_num@0x78:8 log_max_flow_counter@0x90:8 log_max_destination@0x98:8 log_max_flow@0xb8:8
    ft_field_support@0x100:flow_table_fields_supported ft_field_bitmask_support@0x180:flow_table_fields_supported
    """,
)
TRAFFIC_COUNTER = Layout("traffic_counter", 0x10, "packets@0x0:64 octets@0x40:64")
