#include "soft/frame.h"

#include <algorithm>
#include <cstring>

namespace userdma::soft {
namespace {

constexpr size_t udp_header = 8;
constexpr size_t tcp_header = 20;
constexpr size_t vxlan_header = 8;
constexpr size_t geneve_header = 8;
constexpr size_t gre_header = 4;

// The sum of 16-bit words in the machine's own order: RFC 1071, 2(B), lets it be swapped at the end, or not at all
// where words are stored as they were loaded.
uint64_t add(uint64_t sum, const uint8_t* at, size_t bytes) {
  while (bytes >= 4) {
    uint32_t word;
    std::memcpy(&word, at, 4);
    sum += word;
    at += 4;
    bytes -= 4;
  }
  if (bytes >= 2) {
    uint16_t word;
    std::memcpy(&word, at, 2);
    sum += word;
    at += 2;
    bytes -= 2;
  }
  if (bytes) {
    uint16_t word = 0;
    std::memcpy(&word, at, 1);
    sum += word;
  }
  return sum;
}

uint16_t fold(uint64_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

size_t checksum_field(const Layer& layer) { return layer.l4 + (layer.protocol == ip::kTcp ? 16 : 6); }

uint64_t pseudo_header(const uint8_t* frame, const Layer& layer) {
  const uint8_t* ip = frame + layer.l3;
  uint64_t sum = layer.version == 4 ? add(0, ip + 12, 8) : add(0, ip + 8, 32);
  uint8_t rest[8] = {};
  store32(rest, static_cast<uint32_t>(layer.end - layer.l4));
  rest[7] = layer.protocol;
  return add(sum, rest, sizeof rest);
}

// What follows an Ethernet header's type field, behind any tags.
uint16_t ether_type(const uint8_t* frame, size_t bytes, size_t& at) {
  at += 12;
  while (at + 2 <= bytes) {
    const uint16_t type = load16(frame + at);
    at += 2;
    if (type != ether::kVlan && type != ether::kServiceVlan) return type;
    at += 2;
  }
  return 0;
}

void transport(const uint8_t* frame, size_t bytes, Layer& layer) {
  if (layer.fragment) return;
  if (layer.protocol == ip::kTcp && layer.l4 + tcp_header <= bytes) {
    const size_t size = size_t{4} * (frame[layer.l4 + 12] >> 4);
    if (size >= tcp_header && layer.l4 + size <= layer.end) layer.payload = layer.l4 + size;
  } else if (layer.protocol == ip::kUdp && layer.l4 + udp_header <= bytes && layer.l4 + udp_header <= layer.end) {
    layer.payload = layer.l4 + udp_header;
  }
}

Layer parse_ip(const uint8_t* frame, size_t bytes, size_t whole, size_t at, uint16_t type) {
  Layer layer;
  if (type == ether::kIpv4 && at + 20 <= bytes) {
    const uint8_t* ip = frame + at;
    const size_t header = size_t{4} * (ip[0] & 0xf);
    const size_t length = load16(ip + 2);
    if (ip[0] >> 4 != 4 || header < 20 || at + header > bytes) return layer;
    // Before segmentation the length may be anything: what is there counts.
    layer.end = length >= header && at + length <= whole ? at + length : whole;
    layer.version = 4;
    layer.l3 = at;
    layer.protocol = ip[9];
    layer.fragment = (load16(ip + 6) & 0x3fff) != 0;
    layer.l4 = at + header;
  } else if (type == ether::kIpv6 && at + 40 <= bytes) {
    const uint8_t* ip = frame + at;
    const size_t length = 40 + load16(ip + 4);
    if (ip[0] >> 4 != 6) return layer;
    layer.end = length > 40 && at + length <= whole ? at + length : whole;
    layer.l3 = at;
    layer.protocol = ip[6];
    layer.l4 = at + 40;
    // Hop-by-hop options, routing header, fragment header, destination options.
    while (layer.protocol == 0 || layer.protocol == 43 || layer.protocol == 44 || layer.protocol == 60) {
      if (layer.l4 + 8 > bytes) return {};
      const uint8_t* extension = frame + layer.l4;
      const bool fragment = layer.protocol == 44;
      layer.fragment = layer.fragment || fragment;
      layer.protocol = extension[0];
      layer.l4 += fragment ? 8 : 8 + size_t{8} * extension[1];
    }
    layer.version = 6;
  }
  if (layer.version) transport(frame, bytes, layer);
  return layer;
}

}  // namespace

Layers parse(const uint8_t* frame, size_t bytes, size_t whole, const TunnelPorts& tunnels) {
  Layers layers;
  size_t at = 0;
  const uint16_t type = ether_type(frame, bytes, at);
  layers.outer = parse_ip(frame, bytes, whole, at, type);
  const Layer& outer = layers.outer;
  if (!outer.version || outer.fragment) return layers;

  uint16_t inner = 0;
  at = outer.l4;
  if (outer.protocol == ip::kIpIp) {
    inner = ether::kIpv4;
  } else if (outer.protocol == ip::kIpv6) {
    inner = ether::kIpv6;
  } else if (outer.protocol == ip::kGre && at + gre_header <= bytes) {
    const uint8_t flags = frame[at];
    inner = load16(frame + at + 2);
    at += gre_header + (flags & 0x80 ? 4 : 0) + (flags & 0x20 ? 4 : 0) + (flags & 0x10 ? 4 : 0);
    if (flags & 0x40) inner = 0;  // routing (RFC 1701), which nobody has
  } else if (outer.udp()) {
    const uint16_t port = load16(frame + outer.l4 + 2);
    at = outer.payload;
    if (tunnels.vxlan.contains(port)) {
      at += vxlan_header;
      inner = ether::kBridged;
    } else if (tunnels.geneve.contains(port) && at + geneve_header <= bytes) {
      inner = load16(frame + at + 2);
      at += geneve_header + size_t{4} * (frame[at] & 0x3f);
    }
  }
  if (inner == ether::kBridged) inner = ether_type(frame, bytes, at);
  if (inner) layers.inner = parse_ip(frame, bytes, whole, at, inner);
  return layers;
}

bool ip_checksum_good(const uint8_t* frame, const Layer& layer) {
  if (layer.version != 4) return true;
  return fold(add(0, frame + layer.l3, size_t{4} * (frame[layer.l3] & 0xf))) == 0xffff;
}

bool l4_checksum_good(const uint8_t* frame, const Layer& layer) {
  return fold(add(pseudo_header(frame, layer), frame + layer.l4, layer.end - layer.l4)) == 0xffff;
}

void set_ip_checksum(uint8_t* frame, const Layer& layer) {
  if (layer.version != 4) return;
  uint8_t* field = frame + layer.l3 + 10;
  std::memset(field, 0, 2);
  const auto sum = static_cast<uint16_t>(~fold(add(0, frame + layer.l3, size_t{4} * (frame[layer.l3] & 0xf))));
  std::memcpy(field, &sum, 2);
}

void set_l4_checksum(uint8_t* frame, const Layer& layer) {
  uint8_t* field = frame + checksum_field(layer);
  std::memset(field, 0, 2);
  auto sum = static_cast<uint16_t>(~fold(add(pseudo_header(frame, layer), frame + layer.l4, layer.end - layer.l4)));
  if (sum == 0 && layer.protocol == ip::kUdp) sum = 0xffff;  // 0 would say that there is none
  std::memcpy(field, &sum, 2);
}

uint16_t checksum(const uint8_t* at, size_t bytes) { return fold(add(0, at, bytes)); }

bool segment(const std::vector<uint8_t>& packet, size_t header, size_t mss, const TunnelPorts& tunnels,
             std::deque<std::vector<uint8_t>>& out) {
  constexpr size_t most_segments = 8192;
  constexpr uint8_t fin_push = 0x09;
  constexpr uint8_t congestion_window_reduced = 0x80;
  const size_t whole = packet.size();
  if (header >= whole || !mss || (whole - header) / mss >= most_segments) return false;
  const Layers layers = parse(packet.data(), header, whole, tunnels);
  const Layer& last = layers.innermost();
  if (!last.payload || last.payload != header) return false;
  const bool tcp = last.tcp();
  const uint32_t sequence = tcp ? load32(packet.data() + last.l4 + 4) : 0;
  uint16_t index = 0;
  for (size_t at = header; at < whole; at += mss, index++) {
    const size_t payload = std::min(mss, whole - at);
    std::vector<uint8_t>& frame = out.emplace_back(header + payload);
    std::memcpy(frame.data(), packet.data(), header);
    std::memcpy(frame.data() + header, packet.data() + at, payload);
    if (tcp) {
      uint8_t* fields = frame.data() + last.l4;
      store32(fields + 4, sequence + static_cast<uint32_t>(at - header));
      if (at + payload < whole) fields[13] &= static_cast<uint8_t>(~fin_push);
      if (index) fields[13] &= static_cast<uint8_t>(~congestion_window_reduced);
    }
    // The inner packet first: the outer one's checksum covers it.
    for (const Layer* layer : {&layers.inner, &layers.outer}) {
      if (!layer->version) continue;
      Layer now = *layer;
      now.end = frame.size();
      uint8_t* packet_ip = frame.data() + now.l3;
      if (now.version == 4) {
        store16(packet_ip + 2, static_cast<uint16_t>(now.end - now.l3));
        store16(packet_ip + 4, static_cast<uint16_t>(load16(packet_ip + 4) + index));
        set_ip_checksum(frame.data(), now);
      } else {
        store16(packet_ip + 4, static_cast<uint16_t>(now.end - now.l3 - 40));
      }
      if (now.udp()) {
        store16(frame.data() + now.l4 + 4, static_cast<uint16_t>(now.end - now.l4));
        // A tunnel's may do without.
        if (layer == &last || load16(frame.data() + now.l4 + 6)) set_l4_checksum(frame.data(), now);
      } else if (now.tcp()) {
        set_l4_checksum(frame.data(), now);
      }
    }
  }
  return true;
}

uint32_t toeplitz(const uint8_t key[toeplitz_key], const uint8_t* frame, const Layer& layer, bool ports) {
  uint8_t input[36];
  const size_t addresses = layer.version == 4 ? 8 : 32;
  std::memcpy(input, frame + layer.l3 + (layer.version == 4 ? 12 : 8), addresses);
  if (ports) std::memcpy(input + addresses, frame + layer.l4, 4);
  return toeplitz(key, input, addresses + (ports ? 4 : 0));
}

uint32_t toeplitz(const uint8_t key[toeplitz_key], const uint8_t* input, size_t bytes) {
  uint32_t window = load32(key);
  uint32_t hash = 0;
  for (size_t i = 0; i < bytes; i++) {
    for (unsigned bit = 0; bit < 8; bit++) {
      if (input[i] & 0x80 >> bit) hash ^= window;
      window = window << 1 | (key[i + 4] >> (7 - bit) & 1);
    }
  }
  return hash;
}

}  // namespace userdma::soft
