// Memory regions and their keys: who may reach which memory, and where it is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "soft/bnxt/ring.h"
#include "soft/dma.h"
#include "soft/transport/types.h"

namespace userdma::soft::bnxt {

struct RegionSpec {
  uint32_t pd = 0;
  uint64_t va = 0;
  uint64_t bytes = 0;
  uint8_t access = 0;  // hw/bnxt.h mr_access
  PageTable table;
  bool physical = false;  // addresses are bus addresses; no table
};

class Region {
 public:
  Region(Dma& dma, uint32_t key, const RegionSpec& spec);

  uint32_t key() const { return key_; }
  uint32_t pd() const { return spec_.pd; }

  // Calls `visit(memory, bytes)` for the process memory that may have been reached.
  template <class Visit>
  void each_piece(Visit&& visit) const {
    for (const Piece& piece : pieces_) {
      if (piece.at) visit(piece.at, piece.bytes);
    }
  }

  // As transport::Rings::reach, but for the protection domain.
  transport::Status reach(uint64_t va, uint64_t bytes, uint8_t need, bool remote, transport::Spans& out,
                          uint64_t& covered) {
    if ((need & ~access_) || va < spec_.va || bytes > spec_.bytes || va - spec_.va > spec_.bytes - bytes) [[unlikely]]
      return remote ? transport::Status::RemoteAccess : transport::Status::LocalProtection;
    if (generation_ != dma_.generation()) [[unlikely]]
      resolve();
    const uint64_t offset = va - spec_.va;
    if (flat_) [[likely]] {
      out.count = 1;
      out.span[0] = {flat_ + offset, bytes};
      covered = bytes;
      return transport::Status::Ok;
    }
    return reach_pieces(offset, bytes, need, remote, out, covered);
  }

 private:
  struct Run {  // of bus addresses, from the table
    uint64_t offset;
    uint64_t bus;
    uint64_t bytes;
  };
  struct Piece {  // of process memory
    uint64_t offset;
    uint64_t bytes;
    uint8_t* at;  // null: a fault
  };

  void resolve();
  transport::Status reach_pieces(uint64_t offset, uint64_t bytes, uint8_t need, bool remote, transport::Spans& out,
                                 uint64_t& covered);

  Dma& dma_;
  const uint32_t key_;
  const RegionSpec spec_;
  uint8_t access_;  // transport::Access
  uint64_t generation_ = 0;
  uint8_t* flat_ = nullptr;  // all of it in one piece
  std::vector<Run> runs_;
  std::vector<Piece> pieces_;
};

// Regions by key: the index in the key's upper 24 bits finds it, and the whole key must be its own.
class Regions {
 public:
  static constexpr uint32_t limit = 1 << 20;  // indices

  Region* find(uint32_t key) const {
    const uint32_t index = key >> 8;
    if (index >= all_.size()) [[unlikely]]
      return nullptr;
    Region* region = all_[index].get();
    return region && region->key() == key ? region : nullptr;
  }
  bool add(std::unique_ptr<Region> region);  // false: the index is taken, or over the limit
  bool remove(uint32_t key);
  void clear();
  size_t size() const { return size_; }

 private:
  std::vector<std::unique_ptr<Region>> all_;
  size_t size_ = 0;
};

}  // namespace userdma::soft::bnxt
