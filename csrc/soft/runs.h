// Memory as a list of runs of bus addresses, and where in the process it is: what a memory region is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "soft/dma.h"
#include "soft/transport/types.h"

namespace userdma::soft {

// What an access with these rights (transport::Access) does to memory.
inline Dma::Access wanted_access(uint8_t need) {
  using transport::Access;
  return need & Access::RemoteAtomic                         ? Dma::ReadWrite
         : need & (Access::LocalWrite | Access::RemoteWrite) ? Dma::Write
                                                             : Dma::Read;
}

// The memory of [bus, bus + bytes), from its beginning as far as it fits in `out`. False: a fault at its first byte.
bool reach_bus(Dma& dma, uint64_t bus, uint64_t bytes, uint8_t need, transport::Spans& out, uint64_t& covered);

class Runs {
 public:
  struct Run {
    uint64_t offset;
    uint64_t bus;
    uint64_t bytes;
  };

  explicit Runs(Dma& dma) : dma_(dma) {}

  // After those before it.
  void add(uint64_t bus, uint64_t bytes) {
    if (!bytes) return;
    if (!runs_.empty() && runs_.back().bus + runs_.back().bytes == bus) {
      runs_.back().bytes += bytes;
    } else {
      runs_.push_back({bytes_, bus, bytes});
    }
    bytes_ += bytes;
    generation_ = 0;
    whole_ = false;
  }
  // The `bytes` at `at` of other runs.
  void add(const Runs& of, uint64_t at, uint64_t bytes);
  // A page table that was read, and must stay mapped: without it, everything is a fault.
  void rely_on(uint64_t table) { table_ = table; }
  void clear();

  uint64_t bytes() const { return bytes_; }

  // Calls `visit(memory, bytes)` for the process memory that may have been reached.
  template <class Visit>
  void each_piece(Visit&& visit) const {
    for (const Piece& piece : pieces_) {
      if (piece.at) visit(piece.at, piece.bytes);
    }
  }

  // The memory of [offset, offset + bytes) as far as it fits in `out`. False: a fault at its first byte.
  bool reach(uint64_t offset, uint64_t bytes, uint8_t need, transport::Spans& out, uint64_t& covered) {
    if (generation_ != dma_.generation()) [[unlikely]]
      resolve();
    if (flat_ && bytes <= bytes_ && offset <= bytes_ - bytes) [[likely]] {
      out.count = 1;
      out.span[0] = {flat_ + offset, bytes};
      covered = bytes;
      return true;
    }
    return reach_pieces(offset, bytes, need, out, covered);
  }

 private:
  struct Piece {  // of process memory
    uint64_t offset;
    uint64_t bytes;
    uint8_t* at;  // null: a fault
    Dma::Access access;
  };

  void resolve();
  bool held() const;  // what ended since was elsewhere
  bool reach_pieces(uint64_t offset, uint64_t bytes, uint8_t need, transport::Spans& out, uint64_t& covered);

  Dma& dma_;
  std::optional<uint64_t> table_;
  uint64_t bytes_ = 0;
  uint64_t generation_ = 0;
  bool whole_ = false;       // nothing was missing when it was looked for
  uint8_t* flat_ = nullptr;  // all of it in one piece
  std::vector<Run> runs_;
  std::vector<Piece> pieces_;
};

}  // namespace userdma::soft
