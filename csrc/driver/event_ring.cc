#include "driver/event_ring.h"

#include <cstdio>
#include <cstring>
#include <utility>

namespace userdma::driver {

namespace hw = userdma::hw::bnxt;

namespace {

// A NIC that writes without end must not fill the process's memory: the oldest goes.
constexpr size_t kKept = 4096;

void keep(std::deque<CreqEntry>& list, const CreqEntry& entry) {
  if (list.size() == kKept) list.pop_front();
  list.push_back(entry);
}

}  // namespace

EventRing::EventRing(std::shared_ptr<Domain> domain, uint8_t* ring, uint32_t entries, uint32_t id,
                     host::Doorbell doorbell)
    : domain_(std::move(domain)), ring_(ring), entries_(entries), id_(id), doorbell_(doorbell) {
  domain_->add(this);
}

EventRing::~EventRing() { domain_->remove(this); }

void EventRing::arm() {
  if (retired_) return;
  uint64_t consumer = consumer_.load(std::memory_order_relaxed);
  doorbell_.ring(hw::doorbell(id_, hw::doorbell_type::kNqArm, consumer & (entries_ - 1), consumer / entries_));
}

void EventRing::service() {
  bool took = false;
  // One pass of the ring at most: a NIC that fills it as fast as it is emptied must not hold this call.
  for (uint32_t i = 0; i < entries_ && !retired_; ++i) {
    uint64_t consumer = consumer_.load(std::memory_order_relaxed);
    if (!valid(consumer)) break;
    host::load_barrier();
    CreqEntry entry;
    std::memcpy(entry.data(), ring_ + (consumer & (entries_ - 1)) * hw::kNqe, entry.size());
    consumer_.store(consumer + 1, std::memory_order_relaxed);
    took = true;
    dispatch(entry);
  }
  if (took) arm();  // which also frees the entries for the NIC
}

void EventRing::dispatch(const CreqEntry& entry) {
  hw::CreqQpError error;
  static_assert(sizeof(error) == sizeof(entry));
  std::memcpy(&error, entry.data(), sizeof(error));
  if ((error.type & hw::kCreqTypeMask) != hw::creq_type::kQpEvent) return keep(events_, entry);
  if (error.event == hw::creq_event::kQpError) {
    auto found = qps_.find(error.xid);
    if (found == qps_.end()) return keep(events_, entry);
    char text[160];
    std::snprintf(text, sizeof(text),
                  "the NIC reported the queue pair's failure (requester reason 0x%x, responder reason 0x%x)",
                  error.req_err_state_reason, error.res_err_state_reason);
    return found->second->event(text);
  }
  if (error.event == hw::creq_event::kCqError) {
    auto found = cqs_.find(error.xid);
    if (found == cqs_.end()) return keep(events_, entry);
    char text[96];
    std::snprintf(text, sizeof(text), "the NIC reported the failure of completion queue 0x%x (reason 0x%x)", error.xid,
                  error.req_slow_path_state);  // where this event has its cq_err_reason
    return found->second->event(text);
  }
  keep(answers_, entry);
}

std::optional<CreqEntry> EventRing::answer() {
  if (answers_.empty()) service();
  if (answers_.empty()) return std::nullopt;
  CreqEntry entry = answers_.front();
  answers_.pop_front();
  return entry;
}

std::deque<CreqEntry> EventRing::take_events() {
  service();
  return std::exchange(events_, {});
}

}  // namespace userdma::driver
