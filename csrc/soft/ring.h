// A queue's memory: pages of bus addresses, found through the function's translation table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "soft/dma.h"

namespace userdma::soft {

// Its memory is looked up again only when mappings have ended since, so that a look at an entry is a comparison and an
// addition.
class Ring {
 public:
  // In pages of 1 << page_shift bytes, from byte `begin` of the first on. A single page may begin anywhere. `writes`:
  // the NIC writes it.
  Ring(Dma& dma, std::vector<uint64_t> pages, unsigned page_shift, uint64_t begin, uint64_t bytes, bool writes = false)
      : dma_(dma),
        page_shift_(page_shift),
        bytes_(bytes),
        writes_(writes),
        given_begin_(begin),
        pages_(std::move(pages)) {}
  virtual ~Ring() = default;

  // The byte at `offset` and those after it up to the next multiple of 4 KiB at least, as bus addresses count. Null: a
  // fault.
  uint8_t* at(uint64_t offset) {
    if (generation_ != dma_.generation()) [[unlikely]]
      resolve();
    if (flat_) [[likely]]
      return flat_ + offset;
    const uint64_t place = begin_ + offset, granule = place >> Dma::page_shift;
    if (granule >= granules_.size() || !granules_[granule]) return nullptr;
    return granules_[granule] + (place & (Dma::page - 1));
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

 protected:
  // Where the pages stand in a table that the NIC reads: reads the first `count` of them.
  virtual void look_up(uint64_t, std::vector<uint64_t>&) {}
  // Whether that table is where it was.
  virtual bool table_held(uint64_t) const { return true; }

  Dma& dma_;

 private:
  void resolve();
  bool held() const;  // what ended since was elsewhere

  const unsigned page_shift_;
  const uint64_t bytes_;
  const bool writes_;
  const uint64_t given_begin_;
  uint64_t generation_ = 0;
  uint8_t* flat_ = nullptr;
  bool whole_ = false;  // nothing was missing when it was looked for
  std::vector<uint64_t> pages_;
  uint64_t begin_ = 0;              // of the ring in the first granule
  std::vector<uint8_t*> granules_;  // of 4 KiB: where each is; null: a fault
};

}  // namespace userdma::soft
