#include "soft/mlx5/shared_receive_queue.h"

#include <algorithm>

namespace userdma::soft::mlx5 {

using transport::Receive;
using transport::Status;
using Next = transport::Rings::Next;

// The list ends at the first segment with the key that is none. A byte count of 0 stands for 2^31.
void read_receive(const uint8_t* segments, unsigned most, Receive& out) {
  out.length = 0;
  out.sges = 0;
  most = std::min(most, transport::max_sges);
  for (unsigned i = 0; i < most; i++) {
    const auto segment = load<hw::DataSegment>(segments + i * sizeof(hw::DataSegment));
    const uint32_t key = big(segment.lkey);
    if (key == hw::kInvalidKey) return;
    const uint32_t bytes = big(segment.byte_count) & ~hw::kInline;
    out.sge[out.sges++] = {big(segment.addr), key, bytes ? bytes : 1u << 31};
    out.length += out.sge[out.sges - 1].bytes;
  }
}

bool Srq::produce() {
  uint32_t word;
  if (!record_.load(hw::record::kReceive, word)) return false;
  const uint32_t distance = (word - produced_) & hw::record::kCounterMask;
  if (distance > (1u << spec_.log_entries) - (produced_ - consumed_)) return false;
  produced_ += distance;
  return true;
}

// The head of the list is entry 0 at first; each says which is next.
Next Srq::next(Receive& out, Status& status) {
  if (broken_) return Next::None;
  if (!produce()) {
    fail();
    return Next::None;
  }
  if (consumed_ == produced_) return Next::None;
  uint8_t buffer[1u << log_stride_limit];
  const uint32_t stride = 1u << spec_.log_stride;
  const uint64_t offset = uint64_t{head_} << spec_.log_stride;
  const uint8_t* at = ring_.flat();
  if (at) [[likely]] {
    at += offset;
  } else {
    if (!ring_.read(offset, buffer, stride)) {
      fail();
      return Next::None;
    }
    at = buffer;
  }
  status = Status::Ok;
  out.handle = head_;
  read_receive(at + sizeof(hw::NextSegment), stride / hw::kSegment - 1, out);
  const uint32_t next = big(load<hw::NextSegment>(at).next_wqe_index);
  consumed_++;
  head_ = next & ((1u << spec_.log_entries) - 1);
  look();
  return Next::Entry;
}

// IBTA 10.2.9.3: the event is due when fewer receives than the limit are left, and ends the limit.
void Srq::look() {
  if (!limit_) return;
  produce();
  if (produced_ - consumed_ >= limit_) return;
  limit_ = 0;
  events_.srq_event(*this, hw::event::kSrqLimit);
}

void Srq::fail() {
  broken_ = true;
  events_.srq_event(*this, hw::event::kSrqCatastrophic);
}

}  // namespace userdma::soft::mlx5
