// What offloads read of a frame: whatever the bytes are, nothing is read past them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "soft/frame.h"

using namespace userdma::soft;  // NOLINT

namespace {

std::vector<uint8_t> hex(const char* text) {
  std::vector<uint8_t> bytes;
  const auto digit = [](char c) { return static_cast<uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  for (; text[0] && text[1]; text += 2) bytes.push_back(static_cast<uint8_t>(digit(text[0]) << 4 | digit(text[1])));
  return bytes;
}

// By scapy 2.6: Ether()/IP(src="10.0.0.1", dst="10.0.0.2")/TCP(sport=1, dport=2)/b"abc" and so on, whose sums are
// right.
const std::vector<std::vector<uint8_t>>& frames() {
  static const std::vector<std::vector<uint8_t>> all = {
      // IPv4, TCP
      hex("ffffffffffff00000000000008004500002b00010000400666ca0a0000010a00000200010002000000000000000050022000"
          "b7770000616263"),
      // IPv4, UDP in a VLAN
      hex("ffffffffffff0000000000008100000508004500002000010000401166ca0a0000010a00000200010002000c270a61626364"),
      // IPv6 with a destination options header, TCP
      hex("ffffffffffff00000000000086dd60000000001f3c40fd000000000000000000000000000001fd0000000000000000000000"
          "00000002060001040000000000010002000000000000000050022000d1750000616263"),
      // IPv4, UDP to 4789, VXLAN, Ethernet, IPv4, TCP
      hex("ffffffffffff00000000000008004500005a00010000401166900a0000010a000002000912b5004600000c00000300000300"
          "02000000000202000000000108004500002800010000400678cd010000010100000200140050000000050000000050022000"
          "8d770000"),
      // IPv4, GRE with key and sequence number, IPv4, TCP
      hex("ffffffffffff00000000000008004500004800010000402f66840a0000010a00000230000800000000010000000245000028"
          "00010000400678cd0100000101000002001400500000000000000000500220008d7c0000"),
  };
  return all;
}

// All that the data path asks of a frame.
void look(const std::vector<uint8_t>& bytes, const TunnelPorts& tunnels) {
  // In memory of exactly its size, so that a sanitizer sees a byte too many.
  std::vector<uint8_t> frame(bytes);
  frame.shrink_to_fit();
  const Layers layers = parse(frame.data(), frame.size(), frame.size(), tunnels);
  const uint8_t key[toeplitz_key] = {1, 2, 3};
  for (const Layer* layer : {&layers.outer, &layers.inner}) {
    if (!layer->version) continue;
    CHECK(layer->end <= frame.size());
    CHECK(layer->l3 < frame.size());
    ip_checksum_good(frame.data(), *layer);
    toeplitz(key, frame.data(), *layer, layer->payload != 0);
    if (layer->payload) {
      CHECK(layer->payload <= layer->end);
      l4_checksum_good(frame.data(), *layer);
      set_l4_checksum(frame.data(), *layer);
      CHECK(l4_checksum_good(frame.data(), *layer));
    }
    set_ip_checksum(frame.data(), *layer);
    CHECK(ip_checksum_good(frame.data(), *layer));
  }
}

}  // namespace

TEST_CASE("frame: layers of tunnels are found, where their ports are known") {
  const auto& all = frames();
  CHECK(parse(all[0].data(), all[0].size(), all[0].size()).outer.tcp());
  CHECK(parse(all[1].data(), all[1].size(), all[1].size()).outer.udp());
  CHECK(parse(all[1].data(), all[1].size(), all[1].size()).outer.l3 == 18);
  CHECK(parse(all[2].data(), all[2].size(), all[2].size()).outer.tcp());
  const TunnelPorts tunnels{{4789}, {}};
  CHECK_FALSE(parse(all[3].data(), all[3].size(), all[3].size()).inner.version);
  CHECK(parse(all[3].data(), all[3].size(), all[3].size(), tunnels).inner.tcp());
  CHECK(parse(all[4].data(), all[4].size(), all[4].size()).inner.tcp());
}

TEST_CASE("frame: cut anywhere and changed anywhere, nothing is read past its bytes") {
  const TunnelPorts tunnels{{4789}, {6081}};
  std::mt19937 random(7);
  for (const auto& frame : frames()) {
    for (size_t n = 0; n <= frame.size(); n++) look({frame.begin(), frame.begin() + static_cast<long>(n)}, tunnels);
    for (unsigned round = 0; round < 4000; round++) {
      std::vector<uint8_t> changed = frame;
      for (unsigned flips = 1 + random() % 6; flips; flips--)
        changed[12 + random() % (changed.size() - 12)] = static_cast<uint8_t>(random());
      changed.resize(14 + random() % (changed.size() - 13));
      look(changed, tunnels);
    }
  }
}
