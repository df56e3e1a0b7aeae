// NVIDIA ConnectX (mlx5): what Ethernet adds to entries and completions, and what flow tables match.
//
// Everything is big-endian. Members keep the names of Linux's include/linux/mlx5/qp.h and device.h, as mlx5_device.h
// says; what is "derived" stands in the driver's code or in mlx5_ifc.h, whose structs have a byte for every bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace userdma::hw::mlx5 {

// ---- Send queue entries ----------------------------------------------------------------------------------------

// Behind the control segment. Its last 4 bytes are a count of bytes of headers, which begin in the last 2 of them and
// go on behind it; or a VLAN tag that is to be inserted, its type and control information.
struct EthernetSegment {  // mlx5_wqe_eth_seg
  uint8_t swp_outer_l4_offset;
  uint8_t swp_outer_l3_offset;
  uint8_t swp_inner_l4_offset;
  uint8_t swp_inner_l3_offset;
  uint8_t cs_flags;
  uint8_t swp_flags;
  uint16_t mss;
  uint32_t flow_table_metadata;
  uint32_t trailer;
};
static_assert(sizeof(EthernetSegment) == 16);

namespace eth_flag {                                 // MLX5_ETH_WQE_*
inline constexpr uint8_t kInnerL3Checksum = 1 << 4;  // *L3_INNER_CSUM
inline constexpr uint8_t kInnerL4Checksum = 1 << 5;  // *L4_INNER_CSUM
inline constexpr uint8_t kL3Checksum = 1 << 6;       // *L3_CSUM
inline constexpr uint8_t kL4Checksum = 1 << 7;       // *L4_CSUM
inline constexpr uint16_t kInsertVlan = 1 << 15;     // *INSERT_VLAN
inline constexpr uint16_t kServiceVlan = 1 << 0;     // *SVLAN
}  // namespace eth_flag

inline constexpr uint16_t kInlineHeadersMask = 0x3ff;  // derived: of trailer (Adapters PRM, Ethernet segment)

// ---- Completions of received packets ---------------------------------------------------------------------------

namespace packet_ok {                   // CQE_*
inline constexpr uint8_t kL2 = 1 << 0;  // *L2_OK
inline constexpr uint8_t kL3 = 1 << 1;  // *L3_OK
inline constexpr uint8_t kL4 = 1 << 2;  // *L4_OK
}  // namespace packet_ok

// l4_hdr_type_etc.
inline constexpr uint8_t kVlanStripped = 1 << 0;  // derived: device.h, cqe_has_vlan
inline constexpr unsigned kL3KindShift = 2;       // derived: rdma-core, get_cqe_l3_hdr_type
inline constexpr unsigned kL4KindShift = 4;       // derived: device.h, get_cqe_l4_hdr_type
inline constexpr uint8_t kL3Ipv6 = 0x1;           // derived: mlx5dv.h, MLX5_CQE_L3_HDR_TYPE_IPV6
inline constexpr uint8_t kL3Ipv4 = 0x2;           // derived: mlx5dv.h, MLX5_CQE_L3_HDR_TYPE_IPV4

namespace l4_kind {                          // CQE_L4_HDR_TYPE_*
inline constexpr uint8_t kTcp = 0x1;         // *TCP_NO_ACK
inline constexpr uint8_t kUdp = 0x2;         // *UDP
inline constexpr uint8_t kTcpAck = 0x3;      // *TCP_ACK_NO_DATA
inline constexpr uint8_t kTcpAckData = 0x4;  // *TCP_ACK_AND_DATA
}  // namespace l4_kind

// Where the kernel's mlx5_cqe64 has what a packet's completion adds (in rsvd4 and rsvd20 of Cqe).
inline constexpr size_t kHashAt = 12;         // offsetof(mlx5_cqe64, rss_hash_result)
inline constexpr size_t kHashKindAt = 16;     // offsetof(mlx5_cqe64, rss_hash_type)
inline constexpr size_t kChecksumAt = 20;     // offsetof(mlx5_cqe64, check_sum)
inline constexpr uint8_t kHashIpv4 = 1 << 2;  // derived: of CQE_RSS_HTYPE_IP (device.h)
inline constexpr uint8_t kHashIpv6 = 2 << 2;  // derived: the same
inline constexpr uint8_t kHashTcp = 1 << 6;   // derived: of CQE_RSS_HTYPE_L4 (device.h)
inline constexpr uint8_t kHashUdp = 2 << 6;   // derived: the same

namespace hash_function {                   // MLX5_RX_HASH_FN_*
inline constexpr unsigned kNone = 0x0;      // *NONE
inline constexpr unsigned kXor = 0x1;       // *INVERTED_XOR8
inline constexpr unsigned kToeplitz = 0x2;  // *TOEPLITZ
}  // namespace hash_function

namespace hash_field {                                // MLX5_HASH_FIELD_SEL_*
inline constexpr uint32_t kSource = 1 << 0;           // *SRC_IP
inline constexpr uint32_t kDestination = 1 << 1;      // *DST_IP
inline constexpr uint32_t kSourcePort = 1 << 2;       // *L4_SPORT
inline constexpr uint32_t kDestinationPort = 1 << 3;  // *L4_DPORT
}  // namespace hash_field

// States of send and receive queues.
namespace queue_state {                  // MLX5_SQC_STATE_*
inline constexpr unsigned kReset = 0x0;  // *RST
inline constexpr unsigned kReady = 0x1;  // *RDY
inline constexpr unsigned kError = 0x3;  // *ERR
}  // namespace queue_state

namespace queue_kind {                  // MLX5_EVENT_QUEUE_TYPE_*
inline constexpr uint8_t kReceive = 1;  // *RQ
inline constexpr uint8_t kSend = 2;     // *SQ
}  // namespace queue_kind

// ---- Flow tables -----------------------------------------------------------------------------------------------

namespace flow_action {                    // MLX5_FLOW_CONTEXT_ACTION_*
inline constexpr uint32_t kDrop = 0x2;     // *DROP
inline constexpr uint32_t kForward = 0x4;  // *FWD_DEST
inline constexpr uint32_t kCount = 0x8;    // *COUNT
}  // namespace flow_action

// Members stand for the fields from the one on that they are named after: MACs whole, priority with CFI and VID, DSCP
// with ECN, tags with fragment, version and TCP flags.
struct HeaderMatch {  // mlx5_ifc_fte_match_set_lyr_2_4_bits
  uint8_t smac_47_16[6];
  uint16_t ethertype;
  uint8_t dmac_47_16[6];
  uint16_t first_prio;
  uint8_t ip_protocol;
  uint8_t ip_dscp;
  uint16_t cvlan_tag;
  uint16_t tcp_sport;
  uint16_t tcp_dport;
  uint16_t l4_type;
  uint8_t ipv4_ihl;
  uint8_t ttl_hoplimit;
  uint16_t udp_sport;
  uint16_t udp_dport;
  uint8_t src_ipv4_src_ipv6[16];
  uint8_t dst_ipv4_dst_ipv6[16];
};
static_assert(sizeof(HeaderMatch) == 64);

inline constexpr uint16_t kMatchTag = 1 << 15;         // derived: of cvlan_tag, cvlan_tag
inline constexpr uint16_t kMatchServiceTag = 1 << 14;  // derived: svlan_tag
inline constexpr uint16_t kMatchFragment = 1 << 13;    // derived: frag
inline constexpr unsigned kMatchVersionShift = 9;      // derived: ip_version; below it tcp_flags

inline constexpr size_t kMatchBytes = 512;  // derived: of fte_match_param

}  // namespace userdma::hw::mlx5
