// Completion queues and notification queues: what the chip writes, and when it says so.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "hw/bnxt.h"
#include "soft/bnxt/ring.h"
#include "soft/dma.h"
#include "soft/soft_function.h"

namespace userdma::soft::bnxt {

namespace hw = hw::bnxt;

// What the last doorbell of a queue said: index and epoch, as in its low word. Written without a lock by whoever
// rings, read by the NIC when it wants to know.
using DoorbellWord = std::atomic<uint32_t>;

// A ring's index and epoch stand for a count modulo twice its entries. How far that count is past `from`, or UINT32_MAX
// if it is more than `most`: a doorbell that is stale or wrong, which the chip ignores.
inline uint32_t past(uint32_t word, uint64_t from, uint32_t entries, uint64_t most) {
  const uint32_t index = word & static_cast<uint32_t>(hw::kDoorbellIndexMask);
  if (index >= entries) return UINT32_MAX;
  const uint32_t at = index + (word >> hw::kDoorbellEpochShift & 1 ? entries : 0);
  const uint32_t behind = static_cast<uint32_t>(from % (2 * uint64_t{entries}));
  const uint32_t distance = at >= behind ? at - behind : at + 2 * entries - behind;
  return distance <= most ? distance : UINT32_MAX;
}

// A notification queue, which the CREQ ring is too: 16-byte entries with a valid bit, and an interrupt if it is armed.
// Entries that find it full wait.
class Nq {
 public:
  Nq(SoftFunction& function, uint32_t id, const PageTable& table, uint32_t entries, unsigned vector)
      : function_(function),
        id_(id),
        ring_(function.nic().dma(), table, uint64_t{entries} * hw::kNqe, true),
        entries_(entries),
        vector_(vector) {}

  uint32_t id() const { return id_; }
  void post(const uint8_t entry[16]);
  void doorbell(uint32_t word, bool arm);
  void mask() { armed_ = false; }
  size_t waiting() const { return waiting_.size(); }

 private:
  static constexpr size_t waiting_limit = 1 << 16;

  bool write(const uint8_t entry[16]);
  void signal();

  SoftFunction& function_;
  const uint32_t id_;
  Ring ring_;
  const uint32_t entries_;
  const unsigned vector_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  bool armed_ = false;
  std::deque<std::array<uint8_t, 16>> waiting_;
};

// A completion queue. Its driver publishes what it has read by doorbells; one that finds no room overflows, which
// ends it.
class Cq {
 public:
  Cq(Dma& dma, uint32_t id, const PageTable& table, uint32_t entries, std::shared_ptr<Nq> nq, uint64_t handle,
     DoorbellWord& word)
      : id_(id),
        dma_(dma),
        ring_(std::make_unique<Ring>(dma, table, uint64_t{entries} * sizeof(hw::CqBase), true)),
        entries_(entries),
        nq_(std::move(nq)),
        handle_(handle),
        word_(word) {
    word_.store(0, std::memory_order_relaxed);
  }

  uint32_t id() const { return id_; }
  uint32_t entries() const { return entries_; }
  bool overflowed() const { return overflowed_; }
  Nq* nq() const { return nq_.get(); }
  uint32_t notifications() const { return notifications_; }
  bool room() {
    if (produced_ - consumed_ < entries_) [[likely]]
      return true;
    consume();
    return produced_ - consumed_ < entries_;
  }

  // Writes an entry: `first` is its first 24 bytes, `last` the other 8, without the toggle bit. False: no room (it has
  // overflowed), or its memory is not there.
  bool post(const void* first, uint64_t last, bool solicited) {
    if (overflowed_ || !room()) [[unlikely]] {
      overflowed_ = true;
      return false;
    }
    uint8_t* entry = ring_->at(uint64_t{index_} * sizeof(hw::CqBase));
    if (!entry) [[unlikely]] {
      overflowed_ = true;
      return false;
    }
    std::memcpy(entry, first, 24);
    // The toggle bit is in the same word as the rest of the entry's end: nobody sees it before what came first.
    std::atomic_ref(*reinterpret_cast<uint64_t*>(entry + 24)).store(last | toggle_bit_, std::memory_order_release);
    produced_++;
    if (++index_ == entries_) {
      index_ = 0;
      toggle_bit_ ^= hw::kCqeToggle;
    }
    if (solicited) solicited_ = produced_;
    if (armed_ != Arm::No && (armed_ == Arm::All || solicited)) [[unlikely]]
      notify();
    return true;
  }

  // An arming doorbell. One with a toggle other than that of the last notification is an old one, and ignored; arming
  // takes effect once an enabling doorbell came since the notification.
  void arm(uint8_t kind, uint32_t word, uint32_t toggle);

  // Goes on in other memory: the ring's last entry says so, and until the driver has answered that with a doorbell
  // (cut_off), what its doorbells say of is the old ring. False: no room for that entry.
  bool resize(const PageTable& table, uint32_t entries);
  void cut_off(uint32_t word, uint32_t toggle);

 private:
  enum class Arm : uint8_t { No, Solicited, All };

  void consume();
  void notify();

  const uint32_t id_;
  Dma& dma_;
  std::unique_ptr<Ring> ring_;
  uint32_t entries_;
  const std::shared_ptr<Nq> nq_;
  const uint64_t handle_;
  DoorbellWord& word_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  uint64_t solicited_ = 0;  // past the last solicited entry
  uint32_t index_ = 0;
  uint8_t toggle_bit_ = hw::kCqeToggle;  // of the entries of this pass
  Arm armed_ = Arm::No;
  bool enabled_ = false;
  bool overflowed_ = false;
  uint8_t toggle_ = 0;  // of notifications
  uint32_t notifications_ = 0;
  uint8_t resize_toggle_ = 0;  // of the last cut-off entry
  bool resizing_ = false;      // it has not been answered
  uint32_t epoch_ = 0;         // of the first pass of doorbells over this ring, as in their words
};

}  // namespace userdma::soft::bnxt
