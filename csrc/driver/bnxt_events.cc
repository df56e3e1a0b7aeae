#include "driver/bnxt_events.h"

#include <cstring>
#include <utility>

#include "driver/bnxt_reasons.h"

namespace userdma::driver {

namespace hw = userdma::hw::bnxt;

BnxtEvents::BnxtEvents(std::shared_ptr<Domain> domain, uint8_t* ring, uint32_t entries, uint32_t id,
                       host::Doorbell doorbell)
    : Events(std::move(domain)), ring_(ring), entries_(entries), id_(id), doorbell_(doorbell) {}

void BnxtEvents::arm() {
  if (retired()) return;
  uint64_t consumer = consumer_.load(std::memory_order_relaxed);
  doorbell_.ring(hw::doorbell(id_, hw::doorbell_type::kNqArm, consumer & (entries_ - 1), consumer / entries_));
}

void BnxtEvents::service() {
  bool took = false;
  // One pass of the ring at most: a NIC that fills it as fast as it is emptied must not hold this call.
  for (uint32_t i = 0; i < entries_ && !retired(); ++i) {
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

void BnxtEvents::dispatch(const CreqEntry& entry) {
  hw::CreqQpError error;
  static_assert(sizeof(error) == sizeof(entry));
  std::memcpy(&error, entry.data(), sizeof(error));
  if ((error.type & hw::kCreqTypeMask) != hw::creq_type::kQpEvent) return keep(events_, entry);
  if (error.event == hw::creq_event::kQpError) {
    const std::string what = describe_qp_error(error.req_err_state_reason, error.res_err_state_reason);
    if (!tell_qp(error.xid, what)) keep(events_, entry);
    return;
  }
  if (error.event == hw::creq_event::kCqError) {
    // This event has its cq_err_reason where the other has its requester's state.
    if (!tell_cq(error.xid, describe_cq_error(error.xid, error.req_slow_path_state))) keep(events_, entry);
    return;
  }
  keep(answers_, entry);
}

std::optional<CreqEntry> BnxtEvents::answer() {
  if (answers_.empty()) service();
  if (answers_.empty()) return std::nullopt;
  CreqEntry entry = answers_.front();
  answers_.pop_front();
  return entry;
}

std::deque<CreqEntry> BnxtEvents::take_events() {
  service();
  return std::exchange(events_, {});
}

}  // namespace userdma::driver
