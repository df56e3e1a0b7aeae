// What the transport of a soft NIC counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "hw/roce.h"
#include "soft/wire/wire.h"

namespace userdma::soft::transport {

// Why a packet that arrived was dropped without an answer.
enum class Drop : uint8_t {
  UnknownQp,
  State,      // the pair is not (or no longer) ready for it
  Transport,  // not of the pair's service
  Pkey,
  Qkey,
  NoReceive,  // a datagram that found none posted
  Address,    // not from the pair's peer
  Sequence,   // past the expected PSN, which a NAK has asked for already
  Stale,      // an answer to what is not outstanding, or a duplicate of what is not kept
  Count,
};

// Packets by what they carry. One that stands for many (Port::largest) counts as those.
class Traffic {
 public:
  void count(const wire::Header& h) {
    by_kind_[static_cast<size_t>(hw::roce::traits[h.opcode & ~hw::roce::transport_mask].kind)] +=
        h.payload ? std::max(h.psns, 1u) : 1;
  }
  uint64_t operator[](hw::roce::Kind kind) const { return by_kind_[static_cast<size_t>(kind)]; }
  uint64_t all() const { return std::accumulate(by_kind_.begin(), by_kind_.end(), uint64_t{0}); }

 private:
  std::array<uint64_t, static_cast<size_t>(hw::roce::Kind::Count)> by_kind_{};
};

struct Stats {
  uint64_t packets_sent = 0;
  uint64_t packets_received = 0;
  uint64_t bytes_sent = 0;  // of payload
  uint64_t bytes_received = 0;
  Traffic sent;
  Traffic received;
  uint64_t retransmits = 0;  // packets sent again
  uint64_t timeouts = 0;     // ACK timers that expired
  uint64_t retries_exceeded = 0;
  uint64_t rnr_naks_sent = 0;
  uint64_t rnr_naks_received = 0;
  uint64_t sequence_naks_sent = 0;
  uint64_t sequence_naks_received = 0;
  uint64_t naks_sent = 0;  // of errors that end the pair
  uint64_t naks_received = 0;
  uint64_t implied_naks = 0;  // an answer showed that an earlier response was lost
  uint64_t duplicates = 0;    // requests that arrived again
  uint64_t dropped[static_cast<size_t>(Drop::Count)] = {};
};

}  // namespace userdma::soft::transport
