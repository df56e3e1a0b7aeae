#include "soft/wire/codec.h"

#include <cstring>

#include "hw/roce.h"
#include "soft/wire/icrc.h"

namespace userdma::soft::wire {

namespace roce = hw::roce;

namespace {

// An IPv4 address as a GID: ::ffff:a.b.c.d (RFC 4291, 2.5.5.2; A17.4.2).
constexpr uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_mapped(const uint8_t gid[16]) { return std::memcmp(gid, mapped_prefix, sizeof mapped_prefix) == 0; }

template <unsigned bytes>
uint64_t get(const uint8_t* at) {
  uint64_t v = 0;
  for (unsigned i = 0; i < bytes; i++) v = v << 8 | at[i];
  return v;
}

template <unsigned bytes>
void put(uint8_t* at, uint64_t v) {
  for (unsigned i = 0; i < bytes; i++) at[i] = static_cast<uint8_t>(v >> 8 * (bytes - 1 - i));
}

// The one's complement sum of RFC 1071; 0xffff over a header whose checksum is right.
uint16_t ones_sum(const uint8_t* at, size_t bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < bytes; i += 2) sum += static_cast<uint32_t>(get<2>(at + i));
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// The extension headers of an opcode. A UD packet has a DETH before those of the same operation; what is not known
// of a transport that is has none.
struct Layout {
  roce::Traits traits;
  bool known = false;  // the transport
  bool deth = false;
  bool cnp = false;

  explicit Layout(uint8_t opcode) {
    if (opcode == roce::opcode_cnp) {
      known = cnp = true;
      traits.payload = true;
      return;
    }
    const uint8_t transport = opcode & roce::transport_mask;
    const uint8_t operation = opcode & static_cast<uint8_t>(~roce::transport_mask);
    known = transport == roce::transport_rc || transport == roce::transport_uc || transport == roce::transport_ud;
    if (!known) return;
    traits = roce::traits[operation];
    if (traits.kind == roce::Kind::Unknown) traits.payload = true;
    deth = transport == roce::transport_ud;
  }

  size_t bytes() const {
    return (deth ? roce::deth::bytes : 0) + (traits.reth ? roce::reth::bytes : 0) +
           (traits.atomic_eth ? roce::atomic_eth::bytes : 0) + (traits.aeth ? roce::aeth::bytes : 0) +
           (traits.atomic_ack ? roce::atomic_ack_bytes : 0) + (traits.immediate ? roce::immediate_bytes : 0) +
           (traits.invalidate ? roce::ieth_bytes : 0);
  }
};

size_t transport_bytes(const Header& h, const Layout& layout) {
  const size_t pad = -h.payload & 3u;
  return roce::bth::bytes + layout.bytes() + h.payload + pad + roce::icrc_bytes;
}

bool over_ipv4(const Header& h) { return is_mapped(h.sgid) && is_mapped(h.dgid); }

}  // namespace

const char* name(Malformed m) {
  switch (m) {
    case Malformed::No:
      return "well-formed";
    case Malformed::Truncated:
      return "truncated";
    case Malformed::NotIp:
      return "not IP";
    case Malformed::NotUdp:
      return "not UDP";
    case Malformed::NotRoce:
      return "not UDP port 4791";
    case Malformed::IpVersion:
      return "wrong IP version";
    case Malformed::IpHeader:
      return "wrong IP header length";
    case Malformed::IpFragment:
      return "IP fragment";
    case Malformed::IpLength:
      return "wrong IP length";
    case Malformed::IpChecksum:
      return "wrong IP header checksum";
    case Malformed::UdpLength:
      return "wrong UDP length";
    case Malformed::TransportVersion:
      return "wrong transport header version";
    case Malformed::Opcode:
      return "opcode of another transport";
    case Malformed::Padding:
      return "wrong padding";
    case Malformed::Icrc:
      return "wrong ICRC";
  }
  return "?";
}

size_t encoded_bytes(const Header& h) {
  return roce::ethernet_bytes + (over_ipv4(h) ? roce::ipv4_bytes : roce::ipv6_bytes) + roce::udp_bytes +
         transport_bytes(h, Layout(h.opcode));
}

size_t encode(const Header& h, const Span* payload, size_t spans, uint8_t* out, size_t room) {
  const Layout layout(h.opcode);
  const bool ipv4 = over_ipv4(h);
  const size_t ip_bytes = ipv4 ? roce::ipv4_bytes : roce::ipv6_bytes;
  const size_t udp_length = roce::udp_bytes + transport_bytes(h, layout);
  const size_t total = roce::ethernet_bytes + ip_bytes + udp_length;
  if (total > room || udp_length + (ipv4 ? ip_bytes : 0) > 0xffff) return 0;

  std::memcpy(out, h.dmac, 6);
  std::memcpy(out + 6, h.smac, 6);
  put<2>(out + 12, ipv4 ? roce::ethertype_ipv4 : roce::ethertype_ipv6);

  uint8_t* const ip = out + roce::ethernet_bytes;
  if (ipv4) {
    ip[0] = 0x45;
    ip[1] = h.traffic_class;
    put<2>(ip + 2, ip_bytes + udp_length);
    put<2>(ip + 4, 0);       // identification: not used where nothing is fragmented (RFC 6864)
    put<2>(ip + 6, 0x4000);  // do not fragment
    ip[8] = h.hop_limit;
    ip[9] = roce::ip_protocol_udp;
    put<2>(ip + 10, 0);
    std::memcpy(ip + 12, h.sgid + 12, 4);
    std::memcpy(ip + 16, h.dgid + 12, 4);
    put<2>(ip + 10, static_cast<uint16_t>(~ones_sum(ip, ip_bytes)));
  } else {
    put<4>(ip, uint32_t{6} << 28 | uint32_t{h.traffic_class} << 20);
    put<2>(ip + 4, udp_length);
    ip[6] = roce::ip_protocol_udp;
    ip[7] = h.hop_limit;
    std::memcpy(ip + 8, h.sgid, 16);
    std::memcpy(ip + 24, h.dgid, 16);
  }

  uint8_t* const udp = ip + ip_bytes;
  put<2>(udp, h.udp_source);
  put<2>(udp + 2, roce::udp_port);
  put<2>(udp + 4, udp_length);
  put<2>(udp + 6, 0);  // no checksum: the ICRC covers more (A17.4.5.2)

  uint8_t* const bth = udp + roce::udp_bytes;
  const size_t pad = -h.payload & 3u;
  bth[roce::bth::opcode] = h.opcode;
  bth[roce::bth::flags] =
      static_cast<uint8_t>((h.flags & Header::Solicited ? roce::bth::solicited : 0) |
                           (h.flags & Header::Migrated ? roce::bth::migrated : 0) | pad << roce::bth::pad_shift);
  put<2>(bth + roce::bth::pkey, h.pkey);
  bth[roce::bth::congestion] = static_cast<uint8_t>((h.flags & Header::Fecn ? roce::bth::fecn : 0) |
                                                    (h.flags & Header::Becn ? roce::bth::becn : 0));
  put<3>(bth + roce::bth::dest_qp, h.dest_qp);
  bth[roce::bth::ack] = h.flags & Header::AckRequest ? roce::bth::ack_request : 0;
  put<3>(bth + roce::bth::psn, h.psn);

  uint8_t* at = bth + roce::bth::bytes;
  const roce::Traits& t = layout.traits;
  if (layout.deth) {
    put<4>(at + roce::deth::qkey, h.qkey);
    at[roce::deth::src_qp - 1] = 0;
    put<3>(at + roce::deth::src_qp, h.src_qp);
    at += roce::deth::bytes;
  }
  if (t.reth) {
    put<8>(at + roce::reth::va, h.va);
    put<4>(at + roce::reth::rkey, h.rkey);
    put<4>(at + roce::reth::length, h.dma_length);
    at += roce::reth::bytes;
  }
  if (t.atomic_eth) {
    put<8>(at + roce::atomic_eth::va, h.va);
    put<4>(at + roce::atomic_eth::rkey, h.rkey);
    put<8>(at + roce::atomic_eth::swap_or_add, h.swap_or_add);
    put<8>(at + roce::atomic_eth::compare, h.compare);
    at += roce::atomic_eth::bytes;
  }
  if (t.aeth) {
    at[roce::aeth::syndrome] = h.syndrome;
    put<3>(at + roce::aeth::msn, h.msn);
    at += roce::aeth::bytes;
  }
  if (t.atomic_ack) {
    put<8>(at, h.swap_or_add);
    at += roce::atomic_ack_bytes;
  }
  if (t.immediate || t.invalidate) {
    put<4>(at, h.immediate);
    at += roce::immediate_bytes;
  }

  uint32_t crc = icrc_headers(ip, !ipv4);
  crc = crc32(crc, bth + roce::bth::bytes, static_cast<size_t>(at - bth) - roce::bth::bytes);
  size_t left = h.payload;
  for (size_t i = 0; i < spans && left > 0; i++) {
    const size_t n = payload[i].bytes < left ? static_cast<size_t>(payload[i].bytes) : left;
    crc = crc32_copy(crc, at, payload[i].at, n);
    at += n;
    left -= n;
  }
  // Fewer bytes than the header says count as zeros; so do the pad bytes.
  std::memset(at, 0, left + pad);
  crc = crc32(crc, at, left + pad);
  at += left + pad;
  for (unsigned i = 0; i < 4; i++) at[i] = static_cast<uint8_t>(crc >> 8 * i);
  return total;
}

Malformed decode(const uint8_t* frame, size_t bytes, Header& out, Span& payload) {
  if (bytes < roce::ethernet_bytes) return Malformed::Truncated;
  const uint64_t type = get<2>(frame + 12);
  if (type != roce::ethertype_ipv4 && type != roce::ethertype_ipv6) return Malformed::NotIp;
  const bool ipv4 = type == roce::ethertype_ipv4;
  const size_t ip_bytes = ipv4 ? roce::ipv4_bytes : roce::ipv6_bytes;
  const uint8_t* const ip = frame + roce::ethernet_bytes;
  const size_t have = bytes - roce::ethernet_bytes;
  if (have < ip_bytes) return Malformed::Truncated;
  if (ip[0] >> 4 != (ipv4 ? 4 : 6)) return Malformed::IpVersion;
  size_t ip_total;
  if (ipv4) {
    if ((ip[0] & 15) != 5) return Malformed::IpHeader;
    if (ones_sum(ip, ip_bytes) != 0xffff) return Malformed::IpChecksum;
    if (ip[9] != roce::ip_protocol_udp) return Malformed::NotUdp;
    if (get<2>(ip + 6) & 0x3fff) return Malformed::IpFragment;
    ip_total = get<2>(ip + 2);
  } else {
    if (ip[6] != roce::ip_protocol_udp) return Malformed::NotUdp;  // extension headers included
    ip_total = ip_bytes + get<2>(ip + 4);
  }
  if (ip_total < ip_bytes + roce::udp_bytes) return Malformed::IpLength;
  if (ip_total > have) return Malformed::Truncated;

  const uint8_t* const udp = ip + ip_bytes;
  if (get<2>(udp + 2) != roce::udp_port) return Malformed::NotRoce;
  const size_t udp_length = get<2>(udp + 4);
  if (udp_length != ip_total - ip_bytes) return Malformed::IpLength;
  if (udp_length < roce::udp_bytes + roce::bth::bytes + roce::icrc_bytes) return Malformed::UdpLength;

  const uint8_t* const bth = udp + roce::udp_bytes;
  const uint8_t* const end = udp + udp_length - roce::icrc_bytes;
  if (bth[roce::bth::flags] & roce::bth::version_mask) return Malformed::TransportVersion;
  const Layout layout(bth[roce::bth::opcode]);
  if (!layout.known) return Malformed::Opcode;
  const uint8_t* at = bth + roce::bth::bytes;
  if (static_cast<size_t>(end - at) < layout.bytes()) return Malformed::UdpLength;
  const size_t pad = (bth[roce::bth::flags] & roce::bth::pad_mask) >> roce::bth::pad_shift;
  const size_t data = static_cast<size_t>(end - at) - layout.bytes();
  if (pad > data || (data & 3) != 0) return Malformed::Padding;
  if (data > 0 && !layout.traits.payload) return Malformed::Padding;

  uint32_t crc = icrc_headers(ip, !ipv4);
  crc = crc32(crc, at, static_cast<size_t>(end - at));
  uint32_t carried = 0;
  for (unsigned i = 0; i < 4; i++) carried |= uint32_t{end[i]} << 8 * i;
  if (crc != carried) return Malformed::Icrc;

  out = Header{};
  std::memcpy(out.dmac, frame, 6);
  std::memcpy(out.smac, frame + 6, 6);
  if (ipv4) {
    out.traffic_class = ip[1];
    out.hop_limit = ip[8];
    std::memcpy(out.sgid, mapped_prefix, sizeof mapped_prefix);
    std::memcpy(out.sgid + 12, ip + 12, 4);
    std::memcpy(out.dgid, mapped_prefix, sizeof mapped_prefix);
    std::memcpy(out.dgid + 12, ip + 16, 4);
  } else {
    out.traffic_class = static_cast<uint8_t>(get<2>(ip) >> 4);
    out.hop_limit = ip[7];
    std::memcpy(out.sgid, ip + 8, 16);
    std::memcpy(out.dgid, ip + 24, 16);
  }
  out.udp_source = static_cast<uint16_t>(get<2>(udp));
  out.opcode = bth[roce::bth::opcode];
  const uint8_t flags = bth[roce::bth::flags], congestion = bth[roce::bth::congestion];
  out.flags = static_cast<uint8_t>(
      (flags & roce::bth::solicited ? Header::Solicited : 0) | (flags & roce::bth::migrated ? Header::Migrated : 0) |
      (bth[roce::bth::ack] & roce::bth::ack_request ? Header::AckRequest : 0) |
      (congestion & roce::bth::fecn ? Header::Fecn : 0) | (congestion & roce::bth::becn ? Header::Becn : 0));
  out.pkey = static_cast<uint16_t>(get<2>(bth + roce::bth::pkey));
  out.dest_qp = static_cast<uint32_t>(get<3>(bth + roce::bth::dest_qp));
  out.psn = static_cast<uint32_t>(get<3>(bth + roce::bth::psn));
  const roce::Traits& t = layout.traits;
  if (layout.deth) {
    out.qkey = static_cast<uint32_t>(get<4>(at + roce::deth::qkey));
    out.src_qp = static_cast<uint32_t>(get<3>(at + roce::deth::src_qp));
    at += roce::deth::bytes;
  }
  if (t.reth) {
    out.va = get<8>(at + roce::reth::va);
    out.rkey = static_cast<uint32_t>(get<4>(at + roce::reth::rkey));
    out.dma_length = static_cast<uint32_t>(get<4>(at + roce::reth::length));
    at += roce::reth::bytes;
  }
  if (t.atomic_eth) {
    out.va = get<8>(at + roce::atomic_eth::va);
    out.rkey = static_cast<uint32_t>(get<4>(at + roce::atomic_eth::rkey));
    out.swap_or_add = get<8>(at + roce::atomic_eth::swap_or_add);
    out.compare = get<8>(at + roce::atomic_eth::compare);
    at += roce::atomic_eth::bytes;
  }
  if (t.aeth) {
    out.syndrome = at[roce::aeth::syndrome];
    out.msn = static_cast<uint32_t>(get<3>(at + roce::aeth::msn));
    at += roce::aeth::bytes;
  }
  if (t.atomic_ack) {
    out.swap_or_add = get<8>(at);
    at += roce::atomic_ack_bytes;
  }
  if (t.immediate || t.invalidate) {
    out.immediate = static_cast<uint32_t>(get<4>(at));
    at += roce::immediate_bytes;
  }
  out.payload = static_cast<uint32_t>(data - pad);
  payload = Span{const_cast<uint8_t*>(at), out.payload};
  return Malformed::No;
}

}  // namespace userdma::soft::wire
