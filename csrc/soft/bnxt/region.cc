#include "soft/bnxt/region.h"

#include <algorithm>

#include "hw/bnxt.h"

namespace userdma::soft::bnxt {

namespace hw = hw::bnxt;
using transport::Access;
using transport::Spans;
using transport::Status;

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
    : dma_(dma), key_(key), spec_(spec), access_(rights(spec.access)) {
  if (spec_.physical) return;
  const uint64_t page = uint64_t{1} << spec_.table.page_shift;
  const uint64_t skip = spec_.va & (page - 1);  // the region begins within its first page
  std::vector<uint64_t> pages;
  walk(dma_, spec_.table, (skip + spec_.bytes + page - 1) / page, pages);
  uint64_t offset = 0;
  for (const uint64_t address : pages) {
    const uint64_t begin = offset ? 0 : skip;
    const uint64_t bytes = std::min(page - begin, spec_.bytes - offset);
    if (!runs_.empty() && runs_.back().bus + runs_.back().bytes == address + begin) {
      runs_.back().bytes += bytes;
    } else {
      runs_.push_back({offset, address + begin, bytes});
    }
    offset += bytes;
  }
}

void Region::resolve() {
  generation_ = dma_.generation();
  flat_ = nullptr;
  pieces_.clear();
  if (spec_.physical) return;
  if (spec_.table.level && !dma_.translate(spec_.table.base, 8).at) return;
  for (const Run& run : runs_) {
    for (uint64_t done = 0; done < run.bytes;) {
      const uint64_t left = run.bytes - done;
      wire::Span span = dma_.translate(run.bus + done, left);
      if (!span.at) span.bytes = std::min(left, Dma::page - ((run.bus + done) & (Dma::page - 1)));
      const bool joins =
          !pieces_.empty() &&
          (span.at ? pieces_.back().at && pieces_.back().at + pieces_.back().bytes == span.at : !pieces_.back().at);
      if (joins) {
        pieces_.back().bytes += span.bytes;
      } else {
        pieces_.push_back({run.offset + done, span.bytes, span.at});
      }
      done += span.bytes;
    }
  }
  if (pieces_.size() == 1 && pieces_[0].at && pieces_[0].bytes == spec_.bytes) flat_ = pieces_[0].at;
}

Status Region::reach_pieces(uint64_t offset, uint64_t bytes, uint8_t need, bool remote, Spans& out, uint64_t& covered) {
  const Status fault = remote ? Status::RemoteAccess : Status::LocalProtection;
  out.count = 0;
  covered = 0;
  if (spec_.physical) {
    uint64_t bus = spec_.va + offset;
    while (covered < bytes && out.count < Spans::max) {
      const wire::Span span = dma_.translate(bus, bytes - covered, need & ~Access::RemoteRead);
      if (!span.at) return covered ? Status::Ok : fault;
      out.span[out.count++] = span;
      covered += span.bytes;
      bus += span.bytes;
    }
    return Status::Ok;
  }
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](uint64_t at, const Piece& p) { return at < p.offset + p.bytes; });
  uint64_t skip = piece == pieces_.end() ? 0 : offset - piece->offset;
  for (; piece != pieces_.end() && covered < bytes && out.count < Spans::max; ++piece, skip = 0) {
    if (!piece->at) break;
    const uint64_t n = std::min(bytes - covered, piece->bytes - skip);
    out.span[out.count++] = {piece->at + skip, n};
    covered += n;
  }
  // What is reachable before a fault is used first; the next call is about the fault itself.
  return covered || !bytes ? Status::Ok : fault;
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
  return true;
}

void Regions::clear() {
  all_.clear();
  size_ = 0;
}

}  // namespace userdma::soft::bnxt
