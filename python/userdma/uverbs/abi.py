"""The kernel's interface to RDMA devices, as the driver of any of them has it: numbers and structs.

What is not said otherwise is in the kernel's user headers: rdma/rdma_user_ioctl_cmds.h (requests),
ib_user_ioctl_cmds.h (objects, methods, attributes), ib_user_ioctl_verbs.h and ib_user_verbs.h (structs). A message is
called as its struct, a class's docstring begins with the prefix of what it holds.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from userdma.messages import Field, Message


class Objects(IntEnum):
    """UVERBS_OBJECT_*"""

    DEVICE = 0
    PD = 1
    CQ = 3
    QP = 4
    MR = 7
    ASYNC_EVENT = 16


class DeviceMethod(IntEnum):
    """UVERBS_METHOD_*"""

    INVOKE_WRITE = 0
    QUERY_PORT = 2
    GET_CONTEXT = 3
    QUERY_GID_TABLE = 5


class QueueMethod(IntEnum):
    """UVERBS_METHOD_*"""

    CQ_CREATE = 0
    CQ_DESTROY = 1
    QP_CREATE = 0
    QP_DESTROY = 1


class OtherMethod(IntEnum):
    """UVERBS_METHOD_*"""

    PD_DESTROY = 0
    MR_DESTROY = 1
    REG_DMABUF_MR = 4
    ASYNC_EVENT_ALLOC = 0


class WriteCommand(IntEnum):
    """IB_USER_VERBS_CMD_*. What INVOKE_WRITE runs: calls that have no method of their own."""

    QUERY_DEVICE = 1
    ALLOC_PD = 3
    REG_MR = 9
    MODIFY_QP = 26


class Attributes(IntEnum):
    """UVERBS_ATTR_*"""

    CORE_IN = 0
    CORE_OUT = 1
    WRITE_CMD = 2
    UHW_IN = 0x1000
    UHW_OUT = 0x1001
    QUERY_PORT_PORT_NUM = 0
    QUERY_PORT_RESP = 1
    QUERY_GID_TABLE_ENTRY_SIZE = 0
    QUERY_GID_TABLE_RESP_ENTRIES = 2
    QUERY_GID_TABLE_RESP_NUM_ENTRIES = 3
    ASYNC_EVENT_ALLOC_FD_HANDLE = 0
    DESTROY_PD_HANDLE = 0
    DESTROY_MR_HANDLE = 0
    CREATE_CQ_HANDLE = 0
    CREATE_CQ_CQE = 1
    CREATE_CQ_USER_HANDLE = 2
    CREATE_CQ_COMP_VECTOR = 4
    CREATE_CQ_RESP_CQE = 6
    CREATE_CQ_EVENT_FD = 7
    DESTROY_CQ_HANDLE = 0
    DESTROY_CQ_RESP = 1
    CREATE_QP_HANDLE = 0
    CREATE_QP_PD_HANDLE = 2
    CREATE_QP_SEND_CQ_HANDLE = 4
    CREATE_QP_RECV_CQ_HANDLE = 5
    CREATE_QP_USER_HANDLE = 7
    CREATE_QP_CAP = 8
    CREATE_QP_TYPE = 9
    CREATE_QP_EVENT_FD = 12
    CREATE_QP_RESP_CAP = 13
    CREATE_QP_RESP_QP_NUM = 14
    DESTROY_QP_HANDLE = 0
    DESTROY_QP_RESP = 1
    REG_DMABUF_MR_HANDLE = 0
    REG_DMABUF_MR_PD_HANDLE = 1
    REG_DMABUF_MR_OFFSET = 2
    REG_DMABUF_MR_LENGTH = 3
    REG_DMABUF_MR_IOVA = 4
    REG_DMABUF_MR_FD = 5
    REG_DMABUF_MR_ACCESS_FLAGS = 6
    REG_DMABUF_MR_RESP_LKEY = 7
    REG_DMABUF_MR_RESP_RKEY = 8


class AttributeFlag(IntFlag):
    """UVERBS_ATTR_F_*"""

    MANDATORY = 1
    VALID_OUTPUT = 2


class Driver(IntEnum):
    """RDMA_DRIVER_*. Whose a device is, as a request names it."""

    MLX5 = 1
    BNXT_RE = 6
    RXE = 14


class MemoryAccess(IntFlag):
    """IB_UVERBS_ACCESS_*. Of regions, and of the requests that a queue pair serves."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


class QpType(IntEnum):
    """IB_UVERBS_QPT_*"""

    RC = 2


class GidType(IntEnum):
    """IB_UVERBS_GID_TYPE_*"""

    IB = 0
    ROCE_V1 = 1
    ROCE_V2 = 2


class QpState(IntEnum):
    """IB_QPS_* (include/rdma/ib_verbs.h)"""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    ERR = 6


class QpAttribute(IntFlag):
    """IB_QP_* (include/rdma/ib_verbs.h). What a change of a queue pair gives."""

    STATE = 1
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    DEST_QPN = 1 << 20


class Mtu(IntEnum):
    """IB_MTU_* (include/rdma/ib_verbs.h). An N before a digit is ours."""

    N256 = 1
    N512 = 2
    N1024 = 3
    N2048 = 4
    N4096 = 5


class PortState(IntEnum):
    """IB_PORT_* (include/rdma/ib_verbs.h)"""

    DOWN = 1
    ACTIVE = 4


class LinkLayer(IntEnum):
    """IB_LINK_LAYER_* (include/rdma/ib_verbs.h)"""

    INFINIBAND = 1
    ETHERNET = 2


# ---- Requests ---------------------------------------------------------------------------------------------------

HEADER = Message(
    "ib_uverbs_ioctl_hdr",
    24,
    Field(0, 2, "length"),
    Field(2, 2, "object_id"),
    Field(4, 2, "method_id"),
    Field(6, 2, "num_attrs"),
    Field(16, 4, "driver_id"),
)
ATTRIBUTE = Message(
    "ib_uverbs_attr",
    16,
    Field(0, 2, "attr_id"),
    Field(2, 2, "len"),
    Field(4, 2, "flags"),
    Field(8, 8, "data"),
)

# ---- Structs ----------------------------------------------------------------------------------------------------

QUERY_DEVICE = Message("ib_uverbs_query_device", 8, Field(0, 8, "response"))
QUERY_DEVICE_RESP = Message(
    "ib_uverbs_query_device_resp",
    176,
    Field(0, 8, "fw_ver"),
    Field(8, 8, "node_guid"),
    Field(16, 8, "sys_image_guid"),
    Field(24, 8, "max_mr_size"),
    Field(32, 8, "page_size_cap"),
    Field(40, 4, "vendor_id"),
    Field(44, 4, "vendor_part_id"),
    Field(48, 4, "hw_ver"),
    Field(52, 4, "max_qp"),
    Field(56, 4, "max_qp_wr"),
    Field(60, 4, "device_cap_flags"),
    Field(64, 4, "max_sge"),
    Field(68, 4, "max_sge_rd"),
    Field(72, 4, "max_cq"),
    Field(76, 4, "max_cqe"),
    Field(80, 4, "max_mr"),
    Field(84, 4, "max_pd"),
    Field(88, 4, "max_qp_rd_atom"),
    Field(92, 4, "max_ee_rd_atom"),
    Field(96, 4, "max_res_rd_atom"),
    Field(100, 4, "max_qp_init_rd_atom"),
    Field(104, 4, "max_ee_init_rd_atom"),
    Field(108, 4, "atomic_cap"),
    Field(112, 4, "max_ee"),
    Field(116, 4, "max_rdd"),
    Field(120, 4, "max_mw"),
    Field(124, 4, "max_raw_ipv6_qp"),
    Field(128, 4, "max_raw_ethy_qp"),
    Field(132, 4, "max_mcast_grp"),
    Field(136, 4, "max_mcast_qp_attach"),
    Field(140, 4, "max_total_mcast_qp_attach"),
    Field(144, 4, "max_ah"),
    Field(148, 4, "max_fmr"),
    Field(152, 4, "max_map_per_fmr"),
    Field(156, 4, "max_srq"),
    Field(160, 4, "max_srq_wr"),
    Field(164, 4, "max_srq_sge"),
    Field(168, 2, "max_pkeys"),
    Field(170, 1, "local_ca_ack_delay"),
    Field(171, 1, "phys_port_cnt"),
)
# What ib_uverbs_query_port_resp_ex begins with; it has 8 bytes more.
QUERY_PORT_RESP = Message(
    "ib_uverbs_query_port_resp",
    40,
    Field(0, 4, "port_cap_flags"),
    Field(4, 4, "max_msg_sz"),
    Field(8, 4, "bad_pkey_cntr"),
    Field(12, 4, "qkey_viol_cntr"),
    Field(16, 4, "gid_tbl_len"),
    Field(20, 2, "pkey_tbl_len"),
    Field(22, 2, "lid"),
    Field(24, 2, "sm_lid"),
    Field(26, 1, "state"),
    Field(27, 1, "max_mtu"),
    Field(28, 1, "active_mtu"),
    Field(29, 1, "lmc"),
    Field(30, 1, "max_vl_num"),
    Field(31, 1, "sm_sl"),
    Field(32, 1, "subnet_timeout"),
    Field(33, 1, "init_type_reply"),
    Field(34, 1, "active_width"),
    Field(35, 1, "active_speed"),
    Field(36, 1, "phys_state"),
    Field(37, 1, "link_layer"),
    Field(38, 1, "flags"),
)
QUERY_PORT_RESP_EX = 48  # sizeof(struct ib_uverbs_query_port_resp_ex)
GID_ENTRY = Message(
    "ib_uverbs_gid_entry",
    32,
    Field(0, 1, "gid", count=16),
    Field(16, 4, "gid_index"),
    Field(20, 4, "port_num"),
    Field(24, 4, "gid_type"),
    Field(28, 4, "netdev_ifindex"),
)
ALLOC_PD = Message("ib_uverbs_alloc_pd", 8, Field(0, 8, "response"))
ALLOC_PD_RESP = Message("ib_uverbs_alloc_pd_resp", 4, Field(0, 4, "pd_handle"))
REG_MR = Message(
    "ib_uverbs_reg_mr",
    40,
    Field(0, 8, "response"),
    Field(8, 8, "start"),
    Field(16, 8, "length"),
    Field(24, 8, "hca_va"),
    Field(32, 4, "pd_handle"),
    Field(36, 4, "access_flags"),
)
REG_MR_RESP = Message("ib_uverbs_reg_mr_resp", 12, Field(0, 4, "mr_handle"), Field(4, 4, "lkey"), Field(8, 4, "rkey"))
QP_CAP = Message(
    "ib_uverbs_qp_cap",
    20,
    Field(0, 4, "max_send_wr"),
    Field(4, 4, "max_recv_wr"),
    Field(8, 4, "max_send_sge"),
    Field(12, 4, "max_recv_sge"),
    Field(16, 4, "max_inline_data"),
)
DESTROY_CQ_RESP = Message(
    "ib_uverbs_destroy_cq_resp", 8, Field(0, 4, "comp_events_reported"), Field(4, 4, "async_events_reported")
)
DESTROY_QP_RESP = Message("ib_uverbs_destroy_qp_resp", 4, Field(0, 4, "events_reported"))
QP_DEST = Message(
    "ib_uverbs_qp_dest",
    32,
    Field(0, 1, "dgid", count=16),
    Field(16, 4, "flow_label"),
    Field(20, 2, "dlid"),
    Field(24, 1, "sgid_index"),
    Field(25, 1, "hop_limit"),
    Field(26, 1, "traffic_class"),
    Field(27, 1, "sl"),
    Field(28, 1, "src_path_bits"),
    Field(29, 1, "static_rate"),
    Field(30, 1, "is_global"),
    Field(31, 1, "port_num"),
)
MODIFY_QP = Message(
    "ib_uverbs_modify_qp",
    112,
    Field(0, 1, "dest", count=32),
    Field(32, 1, "alt_dest", count=32),
    Field(64, 4, "qp_handle"),
    Field(68, 4, "attr_mask"),
    Field(72, 4, "qkey"),
    Field(76, 4, "rq_psn"),
    Field(80, 4, "sq_psn"),
    Field(84, 4, "dest_qp_num"),
    Field(88, 4, "qp_access_flags"),
    Field(92, 2, "pkey_index"),
    Field(94, 2, "alt_pkey_index"),
    Field(96, 1, "qp_state"),
    Field(97, 1, "cur_qp_state"),
    Field(98, 1, "path_mtu"),
    Field(99, 1, "path_mig_state"),
    Field(100, 1, "en_sqd_async_notify"),
    Field(101, 1, "max_rd_atomic"),
    Field(102, 1, "max_dest_rd_atomic"),
    Field(103, 1, "min_rnr_timer"),
    Field(104, 1, "port_num"),
    Field(105, 1, "timeout"),
    Field(106, 1, "retry_cnt"),
    Field(107, 1, "rnr_retry"),
    Field(108, 1, "alt_port_num"),
    Field(109, 1, "alt_timeout"),
)
