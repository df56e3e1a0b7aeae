// What advances a soft NIC: its lock, its thread, and the threads that ring and poll.
//
// Whoever rings a doorbell or polls does the NIC's work in its own thread. While somebody does, the NIC's thread only
// looks now and then whether that is still so. When nobody does, it takes over, and sleeps when there is nothing to
// do; a packet that arrives then wakes it. A NIC on a virtual clock has no thread: whoever polls moves the time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "host/function.h"
#include "soft/clock.h"
#include "soft/dma.h"
#include "soft/fork.h"
#include "soft/lock.h"
#include "soft/memory.h"
#include "soft/transport/engine.h"
#include "soft/wire/wire.h"

namespace userdma::soft {

class Nic final : private wire::Owner, private Participant {
 public:
  struct Options {
    uint8_t mac[6] = {};
    bool thread = true;
  };

  // Joins the wire. `arena` may be null (no memory that peers can read in place). Throws host::Error (the MAC is
  // taken, the wire cannot be used).
  Nic(std::shared_ptr<wire::Wire> wire, std::shared_ptr<Clock> clock, Arena* arena, const Options& options);
  ~Nic();  // stop()
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  // Everything below that says "locked" needs the lock held. Nothing that runs under it may call Python.
  Lock& lock() { return lock_; }

  Dma& dma() { return dma_; }                      // locked
  transport::Engine& engine() { return engine_; }  // locked
  wire::Port& port() { return *port_; }            // locked
  Clock& clock() { return *clock_; }

  // A doorbell: takes the lock, runs `work(engine)`, and then all that it set going, in this thread.
  template <class F>
  void ring(F&& work) {
    if (owned()) [[likely]] {
      touch();
      lock_.lock();
      work(engine_);
      turn();
      lock_.unlock();
      after_turn();
    }
  }

  // Does what there is to do, if no other thread is doing it. True if anything was done. What a poll that found
  // nothing calls, and what moves a virtual clock.
  bool advance();
  static void idle(void* self) { static_cast<Nic*>(self)->advance(); }
  host::Idle idle() { return {&Nic::idle, this}; }

  // Packets are thrown away until the receive path is open.
  void ingress(bool open) { ingress_.store(open, std::memory_order_relaxed); }

  // Once it returns, no packet of this NIC refers to the memory any more. Takes the lock.
  void recall(const void* begin, size_t bytes);

  // Leaves the wire and ends the thread: nothing runs by itself any more. The lock must not be held. Idempotent.
  void stop();

  // False in a forked child: the NIC is the parent's, the child must leave it alone (and never take its lock).
  bool owned() const { return generation_ == fork_generation(); }

 private:
  // wire::Owner: another thread does this NIC's work because it sent a packet here.
  bool step() override;
  // Participant of a virtual clock.
  bool work() override;
  uint64_t next_deadline() override;

  bool turn();        // locked: receive, engine and timers until there is nothing to do, or for long enough
  void after_turn();  // what must not be done under the lock
  void touch() {      // a program rings or polls
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    bell_->ring();
  }
  bool advance_virtual();
  void run_thread();
  uint64_t deadline();  // locked
  uint64_t time();      // locked: of the clock, some microseconds old at most

  // What a closed receive path does to packets.
  struct Discard final : wire::Sink {
    void packet(const wire::Header&, const wire::Span*, size_t) override {}
  };

  // The engine has something to send that no timer and no packet waits for.
  bool more_work(bool blocked) const { return !blocked && more_.load(std::memory_order_relaxed); }

  const uint64_t generation_ = fork_generation();
  const std::shared_ptr<wire::Wire> wire_;
  const std::shared_ptr<Clock> clock_;
  VirtualClock* const virtual_;           // clock_ if it is virtual
  std::atomic<bool> constructed_{false};  // other NICs of the wire may step this one
  std::atomic<uint32_t> own_word_{0};
  wire::Bell own_bell_{own_word_, false};  // where the port has none
  Dma dma_;
  std::unique_ptr<wire::Port> port_;
  wire::Bell* const bell_;
  transport::Engine engine_;
  Discard discard_;
  std::atomic<bool> ingress_{true};

  alignas(64) Lock lock_;
  uint64_t ticks_ = 0, now_ = 0;     // locked: the clock as last read, and when
  std::atomic<bool> more_{false};    // the last turn left something to send
  std::atomic<uint32_t> misses_{0};  // times that the lock was taken already; a lost count does not matter
  std::atomic<uint64_t> polls_{0};   // rings and polls of the program; a lost count does not matter

  std::atomic<bool> stopped_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> watch_{0};  // what the thread sleeps on while the program polls
  std::atomic<uint32_t> gone_{0};   // the thread has ended
  std::unique_ptr<std::thread> thread_;
};

}  // namespace userdma::soft
