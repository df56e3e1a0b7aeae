// The lock of a NIC: a word, cheap while nobody else wants it. Waiters spin for a short while, for what is done
// under it is short, and then sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace userdma::soft {

class Lock {
 public:
  bool try_lock() {
    uint32_t free = 0;
    return word_.load(std::memory_order_relaxed) == 0 &&
           word_.compare_exchange_strong(free, Taken, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock() {
    uint32_t free = 0;
    if (!word_.compare_exchange_strong(free, Taken, std::memory_order_acquire, std::memory_order_relaxed)) [[unlikely]]
      lock_slow();
  }
  void unlock() {
    if (word_.exchange(0, std::memory_order_release) == Contended) [[unlikely]]
      wake();
  }

 private:
  enum : uint32_t { Taken = 1, Contended = 2 };

  void lock_slow();
  void wake();

  std::atomic<uint32_t> word_{0};
};

}  // namespace userdma::soft
