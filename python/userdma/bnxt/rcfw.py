"""RCFW: the commands of a Broadcom function's RoCE firmware, the answers and the events.

Tables only. Names, offsets and numbers are those of the kernel's roce_hsi.h, fields that it calls unused or reserved
left out. A command is written to the CMDQ in slots of 16 bytes (`cmd_size` of them), its answer is one CREQ entry of
16 bytes with the command's `cookie`; what does not fit there is written to the side buffer at `resp_addr` of
`resp_size` units of 16 bytes, whose layout is a command's `buffer`. A class's docstring names the macros that it holds.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from userdma.messages import Command, Field, Message

SLOT = 16  # BNXT_QPLIB_CMDQE_UNITS


def slots(size: int) -> int:
    """How many slots hold `size` bytes: of a command in the CMDQ, or of a side buffer's `resp_size`."""
    return -(-size // SLOT)


def gid_bytes(gid: bytes) -> bytes:
    """A GID as ADD_GID and MODIFY_GID take it, or back: its 16 bytes in reverse (qplib_sp.c bnxt_qplib_add_sgid).

    MODIFY_QP's and CREATE_AH's dgid are the 16 bytes as they are.
    """
    return bytes(gid[::-1])


def mac_bytes(mac: bytes) -> bytes:
    """A MAC as ADD_GID and MODIFY_GID take it, or back: each pair of bytes swapped.

    MODIFY_QP's and CREATE_AH's dest_mac are the 6 bytes as they are.
    """
    return bytes(mac[at ^ 1] for at in range(len(mac)))


class Status(IntEnum):
    """CREQ_QP_EVENT_STATUS_*"""

    SUCCESS = 0
    FAIL = 1
    RESOURCES = 2
    INVALID_CMD = 3
    NOT_IMPLEMENTED = 4
    INVALID_PARAMETER = 5
    HARDWARE_ERROR = 6
    INTERNAL_ERROR = 7


class EventType(IntEnum):
    """CREQ_BASE_TYPE_*"""

    QP_EVENT = 0x38
    FUNC_EVENT = 0x3A


class Event(IntEnum):
    """CREQ_QP_EVENT_EVENT_*"""

    QP_ERROR_NOTIFICATION = 0xC0
    CQ_ERROR_NOTIFICATION = 0xC1


class FuncEvent(IntEnum):
    """CREQ_FUNC_EVENT_EVENT_*"""

    TX_WQE_ERROR = 1
    TX_DATA_ERROR = 2
    RX_WQE_ERROR = 3
    RX_DATA_ERROR = 4
    CQ_ERROR = 5
    TQM_ERROR = 6
    CFCQ_ERROR = 7
    CFCS_ERROR = 8
    CFCC_ERROR = 9
    CFCM_ERROR = 0xA
    TIM_ERROR = 0xB
    VF_COMM_REQUEST = 0x80
    RESOURCE_EXHAUSTED = 0x81


class RequesterReason(IntEnum):
    """CREQ_QP_ERROR_NOTIFICATION_REQ_ERR_STATE_REASON_*"""

    NO_ERROR = 0
    REQ_OPCODE_ERROR = 1
    REQ_TIMEOUT_RETRY_LIMIT = 2
    REQ_RNR_TIMEOUT_RETRY_LIMIT = 3
    REQ_NAK_ARRIVAL_1 = 4
    REQ_NAK_ARRIVAL_2 = 5
    REQ_NAK_ARRIVAL_3 = 6
    REQ_NAK_ARRIVAL_4 = 7
    REQ_RX_MEMORY_ERROR = 8
    REQ_TX_MEMORY_ERROR = 9
    REQ_READ_RESP_LENGTH = 0xA
    REQ_INVALID_READ_RESP = 0xB
    REQ_ILLEGAL_BIND = 0xC
    REQ_ILLEGAL_FAST_REG = 0xD
    REQ_ILLEGAL_INVALIDATE = 0xE
    REQ_CMP_ERROR = 0xF
    REQ_RETRAN_LOCAL_ERROR = 0x10
    REQ_WQE_FORMAT_ERROR = 0x11
    REQ_ORRQ_FORMAT_ERROR = 0x12
    REQ_INVALID_AVID_ERROR = 0x13
    REQ_AV_DOMAIN_ERROR = 0x14
    REQ_CQ_LOAD_ERROR = 0x15
    REQ_SERV_TYPE_ERROR = 0x16
    REQ_INVALID_OP_ERROR = 0x17
    REQ_TX_PCI_ERROR = 0x18
    REQ_RX_PCI_ERROR = 0x19
    REQ_PROD_WQE_MSMTCH_ERROR = 0x1A
    REQ_PSN_RANGE_CHECK_ERROR = 0x1B
    REQ_RETX_SETUP_ERROR = 0x1C


class ResponderReason(IntEnum):
    """CREQ_QP_ERROR_NOTIFICATION_RES_ERR_STATE_REASON_*"""

    NO_ERROR = 0
    RES_EXCEED_MAX = 1
    RES_PAYLOAD_LENGTH_MISMATCH = 2
    RES_EXCEEDS_WQE = 3
    RES_OPCODE_ERROR = 4
    RES_PSN_SEQ_ERROR_RETRY_LIMIT = 5
    RES_RX_INVALID_R_KEY = 6
    RES_RX_DOMAIN_ERROR = 7
    RES_RX_NO_PERMISSION = 8
    RES_RX_RANGE_ERROR = 9
    RES_TX_INVALID_R_KEY = 0xA
    RES_TX_DOMAIN_ERROR = 0xB
    RES_TX_NO_PERMISSION = 0xC
    RES_TX_RANGE_ERROR = 0xD
    RES_IRRQ_OFLOW = 0xE
    RES_UNSUPPORTED_OPCODE = 0xF
    RES_UNALIGN_ATOMIC = 0x10
    RES_REM_INVALIDATE = 0x11
    RES_MEMORY_ERROR = 0x12
    RES_SRQ_ERROR = 0x13
    RES_CMP_ERROR = 0x14
    RES_INVALID_DUP_RKEY = 0x15
    RES_WQE_FORMAT_ERROR = 0x16
    RES_IRRQ_FORMAT_ERROR = 0x17
    RES_CQ_LOAD_ERROR = 0x18
    RES_SRQ_LOAD_ERROR = 0x19
    RES_TX_PCI_ERROR = 0x1B
    RES_RX_PCI_ERROR = 0x1C
    RES_PSN_NOT_FOUND = 0x1D


class QpFlags(IntFlag):
    """CMDQ_CREATE_QP_QP_FLAGS_*"""

    SRQ_USED = 0x1
    FORCE_COMPLETION = 0x2
    RESERVED_LKEY_ENABLE = 0x4
    FR_PMR_ENABLED = 0x8
    VARIABLE_SIZED_WQE_ENABLED = 0x10
    OPTIMIZED_TRANSMIT_ENABLED = 0x20
    RESPONDER_UD_CQE_WITH_CFA = 0x40
    EXT_STATS_ENABLED = 0x80
    EXPRESS_MODE_ENABLED = 0x100
    STEERING_TAG_VALID = 0x200
    RDMA_READ_OR_ATOMICS_USED = 0x400


class QpType(IntEnum):
    """CMDQ_CREATE_QP_TYPE_*"""

    RC = 2
    UD = 4
    RAW_ETHERTYPE = 6
    GSI = 7


class PageSize(IntEnum):
    """CMDQ_CREATE_QP_SQ_PG_SIZE_* >> CMDQ_CREATE_QP_SQ_PG_SIZE_SFT: every pg_size but REGISTER_MR's, which are log2."""

    PG_4K = 0
    PG_8K = 1
    PG_64K = 2
    PG_2M = 3
    PG_8M = 4
    PG_1G = 5


class ModifyMask(IntFlag):
    """CMDQ_MODIFY_QP_MODIFY_MASK_*"""

    STATE = 0x1
    EN_SQD_ASYNC_NOTIFY = 0x2
    ACCESS = 0x4
    PKEY = 0x8
    QKEY = 0x10
    DGID = 0x20
    FLOW_LABEL = 0x40
    SGID_INDEX = 0x80
    HOP_LIMIT = 0x100
    TRAFFIC_CLASS = 0x200
    DEST_MAC = 0x400
    PINGPONG_PUSH_MODE = 0x800
    PATH_MTU = 0x1000
    TIMEOUT = 0x2000
    RETRY_CNT = 0x4000
    RNR_RETRY = 0x8000
    RQ_PSN = 0x10000
    MAX_RD_ATOMIC = 0x20000
    MIN_RNR_TIMER = 0x40000
    SQ_PSN = 0x80000
    MAX_DEST_RD_ATOMIC = 0x100000
    SQ_SIZE = 0x200000
    RQ_SIZE = 0x400000
    SQ_SGE = 0x800000
    RQ_SGE = 0x1000000
    MAX_INLINE_DATA = 0x2000000
    DEST_QP_ID = 0x4000000
    SRC_MAC = 0x8000000
    VLAN_ID = 0x10000000
    ENABLE_CC = 0x20000000
    TOS_ECN = 0x40000000
    TOS_DSCP = 0x80000000


class QpState(IntEnum):
    """CMDQ_MODIFY_QP_NEW_STATE_*"""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class NetworkType(IntEnum):
    """CMDQ_MODIFY_QP_NETWORK_TYPE_* >> CMDQ_MODIFY_QP_NETWORK_TYPE_SFT"""

    ROCEV1 = 0
    ROCEV2_IPV4 = 2
    ROCEV2_IPV6 = 3


class QpAccess(IntFlag):
    """CMDQ_MODIFY_QP_ACCESS_*: remote read and write are the other way round than in MrAccess."""

    LOCAL_WRITE = 0x1
    REMOTE_WRITE = 0x2
    REMOTE_READ = 0x4
    REMOTE_ATOMIC = 0x8


class PathMtu(IntEnum):
    """CMDQ_MODIFY_QP_PATH_MTU_* >> CMDQ_MODIFY_QP_PATH_MTU_SFT"""

    MTU_256 = 0
    MTU_512 = 1
    MTU_1024 = 2
    MTU_2048 = 3
    MTU_4096 = 4
    MTU_8192 = 5


class CqFlags(IntFlag):
    """CMDQ_CREATE_CQ_FLAGS_*"""

    DISABLE_CQ_OVERFLOW_DETECTION = 0x1
    STEERING_TAG_VALID = 0x2
    INFINITE_CQ_MODE = 0x4


class MrwType(IntEnum):
    """CMDQ_ALLOCATE_MRW_MRW_FLAGS_*"""

    MR = 0
    PMR = 1
    MW_TYPE1 = 2
    MW_TYPE2A = 3
    MW_TYPE2B = 4


class RegisterMrFlags(IntFlag):
    """CMDQ_REGISTER_MR_FLAGS_*"""

    ALLOC_MR = 0x1
    STEERING_TAG_VALID = 0x2
    ENABLE_RO = 0x4


class MrAccess(IntFlag):
    """CMDQ_REGISTER_MR_ACCESS_*"""

    LOCAL_WRITE = 0x1
    REMOTE_READ = 0x2
    REMOTE_WRITE = 0x4
    REMOTE_ATOMIC = 0x8
    MW_BIND = 0x10
    ZERO_BASED = 0x20


class InitializeFwFlags(IntFlag):
    """CMDQ_INITIALIZE_FW_FLAGS_*"""

    MRAV_RESERVATION_SPLIT = 0x1
    HW_REQUESTER_RETX_SUPPORTED = 0x2


class DevCapFlags(IntFlag):
    """CREQ_QUERY_FUNC_RESP_SB_*: of the field dev_cap_flags."""

    RESIZE_QP = 0x1
    EXT_STATS = 0x10
    MR_REGISTER_ALLOC = 0x20
    OPTIMIZED_TRANSMIT_ENABLED = 0x40
    CQE_V2 = 0x80
    PINGPONG_PUSH_MODE = 0x100
    HW_REQUESTER_RETX_ENABLED = 0x200
    HW_RESPONDER_RETX_ENABLED = 0x400


class DevCapExtFlags(IntFlag):
    """CREQ_QUERY_FUNC_RESP_SB_*: of the field dev_cap_ext_flags."""

    ATOMIC_OPS_NOT_SUPPORTED = 0x1
    DRV_VERSION_RGTR_SUPPORTED = 0x2
    CREATE_QP_BATCH_SUPPORTED = 0x4
    DESTROY_QP_BATCH_SUPPORTED = 0x8
    ROCE_STATS_EXT_CTX_SUPPORTED = 0x10
    CREATE_SRQ_SGE_SUPPORTED = 0x20
    FIXED_SIZE_WQE_DISABLED = 0x40
    DCN_SUPPORTED = 0x80


class DevCapExtFlags2(IntFlag):
    """CREQ_QUERY_FUNC_RESP_SB_*: of the field dev_cap_ext_flags_2."""

    OPTIMIZE_MODIFY_QP_SUPPORTED = 0x1
    CHANGE_UDP_SRC_PORT_WQE_SUPPORTED = 0x2
    CQ_COALESCING_SUPPORTED = 0x4
    MEMORY_REGION_RO_SUPPORTED = 0x8


class Retransmission(IntEnum):
    """CREQ_QUERY_FUNC_RESP_SB_REQ_RETRANSMISSION_SUPPORT_* >> CREQ_QUERY_FUNC_RESP_SB_REQ_RETRANSMISSION_SUPPORT_SFT"""

    HOST_PSN_TABLE = 0
    HOST_MSN_TABLE = 1
    IQM_MSN_TABLE = 2


class AhType(IntEnum):
    """CMDQ_CREATE_AH_TYPE_*"""

    V1 = 0
    V2IPV4 = 2
    V2IPV6 = 3


class MrwAccess(IntFlag):
    """CMDQ_ALLOCATE_MRW_ACCESS_*"""

    CONSUMER_OWNED_KEY = 0x20


class ModifyCcMask(IntFlag):
    """CMDQ_MODIFY_ROCE_CC_MODIFY_MASK_*"""

    ENABLE_CC = 0x1
    G = 0x2
    NUMPHASEPERSTATE = 0x4
    INIT_CR = 0x8
    INIT_TR = 0x10
    TOS_ECN = 0x20
    TOS_DSCP = 0x40
    ALT_VLAN_PCP = 0x80
    ALT_TOS_DSCP = 0x100
    RTT = 0x200
    CC_MODE = 0x400
    TCP_CP = 0x800
    TX_QUEUE = 0x1000
    INACTIVITY_CP = 0x2000
    TIME_PER_PHASE = 0x4000
    PKTS_PER_PHASE = 0x8000


# ---- What every message has ---------------------------------------------------------------------------------------

_COMMAND = (
    Field(0, 1, "opcode"),
    Field(1, 1, "cmd_size"),
    Field(2, 2, "flags"),
    Field(4, 2, "cookie"),
    Field(6, 1, "resp_size"),
    Field(8, 8, "resp_addr"),
)
_ANSWER = (
    Field(0, 1, "type"),
    Field(1, 1, "status"),
    Field(2, 2, "cookie"),
    Field(8, 1, "v"),
    Field(9, 1, "event"),
)
_BUFFER = (
    Field(0, 1, "opcode"),
    Field(1, 1, "status"),
    Field(2, 2, "cookie"),
    Field(4, 2, "flags"),
    Field(6, 1, "resp_size"),
)

COMMAND = Message("cmdq_base", 16, *_COMMAND)
EVENT = Message("creq_base", 16, Field(0, 1, "type"), Field(8, 1, "v"), Field(9, 1, "event"))
ANSWER = Message("creq_qp_event", 16, *_ANSWER, defaults={"type": EventType.QP_EVENT})

# What is written at the channel's base to start it: where the CMDQ lies, its slots and page table's depth, and the
# ring that answers.
INIT = Message(
    "cmdq_init",
    16,
    Field(0, 8, "cmdq_pbl"),
    Field(8, 2, "cmdq_size_cmdq_lvl", cmdq_lvl=0x3, cmdq_size=0xFFFC),
    Field(10, 2, "creq_ring_id"),
    Field(12, 4, "prod_idx"),
)

QP_ERROR = Message(
    "creq_qp_error_notification",
    16,
    Field(0, 1, "type"),
    Field(1, 1, "status"),
    Field(2, 1, "req_slow_path_state"),
    Field(3, 1, "req_err_state_reason"),
    Field(4, 4, "xid"),
    Field(8, 1, "v"),
    Field(9, 1, "event"),
    Field(10, 1, "res_slow_path_state"),
    Field(11, 1, "res_err_state_reason"),
    Field(12, 2, "sq_cons_idx"),
    Field(14, 2, "rq_cons_idx"),
    defaults={"type": EventType.QP_EVENT, "event": Event.QP_ERROR_NOTIFICATION},
)
CQ_ERROR = Message(
    "creq_cq_error_notification",
    16,
    Field(0, 1, "type"),
    Field(1, 1, "status"),
    Field(2, 1, "cq_err_reason"),
    Field(4, 4, "xid"),
    Field(8, 1, "v"),
    Field(9, 1, "event"),
    defaults={"type": EventType.QP_EVENT, "event": Event.CQ_ERROR_NOTIFICATION},
)
FUNC_EVENT = Message(
    "creq_func_event",
    16,
    Field(0, 1, "type"),
    Field(8, 1, "v"),
    Field(9, 1, "event"),
    defaults={"type": EventType.FUNC_EVENT},
)

REQUESTS: dict[str, Command] = {}
BY_CODE: dict[int, Command] = {}


def sized(size: int, *fields: Field) -> tuple[int, tuple[Field, ...]]:
    return size, fields


def answer(*fields: Field) -> tuple[Field, ...]:
    return fields


def _command(
    name: str,
    code: int,
    *,
    request: tuple[int, tuple[Field, ...]],
    response: tuple[Field, ...],
    buffer: tuple[int, tuple[Field, ...]] | None = None,
) -> Command:
    size, fields = request
    command = Command(
        name,
        code,
        Message(f"cmdq_{name}", size, *_COMMAND, *fields, defaults={"opcode": code, "cmd_size": slots(size)}),
        Message(f"creq_{name}_resp", 16, *_ANSWER, *response, defaults={"type": EventType.QP_EVENT, "event": code}),
        buffer and Message(f"creq_{name}_resp_sb", buffer[0], *_BUFFER, *buffer[1], defaults={"opcode": code}),
    )
    REQUESTS[name] = BY_CODE[code] = command
    return command


# ---- Commands -----------------------------------------------------------------------------------------------------

CREATE_QP = _command(
    "create_qp",
    0x1,
    request=sized(
        104,
        Field(16, 8, "qp_handle"),
        Field(24, 4, "qp_flags"),
        Field(28, 1, "type"),
        Field(29, 1, "sq_pg_size_sq_lvl", sq_lvl=0xF, sq_pg_size=0xF0),
        Field(30, 1, "rq_pg_size_rq_lvl", rq_lvl=0xF, rq_pg_size=0xF0),
        Field(32, 4, "dpi"),
        Field(36, 4, "sq_size"),  # WQEs; slots with variable-size WQEs
        Field(40, 4, "rq_size"),
        Field(44, 2, "sq_fwo_sq_sge", sq_sge=0xF, sq_fwo=0xFFF0),
        Field(46, 2, "rq_fwo_rq_sge", rq_sge=0xF, rq_fwo=0xFFF0),
        Field(48, 4, "scq_cid"),
        Field(52, 4, "rcq_cid"),
        Field(56, 4, "srq_cid"),
        Field(60, 4, "pd_id"),
        Field(64, 8, "sq_pbl"),
        Field(72, 8, "rq_pbl"),
        Field(80, 8, "irrq_addr"),
        Field(88, 8, "orrq_addr"),
        Field(96, 4, "request_xid"),
        Field(100, 2, "steering_tag"),
    ),
    response=answer(Field(4, 4, "xid"), Field(10, 1, "optimized_transmit_enabled")),
)
DESTROY_QP = _command(
    "destroy_qp",
    0x2,
    request=sized(
        24,
        Field(16, 4, "qp_cid"),
    ),
    response=answer(Field(4, 4, "xid")),
)
MODIFY_QP = _command(
    "modify_qp",
    0x3,
    request=sized(
        144,
        Field(7, 1, "qp_type"),
        Field(16, 4, "modify_mask"),
        Field(20, 4, "qp_cid"),
        Field(
            24,
            1,
            "network_type_en_sqd_async_notify_new_state",
            new_state=0xF,
            en_sqd_async_notify=0x10,
            network_type=0xC0,
        ),
        Field(25, 1, "access"),
        Field(26, 2, "pkey"),
        Field(28, 4, "qkey"),
        Field(32, 4, "dgid", 4),
        Field(48, 4, "flow_label"),
        Field(52, 2, "sgid_index"),
        Field(54, 1, "hop_limit"),
        Field(55, 1, "traffic_class"),
        Field(56, 2, "dest_mac", 3),
        Field(62, 1, "tos_dscp_tos_ecn", tos_ecn=0x3, tos_dscp=0xFC),
        Field(63, 1, "path_mtu_pingpong_push_enable", pingpong_push_enable=0x1, path_mtu=0xF0),
        Field(64, 1, "timeout"),
        Field(65, 1, "retry_cnt"),
        Field(66, 1, "rnr_retry"),
        Field(67, 1, "min_rnr_timer"),
        Field(68, 4, "rq_psn"),
        Field(72, 4, "sq_psn"),
        Field(76, 1, "max_rd_atomic"),
        Field(77, 1, "max_dest_rd_atomic"),
        Field(78, 2, "enable_cc"),
        Field(80, 4, "sq_size"),
        Field(84, 4, "rq_size"),
        Field(88, 2, "sq_sge"),
        Field(90, 2, "rq_sge"),
        Field(92, 4, "max_inline_data"),
        Field(96, 4, "dest_qp_id"),
        Field(100, 4, "pingpong_push_dpi"),
        Field(104, 2, "src_mac", 3),
        Field(110, 2, "vlan_pcp_vlan_dei_vlan_id", vlan_id=0xFFF, vlan_dei=0x1000, vlan_pcp=0xE000),
        Field(112, 8, "irrq_addr"),
        Field(120, 8, "orrq_addr"),
        Field(128, 4, "ext_modify_mask"),
        Field(132, 4, "ext_stats_ctx_id"),
        Field(136, 2, "schq_id"),
    ),
    response=answer(
        Field(4, 4, "xid"),
        Field(
            10,
            1,
            "pingpong_push_state_index_enabled",
            pingpong_push_enabled=0x1,
            pingpong_push_index=0xE,
            pingpong_push_state=0x10,
        ),
        Field(12, 4, "lag_src_mac"),
    ),
)
QUERY_QP = _command(
    "query_qp",
    0x4,
    request=sized(
        24,
        Field(16, 4, "qp_cid"),
    ),
    response=answer(Field(4, 4, "size")),
    buffer=sized(
        104,
        Field(8, 4, "xid"),
        Field(12, 1, "en_sqd_async_notify_state", state=0xF, en_sqd_async_notify=0x10),
        Field(13, 1, "access"),
        Field(14, 2, "pkey"),
        Field(16, 4, "qkey"),
        Field(24, 4, "dgid", 4),
        Field(40, 4, "flow_label"),
        Field(44, 2, "sgid_index"),
        Field(46, 1, "hop_limit"),
        Field(47, 1, "traffic_class"),
        Field(48, 2, "dest_mac", 3),
        Field(54, 2, "path_mtu_dest_vlan_id", dest_vlan_id=0xFFF, path_mtu=0xF000),
        Field(56, 1, "timeout"),
        Field(57, 1, "retry_cnt"),
        Field(58, 1, "rnr_retry"),
        Field(59, 1, "min_rnr_timer"),
        Field(60, 4, "rq_psn"),
        Field(64, 4, "sq_psn"),
        Field(68, 1, "max_rd_atomic"),
        Field(69, 1, "max_dest_rd_atomic"),
        Field(70, 1, "tos_dscp_tos_ecn", tos_ecn=0x3, tos_dscp=0xFC),
        Field(71, 1, "enable_cc"),
        Field(72, 4, "sq_size"),
        Field(76, 4, "rq_size"),
        Field(80, 2, "sq_sge"),
        Field(82, 2, "rq_sge"),
        Field(84, 4, "max_inline_data"),
        Field(88, 4, "dest_qp_id"),
        Field(92, 2, "port_id"),
        Field(95, 1, "stat_collection_id"),
        Field(96, 2, "src_mac", 3),
        Field(102, 2, "vlan_pcp_vlan_dei_vlan_id", vlan_id=0xFFF, vlan_dei=0x1000, vlan_pcp=0xE000),
    ),
)
CREATE_SRQ = _command(
    "create_srq",
    0x5,
    request=sized(
        56,
        Field(16, 8, "srq_handle"),
        Field(24, 2, "pg_size_lvl", lvl=0x3, pg_size=0x1C),
        Field(26, 2, "eventq_id"),
        Field(28, 2, "srq_size"),
        Field(30, 2, "srq_fwo"),
        Field(32, 4, "dpi"),
        Field(36, 4, "pd_id"),
        Field(40, 8, "pbl"),
        Field(48, 2, "steering_tag"),
    ),
    response=answer(Field(4, 4, "xid")),
)
DESTROY_SRQ = _command(
    "destroy_srq",
    0x6,
    request=sized(
        24,
        Field(16, 4, "srq_cid"),
    ),
    response=answer(Field(4, 4, "xid"), Field(10, 2, "enable_for_arm", 3)),
)
QUERY_SRQ = _command(
    "query_srq",
    0x8,
    request=sized(
        24,
        Field(16, 4, "srq_cid"),
    ),
    response=answer(Field(4, 4, "size")),
    buffer=sized(
        32,
        Field(8, 4, "xid"),
        Field(12, 2, "srq_limit"),
        Field(16, 4, "data", 4),
    ),
)
CREATE_CQ = _command(
    "create_cq",
    0x9,
    request=sized(
        56,
        Field(16, 8, "cq_handle"),
        Field(24, 4, "pg_size_lvl", lvl=0x3, pg_size=0x1C),
        Field(28, 4, "cq_fco_cnq_id", cnq_id=0xFFF, cq_fco=0xFFFFF000),
        Field(32, 4, "dpi"),
        Field(36, 4, "cq_size"),
        Field(40, 8, "pbl"),
        Field(48, 2, "steering_tag"),
    ),
    response=answer(Field(4, 4, "xid")),
)
DESTROY_CQ = _command(
    "destroy_cq",
    0xA,
    request=sized(
        24,
        Field(16, 4, "cq_cid"),
    ),
    response=answer(Field(4, 4, "xid"), Field(10, 2, "cq_arm_lvl"), Field(12, 2, "total_cnq_events")),
)
RESIZE_CQ = _command(
    "resize_cq",
    0xC,
    request=sized(
        40,
        Field(16, 4, "cq_cid"),
        Field(20, 4, "new_cq_size_pg_size_lvl", lvl=0x3, pg_size=0x1C, new_cq_size=0x1FFFFFE0),
        Field(24, 8, "new_pbl"),
        Field(32, 4, "new_cq_fco"),
    ),
    response=answer(Field(4, 4, "xid")),
)
ALLOCATE_MRW = _command(
    "allocate_mrw",
    0xD,
    request=sized(
        32,
        Field(16, 8, "mrw_handle"),
        Field(24, 1, "mrw_flags"),
        Field(25, 1, "access"),
        Field(26, 2, "steering_tag"),
        Field(28, 4, "pd_id"),
    ),
    response=answer(Field(4, 4, "xid")),
)
DEALLOCATE_KEY = _command(
    "deallocate_key",
    0xE,
    request=sized(
        24,
        Field(16, 1, "mrw_flags"),
        Field(20, 4, "key"),
    ),
    response=answer(Field(4, 4, "xid"), Field(12, 4, "bound_window_info")),
)
REGISTER_MR = _command(
    "register_mr",
    0xF,
    request=sized(
        56,
        Field(16, 1, "log2_pg_size_lvl", lvl=0x3, log2_pg_size=0x7C),
        Field(17, 1, "access"),
        Field(18, 2, "log2_pbl_pg_size"),
        Field(20, 4, "key"),
        Field(24, 8, "pbl"),
        Field(32, 8, "va"),
        Field(40, 8, "mr_size"),
        Field(48, 2, "steering_tag"),
    ),
    response=answer(Field(4, 4, "xid")),
)
DEREGISTER_MR = _command(
    "deregister_mr",
    0x10,
    request=sized(
        24,
        Field(16, 4, "lkey"),
    ),
    response=answer(Field(4, 4, "xid"), Field(12, 4, "bound_windows")),
)
ADD_GID = _command(
    "add_gid",
    0x11,
    request=sized(
        48,
        Field(16, 4, "gid", 4),  # gid_bytes
        Field(32, 2, "src_mac", 3),  # mac_bytes
        Field(38, 2, "vlan", vlan_vlan_id=0xFFF, vlan_tpid=0x7000, vlan_vlan_en=0x8000),
        Field(40, 2, "ipid"),
        Field(42, 2, "stats_ctx", stats_ctx_stats_ctx_id=0x7FFF, stats_ctx_stats_ctx_valid=0x8000),
    ),
    response=answer(Field(4, 4, "xid")),
)
DELETE_GID = _command(
    "delete_gid",
    0x12,
    request=sized(
        24,
        Field(16, 2, "gid_index"),
    ),
    response=answer(Field(4, 4, "xid")),
)
MODIFY_GID = _command(
    "modify_gid",
    0x17,
    request=sized(
        48,
        Field(16, 4, "gid", 4),  # gid_bytes
        Field(32, 2, "src_mac", 3),  # mac_bytes
        Field(38, 2, "vlan", vlan_vlan_id=0xFFF, vlan_tpid=0x7000, vlan_vlan_en=0x8000),
        Field(40, 2, "ipid"),
        Field(42, 2, "gid_index"),
        Field(44, 2, "stats_ctx", stats_ctx_stats_ctx_id=0x7FFF, stats_ctx_stats_ctx_valid=0x8000),
    ),
    response=answer(Field(4, 4, "xid")),
)
QUERY_GID = _command(
    "query_gid",
    0x18,
    request=sized(
        24,
        Field(16, 2, "gid_index"),
    ),
    response=answer(Field(4, 4, "size")),
    buffer=sized(
        40,
        Field(8, 4, "gid", 4),
        Field(24, 2, "src_mac", 3),
        Field(30, 2, "vlan", vlan_vlan_id=0xFFF, vlan_tpid=0x7000, vlan_vlan_en=0x8000),
        Field(32, 2, "ipid"),
        Field(34, 2, "gid_index"),
    ),
)
CREATE_AH = _command(
    "create_ah",
    0x15,
    request=sized(
        64,
        Field(16, 8, "ah_handle"),
        Field(24, 4, "dgid", 4),
        Field(40, 1, "type"),
        Field(41, 1, "hop_limit"),
        Field(42, 2, "sgid_index"),
        Field(44, 4, "dest_vlan_id_flow_label", flow_label=0xFFFFF, dest_vlan_id=0xFFF00000),
        Field(48, 4, "pd_id"),
        Field(56, 2, "dest_mac", 3),
        Field(62, 1, "traffic_class"),
        Field(63, 1, "enable_cc"),
    ),
    response=answer(Field(4, 4, "xid")),
)
DESTROY_AH = _command(
    "destroy_ah",
    0x16,
    request=sized(
        24,
        Field(16, 4, "ah_cid"),
    ),
    response=answer(Field(4, 4, "xid")),
)
INITIALIZE_FW = _command(
    "initialize_fw",
    0x80,
    request=sized(
        112,
        Field(16, 1, "qpc_pg_size_qpc_lvl", qpc_lvl=0xF, qpc_pg_size=0xF0),
        Field(17, 1, "mrw_pg_size_mrw_lvl", mrw_lvl=0xF, mrw_pg_size=0xF0),
        Field(18, 1, "srq_pg_size_srq_lvl", srq_lvl=0xF, srq_pg_size=0xF0),
        Field(19, 1, "cq_pg_size_cq_lvl", cq_lvl=0xF, cq_pg_size=0xF0),
        Field(20, 1, "tqm_pg_size_tqm_lvl", tqm_lvl=0xF, tqm_pg_size=0xF0),
        Field(21, 1, "tim_pg_size_tim_lvl", tim_lvl=0xF, tim_pg_size=0xF0),
        Field(22, 2, "log2_dbr_pg_size"),
        Field(24, 8, "qpc_page_dir"),
        Field(32, 8, "mrw_page_dir"),
        Field(40, 8, "srq_page_dir"),
        Field(48, 8, "cq_page_dir"),
        Field(56, 8, "tqm_page_dir"),
        Field(64, 8, "tim_page_dir"),
        Field(72, 4, "number_of_qp"),
        Field(76, 4, "number_of_mrw"),
        Field(80, 4, "number_of_srq"),
        Field(84, 4, "number_of_cq"),
        Field(88, 4, "max_qp_per_vf"),
        Field(92, 4, "max_mrw_per_vf"),
        Field(96, 4, "max_srq_per_vf"),
        Field(100, 4, "max_cq_per_vf"),
        Field(104, 4, "max_gid_per_vf"),
        Field(108, 4, "stat_ctx_id"),
    ),
    response=answer(),
)
DEINITIALIZE_FW = _command(
    "deinitialize_fw",
    0x81,
    request=sized(16),
    response=answer(),
)
QUERY_FUNC = _command(
    "query_func",
    0x83,
    request=sized(16),
    response=answer(Field(4, 4, "size")),
    buffer=sized(
        160,
        Field(8, 8, "max_mr_size"),
        Field(16, 4, "max_qp"),
        Field(20, 2, "max_qp_wr"),
        Field(22, 2, "dev_cap_flags", cc_generation=0xE),
        Field(24, 4, "max_cq"),
        Field(28, 4, "max_cqe"),
        Field(32, 4, "max_pd"),
        Field(36, 1, "max_sge"),
        Field(37, 1, "max_srq_sge"),
        Field(38, 1, "max_qp_rd_atom"),
        Field(39, 1, "max_qp_init_rd_atom"),
        Field(40, 4, "max_mr"),
        Field(44, 4, "max_mw"),
        Field(48, 4, "max_raw_eth_qp"),
        Field(52, 4, "max_ah"),
        Field(56, 4, "max_fmr"),
        Field(60, 4, "max_srq_wr"),
        Field(64, 4, "max_pkeys"),
        Field(68, 4, "max_inline_data"),
        Field(72, 1, "max_map_per_fmr"),
        Field(73, 1, "l2_db_space_size"),
        Field(74, 2, "max_srq"),
        Field(76, 4, "max_gid"),
        Field(80, 4, "tqm_alloc_reqs", 12),
        Field(128, 4, "max_dpi"),
        Field(132, 1, "max_sge_var_wqe"),
        Field(133, 1, "dev_cap_ext_flags"),
        Field(134, 2, "max_inline_data_var_wqe"),
        Field(136, 4, "start_qid"),
        Field(140, 1, "max_msn_table_size"),
        Field(142, 2, "dev_cap_ext_flags_2", req_retransmission_support=0x30),
        Field(144, 2, "max_xp_qp_size"),
        Field(146, 2, "create_qp_batch_size"),
        Field(148, 2, "destroy_qp_batch_size"),
    ),
)
MAP_TC_TO_COS = _command(
    "map_tc_to_cos",
    0x8A,
    request=sized(
        24,
        Field(16, 2, "cos0"),
        Field(18, 2, "cos1"),
    ),
    response=answer(),
)
QUERY_VERSION = _command(
    "query_version",
    0x8B,
    request=sized(16),
    response=answer(
        Field(4, 1, "fw_maj"),
        Field(5, 1, "fw_minor"),
        Field(6, 1, "fw_bld"),
        Field(7, 1, "fw_rsvd"),
        Field(12, 1, "intf_maj"),
        Field(13, 1, "intf_minor"),
        Field(14, 1, "intf_bld"),
        Field(15, 1, "intf_rsvd"),
    ),
)
MODIFY_ROCE_CC = _command(
    "modify_roce_cc",
    0x8C,
    request=sized(
        56,
        Field(16, 4, "modify_mask"),
        Field(20, 1, "enable_cc"),
        Field(21, 1, "g"),
        Field(22, 1, "num_phases_per_state"),
        Field(23, 1, "pkts_per_phase"),
        Field(24, 2, "init_cr"),
        Field(26, 2, "init_tr"),
        Field(28, 1, "tos_dscp_tos_ecn", tos_ecn=0x3, tos_dscp=0xFC),
        Field(29, 1, "alt_vlan_pcp"),
        Field(30, 2, "alt_tos_dscp"),
        Field(32, 2, "rtt"),
        Field(34, 2, "tcp_cp"),
        Field(36, 1, "cc_mode"),
        Field(37, 1, "tx_queue"),
        Field(38, 2, "inactivity_th"),
        Field(40, 1, "time_per_phase"),
    ),
    response=answer(),
)
QUERY_ROCE_CC = _command(
    "query_roce_cc",
    0x8D,
    request=sized(16),
    response=answer(Field(4, 4, "size")),
    buffer=sized(
        32,
        Field(8, 1, "enable_cc"),
        Field(9, 1, "tos_dscp_tos_ecn", tos_ecn=0x3, tos_dscp=0xFC),
        Field(10, 1, "g"),
        Field(11, 1, "num_phases_per_state"),
        Field(12, 2, "init_cr"),
        Field(14, 2, "init_tr"),
        Field(16, 1, "alt_vlan_pcp"),
        Field(17, 1, "alt_tos_dscp"),
        Field(18, 1, "cc_mode"),
        Field(19, 1, "tx_queue"),
        Field(20, 2, "rtt"),
        Field(22, 2, "tcp_cp"),
        Field(24, 2, "inactivity_th"),
        Field(26, 1, "pkts_per_phase"),
        Field(27, 1, "time_per_phase"),
    ),
)
QUERY_ROCE_STATS = _command(
    "query_roce_stats",
    0x8E,
    request=sized(
        24,
        Field(7, 1, "collection_id"),
        Field(16, 4, "function_id", pf_num=0xFF, vf_num=0xFFFF00, vf_valid=0x1000000),
    ),
    response=answer(Field(4, 4, "size")),
    buffer=sized(
        368,
        Field(8, 4, "num_counters"),
        Field(16, 8, "to_retransmits"),
        Field(24, 8, "seq_err_naks_rcvd"),
        Field(32, 8, "max_retry_exceeded"),
        Field(40, 8, "rnr_naks_rcvd"),
        Field(48, 8, "missing_resp"),
        Field(56, 8, "unrecoverable_err"),
        Field(64, 8, "bad_resp_err"),
        Field(72, 8, "local_qp_op_err"),
        Field(80, 8, "local_protection_err"),
        Field(88, 8, "mem_mgmt_op_err"),
        Field(96, 8, "remote_invalid_req_err"),
        Field(104, 8, "remote_access_err"),
        Field(112, 8, "remote_op_err"),
        Field(120, 8, "dup_req"),
        Field(128, 8, "res_exceed_max"),
        Field(136, 8, "res_length_mismatch"),
        Field(144, 8, "res_exceeds_wqe"),
        Field(152, 8, "res_opcode_err"),
        Field(160, 8, "res_rx_invalid_rkey"),
        Field(168, 8, "res_rx_domain_err"),
        Field(176, 8, "res_rx_no_perm"),
        Field(184, 8, "res_rx_range_err"),
        Field(192, 8, "res_tx_invalid_rkey"),
        Field(200, 8, "res_tx_domain_err"),
        Field(208, 8, "res_tx_no_perm"),
        Field(216, 8, "res_tx_range_err"),
        Field(224, 8, "res_irrq_oflow"),
        Field(232, 8, "res_unsup_opcode"),
        Field(240, 8, "res_unaligned_atomic"),
        Field(248, 8, "res_rem_inv_err"),
        Field(256, 8, "res_mem_error"),
        Field(264, 8, "res_srq_err"),
        Field(272, 8, "res_cmp_err"),
        Field(280, 8, "res_invalid_dup_rkey"),
        Field(288, 8, "res_wqe_format_err"),
        Field(296, 8, "res_cq_load_err"),
        Field(304, 8, "res_srq_load_err"),
        Field(312, 8, "res_tx_pci_err"),
        Field(320, 8, "res_rx_pci_err"),
        Field(328, 8, "res_oos_drop_count"),
        Field(336, 8, "active_qp_count_p0"),
        Field(344, 8, "active_qp_count_p1"),
        Field(352, 8, "active_qp_count_p2"),
        Field(360, 8, "active_qp_count_p3"),
    ),
)
QUERY_ROCE_STATS_EXT = _command(
    "query_roce_stats_ext",
    0x92,
    request=sized(
        24,
        Field(7, 1, "collection_id"),
        Field(16, 4, "function_id", pf_num=0xFF, vf_num=0xFFFF00, vf_valid=0x1000000),
    ),
    response=answer(Field(4, 4, "size")),
    buffer=sized(
        232,
        Field(8, 8, "tx_atomic_req_pkts"),
        Field(16, 8, "tx_read_req_pkts"),
        Field(24, 8, "tx_read_res_pkts"),
        Field(32, 8, "tx_write_req_pkts"),
        Field(40, 8, "tx_send_req_pkts"),
        Field(48, 8, "tx_roce_pkts"),
        Field(56, 8, "tx_roce_bytes"),
        Field(64, 8, "rx_atomic_req_pkts"),
        Field(72, 8, "rx_read_req_pkts"),
        Field(80, 8, "rx_read_res_pkts"),
        Field(88, 8, "rx_write_req_pkts"),
        Field(96, 8, "rx_send_req_pkts"),
        Field(104, 8, "rx_roce_pkts"),
        Field(112, 8, "rx_roce_bytes"),
        Field(120, 8, "rx_roce_good_pkts"),
        Field(128, 8, "rx_roce_good_bytes"),
        Field(136, 8, "rx_out_of_buffer_pkts"),
        Field(144, 8, "rx_out_of_sequence_pkts"),
        Field(152, 8, "tx_cnp_pkts"),
        Field(160, 8, "rx_cnp_pkts"),
        Field(168, 8, "rx_ecn_marked_pkts"),
        Field(176, 8, "tx_cnp_bytes"),
        Field(184, 8, "rx_cnp_bytes"),
        Field(192, 8, "seq_err_naks_rcvd"),
        Field(200, 8, "rnr_naks_rcvd"),
        Field(208, 8, "missing_resp"),
        Field(216, 8, "to_retransmit"),
        Field(224, 8, "dup_req"),
    ),
)
