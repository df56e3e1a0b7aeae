// A queue pair: what is posted, what completed, and how it fails. Family-neutral; a family's Rings write the entries
// and read the completion rings.
//
// A completion ring is read in its order into the pair's own state (`absorb`), and completions are taken from there.
// So the pair can look ahead in the ring of the other side for a failure that concerns both, and what the NIC
// completed before the failure is kept.
//
// Threads: as domain.h says, all calls come one at a time but `ready`, which a thread that waits may run beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "driver/completion.h"
#include "driver/domain.h"
#include "driver/events.h"
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
  uint8_t status = 0;  // the NIC's own
  uint8_t vendor = 0;  // what it says beside that; the same where it says nothing
  bool has_index = false;
  bool has_immediate = false;
  bool ring = false;  // the NIC should hear how far the ring was read: call `ring`
  uint32_t index = 0;
  uint32_t bytes = 0;
  uint32_t immediate = 0;
  const char* unknown = nullptr;
};

// An RDMA write or read: an entry of the send ring that names the peer's memory.
struct Rdma {
  enum class Op : uint8_t { Write, Read };
  Op op = Op::Write;
  uint32_t bytes = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint64_t va = 0;      // local
  uint64_t remote = 0;  // the peer's address
};

// A number that the pair's own calls read and write, and a thread that waits reads beside them.
template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(T value) : value_(value) {}
  T own() const { return value_; }  // in a call of the pair
  T load() const { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
  void store(T value) { __atomic_store_n(&value_, value, __ATOMIC_RELAXED); }

 private:
  T value_{};
};

// The byte of a completion ring whose low bit says that its next entry was written: when it equals `phase`'s. Only a
// hint for families whose entries need a second look.
struct Next {
  Shared<const uint8_t*> at;
  Shared<uint8_t> phase;

  bool written() const { return ((__atomic_load_n(at.own(), __ATOMIC_ACQUIRE) ^ phase.own()) & 1) == 0; }
  bool written_beside() const { return ((__atomic_load_n(at.load(), __ATOMIC_ACQUIRE) ^ phase.load()) & 1) == 0; }
  // After a failure and at the end: there is always something to see, and no plain success.
  void close() {
    // Aligned, and with as much before and behind the byte as a family loads along with it.
    alignas(8) static constexpr uint8_t kWritten[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                                        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    phase.store(1);
    at.store(kWritten + 7);
  }
};

// One side of a queue pair.
struct alignas(64) Ring {
  static constexpr uint64_t kNever = ~uint64_t{0};

  Shared<uint64_t> taken;  // entries whose completion was taken
  Shared<uint64_t> done;   // entries known to have completed
  Next next;               // of the completion ring
  uint32_t countdown = 1;  // empty polls until the next look around
  uint32_t capacity = 0;
  uint64_t mask = 0;
  Shared<uint64_t> posted;
  std::unique_ptr<uint32_t[]> bytes;       // per slot: posted, then received
  std::unique_ptr<uint64_t[]> immediates;  // per slot: the immediate data, and 1 << 32 if there is one
  uint64_t failed_at = kNever;             // the entry that failed of its own
  Error error = Error::None;
  uint8_t status = 0;
  uint8_t vendor = 0;
  bool ended = false;  // nothing more of its completion ring counts

  uint64_t outstanding() const { return posted.own() - taken.own(); }
  bool full() const { return outstanding() >= capacity; }

  // Whether the completion ring's next success, of the entry at `index`, is that of the oldest entry, and nothing else
  // is to be taken before or noted of it: then `take_next` may follow.
  bool is_next(uint64_t index) const {
    return index == (taken.own() & mask) && taken.own() != posted.own() && !immediates;
  }
  void take_next(uint32_t moved, Completion& out) {
    const uint64_t number = taken.own();
    out = Completion{.entry = number, .bytes = moved};
    done.store(number + 1);
    taken.store(number + 1);
  }
};

enum class Polled : uint8_t { None, Ok, Failed };

class Qp;

// A queue pair's rings, as its family has them.
class Rings {
 public:
  virtual ~Rings() = default;

  // `number` counts the entries of the ring from 0. Writes the entry and rings the doorbell.
  virtual void send(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) = 0;
  virtual void receive(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) = 0;
  virtual void rdma(uint64_t number, const Rdma& rdma) = 0;

  virtual void start(Side side, Next& next) = 0;    // where the first completion will be
  virtual Found absorb(Side side, Next& next) = 0;  // the next one, moving on past it
  // A poll of `qp`, whose rings these are, where `next` says that an entry was written: takes the plain success of the
  // oldest entry, and leaves all else to qp.poll_any.
  virtual Polled poll_written(Qp& qp, Side side, Completion& out) = 0;
  virtual void ring(Side side, const Next& next) = 0;  // tells the NIC how far its completion ring was read
  virtual void connect(uint32_t psn, uint32_t mtu) = 0;

  virtual void listen(EventListener* listener) = 0;
  virtual void forget() = 0;

  uint32_t qpn = 0;
  uint32_t entries[2] = {0, 0};          // of each side's ring; powers of two; one slot is never used
  uint64_t longest = uint64_t{1} << 31;  // bytes of a message
  std::shared_ptr<Domain> domain;
  std::shared_ptr<Events> events;  // null: the family has none, or the test
};

class Qp final : public Member, public EventListener {
 public:
  // `send`, `receive`: the entries that may be posted and not taken, below each ring's own.
  // Throws std::invalid_argument as check_sizes does, which a caller may ask before it gives its rings away.
  Qp(std::unique_ptr<Rings> rings, uint32_t send, uint32_t receive, bool immediate);
  static void check_sizes(const Rings& rings, uint32_t send, uint32_t receive);
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  // ---- Posts. False: nothing was posted, and `refusal` says why. ----

  bool send(const Region& region, uint64_t at, uint64_t n) {
    Ring& ring = ring_[0];
    if (!takes(ring, region, at, n)) [[unlikely]]
      return post_failed(Side::Send, region, at, n);
    rings_->send(count(ring, n), region.va + at, region.lkey, static_cast<uint32_t>(n));
    return true;
  }
  bool receive(const Region& region, uint64_t at, uint64_t n) {
    Ring& ring = ring_[1];
    if (!takes(ring, region, at, n)) [[unlikely]]
      return post_failed(Side::Receive, region, at, n);
    rings_->receive(count(ring, n), region.va + at, region.lkey, static_cast<uint32_t>(n));
    return true;
  }
  // Reads into, or writes from, `n` bytes of `region`; the peer's memory is `rkey` at `remote`.
  bool rdma(Rdma::Op op, const Region& region, uint64_t at, uint64_t n, uint64_t remote, uint32_t rkey) {
    Ring& ring = ring_[0];
    if (!takes(ring, region, at, n)) [[unlikely]]
      return post_failed(Side::Send, region, at, n);
    rings_->rdma(count(ring, n), Rdma{op, static_cast<uint32_t>(n), region.lkey, rkey, region.va + at, remote});
    return true;
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
    if (ring.taken.own() != ring.done.own()) [[unlikely]]
      return poll_any(side, out);
    if (!ring.next.written()) [[likely]] {
      if (--ring.countdown != 0) [[likely]]
        return Polled::None;
      if (!look_around(side)) return Polled::None;
    }
    return rings_->poll_written(*this, side, out);
  }
  // The same, whatever there is to take: for Rings.
  Polled poll_any(Side side, Completion& out);
  Ring& ring(Side side) { return ring_[static_cast<int>(side)]; }

  // What failed the entry of a completion, for a person.
  std::string message(Side side, const Completion& completion) const;

  // For a thread that waits: whether a call of poll may find something, or there is something to look at. It touches
  // nothing that the other calls change but atomics. `often`: only what costs nothing.
  enum class Look : uint8_t { Nothing, Poll, Retired };
  Look ready(Side side, bool often);

  // What a poll does now and then, for a waiter that found ready() true: events, the other ring, the machine.
  bool look_around(Side side);

  // Polls run the device briefly, as their caller holds what others want; `left`: the last one left more to do.
  void set_brief() { brief_ = true; }
  bool left() const { return left_; }

  // ---- Control ----

  void connect(uint32_t psn, uint32_t mtu, bool local);
  void fail(const std::string& why) { fail(why, Cause::Own); }

  bool connected() const { return connected_; }
  bool local_peer() const { return local_; }
  bool dead() const { return dead_; }
  const std::string& failure() const { return failure_; }
  const std::string& why_dead() const { return why_dead_; }
  uint32_t number() const { return rings_->qpn; }
  const std::shared_ptr<Domain>& domain() const { return rings_->domain; }
  uint64_t longest() const { return rings_->longest; }

  // Member and EventListener
  void machine_failed(const std::string& why) override { fail(why, Cause::Own); }
  void event(const std::string& what) override { fail(what, Cause::Event); }
  void retire(const std::string& why) override;
  void drain() override { gate_.drain(); }

 private:
  // What made the pair fail, in the order in which one explains it better than another: that the NIC flushed or ended
  // a ring; its event with a reason; a failed entry's own error, or what this side found itself.
  enum class Cause : uint8_t { None, Flush, Event, Own };

  bool takes(const Ring& ring, const Region& region, uint64_t at, uint64_t n) const {
    return open_ && region.domain.get() == domain_ && !region.retired && n <= longest_ && region.holds(at, n) &&
           !ring.full();
  }
  // Counts an entry as posted: before the NIC hears of it, as that may let others call in.
  static uint64_t count(Ring& ring, uint64_t n) {
    uint64_t number = ring.posted.own();
    ring.bytes[number & ring.mask] = static_cast<uint32_t>(n);
    ring.posted.store(number + 1);
    return number;
  }
  bool post_failed(Side side, const Region& region, uint64_t at, uint64_t n);

  Polled take(Ring& ring, Completion& out);
  Polled take_failed(Ring& ring, Completion& out);

  bool absorb(Side side);  // one entry of the side's completion ring; false if there was none
  void absorb_all(Side side);
  void apply(Side side, const Found& found);
  void fail(const std::string& why, Cause cause);
  void look_for_reason(void (Events::*how)());
  void unknown(Side side, const std::string& what);

  Ring ring_[2];
  std::unique_ptr<Rings> rings_;
  const Domain* domain_;
  uint64_t longest_;
  bool open_ = false;  // connected, not failed, not dead: what the posts check
  bool connected_ = false;
  bool local_ = false;
  bool dead_ = false;
  bool brief_ = false;
  bool left_ = false;
  bool immediate_;
  Cause cause_ = Cause::None;
  bool failed_ = false;
  uint32_t machine_countdown_ = 1;
  uint32_t reload_;  // of the rings' countdowns
  Gate gate_;
  std::string failure_;
  std::string why_dead_;
};

}  // namespace userdma::driver
