// Which I/O virtual addresses are free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "host/function.h"

namespace userdma::host {

// First fit over the ranges that the IOMMU takes. Addresses freed join their neighbors.
class IovaAllocator {
 public:
  // `ranges`: address and bytes. Address 0 is never given: too many devices take it for none.
  IovaAllocator(const std::vector<Run>& ranges, uint64_t page) : page_(page) {
    for (const Run& range : ranges) {
      uint64_t begin = std::max(range.address, page);
      uint64_t end = range.address + range.bytes;
      begin = (begin + page - 1) / page * page;
      end = end / page * page;
      if (begin < end) free_[begin] = end - begin;
    }
  }

  // `bytes` (whole pages) at a multiple of `alignment` (a multiple of the page).
  std::optional<uint64_t> take(uint64_t bytes, uint64_t alignment) {
    for (auto each = free_.begin(); each != free_.end(); ++each) {
      auto [begin, size] = *each;
      uint64_t at = (begin + alignment - 1) / alignment * alignment;
      if (at < begin || at - begin > size || size - (at - begin) < bytes) continue;
      free_.erase(each);
      if (at != begin) free_[begin] = at - begin;
      if (uint64_t rest = size - (at - begin) - bytes; rest != 0) free_[at + bytes] = rest;
      return at;
    }
    return std::nullopt;
  }

  void give(uint64_t at, uint64_t bytes) {
    auto next = free_.lower_bound(at);
    if (next != free_.end() && at + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == at) {
        before->second += bytes;
        return;
      }
    }
    free_[at] = bytes;
  }

  uint64_t page() const { return page_; }
  uint64_t available() const {
    uint64_t sum = 0;
    for (const auto& [begin, size] : free_) sum += size;
    return sum;
  }

 private:
  uint64_t page_;
  std::map<uint64_t, uint64_t> free_;  // address, bytes
};

}  // namespace userdma::host
