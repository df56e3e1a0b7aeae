#include "soft/ring.h"

#include <algorithm>
#include <cstring>

namespace userdma::soft {

bool Ring::read(uint64_t offset, void* into, size_t bytes) {
  auto* to = static_cast<uint8_t*>(into);
  while (bytes) {
    const uint8_t* from = at(offset);
    if (!from || offset >= bytes_) return false;
    const uint64_t piece = Dma::page - ((begin_ + offset) & (Dma::page - 1));
    const size_t n = std::min<uint64_t>(bytes, flat_ ? bytes : piece);
    std::memcpy(to, from, n);
    to += n;
    offset += n;
    bytes -= n;
  }
  return true;
}

bool Ring::held() const {
  if (!whole_ || !table_held(generation_)) return false;
  const uint64_t page = uint64_t{1} << page_shift_;
  return std::all_of(pages_.begin(), pages_.end(), [&](uint64_t address) {
    return dma_.held(generation_, address, std::min(given_begin_ + bytes_, page));
  });
}

void Ring::resolve() {
  const bool as_before = held();
  generation_ = dma_.generation();
  if (as_before) return;
  flat_ = nullptr;
  granules_.clear();
  const uint64_t page = uint64_t{1} << page_shift_;
  const uint64_t count = (given_begin_ + bytes_ + page - 1) >> page_shift_;
  look_up(count, pages_);
  whole_ = pages_.size() >= count;

  // What lies together in a page of the device's may not in the process's memory: it is looked up by granules. `at`
  // counts from the granule that the first page begins in.
  constexpr uint64_t granule = Dma::page;
  const bool one = count <= 1;
  const uint64_t begin = given_begin_ + (one && !pages_.empty() ? pages_[0] % granule : 0);
  const uint64_t end = begin + bytes_;
  begin_ = begin % granule;
  for (uint64_t at = begin - begin_; at < end;) {
    const uint64_t index = one ? 0 : at >> page_shift_;
    wire::Span span{nullptr, 0};
    if (index < pages_.size()) {
      const uint64_t bus = pages_[index] - pages_[index] % granule + (one ? at : at & (page - 1));
      const uint64_t left = (one ? end : std::min(end, (index + 1) << page_shift_)) - at;
      span = dma_.translate(bus, left, writes_);
      if (span.bytes < left) span.bytes -= span.bytes % granule;
    }
    if (!span.bytes) {
      whole_ = false;
      granules_.push_back(nullptr);
      at += granule;
      continue;
    }
    for (uint64_t done = 0; done < span.bytes; done += granule) granules_.push_back(span.at + done);
    at += (span.bytes + granule - 1) / granule * granule;
  }
  if (!whole_) return;
  for (size_t i = 1; i < granules_.size(); i++) {
    if (granules_[i] != granules_[0] + i * granule) return;
  }
  if (!granules_.empty()) flat_ = granules_[0] + begin_;
}

}  // namespace userdma::soft
