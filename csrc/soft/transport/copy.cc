// Payload to memory: span by span, one copy.
#include <algorithm>
#include <cstring>

#include "soft/transport/pair.h"

namespace userdma::soft::transport {

namespace {

// The few bytes of a small message without a call. A message may go to where it comes from, in part.
inline void copy_bytes(uint8_t* to, const uint8_t* from, uint64_t n) {
  if (n > 16 || n < 8) {
    if (n > 0) std::memmove(to, from, n);
    return;
  }
  uint64_t first, last;
  std::memcpy(&first, from, 8);
  std::memcpy(&last, from + n - 8, 8);
  std::memcpy(to, &first, 8);
  std::memcpy(to + n - 8, &last, 8);
}

}  // namespace

Status copy_in(Rings& rings, uint32_t key, uint64_t va, uint64_t bytes, uint8_t need, bool remote, const Span* payload,
               size_t spans, uint64_t from) {
  const Span* const end = payload + spans;
  while (payload != end && from >= payload->bytes) from -= (payload++)->bytes;
  Spans to;
  while (bytes > 0) {
    uint64_t covered = 0;
    const Status status = rings.reach(key, va, bytes, need, remote, to, covered);
    if (status != Status::Ok) return status;
    if (covered == 0) return remote ? Status::RemoteAccess : Status::LocalProtection;
    if (to.count == 1 && covered == bytes && payload != end && payload->bytes - from >= bytes) [[likely]] {
      copy_bytes(to.span[0].at, payload->at + from, bytes);
      return Status::Ok;
    }
    for (unsigned i = 0; i < to.count; i++) {
      uint8_t* at = to.span[i].at;
      uint64_t left = to.span[i].bytes;
      while (left > 0) {
        if (payload == end) return Status::Ok;  // a wire that gave fewer bytes than it said
        const uint64_t n = std::min(left, payload->bytes - from);
        copy_bytes(at, payload->at + from, n);
        at += n;
        left -= n;
        from += n;
        if (from == payload->bytes) {
          payload++;
          from = 0;
        }
      }
    }
    va += covered;
    bytes -= covered;
  }
  return Status::Ok;
}

Status scatter(Rings& rings, const Sge* sge, unsigned sges, uint64_t offset, uint64_t bytes, const Span* payload,
               size_t spans) {
  if (sges == 1 && offset + bytes <= sge->bytes) [[likely]]
    return copy_in(rings, sge->key, sge->va + offset, bytes, Access::LocalWrite, false, payload, spans, 0);
  uint64_t from = 0;
  for (unsigned i = 0; i < sges && bytes > 0; i++) {
    if (offset >= sge[i].bytes) {
      offset -= sge[i].bytes;
      continue;
    }
    const uint64_t n = std::min<uint64_t>(bytes, sge[i].bytes - offset);
    const Status status =
        copy_in(rings, sge[i].key, sge[i].va + offset, n, Access::LocalWrite, false, payload, spans, from);
    if (status != Status::Ok) return status;
    offset = 0;
    from += n;
    bytes -= n;
  }
  return bytes == 0 ? Status::Ok : Status::LocalLength;
}

}  // namespace userdma::soft::transport
