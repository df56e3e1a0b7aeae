#include "driver/uverbs_events.h"

#include <string>

#include "driver/reasons.h"
#include "host/text.h"
#include "hw/uverbs.h"

namespace userdma::driver {

namespace {

// "" for what ends no pair.
std::string describe(uint32_t type) {
  namespace event = hw::uverbs::event;
  switch (type) {
    case event::kQpFatal:
      return std::string(reason::kFailure) + ": a catastrophic error of its work queue (event QP_FATAL)";
    case event::kQpRequestError:
      return std::string(reason::kFailure) + reason::kResponder + reason::kNotTaken + " (event QP_REQ_ERR)";
    case event::kQpAccessError:
      return std::string(reason::kFailure) + reason::kResponder + reason::kNoRights + " (event QP_ACCESS_ERR)";
    default:
      return {};
  }
}

}  // namespace

void UverbsEvents::take(int milliseconds) {
  if (retired()) return;
  for (const host::Uverbs::Event& event : device_->take_events(milliseconds)) {
    if (retired()) return;
    dispatch(event);
  }
}

void UverbsEvents::dispatch(const host::Uverbs::Event& event) const {
  const auto found = names_.find(event.element);
  if (found == names_.end()) return;
  const auto [kind, number] = found->second;
  if (kind == Kind::QueuePair) {
    if (const std::string what = describe(event.type); !what.empty()) tell_qp(number, what);
  } else if (event.type == hw::uverbs::event::kCqError) {
    tell_cq(number, "the NIC ended its completion queue " + host::hex(number));
  }
}

}  // namespace userdma::driver
