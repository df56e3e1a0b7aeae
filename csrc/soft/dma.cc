#include "soft/dma.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "host/text.h"

namespace userdma::soft {
namespace {

using host::hex;

}  // namespace

Dma::Dma() : top_(std::make_unique<Node>()) {}

Dma::~Dma() {
  const Extent* last = nullptr;
  destroy(*top_, levels - 1, last);
  delete last;
}

void Dma::map(uint64_t bus, void* at, uint64_t bytes, Access access) {
  if (reinterpret_cast<uintptr_t>(at) % page) throw std::invalid_argument("Dma::map: not on a page: " + hex(bus));
  map({bus, static_cast<uint8_t*>(at), bytes, access, nullptr});
}

void Dma::map_remote(uint64_t bus, Remote& remote, uint64_t bytes, Access access) {
  map({bus, nullptr, bytes, access, &remote});
}

void Dma::map(const Extent& extent) {
  constexpr uint64_t limit = uint64_t{1} << address_bits;
  const uint64_t bus = extent.bus;
  if (bus % page) throw std::invalid_argument("Dma::map: not on a page: " + hex(bus));
  if (extent.bytes == 0 || extent.bytes > limit || bus > limit - extent.bytes)
    throw std::invalid_argument("Dma::map: no such bus addresses: " + hex(bus));
  const uint64_t bytes = (extent.bytes + page - 1) & ~(page - 1);
  if (!empty(*top_, levels - 1, bus, bus + bytes))
    throw std::invalid_argument("Dma::map: already mapped in part: " + hex(bus));
  auto* placed = new Extent(extent);
  placed->bytes = bytes;
  place(*top_, levels - 1, bus, bus + bytes, placed);
  pages_ += bytes >> page_shift;
}

void Dma::unmap(uint64_t bus, uint64_t bytes) {
  uint64_t end = bus + ((bytes + page - 1) & ~(page - 1));
  if (bus % page || end < bus) throw std::invalid_argument("Dma::unmap: not on a page: " + hex(bus));
  std::vector<const Extent*> found;
  for (uint64_t at = bus; at < end;) {
    const Extent* extent = find(at);
    if (!extent) {
      at += page;
      continue;
    }
    if (extent->bus < bus || extent->bus + extent->bytes > end)
      throw std::invalid_argument("Dma::unmap: part of a mapping: " + hex(at));
    found.push_back(extent);
    at = extent->bus + extent->bytes;
  }
  last_ = &nothing_;
  ++generation_;
  for (const Extent* extent : found) {
    const uint64_t first = extent->bus >> granule_shift, last = (extent->bus + extent->bytes - 1) >> granule_shift;
    if (last - first >= granules) all_ended_ = generation_;
    for (uint64_t i = first; i <= last && last - first < granules; i++) ended_[i % granules] = generation_;
    clear(*top_, levels - 1, extent->bus, extent->bus + extent->bytes);
    pages_ -= extent->bytes >> page_shift;
    delete extent;
  }
}

bool Dma::read(uint64_t bus, void* into, uint64_t bytes) {
  auto* to = static_cast<uint8_t*>(into);
  return each_piece(
      bus, bytes, false,
      [&](const uint8_t* at, uint64_t n) {
        std::memcpy(to, at, n);
        to += n;
      },
      [&](Remote& remote, uint64_t at, uint64_t n) {
        const bool done = remote.read(at, to, n);
        to += n;
        return done;
      });
}

bool Dma::write(uint64_t bus, const void* from, uint64_t bytes) {
  const auto* at = static_cast<const uint8_t*>(from);
  return each_piece(
      bus, bytes, true,
      [&](uint8_t* to, uint64_t n) {
        std::memcpy(to, at, n);
        at += n;
      },
      [&](Remote& remote, uint64_t to, uint64_t n) {
        const bool done = remote.write(to, at, n);
        at += n;
        return done;
      });
}

template <class Local, class Elsewhere>
bool Dma::each_piece(uint64_t bus, uint64_t bytes, bool write, Local&& local, Elsewhere&& elsewhere) {
  while (bytes) {
    const Extent* extent = look_up(bus, write);
    const uint64_t n = extent ? std::min(bytes, extent->bytes - (bus - extent->bus)) : 0;
    if (extent && extent->at) {
      local(extent->at + (bus - extent->bus), n);
    } else if (!extent || !elsewhere(*extent->remote, bus, n)) {
      fault(bus, write);
      return false;
    }
    bus += n;
    bytes -= n;
  }
  return true;
}

bool Dma::held(uint64_t generation, uint64_t bus, uint64_t bytes) const {
  if (all_ended_ > generation) return false;
  const uint64_t first = bus >> granule_shift, last = (bus + std::max<uint64_t>(bytes, 1) - 1) >> granule_shift;
  if (last - first >= granules) return false;
  for (uint64_t i = first; i <= last; i++) {
    if (ended_[i % granules] > generation) return false;
  }
  return true;
}

Dma::Piece Dma::look(uint64_t bus, uint64_t bytes) const {
  const Extent* extent = enabled_ ? find(bus) : nullptr;
  if (!extent || !extent->at) return {nullptr, std::min(bytes, page - bus % page), None};
  const uint64_t offset = bus - extent->bus;
  return {extent->at + offset, std::min(bytes, extent->bytes - offset), extent->access};
}

const Dma::Extent* Dma::look_up(uint64_t bus, bool write) {
  const Extent* extent = enabled_ ? find(bus) : nullptr;
  if (!extent || !(extent->access & (write ? Write : Read))) return nullptr;
  if (extent->at && extent->access == ReadWrite) last_ = extent;
  return extent;
}

const Dma::Extent* Dma::find(uint64_t bus) const {
  if (bus >> address_bits) return nullptr;
  const Node* node = top_.get();
  for (unsigned level = levels - 1;; --level) {
    Entry entry = node->entry[(bus >> shift_of(level)) & (fanout - 1)];
    if (entry & 1) return reinterpret_cast<const Extent*>(entry & ~Entry{1});
    if (!entry || level == 0) return nullptr;
    node = reinterpret_cast<const Node*>(entry);
  }
}

void Dma::fault(uint64_t bus, bool write) {
  ++faults_;
  last_fault_ = {bus, write};
}

// Puts `extent` at [from, to), which lies in what `node` stands for.
void Dma::place(Node& node, unsigned level, uint64_t from, uint64_t to, Extent* extent) {
  uint64_t step = uint64_t{1} << shift_of(level);
  while (from < to) {
    Entry& entry = node.entry[(from >> shift_of(level)) & (fanout - 1)];
    uint64_t end = std::min(to, (from & ~(step - 1)) + step);
    if (end - from == step && level < levels - 1 && !entry) {
      entry = reinterpret_cast<Entry>(extent) | 1;
      ++node.used;
    } else {
      if (!entry) {
        entry = reinterpret_cast<Entry>(new Node);
        ++node.used;
        ++nodes_;
      }
      place(*reinterpret_cast<Node*>(entry), level - 1, from, end, extent);
    }
    from = end;
  }
}

// Empties [from, to), and frees the nodes that hold nothing any more.
void Dma::clear(Node& node, unsigned level, uint64_t from, uint64_t to) {
  uint64_t step = uint64_t{1} << shift_of(level);
  while (from < to) {
    Entry& entry = node.entry[(from >> shift_of(level)) & (fanout - 1)];
    uint64_t end = std::min(to, (from & ~(step - 1)) + step);
    if (entry && !(entry & 1)) {
      auto* below = reinterpret_cast<Node*>(entry);
      clear(*below, level - 1, from, end);
      if (below->used == 0) {
        delete below;
        entry = 0;
        --node.used;
        --nodes_;
      }
    } else if (entry) {
      entry = 0;
      --node.used;
    }
    from = end;
  }
}

bool Dma::empty(const Node& node, unsigned level, uint64_t from, uint64_t to) {
  uint64_t step = uint64_t{1} << shift_of(level);
  while (from < to) {
    Entry entry = node.entry[(from >> shift_of(level)) & (fanout - 1)];
    uint64_t end = std::min(to, (from & ~(step - 1)) + step);
    if (entry && ((entry & 1) || !empty(*reinterpret_cast<const Node*>(entry), level - 1, from, end))) return false;
    from = end;
  }
  return true;
}

// Frees the nodes below, and the extents but the last one met: its entries follow one another, maybe in the next node.
void Dma::destroy(Node& node, unsigned level, const Extent*& last) {
  for (Entry entry : node.entry) {
    if (!entry) continue;
    if (entry & 1) {
      auto* extent = reinterpret_cast<const Extent*>(entry & ~Entry{1});
      if (extent != last) delete last;
      last = extent;
    } else {
      auto* below = reinterpret_cast<Node*>(entry);
      destroy(*below, level - 1, last);
      delete below;
    }
  }
}

}  // namespace userdma::soft
