#include "soft/bnxt/ring.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "hw/bnxt.h"

namespace userdma::soft::bnxt {

namespace hw = hw::bnxt;

namespace {

// The valid entries at the start of a table of at most `count`, as addresses.
bool read_table(Dma& dma, uint64_t base, uint64_t count, std::vector<uint64_t>& out) {
  std::array<uint64_t, Dma::page / 8> entries;
  while (count) {
    // Up to the end of a page: what follows may not be there, and may not be needed.
    const uint64_t n = std::clamp<uint64_t>((Dma::page - base % Dma::page) / 8, 1, count);
    if (!dma.read(base, entries.data(), 8 * n)) return false;
    for (uint64_t i = 0; i < n; i++) {
      if (!(entries[i] & hw::kPteValid)) return false;
      out.push_back(entries[i] & hw::kPteAddressMask);
    }
    base += 8 * n;
    count -= n;
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

}  // namespace userdma::soft::bnxt
