#include "soft/bnxt/shared_receive_queue.h"

#include <algorithm>
#include <cstring>

namespace userdma::soft::bnxt {

using transport::Receive;
using transport::Status;
using Next = transport::Rings::Next;

Next read_receive(const uint8_t* wqe, uint32_t stride, Receive& out, uint32_t& wr_id) {
  constexpr uint32_t header_slots = sizeof(hw::ReceiveHeader) / hw::kSlot;
  hw::ReceiveHeader header;
  std::memcpy(&header, wqe, sizeof header);
  wr_id = header.wr_id[0] & hw::kWrIdMask;
  if (header.wqe_type != hw::wqe_type::kReceive || header.wqe_size < header_slots) return Next::Bad;
  // A receive of no SGEs has an empty one (qplib_fp.c, bnxt_qplib_post_recv), also where the ring has no room for it.
  const uint32_t room = static_cast<uint32_t>(stride / hw::kSlot) - header_slots;
  const uint32_t sges = header.wqe_size - header_slots;
  if (sges > std::max(room, 1u)) return Next::Bad;
  out.length = 0;
  out.sges = 0;
  for (uint32_t i = 0; i < std::min(sges, room); i++) {
    hw::Sge sge;
    std::memcpy(&sge, wqe + sizeof header + i * sizeof sge, sizeof sge);
    if (!sge.size) continue;
    out.sge[out.sges++] = {sge.va_or_pa, sge.l_key, sge.size};
    out.length += sge.size;
  }
  return Next::Entry;
}

void Srq::produce() {
  const uint32_t word = word_.load(std::memory_order_acquire);
  const uint32_t distance = past(word, produced_, spec_.entries, spec_.entries);
  if (distance != UINT32_MAX) produced_ += distance;
}

Next Srq::next(Receive& out, Status& status) {
  produce();
  if (consumed_ == produced_) return Next::None;
  uint8_t wqe[stride];
  const uint64_t offset = consumed_ % spec_.entries * stride;
  consumed_++;
  status = Status::LocalQpOperation;
  const bool there = ring_.read(offset, wqe, stride);
  const Next next = there ? read_receive(wqe, stride, out, out.handle) : Next::Bad;
  look();
  return next;
}

void Srq::arm(uint32_t limit, uint32_t toggle) {
  if (toggle != toggle_ || !enabled_) return;
  limit_ = limit;
  armed_ = limit != 0;
  look();
}

void Srq::enable(uint32_t toggle) {
  if (toggle == toggle_) enabled_ = true;
}

// IBTA 10.2.9.3: the event is due when fewer receives than the limit are left, and ends the limit.
void Srq::look() {
  if (!armed_) return;
  produce();
  if (produced_ - consumed_ >= limit_) return;
  armed_ = enabled_ = false;
  toggle_ = (toggle_ + 1) & 3;
  if (!nq_) return;
  hw::NqSrqEvent event{};
  event.type = static_cast<uint8_t>(hw::nqe_type::kSrqEvent | toggle_ << hw::kNqeToggleShift);
  event.event = hw::kSrqThresholdEvent;
  event.srq_handle_low = static_cast<uint32_t>(spec_.handle);
  event.srq_handle_high = static_cast<uint32_t>(spec_.handle >> 32);
  nq_->post(reinterpret_cast<const uint8_t*>(&event));
}

}  // namespace userdma::soft::bnxt
