// A place on a wire for a program that makes frames itself: a peer whose every packet is written by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "soft/wire/codec.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire {

// Any thread may call anything. In a forked child of who made it, calls throw host::MachineError, and its end leaves
// the parent's where it is.
class Tap final : private Sink, public host::MadeHere {
 public:
  // Throws host::Error: as Wire::attach, and if the wire carries packets that are no frames (Port::largest).
  Tap(std::shared_ptr<Wire> wire, const uint8_t mac[6]);
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  // Sends a frame to the port that its destination MAC names. What a receiver would throw away is not sent, and the
  // result says why. Throws host::Error: the wire has no room, or the tap has left it.
  Malformed send(const uint8_t* frame, size_t bytes);

  // Sends a frame as it is, whatever it carries: to Ethernet, to which RoCEv2 is a frame like any other. Throws
  // std::invalid_argument (not the bytes of a frame), host::Error as `send`.
  void send_ethernet(const uint8_t* frame, size_t bytes);

  // The frames that arrived since, in order: of RoCE and of Ethernet.
  std::vector<std::vector<uint8_t>> receive();

  // Leaves the wire. Idempotent.
  void close();

 private:
  void pass(const Header& header, const Span& payload);
  void packet(const Header& header, const Span* payload, size_t spans) override;

  std::mutex mutex_;
  std::unique_ptr<Port> port_;  // null: left
  std::vector<std::vector<uint8_t>> frames_;
};

}  // namespace userdma::soft::wire
