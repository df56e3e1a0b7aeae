#include "soft/bnxt/queues.h"

#include <cstring>

namespace userdma::soft::bnxt {

void Nq::post(const uint8_t entry[16]) {
  if (waiting_.empty() && write(entry)) {
    signal();
    return;
  }
  if (waiting_.size() >= waiting_limit) return;
  std::array<uint8_t, 16> copy;
  std::memcpy(copy.data(), entry, 16);
  waiting_.push_back(copy);
}

bool Nq::write(const uint8_t entry[16]) {
  if (produced_ - consumed_ >= entries_) return false;
  uint8_t* at = ring_.at(produced_ % entries_ * hw::kNqe);
  if (!at) return false;
  uint64_t end;
  std::memcpy(at, entry, 8);
  std::memcpy(&end, entry + 8, 8);
  const bool valid = produced_ / entries_ % 2 == 0;
  end = (end & ~uint64_t{hw::kNqeValid}) | (valid ? hw::kNqeValid : 0);
  std::atomic_ref(*reinterpret_cast<uint64_t*>(at + 8)).store(end, std::memory_order_release);
  produced_++;
  return true;
}

void Nq::signal() {
  if (!armed_) return;
  armed_ = false;
  function_.raise(vector_);
}

void Nq::doorbell(uint32_t word, bool arm) {
  const uint32_t distance = past(word, consumed_, entries_, produced_ - consumed_);
  if (distance == UINT32_MAX) return;
  consumed_ += distance;
  armed_ = arm;
  while (!waiting_.empty() && write(waiting_.front().data())) waiting_.pop_front();
  if (produced_ != consumed_) signal();
}

void Cq::consume() {
  if (resizing_) return;
  const uint32_t word = word_.load(std::memory_order_acquire) ^ epoch_;
  const uint32_t distance = past(word, consumed_, entries_, produced_ - consumed_);
  if (distance != UINT32_MAX) consumed_ += distance;
}

void Cq::arm(uint8_t kind, uint32_t word, uint32_t toggle) {
  if (toggle != toggle_) return;
  if (kind == hw::doorbell_type::kCqArmEnable) {
    enabled_ = true;
    return;  // its index is always 0
  }
  if (!resizing_) word_.store(word, std::memory_order_relaxed);
  consume();
  if (!enabled_) return;
  armed_ = kind == hw::doorbell_type::kCqArmAll ? Arm::All : Arm::Solicited;
  if (armed_ == Arm::All ? produced_ != consumed_ : solicited_ > consumed_) notify();
}

bool Cq::resize(const PageTable& table, uint32_t entries) {
  if (overflowed_ || !room()) return false;
  resize_toggle_ = (resize_toggle_ + 1) & 3;
  const hw::CqCutOff entry{};
  const uint64_t last = uint64_t{hw::cqe_type::kCutOff} << hw::kCqeTypeShift | uint64_t{resize_toggle_}
                                                                                   << hw::kCqeResizeToggleShift;
  if (!post(&entry, last, false)) return false;
  ring_ = std::make_unique<Ring>(dma_, table, uint64_t{entries} * sizeof(hw::CqBase), true);
  entries_ = entries;
  produced_ = consumed_ = solicited_ = 0;
  index_ = 0;
  toggle_bit_ = hw::kCqeToggle;
  resizing_ = true;
  return true;
}

// The doorbell's index counts in the new ring. Its epoch goes on from what the driver had, so that no doorbell looks
// older than the one before (rdma-core, bnxt_re_cq_resize_check): it is that of the new ring's first pass.
void Cq::cut_off(uint32_t word, uint32_t toggle) {
  if (!resizing_ || toggle != resize_toggle_) return;
  resizing_ = false;
  epoch_ = word & static_cast<uint32_t>(hw::kDoorbellEpoch);
  word_.store(word, std::memory_order_relaxed);
  consume();
}

void Cq::notify() {
  armed_ = Arm::No;
  enabled_ = false;
  if (!nq_) return;
  notifications_++;
  toggle_ = (toggle_ + 1) & 3;
  hw::NqCqNotification entry{};
  entry.type = static_cast<uint16_t>(hw::nqe_type::kCqNotification | toggle_ << hw::kNqeToggleShift);
  entry.cq_handle_low = static_cast<uint32_t>(handle_);
  entry.cq_handle_high = static_cast<uint32_t>(handle_ >> 32);
  nq_->post(reinterpret_cast<const uint8_t*>(&entry));
}

}  // namespace userdma::soft::bnxt
