// NVIDIA ConnectX (mlx5): registers, the command queue, and events, as Linux's headers say.
//
// Everything is big-endian. Members keep the names of include/linux/mlx5/device.h, doorbell.h and cq.h; a struct's
// comment names the header's struct, a constant's comment its macro or enumerator, and the layout test compares them.
// What is "derived" stands in the driver's code or documents only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace userdma::hw::mlx5 {

// ---- BAR 0 -----------------------------------------------------------------------------------------------------
//
// It begins with the initialization segment. After it come user access regions (UAR), of 4 KiB each: UAR n is page n.

inline constexpr unsigned kUarShift = 12;      // MLX5_ADAPTER_PAGE_SHIFT
inline constexpr unsigned kUar = 1 << 12;      // MLX5_ADAPTER_PAGE_SIZE
inline constexpr unsigned kCqDoorbell = 0x20;  // MLX5_CQ_DOORBELL
inline constexpr unsigned kEqArm = 0x40;    // derived: core/eq.c, MLX5_EQ_DOORBELL_OFFSET: the entries taken, and ask
inline constexpr unsigned kEqTaken = 0x48;  // derived: the same, without asking for an interrupt
inline constexpr unsigned kBlueFlame = 0x800;  // MLX5_BF_OFFSET
inline constexpr unsigned kBlueFlames = 4;     // MLX5_BFREGS_PER_UAR
inline constexpr unsigned kBlueFlameBytes =
    512;  // derived: of one, two buffers used in turn (cap.log_bf_reg_size is 9)

struct Health {  // health_buffer
  uint32_t assert_var[6];
  uint32_t rsvd0[2];
  uint32_t assert_exit_ptr;
  uint32_t assert_callra;
  uint32_t rsvd1[1];
  uint32_t time;
  uint32_t fw_ver;
  uint32_t hw_id;
  uint8_t rfr_severity;
  uint8_t rsvd2[3];
  uint8_t irisc_index;
  uint8_t synd;
  uint16_t ext_synd;
};

struct InitSegment {  // mlx5_init_seg
  uint32_t fw_rev;
  uint32_t cmdif_rev_fw_sub;
  uint32_t rsvd0[2];
  uint32_t cmdq_addr_h;
  uint32_t cmdq_addr_l_sz;
  uint32_t cmd_dbell;
  uint32_t rsvd1[120];
  uint32_t initializing;
  Health health;
  uint32_t rsvd2[878];
  uint32_t cmd_exec_to;
  uint32_t cmd_q_init_to;
  uint32_t internal_timer_h;
  uint32_t internal_timer_l;
  uint32_t rsvd3[2];
  uint32_t health_counter;
  uint32_t rsvd4[11];
  uint32_t real_time_h;
  uint32_t real_time_l;
  uint32_t rsvd5[1006];
  uint64_t ieee1588_clk;
  uint32_t ieee1588_clk_type;
  uint32_t clr_intx;
};

// ---- The arm word of a completion queue ------------------------------------------------------------------------
//
// It is stored to the queue's second doorbell record, then with the queue's number to the UAR's kCqDoorbell: the
// sequence number of arming (two bits), what to be told of, and the consumer counter.

inline constexpr uint32_t kArmNext = 0 << 24;           // MLX5_CQ_DB_REQ_NOT
inline constexpr uint32_t kArmSolicited = 1 << 24;      // MLX5_CQ_DB_REQ_NOT_SOL
inline constexpr unsigned kArmSequenceShift = 28;       // derived: linux/mlx5/cq.h, mlx5_cq_arm
inline constexpr uint32_t kArmSequenceMask = 3;         // derived: the same
inline constexpr uint32_t kArmCounterMask = 0xff'ffff;  // derived: the same

// ---- Events ----------------------------------------------------------------------------------------------------

namespace event {                                  // MLX5_EVENT_TYPE_*
inline constexpr uint8_t kCompletion = 0x00;       // *COMP
inline constexpr uint8_t kPathMigrated = 0x01;     // *PATH_MIG
inline constexpr uint8_t kEstablished = 0x02;      // *COMM_EST
inline constexpr uint8_t kSendDrained = 0x03;      // *SQ_DRAINED
inline constexpr uint8_t kCqError = 0x04;          // *CQ_ERROR
inline constexpr uint8_t kCatastrophic = 0x05;     // *WQ_CATAS_ERROR
inline constexpr uint8_t kInternalError = 0x08;    // *INTERNAL_ERROR
inline constexpr uint8_t kPort = 0x09;             // *PORT_CHANGE
inline constexpr uint8_t kCommand = 0x0a;          // *CMD
inline constexpr uint8_t kPages = 0x0b;            // *PAGE_REQUEST
inline constexpr uint8_t kPageFault = 0x0c;        // *PAGE_FAULT
inline constexpr uint8_t kVport = 0x0d;            // *NIC_VPORT_CHANGE
inline constexpr uint8_t kInvalidRequest = 0x10;   // *WQ_INVAL_REQ_ERROR
inline constexpr uint8_t kAccess = 0x11;           // *WQ_ACCESS_ERROR
inline constexpr uint8_t kSrqCatastrophic = 0x12;  // *SRQ_CATAS_ERROR
inline constexpr uint8_t kSrqLast = 0x13;          // *SRQ_LAST_WQE
inline constexpr uint8_t kSrqLimit = 0x14;         // *SRQ_RQ_LIMIT
}  // namespace event

struct Event {  // mlx5_eqe
  uint8_t rsvd0;
  uint8_t type;
  uint8_t rsvd1;
  uint8_t sub_type;
  uint32_t rsvd2[7];
  uint8_t data[28];
  uint16_t rsvd3;
  uint8_t signature;
  uint8_t owner;
};
static_assert(sizeof(Event) == 64);

struct QueueEvent {  // mlx5_eqe_qp_srq
  uint32_t reserved1[5];
  uint8_t type;
  uint8_t reserved2[3];
  uint32_t qp_srq_n;
};
static_assert(sizeof(QueueEvent) == sizeof(Event::data));

struct CqErrorEvent {  // mlx5_eqe_cq_err
  uint32_t cqn;
  uint8_t reserved1[7];
  uint8_t syndrome;
};

struct CompletionEvent {  // mlx5_eqe_comp
  uint32_t reserved[6];
  uint32_t cqn;
};

struct PortEvent {  // mlx5_eqe_port_state
  uint8_t reserved0[8];
  uint8_t port;
};

struct CommandEvent {  // mlx5_eqe_cmd
  uint32_t vector;
  uint32_t rsvd[6];
};

inline constexpr uint8_t kCqOverrun = 0x1;  // derived: of CqErrorEvent (Adapters PRM, CQ error event)

struct PagesEvent {  // mlx5_eqe_page_req
  uint16_t ec_function;
  uint16_t func_id;
  uint32_t num_pages;
  uint32_t rsvd1[5];
};

#pragma pack(push, 4)
struct EntryFaultEvent {  // mlx5_eqe_page_fault_wqe
  uint32_t bytes_committed;
  uint16_t reserved1;
  uint16_t wqe_index;
  uint16_t reserved2;
  uint16_t packet_length;
  uint32_t token;
  uint8_t reserved4[8];
  uint32_t pftype_wq;
};

struct RequestFaultEvent {  // mlx5_eqe_page_fault_rdma
  uint32_t bytes_committed;
  uint32_t r_key;
  uint16_t reserved1;
  uint16_t packet_length;
  uint32_t rdma_op_len;
  uint64_t rdma_va;
  uint32_t pftype_token;
};
#pragma pack(pop)
static_assert(sizeof(EntryFaultEvent) == sizeof(Event::data));
static_assert(sizeof(RequestFaultEvent) == sizeof(Event::data));

namespace fault_kind {                  // MLX5_PFAULT_SUBTYPE_*
inline constexpr uint8_t kEntry = 0;    // *WQE
inline constexpr uint8_t kRequest = 1;  // *RDMA
}  // namespace fault_kind

namespace fault {                             // MLX5_WQE_PF_TYPE_*
inline constexpr uint8_t kSharedReceive = 0;  // *RMP
inline constexpr uint8_t kSendOrWrite = 1;    // *REQ_SEND_OR_WRITE
inline constexpr uint8_t kReceive = 2;        // *RESP
inline constexpr uint8_t kReadOrAtomic = 3;   // *REQ_READ_OR_ATOMIC
}  // namespace fault

inline constexpr uint8_t kFaultWrite = 1 << 1;    // MLX5_PFAULT_WRITE
inline constexpr uint8_t kFaultRequest = 1 << 2;  // MLX5_PFAULT_RDMA
inline constexpr unsigned kFaultTypeShift = 24;   // derived: of pftype_wq and pftype_token (mlx5_ib, odp.c)

// ---- Entries that change memory keys ---------------------------------------------------------------------------
//
// What mlx5.h's UmrSegment and KeySegment say, as the kernel names it.

namespace update_flag {                            // MLX5_UMR_*
inline constexpr uint8_t kOffset = 1 << 4;         // *TRANSLATION_OFFSET_EN
inline constexpr uint8_t kMustBeFree = 1 << 5;     // *CHECK_NOT_FREE
inline constexpr uint8_t kMustNotBeFree = 2 << 5;  // *CHECK_FREE
inline constexpr uint8_t kInline = 1 << 7;         // *INLINE
}  // namespace update_flag

namespace update_mask {                                   // MLX5_MKEY_MASK_*
inline constexpr uint64_t kLength = 1ull << 0;            // *LEN
inline constexpr uint64_t kPageSize = 1ull << 1;          // *PAGE_SIZE
inline constexpr uint64_t kStart = 1ull << 6;             // *START_ADDR
inline constexpr uint64_t kPd = 1ull << 7;                // *PD
inline constexpr uint64_t kRemoteInvalidate = 1ull << 8;  // *EN_RINVAL
inline constexpr uint64_t kKey = 1ull << 13;              // *KEY
inline constexpr uint64_t kQpn = 1ull << 14;              // *QPN
inline constexpr uint64_t kLocalRead = 1ull << 17;        // *LR
inline constexpr uint64_t kLocalWrite = 1ull << 18;       // *LW
inline constexpr uint64_t kRemoteRead = 1ull << 19;       // *RR
inline constexpr uint64_t kRemoteWrite = 1ull << 20;      // *RW
inline constexpr uint64_t kAtomic = 1ull << 21;           // *A
inline constexpr uint64_t kSmallFence = 1ull << 23;       // *SMALL_FENCE
inline constexpr uint64_t kRelaxedWrites = 1ull << 25;    // *RELAXED_ORDERING_WRITE
inline constexpr uint64_t kFree = 1ull << 29;             // *FREE
inline constexpr uint64_t kPageSizeHigh = 1ull << 42;     // *PAGE_SIZE_5
inline constexpr uint64_t kRelaxedReads = 1ull << 47;     // *RELAXED_ORDERING_READ
}  // namespace update_mask

inline constexpr uint32_t kKeyRemoteInvalidate = 1u << 24;  // MLX5_MKEY_REMOTE_INVAL
inline constexpr uint32_t kKeyLength64 = 1u << 31;          // derived: mlx5_ifc.h, mkc.length64, in flags_pd
inline constexpr uint32_t kKeyAnyQp = 0xff'ffff;            // derived: mlx5_ib writes it where no pair is meant

// An entry of a list of pages: its low bits say what the page may be used for now. None: it is absent.
inline constexpr uint64_t kPageRead = 1;   // MLX5_EN_RD
inline constexpr uint64_t kPageWrite = 2;  // MLX5_EN_WR

// As a part of another key's memory: a part that is absent. The kernel is told it by QUERY_SPECIAL_CONTEXTS.
inline constexpr uint32_t kAbsentKey = 0x200;  // derived: the device's own choice

namespace key_mode {                            // MLX5_MKC_ACCESS_MODE_*
inline constexpr uint8_t kPhysical = 0x0;       // *PA
inline constexpr uint8_t kTranslations = 0x1;   // *MTT
inline constexpr uint8_t kIndirect = 0x2;       // *KLMS
inline constexpr uint8_t kIndirectFixed = 0x3;  // *KSM
}  // namespace key_mode

// ---- Queue pairs -----------------------------------------------------------------------------------------------

namespace qp_type {                      // MLX5_QP_ST_*
inline constexpr uint8_t kRc = 0x0;      // *RC
inline constexpr uint8_t kUd = 0x2;      // *UD
inline constexpr uint8_t kQp1 = 0x8;     // *QP1
inline constexpr uint8_t kRegUmr = 0xc;  // *REG_UMR
}  // namespace qp_type

namespace fence {                                  // MLX5_FENCE_MODE_*
inline constexpr uint8_t kFence = 2 << 5;          // *FENCE
inline constexpr uint8_t kStrong = 3 << 5;         // *STRONG_ORDERING
inline constexpr uint8_t kSmallAndFence = 4 << 5;  // *SMALL_AND_FENCE
}  // namespace fence

inline constexpr uint32_t kInlineBytesMask = 0x3ff;  // MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK

namespace roce_header {                 // MLX5_CQE_ROCE_L3_HEADER_TYPE_*
inline constexpr uint32_t kIpv6 = 0x1;  // *IPV6
inline constexpr uint32_t kIpv4 = 0x2;  // *IPV4
}  // namespace roce_header

inline constexpr unsigned kRoceHeaderShift = 24;    // derived: of flags_rqpn (mlx5_ib, handle_responder)
inline constexpr uint32_t kGrhInBuffer = 1u << 28;  // derived: the same
inline constexpr unsigned kAddressGidShift = 20;    // derived: of grh_gid_fl (mlx5_ib, create_ib_ah)
inline constexpr uint32_t kAddressGidMask = 0xff;   // derived: the same

}  // namespace userdma::hw::mlx5
