// NVIDIA ConnectX (mlx5): what its queues look like in memory.
//
// Everything is big-endian. Struct members keep the names of rdma-core's public header infiniband/mlx5dv.h (Debian's
// libibverbs-dev); a struct's comment names the header's struct, a constant's comment the header's enumerator, and the
// layout test compiles both and compares. Where a namespace names a prefix with a star, the star stands for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace userdma::hw::mlx5 {

// ---- Completions -----------------------------------------------------------------------------------------------

struct Cqe {  // mlx5_cqe64
  uint8_t rsvd0[2];
  uint16_t wqe_id;
  uint8_t rsvd4[13];
  uint8_t ml_path;
  uint8_t rsvd20[4];
  uint16_t slid;
  uint32_t flags_rqpn;
  uint8_t hds_ip_ext;
  uint8_t l4_hdr_type_etc;
  uint16_t vlan_info;
  uint32_t srqn_uidx;
  uint32_t imm_inval_pkey;
  uint8_t app;
  uint8_t app_op;
  uint16_t app_info;
  uint32_t byte_cnt;
  uint64_t timestamp;
  uint32_t sop_drop_qpn;
  uint16_t wqe_counter;
  uint8_t signature;
  uint8_t op_own;
};
static_assert(sizeof(Cqe) == 64);

// What an entry that failed has in the same place.
struct ErrorCqe {  // mlx5_err_cqe
  uint8_t rsvd0[32];
  uint32_t srqn;
  uint8_t rsvd1[18];
  uint8_t vendor_err_synd;
  uint8_t syndrome;
  uint32_t s_wqe_opcode_qpn;
  uint16_t wqe_counter;
  uint8_t signature;
  uint8_t op_own;
};
static_assert(sizeof(ErrorCqe) == sizeof(Cqe));
static_assert(offsetof(ErrorCqe, s_wqe_opcode_qpn) == offsetof(Cqe, sop_drop_qpn));

inline constexpr uint32_t kQpnMask = 0xff'ffff;  // derived: of sop_drop_qpn and s_wqe_opcode_qpn, the high byte is more
inline constexpr uint8_t kOwner = 0x1;           // MLX5_CQE_OWNER_MASK
inline constexpr unsigned kOpcodeShift = 4;      // derived: op_own's high bits (mlx5dv_get_cqe_opcode)
inline constexpr uint8_t kFormatMask = 0xc;      // derived: of op_own (mlx5dv_get_cqe_format); 0: nothing is in it
inline constexpr uint8_t kSolicitedEntry = 0x2;  // derived: of op_own (mlx5dv_get_cqe_se)

// What op_own says of a completion.
namespace cqe_opcode {                                 // MLX5_CQE_*
inline constexpr uint8_t kRequest = 0;                 // *REQ
inline constexpr uint8_t kReceivedWriteImmediate = 1;  // *RESP_WR_IMM
inline constexpr uint8_t kReceived = 2;                // *RESP_SEND
inline constexpr uint8_t kReceivedImmediate = 3;       // *RESP_SEND_IMM
inline constexpr uint8_t kReceivedInvalidate = 4;      // *RESP_SEND_INV
inline constexpr uint8_t kResize = 5;                  // *RESIZE_CQ
inline constexpr uint8_t kRequestError = 13;           // *REQ_ERR
inline constexpr uint8_t kReceiveError = 14;           // *RESP_ERR
inline constexpr uint8_t kInvalid = 15;                // *INVALID
}  // namespace cqe_opcode

namespace syndrome {                                    // MLX5_CQE_SYNDROME_*
inline constexpr uint8_t kLocalLength = 0x01;           // *LOCAL_LENGTH_ERR
inline constexpr uint8_t kLocalQpOperation = 0x02;      // *LOCAL_QP_OP_ERR
inline constexpr uint8_t kLocalProtection = 0x04;       // *LOCAL_PROT_ERR
inline constexpr uint8_t kFlushed = 0x05;               // *WR_FLUSH_ERR
inline constexpr uint8_t kWindowBind = 0x06;            // *MW_BIND_ERR
inline constexpr uint8_t kBadResponse = 0x10;           // *BAD_RESP_ERR
inline constexpr uint8_t kLocalAccess = 0x11;           // *LOCAL_ACCESS_ERR
inline constexpr uint8_t kRemoteInvalidRequest = 0x12;  // *REMOTE_INVAL_REQ_ERR
inline constexpr uint8_t kRemoteAccess = 0x13;          // *REMOTE_ACCESS_ERR
inline constexpr uint8_t kRemoteOperation = 0x14;       // *REMOTE_OP_ERR
inline constexpr uint8_t kRetryExceeded = 0x15;         // *TRANSPORT_RETRY_EXC_ERR
inline constexpr uint8_t kRnrRetryExceeded = 0x16;      // *RNR_RETRY_EXC_ERR
inline constexpr uint8_t kRemoteAborted = 0x22;         // *REMOTE_ABORTED_ERR
}  // namespace syndrome

// ---- Doorbell records ------------------------------------------------------------------------------------------
//
// Two big-endian counters of a queue pair in the driver's memory: of entries posted to its rings, modulo 2^16. A shared
// receive queue has the first only; a completion queue's are its consumer counter and the arm word.

namespace record {                                // MLX5_*
inline constexpr unsigned kReceive = 0;           // *RCV_DBR
inline constexpr unsigned kSend = 1;              // *SND_DBR
inline constexpr uint32_t kCounterMask = 0xffff;  // derived: of both (mlx5_ifc.h, wq.hw_counter has 32 bits, WQEs 16)
}  // namespace record

// ---- Send queue entries ----------------------------------------------------------------------------------------
//
// An entry takes basic blocks of 64 bytes: a control segment, what its opcode needs, then data segments or inline data,
// in units of 16 bytes.

inline constexpr unsigned kSendBlock = 64;       // MLX5_SEND_WQE_BB
inline constexpr unsigned kSendBlockShift = 6;   // MLX5_SEND_WQE_SHIFT
inline constexpr unsigned kSegment = 16;         // derived: the unit of an entry's size (mlx5dv.h, mlx5dv_set_ctrl_seg)
inline constexpr unsigned kMostSegments = 63;    // derived: six bits of qpn_ds
inline constexpr uint32_t kSegmentsMask = 0x3f;  // derived: of qpn_ds
inline constexpr unsigned kQpnShift = 8;         // derived: of qpn_ds
inline constexpr unsigned kIndexShift = 8;       // derived: of opmod_idx_opcode
inline constexpr unsigned kModifierShift = 24;   // derived: of opmod_idx_opcode
inline constexpr uint32_t kInline = 0x8000'0000;           // MLX5_INLINE_SEG
inline constexpr uint32_t kInvalidKey = 0x100;             // MLX5_INVALID_LKEY
inline constexpr uint32_t kExtendedAddress = 0x8000'0000;  // MLX5_EXTENDED_UD_AV
inline constexpr uint32_t kGrh = 1u << 30;                 // derived: of grh_gid_fl (rdma-core, providers/mlx5/verbs.c)

namespace opcode {                                   // MLX5_OPCODE_*
inline constexpr uint8_t kNop = 0x00;                // *NOP
inline constexpr uint8_t kSendInvalidate = 0x01;     // *SEND_INVAL
inline constexpr uint8_t kWrite = 0x08;              // *RDMA_WRITE
inline constexpr uint8_t kWriteImmediate = 0x09;     // *RDMA_WRITE_IMM
inline constexpr uint8_t kSend = 0x0a;               // *SEND
inline constexpr uint8_t kSendImmediate = 0x0b;      // *SEND_IMM
inline constexpr uint8_t kTso = 0x0e;                // *TSO
inline constexpr uint8_t kRead = 0x10;               // *RDMA_READ
inline constexpr uint8_t kCompareSwap = 0x11;        // *ATOMIC_CS
inline constexpr uint8_t kFetchAdd = 0x12;           // *ATOMIC_FA
inline constexpr uint8_t kMaskedCompareSwap = 0x14;  // *ATOMIC_MASKED_CS
inline constexpr uint8_t kMaskedFetchAdd = 0x15;     // *ATOMIC_MASKED_FA
inline constexpr uint8_t kLocalInvalidate = 0x1b;    // *LOCAL_INVAL
inline constexpr uint8_t kUmr = 0x25;                // *UMR
}  // namespace opcode

namespace control {                                 // MLX5_WQE_CTRL_*
inline constexpr uint8_t kCompletion = 2 << 2;      // *CQ_UPDATE
inline constexpr uint8_t kSolicited = 1 << 1;       // *SOLICITED
inline constexpr uint8_t kFence = 4 << 5;           // *FENCE
inline constexpr uint8_t kSmallFence = 1 << 5;      // *INITIATOR_SMALL_FENCE
inline constexpr uint8_t kFenceMask = 7 << 5;       // derived: the modes of fences
inline constexpr uint8_t kCompletionMask = 3 << 2;  // derived: the modes of completions; 0: on an error only
}  // namespace control

struct ControlSegment {  // mlx5_wqe_ctrl_seg
  uint32_t opmod_idx_opcode;
  uint32_t qpn_ds;
  uint8_t signature;
  uint8_t dci_stream_channel_id[2];
  uint8_t fm_ce_se;
  uint32_t imm;
};
static_assert(sizeof(ControlSegment) == kSegment);

struct AddressVector {  // mlx5_wqe_av
  uint64_t key;
  uint32_t dqp_dct;
  uint8_t stat_rate_sl;
  uint8_t fl_mlid;
  uint16_t rlid;
  uint8_t reserved0[4];
  uint8_t rmac[6];
  uint8_t tclass;
  uint8_t hop_limit;
  uint32_t grh_gid_fl;
  uint8_t rgid[16];
};
static_assert(sizeof(AddressVector) == 48);

struct RemoteSegment {  // mlx5_wqe_raddr_seg
  uint64_t raddr;
  uint32_t rkey;
  uint32_t reserved;
};

struct AtomicSegment {  // mlx5_wqe_atomic_seg
  uint64_t swap_add;
  uint64_t compare;
};

struct InlineSegment {  // mlx5_wqe_inl_data_seg
  uint32_t byte_count;
};

struct DataSegment {  // mlx5_wqe_data_seg
  uint32_t byte_count;
  uint32_t lkey;
  uint64_t addr;
};

// A shared receive queue's entry begins with it: its free entries are a list.
struct NextSegment {  // mlx5_wqe_srq_next_seg
  uint8_t rsvd0[2];
  uint16_t next_wqe_index;
  uint8_t signature;
  uint8_t rsvd1[11];
};

// ---- Entries that change memory keys ---------------------------------------------------------------------------

namespace umr_flag {                                   // MLX5_WQE_UMR_CTRL_FLAG_*
inline constexpr uint8_t kInlineTranslation = 1 << 7;  // *INLINE
inline constexpr uint8_t kCheckFree = 1 << 5;          // *CHECK_FREE
inline constexpr uint8_t kTranslationOffset = 1 << 4;  // *TRNSLATION_OFFSET
inline constexpr uint8_t kCheckQpn = 1 << 3;           // *CHECK_QPN
}  // namespace umr_flag

namespace umr_mask {                               // MLX5_WQE_UMR_CTRL_MKEY_MASK_*
inline constexpr uint64_t kLength = 1 << 0;        // *LEN
inline constexpr uint64_t kStart = 1 << 6;         // *START_ADDR
inline constexpr uint64_t kKey = 1 << 13;          // *MKEY
inline constexpr uint64_t kQpn = 1 << 14;          // *QPN
inline constexpr uint64_t kLocalWrite = 1 << 18;   // *ACCESS_LOCAL_WRITE
inline constexpr uint64_t kRemoteRead = 1 << 19;   // *ACCESS_REMOTE_READ
inline constexpr uint64_t kRemoteWrite = 1 << 20;  // *ACCESS_REMOTE_WRITE
inline constexpr uint64_t kAtomic = 1 << 21;       // *ACCESS_ATOMIC
inline constexpr uint64_t kFree = 1 << 29;         // *FREE
}  // namespace umr_mask

namespace key_access {                           // MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*
inline constexpr uint8_t kAtomic = 1 << 6;       // *ATOMIC
inline constexpr uint8_t kRemoteWrite = 1 << 5;  // *REMOTE_WRITE
inline constexpr uint8_t kRemoteRead = 1 << 4;   // *REMOTE_READ
inline constexpr uint8_t kLocalWrite = 1 << 3;   // *LOCAL_WRITE
inline constexpr uint8_t kLocalRead = 1 << 2;    // *LOCAL_READ
}  // namespace key_access

inline constexpr uint8_t kKeyFree = 1 << 6;  // MLX5_WQE_MKEY_CONTEXT_FREE

struct UmrSegment {  // mlx5_wqe_umr_ctrl_seg
  uint8_t flags;
  uint8_t rsvd0[3];
  uint16_t klm_octowords;
  uint16_t translation_offset;
  uint64_t mkey_mask;
  uint8_t rsvd1[32];
};
static_assert(sizeof(UmrSegment) == 48);

struct KlmSegment {  // mlx5_wqe_umr_klm_seg
  uint32_t byte_count;
  uint32_t mkey;
  uint64_t address;
};

struct KeySegment {  // mlx5_wqe_mkey_context_seg
  uint8_t free;
  uint8_t reserved1;
  uint8_t access_flags;
  uint8_t sf;
  uint32_t qpn_mkey;
  uint32_t reserved2;
  uint32_t flags_pd;
  uint64_t start_addr;
  uint64_t len;
  uint32_t bsf_octword_size;
  uint32_t reserved3[4];
  uint32_t translations_octword_size;
  uint8_t reserved4[3];
  uint8_t log_page_size;
  uint32_t reserved;
};
static_assert(sizeof(KeySegment) == 64);

}  // namespace userdma::hw::mlx5
