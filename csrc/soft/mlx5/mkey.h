// Memory keys: who may reach which memory, and where it is. A key's memory is bus addresses, pages (MTT) or parts of
// other keys' memory (KLM, KSM); work queue entries change keys that allow it (UMR).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hw/mlx5.h"
#include "hw/mlx5_device.h"
#include "soft/dma.h"
#include "soft/runs.h"
#include "soft/transport/types.h"

namespace userdma::soft::mlx5 {

namespace hw = userdma::hw::mlx5;

// A part of another key's memory.
struct Part {
  uint64_t bytes;  // of a KLM
  uint32_t key;
  uint64_t address;
};

struct MkeySpec {
  enum class Mode : uint8_t { Physical, Pages, Parts, FixedParts, Null };

  uint32_t pd = 0;
  uint8_t access = 0;  // transport::Access; its memory may always be read locally
  Mode mode = Mode::Pages;
  uint64_t start = 0;
  uint64_t bytes = 0;
  bool all = false;          // length64: whatever the list describes; of bus addresses, all
  unsigned page_shift = 12;  // of an entry of pages or fixed parts
  uint32_t octwords = 0;     // of the list: two pages or one part each
  uint32_t qpn = 0xff'ffff;  // of the only queue pair that may use it
  bool update = false;       // entries may change it
  bool free = false;         // nothing is under it
  bool remote_invalidate = false;
  bool paged = false;  // `pages` say which of them are there (hw::kPageRead, hw::kPageWrite); otherwise all are
  std::vector<uint64_t> pages;  // with these bits
  std::vector<Part> parts;
};

class Mkeys;

class Mkey {
 public:
  Mkey(Dma& dma, uint32_t key, MkeySpec spec) : dma_(dma), key_(key), spec_(std::move(spec)), runs_(dma) {}

  uint32_t key() const { return key_; }
  uint32_t pd() const { return spec_.pd; }
  const MkeySpec& spec() const { return spec_; }

  // As transport::Rings::reach, but for the protection domain.
  transport::Status reach(const Mkeys& keys, uint32_t qpn, uint64_t va, uint64_t bytes, uint8_t need, bool remote,
                          transport::Spans& out, uint64_t& covered) {
    if (!allows(qpn, va, bytes, need)) [[unlikely]]
      return fault(remote);
    if (spec_.mode == MkeySpec::Mode::Pages) [[likely]] {
      if (layout_ != Layout::Runs) [[unlikely]] {
        if (layout_ == Layout::Stale) lay_out();
        if (layout_ == Layout::Paged) return status(reach_paged(va, bytes, need, out, covered), remote);
      }
      return runs_.reach(va - spec_.start, bytes, need, out, covered) ? transport::Status::Ok : fault(remote);
    }
    if (spec_.mode == MkeySpec::Mode::Physical)
      return reach_bus(dma_, va, bytes, need, out, covered) ? transport::Status::Ok : fault(remote);
    out.count = 0;
    covered = 0;
    return status(reach_elsewhere(keys, va, bytes, need, out, covered, 0), remote);
  }

  // What an entry of queue pair `qpn` asks for; `list` are the octwords that it brings.
  transport::Status update(const hw::UmrSegment& update, const hw::KeySegment& to, uint32_t key, uint32_t qpn,
                           const uint8_t* list, uint32_t octwords);
  void invalidate() { spec_.free = true; }

  // Calls `visit(memory, bytes)` for the process memory that may have been reached by it.
  template <class Visit>
  void each_piece(const Mkeys& keys, Visit&& visit) const;

 private:
  static constexpr unsigned depth_limit = 4;  // of parts of parts

  // How pages are kept: as runs where all of them are there, one by one otherwise.
  enum class Layout : uint8_t { Runs, Paged, Stale };
  // What is at the first byte of a range.
  enum class Reached : uint8_t { Memory, Absent, Fault };

  static transport::Status status(Reached reached, bool remote) {
    return reached == Reached::Memory   ? transport::Status::Ok
           : reached == Reached::Absent ? transport::Status::Absent
                                        : fault(remote);
  }
  // Where the page of an entry is: the low bits say something else.
  uint64_t bus_of(uint64_t entry) const { return entry & ~uint64_t{0xfff} & ~((uint64_t{1} << spec_.page_shift) - 1); }
  static transport::Status fault(bool remote) {
    return remote ? transport::Status::RemoteAccess : transport::Status::LocalProtection;
  }
  bool allows(uint32_t qpn, uint64_t va, uint64_t bytes, uint8_t need) const {
    if ((need & ~spec_.access) || spec_.free || (spec_.qpn != hw::kKeyAnyQp && spec_.qpn != qpn)) return false;
    return spec_.all || (va >= spec_.start && bytes <= spec_.bytes && va - spec_.start <= spec_.bytes - bytes);
  }
  void lay_out();
  Reached reach_paged(uint64_t va, uint64_t bytes, uint8_t need, transport::Spans& out, uint64_t& covered);
  template <class Visit>
  void each_page(Visit&& visit) const;
  // Adds to `out` and `covered`.
  Reached reach_elsewhere(const Mkeys& keys, uint64_t va, uint64_t bytes, uint8_t need, transport::Spans& out,
                          uint64_t& covered, unsigned depth);
  Reached reach_part(const Mkeys& keys, const Part& part, uint64_t skip, uint64_t bytes, uint8_t need,
                     transport::Spans& out, uint64_t& covered, unsigned depth);

  Dma& dma_;
  uint32_t key_;
  MkeySpec spec_;
  Runs runs_;
  Layout layout_ = Layout::Stale;  // runs_ is not what pages say
};

// By key: the index in its upper 24 bits finds one, and the whole key must be its own.
class Mkeys {
 public:
  static constexpr uint32_t limit = 1 << 20;  // indices

  Mkey* find(uint32_t key) const {
    Mkey* found = at_index(key);
    return found && found->key() == key ? found : nullptr;
  }
  Mkey* at_index(uint32_t key) const { return key >> 8 < all_.size() ? all_[key >> 8].get() : nullptr; }
  bool add(std::unique_ptr<Mkey> key);  // false: the index is taken, or over the limit
  void remove(uint32_t key);
  void clear();
  size_t size() const { return size_; }

 private:
  std::vector<std::unique_ptr<Mkey>> all_;
  size_t size_ = 0;
};

template <class Visit>
void Mkey::each_piece(const Mkeys& keys, Visit&& visit) const {
  each_page(visit);
  for (const Part& part : spec_.parts) {
    // Of keys that are made of others, only those may have been reached: they do it themselves when they go.
    if (const Mkey* other = keys.find(part.key)) other->each_page(visit);
  }
}

// A paged key keeps nothing of what was reached: all that is there may have been.
template <class Visit>
void Mkey::each_page(Visit&& visit) const {
  runs_.each_piece(visit);
  if (layout_ != Layout::Paged) return;
  const uint64_t page = uint64_t{1} << spec_.page_shift;
  Dma::Piece joined{};
  for (const uint64_t entry : spec_.pages) {
    if (!(entry & (hw::kPageRead | hw::kPageWrite))) continue;
    for (uint64_t bus = bus_of(entry), end = bus + page; bus < end;) {
      const Dma::Piece piece = dma_.look(bus, end - bus);
      bus += piece.bytes;
      if (!piece.at) continue;
      if (joined.at && joined.at + joined.bytes == piece.at) {
        joined.bytes += piece.bytes;
      } else {
        if (joined.at) visit(joined.at, joined.bytes);
        joined = piece;
      }
    }
  }
  if (joined.at) visit(joined.at, joined.bytes);
}

}  // namespace userdma::soft::mlx5
