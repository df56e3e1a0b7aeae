// What a NIC's offloads need to know of an Ethernet frame: where its headers are, and the Internet checksums.
//
// Standards: IEEE 802.1Q tags, RFC 791, 8200 (IP), 9293 (TCP), 768 (UDP), 1071 (the checksum), 7348 (VXLAN), 8926
// (Geneve), 2784 and 2890 (GRE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace userdma::soft {

namespace ether {
inline constexpr size_t kHeader = 14;
inline constexpr size_t kTag = 4;
inline constexpr size_t kFcs = 4;
inline constexpr size_t kShortest = 60;  // without FCS
inline constexpr uint16_t kIpv4 = 0x0800;
inline constexpr uint16_t kIpv6 = 0x86dd;
inline constexpr uint16_t kVlan = 0x8100;         // 802.1Q
inline constexpr uint16_t kServiceVlan = 0x88a8;  // 802.1ad
inline constexpr uint16_t kBridged = 0x6558;      // an Ethernet frame within GRE or Geneve
}  // namespace ether

namespace ip {
inline constexpr uint8_t kIpIp = 4;
inline constexpr uint8_t kTcp = 6;
inline constexpr uint8_t kUdp = 17;
inline constexpr uint8_t kIpv6 = 41;
inline constexpr uint8_t kGre = 47;
}  // namespace ip

// UDP ports of tunnels, as the driver tells them.
struct TunnelPorts {
  std::set<uint16_t> vxlan;
  std::set<uint16_t> geneve;
};

// An IP packet within a frame: offsets from the frame's beginning.
struct Layer {
  unsigned version = 0;  // 4 or 6; 0: there is no IP packet, or it is not well-formed
  size_t l3 = 0;
  size_t end = 0;         // of the packet: Ethernet may have padded it
  uint8_t protocol = 0;   // behind extension headers
  bool fragment = false;  // of a packet: there is no transport header to look at, or not all of its payload
  size_t l4 = 0;
  size_t payload = 0;  // behind a TCP or UDP header; 0: neither

  bool tcp() const { return payload && protocol == ip::kTcp; }
  bool udp() const { return payload && protocol == ip::kUdp; }
};

// The IP packet of a frame, and the one in that, if it is a tunnel's.
struct Layers {
  Layer outer;
  Layer inner;  // version 0: no tunnel

  const Layer& innermost() const { return inner.version ? inner : outer; }
};

// Only the headers need be there: `bytes` may end behind them, where `whole` is the frame's length.
Layers parse(const uint8_t* frame, size_t bytes, size_t whole, const TunnelPorts& tunnels = {});

inline uint16_t load16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }
inline void store16(uint8_t* at, uint16_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}
inline uint32_t load32(const uint8_t* at) { return static_cast<uint32_t>(load16(at)) << 16 | load16(at + 2); }
inline void store32(uint8_t* at, uint32_t value) {
  store16(at, static_cast<uint16_t>(value >> 16));
  store16(at + 2, static_cast<uint16_t>(value));
}

// Sums that come out right: the checksum fields hold what the bytes they cover add up to.
bool ip_checksum_good(const uint8_t* frame, const Layer& layer);  // of IPv6, which has none: true
bool l4_checksum_good(const uint8_t* frame, const Layer& layer);  // TCP or UDP

// Writes the checksums.
void set_ip_checksum(uint8_t* frame, const Layer& layer);
void set_l4_checksum(uint8_t* frame, const Layer& layer);

// The ones' complement sum of bytes, unfolded into 16 bits as they are in memory, and not complemented.
uint16_t checksum(const uint8_t* at, size_t bytes);

// Cuts a TCP or UDP packet into segments of `mss` bytes of payload, behind those there are already. Its headers, the
// first `header` bytes, are repeated; lengths, identifications, sequence numbers, flags and checksums are each
// segment's own. False: it cannot be.
bool segment(const std::vector<uint8_t>& packet, size_t header, size_t mss, const TunnelPorts& tunnels,
             std::deque<std::vector<uint8_t>>& out);

// The receive-side scaling hash of Microsoft's specification (Toeplitz), over addresses and perhaps ports; and over at
// most 36 bytes of whatever is given.
inline constexpr size_t toeplitz_key = 40;
uint32_t toeplitz(const uint8_t key[toeplitz_key], const uint8_t* frame, const Layer& layer, bool ports);
uint32_t toeplitz(const uint8_t key[toeplitz_key], const uint8_t* input, size_t bytes);

}  // namespace userdma::soft
