// Broadcom Thor2 (BCM57608): what the Ethernet part's rings look like in memory.
//
// As in bnxt.h: little-endian, members and macros named as in the kernel's headers, here of
// drivers/net/ethernet/broadcom/bnxt/bnxt.h and, for the firmware's entries, bnxt_hsi.h. Every entry has 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw/bnxt.h"

namespace userdma::hw::bnxt {

// ---- Transmit ring ---------------------------------------------------------------------------------------------

// A packet is a first buffer descriptor (long: an extended one follows), then one for each further fragment. Its count
// of descriptors, the extended one included, is in the first.
struct TxBd {  // tx_bd
  uint32_t tx_bd_len_flags_type;
  uint32_t tx_bd_opaque;
  uint64_t tx_bd_haddr;
};
static_assert(sizeof(TxBd) == 16);

namespace tx_bd {
inline constexpr uint32_t kTypeMask = 0x3f;      // TX_BD_TYPE
inline constexpr uint32_t kShort = 0x00;         // TX_BD_TYPE_SHORT_TX_BD
inline constexpr uint32_t kLong = 0x10;          // TX_BD_TYPE_LONG_TX_BD
inline constexpr uint32_t kPacketEnd = 0x40;     // TX_BD_FLAGS_PACKET_END
inline constexpr uint32_t kNoCompletion = 0x80;  // TX_BD_FLAGS_NO_CMPL
inline constexpr uint32_t kCountMask = 0x1f00;   // TX_BD_FLAGS_BD_CNT
inline constexpr unsigned kCountShift = 8;       // TX_BD_FLAGS_BD_CNT_SHIFT
inline constexpr unsigned kLengthShift = 16;     // TX_BD_LEN_SHIFT
inline constexpr unsigned kMostBds = 32;         // derived: a count of 5 bits in which 0 stands for 32
}  // namespace tx_bd

struct TxBdExt {  // tx_bd_ext
  uint32_t tx_bd_hsize_lflags;
  uint32_t tx_bd_mss;
  uint32_t tx_bd_cfa_action;
  uint32_t tx_bd_cfa_meta;
};
static_assert(sizeof(TxBdExt) == 16);

namespace tx_bd_ext {
inline constexpr uint32_t kL4Checksum = 0x01;       // TX_BD_FLAGS_TCP_UDP_CHKSUM
inline constexpr uint32_t kIpChecksum = 0x02;       // TX_BD_FLAGS_IP_CKSUM
inline constexpr uint32_t kNoCrc = 0x04;            // TX_BD_FLAGS_NO_CRC
inline constexpr uint32_t kSegment = 0x20;          // TX_BD_FLAGS_LSO
inline constexpr uint32_t kHeaderMask = 0xff'0000;  // TX_BD_HSIZE
inline constexpr unsigned kHeaderShift = 16;        // TX_BD_HSIZE_SHIFT
inline constexpr uint32_t kMssMask = 0x7fff;        // derived: of tx_bd_mss, which has no macro for it
inline constexpr uint32_t kVlanMask = 0xffff;       // TX_BD_CFA_META_VID_MASK | TX_BD_CFA_META_PRI_MASK
inline constexpr uint32_t kTpidMask = 0x3'0000;     // TX_BD_CFA_META_TPID_MASK
inline constexpr unsigned kTpidShift = 16;          // TX_BD_CFA_META_TPID_SHIFT
inline constexpr uint32_t kKeyMask = 0xf000'0000;   // (uint32_t)TX_BD_CFA_META_KEY
inline constexpr uint32_t kKeyVlan = 0x1000'0000;   // TX_BD_CFA_META_KEY_VLAN
}  // namespace tx_bd_ext

// ---- Receive and aggregation rings -------------------------------------------------------------------------------

struct RxBd {  // rx_bd
  uint32_t rx_bd_len_flags_type;
  uint32_t rx_bd_opaque;
  uint64_t rx_bd_haddr;
};
static_assert(sizeof(RxBd) == 16);

namespace rx_bd {
inline constexpr uint32_t kTypeMask = 0x3f;   // RX_BD_TYPE
inline constexpr uint32_t kPacket = 0x04;     // RX_BD_TYPE_RX_PACKET_BD
inline constexpr uint32_t kAggregate = 0x06;  // RX_BD_TYPE_RX_AGG_BD
inline constexpr unsigned kLengthShift = 16;  // RX_BD_LEN_SHIFT
}  // namespace rx_bd

// ---- Completion ring ---------------------------------------------------------------------------------------------

// The valid bit, in the third word of each entry, is 1 in the ring's first pass, then flips each time that the producer
// wraps, as in a notification queue.
namespace completion_type {
inline constexpr uint8_t kTx = 0;            // CMP_TYPE_TX_L2_CMP
inline constexpr uint8_t kRxAggregate = 18;  // CMP_TYPE_RX_AGG_CMP
inline constexpr uint8_t kRxV3 = 23;         // CMP_TYPE_RX_L2_V3_CMP
}  // namespace completion_type

struct TxCompletion {  // tx_cmp
  uint32_t tx_cmp_flags_type;
  uint32_t tx_cmp_opaque;
  uint32_t tx_cmp_errors_v;
  uint32_t sq_cons_idx;
};
static_assert(sizeof(TxCompletion) == 16);

namespace tx_completion {
inline constexpr uint32_t kError = 0x40;              // TX_CMP_FLAGS_ERROR
inline constexpr uint32_t kBadFormat = 0x4;           // TX_CMP_ERRORS_BUFFER_ERROR_BAD_FORMAT << 1
inline constexpr uint32_t kZeroLength = 0x10;         // TX_CMP_ERRORS_ZERO_LENGTH_PKT
inline constexpr uint32_t kExcessiveLength = 0x20;    // TX_CMP_ERRORS_EXCESSIVE_BD_LEN
inline constexpr uint32_t kDmaError = 0x40;           // TX_CMP_ERRORS_DMA_ERROR
inline constexpr uint32_t kConsumerMask = 0xff'ffff;  // TX_CMP_SQ_CONS_IDX_MASK
}  // namespace tx_completion

// A received packet: these two entries, then one RxAggregate for each aggregation buffer.
struct RxCompletion {  // rx_cmp
  uint32_t rx_cmp_len_flags_type;
  uint32_t rx_cmp_opaque;
  uint32_t rx_cmp_misc_v1;
  uint32_t rx_cmp_rss_hash;
};
static_assert(sizeof(RxCompletion) == 16);

struct RxCompletionExt {  // rx_cmp_ext
  uint32_t rx_cmp_flags2;
  uint32_t rx_cmp_meta_data;
  uint32_t rx_cmp_cfa_code_errors_v2;
  uint32_t rx_cmp_timestamp;
};
static_assert(sizeof(RxCompletionExt) == 16);

namespace rx_completion {
inline constexpr uint32_t kError = 0x40;             // RX_CMP_FLAGS_ERROR
inline constexpr uint32_t kJumbo = 0x080;            // RX_TPA_START_CMP_FLAGS_PLACEMENT_JUMBO
inline constexpr uint32_t kSplit = 0x100;            // RX_TPA_START_CMP_FLAGS_PLACEMENT_HDS
inline constexpr uint32_t kHashValid = 0x400;        // RX_CMP_FLAGS_RSS_VALID
inline constexpr uint32_t kKindIp = 0x1000;          // RX_CMP_FLAGS_ITYPE_IP
inline constexpr uint32_t kKindTcp = 0x2000;         // RX_CMP_FLAGS_ITYPE_TCP
inline constexpr uint32_t kKindUdp = 0x3000;         // RX_CMP_FLAGS_ITYPE_UDP
inline constexpr uint32_t kKindMask = 0xf000;        // RX_CMP_FLAGS_ITYPES_MASK
inline constexpr unsigned kLengthShift = 16;         // RX_CMP_LEN_SHIFT
inline constexpr unsigned kBuffersShift = 1;         // RX_CMP_AGG_BUFS_SHIFT
inline constexpr unsigned kMostBuffers = 31;         // RX_CMP_AGG_BUFS >> RX_CMP_AGG_BUFS_SHIFT
inline constexpr unsigned kHashKindShift = 12;       // RX_CMP_V3_RSS_EXT_OP_LEGACY_SHIFT
inline constexpr uint32_t kHashOf4 = 0;              // EXT_OP_INNER_4
inline constexpr uint32_t kHashOf2 = 1;              // derived: what is none of EXT_OP_*_4 and EXT_OP_*FL_3
inline constexpr uint32_t kVlanValid = 0x8000'0000;  // (uint32_t)RX_CMP_METADATA1_VALID
inline constexpr uint32_t kVlan8021q = 0x1000'0000;  // RX_CMP_METADATA1_TPID_8021Q
inline constexpr uint32_t kVlan8021ad = 0;           // RX_CMP_METADATA1_TPID_8021AD
inline constexpr uint32_t kIpChecked = 0x1;          // RX_CMP_FLAGS2_IP_CS_CALC
inline constexpr uint32_t kL4Checked = 0x2;          // RX_CMP_FLAGS2_L4_CS_CALC
inline constexpr uint32_t kDidNotFit = 0x02;         // RX_CMPL_ERRORS_BUFFER_ERROR_DID_NOT_FIT
inline constexpr uint32_t kBadFormat = 0x06;         // RX_CMPL_ERRORS_BUFFER_ERROR_BAD_FORMAT
inline constexpr uint32_t kIpChecksumError = 0x10;   // RX_CMPL_ERRORS_IP_CS_ERROR
inline constexpr uint32_t kL4ChecksumError = 0x20;   // RX_CMPL_ERRORS_L4_CS_ERROR
inline constexpr unsigned kVlanTagShift = 16;        // RX_CMPL_METADATA0_SFT
}  // namespace rx_completion

struct RxAggregate {  // rx_agg_cmp
  uint32_t rx_agg_cmp_len_flags_type;
  uint32_t rx_agg_cmp_opaque;
  uint32_t rx_agg_cmp_v;
  uint32_t rx_agg_cmp_unused;
};
static_assert(sizeof(RxAggregate) == 16);

inline constexpr size_t kEthernetEntry = 16;       // sizeof(struct tx_cmp)
inline constexpr uint32_t kCompletionValid = 0x1;  // TX_CMP_V

// ---- Statistics ---------------------------------------------------------------------------------------------------

// What the hardware writes, now and then, to the memory of a statistics context.
struct ContextStatistics {  // ctx_hw_stats
  uint64_t rx_ucast_pkts;
  uint64_t rx_mcast_pkts;
  uint64_t rx_bcast_pkts;
  uint64_t rx_discard_pkts;
  uint64_t rx_error_pkts;
  uint64_t rx_ucast_bytes;
  uint64_t rx_mcast_bytes;
  uint64_t rx_bcast_bytes;
  uint64_t tx_ucast_pkts;
  uint64_t tx_mcast_pkts;
  uint64_t tx_bcast_pkts;
  uint64_t tx_error_pkts;
  uint64_t tx_discard_pkts;
  uint64_t tx_ucast_bytes;
  uint64_t tx_mcast_bytes;
  uint64_t tx_bcast_bytes;
  uint64_t tpa_pkts;
  uint64_t tpa_bytes;
  uint64_t tpa_events;
  uint64_t tpa_aborts;
};
static_assert(sizeof(ContextStatistics) == 160);

static_assert(
    plain<TxBd, TxBdExt, RxBd, TxCompletion, RxCompletion, RxCompletionExt, RxAggregate, ContextStatistics>());

}  // namespace userdma::hw::bnxt
