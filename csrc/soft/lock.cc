#include "soft/lock.h"

#include <climits>

#include "soft/futex.h"

namespace userdma::soft {
namespace {

constexpr unsigned spins = 200;
constexpr unsigned patience = 3;      // times to have slept and find it taken
constexpr uint64_t sleep_ns = 50000;  // see unlock
constexpr uint64_t starving_ns = 10000;

}  // namespace

void Lock::lock_slow() {
  for (unsigned i = 0; i < spins; ++i) {
    if (try_lock()) return;
    relax();
  }
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  bool first = false;  // this is the one that starves
  for (unsigned lost = 0;; ++lost) {
    if (first ? take() : try_lock()) break;
    uint32_t none = 0;
    if (lost >= patience && !first) first = starving_.compare_exchange_strong(none, 1, std::memory_order_relaxed);
    futex_wait(word_, 1, first ? starving_ns : sleep_ns, false);
    // Free, but for the one that starves: its time is near.
    if (!first && word_.load(std::memory_order_relaxed) == 0 && starving_.load(std::memory_order_relaxed))
      futex_wait(starving_, 1, sleep_ns, false);
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  if (first) {
    starving_.store(0, std::memory_order_relaxed);
    futex_wake(starving_, INT_MAX, false);
  }
}

void Lock::wake() { futex_wake(word_, starving_.load(std::memory_order_relaxed) ? INT_MAX : 1, false); }

}  // namespace userdma::soft
