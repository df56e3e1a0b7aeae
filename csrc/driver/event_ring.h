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
#include <string>
#include <unordered_map>

#include "driver/domain.h"
#include "host/mmio.h"
#include "hw/bnxt.h"

namespace userdma::driver {

using CreqEntry = std::array<uint8_t, hw::bnxt::kNqe>;

// What a queue pair hears of its own.
class EventListener {
 public:
  virtual void event(const std::string& what) = 0;

 protected:
  ~EventListener() = default;
};

class EventRing final : public Member {
 public:
  // `entries`, a power of two, at `ring`; `id` is the ring's number at the firmware.
  EventRing(std::shared_ptr<Domain> domain, uint8_t* ring, uint32_t entries, uint32_t id, host::Doorbell doorbell);
  ~EventRing();
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  // Whether the NIC wrote an entry that was not taken; peek() for a thread that only waits.
  bool pending() const { return !retired_ && valid(consumer_.load(std::memory_order_relaxed)); }
  bool peek() {
    if (!gate_.enter()) return false;
    bool is = valid(consumer_.load(std::memory_order_relaxed));
    gate_.leave();
    return is;
  }

  void service();  // takes every entry that is there
  std::optional<CreqEntry> answer();
  std::deque<CreqEntry> take_events();  // those that belong to no queue pair
  void arm();
  uint64_t consumer() const { return consumer_.load(std::memory_order_relaxed); }

  void listen_qp(uint32_t qp, EventListener* listener) { qps_[qp] = listener; }
  void listen_cq(uint32_t cq, EventListener* listener) { cqs_[cq] = listener; }
  void forget_qp(uint32_t qp) { qps_.erase(qp); }
  void forget_cq(uint32_t cq) { cqs_.erase(cq); }

  void machine_failed(const std::string&) override {}
  void retire(const std::string&) override { gate_.shut(), retired_ = true; }
  void drain() override { gate_.drain(); }
  bool retired() const { return retired_; }
  const std::shared_ptr<Domain>& domain() const { return domain_; }

 private:
  // The V bit is 1 in the ring's first pass and flips with each (hw/bnxt.h).
  bool valid(uint64_t consumer) const {
    const uint8_t* entry = ring_ + (consumer & (entries_ - 1)) * hw::bnxt::kNqe;
    uint8_t v = __atomic_load_n(entry + hw::bnxt::kNqeValidOffset, __ATOMIC_ACQUIRE) & hw::bnxt::kNqeValid;
    return v != ((consumer / entries_) & 1);
  }
  void dispatch(const CreqEntry& entry);

  std::shared_ptr<Domain> domain_;
  uint8_t* ring_;
  uint32_t entries_;
  uint32_t id_;
  host::Doorbell doorbell_;
  std::atomic<uint64_t> consumer_{0};
  Gate gate_;
  bool retired_ = false;
  std::deque<CreqEntry> answers_;
  std::deque<CreqEntry> events_;
  std::unordered_map<uint32_t, EventListener*> qps_;
  std::unordered_map<uint32_t, EventListener*> cqs_;
};

}  // namespace userdma::driver
