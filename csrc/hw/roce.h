// RoCEv2 packets: opcodes, header layouts, syndromes, timers. InfiniBand Architecture Specification volume 1
// ("IBTA"), chapter 9, and its annex A17 (RoCEv2). Offsets count from the start of the header they belong to; every
// field is big-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace userdma::hw::roce {

inline constexpr uint16_t udp_port = 4791;  // A17.3: destination port
inline constexpr uint16_t ethertype_ipv4 = 0x0800;
inline constexpr uint16_t ethertype_ipv6 = 0x86dd;
inline constexpr uint8_t ip_protocol_udp = 17;

inline constexpr size_t ethernet_bytes = 14;
inline constexpr size_t ipv4_bytes = 20;
inline constexpr size_t ipv6_bytes = 40;
inline constexpr size_t udp_bytes = 8;
inline constexpr size_t icrc_bytes = 4;

// PSNs, queue pair numbers and MSNs are 24 bits.
inline constexpr uint32_t mask24 = 0xff'ffff;
inline constexpr uint32_t multicast_qp = 0xff'ffff;  // of datagrams to a group (IBTA 9.2.3)
// IBTA 9.7.1: a requester never has more PSNs outstanding than half of their space.
inline constexpr uint32_t psn_half = 0x80'0000;

// IBTA 9.4: a message is at most 2^31 bytes.
inline constexpr uint64_t max_message = uint64_t{1} << 31;

// Base transport header (IBTA 9.2): opcode 8, SE 1, M 1, pad count 2, version 4, P_Key 16, FECN 1, BECN 1 (A17),
// reserved 6, destination QP 24, A 1, reserved 7, PSN 24.
namespace bth {
inline constexpr size_t bytes = 12;
inline constexpr size_t opcode = 0;
inline constexpr size_t flags = 1;
inline constexpr uint8_t solicited = 0x80;
inline constexpr uint8_t migrated = 0x40;
inline constexpr unsigned pad_shift = 4;
inline constexpr uint8_t pad_mask = 0x30;
inline constexpr uint8_t version_mask = 0x0f;
inline constexpr size_t pkey = 2;
inline constexpr size_t congestion = 4;  // FECN, BECN and the 6 reserved bits: masked in the ICRC
inline constexpr uint8_t fecn = 0x80;
inline constexpr uint8_t becn = 0x40;
inline constexpr size_t dest_qp = 5;
inline constexpr size_t ack = 8;
inline constexpr uint8_t ack_request = 0x80;
inline constexpr size_t psn = 9;
}  // namespace bth

// RDMA extended transport header (IBTA 9.3.3).
namespace reth {
inline constexpr size_t bytes = 16;
inline constexpr size_t va = 0;
inline constexpr size_t rkey = 8;
inline constexpr size_t length = 12;
}  // namespace reth

// Atomic extended transport header (IBTA 9.3.4).
namespace atomic_eth {
inline constexpr size_t bytes = 28;
inline constexpr size_t va = 0;
inline constexpr size_t rkey = 8;
inline constexpr size_t swap_or_add = 12;
inline constexpr size_t compare = 20;
}  // namespace atomic_eth

// ACK extended transport header (IBTA 9.3.5): syndrome 8, MSN 24.
namespace aeth {
inline constexpr size_t bytes = 4;
inline constexpr size_t syndrome = 0;
inline constexpr size_t msn = 1;
}  // namespace aeth

inline constexpr size_t atomic_ack_bytes = 8;  // AtomicAckETH (IBTA 9.3.6): the original value
inline constexpr size_t immediate_bytes = 4;   // ImmDt (IBTA 9.3.7)
inline constexpr size_t ieth_bytes = 4;        // IETH (IBTA 9.3.8): the R_Key to invalidate

// Datagram extended transport header (IBTA 9.3.2): Q_Key 32, reserved 8, source QP 24.
namespace deth {
inline constexpr size_t bytes = 8;
inline constexpr size_t qkey = 0;
inline constexpr size_t src_qp = 5;
}  // namespace deth

// The three top bits of an opcode (IBTA table 38).
inline constexpr uint8_t transport_mask = 0xe0;
inline constexpr uint8_t transport_rc = 0x00;
inline constexpr uint8_t transport_uc = 0x20;
inline constexpr uint8_t transport_ud = 0x60;
inline constexpr uint8_t opcode_cnp = 0x81;      // A17.9.3: congestion notification
inline constexpr size_t cnp_payload_bytes = 16;  // reserved bytes after its BTH

// The opcodes of a reliable connection (IBTA table 38).
enum Opcode : uint8_t {
  SendFirst = 0x00,
  SendMiddle = 0x01,
  SendLast = 0x02,
  SendLastImmediate = 0x03,
  SendOnly = 0x04,
  SendOnlyImmediate = 0x05,
  WriteFirst = 0x06,
  WriteMiddle = 0x07,
  WriteLast = 0x08,
  WriteLastImmediate = 0x09,
  WriteOnly = 0x0a,
  WriteOnlyImmediate = 0x0b,
  ReadRequest = 0x0c,
  ReadResponseFirst = 0x0d,
  ReadResponseMiddle = 0x0e,
  ReadResponseLast = 0x0f,
  ReadResponseOnly = 0x10,
  Acknowledge = 0x11,
  AtomicAcknowledge = 0x12,
  CompareSwap = 0x13,
  FetchAdd = 0x14,
  SendLastInvalidate = 0x16,
  SendOnlyInvalidate = 0x17,
};

// What an opcode means: the operation, the packet's place in its message, the headers that follow the BTH in the
// order RETH/AtomicETH/AETH, AtomicAckETH, ImmDt/IETH.
enum class Kind : uint8_t {
  Unknown,
  Send,
  Write,
  ReadRequest,
  Atomic,
  ReadResponse,
  Acknowledge,
  AtomicAcknowledge,
  Count
};
struct Traits {
  Kind kind = Kind::Unknown;
  bool first = false;  // begins a message; an ONLY packet is first and last
  bool last = false;
  bool reth = false;
  bool atomic_eth = false;
  bool aeth = false;
  bool atomic_ack = false;
  bool immediate = false;
  bool invalidate = false;
  bool payload = false;  // may carry data

  constexpr bool response() const {
    return kind == Kind::ReadResponse || kind == Kind::Acknowledge || kind == Kind::AtomicAcknowledge;
  }
};

// By the five low bits of an opcode (IBTA table 38; UC has the same ones up to WriteOnlyImmediate).
inline constexpr std::array<Traits, 32> traits = [] {
  std::array<Traits, 32> t{};
  const auto data = [&t](uint8_t op, Kind kind, bool first, bool last) {
    t[op].kind = kind;
    t[op].first = first;
    t[op].last = last;
    t[op].payload = true;
    t[op].reth = kind == Kind::Write && first;
    t[op].aeth = kind == Kind::ReadResponse && (first || last);
  };
  data(SendFirst, Kind::Send, true, false);
  data(SendMiddle, Kind::Send, false, false);
  data(SendLast, Kind::Send, false, true);
  data(SendLastImmediate, Kind::Send, false, true);
  data(SendOnly, Kind::Send, true, true);
  data(SendOnlyImmediate, Kind::Send, true, true);
  data(SendLastInvalidate, Kind::Send, false, true);
  data(SendOnlyInvalidate, Kind::Send, true, true);
  data(WriteFirst, Kind::Write, true, false);
  data(WriteMiddle, Kind::Write, false, false);
  data(WriteLast, Kind::Write, false, true);
  data(WriteLastImmediate, Kind::Write, false, true);
  data(WriteOnly, Kind::Write, true, true);
  data(WriteOnlyImmediate, Kind::Write, true, true);
  data(ReadResponseFirst, Kind::ReadResponse, true, false);
  data(ReadResponseMiddle, Kind::ReadResponse, false, false);
  data(ReadResponseLast, Kind::ReadResponse, false, true);
  data(ReadResponseOnly, Kind::ReadResponse, true, true);
  for (uint8_t op : {SendLastImmediate, SendOnlyImmediate, WriteLastImmediate, WriteOnlyImmediate})
    t[op].immediate = true;
  for (uint8_t op : {SendLastInvalidate, SendOnlyInvalidate}) t[op].invalidate = true;
  const auto single = [&t](uint8_t op, Kind kind) {
    t[op].kind = kind;
    t[op].first = t[op].last = true;
  };
  single(ReadRequest, Kind::ReadRequest);
  t[ReadRequest].reth = true;
  single(CompareSwap, Kind::Atomic);
  single(FetchAdd, Kind::Atomic);
  t[CompareSwap].atomic_eth = t[FetchAdd].atomic_eth = true;
  single(Acknowledge, Kind::Acknowledge);
  t[Acknowledge].aeth = true;
  single(AtomicAcknowledge, Kind::AtomicAcknowledge);
  t[AtomicAcknowledge].aeth = t[AtomicAcknowledge].atomic_ack = true;
  return t;
}();

// AETH syndrome (IBTA 9.3.5, 9.7.5.2): bit 7 zero, bits 6:5 the type, bits 4:0 credits, RNR timer or NAK code.
inline constexpr uint8_t syndrome_type_mask = 0xe0;
inline constexpr uint8_t syndrome_value_mask = 0x1f;
inline constexpr uint8_t syndrome_ack = 0x00;
inline constexpr uint8_t syndrome_rnr_nak = 0x20;
inline constexpr uint8_t syndrome_nak = 0x60;
inline constexpr uint8_t credits_invalid = 0x1f;  // the responder does not do end-to-end flow control

// NAK codes (IBTA 9.7.5.2).
enum Nak : uint8_t {
  NakSequence = syndrome_nak | 0,
  NakInvalidRequest = syndrome_nak | 1,
  NakRemoteAccess = syndrome_nak | 2,
  NakRemoteOperation = syndrome_nak | 3,
  NakInvalidRdRequest = syndrome_nak | 4,
};

// How long an RNR NAK makes the requester wait, in nanoseconds, by its timer code (IBTA 9.7.5.2.8).
inline constexpr std::array<uint64_t, 32> rnr_timer_ns = [] {
  // In units of 10 microseconds.
  constexpr uint32_t table[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                  48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                  2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  std::array<uint64_t, 32> ns{};
  for (size_t i = 0; i < 32; i++) ns[i] = uint64_t{table[i]} * 10'000;
  return ns;
}();

// Local ACK timeout (IBTA 11.2.5.2, 9.7.6.1.3): 4.096 us * 2^code; code 0: no timer.
constexpr uint64_t ack_timeout_ns(uint8_t code) { return code == 0 ? 0 : uint64_t{4096} << (code & 31); }

// A retry count of the RNR retry counter that never runs out (IBTA 9.7.5.2.8).
inline constexpr uint8_t rnr_retry_endless = 7;

}  // namespace userdma::hw::roce
