// A queue's memory, found through a page table of the chip and the function's translation table.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "soft/dma.h"

namespace userdma::soft::bnxt {

// Where a queue or a region lies: one page (level 0), a table of PTEs (1), a table of PDEs (2). hw/bnxt.h.
struct PageTable {
  uint64_t base = 0;
  unsigned level = 0;
  unsigned page_shift = 12;   // of the pages that the PTEs name
  unsigned table_shift = 12;  // of the tables below a PDE
};

// The bus addresses of the first `count` pages. Stops early where the table ends, is not valid or cannot be read:
// what is missing at the end of `out` is a fault.
void walk(Dma& dma, const PageTable& table, uint64_t count, std::vector<uint64_t>& out);

// The memory of a ring. Its pages are looked up again only when mappings have ended since, so that a look at an entry
// is a comparison and an addition.
class Ring {
 public:
  // Of level 0, it is one stretch of bus addresses, however long and not always on a page.
  Ring(Dma& dma, PageTable table, uint64_t bytes) : dma_(dma), table_(one_stretch(table, bytes)), bytes_(bytes) {}

  // The byte at `offset` and those after it up to the end of its page. Null: a fault.
  uint8_t* at(uint64_t offset) {
    if (generation_ != dma_.generation()) [[unlikely]]
      resolve();
    if (flat_) [[likely]]
      return flat_ + offset;
    const uint64_t page = offset >> table_.page_shift;
    if (page >= pages_.size() || !pages_[page]) return nullptr;
    return pages_[page] + (offset & ((uint64_t{1} << table_.page_shift) - 1));
  }

  // All of it in one piece, or null.
  uint8_t* flat() {
    if (generation_ != dma_.generation()) [[unlikely]]
      resolve();
    return flat_;
  }

  // Copies `bytes` at `offset`, across pages. False: a fault.
  bool read(uint64_t offset, void* into, size_t bytes);

  uint64_t bytes() const { return bytes_; }

 private:
  static PageTable one_stretch(PageTable table, uint64_t bytes) {
    if (table.level == 0) table.page_shift = static_cast<unsigned>(std::bit_width(bytes | 0xfff));
    return table;
  }
  void resolve();

  Dma& dma_;
  const PageTable table_;
  const uint64_t bytes_;
  uint64_t generation_ = 0;
  uint8_t* flat_ = nullptr;
  std::vector<uint8_t*> pages_;
};

}  // namespace userdma::soft::bnxt
