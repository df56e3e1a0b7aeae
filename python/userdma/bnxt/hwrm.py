"""HWRM: the messages between a driver and the firmware of a Broadcom function.

Tables only. Names, offsets and numbers are those of the kernel's bnxt_hsi.h (include/linux/bnxt/hsi.h since Linux
7.3), fields that it calls unused or reserved left out. A command's request starts with `req_type` and its answer with
`error_code`; the answer's last byte, `valid`, is written last. A class's docstring names the macros that it holds; an
N before a digit is ours, as a Python name cannot start with one.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from userdma.messages import Command, Field, Message

MAX_REQUEST = 128  # HWRM_MAX_REQ_LEN: bytes of the request window in BAR 0
NO_COMPLETION_RING = 0xFFFF  # (uint16_t)BNXT_HWRM_NO_CMPL_RING: the answer comes by DMA alone
TARGET_SELF = 0xFFFF  # BNXT_HWRM_TARGET: this function's own firmware; also the `fid` of oneself
STATISTICS_SIZE = 176  # sizeof(struct ctx_hw_stats_ext): what STAT_CTX_ALLOC's buffer holds on this generation


class ErrorCode(IntEnum):
    """HWRM_ERR_CODE_*"""

    SUCCESS = 0
    FAIL = 1
    INVALID_PARAMS = 2
    RESOURCE_ACCESS_DENIED = 3
    RESOURCE_ALLOC_ERROR = 4
    INVALID_FLAGS = 5
    INVALID_ENABLES = 6
    UNSUPPORTED_TLV = 7
    NO_BUFFER = 8
    UNSUPPORTED_OPTION_ERR = 9
    HOT_RESET_PROGRESS = 0xA
    HOT_RESET_FAIL = 0xB
    NO_FLOW_COUNTER_DURING_ALLOC = 0xC
    KEY_HASH_COLLISION = 0xD
    KEY_ALREADY_EXISTS = 0xE
    HWRM_ERROR = 0xF
    BUSY = 0x10
    RESOURCE_LOCKED = 0x11
    PF_UNAVAILABLE = 0x12
    ENTITY_NOT_PRESENT = 0x13
    SECURE_SOC_ERROR = 0x14
    TLV_ENCAPSULATED_RESPONSE = 0x8000
    UNKNOWN_ERR = 0xFFFE
    CMD_NOT_SUPPORTED = 0xFFFF


class VerGetDevCaps(IntFlag):
    """VER_GET_RESP_DEV_CAPS_CFG_*"""

    SHORT_CMD_SUPPORTED = 0x4
    SHORT_CMD_REQUIRED = 0x8
    KONG_MB_CHNL_SUPPORTED = 0x10
    L2_FILTER_TYPES_ROCE_OR_L2_SUPPORTED = 0x40


class VerGetFlags(IntFlag):
    """VER_GET_RESP_FLAGS_*"""

    DEV_NOT_RDY = 0x1
    EXT_VER_AVAIL = 0x2
    DEV_NOT_RDY_BACKING_STORE = 0x4


class ChipPlatform(IntEnum):
    """VER_GET_RESP_CHIP_PLATFORM_TYPE_*"""

    ASIC = 0
    FPGA = 1
    PALLADIUM = 2


class FuncResetEnables(IntFlag):
    """FUNC_RESET_REQ_ENABLES_*"""

    VF_ID_VALID = 0x1


class FuncResetLevel(IntEnum):
    """FUNC_RESET_REQ_FUNC_RESET_LEVEL_*"""

    RESETALL = 0
    RESETME = 1
    RESETCHILDREN = 2
    RESETVF = 3


class FuncQcapsFlags(IntFlag):
    """FUNC_QCAPS_RESP_FLAGS_*"""

    ROCE_V1_SUPPORTED = 0x8
    ROCE_V2_SUPPORTED = 0x10
    PCIE_STATS_SUPPORTED = 0x10000
    DYNAMIC_TX_RING_ALLOC = 0x200000
    EXT_STATS_SUPPORTED = 0x1000000


class FuncQcapsFlagsExt(IntFlag):
    """FUNC_QCAPS_RESP_FLAGS_EXT_*"""

    EXT_HW_STATS_SUPPORTED = 0x4
    BS_V2_SUPPORTED = 0x4000000
    BS_V2_REQUIRED = 0x8000000
    DBR_PACING_SUPPORTED = 0x20000000
    DISABLE_CQ_OVERFLOW_DETECTION_SUPPORTED = 0x80000000


class FuncQcapsFlagsExt2(IntFlag):
    """FUNC_QCAPS_RESP_FLAGS_EXT2_*"""

    ON_CHIP_CTX_SUPPORTED = 0x800
    STEERING_TAG_SUPPORTED = 0x1000
    ROCE_VF_RESOURCE_MGMT_SUPPORTED = 0x100000
    PEER_MMAP_SUPPORTED = 0x10000000


class FuncQcapsFlagsExt3(IntFlag):
    """FUNC_QCAPS_RESP_FLAGS_EXT3_*"""

    RM_RSV_WHILE_ALLOC_CAP = 0x1
    REQUIRE_L2_FILTER = 0x2
    MAX_ROCE_VFS_SUPPORTED = 0x4


class FuncQcfgFlags(IntFlag):
    """FUNC_QCFG_RESP_FLAGS_*"""

    MULTI_HOST = 0x20
    TRUSTED_VF = 0x40
    MULTI_ROOT = 0x2000
    ENABLE_RDMA_SRIOV = 0x4000
    ROCE_VNIC_ID_VALID = 0x8000


class FuncCfgEnables(IntFlag):
    """FUNC_CFG_REQ_ENABLES_*"""

    ADMIN_MTU = 0x1
    MRU = 0x2
    NUM_RSSCOS_CTXS = 0x4
    NUM_CMPL_RINGS = 0x8
    NUM_TX_RINGS = 0x10
    NUM_RX_RINGS = 0x20
    NUM_L2_CTXS = 0x40
    NUM_VNICS = 0x80
    NUM_STAT_CTXS = 0x100
    DFLT_MAC_ADDR = 0x200
    ASYNC_EVENT_CR = 0x4000
    NUM_MCAST_FILTERS = 0x40000
    NUM_HW_RING_GRPS = 0x80000
    CACHE_LINESIZE = 0x100000
    NUM_MSIX = 0x200000
    HOST_MTU = 0x20000000


class EvbMode(IntEnum):
    """FUNC_QCFG_RESP_EVB_MODE_*"""

    NO_EVB = 0
    VEB = 1
    VEPA = 2


class DrvRgtrFlags(IntFlag):
    """FUNC_DRV_RGTR_REQ_FLAGS_*"""

    FWD_ALL_MODE = 0x1
    FWD_NONE_MODE = 0x2
    N16BIT_VER_MODE = 0x4
    HOT_RESET_SUPPORT = 0x10
    ERROR_RECOVERY_SUPPORT = 0x20


class DrvRgtrEnables(IntFlag):
    """FUNC_DRV_RGTR_REQ_ENABLES_*"""

    OS_TYPE = 0x1
    VER = 0x2
    TIMESTAMP = 0x4
    VF_REQ_FWD = 0x8
    ASYNC_EVENT_FWD = 0x10


class OsType(IntEnum):
    """FUNC_DRV_RGTR_REQ_OS_TYPE_*"""

    UNKNOWN = 0
    OTHER = 1
    LINUX = 0x24


class DrvRgtrRespFlags(IntFlag):
    """FUNC_DRV_RGTR_RESP_FLAGS_*"""

    IF_CHANGE_SUPPORTED = 0x1


class DrvUnrgtrFlags(IntFlag):
    """FUNC_DRV_UNRGTR_REQ_FLAGS_*"""

    PREPARE_FOR_SHUTDOWN = 0x1


class VfReservation(IntEnum):
    """FUNC_RESOURCE_QCAPS_RESP_VF_RESERVATION_STRATEGY_*"""

    MAXIMAL = 0
    MINIMAL = 1
    MINIMAL_STATIC = 2


class BackingStoreType(IntEnum):
    """FUNC_BACKING_STORE_QCAPS_V2_REQ_TYPE_*"""

    QP = 0
    SRQ = 1
    CQ = 2
    VNIC = 3
    STAT = 4
    SP_TQM_RING = 5
    FP_TQM_RING = 6
    MRAV = 0xE
    TIM = 0xF
    TX_CK = 0x13
    RX_CK = 0x14
    MP_TQM_RING = 0x15
    SQ_DB_SHADOW = 0x16
    RQ_DB_SHADOW = 0x17
    SRQ_DB_SHADOW = 0x18
    CQ_DB_SHADOW = 0x19
    TBL_SCOPE = 0x1C
    XID_PARTITION = 0x1D
    SRT_TRACE = 0x1E
    SRT2_TRACE = 0x1F
    CRT_TRACE = 0x20
    CRT2_TRACE = 0x21
    RIGP0_TRACE = 0x22
    L2_HWRM_TRACE = 0x23
    ROCE_HWRM_TRACE = 0x24
    TTX_PACING_TQM_RING = 0x25
    CA0_TRACE = 0x26
    CA1_TRACE = 0x27
    CA2_TRACE = 0x28
    RIGP1_TRACE = 0x29
    AFM_KONG_HWRM_TRACE = 0x2A
    INVALID = 0xFFFF


class BackingStoreQcapsFlags(IntFlag):
    """FUNC_BACKING_STORE_QCAPS_V2_RESP_FLAGS_*"""

    ENABLE_CTX_KIND_INIT = 0x1
    TYPE_VALID = 0x2
    DRIVER_MANAGED_MEMORY = 0x4
    ROCE_QP_PSEUDO_STATIC_ALLOC = 0x8
    FW_DBG_TRACE = 0x10
    FW_BIN_DBG_TRACE = 0x20
    NEXT_BS_OFFSET = 0x40


class BackingStoreCfgFlags(IntFlag):
    """FUNC_BACKING_STORE_CFG_V2_REQ_FLAGS_*"""

    PREBOOT_MODE = 0x1
    BS_CFG_ALL_DONE = 0x2
    BS_EXTEND = 0x4


class BackingStorePageSize(IntEnum):
    """FUNC_BACKING_STORE_CFG_V2_REQ_PAGE_SIZE_* >> FUNC_BACKING_STORE_CFG_V2_REQ_PAGE_SIZE_SFT"""

    PG_4K = 0
    PG_8K = 1
    PG_64K = 2
    PG_2M = 3
    PG_8M = 4
    PG_1G = 5


class PhyLink(IntEnum):
    """PORT_PHY_QCFG_RESP_LINK_*"""

    NO_LINK = 0
    SIGNAL = 1
    LINK = 2


class PhyOptions(IntFlag):
    """PORT_PHY_QCFG_RESP_OPTION_FLAGS_*"""

    SIGNAL_MODE_KNOWN = 0x2
    SPEEDS2_SUPPORTED = 0x4


class PhyCfgFlags(IntFlag):
    """PORT_PHY_CFG_REQ_FLAGS_*"""

    RESET_PHY = 0x1
    FORCE = 0x4
    RESTART_AUTONEG = 0x8
    FORCE_LINK_DWN = 0x4000


class PhyCfgEnables(IntFlag):
    """PORT_PHY_CFG_REQ_ENABLES_*"""

    AUTO_MODE = 0x1
    AUTO_DUPLEX = 0x2
    AUTO_PAUSE = 0x4
    AUTO_LINK_SPEED = 0x8
    AUTO_LINK_SPEED_MASK = 0x10
    WIRESPEED = 0x20
    LPBK = 0x40
    PREEMPHASIS = 0x80
    FORCE_PAUSE = 0x100
    EEE_LINK_SPEED_MASK = 0x200
    TX_LPI_TIMER = 0x400
    FORCE_PAM4_LINK_SPEED = 0x800
    AUTO_PAM4_LINK_SPEED_MASK = 0x1000
    FORCE_LINK_SPEEDS2 = 0x2000
    AUTO_LINK_SPEEDS2_MASK = 0x4000


class PhyAutoMode(IntEnum):
    """PORT_PHY_CFG_REQ_AUTO_MODE_*"""

    NONE = 0
    ALL_SPEEDS = 1
    ONE_SPEED = 2
    ONE_OR_BELOW = 3
    SPEED_MASK = 4


class Duplex(IntEnum):
    """PORT_PHY_QCFG_RESP_DUPLEX_CFG_*"""

    HALF = 0
    FULL = 1


class QportcfgPath(IntEnum):
    """QUEUE_QPORTCFG_REQ_FLAGS_PATH_*"""

    TX = 0
    RX = 1


class ServiceProfile(IntEnum):
    """QUEUE_QPORTCFG_RESP_QUEUE_ID0_SERVICE_PROFILE_*"""

    LOSSY = 0
    LOSSLESS = 1
    LOSSLESS_ROCE = 1
    LOSSY_ROCE_CNP = 2
    LOSSLESS_NIC = 3
    UNKNOWN = 0xFF


class ServiceProfileType(IntFlag):
    """QUEUE_QPORTCFG_RESP_QUEUE_ID0_SERVICE_PROFILE_TYPE_*"""

    ROCE = 0x1
    NIC = 0x2
    CNP = 0x4


class VnicAllocFlags(IntFlag):
    """VNIC_ALLOC_REQ_FLAGS_*"""

    DEFAULT = 0x1
    VIRTIO_NET_FID_VALID = 0x2


class VnicCfgFlags(IntFlag):
    """VNIC_CFG_REQ_FLAGS_*"""

    DEFAULT = 0x1
    VLAN_STRIP_MODE = 0x2
    BD_STALL_MODE = 0x4
    ROCE_DUAL_VNIC_MODE = 0x8
    ROCE_ONLY_VNIC_MODE = 0x10
    RSS_DFLT_CR_MODE = 0x20
    ROCE_MIRRORING_CAPABLE_VNIC_MODE = 0x40
    PORTCOS_MAPPING_MODE = 0x80


class VnicCfgEnables(IntFlag):
    """VNIC_CFG_REQ_ENABLES_*"""

    DFLT_RING_GRP = 0x1
    RSS_RULE = 0x2
    COS_RULE = 0x4
    LB_RULE = 0x8
    MRU = 0x10
    DEFAULT_RX_RING_ID = 0x20
    DEFAULT_CMPL_RING_ID = 0x40
    QUEUE_ID = 0x80
    RX_CSUM_V2_MODE = 0x100
    L2_CQE_MODE = 0x200


class RingType(IntEnum):
    """RING_ALLOC_REQ_RING_TYPE_*"""

    L2_CMPL = 0
    TX = 1
    RX = 2
    ROCE_CMPL = 3
    RX_AGG = 4
    NQ = 5


class RingAllocEnables(IntFlag):
    """RING_ALLOC_REQ_ENABLES_*"""

    RING_ARB_CFG = 0x2
    STAT_CTX_ID_VALID = 0x8
    MAX_BW_VALID = 0x20
    RX_RING_ID_VALID = 0x40
    NQ_RING_ID_VALID = 0x80
    RX_BUF_SIZE_VALID = 0x100
    SCHQ_ID = 0x200
    MPC_CHNLS_TYPE = 0x400
    STEERING_TAG_VALID = 0x800


class RingAllocFlags(IntFlag):
    """RING_ALLOC_REQ_FLAGS_*"""

    RX_SOP_PAD = 0x1
    DISABLE_CQ_OVERFLOW_DETECTION = 0x2
    NQ_DBR_PACING = 0x4
    TX_PKT_TS_CMPL_ENABLE = 0x8


class RingIntMode(IntEnum):
    """RING_ALLOC_REQ_INT_MODE_*"""

    LEGACY = 0
    RSVD = 1
    MSIX = 2
    POLL = 3


class L2FilterFlags(IntFlag):
    """CFA_L2_FILTER_ALLOC_REQ_FLAGS_*"""

    PATH_RX = 0x1
    LOOPBACK = 0x2
    DROP = 0x4
    OUTERMOST = 0x8
    XDP_DISABLE = 0x40
    SOURCE_VALID = 0x80


class L2FilterEnables(IntFlag):
    """CFA_L2_FILTER_ALLOC_REQ_ENABLES_*"""

    L2_ADDR = 0x1
    L2_ADDR_MASK = 0x2
    L2_OVLAN = 0x4
    L2_OVLAN_MASK = 0x8
    L2_IVLAN = 0x10
    L2_IVLAN_MASK = 0x20
    T_L2_ADDR = 0x40
    T_L2_ADDR_MASK = 0x80
    T_L2_OVLAN = 0x100
    T_L2_OVLAN_MASK = 0x200
    T_L2_IVLAN = 0x400
    T_L2_IVLAN_MASK = 0x800
    SRC_TYPE = 0x1000
    SRC_ID = 0x2000
    TUNNEL_TYPE = 0x4000
    DST_ID = 0x8000
    MIRROR_VNIC_ID = 0x10000
    NUM_VLANS = 0x20000
    T_NUM_VLANS = 0x40000


class RxMask(IntFlag):
    """CFA_L2_SET_RX_MASK_REQ_MASK_*"""

    MCAST = 0x2
    ALL_MCAST = 0x4
    BCAST = 0x8
    PROMISCUOUS = 0x10
    OUTERMOST = 0x20
    VLANONLY = 0x40
    VLAN_NONVLAN = 0x80
    ANYVLAN_NONVLAN = 0x100


class StatCtxFlags(IntFlag):
    """STAT_CTX_ALLOC_REQ_STAT_CTX_FLAGS_*"""

    ROCE = 0x1
    DUP_HOST_BUF = 0x2


# ---- What every message has ---------------------------------------------------------------------------------------

_REQUEST = (
    Field(0, 2, "req_type"),
    Field(2, 2, "cmpl_ring"),
    Field(4, 2, "seq_id"),
    Field(6, 2, "target_id"),
    Field(8, 8, "resp_addr"),
)
_RESPONSE = (
    Field(0, 2, "error_code"),
    Field(2, 2, "req_type"),
    Field(4, 2, "seq_id"),
    Field(6, 2, "resp_len"),
)

REQUEST_HEADER = Message("input", 16, *_REQUEST)
RESPONSE_HEADER = Message("output", 8, *_RESPONSE)

# What the firmware answers when it refuses: `cmd_err` is the command's own code, 0 where it has none.
REFUSAL = Message(
    "hwrm_err_output",
    16,
    *_RESPONSE,
    Field(8, 4, "opaque_0"),
    Field(12, 2, "opaque_1"),
    Field(14, 1, "cmd_err"),
    Field(15, 1, "valid"),
    defaults={"resp_len": 16, "valid": 1},
)

# Put into the window in place of a request that lies in memory, where the firmware has the short command or the
# request is longer than the window.
SHORT = Message(
    "hwrm_short_input",
    16,
    Field(0, 2, "req_type"),
    Field(2, 2, "signature"),
    Field(4, 2, "target_id"),
    Field(6, 2, "size"),
    Field(8, 8, "req_addr"),
    defaults={"signature": 0x4321},
)
SHORT_SIGNATURE = 0x4321  # SHORT_REQ_SIGNATURE_SHORT_CMD

REQUESTS: dict[str, Command] = {}
BY_CODE: dict[int, Command] = {}


def sized(size: int, *fields: Field) -> tuple[int, tuple[Field, ...]]:
    return size, fields


def command(
    name: str, code: int, *, request: tuple[int, tuple[Field, ...]], response: tuple[int, tuple[Field, ...]]
) -> Command:
    asked, sent = request
    answered, got = response
    made = Command(
        name,
        code,
        Message(
            f"{name}_input",
            asked,
            *_REQUEST,
            *sent,
            defaults={"req_type": code, "cmpl_ring": NO_COMPLETION_RING, "target_id": TARGET_SELF},
        ),
        Message(
            f"{name}_output",
            answered,
            *_RESPONSE,
            *got,
            Field(answered - 1, 1, "valid"),
            defaults={"req_type": code, "resp_len": answered, "valid": 1},
        ),
    )
    REQUESTS[name] = BY_CODE[code] = made
    return made


# ---- Commands -----------------------------------------------------------------------------------------------------

VER_GET = command(
    "hwrm_ver_get",
    0x0,
    request=sized(
        24,
        Field(16, 1, "hwrm_intf_maj"),
        Field(17, 1, "hwrm_intf_min"),
        Field(18, 1, "hwrm_intf_upd"),
    ),
    response=sized(
        176,
        Field(8, 1, "hwrm_intf_maj_8b"),
        Field(9, 1, "hwrm_intf_min_8b"),
        Field(10, 1, "hwrm_intf_upd_8b"),
        Field(11, 1, "hwrm_intf_rsvd_8b"),
        Field(12, 1, "hwrm_fw_maj_8b"),
        Field(13, 1, "hwrm_fw_min_8b"),
        Field(14, 1, "hwrm_fw_bld_8b"),
        Field(15, 1, "hwrm_fw_rsvd_8b"),
        Field(16, 1, "mgmt_fw_maj_8b"),
        Field(17, 1, "mgmt_fw_min_8b"),
        Field(18, 1, "mgmt_fw_bld_8b"),
        Field(19, 1, "mgmt_fw_rsvd_8b"),
        Field(20, 1, "netctrl_fw_maj_8b"),
        Field(21, 1, "netctrl_fw_min_8b"),
        Field(22, 1, "netctrl_fw_bld_8b"),
        Field(23, 1, "netctrl_fw_rsvd_8b"),
        Field(24, 4, "dev_caps_cfg"),
        Field(28, 1, "roce_fw_maj_8b"),
        Field(29, 1, "roce_fw_min_8b"),
        Field(30, 1, "roce_fw_bld_8b"),
        Field(31, 1, "roce_fw_rsvd_8b"),
        Field(32, 1, "hwrm_fw_name", 16),
        Field(48, 1, "mgmt_fw_name", 16),
        Field(64, 1, "netctrl_fw_name", 16),
        Field(80, 1, "active_pkg_name", 16),
        Field(96, 1, "roce_fw_name", 16),
        Field(112, 2, "chip_num"),
        Field(114, 1, "chip_rev"),
        Field(115, 1, "chip_metal"),
        Field(116, 1, "chip_bond_id"),
        Field(117, 1, "chip_platform_type"),
        Field(118, 2, "max_req_win_len"),
        Field(120, 2, "max_resp_len"),
        Field(122, 2, "def_req_timeout"),
        Field(124, 1, "flags"),
        Field(127, 1, "always_1"),
        Field(128, 2, "hwrm_intf_major"),
        Field(130, 2, "hwrm_intf_minor"),
        Field(132, 2, "hwrm_intf_build"),
        Field(134, 2, "hwrm_intf_patch"),
        Field(136, 2, "hwrm_fw_major"),
        Field(138, 2, "hwrm_fw_minor"),
        Field(140, 2, "hwrm_fw_build"),
        Field(142, 2, "hwrm_fw_patch"),
        Field(144, 2, "mgmt_fw_major"),
        Field(146, 2, "mgmt_fw_minor"),
        Field(148, 2, "mgmt_fw_build"),
        Field(150, 2, "mgmt_fw_patch"),
        Field(152, 2, "netctrl_fw_major"),
        Field(154, 2, "netctrl_fw_minor"),
        Field(156, 2, "netctrl_fw_build"),
        Field(158, 2, "netctrl_fw_patch"),
        Field(160, 2, "roce_fw_major"),
        Field(162, 2, "roce_fw_minor"),
        Field(164, 2, "roce_fw_build"),
        Field(166, 2, "roce_fw_patch"),
        Field(168, 2, "max_ext_req_len"),
        Field(170, 2, "max_req_timeout"),
    ),
)
FUNC_RESET = command(
    "hwrm_func_reset",
    0x11,
    request=sized(
        24,
        Field(16, 4, "enables"),
        Field(20, 2, "vf_id"),
        Field(22, 1, "func_reset_level"),
    ),
    response=sized(16),
)
FUNC_QCAPS = command(
    "hwrm_func_qcaps",
    0x15,
    request=sized(
        24,
        Field(16, 2, "fid"),
    ),
    response=sized(
        144,
        Field(8, 2, "fid"),
        Field(10, 2, "port_id"),
        Field(12, 4, "flags"),
        Field(16, 1, "mac_address", 6),
        Field(22, 2, "max_rsscos_ctx"),
        Field(24, 2, "max_cmpl_rings"),
        Field(26, 2, "max_tx_rings"),
        Field(28, 2, "max_rx_rings"),
        Field(30, 2, "max_l2_ctxs"),
        Field(32, 2, "max_vnics"),
        Field(34, 2, "first_vf_id"),
        Field(36, 2, "max_vfs"),
        Field(38, 2, "max_stat_ctx"),
        Field(40, 4, "max_encap_records"),
        Field(44, 4, "max_decap_records"),
        Field(48, 4, "max_tx_em_flows"),
        Field(52, 4, "max_tx_wm_flows"),
        Field(56, 4, "max_rx_em_flows"),
        Field(60, 4, "max_rx_wm_flows"),
        Field(64, 4, "max_mcast_filters"),
        Field(68, 4, "max_flow_id"),
        Field(72, 4, "max_hw_ring_grps"),
        Field(76, 2, "max_sp_tx_rings"),
        Field(78, 2, "max_msix_vfs"),
        Field(80, 4, "flags_ext"),
        Field(84, 1, "max_schqs"),
        Field(85, 1, "mpc_chnls_cap"),
        Field(86, 2, "max_key_ctxs_alloc"),
        Field(88, 4, "flags_ext2"),
        Field(92, 2, "tunnel_disable_flag"),
        Field(94, 2, "xid_partition_cap"),
        Field(96, 1, "device_serial_number", 8),
        Field(104, 2, "ctxs_per_partition"),
        Field(106, 2, "max_tso_segs"),
        Field(108, 4, "roce_vf_max_av"),
        Field(112, 4, "roce_vf_max_cq"),
        Field(116, 4, "roce_vf_max_mrw"),
        Field(120, 4, "roce_vf_max_qp"),
        Field(124, 4, "roce_vf_max_srq"),
        Field(128, 4, "roce_vf_max_gid"),
        Field(132, 4, "flags_ext3"),
        Field(136, 2, "max_roce_vfs"),
    ),
)
FUNC_QCFG = command(
    "hwrm_func_qcfg",
    0x16,
    request=sized(
        24,
        Field(16, 2, "fid"),
    ),
    response=sized(
        160,
        Field(8, 2, "fid"),
        Field(10, 2, "port_id"),
        Field(12, 2, "vlan"),
        Field(14, 2, "flags"),
        Field(16, 1, "mac_address", 6),
        Field(22, 2, "pci_id"),
        Field(24, 2, "alloc_rsscos_ctx"),
        Field(26, 2, "alloc_cmpl_rings"),
        Field(28, 2, "alloc_tx_rings"),
        Field(30, 2, "alloc_rx_rings"),
        Field(32, 2, "alloc_l2_ctx"),
        Field(34, 2, "alloc_vnics"),
        Field(36, 2, "admin_mtu"),
        Field(38, 2, "mru"),
        Field(40, 2, "stat_ctx_id"),
        Field(42, 1, "port_partition_type"),
        Field(43, 1, "port_pf_cnt"),
        Field(44, 2, "dflt_vnic_id"),
        Field(46, 2, "max_mtu_configured"),
        Field(48, 4, "min_bw"),
        Field(52, 4, "max_bw"),
        Field(56, 1, "evb_mode"),
        Field(57, 1, "options", options_cache_linesize=0x3, options_link_admin_state=0xC),
        Field(58, 2, "alloc_vfs"),
        Field(60, 4, "alloc_mcast_filters"),
        Field(64, 4, "alloc_hw_ring_grps"),
        Field(68, 2, "alloc_sp_tx_rings"),
        Field(70, 2, "alloc_stat_ctx"),
        Field(72, 2, "alloc_msix"),
        Field(74, 2, "registered_vfs"),
        Field(76, 2, "l2_doorbell_bar_size_kb"),
        Field(78, 1, "active_endpoints"),
        Field(79, 1, "always_1"),
        Field(80, 4, "reset_addr_poll"),
        Field(84, 2, "legacy_l2_db_size_kb"),  # P7: where the doorbell page is in BAR 2
        Field(86, 2, "svif_info", svif_info_svif=0x7FFF),
        Field(88, 1, "mpc_chnls"),
        Field(89, 1, "db_page_size"),
        Field(90, 2, "roce_vnic_id"),
        Field(92, 4, "partition_min_bw"),
        Field(96, 4, "partition_max_bw"),
        Field(100, 2, "host_mtu"),
        Field(102, 2, "flags2"),
        Field(106, 1, "port_kdnet_mode"),
        Field(107, 1, "kdnet_pcie_function"),
        Field(108, 2, "port_kdnet_fid"),
        Field(112, 4, "num_ktls_tx_key_ctxs"),
        Field(116, 4, "num_ktls_rx_key_ctxs"),
        Field(120, 1, "lag_id"),
        Field(121, 1, "parif"),
        Field(122, 1, "fw_lag_id"),
        Field(124, 4, "num_quic_tx_key_ctxs"),
        Field(128, 4, "num_quic_rx_key_ctxs"),
        Field(132, 4, "roce_max_av_per_vf"),
        Field(136, 4, "roce_max_cq_per_vf"),
        Field(140, 4, "roce_max_mrw_per_vf"),
        Field(144, 4, "roce_max_qp_per_vf"),
        Field(148, 4, "roce_max_srq_per_vf"),
        Field(152, 4, "roce_max_gid_per_vf"),
        Field(156, 2, "xid_partition_cfg"),
    ),
)
FUNC_CFG = command(
    "hwrm_func_cfg",
    0x17,
    request=sized(
        160,
        Field(16, 2, "fid"),
        Field(18, 2, "num_msix"),
        Field(20, 4, "flags"),
        Field(24, 4, "enables"),
        Field(28, 2, "admin_mtu"),
        Field(30, 2, "mru"),
        Field(32, 2, "num_rsscos_ctxs"),
        Field(34, 2, "num_cmpl_rings"),
        Field(36, 2, "num_tx_rings"),
        Field(38, 2, "num_rx_rings"),
        Field(40, 2, "num_l2_ctxs"),
        Field(42, 2, "num_vnics"),
        Field(44, 2, "num_stat_ctxs"),
        Field(46, 2, "num_hw_ring_grps"),
        Field(48, 1, "dflt_mac_addr", 6),
        Field(54, 2, "dflt_vlan"),
        Field(56, 4, "dflt_ip_addr", 4),  # big-endian in the header
        Field(72, 4, "min_bw"),
        Field(76, 4, "max_bw"),
        Field(80, 2, "async_event_cr"),
        Field(82, 1, "vlan_antispoof_mode"),
        Field(83, 1, "allowed_vlan_pris"),
        Field(84, 1, "evb_mode"),
        Field(85, 1, "options", options_cache_linesize=0x3, options_link_admin_state=0xC),
        Field(86, 2, "num_mcast_filters"),
        Field(88, 2, "schq_id"),
        Field(90, 2, "mpc_chnls"),
        Field(92, 4, "partition_min_bw"),
        Field(96, 4, "partition_max_bw"),
        Field(100, 2, "tpid"),  # big-endian in the header
        Field(102, 2, "host_mtu"),
        Field(104, 4, "flags2"),
        Field(108, 4, "enables2"),
        Field(112, 1, "port_kdnet_mode"),
        Field(113, 1, "db_page_size"),
        Field(114, 2, "physical_slot_number"),
        Field(116, 4, "num_ktls_tx_key_ctxs"),
        Field(120, 4, "num_ktls_rx_key_ctxs"),
        Field(124, 4, "num_quic_tx_key_ctxs"),
        Field(128, 4, "num_quic_rx_key_ctxs"),
        Field(132, 4, "roce_max_av_per_vf"),
        Field(136, 4, "roce_max_cq_per_vf"),
        Field(140, 4, "roce_max_mrw_per_vf"),
        Field(144, 4, "roce_max_qp_per_vf"),
        Field(148, 4, "roce_max_srq_per_vf"),
        Field(152, 4, "roce_max_gid_per_vf"),
        Field(156, 2, "xid_partition_cfg"),
    ),
    response=sized(16),
)
FUNC_DRV_RGTR = command(
    "hwrm_func_drv_rgtr",
    0x1D,
    request=sized(
        112,
        Field(16, 4, "flags"),
        Field(20, 4, "enables"),
        Field(24, 2, "os_type"),
        Field(26, 1, "ver_maj_8b"),
        Field(27, 1, "ver_min_8b"),
        Field(28, 1, "ver_upd_8b"),
        Field(32, 4, "timestamp"),
        Field(40, 4, "vf_req_fwd", 8),
        Field(72, 4, "async_event_fwd", 8),
        Field(104, 2, "ver_maj"),
        Field(106, 2, "ver_min"),
        Field(108, 2, "ver_upd"),
        Field(110, 2, "ver_patch"),
    ),
    response=sized(
        16,
        Field(8, 4, "flags"),
    ),
)
FUNC_DRV_UNRGTR = command(
    "hwrm_func_drv_unrgtr",
    0x1A,
    request=sized(
        24,
        Field(16, 4, "flags"),
    ),
    response=sized(16),
)
FUNC_RESOURCE_QCAPS = command(
    "hwrm_func_resource_qcaps",
    0x190,
    request=sized(
        24,
        Field(16, 2, "fid"),
    ),
    response=sized(
        88,
        Field(8, 2, "max_vfs"),
        Field(10, 2, "max_msix"),
        Field(12, 2, "vf_reservation_strategy"),
        Field(14, 2, "min_rsscos_ctx"),
        Field(16, 2, "max_rsscos_ctx"),
        Field(18, 2, "min_cmpl_rings"),
        Field(20, 2, "max_cmpl_rings"),
        Field(22, 2, "min_tx_rings"),
        Field(24, 2, "max_tx_rings"),
        Field(26, 2, "min_rx_rings"),
        Field(28, 2, "max_rx_rings"),
        Field(30, 2, "min_l2_ctxs"),
        Field(32, 2, "max_l2_ctxs"),
        Field(34, 2, "min_vnics"),
        Field(36, 2, "max_vnics"),
        Field(38, 2, "min_stat_ctx"),
        Field(40, 2, "max_stat_ctx"),
        Field(42, 2, "min_hw_ring_grps"),
        Field(44, 2, "max_hw_ring_grps"),
        Field(46, 2, "max_tx_scheduler_inputs"),
        Field(48, 2, "flags"),
        Field(50, 2, "min_msix"),
        Field(52, 4, "min_ktls_tx_key_ctxs"),
        Field(56, 4, "max_ktls_tx_key_ctxs"),
        Field(60, 4, "min_ktls_rx_key_ctxs"),
        Field(64, 4, "max_ktls_rx_key_ctxs"),
        Field(68, 4, "min_quic_tx_key_ctxs"),
        Field(72, 4, "max_quic_tx_key_ctxs"),
        Field(76, 4, "min_quic_rx_key_ctxs"),
        Field(80, 4, "max_quic_rx_key_ctxs"),
    ),
)
FUNC_BACKING_STORE_QCAPS_V2 = command(
    "hwrm_func_backing_store_qcaps_v2",
    0x1A8,
    request=sized(
        24,
        Field(16, 2, "type"),
    ),
    response=sized(
        56,
        Field(8, 2, "type"),
        Field(10, 2, "entry_size"),
        Field(12, 4, "flags"),
        Field(16, 4, "instance_bit_map"),
        Field(20, 1, "ctx_init_value"),
        Field(21, 1, "ctx_init_offset"),
        Field(22, 1, "entry_multiple"),
        Field(24, 4, "max_num_entries"),
        Field(28, 4, "min_num_entries"),
        Field(32, 2, "next_valid_type"),
        Field(34, 1, "subtype_valid_cnt"),
        Field(35, 1, "exact_cnt_bit_map"),
        Field(36, 4, "split_entry_0"),
        Field(40, 4, "split_entry_1"),
        Field(44, 4, "split_entry_2"),
        Field(48, 4, "split_entry_3"),
        Field(52, 2, "max_instance_count"),
    ),
)
FUNC_BACKING_STORE_CFG_V2 = command(
    "hwrm_func_backing_store_cfg_v2",
    0x1A3,
    request=sized(
        64,
        Field(16, 2, "type"),
        Field(18, 2, "instance"),
        Field(20, 4, "flags"),
        Field(24, 8, "page_dir"),
        Field(32, 4, "num_entries"),
        Field(36, 2, "entry_size"),
        Field(38, 1, "page_size_pbl_level", pbl_level=0xF, page_size=0xF0),
        Field(39, 1, "subtype_valid_cnt"),
        Field(40, 4, "split_entry_0"),
        Field(44, 4, "split_entry_1"),
        Field(48, 4, "split_entry_2"),
        Field(52, 4, "split_entry_3"),
        Field(56, 4, "enables"),
        Field(60, 4, "next_bs_offset"),
    ),
    response=sized(16),
)
PORT_PHY_QCFG = command(
    "hwrm_port_phy_qcfg",
    0x27,
    request=sized(
        24,
        Field(16, 2, "port_id"),
    ),
    response=sized(
        104,
        Field(8, 1, "link"),
        Field(9, 1, "active_fec_signal_mode", signal_mode=0xF, active_fec=0xF0),
        Field(10, 2, "link_speed"),  # hundreds of Mb/s; 0xffff: 10 Mb/s
        Field(12, 1, "duplex_cfg"),
        Field(13, 1, "pause"),
        Field(14, 2, "support_speeds"),
        Field(16, 2, "force_link_speed"),
        Field(18, 1, "auto_mode"),
        Field(19, 1, "auto_pause"),
        Field(20, 2, "auto_link_speed"),
        Field(22, 2, "auto_link_speed_mask"),
        Field(24, 1, "wirespeed"),
        Field(25, 1, "lpbk"),
        Field(26, 1, "force_pause"),
        Field(27, 1, "module_status"),
        Field(28, 4, "preemphasis"),
        Field(32, 1, "phy_maj"),
        Field(33, 1, "phy_min"),
        Field(34, 1, "phy_bld"),
        Field(35, 1, "phy_type"),
        Field(36, 1, "media_type"),
        Field(37, 1, "xcvr_pkg_type"),
        Field(38, 1, "eee_config_phy_addr", phy_addr=0x1F, eee_config=0xE0),
        Field(39, 1, "parallel_detect"),
        Field(40, 2, "link_partner_adv_speeds"),
        Field(42, 1, "link_partner_adv_auto_mode"),
        Field(43, 1, "link_partner_adv_pause"),
        Field(44, 2, "adv_eee_link_speed_mask"),
        Field(46, 2, "link_partner_adv_eee_link_speed_mask"),
        Field(48, 4, "xcvr_identifier_type_tx_lpi_timer", tx_lpi_timer=0xFFFFFF, xcvr_identifier_type=0xFF000000),
        Field(52, 2, "fec_cfg"),
        Field(54, 1, "duplex_state"),
        Field(55, 1, "option_flags"),
        Field(56, 1, "phy_vendor_name", 16),
        Field(72, 1, "phy_vendor_partnumber", 16),
        Field(88, 2, "support_pam4_speeds"),
        Field(90, 2, "force_pam4_link_speed"),
        Field(92, 2, "auto_pam4_link_speed_mask"),
        Field(94, 1, "link_partner_pam4_adv_speeds"),
        Field(95, 1, "link_down_reason"),
        Field(96, 2, "support_speeds2"),
        Field(98, 2, "force_link_speeds2"),
        Field(100, 2, "auto_link_speeds2"),
        Field(102, 1, "active_lanes"),
    ),
)
PORT_PHY_CFG = command(
    "hwrm_port_phy_cfg",
    0x20,
    request=sized(
        64,
        Field(16, 4, "flags"),
        Field(20, 4, "enables"),
        Field(24, 2, "port_id"),
        Field(26, 2, "force_link_speed"),
        Field(28, 1, "auto_mode"),
        Field(29, 1, "auto_duplex"),
        Field(30, 1, "auto_pause"),
        Field(31, 1, "mgmt_flag"),
        Field(32, 2, "auto_link_speed"),
        Field(34, 2, "auto_link_speed_mask"),
        Field(36, 1, "wirespeed"),
        Field(37, 1, "lpbk"),
        Field(38, 1, "force_pause"),
        Field(40, 4, "preemphasis"),
        Field(44, 2, "eee_link_speed_mask"),
        Field(46, 2, "force_pam4_link_speed"),
        Field(48, 4, "tx_lpi_timer"),
        Field(52, 2, "auto_link_pam4_speed_mask"),
        Field(54, 2, "force_link_speeds2"),
        Field(56, 2, "auto_link_speeds2_mask"),
    ),
    response=sized(16),
)
QUEUE_QPORTCFG = command(
    "hwrm_queue_qportcfg",
    0x30,
    request=sized(
        24,
        Field(16, 4, "flags"),
        Field(20, 2, "port_id"),
        Field(22, 1, "drv_qmap_cap"),
    ),
    response=sized(
        168,
        Field(8, 1, "max_configurable_queues"),
        Field(9, 1, "max_configurable_lossless_queues"),
        Field(10, 1, "queue_cfg_allowed"),
        Field(11, 1, "queue_cfg_info"),
        Field(12, 1, "queue_pfcenable_cfg_allowed"),
        Field(13, 1, "queue_pri2cos_cfg_allowed"),
        Field(14, 1, "queue_cos2bw_cfg_allowed"),
        Field(15, 1, "queue_id0"),
        Field(16, 1, "queue_id0_service_profile"),
        Field(17, 1, "queue_id1"),
        Field(18, 1, "queue_id1_service_profile"),
        Field(19, 1, "queue_id2"),
        Field(20, 1, "queue_id2_service_profile"),
        Field(21, 1, "queue_id3"),
        Field(22, 1, "queue_id3_service_profile"),
        Field(23, 1, "queue_id4"),
        Field(24, 1, "queue_id4_service_profile"),
        Field(25, 1, "queue_id5"),
        Field(26, 1, "queue_id5_service_profile"),
        Field(27, 1, "queue_id6"),
        Field(28, 1, "queue_id6_service_profile"),
        Field(29, 1, "queue_id7"),
        Field(30, 1, "queue_id7_service_profile"),
        Field(31, 1, "queue_id0_service_profile_type"),
        Field(32, 1, "qid0_name", 16),
        Field(48, 1, "qid1_name", 16),
        Field(64, 1, "qid2_name", 16),
        Field(80, 1, "qid3_name", 16),
        Field(96, 1, "qid4_name", 16),
        Field(112, 1, "qid5_name", 16),
        Field(128, 1, "qid6_name", 16),
        Field(144, 1, "qid7_name", 16),
        Field(160, 1, "queue_id1_service_profile_type"),
        Field(161, 1, "queue_id2_service_profile_type"),
        Field(162, 1, "queue_id3_service_profile_type"),
        Field(163, 1, "queue_id4_service_profile_type"),
        Field(164, 1, "queue_id5_service_profile_type"),
        Field(165, 1, "queue_id6_service_profile_type"),
        Field(166, 1, "queue_id7_service_profile_type"),
    ),
)
VNIC_ALLOC = command(
    "hwrm_vnic_alloc",
    0x40,
    request=sized(
        24,
        Field(16, 4, "flags"),
        Field(20, 2, "virtio_net_fid"),
    ),
    response=sized(
        16,
        Field(8, 4, "vnic_id"),
    ),
)
VNIC_CFG = command(
    "hwrm_vnic_cfg",
    0x42,
    request=sized(
        48,
        Field(16, 4, "flags"),
        Field(20, 4, "enables"),
        Field(24, 2, "vnic_id"),
        Field(26, 2, "dflt_ring_grp"),
        Field(28, 2, "rss_rule"),
        Field(30, 2, "cos_rule"),
        Field(32, 2, "lb_rule"),
        Field(34, 2, "mru"),
        Field(36, 2, "default_rx_ring_id"),
        Field(38, 2, "default_cmpl_ring_id"),
        Field(40, 2, "queue_id"),
        Field(42, 1, "rx_csum_v2_mode"),
        Field(43, 1, "l2_cqe_mode"),
    ),
    response=sized(16),
)
VNIC_FREE = command(
    "hwrm_vnic_free",
    0x41,
    request=sized(
        24,
        Field(16, 4, "vnic_id"),
    ),
    response=sized(16),
)
RING_ALLOC = command(
    "hwrm_ring_alloc",
    0x50,
    request=sized(
        88,
        Field(16, 4, "enables"),
        Field(20, 1, "ring_type"),
        Field(21, 1, "cmpl_coal_cnt"),
        Field(22, 2, "flags"),
        Field(24, 8, "page_tbl_addr"),
        Field(32, 4, "fbo"),
        Field(36, 1, "page_size"),  # log2
        Field(37, 1, "page_tbl_depth"),
        Field(38, 2, "schq_id"),
        Field(40, 4, "length"),
        Field(44, 2, "logical_id"),
        Field(46, 2, "cmpl_ring_id"),
        Field(48, 2, "queue_id"),
        Field(50, 2, "rx_buf_size"),
        Field(52, 2, "rx_ring_id"),
        Field(54, 2, "nq_ring_id"),
        Field(56, 2, "ring_arb_cfg", ring_arb_cfg_arb_policy=0xF, ring_arb_cfg_arb_policy_param=0xFF00),
        Field(58, 2, "steering_tag"),
        Field(64, 4, "stat_ctx_id"),
        Field(72, 4, "max_bw"),
        Field(76, 1, "int_mode"),
        Field(77, 1, "mpc_chnls_type"),
        Field(80, 8, "cq_handle"),
    ),
    response=sized(
        16,
        Field(8, 2, "ring_id"),
        Field(10, 2, "logical_ring_id"),
        Field(12, 1, "push_buffer_index"),
    ),
)
RING_FREE = command(
    "hwrm_ring_free",
    0x51,
    request=sized(
        32,
        Field(16, 1, "ring_type"),
        Field(17, 1, "flags"),
        Field(18, 2, "ring_id"),
        Field(20, 4, "prod_idx"),
        Field(24, 4, "opaque"),
    ),
    response=sized(16),
)
CFA_L2_FILTER_ALLOC = command(
    "hwrm_cfa_l2_filter_alloc",
    0x90,
    request=sized(
        96,
        Field(16, 4, "flags", flags_traffic=0x30),
        Field(20, 4, "enables"),
        Field(24, 1, "l2_addr", 6),
        Field(30, 1, "num_vlans"),
        Field(31, 1, "t_num_vlans"),
        Field(32, 1, "l2_addr_mask", 6),
        Field(38, 2, "l2_ovlan"),
        Field(40, 2, "l2_ovlan_mask"),
        Field(42, 2, "l2_ivlan"),
        Field(44, 2, "l2_ivlan_mask"),
        Field(48, 1, "t_l2_addr", 6),
        Field(56, 1, "t_l2_addr_mask", 6),
        Field(62, 2, "t_l2_ovlan"),
        Field(64, 2, "t_l2_ovlan_mask"),
        Field(66, 2, "t_l2_ivlan"),
        Field(68, 2, "t_l2_ivlan_mask"),
        Field(70, 1, "src_type"),
        Field(72, 4, "src_id"),
        Field(76, 1, "tunnel_type"),
        Field(78, 2, "dst_id"),
        Field(80, 2, "mirror_vnic_id"),
        Field(82, 1, "pri_hint"),
        Field(88, 8, "l2_filter_id_hint"),
    ),
    response=sized(
        24,
        Field(8, 8, "l2_filter_id"),
        Field(16, 4, "flow_id", flow_id_value=0x3FFFFFFF),
    ),
)
CFA_L2_FILTER_FREE = command(
    "hwrm_cfa_l2_filter_free",
    0x91,
    request=sized(
        24,
        Field(16, 8, "l2_filter_id"),
    ),
    response=sized(16),
)
CFA_L2_SET_RX_MASK = command(
    "hwrm_cfa_l2_set_rx_mask",
    0x93,
    request=sized(
        56,
        Field(16, 4, "vnic_id"),
        Field(20, 4, "mask"),
        Field(24, 8, "mc_tbl_addr"),
        Field(32, 4, "num_mc_entries"),
        Field(40, 8, "vlan_tag_tbl_addr"),
        Field(48, 4, "num_vlan_tags"),
    ),
    response=sized(16),
)
STAT_CTX_ALLOC = command(
    "hwrm_stat_ctx_alloc",
    0xB0,
    request=sized(
        48,
        Field(16, 8, "stats_dma_addr"),
        Field(24, 4, "update_period_ms"),
        Field(28, 1, "stat_ctx_flags"),
        Field(30, 2, "stats_dma_length"),
        Field(32, 2, "flags"),
        Field(34, 2, "steering_tag"),
        Field(36, 4, "stat_ctx_id"),
        Field(40, 2, "alloc_seq_id"),
    ),
    response=sized(
        16,
        Field(8, 4, "stat_ctx_id"),
    ),
)
STAT_CTX_FREE = command(
    "hwrm_stat_ctx_free",
    0xB1,
    request=sized(
        24,
        Field(16, 4, "stat_ctx_id"),
    ),
    response=sized(
        16,
        Field(8, 4, "stat_ctx_id"),
    ),
)
