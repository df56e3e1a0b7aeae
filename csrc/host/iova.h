// Which I/O virtual addresses, or other bus addresses, are free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "host/function.h"

namespace userdma::host {

// First fit over the ranges that the IOMMU takes, from an address on. Addresses freed join their neighbors.
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

  // `bytes` (whole pages) at a multiple of `alignment` (a multiple of the page): the first that fit at or past `from`,
  // else the first of all. Who goes on from where the last one ended uses no address again before all others.
  std::optional<uint64_t> take(uint64_t bytes, uint64_t alignment, uint64_t from = 0) {
    auto first = free_.upper_bound(from);
    if (first != free_.begin()) --first;  // may reach past `from`
    for (auto each = first; each != free_.end(); ++each)
      if (auto at = take_of(each, bytes, alignment, from)) return at;
    if (from == 0) return std::nullopt;
    return take(bytes, alignment);
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
  std::optional<uint64_t> take_of(std::map<uint64_t, uint64_t>::iterator each, uint64_t bytes, uint64_t alignment,
                                  uint64_t from) {
    const auto [begin, size] = *each;
    const uint64_t first = std::max(begin, from);
    const uint64_t at = (first + alignment - 1) / alignment * alignment;
    if (at < first || at - begin > size || size - (at - begin) < bytes) return std::nullopt;
    free_.erase(each);
    if (at != begin) free_[begin] = at - begin;
    if (uint64_t rest = size - (at - begin) - bytes; rest != 0) free_[at + bytes] = rest;
    return at;
  }

  uint64_t page_;
  std::map<uint64_t, uint64_t> free_;  // address, bytes
};

}  // namespace userdma::host
