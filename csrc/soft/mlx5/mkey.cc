#include "soft/mlx5/mkey.h"

#include <algorithm>

#include "soft/mlx5/bytes.h"

namespace userdma::soft::mlx5 {

using transport::Access;
using transport::Spans;
using transport::Status;

namespace {

// What a key that is nowhere gives and takes.
constexpr uint64_t nowhere_bytes = 1 << 16;
const uint8_t zeros[nowhere_bytes] = {};
uint8_t discarded[nowhere_bytes];

// The rights that a key must have for an access by another one, which has checked the peer's.
uint8_t local_need(uint8_t need) {
  return need & (Access::LocalWrite | Access::RemoteWrite | Access::RemoteAtomic) ? Access::LocalWrite : 0;
}

}  // namespace

// The pages as runs: the first begins at `start`, within its page. One that is not there for all purposes: no runs.
void Mkey::lay_out() {
  constexpr uint64_t all = hw::kPageRead | hw::kPageWrite;
  layout_ = Layout::Runs;
  runs_.clear();
  const uint64_t page = uint64_t{1} << spec_.page_shift;
  uint64_t skip = spec_.start & (page - 1);
  for (const uint64_t entry : spec_.pages) {
    uint64_t bytes = page - skip;
    if (!spec_.all) bytes = std::min(bytes, spec_.bytes - runs_.bytes());
    if (!bytes) break;
    if ((entry & all) != all) {
      runs_.clear();
      layout_ = Layout::Paged;
      return;
    }
    runs_.add(bus_of(entry) + skip, bytes);
    skip = 0;
  }
}

Mkey::Reached Mkey::reach_paged(uint64_t va, uint64_t bytes, uint8_t need, Spans& out, uint64_t& covered) {
  out.count = 0;
  covered = 0;
  const uint64_t page = uint64_t{1} << spec_.page_shift;
  const uint64_t wanted = wanted_access(need);  // Dma::Read and Dma::Write are the bits of entries, too
  static_assert(Dma::Read == hw::kPageRead && Dma::Write == hw::kPageWrite);
  uint64_t at = (spec_.start & (page - 1)) + (va - spec_.start);
  while (covered < bytes) {
    const uint64_t index = at >> spec_.page_shift;
    if (index >= spec_.pages.size()) return covered ? Reached::Memory : Reached::Fault;
    const uint64_t entry = spec_.pages[index];
    if ((entry & wanted) != wanted) return covered ? Reached::Memory : Reached::Absent;
    const uint64_t n = std::min(bytes - covered, page - (at & (page - 1)));
    const wire::Span span = dma_.translate(bus_of(entry) + (at & (page - 1)), n, wanted & Dma::Write);
    if (!span.at) return covered ? Reached::Memory : Reached::Fault;
    if (out.count && out.span[out.count - 1].at + out.span[out.count - 1].bytes == span.at) {
      out.span[out.count - 1].bytes += span.bytes;
    } else if (out.count < Spans::max) {
      out.span[out.count++] = span;
    } else {
      break;
    }
    covered += span.bytes;
    at += span.bytes;
  }
  return Reached::Memory;
}

Mkey::Reached Mkey::reach_part(const Mkeys& keys, const Part& part, uint64_t skip, uint64_t bytes, uint8_t need,
                               Spans& out, uint64_t& covered, unsigned depth) {
  if (part.key == hw::kAbsentKey) return Reached::Absent;
  Mkey* other = keys.find(part.key);
  const uint64_t va = part.address + skip;
  need = local_need(need);
  if (!other || other->pd() != spec_.pd || !other->allows(hw::kKeyAnyQp, va, bytes, need)) return Reached::Fault;
  if (other->spec_.mode != MkeySpec::Mode::Pages)
    return other->reach_elsewhere(keys, va, bytes, need, out, covered, depth + 1);
  Spans found;
  uint64_t n = 0;
  if (other->layout_ == Layout::Stale) other->lay_out();
  if (other->layout_ == Layout::Paged) {
    const Reached reached = other->reach_paged(va, bytes, need, found, n);
    if (reached != Reached::Memory) return reached;
  } else if (!other->runs_.reach(va - other->spec_.start, bytes, need, found, n)) {
    return Reached::Fault;
  }
  for (unsigned i = 0; i < found.count && out.count < Spans::max; i++) {
    out.span[out.count++] = found.span[i];
    covered += found.span[i].bytes;
  }
  return Reached::Memory;
}

Mkey::Reached Mkey::reach_elsewhere(const Mkeys& keys, uint64_t va, uint64_t bytes, uint8_t need, Spans& out,
                                    uint64_t& covered, unsigned depth) {
  const uint64_t before = covered;
  const auto left = [&] { return bytes - (covered - before); };
  switch (spec_.mode) {
    case MkeySpec::Mode::Physical: {
      Spans found;
      uint64_t n = 0;
      if (!reach_bus(dma_, va, bytes, need, found, n)) return Reached::Fault;
      for (unsigned i = 0; i < found.count && out.count < Spans::max; i++) {
        out.span[out.count++] = found.span[i];
        covered += found.span[i].bytes;
      }
      return Reached::Memory;
    }
    case MkeySpec::Mode::Null: {
      const bool writes = (need & ~Access::RemoteRead) != 0;
      while (left() && out.count < Spans::max) {
        const uint64_t n = std::min(left(), nowhere_bytes);
        out.span[out.count++] = {writes ? discarded : const_cast<uint8_t*>(zeros), n};
        covered += n;
      }
      return Reached::Memory;
    }
    case MkeySpec::Mode::Pages:
      return Reached::Fault;
    default:
      break;
  }
  if (depth >= depth_limit) return Reached::Fault;
  Reached reached = Reached::Fault;  // past the last part
  const bool fixed = spec_.mode == MkeySpec::Mode::FixedParts;
  const uint64_t size = uint64_t{1} << spec_.page_shift;
  uint64_t skip = va - spec_.start;
  size_t i = 0;
  if (fixed) {
    skip += spec_.start & (size - 1);  // as with pages: the first begins within its entry
    i = skip >> spec_.page_shift;
    skip &= size - 1;
  }
  for (; i < spec_.parts.size() && left() && out.count < Spans::max; i++) {
    const Part& part = spec_.parts[i];
    const uint64_t room = fixed ? size : part.bytes;
    if (skip >= room) {
      skip -= room;
      continue;
    }
    const uint64_t want = std::min(left(), room - skip);
    const uint64_t had = covered;
    reached = reach_part(keys, part, skip, want, need, out, covered, depth);
    if (reached != Reached::Memory) break;
    if (covered - had < want) break;  // no room for more, or a fault past that
    skip = 0;
  }
  // What is reachable before a fault is used first; the next call is about the fault itself.
  return covered != before || !bytes ? Reached::Memory : reached;
}

// ---- UMR
// ---------------------------------------------------------------------------------------------------------------

namespace mask = hw::update_mask;

Status Mkey::update(const hw::UmrSegment& segment, const hw::KeySegment& to, uint32_t key, uint32_t qpn,
                    const uint8_t* list, uint32_t octwords) {
  using Mode = MkeySpec::Mode;
  const uint64_t fields = big(segment.mkey_mask);
  // One that gives the key a new low byte finds it by its index.
  if (!spec_.update || (!(fields & mask::kKey) && key != key_)) return Status::MemoryManagement;
  if (segment.flags & hw::update_flag::kMustBeFree && !spec_.free) return Status::MemoryManagement;
  if (segment.flags & hw::update_flag::kMustNotBeFree && spec_.free) return Status::MemoryManagement;
  if (segment.flags & hw::umr_flag::kCheckQpn && spec_.qpn != qpn) return Status::MemoryManagement;

  if (octwords) {
    uint64_t offset = 0;
    if (segment.flags & hw::update_flag::kOffset) {
      uint32_t high;
      std::memcpy(&high, segment.rsvd1, sizeof high);  // xlt_offset_47_16 of the kernel's header
      offset = big(segment.translation_offset) | uint64_t{big(high)} << 16;
    }
    if (offset > spec_.octwords || octwords > spec_.octwords - offset) return Status::MemoryManagement;
    if (spec_.mode == Mode::Pages) {
      if (spec_.pages.size() < 2 * (offset + octwords)) spec_.pages.resize(2 * (offset + octwords));
      for (uint64_t i = 0; i < 2 * uint64_t{octwords}; i++)
        spec_.pages[2 * offset + i] = big(load<uint64_t>(list + 8 * i));
    } else if (spec_.mode == Mode::Parts || spec_.mode == Mode::FixedParts) {
      if (spec_.parts.size() < offset + octwords) spec_.parts.resize(offset + octwords);
      for (uint64_t i = 0; i < octwords; i++) {
        const auto klm = load<hw::KlmSegment>(list + 16 * i);
        spec_.parts[offset + i] = {big(klm.byte_count), big(klm.mkey), big(klm.address)};
      }
    } else {
      return Status::MemoryManagement;
    }
  }

  const auto right = [&](uint64_t field, uint8_t flag, uint8_t access) {
    if (!(fields & field)) return;
    spec_.access = static_cast<uint8_t>((spec_.access & ~access) | (to.access_flags & flag ? access : 0));
  };
  right(mask::kLocalWrite, hw::key_access::kLocalWrite, Access::LocalWrite);
  right(mask::kRemoteRead, hw::key_access::kRemoteRead, Access::RemoteRead);
  right(mask::kRemoteWrite, hw::key_access::kRemoteWrite, Access::RemoteWrite);
  right(mask::kAtomic, hw::key_access::kAtomic, Access::RemoteAtomic);
  const uint32_t flags = big(to.flags_pd);
  if (fields & mask::kLength) {
    spec_.bytes = big(to.len);
    spec_.all = flags & hw::kKeyLength64;
  }
  if (fields & mask::kStart) spec_.start = big(to.start_addr);
  if (fields & mask::kPageSize) {
    const unsigned shift = to.log_page_size & 0x3f;
    if (shift >= Dma::page_shift && shift <= 40) spec_.page_shift = shift;
  }
  if (fields & mask::kPd) spec_.pd = flags & 0xff'ffff;
  if (fields & mask::kRemoteInvalidate) spec_.remote_invalidate = flags & hw::kKeyRemoteInvalidate;
  if (fields & mask::kQpn) spec_.qpn = big(to.qpn_mkey) >> 8;
  if (fields & mask::kKey) key_ = (key_ & ~0xffu) | (big(to.qpn_mkey) & 0xff);
  if (fields & mask::kFree) spec_.free = to.free & hw::kKeyFree;
  layout_ = Layout::Stale;
  return Status::Ok;
}

// ---- All of them
// --------------------------------------------------------------------------------------------------------------

bool Mkeys::add(std::unique_ptr<Mkey> key) {
  const uint32_t index = key->key() >> 8;
  if (index >= limit) return false;
  if (index >= all_.size()) all_.resize(index + 1);
  if (all_[index]) return false;
  all_[index] = std::move(key);
  size_++;
  return true;
}

void Mkeys::remove(uint32_t key) {
  if (!at_index(key)) return;
  all_[key >> 8].reset();
  size_--;
}

void Mkeys::clear() {
  all_.clear();
  size_ = 0;
}

}  // namespace userdma::soft::mlx5
