// The lock of a NIC, made for the case that nobody else wants it: it is given back by a plain store, for an atomic
// exchange would wait until all stores before it have arrived, and those are packets on their way to another core.
//
// Waiters spin for a short while, for what is done under it is short, and then sleep. One that has lost the race for
// it several times gets it next: a thread that takes it again and again does not keep the others out.
#pragma once

#include <atomic>
#include <cstdint>

namespace userdma::soft {

class Lock {
 public:
  bool try_lock() {
    return word_.load(std::memory_order_relaxed) == 0 && starving_.load(std::memory_order_relaxed) == 0 && take();
  }
  void lock() {
    if (starving_.load(std::memory_order_relaxed) || !take()) [[unlikely]]
      lock_slow();
  }
  void unlock() {
    word_.store(0, std::memory_order_release);
    // A waiter may be overlooked that has just come; it looks again by itself soon.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_relaxed)) [[unlikely]]
      wake();
  }
  // Whether others wait for it.
  bool contended() const { return waiters_.load(std::memory_order_relaxed) != 0; }

 private:
  bool take() {
    uint32_t free = 0;
    return word_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock_slow();
  void wake();

  std::atomic<uint32_t> word_{0};  // 1: taken
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> starving_{0};  // 1: a waiter gets it before all others
};

}  // namespace userdma::soft
