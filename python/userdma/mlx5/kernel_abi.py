"""What Linux's mlx5_ib adds to the calls on its devices: rdma/mlx5-abi.h, mlx5_user_ioctl_cmds.h and
mlx5_user_ioctl_verbs.h of the kernel's user headers. A message is called as its struct, a class's docstring begins with
the prefix of what it holds."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from userdma.messages import Field, Message
from userdma.uverbs.methods import Attribute, DriverData, Kind, Method

UAR_OBJECT = 0x1008  # MLX5_IB_OBJECT_UAR
DEFAULT_UIDX = 0xFFFFFF  # MLX5_IB_DEFAULT_UIDX: completions name their queue pair by its number


class UarMethod(IntEnum):
    """MLX5_IB_METHOD_UAR_OBJ_*"""

    ALLOC = 0x1000
    DESTROY = 0x1001


class UarAttribute(IntEnum):
    """MLX5_IB_ATTR_UAR_OBJ_*"""

    ALLOC_HANDLE = 0x1000
    ALLOC_TYPE = 0x1001
    ALLOC_MMAP_OFFSET = 0x1002
    ALLOC_MMAP_LENGTH = 0x1003
    ALLOC_PAGE_ID = 0x1004
    DESTROY_HANDLE = 0x1000


class UarType(IntEnum):
    """MLX5_IB_UAPI_UAR_ALLOC_TYPE_*. How the processor writes to it: combined, or each store by itself."""

    BF = 0
    NC = 1


class LibCap(IntFlag):
    """MLX5_LIB_CAP_*"""

    N4K_UAR = 1  # as the header has it, without the N
    DYN_UAR = 2


class QpFlag(IntFlag):
    """MLX5_QP_FLAG_*"""

    UAR_PAGE_INDEX = 1 << 10


class CqFlag(IntFlag):
    """MLX5_IB_CREATE_CQ_FLAGS_*"""

    UAR_PAGE_INDEX = 1 << 1


class MmapCommand(IntEnum):
    """MLX5_IB_MMAP_*. What is mapped of a device's file."""

    REGULAR_PAGE = 0
    WC_PAGE = 2
    NC_PAGE = 3
    CORE_CLOCK = 5
    ALLOC_WC = 6
    CLOCK_INFO = 7
    DEVICE_MEM = 8


ALLOC_UCONTEXT_REQ = Message(
    "mlx5_ib_alloc_ucontext_req_v2",
    32,
    Field(0, 4, "total_num_bfregs"),
    Field(4, 4, "num_low_latency_bfregs"),
    Field(8, 4, "flags"),
    Field(12, 4, "comp_mask"),
    Field(16, 1, "max_cqe_version"),
    Field(24, 8, "lib_caps"),
)
ALLOC_UCONTEXT_RESP = Message(
    "mlx5_ib_alloc_ucontext_resp",
    72,
    Field(0, 4, "qp_tab_size"),
    Field(4, 4, "bf_reg_size"),
    Field(8, 4, "tot_bfregs"),
    Field(12, 4, "cache_line_size"),
    Field(16, 2, "max_sq_desc_sz"),
    Field(18, 2, "max_rq_desc_sz"),
    Field(20, 4, "max_send_wqebb"),
    Field(24, 4, "max_recv_wr"),
    Field(28, 4, "max_srq_recv_wr"),
    Field(32, 2, "num_ports"),
    Field(34, 2, "flow_action_flags"),
    Field(36, 4, "comp_mask"),
    Field(40, 4, "response_length"),
    Field(44, 1, "cqe_version"),
    Field(45, 1, "cmds_supp_uhw"),
    Field(46, 1, "eth_min_inline"),
    Field(47, 1, "clock_info_versions"),
    Field(48, 8, "hca_core_clock_offset"),
    Field(56, 4, "log_uar_size"),
    Field(60, 4, "num_uars_per_page"),
    Field(64, 4, "num_dyn_bfregs"),
    Field(68, 4, "dump_fill_mkey"),
)
ALLOC_PD_RESP = Message("mlx5_ib_alloc_pd_resp", 4, Field(0, 4, "pdn"))
CREATE_CQ = Message(
    "mlx5_ib_create_cq",
    32,
    Field(0, 8, "buf_addr"),
    Field(8, 8, "db_addr"),
    Field(16, 4, "cqe_size"),
    Field(20, 1, "cqe_comp_en"),
    Field(21, 1, "cqe_comp_res_format"),
    Field(22, 2, "flags"),
    Field(24, 2, "uar_page_index"),
)
CREATE_CQ_RESP = Message("mlx5_ib_create_cq_resp", 8, Field(0, 4, "cqn"))
CREATE_QP = Message(
    "mlx5_ib_create_qp",
    56,
    Field(0, 8, "buf_addr"),
    Field(8, 8, "db_addr"),
    Field(16, 4, "sq_wqe_count"),
    Field(20, 4, "rq_wqe_count"),
    Field(24, 4, "rq_wqe_shift"),
    Field(28, 4, "flags"),
    Field(32, 4, "uidx"),
    Field(36, 4, "bfreg_index"),
    Field(40, 8, "sq_buf_addr"),
    Field(48, 4, "ece_options"),
)
CREATE_QP_RESP = Message(
    "mlx5_ib_create_qp_resp",
    40,
    Field(0, 4, "bfreg_index"),
    Field(4, 4, "ece_options"),
    Field(8, 4, "comp_mask"),
    Field(12, 4, "tirn"),
    Field(16, 4, "tisn"),
    Field(20, 4, "rqn"),
    Field(24, 4, "sqn"),
    Field(32, 8, "tir_icm_addr"),
)

DRIVER_DATA = DriverData(
    context=ALLOC_UCONTEXT_REQ,
    context_answer=ALLOC_UCONTEXT_RESP,
    pd_answer=ALLOC_PD_RESP,
    cq=CREATE_CQ,
    cq_answer=CREATE_CQ_RESP,
    qp=CREATE_QP,
    qp_answer=CREATE_QP_RESP,
)
ALLOC_UAR = Method(
    "alloc_uar",
    UAR_OBJECT,
    UarMethod.ALLOC,
    (
        Attribute("uar", UarAttribute.ALLOC_HANDLE, Kind.MAKES),
        Attribute("type", UarAttribute.ALLOC_TYPE, Kind.IN, 8),
        Attribute("mmap_offset", UarAttribute.ALLOC_MMAP_OFFSET, Kind.OUT, 8),
        Attribute("mmap_length", UarAttribute.ALLOC_MMAP_LENGTH, Kind.OUT, 4),
        Attribute("page_id", UarAttribute.ALLOC_PAGE_ID, Kind.OUT, 4),
    ),
)


def mmap_offset(command: int, index: int, page: int) -> int:
    """Where a file of the kernel's mlx5_ib has what `command` names: the offset for mmap, of machine pages of `page`
    bytes. `index`: which of its kind, 16 bits, 8 of them behind the command (mlx5_ib's main.c get_command,
    get_extended_index). ValueError for what an offset cannot say.

    >>> hex(mmap_offset(MmapCommand.ALLOC_WC, 0x102, 4096))
    '0x10602000'
    """
    if not 0 <= command < 1 << 8:
        raise ValueError(f"command {command} does not fit in 8 bits")
    if not 0 <= index < 1 << 16:
        raise ValueError(f"index {index} does not fit in 16 bits")
    if page < 4096 or page & page - 1:
        raise ValueError(f"a machine has no pages of {page} bytes")
    return (index >> 8 << 16 | command << 8 | index & 0xFF) * page
