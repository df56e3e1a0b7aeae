// A wire that impairs what another wire carries, and that shows its frames. Each packet is one frame here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "soft/clock.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire {

// Probabilities for each packet, each for itself, from 0 to 1.
struct Faults {
  double loss = 0;
  double duplicate = 0;  // it arrives twice
  double reorder = 0;    // 1 to reorder_depth later packets overtake it
  double corrupt = 0;    // 1 to 4 bits of the frame change
  double delay = 0;      // it arrives up to delay_ns later; others may overtake it

  unsigned reorder_depth = 3;
  uint64_t delay_ns = 200000;  // and how long a packet waits at most to be overtaken

  // Each port has its own sequence of faults, which this and its place in the order of attachment make: not its MAC,
  // which is random where a program gives none.
  uint64_t seed = 0;
};

class FaultyWire final : public Wire {
 public:
  // Throws std::invalid_argument if a number of `faults` is not one that it can be.
  FaultyWire(std::shared_ptr<Wire> inner, const Faults& faults, std::shared_ptr<Clock> clock);

  std::unique_ptr<Port> attach(const uint8_t mac[6], Owner* owner, Arena* arena) override;
  std::string name() const override { return inner_->name(); }

  // Keeps the frames that ports of this object send from here on (as they go on the wire: without those lost, with
  // both of those doubled, corrupted ones as they are then), the first `limit` of them; 0: none.
  void capture(size_t limit);
  // The frames kept so far, which are forgotten.
  std::vector<std::vector<uint8_t>> take();

 private:
  friend class FaultyPort;

  void keep(const uint8_t* frame, size_t bytes);

  const std::shared_ptr<Wire> inner_;
  const Faults faults_;
  const std::shared_ptr<Clock> clock_;
  std::atomic<uint64_t> attached_{0};  // ports so far
  std::atomic<bool> capturing_{false};
  std::mutex mutex_;
  size_t limit_ = 0;
  std::vector<std::vector<uint8_t>> frames_;
};

}  // namespace userdma::soft::wire
