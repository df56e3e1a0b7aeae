// The asynchronous event queue of a ConnectX: events of queue pairs go to those, the others wait for the control calls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "driver/events.h"
#include "host/big_endian.h"
#include "host/mmio.h"
#include "hw/mlx5_device.h"

namespace userdma::driver {

class Mlx5Events final : public Events {
 public:
  using Entry = std::array<uint8_t, sizeof(hw::mlx5::Event)>;

  // `entries`, a power of two, at `ring`; `eqn` is the queue's number at the firmware, `uar` the place in `bar` of its
  // user access region. The ring's owner bits are set as of entries that the NIC has not written.
  Mlx5Events(std::shared_ptr<Domain> domain, uint8_t* ring, uint32_t entries, uint32_t eqn, const host::Bar& bar,
             uint64_t uar);

  void service() override;
  std::deque<Entry> take();  // events of no queue pair
  uint64_t consumer() const { return consumer_.load(std::memory_order_relaxed); }

 private:
  bool written() const override { return valid(consumer_.load(std::memory_order_relaxed)); }
  // The owner bit is 0 in the ring's first pass and flips with each.
  bool valid(uint64_t consumer) const {
    // By the eight bytes at a time that a NIC in software stores last.
    const uint8_t* last = ring_ + (consumer & (entries_ - 1)) * sizeof(Entry) + sizeof(Entry) - sizeof(uint64_t);
    const uint64_t word = __atomic_load_n(reinterpret_cast<const uint64_t*>(last), __ATOMIC_ACQUIRE);
    const auto owner = static_cast<uint8_t>(host::big_endian(word));
    return ((owner & 1) != 0) == ((consumer & entries_) != 0);
  }
  void dispatch(const Entry& entry);

  uint8_t* ring_;
  uint32_t entries_;
  uint32_t eqn_;
  host::Bar bar_;
  uint64_t uar_;
  std::atomic<uint64_t> consumer_{0};
  std::deque<Entry> events_;
};

// What an event of a queue pair says of its failure, for a person; "" if nothing.
std::string describe_mlx5_event(uint8_t type);

}  // namespace userdma::driver
