// Memory of this process, pinned for a soft device: the device reaches the pages that held the bytes when the pin was
// taken, whatever the process maps there later.
//
// A process cannot name its own pages, so the pin takes a second mapping of them. Shared mappings have one for the
// asking (mremap with an old size of zero). Private pages are moved into a file of shared memory that is mapped in
// their place, at the same address and with the same bytes; a forked child gets its own copy back, as it was at the
// fork. While they move, no other thread may write them. Memory of an arena is held as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "soft/allocation.h"
#include "soft/memory.h"

namespace userdma::soft {

class PinnedStore;  // of pages that were moved

class Pinned {
 public:
  struct Piece {
    uint8_t* at;  // where the device's side of the bytes is mapped
    size_t bytes;
  };

  // The `bytes` at `address`, both whole pages. Throws host::MemoryError that names what cannot be pinned: nothing
  // mapped, read-only memory, a thread's stack, a file that ends before.
  static std::unique_ptr<Pinned> take(void* address, size_t bytes);

  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  explicit Pinned(PinnedStore& store) : store_(store) {}

  PinnedStore& store_;
  std::vector<Piece> pieces_;
  std::vector<Piece> aliases_;  // own mappings, to be unmapped
  std::vector<uint8_t*> moved_;
  std::vector<std::shared_ptr<Allocation>> held_;
};

// Segments of moved memory, made known to an arena so that its wire can let a peer read them in place.
class PinnedSegments {
 public:
  explicit PinnedSegments(Arena& arena) : arena_(arena) {}
  ~PinnedSegments();
  void add(const Pinned& pinned);
  void remove(const Pinned& pinned);

 private:
  struct Known {
    uint8_t* base;
    unsigned uses;
  };
  Arena& arena_;
  std::vector<Known> known_;
};

}  // namespace userdma::soft
