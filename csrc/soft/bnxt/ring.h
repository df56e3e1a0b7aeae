// A queue's memory, found through a page table of the chip and the function's translation table.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "soft/dma.h"
#include "soft/ring.h"

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

// The memory of a ring.
class Ring final : public soft::Ring {
 public:
  // Of level 0, it is one stretch of bus addresses, however long and not always on a page. `writes`: the NIC writes it.
  Ring(Dma& dma, PageTable table, uint64_t bytes, bool writes = false)
      : soft::Ring(dma, {}, (table.level ? table.page_shift : one_stretch(bytes)), 0, bytes, writes), table_(table) {}

 private:
  static unsigned one_stretch(uint64_t bytes) { return static_cast<unsigned>(std::bit_width(bytes | 0xfff)); }
  void look_up(uint64_t count, std::vector<uint64_t>& out) override { walk(dma_, table_, count, out); }
  bool table_held(uint64_t generation) const override { return !table_.level || dma_.held(generation, table_.base, 1); }

  const PageTable table_;
};

}  // namespace userdma::soft::bnxt
