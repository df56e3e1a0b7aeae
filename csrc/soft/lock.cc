#include "soft/lock.h"

#include <thread>

#include "soft/futex.h"

namespace userdma::soft {

void Lock::lock_slow() {
  for (int spins = 0; spins < 200; ++spins) {
    if (try_lock()) return;
    relax();
  }
  // From here on the word says that somebody may sleep, also when this thread gets it.
  while (word_.exchange(Contended, std::memory_order_acquire) != 0) futex_wait(word_, Contended, UINT64_MAX, false);
}

void Lock::wake() {
  futex_wake(word_, 1, false);
  // Lest a thread that takes the lock again and again keeps the others out: they need a processor first.
  std::this_thread::yield();
}

}  // namespace userdma::soft
