// A queue pair: what is posted, what completed, and how it fails. Family-neutral; a family's Rings write the entries
// and read the completion rings.
//
// A completion ring is read in its order into the pair's own state (`absorb`), and completions are taken from there.
// So the pair can look ahead in the ring of the other side for a failure that concerns both, and what the NIC
// completed before the failure is kept.
//
// Threads: as domain.h says, all calls come one at a time but `ready`, which a thread that waits may run beside them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "driver/completion.h"
#include "driver/domain.h"
#include "driver/event_ring.h"
#include "driver/region.h"

namespace userdma::driver {

// What the next entry of a completion ring says.
struct Found {
  enum class What : uint8_t {
    Nothing,     // the NIC has not written it
    Skip,        // it says nothing
    Done,        // send: entries before `index` of the ring completed
    Received,    // receive: the entry at `index` took `bytes`
    Failed,      // send: the last entry before `index` failed, those before it completed; receive: the one at `index`
    Flushed,     // an entry that the NIC did not run, as the pair had failed
    Terminated,  // the pair failed; entries before `index` completed, if `has_index`
    Unknown,     // of a kind that this ring does not take; `what` describes it
  };
  What what = What::Nothing;
  Error error = Error::None;
  uint8_t status = 0;
  bool has_index = false;
  bool has_immediate = false;
  bool ring = false;  // the NIC should hear how far the ring was read: call `ring`
  uint32_t index = 0;
  uint32_t bytes = 0;
  uint32_t immediate = 0;
  const char* unknown = nullptr;
};

// One entry of the send ring.
struct Work {
  enum class Op : uint8_t { Send, Write, Read };
  Op op = Op::Send;
  uint32_t bytes = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;    // Write, Read
  uint64_t va = 0;      // local
  uint64_t remote = 0;  // Write, Read: the peer's address
};

// A queue pair's rings, as its family has them.
class Rings {
 public:
  // The byte of a completion ring whose low bit says that its next entry was written: when it equals `phase`. Only a
  // hint for families whose entries need a second look.
  struct Next {
    std::atomic<const uint8_t*> at{nullptr};
    std::atomic<uint8_t> phase{0};
  };

  virtual ~Rings() = default;

  // `number` counts the entries of the ring from 0. Writes the entry and rings the doorbell.
  virtual void send(uint64_t number, const Work& work) = 0;
  virtual void receive(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) = 0;

  virtual void start(Side side, Next& next) = 0;    // where the first completion will be
  virtual Found absorb(Side side, Next& next) = 0;  // the next one, moving on past it
  virtual void ring(Side side) = 0;                 // tells the NIC how far its completion ring was read
  virtual void connect(uint32_t psn, uint32_t mtu) = 0;

  virtual void listen(EventListener* listener) = 0;
  virtual void forget() = 0;

  uint32_t qpn = 0;
  uint32_t entries[2] = {0, 0};          // of each side's ring; powers of two; one slot is never used
  uint64_t longest = uint64_t{1} << 31;  // bytes of a message
  std::shared_ptr<Domain> domain;
  std::shared_ptr<EventRing> events;  // null: the family has none, or the test
};

enum class Polled : uint8_t { None, Ok, Failed };

class Qp final : public Member, public EventListener {
 public:
  // `send`, `receive`: the entries that may be posted and not taken, below each ring's own.
  Qp(std::unique_ptr<Rings> rings, uint32_t send, uint32_t receive, bool immediate);
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  // ---- Posts. False: nothing was posted, and `refusal` says why. ----

  bool send(const Region& region, uint64_t at, uint64_t n) {
    Ring& ring = ring_[0];
    if (!open_ || !fits(region, at, n) || ring.full()) [[unlikely]]
      return post_failed(Side::Send, region, at, n);
    return post(
        ring, Work{.op = Work::Op::Send, .bytes = static_cast<uint32_t>(n), .lkey = region.lkey, .va = region.va + at});
  }
  bool receive(const Region& region, uint64_t at, uint64_t n) {
    Ring& ring = ring_[1];
    if (!open_ || !fits(region, at, n) || ring.full()) [[unlikely]]
      return post_failed(Side::Receive, region, at, n);
    uint64_t number = ring.posted.load(std::memory_order_relaxed);
    ring.bytes[number & ring.mask] = static_cast<uint32_t>(n);
    ring.posted.store(number + 1, std::memory_order_relaxed);
    rings_->receive(number, region.va + at, region.lkey, static_cast<uint32_t>(n));
    return true;
  }
  // Read into, or write from, `n` bytes of `region`; the peer's memory is `rkey` at `remote`.
  bool rdma(Work::Op op, const Region& region, uint64_t at, uint64_t n, uint64_t remote, uint32_t rkey) {
    Ring& ring = ring_[0];
    if (!open_ || !fits(region, at, n) || ring.full()) [[unlikely]]
      return post_failed(Side::Send, region, at, n);
    return post(ring, Work{.op = op,
                           .bytes = static_cast<uint32_t>(n),
                           .lkey = region.lkey,
                           .rkey = rkey,
                           .va = region.va + at,
                           .remote = remote});
  }
  // Why these arguments cannot be posted now; "" if they can. `whose`: the region's part in the call ("the region").
  std::string refusal(Side side, const Region& region, uint64_t at, uint64_t n, const char* whose = "the region") const;
  // The same for the far region of a read within the NIC.
  std::string refusal_far(const Region& region, uint64_t at, uint64_t n) const;

  uint32_t room(Side side) const {
    const Ring& ring = ring_[static_cast<int>(side)];
    return ring.capacity - static_cast<uint32_t>(ring.outstanding());
  }
  uint64_t outstanding(Side side) const { return ring_[static_cast<int>(side)].outstanding(); }

  // ---- Completions ----

  // Takes the completion of the side's oldest entry, if it has one.
  Polled poll(Side side, Completion& out) {
    Ring& ring = ring_[static_cast<int>(side)];
    uint64_t taken = ring.taken.load(std::memory_order_relaxed);
    if (taken == ring.done.load(std::memory_order_relaxed)) {
      if (!ring.written()) [[likely]] {
        if (--ring.countdown != 0) [[likely]]
          return Polled::None;
        if (!look_around(side)) return Polled::None;
      }
      return absorb_and_take(side, out);
    }
    return take(ring, taken, out);
  }

  // What failed the entry of a completion, for a person.
  std::string message(Side side, const Completion& completion) const;

  // For a thread that waits: whether a call of poll may find something, or there is something to look at. It touches
  // nothing that the other calls change but atomics. `often`: only what costs nothing.
  enum class Look : uint8_t { Nothing, Poll, Retired };
  Look ready(Side side, bool often);

  // What a poll does now and then, for a waiter that found ready() true: events, the other ring, the machine.
  bool look_around(Side side);

  // ---- Control ----

  void connect(uint32_t psn, uint32_t mtu, bool local);
  void fail(const std::string& why) { fail(why, Cause::Strong); }

  bool connected() const { return connected_; }
  bool local_peer() const { return local_; }
  bool dead() const { return dead_; }
  const std::string& failure() const { return failure_; }
  const std::string& why_dead() const { return why_dead_; }
  uint32_t number() const { return rings_->qpn; }
  const std::shared_ptr<Domain>& domain() const { return rings_->domain; }
  uint64_t longest() const { return rings_->longest; }

  // Member and EventListener
  void machine_failed(const std::string& why) override { fail(why, Cause::Strong); }
  void event(const std::string& what) override { fail(what, Cause::Weak); }
  void retire(const std::string& why) override;
  void drain() override { gate_.drain(); }

 private:
  // A weak cause is one that another explains better: the failed entry's own error.
  enum class Cause : uint8_t { None, Weak, Strong };

  static constexpr uint64_t kNever = ~uint64_t{0};

  struct alignas(64) Ring {
    std::atomic<uint64_t> taken{0};  // entries whose completion was taken
    std::atomic<uint64_t> done{0};   // entries known to have completed
    Rings::Next next;                // of the completion ring; after a failure always "written"
    uint32_t countdown = 1;          // empty polls until the next look around
    uint32_t capacity = 0;
    uint64_t mask = 0;
    std::atomic<uint64_t> posted{0};
    std::unique_ptr<uint32_t[]> bytes;       // per slot: posted, then received
    std::unique_ptr<uint64_t[]> immediates;  // per slot: the immediate data, and 1 << 32 if there is one
    uint64_t failed_at = kNever;             // the entry that failed of its own
    Error error = Error::None;
    uint8_t status = 0;
    bool ended = false;  // nothing more of its completion ring counts

    uint64_t outstanding() const {
      return posted.load(std::memory_order_relaxed) - taken.load(std::memory_order_relaxed);
    }
    bool full() const { return outstanding() >= capacity; }
    bool written() const {
      uint8_t byte = __atomic_load_n(next.at.load(std::memory_order_relaxed), __ATOMIC_ACQUIRE);
      return ((byte ^ next.phase.load(std::memory_order_relaxed)) & 1) == 0;
    }
  };

  bool fits(const Region& region, uint64_t at, uint64_t n) const {
    return region.domain.get() == domain_ && !region.retired && n <= longest_ && region.holds(at, n);
  }
  bool post(Ring& ring, const Work& work) {
    uint64_t number = ring.posted.load(std::memory_order_relaxed);
    ring.bytes[number & ring.mask] = work.bytes;
    ring.posted.store(number + 1, std::memory_order_relaxed);
    rings_->send(number, work);
    return true;
  }
  bool post_failed(Side side, const Region& region, uint64_t at, uint64_t n);

  Polled take(Ring& ring, uint64_t taken, Completion& out) {
    out = Completion{.entry = taken, .bytes = ring.bytes[taken & ring.mask]};
    if (ring.immediates) [[unlikely]] {
      uint64_t immediate = ring.immediates[taken & ring.mask];
      out.immediate = static_cast<uint32_t>(immediate);
      out.has_immediate = immediate >> 32 != 0;
    }
    ring.taken.store(taken + 1, std::memory_order_relaxed);
    return Polled::Ok;
  }
  Polled absorb_and_take(Side side, Completion& out);
  Polled take_failed(Ring& ring, Completion& out);

  bool absorb(Side side);  // one entry of the side's completion ring; false if there was none
  void absorb_all(Side side);
  void apply(Side side, const Found& found);
  void fail(const std::string& why, Cause cause);
  void unknown(Side side, const std::string& what);

  Ring ring_[2];
  std::unique_ptr<Rings> rings_;
  const Domain* domain_;
  uint64_t longest_;
  bool open_ = false;  // connected, not failed, not dead: what the posts check
  bool connected_ = false;
  bool local_ = false;
  bool dead_ = false;
  bool immediate_;
  Cause cause_ = Cause::None;
  std::atomic<bool> failed_{false};
  uint32_t machine_countdown_ = 1;
  uint32_t reload_;  // of the rings' countdowns
  Gate gate_;
  std::string failure_;
  std::string why_dead_;
};

}  // namespace userdma::driver
