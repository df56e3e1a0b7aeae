// RoCEv2 as bytes: an Ethernet frame of IPv4 or IPv6, UDP and InfiniBand headers, payload, padding and ICRC, to and
// from a Header and its payload (IBTA volume 1, chapter 9; annex A17).
#pragma once

#include <cstddef>
#include <cstdint>

#include "soft/wire/wire.h"

namespace userdma::soft::wire {

// All headers, padding and ICRC of any packet take no more than this.
inline constexpr size_t max_overhead = 14 + 40 + 8 + 12 + 28 + 4 + 3 + 4;

// Why a frame is not a RoCEv2 packet that can be taken.
enum class Malformed : uint8_t {
  No,                // it is well-formed
  Truncated,         // shorter than its headers say
  NotIp,             // another EtherType: not for this NIC's RoCE
  NotUdp,            // another IP protocol
  NotRoce,           // another UDP port
  IpVersion,         // the version is not what the EtherType says
  IpHeader,          // IPv4 options or a header length that cannot be
  IpFragment,        // RoCE packets are never fragmented (A17.4.5.1)
  IpLength,          // the IP length is less than its headers, or disagrees with UDP's
  IpChecksum,        // of the IPv4 header
  UdpLength,         // less than what the InfiniBand headers take
  TransportVersion,  // of the BTH: not 0
  Opcode,            // a transport that is not RC, UC or UD
  Padding,           // more pad bytes than payload, or payload where the opcode has none
  Icrc,              // the bytes were changed on the way
};

const char* name(Malformed);

// Bytes of the frame that `header` becomes.
size_t encoded_bytes(const Header& header);

// Writes the frame to `out`; how many bytes, 0 if `room` is too small or the packet too large for IP. IPv4 if both
// GIDs are IPv4-mapped.
size_t encode(const Header& header, const Span* payload, size_t spans, uint8_t* out, size_t room);

// Reads a frame. `payload` points into it. Every packet stands for one PSN. What follows the IP packet (the padding
// of a short Ethernet frame) is no part of it. `out` is undefined unless the result is No.
Malformed decode(const uint8_t* frame, size_t bytes, Header& out, Span& payload);

}  // namespace userdma::soft::wire
