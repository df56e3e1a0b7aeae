// The CREQ ring of a bnxt: answers of the RoCE command channel, and events of queue pairs.
//
// The command channel takes the answers; every queue pair of the NIC looks for its own events. Whoever comes first
// takes all entries: events go to the pairs, answers wait for the command channel.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "driver/events.h"
#include "host/mmio.h"
#include "hw/bnxt.h"

namespace userdma::driver {

using CreqEntry = std::array<uint8_t, hw::bnxt::kNqe>;

class BnxtEvents final : public Events {
 public:
  // `entries`, a power of two, at `ring`; `id` is the ring's number at the firmware.
  BnxtEvents(std::shared_ptr<Domain> domain, uint8_t* ring, uint32_t entries, uint32_t id, host::Doorbell doorbell);

  void service() override;
  std::optional<CreqEntry> answer();
  std::deque<CreqEntry> take_events();  // those that belong to no queue pair
  void arm();
  uint64_t consumer() const { return consumer_.load(std::memory_order_relaxed); }

 private:
  bool written() const override { return valid(consumer_.load(std::memory_order_relaxed)); }
  // The V bit is 1 in the ring's first pass and flips with each (hw/bnxt.h).
  bool valid(uint64_t consumer) const {
    const uint8_t* entry = ring_ + (consumer & (entries_ - 1)) * hw::bnxt::kNqe;
    uint8_t v = __atomic_load_n(entry + hw::bnxt::kNqeValidOffset, __ATOMIC_ACQUIRE) & hw::bnxt::kNqeValid;
    return v != ((consumer / entries_) & 1);
  }
  void dispatch(const CreqEntry& entry);

  uint8_t* ring_;
  uint32_t entries_;
  uint32_t id_;
  host::Doorbell doorbell_;
  std::atomic<uint64_t> consumer_{0};
  std::deque<CreqEntry> answers_;
  std::deque<CreqEntry> events_;
};

}  // namespace userdma::driver
