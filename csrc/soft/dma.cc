#include "soft/dma.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace userdma::soft {
namespace {

std::string hex(uint64_t value) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), digits[value & 15]);
  while (value >>= 4);
  return "0x" + text;
}

}  // namespace

Dma::Dma() : top_(std::make_unique<Node>()) {}

Dma::~Dma() {
  const Extent* last = nullptr;
  destroy(*top_, levels - 1, last);
  delete last;
}

void Dma::map(uint64_t bus, void* at, uint64_t bytes) {
  constexpr uint64_t limit = uint64_t{1} << address_bits;
  if (bus % page || reinterpret_cast<uintptr_t>(at) % page)
    throw std::invalid_argument("Dma::map: not on a page: " + hex(bus));
  if (bytes == 0 || bytes > limit || bus > limit - bytes)
    throw std::invalid_argument("Dma::map: no such bus addresses: " + hex(bus));
  bytes = (bytes + page - 1) & ~(page - 1);
  if (!empty(*top_, levels - 1, bus, bus + bytes))
    throw std::invalid_argument("Dma::map: already mapped in part: " + hex(bus));
  place(*top_, levels - 1, bus, bus + bytes, new Extent{bus, static_cast<uint8_t*>(at), bytes});
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
    clear(*top_, levels - 1, extent->bus, extent->bus + extent->bytes);
    pages_ -= extent->bytes >> page_shift;
    delete extent;
  }
}

bool Dma::read(uint64_t bus, void* into, uint64_t bytes) {
  auto* to = static_cast<uint8_t*>(into);
  while (bytes) {
    wire::Span span = translate(bus, bytes, false);
    if (!span.at) return false;
    std::memcpy(to, span.at, span.bytes);
    to += span.bytes;
    bus += span.bytes;
    bytes -= span.bytes;
  }
  return true;
}

bool Dma::write(uint64_t bus, const void* from, uint64_t bytes) {
  auto* at = static_cast<const uint8_t*>(from);
  while (bytes) {
    wire::Span span = translate(bus, bytes, true);
    if (!span.at) return false;
    std::memcpy(span.at, at, span.bytes);
    at += span.bytes;
    bus += span.bytes;
    bytes -= span.bytes;
  }
  return true;
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
