#include "soft/nic.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <string>

#include "soft/futex.h"
#include "soft/thread.h"

namespace userdma::soft {
namespace {

// How long the thread looks away while the program polls, and at most if it goes on and on. A program that polls less
// often than once in `poll_ns` does not do the NIC's work: its thread does.
constexpr uint64_t watch_ns = 60000;
constexpr uint64_t watch_longest_ns = 4000000;
constexpr uint64_t poll_ns = 50000;

// How long the thread looks for more work before it sleeps, and how long it sleeps before it trusts the bell (see
// wire::Bell): a store arrives at the other core in far less.
constexpr uint64_t linger_ns = 40000;
constexpr uint64_t doubt_ns = 100000;

// While a send finds no room, nobody says when there is some.
constexpr uint64_t blocked_ns = 50000;

// Packets of one look at the port, and looks in one turn: a turn is short, for others may want the lock. A brief one
// lands and sends few packets, and no large ones.
constexpr unsigned receive_budget = 16;
constexpr unsigned rounds = 16;
constexpr unsigned brief_rounds = 4;
constexpr unsigned send_budget = 1024;
constexpr unsigned brief_send_budget = 8;

constexpr uint32_t misses_per_yield = 64;

// The clock is read on every n-th poll that finds nothing.
constexpr uint64_t polls_per_look = 32;

// The processor's own counter, where it is cheap to read: it says whether the clock must be read again. Reading that
// may take a tenth of a microsecond, and timers count in units of 4 us. This is a few microseconds.
constexpr uint64_t fresh_ticks = 16384;
#if defined(__x86_64__)
uint64_t ticks() { return __builtin_ia32_rdtsc(); }
#else
uint64_t ticks() { return 0; }
#endif

// Their locks, in a forked child, may be held for good.
void check_made_here(const wire::Wire& wire, const VirtualClock* clock) {
  wire.check_made_here("the wire " + wire.name());
  if (clock) clock->check_made_here("the virtual clock");
}

}  // namespace

Nic::Nic(std::shared_ptr<wire::Wire> wire, std::shared_ptr<Clock> clock, Arena* arena, const Options& options)
    : wire_(std::move(wire)),
      clock_(std::move(clock)),
      virtual_(clock_->is_virtual() ? static_cast<VirtualClock*>(clock_.get()) : nullptr),
      port_((check_made_here(*wire_, virtual_), wire_->attach(options.mac, this, arena))),
      bell_(port_->bell() ? port_->bell() : &own_bell_),
      engine_(*port_) {
  constructed_.store(true, std::memory_order_release);
  if (virtual_) virtual_->attach(*this);
  if (!virtual_ && options.thread) {
    try {
      thread_ = std::make_unique<std::thread>(start_thread("userdma-nic", [this] { run_thread(); }));
    } catch (...) {
      stop();  // others on the wire may know it already
      throw;
    }
  }
}

Nic::~Nic() {
  stop();
  if (!owned()) {
    // The thread and the port are the parent's; there is nothing of them here to end.
    (void)thread_.release();
    (void)port_.release();
  }
}

void Nic::stop() {
  if (!owned() || stopped_.exchange(true)) return;
  if (virtual_) virtual_->detach(*this);
  if (thread_) {
    stopping_.store(true, std::memory_order_seq_cst);
    watch_.store(1, std::memory_order_seq_cst);
    futex_wake(watch_, 1, false);
    // The bell may be set just after it was rung: ring until the thread is gone.
    while (!gone_.load(std::memory_order_acquire)) {
      bell_->ring();
      futex_wait(gone_, 0, doubt_ns, false);
    }
    thread_->join();
  }
  std::lock_guard guard(lock_);
  port_->leave();
}

uint64_t Nic::time() {
  uint64_t count = ticks();
  if (virtual_ || !count || count - ticks_ >= fresh_ticks) {
    ticks_ = count;
    now_ = clock_->now();
  }
  return now_;
}

Nic::Turn Nic::turn(bool brief) {
  wire::Sink& sink = ingress_.load(std::memory_order_relaxed) ? static_cast<wire::Sink&>(engine_) : discard_;
  Turn all = Turn::Nothing;
  unsigned round = 0;
  uint64_t now = time();
  do {
    if (round % 4 == 3) now = time();
    unsigned packets = port_->receive(sink, receive_budget, wire::small_payload);
    bool large = false;
    if (!packets && !brief && port_->pending()) large = (packets = port_->receive(sink, 1)) != 0;
    bool did = engine_.run(now, brief ? brief_send_budget : send_budget);
    if (frames_) did |= frames_->run(now);
    if (!packets && !did) break;
    all = large ? Turn::Large : Turn::Some;
    if (large || lock_.contended()) break;
  } while (++round < (brief ? brief_rounds : rounds) && (port_->pending() || (busy() && !port_->blocked())));
  more_.store(busy(), std::memory_order_relaxed);
  if (all != Turn::Nothing) done_.store(done_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return all;
}

wire::Port::Helped Nic::after_turn(bool brief, Turn did) {
  if (virtual_) return wire::Port::Helped::Nothing;
  // What this NIC sent may be for another NIC of this process, and that one may have answered. And whoever found the
  // lock taken left the work to the one that held it.
  wire::Port::Helped helped;
  for (unsigned round = 0;; ++round) {
    helped = port_->help(brief);
    if (did == Turn::Large || round == (brief ? 1 : rounds) || !port_->pending()) return helped;
    did = try_turn(brief);
    if (did == Turn::Nothing) return helped;
  }
}

Nic::Turn Nic::try_turn(bool brief) {
  if (!constructed_.load(std::memory_order_acquire)) return Turn::Nothing;
  if (!lock_.try_lock()) {
    // Who has the lock does the work. It may wait for this processor, though.
    uint32_t misses = misses_.load(std::memory_order_relaxed) + 1;
    misses_.store(misses, std::memory_order_relaxed);
    if (misses % misses_per_yield == 0) std::this_thread::yield();
    return Turn::Nothing;
  }
  const Turn did = turn(brief);
  rouse();
  lock_.unlock();
  tell(did);
  return did;
}

bool Nic::work() {
  std::lock_guard guard(lock_);
  return turn(false) != Turn::Nothing;
}

uint64_t Nic::next_deadline() {
  std::lock_guard guard(lock_);
  return deadline();
}

uint64_t Nic::deadline() {
  const uint64_t due = std::min(engine_.next_deadline(), port_->next_deadline());
  return frames_ ? std::min(due, frames_->next_deadline()) : due;
}

wire::Port::Helped Nic::advance(bool brief) {
  using Helped = wire::Port::Helped;
  if (!owned()) return Helped::Nothing;
  // What a step of the time sets going has no bound.
  if (virtual_) return brief ? Helped::More : advance_virtual() ? Helped::Some : Helped::Nothing;
  touch();
  if (!port_->pending() && !more_.load(std::memory_order_relaxed) &&
      polls_.load(std::memory_order_relaxed) % polls_per_look != 0) [[likely]]
    return port_->help(brief);
  const Turn did = try_turn(brief);
  const Helped helped = after_turn(brief, did);
  const bool left = port_->pending();
  if (left) bell_->ring();  // should this have been its last poll
  if (helped == Helped::More || ((brief || did == Turn::Large) && (left || more_.load(std::memory_order_relaxed))))
    return Helped::More;
  return did != Turn::Nothing ? Helped::Some : helped;
}

void Nic::rest(uint32_t ticket, uint64_t nanoseconds) {
  if (!owned() || virtual_ || !thread_) {
    if (!advance()) std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
    return;
  }
  resting_.fetch_add(1, std::memory_order_seq_cst);
  // The thread takes over now, not when it next looks.
  watch_.store(1, std::memory_order_release);
  futex_wake(watch_, 1, false);
  futex_wait(done_, ticket, nanoseconds, false);
  resting_.fetch_sub(1, std::memory_order_relaxed);
}

void Nic::wake() { futex_wake(done_, INT_MAX, false); }

bool Nic::advance_virtual() { return work() || virtual_->step(); }

void Nic::recall(const void* begin, size_t bytes) {
  if (!owned()) return;
  // A receiver that is reading may be slow, even stopped: the NIC works on meanwhile.
  for (unsigned looks = 0;; ++looks) {
    {
      std::lock_guard guard(lock_);
      if (port_->recall(begin, bytes)) return;
    }
    if (looks < 1000)
      relax();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void Nic::run_thread() {
  Clock& clock = *clock_;
  uint64_t seen = ~uint64_t{0};
  uint64_t watch = 0;  // how long it looked away; 0: it did not
  uint64_t idle_since = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    uint64_t polls = polls_.load(std::memory_order_relaxed);
    if (polls - seen > watch / poll_ns) {
      // The program does the work. It stops without saying so, unless it rests.
      seen = polls;
      const bool rests = resting_.load(std::memory_order_relaxed) != 0;
      watch = watch == 0 || rests ? watch_ns : std::min(watch * 2, watch_longest_ns);
      futex_wait(watch_, 0, watch, false);
      watch_.exchange(0, std::memory_order_acq_rel);
      step(true);  // a timer that is due; long work would hold up the program, which is at it anyway
      idle_since = 0;
      continue;
    }
    seen = polls;
    watch = 0;
    lock_.lock();
    const Turn did = turn(false);
    lock_.unlock();
    tell(did);
    after_turn(false, did);
    const bool any = did != Turn::Nothing;
    uint64_t now = clock.now();
    if (any || idle_since == 0) idle_since = now;
    if (any || now - idle_since < linger_ns) {
      relax();
      continue;
    }

    // From here on whoever has the lock sees that this thread sleeps, and until when.
    lock_.lock();
    uint64_t due = deadline();
    bool blocked = port_->blocked();
    if (blocked) due = std::min(due, now + blocked_ns);
    sleeps_until_ = due;
    bell_->set();
    lock_.unlock();
    auto nothing = [&] {
      return !port_->pending() && !more_work(blocked) && polls_.load(std::memory_order_relaxed) == seen &&
             !stopping_.load(std::memory_order_relaxed);
    };
    uint64_t left = due == never ? UINT64_MAX : due > now ? due - now : 0;
    if (nothing() && !bell_->wait(std::min(left, doubt_ns)) && left > doubt_ns && nothing())
      bell_->wait(left == UINT64_MAX ? left : left - doubt_ns);
    bell_->clear();
  }
  gone_.store(1, std::memory_order_release);
  futex_wake(gone_, 1, false);
}

}  // namespace userdma::soft
