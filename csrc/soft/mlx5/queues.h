// Event queues and completion queues: what the device writes, and when it says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "hw/mlx5.h"
#include "hw/mlx5_device.h"
#include "soft/dma.h"
#include "soft/mlx5/bytes.h"
#include "soft/ring.h"
#include "soft/soft_function.h"

namespace userdma::soft::mlx5 {

namespace hw = userdma::hw::mlx5;

// Where a queue lies.
struct Pages {
  std::vector<uint64_t> pages;  // bus addresses
  unsigned page_shift = 12;
  uint64_t offset = 0;  // of the queue in the first
};

// A doorbell record: two words of the driver's memory.
class Record {
 public:
  Record(Dma& dma, uint64_t bus) : dma_(dma), bus_(bus) {}

  // The word, in host order. False: a fault.
  bool load(unsigned word, uint32_t& out) {
    if (generation_ != dma_.generation()) [[unlikely]]
      resolve();
    if (!at_) [[unlikely]]
      return false;
    out = big(std::atomic_ref(at_[word]).load(std::memory_order_acquire));
    return true;
  }

 private:
  void resolve() {
    generation_ = dma_.generation();
    const wire::Span found = bus_ % sizeof(uint64_t) ? wire::Span{nullptr, 0} : dma_.translate(bus_, bytes);
    at_ = found.bytes == bytes ? reinterpret_cast<uint32_t*>(found.at) : nullptr;
  }

  static constexpr uint64_t bytes = 2 * sizeof(uint32_t);

  Dma& dma_;
  const uint64_t bus_;
  uint64_t generation_ = 0;
  uint32_t* at_ = nullptr;
};

struct EqSpec {
  Pages pages;
  unsigned log_entries = 0;
  unsigned vector = 0;
  std::vector<uint8_t> events;  // the types that go there
};

// An event queue: 64-byte entries with an owner bit, and an interrupt if it is armed. Entries that find it full wait.
class Eq {
 public:
  Eq(SoftFunction& function, uint32_t id, const EqSpec& spec)
      : function_(function),
        id_(id),
        ring_(function.nic().dma(), spec.pages.pages, spec.pages.page_shift, spec.pages.offset,
              sizeof(hw::Event) << spec.log_entries, true),
        log_(spec.log_entries),
        vector_(spec.vector) {}

  uint32_t id() const { return id_; }
  void post(uint8_t type, uint8_t subtype, const uint8_t data[sizeof(hw::Event::data)]);
  template <class Data>
  void post(uint8_t type, const Data& data) {
    static_assert(sizeof data <= sizeof(hw::Event::data));
    uint8_t whole[sizeof(hw::Event::data)] = {};
    std::memcpy(whole, &data, sizeof data);
    post(type, 0, whole);
  }
  // What was stored for it to a UAR: the low 24 bits of the driver's counter.
  void doorbell(uint32_t counter, bool arm);

 private:
  static constexpr size_t waiting_limit = 1 << 16;

  bool write(const hw::Event& event);
  void signal();

  SoftFunction& function_;
  const uint32_t id_;
  Ring ring_;
  const unsigned log_;
  const unsigned vector_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  bool armed_ = false;
  std::deque<hw::Event> waiting_;
};

struct CqSpec {
  Pages pages;
  unsigned log_entries = 0;
  unsigned stride = 64;  // 128: the entry is the second half
  uint32_t eqn = 0;
  uint64_t record = 0;
  bool overrun_ignore = false;
};

// A completion queue. Its driver publishes what it has read in a doorbell record; one that finds no room is in error,
// which ends it.
class Cq {
 public:
  Cq(Nic& nic, uint32_t id, const CqSpec& spec, std::shared_ptr<Eq> eq)
      : id_(id),
        nic_(nic),
        dma_(nic.dma()),
        ring_(ring(spec)),
        log_(spec.log_entries),
        stride_(spec.stride),
        overrun_ignore_(spec.overrun_ignore),
        eq_(std::move(eq)),
        record_(dma_, spec.record) {}

  uint32_t id() const { return id_; }
  bool overrun() const { return overrun_; }
  uint64_t produced() const { return produced_; }
  uint64_t consumed() {
    consume();
    return consumed_;
  }

  // Writes an entry, with the time, and makes its owner bit right. False: no room, or its memory is not there; it is in
  // error.
  bool post(hw::Cqe& entry, bool solicited) {
    if (overrun_ || !room()) [[unlikely]]
      return fail();
    uint8_t* at = ring_->at((produced_ & mask()) * stride_);
    if (!at) [[unlikely]]
      return fail();
    at += stride_ - sizeof entry;
    entry.op_own = static_cast<uint8_t>((entry.op_own & ~hw::kOwner) | (produced_ >> log_ & 1));
    if (entry.op_own >> hw::kOpcodeShift < hw::cqe_opcode::kRequestError) [[likely]]
      entry.timestamp = big(nic_.time());  // an error has its syndromes there
    const auto* from = reinterpret_cast<const uint8_t*>(&entry);
    std::memcpy(at, from, 56);
    // The owner bit is in the same word as the entry's end: nobody sees it before what came first.
    std::atomic_ref(*reinterpret_cast<uint64_t*>(at + 56)).store(load<uint64_t>(from + 56), std::memory_order_release);
    produced_++;
    if (solicited) solicited_ = produced_;
    if (armed_ != Arm::No && (armed_ == Arm::All || solicited)) [[unlikely]]
      notify();
    return true;
  }

  // The two words of an arming doorbell. One whose sequence number is not that of the last notification is an old one,
  // and ignored.
  void arm(uint32_t word);

  // Goes on in other memory. The last entry in this one says so, and counts (mlx5_ib, copy_resize_cqes). False: no room
  // for it.
  bool resize(const CqSpec& spec);

 private:
  enum class Arm : uint8_t { No, Solicited, All };

  std::unique_ptr<Ring> ring(const CqSpec& spec) {
    return std::make_unique<Ring>(dma_, spec.pages.pages, spec.pages.page_shift, spec.pages.offset,
                                  uint64_t{spec.stride} << spec.log_entries, true);
  }
  uint64_t mask() const { return (uint64_t{1} << log_) - 1; }
  bool room() {
    if (produced_ - consumed_ <= mask()) [[likely]]
      return true;
    consume();
    if (overrun_ignore_) consumed_ = produced_;
    return produced_ - consumed_ <= mask();
  }
  bool fail() {
    overrun_ = true;
    return false;
  }
  void consume();
  void notify();

  const uint32_t id_;
  Nic& nic_;
  Dma& dma_;
  std::unique_ptr<Ring> ring_;
  unsigned log_;
  unsigned stride_;
  const bool overrun_ignore_;
  const std::shared_ptr<Eq> eq_;
  Record record_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  uint64_t solicited_ = 0;  // past the last solicited entry
  Arm armed_ = Arm::No;
  bool overrun_ = false;
  uint8_t notifications_ = 0;  // modulo 4: the sequence number of the next arming
};

// ---- Entries of completion queues

// What an entry of a completion queue says of an entry that failed. The vendor's syndromes are nowhere described: they
// are what completions of ConnectX NICs have in bug reports (openucx/ucx, linux-rdma/perftest), and the syndrome again
// where no report was found.
struct Error {
  uint8_t syndrome;
  uint8_t vendor;
};
inline constexpr Error flushed_send{hw::syndrome::kFlushed, 0xf9};
inline constexpr Error flushed_receive{hw::syndrome::kFlushed, 0xf5};
inline constexpr Error bad_entry{hw::syndrome::kLocalQpOperation, 0x68};
inline constexpr Error no_send_memory{hw::syndrome::kLocalProtection, 0x51};
inline constexpr Error no_receive_memory{hw::syndrome::kLocalProtection, 0x52};

// Of queue `number`, for the entry that begins at `counter`; `index` is the user's index, or a shared queue's number.
inline hw::Cqe completed(uint8_t opcode, uint8_t wqe_opcode, uint32_t number, uint32_t counter, uint32_t index,
                         uint64_t bytes) {
  hw::Cqe entry{};
  entry.srqn_uidx = big(index);
  entry.byte_cnt = big(static_cast<uint32_t>(bytes));
  entry.sop_drop_qpn = big(uint32_t{wqe_opcode} << hw::kModifierShift | number);
  entry.wqe_counter = big(static_cast<uint16_t>(counter));
  entry.op_own = static_cast<uint8_t>(opcode << hw::kOpcodeShift);
  return entry;
}
inline hw::Cqe failed(uint8_t opcode, uint8_t wqe_opcode, uint32_t number, uint32_t counter, uint32_t index,
                      Error error) {
  hw::Cqe entry = completed(opcode, wqe_opcode, number, counter, index, 0);
  hw::ErrorCqe whole;
  std::memcpy(&whole, &entry, sizeof whole);
  whole.vendor_err_synd = error.vendor;
  whole.syndrome = error.syndrome;
  std::memcpy(&entry, &whole, sizeof entry);
  return entry;
}

}  // namespace userdma::soft::mlx5
