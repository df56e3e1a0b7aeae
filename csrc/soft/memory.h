// The memory of one soft machine that its devices reach: shared segments, so that a wire can let a peer process read
// a payload where it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace userdma::soft {

// A file of memory that is mapped in this process. `id` is never used twice in a process.
struct Segment {
  int fd;
  uint32_t id;
  uint8_t* base;
  size_t size;
  uint64_t offset;  // in the file, of `base`
  // What tells the file from another that has the same descriptor (fstat).
  uint64_t device;
  uint64_t inode;
};

// Page-granular, zeroed memory out of sparse memfds. Any thread may call anything.
class Arena {
 public:
  // `limit`: the most bytes that are allocated at once; 0: as many as the machine has.
  explicit Arena(uint64_t limit = 0);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // New, zeroed memory of `bytes` rounded up to pages, on a page. Throws host::MemoryError.
  uint8_t* alloc(size_t bytes);
  // Gives back what alloc gave (the same bytes, rounded or not).
  void free(uint8_t* at, size_t bytes);

  // Memory from elsewhere that is a shared mapping of a file: `size` bytes at `base` show the file from `offset`.
  // The arena duplicates `fd`. Until abandon(base), find knows it. Overlaps nothing that is known already.
  void adopt(int fd, uint64_t offset, uint8_t* base, size_t size);
  void abandon(uint8_t* base);

  // The segment that holds the byte at `at`, or null. It stays valid until what lies there is freed or abandoned.
  const Segment* find(const void* at) const;

  uint64_t allocated() const;  // bytes, in whole pages; adopted ones not included
  static size_t page() { return page_; }

 private:
  static const size_t page_;

  struct Block {
    Segment segment;
    bool adopted;
    std::map<size_t, size_t> free;  // offset -> bytes, apart from each other
    size_t used;
  };

  Block& make_block(size_t bytes);
  void drop_block(std::map<uintptr_t, Block>::iterator block);

  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;  // by the end of the block
  const uint64_t limit_;
  uint64_t allocated_ = 0;
};

}  // namespace userdma::soft
