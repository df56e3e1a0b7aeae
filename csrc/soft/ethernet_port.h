// The port of a NIC's Ethernet: frames out to the wire and in from it, and what crossed it.
//
// The NIC's lock is held in every call.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "soft/frame.h"
#include "soft/soft_function.h"
#include "soft/wire/wire.h"

namespace userdma::soft {

using Mac = std::array<uint8_t, 6>;

enum class Cast : uint8_t { Unicast, Multicast, Broadcast };
Cast cast(const uint8_t* frame);

// What crossed the port in one direction. Bytes count the FCS.
struct PortCounts {
  uint64_t frames = 0;
  uint64_t unicast = 0;
  uint64_t multicast = 0;
  uint64_t broadcast = 0;
  uint64_t bytes = 0;
  uint64_t tagged = 0;
  uint64_t errors = 0;               // too short, too long, not to be sent
  uint64_t discards = 0;             // good, and nobody took it
  std::array<uint64_t, 10> sizes{};  // up to 64, 127, 255, 511, 1023, 1518, 2047, 4095, 9216, 16383 bytes

  void count(const uint8_t* frame, size_t bytes);
};

class EthernetPort {
 public:
  // Linux takes an MTU of 9500 at most for either family.
  static constexpr size_t longest = 9600 + ether::kHeader + 2 * ether::kTag;

  EthernetPort(SoftFunction& function, const Mac& mac) : function_(function), mac_(mac) {}

  enum class Sent : uint8_t {
    Yes,
    NoRoom,  // on the wire, now
    TooLong,
    NoLink,
  };
  // A frame without FCS, which is padded as Ethernet wants it.
  Sent send(std::vector<uint8_t>& frame);

  // A frame from the wire, in one piece: its bytes, or none if it is not for the host: the link is down, it is no
  // frame, or it belongs to the RoCE part.
  struct Frame {
    const uint8_t* at;
    size_t bytes;
  };
  Frame arrived(const wire::Span* payload, size_t spans);

  void link(bool up) { link_ = up; }
  void clear();  // power-on

  PortCounts sent;
  PortCounts received;

 private:
  bool roce(const uint8_t* frame, size_t bytes);

  SoftFunction& function_;
  const Mac mac_;
  std::vector<uint8_t> whole_;  // a frame that came in pieces
  bool link_ = true;
};

}  // namespace userdma::soft
