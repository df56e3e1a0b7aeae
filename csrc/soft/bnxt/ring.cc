#include "soft/bnxt/ring.h"

#include <algorithm>
#include <cstring>

#include "hw/bnxt.h"

namespace userdma::soft::bnxt {

namespace hw = hw::bnxt;

namespace {

// The valid entries at the start of a table of at most `count`, as addresses.
bool read_table(Dma& dma, uint64_t base, uint64_t count, std::vector<uint64_t>& out) {
  for (uint64_t i = 0; i < count;) {
    const wire::Span span = dma.translate(base + 8 * i, 8 * (count - i));
    if (!span.at || span.bytes < 8) return false;
    for (uint64_t j = 0; j < span.bytes / 8; j++, i++) {
      uint64_t entry;
      std::memcpy(&entry, span.at + 8 * j, 8);
      if (!(entry & hw::kPteValid)) return false;
      out.push_back(entry & hw::kPteAddressMask);
    }
  }
  return true;
}

}  // namespace

void walk(Dma& dma, const PageTable& table, uint64_t count, std::vector<uint64_t>& out) {
  out.clear();
  const uint64_t per_table = (uint64_t{1} << table.table_shift) / 8;
  if (table.level == 0) {
    out.push_back(table.base);
  } else if (table.level == 1) {
    read_table(dma, table.base, std::min(count, per_table), out);
  } else {
    std::vector<uint64_t> tables;
    read_table(dma, table.base, (count + per_table - 1) / per_table, tables);
    for (const uint64_t base : tables) {
      if (!read_table(dma, base, std::min(per_table, count - out.size()), out)) break;
    }
  }
}

bool Ring::read(uint64_t offset, void* into, size_t bytes) {
  auto* to = static_cast<uint8_t*>(into);
  const uint64_t page = uint64_t{1} << table_.page_shift;
  while (bytes) {
    const uint8_t* from = at(offset);
    if (!from || offset >= bytes_) return false;
    const size_t n = std::min<uint64_t>(bytes, flat_ ? bytes : page - (offset & (page - 1)));
    std::memcpy(to, from, n);
    to += n;
    offset += n;
    bytes -= n;
  }
  return true;
}

void Ring::resolve() {
  generation_ = dma_.generation();
  flat_ = nullptr;
  pages_.clear();
  const uint64_t page = uint64_t{1} << table_.page_shift;
  const uint64_t count = (bytes_ + page - 1) >> table_.page_shift;
  std::vector<uint64_t> addresses;
  walk(dma_, table_, count, addresses);
  bool flat = addresses.size() == count;
  uint64_t left = bytes_;
  for (const uint64_t address : addresses) {
    const uint64_t need = std::min(left, page);
    const wire::Span span = dma_.translate(address, need);
    pages_.push_back(span.bytes == need ? span.at : nullptr);
    flat = flat && pages_.back() && pages_.back() == pages_.front() + (bytes_ - left);
    left -= need;
  }
  if (flat) flat_ = pages_.front();
}

}  // namespace userdma::soft::bnxt
