#include "soft/runs.h"

#include <algorithm>

namespace userdma::soft {

using transport::Spans;

bool reach_bus(Dma& dma, uint64_t bus, uint64_t bytes, uint8_t need, Spans& out, uint64_t& covered) {
  out.count = 0;
  covered = 0;
  while (covered < bytes && out.count < Spans::max) {
    const wire::Span span = dma.translate(bus, bytes - covered, (need & ~transport::RemoteRead) != 0);
    if (!span.at) return covered != 0;
    out.span[out.count++] = span;
    covered += span.bytes;
    bus += span.bytes;
  }
  return true;
}

void Runs::add(const Runs& of, uint64_t at, uint64_t bytes) {
  for (const Run& run : of.runs_) {
    if (run.offset + run.bytes <= at || !bytes) continue;
    const uint64_t skip = at > run.offset ? at - run.offset : 0;
    const uint64_t n = std::min(run.bytes - skip, bytes);
    add(run.bus + skip, n);
    at += n;
    bytes -= n;
  }
}

void Runs::clear() {
  runs_.clear();
  pieces_.clear();
  bytes_ = generation_ = 0;
  flat_ = nullptr;
  whole_ = false;
}

bool Runs::held() const {
  const auto held = [&](uint64_t bus, uint64_t bytes) { return dma_.held(generation_, bus, bytes); };
  return whole_ && (!table_ || held(*table_, 1)) &&
         std::all_of(runs_.begin(), runs_.end(), [&](const Run& run) { return held(run.bus, run.bytes); });
}

void Runs::resolve() {
  const bool as_before = held();
  generation_ = dma_.generation();
  if (as_before) return;
  whole_ = false;
  flat_ = nullptr;
  pieces_.clear();
  if (table_ && !dma_.translate(*table_, 8).at) return;
  whole_ = true;
  for (const Run& run : runs_) {
    for (uint64_t done = 0; done < run.bytes;) {
      const uint64_t left = run.bytes - done;
      const Dma::Piece found = dma_.look(run.bus + done, left);
      if (!found.at) {
        dma_.translate(run.bus + done, 1);  // counts the fault
        whole_ = false;
      }
      const bool joins =
          !pieces_.empty() && pieces_.back().access == found.access &&
          (found.at ? pieces_.back().at && pieces_.back().at + pieces_.back().bytes == found.at : !pieces_.back().at);
      if (joins) {
        pieces_.back().bytes += found.bytes;
      } else {
        pieces_.push_back({run.offset + done, found.bytes, found.at, found.access});
      }
      done += found.bytes;
    }
  }
  if (pieces_.size() == 1 && pieces_[0].access == Dma::ReadWrite) flat_ = pieces_[0].at;
}

bool Runs::reach_pieces(uint64_t offset, uint64_t bytes, uint8_t need, Spans& out, uint64_t& covered) {
  out.count = 0;
  covered = 0;
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](uint64_t at, const Piece& p) { return at < p.offset + p.bytes; });
  uint64_t skip = piece == pieces_.end() ? 0 : offset - piece->offset;
  const unsigned wanted = wanted_access(need);
  for (; piece != pieces_.end() && covered < bytes && out.count < Spans::max; ++piece, skip = 0) {
    if ((piece->access & wanted) != wanted) break;
    const uint64_t n = std::min(bytes - covered, piece->bytes - skip);
    out.span[out.count++] = {piece->at + skip, n};
    covered += n;
  }
  // What is reachable before a fault is used first; the next call is about the fault itself.
  return covered || !bytes;
}

}  // namespace userdma::soft
