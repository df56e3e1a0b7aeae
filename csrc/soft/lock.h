// The lock of a NIC: a word, cheap while nobody else wants it. Waiters spin for a short while, for what is done
// under it is short, and then sleep. One that has lost the race for it several times gets it next: a thread that
// takes it again and again does not keep the others out.
#pragma once

#include <atomic>
#include <cstdint>

namespace userdma::soft {

class Lock {
 public:
  bool try_lock() {
    uint32_t free = Free;
    return word_.load(std::memory_order_relaxed) == Free &&
           word_.compare_exchange_strong(free, Taken, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock() {
    uint32_t free = Free;
    if (!word_.compare_exchange_strong(free, Taken, std::memory_order_acquire, std::memory_order_relaxed)) [[unlikely]]
      lock_slow();
  }
  void unlock() {
    uint32_t taken = Taken;
    if (!word_.compare_exchange_strong(taken, Free, std::memory_order_release, std::memory_order_relaxed)) [[unlikely]]
      unlock_slow();
  }

 private:
  enum : uint32_t {
    Free,
    Taken,
    Contended,  // taken, and somebody may sleep
    Starving,   // taken, and somebody has waited for long
    Granted,    // free, for those only who wait already
  };

  void lock_slow();
  void unlock_slow();

  std::atomic<uint32_t> word_{Free};
};

}  // namespace userdma::soft
