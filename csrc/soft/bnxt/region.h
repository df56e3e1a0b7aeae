// Memory regions and their keys: who may reach which memory, and where it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "soft/bnxt/ring.h"
#include "soft/dma.h"
#include "soft/runs.h"
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
  // A window: the bytes at `at` of the parent region, under a key and with rights of their own.
  Region(Dma& dma, uint32_t key, const RegionSpec& spec, const Region& parent, uint64_t at);

  uint32_t key() const { return key_; }
  const RegionSpec& spec() const { return spec_; }
  uint32_t pd() const { return spec_.pd; }
  // Whether its page table described all of it.
  bool complete() const { return spec_.physical || (spec_.bytes && runs_.bytes() == spec_.bytes); }
  // Of a window: the key of the region that it shows.
  std::optional<uint32_t> parent() const { return parent_; }

  // Calls `visit(memory, bytes)` for the process memory that may have been reached.
  template <class Visit>
  void each_piece(Visit&& visit) const {
    runs_.each_piece(visit);
  }

  // As transport::Rings::reach, but for the protection domain.
  transport::Status reach(uint64_t va, uint64_t bytes, uint8_t need, bool remote, transport::Spans& out,
                          uint64_t& covered) {
    if ((need & ~access_) || va < spec_.va || bytes > spec_.bytes || va - spec_.va > spec_.bytes - bytes) [[unlikely]]
      return remote ? transport::Status::RemoteAccess : transport::Status::LocalProtection;
    const bool there = spec_.physical ? reach_bus(dma_, va, bytes, need, out, covered)
                                      : runs_.reach(va - spec_.va, bytes, need, out, covered);
    if (there) [[likely]]
      return transport::Status::Ok;
    return remote ? transport::Status::RemoteAccess : transport::Status::LocalProtection;
  }

 private:
  Dma& dma_;
  const uint32_t key_;
  const RegionSpec spec_;
  const std::optional<uint32_t> parent_;
  uint8_t access_;  // transport::Access
  Runs runs_;
};

// Whose key it is, where consumers register, bind and invalidate under it by entries of a send queue.
struct KeyClaim {
  enum class Kind : uint8_t { FastRegister, Window1, Window2 };
  Kind kind = Kind::FastRegister;
  uint32_t pd = 0;
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
  bool remove(uint32_t key);                 // and the windows on it
  void clear();
  size_t size() const { return size_; }

  // The key's index, whatever its low byte is, which is the consumer's to choose (IBTA 10.6.3.3).
  bool claim(uint32_t key, const KeyClaim& claim);  // false: it is claimed already
  bool release(uint32_t key);                       // false: it is not claimed
  const KeyClaim* claimed(uint32_t key) const {
    const auto found = claims_.find(key >> 8);
    return found == claims_.end() ? nullptr : &found->second;
  }
  // What is registered or bound under the key's index, under whichever key.
  Region* at_index(uint32_t key) const { return key >> 8 < all_.size() ? all_[key >> 8].get() : nullptr; }

 private:
  std::vector<std::unique_ptr<Region>> all_;
  size_t size_ = 0;
  std::unordered_map<uint32_t, KeyClaim> claims_;  // by index
};

}  // namespace userdma::soft::bnxt
