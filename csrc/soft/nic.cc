#include "soft/nic.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "soft/futex.h"

namespace userdma::soft {
namespace {

// How long the thread looks away while the program polls, and at most if it goes on and on.
constexpr uint64_t watch_ns = 1000000;
constexpr uint64_t watch_longest_ns = 4000000;

// How long the thread looks for more work before it sleeps, and how long it sleeps before it trusts the bell (see
// wire::Bell): a store arrives at the other core in far less.
constexpr uint64_t linger_ns = 20000;
constexpr uint64_t doubt_ns = 100000;

// While a send finds no room, nobody says when there is some.
constexpr uint64_t blocked_ns = 50000;

// Packets of one look at the port, and looks in one turn: a turn is short, for others may want the lock.
constexpr unsigned receive_budget = 16;
constexpr unsigned rounds = 16;

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

}  // namespace

Nic::Nic(std::shared_ptr<wire::Wire> wire, std::shared_ptr<Clock> clock, Arena* arena, const Options& options)
    : wire_(std::move(wire)),
      clock_(std::move(clock)),
      virtual_(clock_->is_virtual() ? static_cast<VirtualClock*>(clock_.get()) : nullptr),
      port_(wire_->attach(options.mac, this, arena)),
      bell_(port_->bell() ? port_->bell() : &own_bell_),
      engine_(*port_) {
  constructed_.store(true, std::memory_order_release);
  if (virtual_) virtual_->attach(*this);
  if (!virtual_ && options.thread) {
    // Signals are for the program's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::make_unique<std::thread>([this] { run_thread(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_->native_handle(), "userdma-nic");
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

bool Nic::turn() {
  wire::Sink& sink = ingress_.load(std::memory_order_relaxed) ? static_cast<wire::Sink&>(engine_) : discard_;
  bool any = false;
  unsigned round = 0;
  uint64_t now = time();
  do {
    if (round % 4 == 3) now = time();
    unsigned packets = port_->receive(sink, receive_budget);
    bool did = engine_.run(now);
    if (!packets && !did) break;
    any = true;
  } while (++round < rounds && (port_->pending() || (engine_.busy() && !port_->blocked())));
  more_.store(engine_.busy(), std::memory_order_relaxed);
  return any;
}

void Nic::after_turn() {
  if (virtual_) return;
  // What this NIC sent may be for another NIC of this process, and that one may have answered. And whoever found the
  // lock taken left the work to the one that held it.
  for (unsigned round = 0; round < rounds; ++round) {
    port_->help();
    if (!port_->pending() || !step()) return;
  }
}

bool Nic::step() {
  if (!constructed_.load(std::memory_order_acquire)) return false;
  if (!lock_.try_lock()) {
    // Who has the lock does the work. It may wait for this processor, though.
    uint32_t misses = misses_.load(std::memory_order_relaxed) + 1;
    misses_.store(misses, std::memory_order_relaxed);
    if (misses % misses_per_yield == 0) std::this_thread::yield();
    return false;
  }
  bool any = turn();
  lock_.unlock();
  return any;
}

bool Nic::work() {
  std::lock_guard guard(lock_);
  return turn();
}

uint64_t Nic::next_deadline() {
  std::lock_guard guard(lock_);
  return deadline();
}

uint64_t Nic::deadline() { return std::min(engine_.next_deadline(), port_->next_deadline()); }

bool Nic::advance() {
  if (!owned()) return false;
  if (virtual_) return advance_virtual();
  touch();
  bool any = false;
  if (port_->pending() || more_.load(std::memory_order_relaxed) ||
      polls_.load(std::memory_order_relaxed) % polls_per_look == 0) {
    any = step();
    after_turn();
  } else {
    any = port_->help();
  }
  return any;
}

bool Nic::advance_virtual() { return work() || virtual_->step(); }

void Nic::recall(const void* begin, size_t bytes) {
  if (!owned()) return;
  std::lock_guard guard(lock_);
  port_->recall(begin, bytes);
}

void Nic::run_thread() {
  Clock& clock = *clock_;
  uint64_t seen = ~uint64_t{0};
  uint64_t watch = watch_ns;
  uint64_t idle_since = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    uint64_t polls = polls_.load(std::memory_order_relaxed);
    if (polls != seen) {
      // The program does the work. It stops without saying so.
      seen = polls;
      futex_wait(watch_, 0, watch, false);
      watch = std::min(watch * 2, watch_longest_ns);
      idle_since = 0;
      continue;
    }
    watch = watch_ns;
    lock_.lock();
    bool any = turn();
    lock_.unlock();
    after_turn();
    uint64_t now = clock.now();
    if (any || idle_since == 0) idle_since = now;
    if (any || now - idle_since < linger_ns) {
      relax();
      continue;
    }

    lock_.lock();
    uint64_t due = deadline();
    bool blocked = port_->blocked();
    lock_.unlock();
    auto nothing = [&] {
      return !port_->pending() && !more_work(blocked) && polls_.load(std::memory_order_relaxed) == seen &&
             !stopping_.load(std::memory_order_relaxed);
    };
    uint64_t left = due == never ? UINT64_MAX : due > now ? due - now : 0;
    if (blocked) left = std::min(left, blocked_ns);
    bell_->set();
    if (nothing() && !bell_->wait(std::min(left, doubt_ns)) && left > doubt_ns && nothing())
      bell_->wait(left == UINT64_MAX ? left : left - doubt_ns);
    bell_->clear();
  }
  gone_.store(1, std::memory_order_release);
  futex_wake(gone_, 1, false);
}

}  // namespace userdma::soft
