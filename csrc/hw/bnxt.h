// Broadcom Thor2 (BCM57608): what queues, doorbells, page tables and command channels look like in memory.
//
// Everything is little-endian. Struct members keep the names of the kernel's headers; a struct's comment names the
// header's struct, and a constant's comment the header's macro (or an expression of them): the layout test compiles
// both and compares. Where no header is named, it is one of:
//   roce_hsi.h               drivers/infiniband/hw/bnxt_re     WQEs, CQEs, NQ and CREQ entries, page tables
//   qplib_res.h, _rcfw.h     drivers/infiniband/hw/bnxt_re     doorbells, the RoCE command channel
//   bnxt_hsi.h, bnxt.h       drivers/net/ethernet/broadcom/bnxt   doorbells, HWRM and its channel
// A constant marked "derived" has no macro. Where a namespace names a prefix with a star, the star stands for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace userdma::hw::bnxt {

// ---- Registers -------------------------------------------------------------------------------------------------

// BAR 0 holds the two command channels, BAR 2 the doorbells. qplib_rcfw.h, RCFW_*_PCI_BAR_REGION.
inline constexpr int kRegisterBar = 0;  // RCFW_COMM_PCI_BAR_REGION
inline constexpr int kDoorbellBar = 2;  // RCFW_DBR_PCI_BAR_REGION

// HWRM, the function's firmware channel (bnxt.h): a request is written to the window as 32-bit words, then any value
// to the trigger; the answer comes by DMA.
inline constexpr uint32_t kHwrmWindow = 0x0;      // BNXT_GRCPF_REG_CHIMP_COMM
inline constexpr uint32_t kHwrmTrigger = 0x100;   // BNXT_GRCPF_REG_CHIMP_COMM_TRIGGER
inline constexpr uint32_t kHwrmWindowSize = 128;  // HWRM_MAX_REQ_LEN

// RCFW, the RoCE firmware channel (qplib_rcfw.h): CmdqInit is written at the base, a producer word at its place in
// it, then kRcfwTriggerValue to the trigger. The very first producer word carries kRcfwFirst.
inline constexpr uint32_t kRcfwBase = 0x600;         // RCFW_COMM_BASE_OFFSET
inline constexpr uint32_t kRcfwProducer = 0x60c;     // RCFW_COMM_BASE_OFFSET + RCFW_PF_VF_COMM_PROD_OFFSET
inline constexpr uint32_t kRcfwTrigger = 0x700;      // RCFW_COMM_BASE_OFFSET + RCFW_COMM_TRIG_OFFSET
inline constexpr uint32_t kRcfwSize = 0x104;         // RCFW_COMM_SIZE
inline constexpr uint32_t kRcfwTriggerValue = 1;     // RCFW_CMDQ_TRIG_VAL
inline constexpr uint32_t kRcfwFirst = 0x8000'0000;  // 1u << FIRMWARE_FIRST_FLAG
inline constexpr uint32_t kRcfwIndexMask = 0xffff;   // derived: the producer counts slots without end, modulo 2^16
inline constexpr uint32_t kCmdqSlot = 16;            // BNXT_QPLIB_CMDQE_UNITS

struct CmdqInit {  // cmdq_init
  uint64_t cmdq_pbl;
  uint16_t cmdq_size_cmdq_lvl;
  uint16_t creq_ring_id;
  uint32_t prod_idx;
};
static_assert(sizeof(CmdqInit) == 16);
static_assert(offsetof(CmdqInit, prod_idx) == kRcfwProducer - kRcfwBase);

inline constexpr uint16_t kCmdqLevelMask = 0x3;  // CMDQ_INIT_CMDQ_LVL_MASK
inline constexpr unsigned kCmdqSizeShift = 2;    // CMDQ_INIT_CMDQ_SIZE_SFT

// ---- Doorbells -------------------------------------------------------------------------------------------------

// One 64-bit store to the function's doorbell page. The page's offset in BAR 2 is FUNC_QCFG's (legacy_l2_db_size_kb
// on this chip); qplib_res.h and bnxt.h name the one of the chips before.
// bnxt_hsi.h dbc_dbc, qplib_res.h BNXT_QPLIB_INIT_DBHDR: the high word is xid, path, valid and type, the low word
// index, epoch and toggle.
struct DoorbellValue {  // dbc_dbc
  uint32_t index;
  uint32_t type_path_xid;
};
static_assert(sizeof(DoorbellValue) == 8);

inline constexpr uint64_t kDoorbellIndexMask = 0xff'ffff;        // DBC_DBC_INDEX_MASK
inline constexpr unsigned kDoorbellEpochShift = 24;              // BNXT_QPLIB_DBR_EPOCH_SHIFT
inline constexpr uint64_t kDoorbellEpoch = 1ull << 24;           // DBC_DBC_EPOCH
inline constexpr unsigned kDoorbellToggleShift = 25;             // DBC_DBC_TOGGLE_SFT
inline constexpr uint64_t kDoorbellToggleMask = 0x600'0000;      // DBC_DBC_TOGGLE_MASK
inline constexpr unsigned kDoorbellXidShift = 32;                // DBR_XID_SFT
inline constexpr uint64_t kDoorbellXidMask = 0xf'ffffull << 32;  // (uint64_t)DBC_DBC_XID_MASK << 32
inline constexpr uint64_t kDoorbellPathMask = 0x3ull << 56;      // (uint64_t)DBC_DBC_PATH_MASK << 32
inline constexpr uint64_t kDoorbellPathRoce = 0x0ull << 56;      // (uint64_t)DBC_DBC_PATH_ROCE << 32
inline constexpr uint64_t kDoorbellPathL2 = 0x1ull << 56;        // DBR_PATH_L2
inline constexpr uint64_t kDoorbellValid = 0x1ull << 58;         // DBR_VALID
inline constexpr uint64_t kDoorbellDebugTrace = 0x1ull << 59;    // (uint64_t)DBC_DBC_DEBUG_TRACE << 32
inline constexpr unsigned kDoorbellTypeShift = 60;               // derived: the type is the top four bits

// What a doorbell says, and whose number its xid is.
namespace doorbell_type {
inline constexpr uint8_t kSq = 0x0;              // DBC_DBC_TYPE_SQ >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kRq = 0x1;              // DBC_DBC_TYPE_RQ >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kSrq = 0x2;             // DBC_DBC_TYPE_SRQ >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kSrqArm = 0x3;          // DBC_DBC_TYPE_SRQ_ARM >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kCq = 0x4;              // DBC_DBC_TYPE_CQ >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kCqArmSolicited = 0x5;  // DBC_DBC_TYPE_CQ_ARMSE >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kCqArmAll = 0x6;        // DBC_DBC_TYPE_CQ_ARMALL >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kCqArmEnable = 0x7;     // DBC_DBC_TYPE_CQ_ARMENA >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kSrqArmEnable = 0x8;    // DBC_DBC_TYPE_SRQ_ARMENA >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kCqCutOffAck = 0x9;     // DBC_DBC_TYPE_CQ_CUTOFF_ACK >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kNq = 0xa;              // DBC_DBC_TYPE_NQ >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kNqArm = 0xb;           // DBC_DBC_TYPE_NQ_ARM >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kNqMask = 0xe;          // DBC_DBC_TYPE_NQ_MASK >> DBC_DBC_TYPE_SFT
inline constexpr uint8_t kNull = 0xf;            // DBC_DBC_TYPE_NULL >> DBC_DBC_TYPE_SFT
}  // namespace doorbell_type

// `index` is the producer (SQ, RQ, SRQ) or consumer (CQ, NQ) index within the ring, `epoch` flips each time that the
// index wraps, beginning with 0. SQ and RQ count WQEs with static WQEs, 16-byte slots with variable-size ones.
// `toggle` goes with the CQ and SRQ arming types: what the last notification of that queue carried.
constexpr uint64_t doorbell(uint32_t xid, uint8_t type, uint32_t index, uint32_t epoch, uint32_t toggle = 0) {
  return (static_cast<uint64_t>(type) << kDoorbellTypeShift) | kDoorbellValid | kDoorbellPathRoce |
         ((static_cast<uint64_t>(xid) << kDoorbellXidShift) & kDoorbellXidMask) | (index & kDoorbellIndexMask) |
         (static_cast<uint64_t>(epoch & 1) << kDoorbellEpochShift) |
         (static_cast<uint64_t>(toggle & 3) << kDoorbellToggleShift);
}
constexpr uint8_t doorbell_kind(uint64_t value) { return static_cast<uint8_t>(value >> kDoorbellTypeShift); }
constexpr uint32_t doorbell_xid(uint64_t value) {
  return static_cast<uint32_t>((value & kDoorbellXidMask) >> kDoorbellXidShift);
}
constexpr uint32_t doorbell_index(uint64_t value) { return static_cast<uint32_t>(value & kDoorbellIndexMask); }
constexpr uint32_t doorbell_epoch(uint64_t value) { return static_cast<uint32_t>(value >> kDoorbellEpochShift) & 1; }
constexpr uint32_t doorbell_toggle(uint64_t value) { return static_cast<uint32_t>(value >> kDoorbellToggleShift) & 3; }

// ---- Page tables -----------------------------------------------------------------------------------------------

// Level 0: the address is the one page. Level 1: it is a table of PTEs. Level 2: a page of PDEs, each of a page of
// PTEs. In the tables of queues (not of memory regions) the last PTE has kPteLast, the one before kPteNextToLast.
inline constexpr uint64_t kPteValid = 0x1;              // PTU_PTE_VALID
inline constexpr uint64_t kPteLast = 0x2;               // PTU_PTE_LAST
inline constexpr uint64_t kPteNextToLast = 0x4;         // PTU_PTE_NEXT_TO_LAST
inline constexpr uint64_t kPdeValid = 0x1;              // PTU_PDE_VALID
inline constexpr uint64_t kPteAddressMask = ~0xfffull;  // derived: PTU_PTE_PAGE_MASK of the low word, all of the high
inline constexpr size_t kPtesPerPage = 512;             // MAX_PBL_LVL_1_PGS

// ---- Send queue ------------------------------------------------------------------------------------------------

// A WQE is a header of two 16-byte slots, then SGEs of one slot each or inline data. Static WQEs are always eight
// slots, so six SGEs; variable-size ones take what wqe_size says, and wrap around the ring's end between slots.
inline constexpr size_t kSlot = 16;        // sizeof(struct sq_sge)
inline constexpr size_t kStaticWqe = 128;  // sizeof(struct sq_send)
inline constexpr size_t kStaticWqeSges =
    6;  // (sizeof(struct sq_send) - sizeof(struct sq_send_hdr)) / sizeof(struct sq_sge)
inline constexpr size_t kInlineMax = 96;  // sizeof(struct sq_send) - sizeof(struct sq_send_hdr)

namespace wqe_type {
inline constexpr uint8_t kSend = 0x00;              // SQ_BASE_WQE_TYPE_SEND
inline constexpr uint8_t kSendImmediate = 0x01;     // SQ_BASE_WQE_TYPE_SEND_W_IMMEAD
inline constexpr uint8_t kSendInvalidate = 0x02;    // SQ_BASE_WQE_TYPE_SEND_W_INVALID
inline constexpr uint8_t kWrite = 0x04;             // SQ_BASE_WQE_TYPE_WRITE_WQE
inline constexpr uint8_t kWriteImmediate = 0x05;    // SQ_BASE_WQE_TYPE_WRITE_W_IMMEAD
inline constexpr uint8_t kRead = 0x06;              // SQ_BASE_WQE_TYPE_READ_WQE
inline constexpr uint8_t kCompareSwap = 0x08;       // SQ_BASE_WQE_TYPE_ATOMIC_CS
inline constexpr uint8_t kFetchAdd = 0x0b;          // SQ_BASE_WQE_TYPE_ATOMIC_FA
inline constexpr uint8_t kLocalInvalidate = 0x0c;   // SQ_BASE_WQE_TYPE_LOCAL_INVALID
inline constexpr uint8_t kFastRegister = 0x0d;      // SQ_BASE_WQE_TYPE_FR_PMR
inline constexpr uint8_t kBind = 0x0e;              // SQ_BASE_WQE_TYPE_BIND
inline constexpr uint8_t kFastRegisterPpmr = 0x0f;  // SQ_BASE_WQE_TYPE_FR_PPMR
inline constexpr uint8_t kReceive = 0x80;           // RQ_WQE_WQE_TYPE_RCV
}  // namespace wqe_type

// The same bits in every send queue header's `flags`.
namespace wqe_flags {
inline constexpr uint8_t kSignal = 0x01;      // SQ_SEND_FLAGS_SIGNAL_COMP
inline constexpr uint8_t kFence = 0x02;       // SQ_SEND_FLAGS_RD_OR_ATOMIC_FENCE
inline constexpr uint8_t kUcFence = 0x04;     // SQ_SEND_FLAGS_UC_FENCE
inline constexpr uint8_t kSolicited = 0x08;   // SQ_SEND_FLAGS_SE
inline constexpr uint8_t kInline = 0x10;      // SQ_SEND_FLAGS_INLINE
inline constexpr uint8_t kTimestamp = 0x20;   // SQ_SEND_FLAGS_WQE_TS_EN
inline constexpr uint8_t kDebugTrace = 0x40;  // SQ_SEND_FLAGS_DEBUG_TRACE
}  // namespace wqe_flags

struct Sge {  // sq_sge
  uint64_t va_or_pa;
  uint32_t l_key;
  uint32_t size;
};
static_assert(sizeof(Sge) == 16);

// kSend, kSendImmediate, kSendInvalidate. wqe_size counts slots: header, SGEs or inline data.
struct SendHeader {  // sq_send_hdr
  uint8_t wqe_type;
  uint8_t flags;
  uint8_t wqe_size;
  uint8_t reserved8_1;
  uint32_t inv_key_or_imm_data;
  uint32_t length;
  uint32_t q_key;   // UD
  uint32_t dst_qp;  // UD, 24 bits
  uint32_t avid;    // UD, 20 bits
  uint32_t reserved32;
  uint32_t timestamp;
};
static_assert(sizeof(SendHeader) == 32 && offsetof(SendHeader, length) == 8 && offsetof(SendHeader, timestamp) == 28);

inline constexpr uint32_t kDestinationQpMask = 0xff'ffff;  // SQ_SEND_DST_QP_MASK
inline constexpr uint32_t kAvidMask = 0xf'ffff;            // SQ_SEND_AVID_MASK

// kWrite, kWriteImmediate, kRead.
struct RdmaHeader {  // sq_rdma_hdr
  uint8_t wqe_type;
  uint8_t flags;
  uint8_t wqe_size;
  uint8_t reserved8;
  uint32_t imm_data;
  uint32_t length;
  uint32_t reserved32_1;
  uint64_t remote_va;
  uint32_t remote_key;
  uint32_t timestamp;
};
static_assert(sizeof(RdmaHeader) == 32 && offsetof(RdmaHeader, remote_va) == 16);

// kCompareSwap, kFetchAdd (whose addend is swap_data). It has no wqe_size: always the header and one SGE.
struct AtomicHeader {  // sq_atomic_hdr
  uint8_t wqe_type;
  uint8_t flags;
  uint16_t reserved16;
  uint32_t remote_key;
  uint64_t remote_va;
  uint64_t swap_data;
  uint64_t cmp_data;
};
static_assert(sizeof(AtomicHeader) == 32 && offsetof(AtomicHeader, swap_data) == 16);

// kLocalInvalidate: the header alone.
struct LocalInvalidateHeader {  // sq_localinvalidate_hdr
  uint8_t wqe_type;
  uint8_t flags;
  uint16_t reserved16;
  uint32_t inv_l_key;
  uint64_t reserved64;
  uint8_t reserved128[16];
};
static_assert(sizeof(LocalInvalidateHeader) == 32);

// kFastRegister: the header alone. length is 40 bits.
struct FastRegisterHeader {  // sq_fr_pmr_hdr
  uint8_t wqe_type;
  uint8_t flags;
  uint8_t access_cntl;  // mr_access
  uint8_t zero_based_page_size_log;
  uint32_t l_key;
  uint8_t length[5];
  uint8_t reserved8_1;
  uint8_t reserved8_2;
  uint8_t numlevels_pbl_page_size_log;
  uint64_t pblptr;
  uint64_t va;
};
static_assert(sizeof(FastRegisterHeader) == 32 && offsetof(FastRegisterHeader, pblptr) == 16);

inline constexpr uint8_t kFastRegisterPageMask = 0x1f;     // SQ_FR_PMR_PAGE_SIZE_LOG_MASK
inline constexpr uint8_t kFastRegisterZeroBased = 0x20;    // SQ_FR_PMR_ZERO_BASED
inline constexpr uint8_t kFastRegisterPblPageMask = 0x1f;  // SQ_FR_PMR_PBL_PAGE_SIZE_LOG_MASK
inline constexpr unsigned kFastRegisterLevelsShift = 6;    // SQ_FR_PMR_NUMLEVELS_SFT
inline constexpr unsigned kFastRegisterPageBase = 12;      // derived: PAGE_SIZE_LOG_PGSZ_4K is 0

// kBind: the header alone. length is 40 bits.
struct BindHeader {  // sq_bind_hdr
  uint8_t wqe_type;
  uint8_t flags;
  uint8_t access_cntl;
  uint8_t reserved8_1;
  uint8_t mw_type_zero_based;
  uint8_t reserved8_2;
  uint16_t reserved16;
  uint32_t parent_l_key;
  uint32_t l_key;
  uint64_t va;
  uint8_t length[5];
  uint8_t reserved24[3];
};
static_assert(sizeof(BindHeader) == 32 && offsetof(BindHeader, va) == 16);

inline constexpr uint8_t kBindZeroBased = 0x1;  // SQ_BIND_ZERO_BASED
inline constexpr uint8_t kBindType2 = 0x2;      // SQ_BIND_MW_TYPE_TYPE2

// The MSN table follows the send ring's last byte (qplib_fp.c bnxt_qplib_init_psn_ptr): an 8-byte entry for each
// message that takes PSNs, from which the hardware retransmits. start_idx is the WQE's index with static WQEs, its
// first slot's with variable-size ones; next_psn is the PSN of the message after.
struct MsnSearch {  // sq_msn_search
  uint64_t start_idx_next_psn_start_psn;
};
static_assert(sizeof(MsnSearch) == 8);

inline constexpr uint64_t kPsnMask = 0xff'ffff;      // SQ_MSN_SEARCH_START_PSN_MASK
inline constexpr unsigned kMsnNextPsnShift = 24;     // SQ_MSN_SEARCH_NEXT_PSN_SFT
inline constexpr unsigned kMsnStartIndexShift = 48;  // SQ_MSN_SEARCH_START_IDX_SFT

constexpr uint64_t msn_search(uint32_t start_index, uint32_t next_psn, uint32_t start_psn) {
  return (static_cast<uint64_t>(start_index & 0xffff) << kMsnStartIndexShift) |
         ((next_psn & kPsnMask) << kMsnNextPsnShift) | (start_psn & kPsnMask);
}

// ---- Receive queue ---------------------------------------------------------------------------------------------

// wqe_size counts slots, as in the send queue. wr_id (20 bits) comes back in the completion.
struct ReceiveHeader {  // rq_wqe_hdr
  uint8_t wqe_type;
  uint8_t flags;
  uint8_t wqe_size;
  uint8_t reserved8;
  uint32_t reserved32;
  uint32_t wr_id[2];
  uint8_t reserved128[16];
};
static_assert(sizeof(ReceiveHeader) == 32 && offsetof(ReceiveHeader, wr_id) == 8);

inline constexpr uint32_t kWrIdMask = 0xf'ffff;  // RQ_WQE_WR_ID_MASK

// The key of all memory, by its bus addresses, for queue pairs that may use it.
inline constexpr uint32_t kReservedLkey = 0xffff'ffff;  // BNXT_QPLIB_RSVD_LKEY

// ---- Completion queue ------------------------------------------------------------------------------------------

// CQEs are 32 bytes. The ring begins zeroed and the toggle bit is 1 in its first pass, then flips each time that the
// producer wraps (qplib_fp.h CQE_CMP_VALID): an entry is new when its toggle is not the pass's low bit.
struct CqBase {  // cq_base
  uint64_t reserved64_1;
  uint64_t reserved64_2;
  uint64_t reserved64_3;
  uint8_t cqe_type_toggle;
  uint8_t status;
  uint16_t reserved16;
  uint32_t opaque;
};
static_assert(sizeof(CqBase) == 32 && offsetof(CqBase, cqe_type_toggle) == 24 && offsetof(CqBase, status) == 25);

inline constexpr uint8_t kCqeToggle = 0x01;            // CQ_BASE_TOGGLE
inline constexpr uint8_t kCqeTypeMask = 0x1e;          // CQ_BASE_CQE_TYPE_MASK
inline constexpr unsigned kCqeTypeShift = 1;           // CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kCqeReqPush = 0x20;           // CQ_REQ_PUSH
inline constexpr uint8_t kCqeResizeToggleMask = 0x60;  // CQ_CUTOFF_RESIZE_TOGGLE_MASK
inline constexpr unsigned kCqeResizeToggleShift = 5;   // CQ_CUTOFF_RESIZE_TOGGLE_SFT

namespace cqe_type {
inline constexpr uint8_t kReq = 0x0;        // CQ_BASE_CQE_TYPE_REQ >> CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kResRc = 0x1;      // CQ_BASE_CQE_TYPE_RES_RC >> CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kResUd = 0x2;      // CQ_BASE_CQE_TYPE_RES_UD >> CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kResRawQp1 = 0x3;  // CQ_BASE_CQE_TYPE_RES_RAWETH_QP1 >> CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kResUdCfa = 0x4;   // CQ_BASE_CQE_TYPE_RES_UD_CFA >> CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kNoOp = 0xd;       // CQ_BASE_CQE_TYPE_NO_OP >> CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kTerminal = 0xe;   // CQ_BASE_CQE_TYPE_TERMINAL >> CQ_BASE_CQE_TYPE_SFT
inline constexpr uint8_t kCutOff = 0xf;     // CQ_BASE_CQE_TYPE_CUT_OFF >> CQ_BASE_CQE_TYPE_SFT
}  // namespace cqe_type

constexpr uint8_t cqe_kind(uint8_t cqe_type_toggle) { return (cqe_type_toggle & kCqeTypeMask) >> kCqeTypeShift; }

// One kReq entry completes every send queue entry before sq_cons_idx (which counts as the SQ doorbell's index does).
struct CqReq {  // cq_req
  uint64_t qp_handle;
  uint16_t sq_cons_idx;
  uint16_t reserved16_1;
  uint32_t reserved32_2;
  uint64_t reserved64;
  uint8_t cqe_type_toggle;
  uint8_t status;  // req_status
  uint16_t reserved16_2;
  uint32_t reserved32_1;
};
static_assert(sizeof(CqReq) == 32 && offsetof(CqReq, sq_cons_idx) == 8 && offsetof(CqReq, cqe_type_toggle) == 24);

namespace req_status {
inline constexpr uint8_t kOk = 0x0;                    // CQ_REQ_STATUS_OK
inline constexpr uint8_t kBadResponse = 0x1;           // CQ_REQ_STATUS_BAD_RESPONSE_ERR
inline constexpr uint8_t kLocalLength = 0x2;           // CQ_REQ_STATUS_LOCAL_LENGTH_ERR
inline constexpr uint8_t kLocalQpOperation = 0x3;      // CQ_REQ_STATUS_LOCAL_QP_OPERATION_ERR
inline constexpr uint8_t kLocalProtection = 0x4;       // CQ_REQ_STATUS_LOCAL_PROTECTION_ERR
inline constexpr uint8_t kMemoryManagement = 0x5;      // CQ_REQ_STATUS_MEMORY_MGT_OPERATION_ERR
inline constexpr uint8_t kRemoteInvalidRequest = 0x6;  // CQ_REQ_STATUS_REMOTE_INVALID_REQUEST_ERR
inline constexpr uint8_t kRemoteAccess = 0x7;          // CQ_REQ_STATUS_REMOTE_ACCESS_ERR
inline constexpr uint8_t kRemoteOperation = 0x8;       // CQ_REQ_STATUS_REMOTE_OPERATION_ERR
inline constexpr uint8_t kRnrRetry = 0x9;              // CQ_REQ_STATUS_RNR_NAK_RETRY_CNT_ERR
inline constexpr uint8_t kTransportRetry = 0xa;        // CQ_REQ_STATUS_TRANSPORT_RETRY_CNT_ERR
inline constexpr uint8_t kFlushed = 0xb;               // CQ_REQ_STATUS_WORK_REQUEST_FLUSHED_ERR
}  // namespace req_status

// One kResRc entry completes one receive.
struct CqResRc {  // cq_res_rc
  uint32_t length;
  uint32_t imm_data_or_inv_r_key;
  uint64_t qp_handle;
  uint64_t mr_handle;
  uint8_t cqe_type_toggle;
  uint8_t status;  // res_status
  uint16_t flags;  // res_flags
  uint32_t srq_or_rq_wr_id;
};
static_assert(sizeof(CqResRc) == 32 && offsetof(CqResRc, qp_handle) == 8 && offsetof(CqResRc, flags) == 26);

namespace res_status {
inline constexpr uint8_t kOk = 0x0;                    // CQ_RES_RC_STATUS_OK
inline constexpr uint8_t kLocalAccess = 0x1;           // CQ_RES_RC_STATUS_LOCAL_ACCESS_ERROR
inline constexpr uint8_t kLocalLength = 0x2;           // CQ_RES_RC_STATUS_LOCAL_LENGTH_ERR
inline constexpr uint8_t kLocalProtection = 0x3;       // CQ_RES_RC_STATUS_LOCAL_PROTECTION_ERR
inline constexpr uint8_t kLocalQpOperation = 0x4;      // CQ_RES_RC_STATUS_LOCAL_QP_OPERATION_ERR
inline constexpr uint8_t kMemoryManagement = 0x5;      // CQ_RES_RC_STATUS_MEMORY_MGT_OPERATION_ERR
inline constexpr uint8_t kRemoteInvalidRequest = 0x6;  // CQ_RES_RC_STATUS_REMOTE_INVALID_REQUEST_ERR
inline constexpr uint8_t kFlushed = 0x7;               // CQ_RES_RC_STATUS_WORK_REQUEST_FLUSHED_ERR
inline constexpr uint8_t kHardwareFlush = 0x8;         // CQ_RES_RC_STATUS_HW_FLUSH_ERR
}  // namespace res_status

namespace res_flags {
inline constexpr uint16_t kSrq = 0x1;         // CQ_RES_RC_FLAGS_SRQ
inline constexpr uint16_t kImmediate = 0x2;   // CQ_RES_RC_FLAGS_IMM
inline constexpr uint16_t kInvalidate = 0x4;  // CQ_RES_RC_FLAGS_INV
inline constexpr uint16_t kRdmaWrite = 0x8;   // CQ_RES_RC_FLAGS_RDMA
}  // namespace res_flags

struct CqResUd {    // cq_res_ud_v2
  uint16_t length;  // 14 bits
  uint16_t cfa_metadata0;
  uint32_t imm_data;
  uint64_t qp_handle;
  uint16_t src_mac[3];
  uint16_t src_qp_low;
  uint8_t cqe_type_toggle;
  uint8_t status;  // res_status, but for kRemoteInvalidRequest
  uint16_t flags;
  uint32_t src_qp_high_srq_or_rq_wr_id;
};
static_assert(sizeof(CqResUd) == 32 && offsetof(CqResUd, src_mac) == 16);

inline constexpr unsigned kUdSourceQpHighShift = 24;  // CQ_RES_UD_SRC_QP_HIGH_SFT
inline constexpr uint16_t kUdIpVersionMask = 0x30;    // CQ_RES_UD_FLAGS_ROCE_IP_VER_MASK
inline constexpr uint16_t kUdIpVersion4 = 0x20;       // CQ_RES_UD_FLAGS_ROCE_IP_VER_V2IPV4
inline constexpr uint16_t kUdIpVersion6 = 0x30;       // CQ_RES_UD_FLAGS_ROCE_IP_VER_V2IPV6

// The queue pair went to the error state: entries from these indices on will not complete one by one.
struct CqTerminal {  // cq_terminal
  uint64_t qp_handle;
  uint16_t sq_cons_idx;
  uint16_t rq_cons_idx;
  uint32_t reserved32_1;
  uint64_t reserved64_3;
  uint8_t cqe_type_toggle;
  uint8_t status;
  uint16_t reserved16;
  uint32_t reserved32_2;
};
static_assert(sizeof(CqTerminal) == 32 && offsetof(CqTerminal, rq_cons_idx) == 10);

inline constexpr uint16_t kNoConsumerIndex = 0xffff;  // derived: qplib_fp.c, a ring with nothing to complete

// The last entry of a queue that is being resized: what follows is in the new ring.
struct CqCutOff {  // cq_cutoff
  uint64_t reserved64_1;
  uint64_t reserved64_2;
  uint64_t reserved64_3;
  uint8_t cqe_type_toggle;
  uint8_t status;
  uint16_t reserved16;
  uint32_t reserved32;
};
static_assert(sizeof(CqCutOff) == 32);

// ---- Notification queue ----------------------------------------------------------------------------------------

// 16-byte entries. The ring begins zeroed and V is 1 in its first pass, then flips each time that the producer wraps
// (qplib_fp.h NQE_CMP_VALID), as a CQE's toggle does. The CREQ ring is a notification queue too.
struct NqBase {  // nq_base
  uint16_t info10_type;
  uint16_t info16;
  uint32_t info32;
  uint32_t info63_v[2];
};
static_assert(sizeof(NqBase) == 16 && offsetof(NqBase, info63_v) == 8);

inline constexpr size_t kNqe = 16;                // sizeof(struct nq_base)
inline constexpr size_t kNqeValidOffset = 8;      // offsetof(struct nq_base, info63_v)
inline constexpr uint32_t kNqeValid = 0x1;        // NQ_BASE_V
inline constexpr uint16_t kNqeTypeMask = 0x3f;    // NQ_BASE_TYPE_MASK
inline constexpr unsigned kNqeToggleShift = 6;    // NQ_CN_TOGGLE_SFT
inline constexpr uint16_t kNqeToggleMask = 0xc0;  // NQ_CN_TOGGLE_MASK

namespace nqe_type {
inline constexpr uint8_t kCqNotification = 0x30;  // NQ_BASE_TYPE_CQ_NOTIFICATION
inline constexpr uint8_t kSrqEvent = 0x32;        // NQ_BASE_TYPE_SRQ_EVENT
inline constexpr uint8_t kDbqEvent = 0x34;        // NQ_BASE_TYPE_DBQ_EVENT
inline constexpr uint8_t kQpEvent = 0x38;         // NQ_BASE_TYPE_QP_EVENT
inline constexpr uint8_t kFuncEvent = 0x3a;       // NQ_BASE_TYPE_FUNC_EVENT
}  // namespace nqe_type

// An armed completion queue has a new entry; its handle is the one that CREATE_CQ gave.
struct NqCqNotification {  // nq_cn
  uint16_t type;
  uint16_t reserved16;
  uint32_t cq_handle_low;
  uint32_t v;
  uint32_t cq_handle_high;
};
static_assert(sizeof(NqCqNotification) == 16 && offsetof(NqCqNotification, v) == 8);

struct NqSrqEvent {  // nq_srq_event
  uint8_t type;
  uint8_t event;
  uint16_t reserved16;
  uint32_t srq_handle_low;
  uint32_t v;
  uint32_t srq_handle_high;
};
static_assert(sizeof(NqSrqEvent) == 16);

inline constexpr uint8_t kSrqThresholdEvent = 0x1;  // NQ_SRQ_EVENT_EVENT_SRQ_THRESHOLD_EVENT

// ---- CREQ: answers and events of the RoCE command channel --------------------------------------------------------

// V as in NqBase (qplib_rcfw.h CREQ_CMP_VALID). An entry of type kQpEvent is the answer to the command whose cookie
// it carries, or an asynchronous event when `event` is one of the notifications below.
struct CreqBase {  // creq_base
  uint8_t type;
  uint8_t reserved56[7];
  uint8_t v;
  uint8_t event;
  uint8_t reserved48[6];
};
static_assert(sizeof(CreqBase) == 16 && offsetof(CreqBase, v) == 8);

inline constexpr uint8_t kCreqTypeMask = 0x3f;  // CREQ_BASE_TYPE_MASK
inline constexpr uint8_t kCreqValid = 0x1;      // CREQ_BASE_V
namespace creq_type {
inline constexpr uint8_t kQpEvent = 0x38;    // CREQ_BASE_TYPE_QP_EVENT
inline constexpr uint8_t kFuncEvent = 0x3a;  // CREQ_BASE_TYPE_FUNC_EVENT
}  // namespace creq_type

struct CreqQpEvent {  // creq_qp_event
  uint8_t type;
  uint8_t status;  // creq_status
  uint16_t cookie;
  uint32_t reserved32;  // most answers: the xid
  uint8_t v;
  uint8_t event;  // the command's opcode, or one of creq_event
  uint8_t reserved48[6];
};
static_assert(sizeof(CreqQpEvent) == 16 && offsetof(CreqQpEvent, cookie) == 2);

namespace creq_event {
inline constexpr uint8_t kQpError = 0xc0;  // CREQ_QP_EVENT_EVENT_QP_ERROR_NOTIFICATION
inline constexpr uint8_t kCqError = 0xc1;  // CREQ_QP_EVENT_EVENT_CQ_ERROR_NOTIFICATION
}  // namespace creq_event

namespace creq_status {
inline constexpr uint8_t kSuccess = 0x0;           // CREQ_QP_EVENT_STATUS_SUCCESS
inline constexpr uint8_t kFail = 0x1;              // CREQ_QP_EVENT_STATUS_FAIL
inline constexpr uint8_t kResources = 0x2;         // CREQ_QP_EVENT_STATUS_RESOURCES
inline constexpr uint8_t kInvalidCommand = 0x3;    // CREQ_QP_EVENT_STATUS_INVALID_CMD
inline constexpr uint8_t kNotImplemented = 0x4;    // CREQ_QP_EVENT_STATUS_NOT_IMPLEMENTED
inline constexpr uint8_t kInvalidParameter = 0x5;  // CREQ_QP_EVENT_STATUS_INVALID_PARAMETER
inline constexpr uint8_t kHardwareError = 0x6;     // CREQ_QP_EVENT_STATUS_HARDWARE_ERROR
inline constexpr uint8_t kInternalError = 0x7;     // CREQ_QP_EVENT_STATUS_INTERNAL_ERROR
}  // namespace creq_status

// A queue pair went to the error state by itself.
struct CreqQpError {  // creq_qp_error_notification
  uint8_t type;
  uint8_t status;
  uint8_t req_slow_path_state;
  uint8_t req_err_state_reason;  // req_reason
  uint32_t xid;
  uint8_t v;
  uint8_t event;
  uint8_t res_slow_path_state;
  uint8_t res_err_state_reason;  // res_reason
  uint16_t sq_cons_idx;
  uint16_t rq_cons_idx;
};
static_assert(sizeof(CreqQpError) == 16 && offsetof(CreqQpError, xid) == 4 && offsetof(CreqQpError, sq_cons_idx) == 12);

struct CreqFuncEvent {  // creq_func_event
  uint8_t type;
  uint8_t reserved56[7];
  uint8_t v;
  uint8_t event;  // func_event
  uint8_t reserved48[6];
};
static_assert(sizeof(CreqFuncEvent) == 16);

namespace func_event {
inline constexpr uint8_t kTxWqeError = 0x01;         // CREQ_FUNC_EVENT_EVENT_TX_WQE_ERROR
inline constexpr uint8_t kTxDataError = 0x02;        // CREQ_FUNC_EVENT_EVENT_TX_DATA_ERROR
inline constexpr uint8_t kRxWqeError = 0x03;         // CREQ_FUNC_EVENT_EVENT_RX_WQE_ERROR
inline constexpr uint8_t kRxDataError = 0x04;        // CREQ_FUNC_EVENT_EVENT_RX_DATA_ERROR
inline constexpr uint8_t kCqError = 0x05;            // CREQ_FUNC_EVENT_EVENT_CQ_ERROR
inline constexpr uint8_t kTqmError = 0x06;           // CREQ_FUNC_EVENT_EVENT_TQM_ERROR
inline constexpr uint8_t kCfcqError = 0x07;          // CREQ_FUNC_EVENT_EVENT_CFCQ_ERROR
inline constexpr uint8_t kCfcsError = 0x08;          // CREQ_FUNC_EVENT_EVENT_CFCS_ERROR
inline constexpr uint8_t kCfccError = 0x09;          // CREQ_FUNC_EVENT_EVENT_CFCC_ERROR
inline constexpr uint8_t kCfcmError = 0x0a;          // CREQ_FUNC_EVENT_EVENT_CFCM_ERROR
inline constexpr uint8_t kTimError = 0x0b;           // CREQ_FUNC_EVENT_EVENT_TIM_ERROR
inline constexpr uint8_t kVfCommRequest = 0x80;      // CREQ_FUNC_EVENT_EVENT_VF_COMM_REQUEST
inline constexpr uint8_t kResourceExhausted = 0x81;  // CREQ_FUNC_EVENT_EVENT_RESOURCE_EXHAUSTED
}  // namespace func_event

// Why the requester or the responder went to the error state (CreqQpError).
namespace req_reason {                                  // CREQ_QP_ERROR_NOTIFICATION_REQ_ERR_STATE_REASON_*
inline constexpr uint8_t kNoError = 0x00;               // *NO_ERROR
inline constexpr uint8_t kOpcodeError = 0x01;           // *REQ_OPCODE_ERROR
inline constexpr uint8_t kTimeoutRetryLimit = 0x02;     // *REQ_TIMEOUT_RETRY_LIMIT
inline constexpr uint8_t kRnrTimeoutRetryLimit = 0x03;  // *REQ_RNR_TIMEOUT_RETRY_LIMIT
inline constexpr uint8_t kNakArrival1 = 0x04;           // *REQ_NAK_ARRIVAL_1
inline constexpr uint8_t kNakArrival2 = 0x05;           // *REQ_NAK_ARRIVAL_2
inline constexpr uint8_t kNakArrival3 = 0x06;           // *REQ_NAK_ARRIVAL_3
inline constexpr uint8_t kNakArrival4 = 0x07;           // *REQ_NAK_ARRIVAL_4
inline constexpr uint8_t kRxMemoryError = 0x08;         // *REQ_RX_MEMORY_ERROR
inline constexpr uint8_t kTxMemoryError = 0x09;         // *REQ_TX_MEMORY_ERROR
inline constexpr uint8_t kReadRespLength = 0x0a;        // *REQ_READ_RESP_LENGTH
inline constexpr uint8_t kInvalidReadResp = 0x0b;       // *REQ_INVALID_READ_RESP
inline constexpr uint8_t kIllegalBind = 0x0c;           // *REQ_ILLEGAL_BIND
inline constexpr uint8_t kIllegalFastReg = 0x0d;        // *REQ_ILLEGAL_FAST_REG
inline constexpr uint8_t kIllegalInvalidate = 0x0e;     // *REQ_ILLEGAL_INVALIDATE
inline constexpr uint8_t kCmpError = 0x0f;              // *REQ_CMP_ERROR
inline constexpr uint8_t kRetranLocalError = 0x10;      // *REQ_RETRAN_LOCAL_ERROR
inline constexpr uint8_t kWqeFormatError = 0x11;        // *REQ_WQE_FORMAT_ERROR
inline constexpr uint8_t kOrrqFormatError = 0x12;       // *REQ_ORRQ_FORMAT_ERROR
inline constexpr uint8_t kInvalidAvidError = 0x13;      // *REQ_INVALID_AVID_ERROR
inline constexpr uint8_t kAvDomainError = 0x14;         // *REQ_AV_DOMAIN_ERROR
inline constexpr uint8_t kCqLoadError = 0x15;           // *REQ_CQ_LOAD_ERROR
inline constexpr uint8_t kServTypeError = 0x16;         // *REQ_SERV_TYPE_ERROR
inline constexpr uint8_t kInvalidOpError = 0x17;        // *REQ_INVALID_OP_ERROR
inline constexpr uint8_t kTxPciError = 0x18;            // *REQ_TX_PCI_ERROR
inline constexpr uint8_t kRxPciError = 0x19;            // *REQ_RX_PCI_ERROR
inline constexpr uint8_t kProdWqeMsmtchError = 0x1a;    // *REQ_PROD_WQE_MSMTCH_ERROR
inline constexpr uint8_t kPsnRangeCheckError = 0x1b;    // *REQ_PSN_RANGE_CHECK_ERROR
inline constexpr uint8_t kRetxSetupError = 0x1c;        // *REQ_RETX_SETUP_ERROR
}  // namespace req_reason

namespace res_reason {                                   // CREQ_QP_ERROR_NOTIFICATION_RES_ERR_STATE_REASON_*
inline constexpr uint8_t kNoError = 0x00;                // *NO_ERROR
inline constexpr uint8_t kExceedMax = 0x01;              // *RES_EXCEED_MAX
inline constexpr uint8_t kPayloadLengthMismatch = 0x02;  // *RES_PAYLOAD_LENGTH_MISMATCH
inline constexpr uint8_t kExceedsWqe = 0x03;             // *RES_EXCEEDS_WQE
inline constexpr uint8_t kOpcodeError = 0x04;            // *RES_OPCODE_ERROR
inline constexpr uint8_t kPsnSeqErrorRetryLimit = 0x05;  // *RES_PSN_SEQ_ERROR_RETRY_LIMIT
inline constexpr uint8_t kRxInvalidRKey = 0x06;          // *RES_RX_INVALID_R_KEY
inline constexpr uint8_t kRxDomainError = 0x07;          // *RES_RX_DOMAIN_ERROR
inline constexpr uint8_t kRxNoPermission = 0x08;         // *RES_RX_NO_PERMISSION
inline constexpr uint8_t kRxRangeError = 0x09;           // *RES_RX_RANGE_ERROR
inline constexpr uint8_t kTxInvalidRKey = 0x0a;          // *RES_TX_INVALID_R_KEY
inline constexpr uint8_t kTxDomainError = 0x0b;          // *RES_TX_DOMAIN_ERROR
inline constexpr uint8_t kTxNoPermission = 0x0c;         // *RES_TX_NO_PERMISSION
inline constexpr uint8_t kTxRangeError = 0x0d;           // *RES_TX_RANGE_ERROR
inline constexpr uint8_t kIrrqOflow = 0x0e;              // *RES_IRRQ_OFLOW
inline constexpr uint8_t kUnsupportedOpcode = 0x0f;      // *RES_UNSUPPORTED_OPCODE
inline constexpr uint8_t kUnalignAtomic = 0x10;          // *RES_UNALIGN_ATOMIC
inline constexpr uint8_t kRemInvalidate = 0x11;          // *RES_REM_INVALIDATE
inline constexpr uint8_t kMemoryError = 0x12;            // *RES_MEMORY_ERROR
inline constexpr uint8_t kSrqError = 0x13;               // *RES_SRQ_ERROR
inline constexpr uint8_t kCmpError = 0x14;               // *RES_CMP_ERROR
inline constexpr uint8_t kInvalidDupRkey = 0x15;         // *RES_INVALID_DUP_RKEY
inline constexpr uint8_t kWqeFormatError = 0x16;         // *RES_WQE_FORMAT_ERROR
inline constexpr uint8_t kIrrqFormatError = 0x17;        // *RES_IRRQ_FORMAT_ERROR
inline constexpr uint8_t kCqLoadError = 0x18;            // *RES_CQ_LOAD_ERROR
inline constexpr uint8_t kSrqLoadError = 0x19;           // *RES_SRQ_LOAD_ERROR
inline constexpr uint8_t kTxPciError = 0x1b;             // *RES_TX_PCI_ERROR
inline constexpr uint8_t kRxPciError = 0x1c;             // *RES_RX_PCI_ERROR
inline constexpr uint8_t kPsnNotFound = 0x1d;            // *RES_PSN_NOT_FOUND
}  // namespace res_reason

// ---- Values of firmware commands that the data path acts on --------------------------------------------------------

// Queue pair states, MODIFY_QP's new_state.
namespace qp_state {
inline constexpr uint8_t kReset = 0;  // CMDQ_MODIFY_QP_NEW_STATE_RESET
inline constexpr uint8_t kInit = 1;   // CMDQ_MODIFY_QP_NEW_STATE_INIT
inline constexpr uint8_t kRtr = 2;    // CMDQ_MODIFY_QP_NEW_STATE_RTR
inline constexpr uint8_t kRts = 3;    // CMDQ_MODIFY_QP_NEW_STATE_RTS
inline constexpr uint8_t kSqd = 4;    // CMDQ_MODIFY_QP_NEW_STATE_SQD
inline constexpr uint8_t kSqe = 5;    // CMDQ_MODIFY_QP_NEW_STATE_SQE
inline constexpr uint8_t kErr = 6;    // CMDQ_MODIFY_QP_NEW_STATE_ERR
}  // namespace qp_state

namespace qp_type {
inline constexpr uint8_t kRc = 2;   // CMDQ_CREATE_QP_TYPE_RC
inline constexpr uint8_t kUd = 4;   // CMDQ_CREATE_QP_TYPE_UD
inline constexpr uint8_t kRaw = 6;  // CMDQ_CREATE_QP_TYPE_RAW_ETHERTYPE
inline constexpr uint8_t kGsi = 7;  // CMDQ_CREATE_QP_TYPE_GSI
}  // namespace qp_type

// MODIFY_QP's access. Remote read and write are the other way round than in a memory region's.
namespace qp_access {
inline constexpr uint8_t kLocalWrite = 0x1;    // CMDQ_MODIFY_QP_ACCESS_LOCAL_WRITE
inline constexpr uint8_t kRemoteWrite = 0x2;   // CMDQ_MODIFY_QP_ACCESS_REMOTE_WRITE
inline constexpr uint8_t kRemoteRead = 0x4;    // CMDQ_MODIFY_QP_ACCESS_REMOTE_READ
inline constexpr uint8_t kRemoteAtomic = 0x8;  // CMDQ_MODIFY_QP_ACCESS_REMOTE_ATOMIC
}  // namespace qp_access

// REGISTER_MR's access, and access_cntl of fast registration and binding.
namespace mr_access {
inline constexpr uint8_t kLocalWrite = 0x01;    // CMDQ_REGISTER_MR_ACCESS_LOCAL_WRITE
inline constexpr uint8_t kRemoteRead = 0x02;    // CMDQ_REGISTER_MR_ACCESS_REMOTE_READ
inline constexpr uint8_t kRemoteWrite = 0x04;   // CMDQ_REGISTER_MR_ACCESS_REMOTE_WRITE
inline constexpr uint8_t kRemoteAtomic = 0x08;  // CMDQ_REGISTER_MR_ACCESS_REMOTE_ATOMIC
inline constexpr uint8_t kWindowBind = 0x10;    // CMDQ_REGISTER_MR_ACCESS_MW_BIND
inline constexpr uint8_t kZeroBased = 0x20;     // CMDQ_REGISTER_MR_ACCESS_ZERO_BASED
}  // namespace mr_access

// ---- All of them are plain bytes ---------------------------------------------------------------------------------

template <class... T>
constexpr bool plain() {
  return (... && (std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>));
}
static_assert(
    plain<CmdqInit, DoorbellValue, Sge, SendHeader, RdmaHeader, AtomicHeader, LocalInvalidateHeader, FastRegisterHeader,
          BindHeader, MsnSearch, ReceiveHeader, CqBase, CqReq, CqResRc, CqResUd, CqTerminal, CqCutOff, NqBase,
          NqCqNotification, NqSrqEvent, CreqBase, CreqQpEvent, CreqQpError, CreqFuncEvent>());

}  // namespace userdma::hw::bnxt
