#include "soft/futex.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire {

bool Bell::wait(uint64_t nanoseconds) { return futex_wait(word_, 1, nanoseconds, shared_); }

bool Bell::wake() {
  if (word_.exchange(0, std::memory_order_acq_rel) == 0) return false;
  futex_wake(word_, 1, shared_);
  return true;
}

}  // namespace userdma::soft::wire
