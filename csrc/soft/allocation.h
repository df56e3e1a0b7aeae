// Memory out of an arena that somebody holds: the function that allocated it, and whoever pinned it meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "soft/memory.h"

namespace userdma::soft {

class Allocation {
 public:
  // New, zeroed, whole pages. Throws host::MemoryError.
  static std::shared_ptr<Allocation> make(std::shared_ptr<Arena> arena, size_t bytes);

  // The allocation of any function in this process that holds the byte at `at`, or null.
  static std::shared_ptr<Allocation> find(const void* at);
  // Where the first allocation above `at` begins, or `limit` if none begins before it.
  static uintptr_t next(uintptr_t at, uintptr_t limit);

  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const Arena& arena() const { return *arena_; }

 private:
  Allocation(std::shared_ptr<Arena> arena, uint8_t* data, size_t size)
      : arena_(std::move(arena)), data_(data), size_(size) {}

  std::shared_ptr<Arena> arena_;
  uint8_t* data_;
  size_t size_;
};

}  // namespace userdma::soft
