#include "soft/mlx5/queues.h"

namespace userdma::soft::mlx5 {

namespace {

constexpr uint32_t counter_mask = 0xff'ffff;  // of the counters of event queues and completion queues

}  // namespace

// A ConnectX that has an event and no room for it ends its function (health syndrome 0xc, EQ_ERR). This one keeps many
// until there is room: what its drivers lose by a queue that is too small, they do not see here.
void Eq::post(uint8_t type, uint8_t subtype, const uint8_t data[sizeof(hw::Event::data)]) {
  hw::Event event{};
  event.type = type;
  event.sub_type = subtype;
  std::memcpy(event.data, data, sizeof event.data);
  if (waiting_.empty() && write(event)) {
    signal();
    return;
  }
  if (waiting_.size() < waiting_limit) waiting_.push_back(event);
}

// The driver makes all entries its device's with an owner bit of 1 (MLX5_EQE_OWNER_INIT_VAL), so that the first pass
// writes 0.
bool Eq::write(const hw::Event& event) {
  if (produced_ - consumed_ >= uint64_t{1} << log_) return false;
  uint8_t* at = ring_.at((produced_ & ((uint64_t{1} << log_) - 1)) * sizeof event);
  if (!at) return false;
  hw::Event whole = event;
  whole.owner = produced_ >> log_ & 1;
  const auto* from = reinterpret_cast<const uint8_t*>(&whole);
  std::memcpy(at, from, 56);
  std::atomic_ref(*reinterpret_cast<uint64_t*>(at + 56)).store(load<uint64_t>(from + 56), std::memory_order_release);
  produced_++;
  return true;
}

void Eq::signal() {
  if (!armed_) return;
  armed_ = false;
  function_.raise(vector_);
}

void Eq::doorbell(uint32_t counter, bool arm) {
  const uint64_t distance = (counter - consumed_) & counter_mask;
  if (distance > produced_ - consumed_) return;
  consumed_ += distance;
  if (arm) armed_ = true;
  while (!waiting_.empty() && write(waiting_.front())) waiting_.pop_front();
  if (produced_ != consumed_) signal();
}

void Cq::consume() {
  uint32_t word;
  if (!record_.load(0, word)) return;
  const uint64_t distance = (word - consumed_) & counter_mask;
  if (distance <= produced_ - consumed_) consumed_ += distance;
}

void Cq::arm(uint32_t word) {
  if ((word >> hw::kArmSequenceShift & hw::kArmSequenceMask) != notifications_) return;
  armed_ = word & hw::kArmSolicited ? Arm::Solicited : Arm::All;
  const uint64_t unread = (produced_ - word) & counter_mask;
  if (unread > mask() + 1) return;  // it has read what was not written
  if (armed_ == Arm::All ? unread != 0 : solicited_ > produced_ - unread) notify();
}

bool Cq::resize(const CqSpec& spec) {
  hw::Cqe entry{};
  entry.op_own = hw::cqe_opcode::kResize << hw::kOpcodeShift;
  consume();
  if (produced_ + 1 - consumed_ > uint64_t{1} << spec.log_entries || !room() || !post(entry, false)) return false;
  ring_ = ring(spec);
  log_ = spec.log_entries;
  stride_ = spec.stride;
  return true;
}

void Cq::notify() {
  armed_ = Arm::No;
  notifications_ = (notifications_ + 1) & hw::kArmSequenceMask;
  hw::CompletionEvent event{};
  event.cqn = big(id_);
  if (eq_) eq_->post(hw::event::kCompletion, event);
}

}  // namespace userdma::soft::mlx5
