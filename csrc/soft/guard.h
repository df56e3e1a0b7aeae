// Memory of files that others may cut short at any time: the kernel answers an access past a file's end with SIGBUS,
// and that would be this process's end.
#pragma once

#include <cstddef>

namespace userdma::soft {

// A guarded stretch of a mapping. Where the file no longer is, zeros that nobody else sees take its place, and the
// stretch is lost.
class Guard {
 public:
  static constexpr size_t limit = 4096;  // of all that are alive in the process

  Guard() = default;
  // Of a mapping in pages of `page` bytes, 0 for the system's: of a file of huge pages, a part of one cannot be
  // replaced. `made` says whether there was room for one more.
  Guard(void* at, size_t bytes, size_t page = 0);
  ~Guard();
  Guard(Guard&& other) noexcept : slot_(other.slot_) { other.slot_ = nullptr; }
  Guard& operator=(Guard&&) = delete;

  bool made() const { return slot_; }
  bool lost() const;

 private:
  struct Slot;
  static Slot slots[limit];
  static void on_sigbus(int number, void* info, void* context);
  friend void install();

  Slot* slot_ = nullptr;
};

}  // namespace userdma::soft
