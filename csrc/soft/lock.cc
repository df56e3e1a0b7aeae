#include "soft/lock.h"

#include "soft/futex.h"

namespace userdma::soft {
namespace {

constexpr unsigned spins = 200;
constexpr unsigned patience = 2;  // times to be woken and find it taken again

}  // namespace

void Lock::lock_slow() {
  for (unsigned i = 0; i < spins; ++i) {
    if (try_lock()) return;
    relax();
  }
  unsigned lost = 0;
  uint32_t word = word_.load(std::memory_order_relaxed);
  for (;;) {
    if (word == Free || word == Granted) {
      // Others may sleep too, so it is contended.
      if (word_.compare_exchange_weak(word, Contended, std::memory_order_acquire, std::memory_order_relaxed)) return;
      continue;
    }
    const uint32_t mark = lost >= patience || word == Starving ? Starving : Contended;
    if (word != mark && !word_.compare_exchange_weak(word, mark, std::memory_order_relaxed)) continue;
    futex_wait(word_, mark, UINT64_MAX, false);
    ++lost;
    word = word_.load(std::memory_order_relaxed);
  }
}

void Lock::unlock_slow() {
  // Waiters change it from Contended to Starving meanwhile.
  uint32_t word = Contended;
  if (!word_.compare_exchange_strong(word, Free, std::memory_order_release, std::memory_order_relaxed))
    word_.store(Granted, std::memory_order_release);
  futex_wake(word_, 1, false);
}

}  // namespace userdma::soft
