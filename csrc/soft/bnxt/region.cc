#include "soft/bnxt/region.h"

#include <algorithm>

#include "hw/bnxt.h"

namespace userdma::soft::bnxt {

namespace hw = hw::bnxt;
using transport::Access;

namespace {

// The chip's bits of a region's rights, which are not those of a queue pair's.
uint8_t rights(uint8_t access) {
  return static_cast<uint8_t>((access & hw::mr_access::kLocalWrite ? Access::LocalWrite : 0) |
                              (access & hw::mr_access::kRemoteRead ? Access::RemoteRead : 0) |
                              (access & hw::mr_access::kRemoteWrite ? Access::RemoteWrite : 0) |
                              (access & hw::mr_access::kRemoteAtomic ? Access::RemoteAtomic : 0));
}

}  // namespace

// The table is read now, as a chip caches it: what changes in it later is not seen until the region is registered
// again. That it stays mapped is asked of it all the same.
Region::Region(Dma& dma, uint32_t key, const RegionSpec& spec)
    : dma_(dma), key_(key), spec_(spec), access_(rights(spec.access)), runs_(dma) {
  if (spec_.physical) return;
  const uint64_t page = uint64_t{1} << spec_.table.page_shift;
  const uint64_t skip = spec_.va & (page - 1);  // the region begins within its first page
  std::vector<uint64_t> pages;
  walk(dma_, spec_.table, (skip + spec_.bytes + page - 1) / page, pages);
  for (const uint64_t address : pages) {
    const uint64_t begin = runs_.bytes() ? 0 : skip;
    runs_.add(address + begin, std::min(page - begin, spec_.bytes - runs_.bytes()));
  }
  if (spec_.table.level) runs_.rely_on(spec_.table.base);
}

// What the parent's memory is, cut to the window.
Region::Region(Dma& dma, uint32_t key, const RegionSpec& spec, const Region& parent, uint64_t at)
    : dma_(dma), key_(key), spec_(spec), parent_(parent.key()), access_(rights(spec.access)), runs_(dma) {
  if (parent.spec_.physical) {
    runs_.add(parent.spec_.va + at, spec_.bytes);
  } else {
    runs_.add(parent.runs_, at, spec_.bytes);
  }
}

bool Regions::add(std::unique_ptr<Region> region) {
  const uint32_t index = region->key() >> 8;
  if (index >= limit) return false;
  if (index >= all_.size()) all_.resize(index + 1);
  if (all_[index]) return false;
  all_[index] = std::move(region);
  size_++;
  return true;
}

bool Regions::remove(uint32_t key) {
  if (!find(key)) return false;
  all_[key >> 8].reset();
  size_--;
  for (const auto& [index, claim] : claims_) {
    if (claim.kind == KeyClaim::Kind::FastRegister || index >= all_.size() || !all_[index]) continue;
    if (all_[index]->parent() == key) {
      all_[index].reset();
      size_--;
    }
  }
  return true;
}

void Regions::clear() {
  all_.clear();
  size_ = 0;
  claims_.clear();
}

bool Regions::claim(uint32_t key, const KeyClaim& claim) {
  return key >> 8 < limit && claims_.emplace(key >> 8, claim).second;
}

bool Regions::release(uint32_t key) {
  if (!claims_.erase(key >> 8)) return false;
  if (const Region* region = at_index(key)) remove(region->key());
  return true;
}

}  // namespace userdma::soft::bnxt
