"""ConnectX: numbers of the firmware's commands and events.

A class's docstring names the enumerators of the kernel's headers (include/linux/mlx5, and of mlx5_core) that it holds;
an N before a digit is ours, as a Python name cannot start with one.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Status(IntEnum):
    """MLX5_CMD_STAT_*. What became of a command: `status` of its answer."""

    OK = 0
    INT_ERR = 1
    BAD_OP_ERR = 2
    BAD_PARAM_ERR = 3
    BAD_SYS_STATE_ERR = 4
    BAD_RES_ERR = 5
    RES_BUSY = 6
    NOT_READY = 7
    LIM_ERR = 8
    BAD_RES_STATE_ERR = 9
    IX_ERR = 0xA
    NO_RES_ERR = 0xF
    BAD_QP_STATE_ERR = 0x10
    BAD_PKT_ERR = 0x30
    BAD_SIZE_OUTS_CQES_ERR = 0x40
    BAD_INP_LEN_ERR = 0x50
    BAD_OUTP_LEN_ERR = 0x51


class Delivery(IntEnum):
    """MLX5_CMD_DELIVERY_STAT_*. What became of a command's delivery: `status` of its queue entry."""

    OK = 0
    SIGNAT_ERR = 1
    TOK_ERR = 2
    BAD_BLK_NUM_ERR = 3
    OUT_PTR_ALIGN_ERR = 4
    IN_PTR_ALIGN_ERR = 5
    FW_ERR = 6
    IN_LENGTH_ERR = 7
    OUT_LENGTH_ERR = 8
    RES_FLD_NOT_CLR_ERR = 9
    CMD_DESCR_ERR = 0x10


class EventType(IntEnum):
    """MLX5_EVENT_TYPE_*"""

    COMP = 0
    PATH_MIG = 1
    COMM_EST = 2
    SQ_DRAINED = 3
    CQ_ERROR = 4
    WQ_CATAS_ERROR = 5
    PATH_MIG_FAILED = 7
    INTERNAL_ERROR = 8
    PORT_CHANGE = 9
    CMD = 0xA
    PAGE_REQUEST = 0xB
    PAGE_FAULT = 0xC
    NIC_VPORT_CHANGE = 0xD
    ESW_FUNCTIONS_CHANGED = 0xE
    VHCA_STATE_CHANGE = 0xF
    WQ_INVAL_REQ_ERROR = 0x10
    WQ_ACCESS_ERROR = 0x11
    SRQ_CATAS_ERROR = 0x12
    SRQ_LAST_WQE = 0x13
    SRQ_RQ_LIMIT = 0x14
    GPIO_EVENT = 0x15
    PORT_MODULE_EVENT = 0x16
    TEMP_WARN_EVENT = 0x17
    XRQ_ERROR = 0x18
    REMOTE_CONFIG = 0x19
    DB_BF_CONGESTION = 0x1A
    STALL_EVENT = 0x1B
    DCT_DRAINED = 0x1C
    DCT_KEY_VIOLATION = 0x1D
    FPGA_ERROR = 0x20
    FPGA_QP_ERROR = 0x21
    GENERAL_EVENT = 0x22
    MONITOR_COUNTER = 0x24
    PPS_EVENT = 0x25
    DEVICE_TRACER = 0x26
    OBJECT_CHANGE = 0x27


class Capability(IntEnum):
    """MLX5_CAP_*. The kind of capabilities: QUERY_HCA_CAP's op_mod is kind << 1 | CapabilityMode."""

    GENERAL = 0
    ETHERNET_OFFLOADS = 1
    ODP = 2
    ATOMIC = 3
    ROCE = 4
    IPOIB_OFFLOADS = 5
    IPOIB_ENHANCED_OFFLOADS = 6
    FLOW_TABLE = 7
    ESWITCH_FLOW_TABLE = 8
    ESWITCH = 9
    QOS = 0xC
    DEBUG = 0xD
    DEV_MEM = 0xF
    TLS = 0x11
    VDPA_EMULATION = 0x13
    DEV_EVENT = 0x14
    IPSEC = 0x15
    CRYPTO = 0x1A
    MACSEC = 0x1F
    GENERAL_2 = 0x20
    PORT_SELECTION = 0x25
    ADV_VIRTUALIZATION = 0x26


class CapabilityMode(IntEnum):
    """HCA_CAP_OPMOD_GET_*"""

    MAX = 0
    CUR = 1


class Pages(IntEnum):
    """MLX5_PAGES_*. MANAGE_PAGES' op_mod."""

    CANT_GIVE = 0
    GIVE = 1
    TAKE = 2


class QpState(IntEnum):
    """MLX5_QP_STATE_*"""

    RST = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQER = 4
    SQD = 5
    ERR = 6
    SQ_DRAINING = 7
    SUSPENDED = 9


class QpType(IntEnum):
    """MLX5_QP_ST_*"""

    RC = 0
    UC = 1
    UD = 2
    XRC = 3
    MLX = 4
    DCI = 5
    DCT = 6
    QP0 = 7
    QP1 = 8
    RAW_ETHERTYPE = 9
    RAW_IPV6 = 0xA
    SNIFFER = 0xB
    REG_UMR = 0xC
    PTP_1588 = 0xD
    SYNC_UMR = 0xE


class OptPar(IntFlag):
    """MLX5_QP_OPTPAR_*. Which fields a transition takes beside those that it must."""

    ALT_ADDR_PATH = 1
    RRE = 2
    RAE = 4
    RWE = 8
    PKEY_INDEX = 0x10
    Q_KEY = 0x20
    RNR_TIMEOUT = 0x40
    PRIMARY_ADDR_PATH = 0x80
    SRA_MAX = 0x100
    RRA_MAX = 0x200
    PM_STATE = 0x400
    RETRY_COUNT = 0x1000
    RNR_RETRY = 0x2000
    ACK_TIMEOUT = 0x4000
    LAG_TX_AFF = 0x8000
    PRI_PORT = 0x10000
    SRQN = 0x40000
    CQN_RCV = 0x80000
    DC_HS = 0x100000
    DC_KEY = 0x200000
    COUNTER_SET_ID = 0x2000000


class AccessMode(IntEnum):
    """MLX5_MKC_ACCESS_MODE_*"""

    PA = 0
    MTT = 1
    KLMS = 2
    KSM = 3
    SW_ICM = 4
    MEMIC = 5
    CROSSING = 6


class Register(IntEnum):
    """MLX5_REG_*. `register_id` of ACCESS_REG."""

    QPTS = 0x4002
    QETCR = 0x4005
    QTCT = 0x400A
    QPDPM = 0x4013
    QCAM = 0x4019
    DCBX_PARAM = 0x4020
    DCBX_APP = 0x4021
    FPGA_CAP = 0x4022
    FPGA_CTRL = 0x4023
    FPGA_ACCESS_REG = 0x4024
    CORE_DUMP = 0x402E
    PCAP = 0x5001
    PMLP = 0x5002
    PMTU = 0x5003
    PTYS = 0x5004
    PAOS = 0x5006
    PFCC = 0x5007
    PPCNT = 0x5008
    PUDE = 0x5009
    PPTB = 0x500B
    PBMC = 0x500C
    PELC = 0x500E
    PVLC = 0x500F
    PMPE = 0x5010
    PMAOS = 0x5012
    PPLM = 0x5023
    PDDR = 0x5031
    PCMR = 0x5041
    PCAM = 0x507F
    NODE_DESC = 0x6001
    HOST_ENDIANNESS = 0x7004
    MTCAP = 0x9009
    MTMP = 0x900A
    MCIA = 0x9014
    MFRL = 0x9028
    MLCR = 0x902B
    MRTC = 0x902D
    MTRC_CAP = 0x9040
    MTRC_CONF = 0x9041
    MTRC_STDB = 0x9042
    MTRC_CTRL = 0x9043
    MPEIN = 0x9050
    MPCNT = 0x9051
    MTPPS = 0x9053
    MTPPSE = 0x9054
    MTUTC = 0x9055
    MPEGC = 0x9056
    MPIR = 0x9059
    MCQS = 0x9060
    MCQI = 0x9061
    MCC = 0x9062
    MCDA = 0x9063
    MCAM = 0x907F
    MSECQ = 0x9155
    MSEES = 0x9156
    MIRC = 0x9162
    MTPTM = 0x9180
    MTCTR = 0x9181
    SBPR = 0xB001
    SBCM = 0xB002
    SBCAM = 0xB01F
    RESOURCE_DUMP = 0xC000
    DTOR = 0xC00E


class RegisterAccess(IntEnum):
    """MLX5_ACCESS_REGISTER_IN_OP_MOD_*"""

    WRITE = 0
    READ = 1


class Mtu(IntEnum):
    """MLX5_QPC_MTU_*"""

    N256_BYTES = 1
    N512_BYTES = 2
    N1K_BYTES = 3
    N2K_BYTES = 4
    N4K_BYTES = 5
    RAW_ETHERNET_QP = 7


class VportState(IntEnum):
    """MLX5_VPORT_STATE_OP_MOD_*. QUERY_VPORT_STATE's op_mod."""

    VNIC_VPORT = 0
    ESW_VPORT = 1
    UPLINK = 2


class GidType(IntEnum):
    """MLX5_ROCE_VERSION_*"""

    N1 = 0
    N2 = 2
