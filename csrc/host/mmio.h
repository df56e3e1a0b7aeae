// A mapped BAR and a doorbell in it: loads and stores, and nothing else on hardware.
//
// A soft function may add hooks: one run after a store, one run before a load. They are null on hardware, so a
// driver pays one never-taken branch for them and cannot otherwise tell the two apart.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace userdma::host {

struct Hooks {
  // After `width` bytes (1, 2, 4 or 8) of `value` were stored at `offset` of BAR `bar`.
  void (*stored)(void* self, int bar, uint64_t offset, uint64_t value, unsigned width) = nullptr;
  // Before a load of `width` bytes, so that a register whose value is live can be brought up to date.
  void (*loading)(void* self, int bar, uint64_t offset, unsigned width) = nullptr;
  void* self = nullptr;
};

// What came before in program order is visible to the device before the store that follows.
inline void store_barrier() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_release);  // x86: stores to write-back then uncached memory stay in order
#endif
}

// Loads that follow are not satisfied before the load that came before (a valid or owner bit).
inline void load_barrier() {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

// One 64-bit doorbell register.
struct Doorbell {
  volatile uint64_t* at = nullptr;
  Hooks hooks{};
  int bar = 0;
  uint64_t offset = 0;

  void ring(uint64_t value) const {
    store_barrier();
    *at = value;
    if (hooks.stored) [[unlikely]]
      hooks.stored(hooks.self, bar, offset, value, 8);
  }
};

class Bar {
 public:
  Bar() = default;
  Bar(int index, uint8_t* base, size_t size, Hooks hooks = {})
      : index_(index), base_(base), size_(size), hooks_(hooks) {}

  int index() const { return index_; }
  uint8_t* base() const { return base_; }
  size_t size() const { return size_; }

  // Offsets are the caller's to check (the Python binding does).
  template <class T>
  T read(uint64_t offset) const {
    if (hooks_.loading) [[unlikely]]
      hooks_.loading(hooks_.self, index_, offset, sizeof(T));
    T value = *reinterpret_cast<volatile T*>(base_ + offset);
    load_barrier();
    return value;
  }
  template <class T>
  void write(uint64_t offset, T value) const {
    store_barrier();
    *reinterpret_cast<volatile T*>(base_ + offset) = value;
    if (hooks_.stored) [[unlikely]]
      hooks_.stored(hooks_.self, index_, offset, value, sizeof(T));
  }
  Doorbell doorbell(uint64_t offset) const {
    return Doorbell{reinterpret_cast<volatile uint64_t*>(base_ + offset), hooks_, index_, offset};
  }

 private:
  int index_ = -1;
  uint8_t* base_ = nullptr;
  size_t size_ = 0;
  Hooks hooks_{};
};

}  // namespace userdma::host
