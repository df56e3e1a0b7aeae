// Payload to memory: span by span, one copy.
#include <algorithm>
#include <cstring>

#include "soft/transport/pair.h"

namespace userdma::soft::transport {

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
    for (unsigned i = 0; i < to.count; i++) {
      uint8_t* at = to.span[i].at;
      uint64_t left = to.span[i].bytes;
      while (left > 0) {
        if (payload == end) return Status::Ok;  // a wire that gave fewer bytes than it said
        const uint64_t n = std::min(left, payload->bytes - from);
        std::memcpy(at, payload->at + from, n);
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
