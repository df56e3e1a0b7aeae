#include "driver/mlx5_events.h"

#include <cstring>
#include <string>
#include <utility>

#include "driver/reasons.h"
#include "host/big_endian.h"
#include "host/text.h"

namespace userdma::driver {

namespace hw = userdma::hw::mlx5;
using host::big_endian;

namespace {

constexpr uint32_t kNumber = 0xff'ffff;

}  // namespace

std::string describe_mlx5_event(uint8_t type) {
  const std::string number = " (event " + host::hex(type) + ")";
  switch (type) {
    case hw::event::kCatastrophic:
      return std::string(reason::kFailure) + ": a catastrophic error of its work queue" + number;
    case hw::event::kInvalidRequest:
      return std::string(reason::kFailure) + reason::kResponder + reason::kNotTaken + number;
    case hw::event::kAccess:
      return std::string(reason::kFailure) + reason::kResponder + reason::kNoRights + number;
    default:
      return {};
  }
}

Mlx5Events::Mlx5Events(std::shared_ptr<Domain> domain, uint8_t* ring, uint32_t entries, uint32_t eqn,
                       const host::Bar& bar, uint64_t uar)
    : Events(std::move(domain)), ring_(ring), entries_(entries), eqn_(eqn), bar_(bar), uar_(uar) {}

void Mlx5Events::service() {
  bool took = false;
  // One pass of the ring at most: a NIC that fills it as fast as it is emptied must not hold this call.
  for (uint32_t i = 0; i < entries_ && !retired(); ++i) {
    const uint64_t consumer = this->consumer();
    if (!valid(consumer)) break;
    host::load_barrier();
    Entry entry;
    std::memcpy(entry.data(), ring_ + (consumer & (entries_ - 1)) * sizeof(Entry), sizeof(entry));
    consumer_.store(consumer + 1, std::memory_order_relaxed);
    took = true;
    dispatch(entry);
  }
  // The entries are the NIC's again. Nobody sleeps until an interrupt, so none is asked for.
  if (took && !retired())
    bar_.write<uint32_t>(uar_ + hw::kEqTaken, big_endian(static_cast<uint32_t>(consumer() & kNumber) | eqn_ << 24));
}

void Mlx5Events::dispatch(const Entry& entry) {
  hw::Event event;
  std::memcpy(&event, entry.data(), sizeof(event));
  if (event.type == hw::event::kCqError) {
    hw::CqErrorEvent error;
    std::memcpy(&error, event.data, sizeof(error));
    const uint32_t cqn = big_endian(error.cqn) & kNumber;
    if (tell_cq(cqn, "the NIC ended its completion queue " + host::hex(cqn) +
                         (error.syndrome == 1 ? ", which overran" : " (syndrome " + host::hex(error.syndrome) + ")")))
      return;
  } else if (const std::string what = describe_mlx5_event(event.type); !what.empty()) {
    hw::QueueEvent error;
    std::memcpy(&error, event.data, sizeof(error));
    const uint32_t qpn = big_endian(error.qp_srq_n) & kNumber;
    if (tell_qp(qpn, what)) return;
  }
  keep(events_, entry);
}

std::deque<Mlx5Events::Entry> Mlx5Events::take() {
  service();
  return std::exchange(events_, {});
}

}  // namespace userdma::driver
