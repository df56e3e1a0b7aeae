"""HWRM: the messages of the Ethernet part, beside those that the RoCE part needs too (userdma.bnxt.hwrm).

What Linux's bnxt_en sends to a chip of this generation. Tables only, as in userdma.bnxt.hwrm, whose registry they join.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from userdma.bnxt.hwrm import REQUESTS as _ALL
from userdma.bnxt.hwrm import command, sized
from userdma.messages import Field, Message

_BEFORE = frozenset(_ALL)


class FuncCfgFlags(IntFlag):
    """FUNC_CFG_REQ_FLAGS_*: whether so many of a kind could be had, without taking them"""

    TX_ASSETS_TEST = 0x2000
    RX_ASSETS_TEST = 0x4000
    CMPL_ASSETS_TEST = 0x8000
    RSSCOS_CTX_ASSETS_TEST = 0x10000
    RING_GRP_ASSETS_TEST = 0x20000
    STAT_CTX_ASSETS_TEST = 0x40000
    VNIC_ASSETS_TEST = 0x80000
    L2_CTX_ASSETS_TEST = 0x100000
    NQ_ASSETS_TEST = 0x800000


class VnicQcapsFlags(IntFlag):
    """VNIC_QCAPS_RESP_FLAGS_*"""

    VLAN_STRIP_CAP = 0x2
    RX_CMPL_V3_CAP = 0x80000
    RING_SELECT_MODE_TOEPLITZ_CAP = 0x8000
    RSS_HASH_TYPE_DELTA_CAP = 0x4000


class HashType(IntFlag):
    """VNIC_RSS_CFG_REQ_HASH_TYPE_*"""

    IPV4 = 0x1
    TCP_IPV4 = 0x2
    UDP_IPV4 = 0x4
    IPV6 = 0x8
    TCP_IPV6 = 0x10
    UDP_IPV6 = 0x20
    IPV6_FLOW_LABEL = 0x40
    AH_SPI_IPV4 = 0x80
    ESP_SPI_IPV4 = 0x100
    AH_SPI_IPV6 = 0x200
    ESP_SPI_IPV6 = 0x400


class RssFlags(IntFlag):
    """VNIC_RSS_CFG_REQ_FLAGS_*"""

    HASH_TYPE_INCLUDE = 0x1
    HASH_TYPE_EXCLUDE = 0x2
    IPSEC_HASH_TYPE_CFG_SUPPORT = 0x4


class RingSelectMode(IntEnum):
    """VNIC_RSS_CFG_REQ_RING_SELECT_MODE_*"""

    TOEPLITZ = 0
    XOR = 1
    TOEPLITZ_CHECKSUM = 2


class PlacementFlags(IntFlag):
    """VNIC_PLCMODES_CFG_REQ_FLAGS_*"""

    REGULAR_PLACEMENT = 0x1
    JUMBO_PLACEMENT = 0x2
    HDS_IPV4 = 0x4
    HDS_IPV6 = 0x8


class PlacementEnables(IntFlag):
    """VNIC_PLCMODES_CFG_REQ_ENABLES_*"""

    JUMBO_THRESH_VALID = 0x1
    HDS_OFFSET_VALID = 0x2
    HDS_THRESHOLD_VALID = 0x4
    MAX_BDS_VALID = 0x8


class AggregationFlags(IntFlag):
    """RING_CMPL_RING_CFG_AGGINT_PARAMS_REQ_FLAGS_*"""

    TIMER_RESET = 0x1
    RING_IDLE = 0x2
    IS_NQ = 0x4


class PhyFlags2(IntFlag):
    """PORT_PHY_QCAPS_RESP_FLAGS2_*"""

    PAUSE_UNSUPPORTED = 0x1
    PFC_UNSUPPORTED = 0x2
    BANK_ADDR_SUPPORTED = 0x4
    SPEEDS2_SUPPORTED = 0x8
    REMOTE_LPBK_UNSUPPORTED = 0x10


class PhyFlags(IntFlag):
    """PORT_PHY_QCAPS_RESP_FLAGS_*"""

    LOCAL_LPBK_NOT_SUPPORTED = 0x20


class Speeds2(IntFlag):
    """PORT_PHY_QCFG_RESP_SUPPORT_SPEEDS2_*"""

    N100GB_PAM4_112 = 0x400
    N200GB_PAM4_112 = 0x800
    N400GB_PAM4_112 = 0x1000


class ForceSpeeds2(IntEnum):
    """PORT_PHY_QCFG_RESP_FORCE_LINK_SPEEDS2_*"""

    N100GB_PAM4_112 = 0x3EA
    N200GB_PAM4_112 = 0x7D2
    N400GB_PAM4_112 = 0xFA2


class SignalMode(IntEnum):
    """PORT_PHY_QCFG_RESP_SIGNAL_MODE_*"""

    NRZ = 0
    PAM4 = 1
    PAM4_112 = 2


class PhyType(IntEnum):
    """PORT_PHY_QCFG_RESP_PHY_TYPE_*"""

    N400G_BASECR4 = 0x34


class MediaType(IntEnum):
    """PORT_PHY_QCFG_RESP_MEDIA_TYPE_*"""

    DAC = 2


class XcvrPackage(IntEnum):
    """PORT_PHY_QCFG_RESP_XCVR_PKG_TYPE_*"""

    XCVR_EXTERNAL = 2


class FecConfig(IntFlag):
    """PORT_PHY_QCFG_RESP_FEC_CFG_*"""

    FEC_NONE_SUPPORTED = 0x1


class PortStatisticsFlags(IntFlag):
    """PORT_QSTATS_REQ_FLAGS_*"""

    COUNTER_MASK = 0x1


class PriToCosFlags(IntFlag):
    """QUEUE_PRI2COS_QCFG_REQ_FLAGS_*"""

    PATH = 0x1
    IVLAN = 0x2


class NvmDevInfoFlags(IntFlag):
    """NVM_GET_DEV_INFO_RESP_FLAGS_*"""

    FW_VER_VALID = 0x1


class TunnelType(IntEnum):
    """TUNNEL_DST_PORT_ALLOC_REQ_TUNNEL_TYPE_*"""

    VXLAN = 1
    GENEVE = 5


class CompletionType(IntEnum):
    """CMPL_BASE_TYPE_*"""

    HWRM_DONE = 0x20
    HWRM_ASYNC_EVENT = 0x2E


class AsyncEvent(IntEnum):
    """ASYNC_EVENT_CMPL_EVENT_ID_*"""

    LINK_STATUS_CHANGE = 0


# What the firmware puts into a completion ring or a notification queue.
HWRM_CMPL = Message(
    "hwrm_cmpl",
    16,
    Field(0, 2, "type"),
    Field(2, 2, "sequence_id"),
    Field(8, 4, "v"),
    defaults={"type": CompletionType.HWRM_DONE},
)
HWRM_ASYNC_EVENT_CMPL = Message(
    "hwrm_async_event_cmpl",
    16,
    Field(0, 2, "type"),
    Field(2, 2, "event_id"),
    Field(4, 4, "event_data2"),
    Field(8, 1, "opaque_v"),
    Field(9, 1, "timestamp_lo"),
    Field(10, 2, "timestamp_hi"),
    Field(12, 4, "event_data1"),
    defaults={"type": CompletionType.HWRM_ASYNC_EVENT},
)

FW_SET_TIME = command(
    "hwrm_fw_set_time",
    0xC8,
    request=sized(
        32,
        Field(16, 2, "year"),
        Field(18, 1, "month"),
        Field(19, 1, "day"),
        Field(20, 1, "hour"),
        Field(21, 1, "minute"),
        Field(22, 1, "second"),
        Field(24, 2, "millisecond"),
        Field(26, 2, "zone"),
    ),
    response=sized(16),
)
NVM_GET_DEV_INFO = command(
    "hwrm_nvm_get_dev_info",
    0xFFF6,
    request=sized(
        24,
        Field(16, 1, "flags"),
    ),
    response=sized(
        96,
        Field(8, 2, "manufacturer_id"),
        Field(10, 2, "device_id"),
        Field(12, 4, "sector_size"),
        Field(16, 4, "nvram_size"),
        Field(24, 4, "available_size"),
        Field(28, 1, "nvm_cfg_ver_maj"),
        Field(29, 1, "nvm_cfg_ver_min"),
        Field(30, 1, "nvm_cfg_ver_upd"),
        Field(31, 1, "flags"),
        Field(32, 1, "pkg_name", 16),
        Field(48, 2, "hwrm_fw_major"),
        Field(50, 2, "hwrm_fw_minor"),
        Field(52, 2, "hwrm_fw_build"),
        Field(54, 2, "hwrm_fw_patch"),
        Field(56, 2, "mgmt_fw_major"),
        Field(58, 2, "mgmt_fw_minor"),
        Field(60, 2, "mgmt_fw_build"),
        Field(62, 2, "mgmt_fw_patch"),
        Field(64, 2, "roce_fw_major"),
        Field(66, 2, "roce_fw_minor"),
        Field(68, 2, "roce_fw_build"),
        Field(70, 2, "roce_fw_patch"),
        Field(72, 2, "netctrl_fw_major"),
        Field(74, 2, "netctrl_fw_minor"),
        Field(76, 2, "netctrl_fw_build"),
        Field(78, 2, "netctrl_fw_patch"),
        Field(80, 2, "srt2_fw_major"),
        Field(82, 2, "srt2_fw_minor"),
        Field(84, 2, "srt2_fw_build"),
        Field(86, 2, "srt2_fw_patch"),
    ),
)
VNIC_QCAPS = command(
    "hwrm_vnic_qcaps",
    0x4A,
    request=sized(
        24,
        Field(16, 4, "enables"),
    ),
    response=sized(
        24,
        Field(8, 2, "mru"),
        Field(12, 4, "flags"),
        Field(16, 2, "max_aggs_supported"),
    ),
)
PORT_LED_QCAPS = command(
    "hwrm_port_led_qcaps",
    0x2F,
    request=sized(
        24,
        Field(16, 2, "port_id"),
    ),
    response=sized(
        48,
        Field(8, 1, "num_leds"),
        Field(12, 1, "led0_id"),
        Field(13, 1, "led0_type"),
        Field(14, 1, "led0_group_id"),
        Field(16, 2, "led0_state_caps"),
        Field(18, 2, "led0_color_caps"),
        Field(20, 1, "led1_id"),
        Field(21, 1, "led1_type"),
        Field(22, 1, "led1_group_id"),
        Field(24, 2, "led1_state_caps"),
        Field(26, 2, "led1_color_caps"),
        Field(28, 1, "led2_id"),
        Field(29, 1, "led2_type"),
        Field(30, 1, "led2_group_id"),
        Field(32, 2, "led2_state_caps"),
        Field(34, 2, "led2_color_caps"),
        Field(36, 1, "led3_id"),
        Field(37, 1, "led3_type"),
        Field(38, 1, "led3_group_id"),
        Field(40, 2, "led3_state_caps"),
        Field(42, 2, "led3_color_caps"),
    ),
)
PORT_PHY_QCAPS = command(
    "hwrm_port_phy_qcaps",
    0x2A,
    request=sized(
        24,
        Field(16, 2, "port_id"),
    ),
    response=sized(
        40,
        Field(8, 1, "flags"),
        Field(9, 1, "port_cnt"),
        Field(10, 2, "supported_speeds_force_mode"),
        Field(12, 2, "supported_speeds_auto_mode"),
        Field(14, 2, "supported_speeds_eee_mode"),
        Field(16, 4, "tx_lpi_timer_low"),
        Field(20, 4, "valid_tx_lpi_timer_high"),
        Field(24, 2, "supported_pam4_speeds_auto_mode"),
        Field(26, 2, "supported_pam4_speeds_force_mode"),
        Field(28, 2, "flags2"),
        Field(30, 1, "internal_port_cnt"),
        Field(32, 2, "supported_speeds2_force_mode"),
        Field(34, 2, "supported_speeds2_auto_mode"),
    ),
)
RING_AGGINT_QCAPS = command(
    "hwrm_ring_aggint_qcaps",
    0x54,
    request=sized(16),
    response=sized(
        48,
        Field(8, 4, "cmpl_params"),
        Field(12, 4, "nq_params"),
        Field(16, 2, "num_cmpl_dma_aggr_min"),
        Field(18, 2, "num_cmpl_dma_aggr_max"),
        Field(20, 2, "num_cmpl_dma_aggr_during_int_min"),
        Field(22, 2, "num_cmpl_dma_aggr_during_int_max"),
        Field(24, 2, "cmpl_aggr_dma_tmr_min"),
        Field(26, 2, "cmpl_aggr_dma_tmr_max"),
        Field(28, 2, "cmpl_aggr_dma_tmr_during_int_min"),
        Field(30, 2, "cmpl_aggr_dma_tmr_during_int_max"),
        Field(32, 2, "int_lat_tmr_min_min"),
        Field(34, 2, "int_lat_tmr_min_max"),
        Field(36, 2, "int_lat_tmr_max_min"),
        Field(38, 2, "int_lat_tmr_max_max"),
        Field(40, 2, "num_cmpl_aggr_int_min"),
        Field(42, 2, "num_cmpl_aggr_int_max"),
        Field(44, 2, "timer_units"),
    ),
)
RING_CMPL_RING_CFG_AGGINT_PARAMS = command(
    "hwrm_ring_cmpl_ring_cfg_aggint_params",
    0x53,
    request=sized(
        40,
        Field(16, 2, "ring_id"),
        Field(18, 2, "flags"),
        Field(20, 2, "num_cmpl_dma_aggr"),
        Field(22, 2, "num_cmpl_dma_aggr_during_int"),
        Field(24, 2, "cmpl_aggr_dma_tmr"),
        Field(26, 2, "cmpl_aggr_dma_tmr_during_int"),
        Field(28, 2, "int_lat_tmr_min"),
        Field(30, 2, "int_lat_tmr_max"),
        Field(32, 2, "num_cmpl_aggr_int"),
        Field(34, 2, "enables"),
    ),
    response=sized(16),
)
PORT_QSTATS = command(
    "hwrm_port_qstats",
    0x23,
    request=sized(
        40,
        Field(16, 2, "port_id"),
        Field(18, 1, "flags"),
        Field(24, 8, "tx_stat_host_addr"),
        Field(32, 8, "rx_stat_host_addr"),
    ),
    response=sized(
        16,
        Field(8, 2, "tx_stat_size"),
        Field(10, 2, "rx_stat_size"),
        Field(12, 1, "flags"),
    ),
)
PORT_QSTATS_EXT = command(
    "hwrm_port_qstats_ext",
    0xB4,
    request=sized(
        40,
        Field(16, 2, "port_id"),
        Field(18, 2, "tx_stat_size"),
        Field(20, 2, "rx_stat_size"),
        Field(22, 1, "flags"),
        Field(24, 8, "tx_stat_host_addr"),
        Field(32, 8, "rx_stat_host_addr"),
    ),
    response=sized(
        16,
        Field(8, 2, "tx_stat_size"),
        Field(10, 2, "rx_stat_size"),
        Field(12, 2, "total_active_cos_queues"),
        Field(14, 1, "flags"),
    ),
)
PORT_CLR_STATS = command(
    "hwrm_port_clr_stats",
    0x25,
    request=sized(
        24,
        Field(16, 2, "port_id"),
        Field(18, 1, "flags"),
    ),
    response=sized(16),
)
QUEUE_PRI2COS_QCFG = command(
    "hwrm_queue_pri2cos_qcfg",
    0x37,
    request=sized(
        24,
        Field(16, 4, "flags"),
        Field(20, 1, "port_id"),
    ),
    response=sized(
        24,
        Field(8, 1, "pri0_cos_queue_id"),
        Field(9, 1, "pri1_cos_queue_id"),
        Field(10, 1, "pri2_cos_queue_id"),
        Field(11, 1, "pri3_cos_queue_id"),
        Field(12, 1, "pri4_cos_queue_id"),
        Field(13, 1, "pri5_cos_queue_id"),
        Field(14, 1, "pri6_cos_queue_id"),
        Field(15, 1, "pri7_cos_queue_id"),
        Field(16, 1, "queue_cfg_info"),
    ),
)
QUEUE_PFCENABLE_QCFG = command(
    "hwrm_queue_pfcenable_qcfg",
    0x35,
    request=sized(
        24,
        Field(16, 2, "port_id"),
    ),
    response=sized(
        16,
        Field(8, 4, "flags"),
    ),
)
VNIC_RSS_CFG = command(
    "hwrm_vnic_rss_cfg",
    0x46,
    request=sized(
        48,
        Field(16, 4, "hash_type"),
        Field(20, 2, "vnic_id"),
        Field(22, 1, "ring_table_pair_index"),
        Field(23, 1, "hash_mode_flags"),
        Field(24, 8, "ring_grp_tbl_addr"),
        Field(32, 8, "hash_key_tbl_addr"),
        Field(40, 2, "rss_ctx_idx"),
        Field(42, 1, "flags"),
        Field(43, 1, "ring_select_mode"),
    ),
    response=sized(16),
)
VNIC_RSS_QCFG = command(
    "hwrm_vnic_rss_qcfg",
    0x47,
    request=sized(
        24,
        Field(16, 2, "rss_ctx_idx"),
        Field(18, 2, "vnic_id"),
    ),
    response=sized(
        64,
        Field(8, 4, "hash_type"),
        Field(16, 4, "hash_key", 10),
        Field(56, 1, "hash_mode_flags"),
        Field(57, 1, "ring_select_mode"),
    ),
)
VNIC_PLCMODES_CFG = command(
    "hwrm_vnic_plcmodes_cfg",
    0x48,
    request=sized(
        40,
        Field(16, 4, "flags"),
        Field(20, 4, "enables"),
        Field(24, 4, "vnic_id"),
        Field(28, 2, "jumbo_thresh"),
        Field(30, 2, "hds_offset"),
        Field(32, 2, "hds_threshold"),
        Field(34, 2, "max_bds"),
    ),
    response=sized(16),
)
VNIC_RSS_COS_LB_CTX_ALLOC = command(
    "hwrm_vnic_rss_cos_lb_ctx_alloc",
    0x70,
    request=sized(16),
    response=sized(
        16,
        Field(8, 2, "rss_cos_lb_ctx_id"),
    ),
)
VNIC_RSS_COS_LB_CTX_FREE = command(
    "hwrm_vnic_rss_cos_lb_ctx_free",
    0x71,
    request=sized(
        24,
        Field(16, 2, "rss_cos_lb_ctx_id"),
    ),
    response=sized(16),
)
STAT_CTX_CLR_STATS = command(
    "hwrm_stat_ctx_clr_stats",
    0xB3,
    request=sized(
        24,
        Field(16, 4, "stat_ctx_id"),
    ),
    response=sized(16),
)
STAT_CTX_QUERY = command(
    "hwrm_stat_ctx_query",
    0xB2,
    request=sized(
        24,
        Field(16, 4, "stat_ctx_id"),
        Field(20, 1, "flags"),
    ),
    response=sized(
        176,
        Field(8, 8, "tx_ucast_pkts"),
        Field(16, 8, "tx_mcast_pkts"),
        Field(24, 8, "tx_bcast_pkts"),
        Field(32, 8, "tx_discard_pkts"),
        Field(40, 8, "tx_error_pkts"),
        Field(48, 8, "tx_ucast_bytes"),
        Field(56, 8, "tx_mcast_bytes"),
        Field(64, 8, "tx_bcast_bytes"),
        Field(72, 8, "rx_ucast_pkts"),
        Field(80, 8, "rx_mcast_pkts"),
        Field(88, 8, "rx_bcast_pkts"),
        Field(96, 8, "rx_discard_pkts"),
        Field(104, 8, "rx_error_pkts"),
        Field(112, 8, "rx_ucast_bytes"),
        Field(120, 8, "rx_mcast_bytes"),
        Field(128, 8, "rx_bcast_bytes"),
        Field(136, 8, "rx_agg_pkts"),
        Field(144, 8, "rx_agg_bytes"),
        Field(152, 8, "rx_agg_events"),
        Field(160, 8, "rx_agg_aborts"),
    ),
)
FUNC_QSTATS = command(
    "hwrm_func_qstats",
    0x18,
    request=sized(
        24,
        Field(16, 2, "fid"),
        Field(18, 1, "flags"),
    ),
    response=sized(
        176,
        Field(8, 8, "tx_ucast_pkts"),
        Field(16, 8, "tx_mcast_pkts"),
        Field(24, 8, "tx_bcast_pkts"),
        Field(32, 8, "tx_discard_pkts"),
        Field(40, 8, "tx_drop_pkts"),
        Field(48, 8, "tx_ucast_bytes"),
        Field(56, 8, "tx_mcast_bytes"),
        Field(64, 8, "tx_bcast_bytes"),
        Field(72, 8, "rx_ucast_pkts"),
        Field(80, 8, "rx_mcast_pkts"),
        Field(88, 8, "rx_bcast_pkts"),
        Field(96, 8, "rx_discard_pkts"),
        Field(104, 8, "rx_drop_pkts"),
        Field(112, 8, "rx_ucast_bytes"),
        Field(120, 8, "rx_mcast_bytes"),
        Field(128, 8, "rx_bcast_bytes"),
        Field(136, 8, "rx_agg_pkts"),
        Field(144, 8, "rx_agg_bytes"),
        Field(152, 8, "rx_agg_events"),
        Field(160, 8, "rx_agg_aborts"),
        Field(168, 1, "clear_seq"),
    ),
)
TUNNEL_DST_PORT_ALLOC = command(
    "hwrm_tunnel_dst_port_alloc",
    0xA1,
    request=sized(
        24,
        Field(16, 1, "tunnel_type"),
        Field(17, 1, "tunnel_next_proto"),
        Field(18, 2, "tunnel_dst_port_val"),  # big-endian in the header
    ),
    response=sized(
        16,
        Field(8, 2, "tunnel_dst_port_id"),
        Field(10, 1, "error_info"),
        Field(11, 1, "upar_in_use"),
    ),
)
TUNNEL_DST_PORT_FREE = command(
    "hwrm_tunnel_dst_port_free",
    0xA2,
    request=sized(
        24,
        Field(16, 1, "tunnel_type"),
        Field(17, 1, "tunnel_next_proto"),
        Field(18, 2, "tunnel_dst_port_id"),
    ),
    response=sized(
        16,
        Field(8, 1, "error_info"),
    ),
)
TEMP_MONITOR_QUERY = command(
    "hwrm_temp_monitor_query",
    0xE0,
    request=sized(16),
    response=sized(
        24,
        Field(8, 1, "temp"),
        Field(9, 1, "phy_temp"),
        Field(10, 1, "om_temp"),
        Field(11, 1, "flags"),
        Field(12, 1, "temp2"),
        Field(13, 1, "phy_temp2"),
        Field(14, 1, "om_temp2"),
        Field(15, 1, "warn_threshold"),
        Field(16, 1, "critical_threshold"),
        Field(17, 1, "fatal_threshold"),
        Field(18, 1, "shutdown_threshold"),
    ),
)
RING_RESET = command(
    "hwrm_ring_reset",
    0x5E,
    request=sized(
        24,
        Field(16, 1, "ring_type"),
        Field(18, 2, "ring_id"),
    ),
    response=sized(
        16,
        Field(8, 1, "push_buffer_index"),
        Field(12, 1, "consumer_idx", 3),
    ),
)
RX_PORT_STATS = Message(
    "rx_port_stats",
    528,
    Field(0, 8, "rx_64b_frames"),
    Field(8, 8, "rx_65b_127b_frames"),
    Field(16, 8, "rx_128b_255b_frames"),
    Field(24, 8, "rx_256b_511b_frames"),
    Field(32, 8, "rx_512b_1023b_frames"),
    Field(40, 8, "rx_1024b_1518b_frames"),
    Field(48, 8, "rx_good_vlan_frames"),
    Field(56, 8, "rx_1519b_2047b_frames"),
    Field(64, 8, "rx_2048b_4095b_frames"),
    Field(72, 8, "rx_4096b_9216b_frames"),
    Field(80, 8, "rx_9217b_16383b_frames"),
    Field(88, 8, "rx_total_frames"),
    Field(96, 8, "rx_ucast_frames"),
    Field(104, 8, "rx_mcast_frames"),
    Field(112, 8, "rx_bcast_frames"),
    Field(120, 8, "rx_fcs_err_frames"),
    Field(128, 8, "rx_ctrl_frames"),
    Field(136, 8, "rx_pause_frames"),
    Field(144, 8, "rx_pfc_frames"),
    Field(152, 8, "rx_unsupported_opcode_frames"),
    Field(160, 8, "rx_unsupported_da_pausepfc_frames"),
    Field(168, 8, "rx_wrong_sa_frames"),
    Field(176, 8, "rx_align_err_frames"),
    Field(184, 8, "rx_oor_len_frames"),
    Field(192, 8, "rx_code_err_frames"),
    Field(200, 8, "rx_false_carrier_frames"),
    Field(208, 8, "rx_ovrsz_frames"),
    Field(216, 8, "rx_jbr_frames"),
    Field(224, 8, "rx_mtu_err_frames"),
    Field(232, 8, "rx_match_crc_frames"),
    Field(240, 8, "rx_promiscuous_frames"),
    Field(248, 8, "rx_tagged_frames"),
    Field(256, 8, "rx_double_tagged_frames"),
    Field(264, 8, "rx_trunc_frames"),
    Field(272, 8, "rx_good_frames"),
    Field(280, 8, "rx_pfc_xon2xoff_frames_pri0"),
    Field(288, 8, "rx_pfc_xon2xoff_frames_pri1"),
    Field(296, 8, "rx_pfc_xon2xoff_frames_pri2"),
    Field(304, 8, "rx_pfc_xon2xoff_frames_pri3"),
    Field(312, 8, "rx_pfc_xon2xoff_frames_pri4"),
    Field(320, 8, "rx_pfc_xon2xoff_frames_pri5"),
    Field(328, 8, "rx_pfc_xon2xoff_frames_pri6"),
    Field(336, 8, "rx_pfc_xon2xoff_frames_pri7"),
    Field(344, 8, "rx_pfc_ena_frames_pri0"),
    Field(352, 8, "rx_pfc_ena_frames_pri1"),
    Field(360, 8, "rx_pfc_ena_frames_pri2"),
    Field(368, 8, "rx_pfc_ena_frames_pri3"),
    Field(376, 8, "rx_pfc_ena_frames_pri4"),
    Field(384, 8, "rx_pfc_ena_frames_pri5"),
    Field(392, 8, "rx_pfc_ena_frames_pri6"),
    Field(400, 8, "rx_pfc_ena_frames_pri7"),
    Field(408, 8, "rx_sch_crc_err_frames"),
    Field(416, 8, "rx_undrsz_frames"),
    Field(424, 8, "rx_frag_frames"),
    Field(432, 8, "rx_eee_lpi_events"),
    Field(440, 8, "rx_eee_lpi_duration"),
    Field(448, 8, "rx_llfc_physical_msgs"),
    Field(456, 8, "rx_llfc_logical_msgs"),
    Field(464, 8, "rx_llfc_msgs_with_crc_err"),
    Field(472, 8, "rx_hcfc_msgs"),
    Field(480, 8, "rx_hcfc_msgs_with_crc_err"),
    Field(488, 8, "rx_bytes"),
    Field(496, 8, "rx_runt_bytes"),
    Field(504, 8, "rx_runt_frames"),
    Field(512, 8, "rx_stat_discard"),
    Field(520, 8, "rx_stat_err"),
)
TX_PORT_STATS = Message(
    "tx_port_stats",
    408,
    Field(0, 8, "tx_64b_frames"),
    Field(8, 8, "tx_65b_127b_frames"),
    Field(16, 8, "tx_128b_255b_frames"),
    Field(24, 8, "tx_256b_511b_frames"),
    Field(32, 8, "tx_512b_1023b_frames"),
    Field(40, 8, "tx_1024b_1518b_frames"),
    Field(48, 8, "tx_good_vlan_frames"),
    Field(56, 8, "tx_1519b_2047b_frames"),
    Field(64, 8, "tx_2048b_4095b_frames"),
    Field(72, 8, "tx_4096b_9216b_frames"),
    Field(80, 8, "tx_9217b_16383b_frames"),
    Field(88, 8, "tx_good_frames"),
    Field(96, 8, "tx_total_frames"),
    Field(104, 8, "tx_ucast_frames"),
    Field(112, 8, "tx_mcast_frames"),
    Field(120, 8, "tx_bcast_frames"),
    Field(128, 8, "tx_pause_frames"),
    Field(136, 8, "tx_pfc_frames"),
    Field(144, 8, "tx_jabber_frames"),
    Field(152, 8, "tx_fcs_err_frames"),
    Field(160, 8, "tx_control_frames"),
    Field(168, 8, "tx_oversz_frames"),
    Field(176, 8, "tx_single_dfrl_frames"),
    Field(184, 8, "tx_multi_dfrl_frames"),
    Field(192, 8, "tx_single_coll_frames"),
    Field(200, 8, "tx_multi_coll_frames"),
    Field(208, 8, "tx_late_coll_frames"),
    Field(216, 8, "tx_excessive_coll_frames"),
    Field(224, 8, "tx_frag_frames"),
    Field(232, 8, "tx_err"),
    Field(240, 8, "tx_tagged_frames"),
    Field(248, 8, "tx_dbl_tagged_frames"),
    Field(256, 8, "tx_runt_frames"),
    Field(264, 8, "tx_fifo_underruns"),
    Field(272, 8, "tx_pfc_ena_frames_pri0"),
    Field(280, 8, "tx_pfc_ena_frames_pri1"),
    Field(288, 8, "tx_pfc_ena_frames_pri2"),
    Field(296, 8, "tx_pfc_ena_frames_pri3"),
    Field(304, 8, "tx_pfc_ena_frames_pri4"),
    Field(312, 8, "tx_pfc_ena_frames_pri5"),
    Field(320, 8, "tx_pfc_ena_frames_pri6"),
    Field(328, 8, "tx_pfc_ena_frames_pri7"),
    Field(336, 8, "tx_eee_lpi_events"),
    Field(344, 8, "tx_eee_lpi_duration"),
    Field(352, 8, "tx_llfc_logical_msgs"),
    Field(360, 8, "tx_hcfc_msgs"),
    Field(368, 8, "tx_total_collisions"),
    Field(376, 8, "tx_bytes"),
    Field(384, 8, "tx_xthol_frames"),
    Field(392, 8, "tx_stat_discard"),
    Field(400, 8, "tx_stat_error"),
)
RX_PORT_STATS_EXT = Message(
    "rx_port_stats_ext",
    488,
    Field(0, 8, "link_down_events"),
    Field(8, 8, "continuous_pause_events"),
    Field(16, 8, "resume_pause_events"),
    Field(24, 8, "continuous_roce_pause_events"),
    Field(32, 8, "resume_roce_pause_events"),
    Field(40, 8, "rx_bytes_cos0"),
    Field(48, 8, "rx_bytes_cos1"),
    Field(56, 8, "rx_bytes_cos2"),
    Field(64, 8, "rx_bytes_cos3"),
    Field(72, 8, "rx_bytes_cos4"),
    Field(80, 8, "rx_bytes_cos5"),
    Field(88, 8, "rx_bytes_cos6"),
    Field(96, 8, "rx_bytes_cos7"),
    Field(104, 8, "rx_packets_cos0"),
    Field(112, 8, "rx_packets_cos1"),
    Field(120, 8, "rx_packets_cos2"),
    Field(128, 8, "rx_packets_cos3"),
    Field(136, 8, "rx_packets_cos4"),
    Field(144, 8, "rx_packets_cos5"),
    Field(152, 8, "rx_packets_cos6"),
    Field(160, 8, "rx_packets_cos7"),
    Field(168, 8, "pfc_pri0_rx_duration_us"),
    Field(176, 8, "pfc_pri0_rx_transitions"),
    Field(184, 8, "pfc_pri1_rx_duration_us"),
    Field(192, 8, "pfc_pri1_rx_transitions"),
    Field(200, 8, "pfc_pri2_rx_duration_us"),
    Field(208, 8, "pfc_pri2_rx_transitions"),
    Field(216, 8, "pfc_pri3_rx_duration_us"),
    Field(224, 8, "pfc_pri3_rx_transitions"),
    Field(232, 8, "pfc_pri4_rx_duration_us"),
    Field(240, 8, "pfc_pri4_rx_transitions"),
    Field(248, 8, "pfc_pri5_rx_duration_us"),
    Field(256, 8, "pfc_pri5_rx_transitions"),
    Field(264, 8, "pfc_pri6_rx_duration_us"),
    Field(272, 8, "pfc_pri6_rx_transitions"),
    Field(280, 8, "pfc_pri7_rx_duration_us"),
    Field(288, 8, "pfc_pri7_rx_transitions"),
    Field(296, 8, "rx_bits"),
    Field(304, 8, "rx_buffer_passed_threshold"),
    Field(312, 8, "rx_pcs_symbol_err"),
    Field(320, 8, "rx_corrected_bits"),
    Field(328, 8, "rx_discard_bytes_cos0"),
    Field(336, 8, "rx_discard_bytes_cos1"),
    Field(344, 8, "rx_discard_bytes_cos2"),
    Field(352, 8, "rx_discard_bytes_cos3"),
    Field(360, 8, "rx_discard_bytes_cos4"),
    Field(368, 8, "rx_discard_bytes_cos5"),
    Field(376, 8, "rx_discard_bytes_cos6"),
    Field(384, 8, "rx_discard_bytes_cos7"),
    Field(392, 8, "rx_discard_packets_cos0"),
    Field(400, 8, "rx_discard_packets_cos1"),
    Field(408, 8, "rx_discard_packets_cos2"),
    Field(416, 8, "rx_discard_packets_cos3"),
    Field(424, 8, "rx_discard_packets_cos4"),
    Field(432, 8, "rx_discard_packets_cos5"),
    Field(440, 8, "rx_discard_packets_cos6"),
    Field(448, 8, "rx_discard_packets_cos7"),
    Field(456, 8, "rx_fec_corrected_blocks"),
    Field(464, 8, "rx_fec_uncorrectable_blocks"),
    Field(472, 8, "rx_filter_miss"),
    Field(480, 8, "rx_fec_symbol_err"),
)
TX_PORT_STATS_EXT = Message(
    "tx_port_stats_ext",
    256,
    Field(0, 8, "tx_bytes_cos0"),
    Field(8, 8, "tx_bytes_cos1"),
    Field(16, 8, "tx_bytes_cos2"),
    Field(24, 8, "tx_bytes_cos3"),
    Field(32, 8, "tx_bytes_cos4"),
    Field(40, 8, "tx_bytes_cos5"),
    Field(48, 8, "tx_bytes_cos6"),
    Field(56, 8, "tx_bytes_cos7"),
    Field(64, 8, "tx_packets_cos0"),
    Field(72, 8, "tx_packets_cos1"),
    Field(80, 8, "tx_packets_cos2"),
    Field(88, 8, "tx_packets_cos3"),
    Field(96, 8, "tx_packets_cos4"),
    Field(104, 8, "tx_packets_cos5"),
    Field(112, 8, "tx_packets_cos6"),
    Field(120, 8, "tx_packets_cos7"),
    Field(128, 8, "pfc_pri0_tx_duration_us"),
    Field(136, 8, "pfc_pri0_tx_transitions"),
    Field(144, 8, "pfc_pri1_tx_duration_us"),
    Field(152, 8, "pfc_pri1_tx_transitions"),
    Field(160, 8, "pfc_pri2_tx_duration_us"),
    Field(168, 8, "pfc_pri2_tx_transitions"),
    Field(176, 8, "pfc_pri3_tx_duration_us"),
    Field(184, 8, "pfc_pri3_tx_transitions"),
    Field(192, 8, "pfc_pri4_tx_duration_us"),
    Field(200, 8, "pfc_pri4_tx_transitions"),
    Field(208, 8, "pfc_pri5_tx_duration_us"),
    Field(216, 8, "pfc_pri5_tx_transitions"),
    Field(224, 8, "pfc_pri6_tx_duration_us"),
    Field(232, 8, "pfc_pri6_tx_transitions"),
    Field(240, 8, "pfc_pri7_tx_duration_us"),
    Field(248, 8, "pfc_pri7_tx_transitions"),
)
CTX_HW_STATS = Message(
    "ctx_hw_stats",
    160,
    Field(0, 8, "rx_ucast_pkts"),
    Field(8, 8, "rx_mcast_pkts"),
    Field(16, 8, "rx_bcast_pkts"),
    Field(24, 8, "rx_discard_pkts"),
    Field(32, 8, "rx_error_pkts"),
    Field(40, 8, "rx_ucast_bytes"),
    Field(48, 8, "rx_mcast_bytes"),
    Field(56, 8, "rx_bcast_bytes"),
    Field(64, 8, "tx_ucast_pkts"),
    Field(72, 8, "tx_mcast_pkts"),
    Field(80, 8, "tx_bcast_pkts"),
    Field(88, 8, "tx_error_pkts"),
    Field(96, 8, "tx_discard_pkts"),
    Field(104, 8, "tx_ucast_bytes"),
    Field(112, 8, "tx_mcast_bytes"),
    Field(120, 8, "tx_bcast_bytes"),
    Field(128, 8, "tpa_pkts"),
    Field(136, 8, "tpa_bytes"),
    Field(144, 8, "tpa_events"),
    Field(152, 8, "tpa_aborts"),
)

REQUESTS = {name: made for name, made in _ALL.items() if name not in _BEFORE}
