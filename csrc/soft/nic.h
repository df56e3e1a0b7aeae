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

#include "host/fork.h"
#include "host/function.h"
#include "soft/clock.h"
#include "soft/dma.h"
#include "soft/lock.h"
#include "soft/memory.h"
#include "soft/transport/engine.h"
#include "soft/wire/wire.h"

namespace userdma::soft {

// What a family's NIC does beside RoCE: Ethernet. The NIC's lock is held in every call.
class Frames : public wire::Sink {
 public:
  // Frames come by `packet`. Sends what can be sent. True if anything was done.
  virtual bool run(uint64_t now) = 0;
  virtual bool busy() const = 0;  // something to send that no timer and no packet waits for
  virtual uint64_t next_deadline() const = 0;

 protected:
  ~Frames() = default;
};

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
  uint64_t time();  // locked: of the clock, some microseconds old at most

  // A doorbell: takes the lock, runs `work(engine)`, and then what it set going, in this thread, as far as it is short.
  template <class F>
  void ring(F&& work) {
    if (owned()) [[likely]] {
      touch();
      lock_.lock();
      work(engine_);
      const bool brief = thread_ != nullptr;  // who else would go on?
      const Turn did = turn(brief);
      rouse();
      lock_.unlock();
      tell(did);
      after_turn(brief, did);
      if (port_->pending()) bell_->ring();
    }
  }

  // Does what there is to do, if no other thread is doing it. True if anything was done. What a poll that found
  // nothing calls, and what moves a virtual clock.
  bool advance() { return advance(false) != wire::Port::Helped::Nothing; }
  // What host::Idle says. The ticket changes whenever the NIC has done anything.
  bool idle(bool brief) { return advance(brief) == wire::Port::Helped::More; }
  uint32_t ticket() const { return done_.load(std::memory_order_acquire); }
  void rest(uint32_t ticket, uint64_t nanoseconds);
  host::Idle idle() {
    return {[](void* self, bool brief) { return static_cast<Nic*>(self)->idle(brief); },
            [](void* self) { return static_cast<Nic*>(self)->ticket(); },
            [](void* self, uint32_t ticket, uint64_t ns) { static_cast<Nic*>(self)->rest(ticket, ns); }, this};
  }

  // Who takes Ethernet frames, and runs with the NIC. Before anything else is done with it.
  void set_frames(Frames* frames) {
    frames_ = discard_.frames = frames;
    engine_.set_frames(frames);
  }

  // RoCE packets are thrown away until the receive path is open.
  void ingress(bool open) { ingress_.store(open, std::memory_order_relaxed); }
  bool open() const { return ingress_.load(std::memory_order_relaxed); }

  // Once it returns, no packet of this NIC refers to the memory any more. Takes the lock, and gives it back while it
  // waits for a receiver that is reading the memory.
  void recall(const void* begin, size_t bytes);

  // Leaves the wire and ends the thread: nothing runs by itself any more. The lock must not be held. Idempotent.
  void stop();

  // False in a forked child: the NIC is the parent's, the child must leave it alone (and never take its lock).
  bool owned() const { return generation_ == host::fork_generation(); }

 private:
  // wire::Owner: another thread does this NIC's work because it sent a packet here.
  bool step(bool brief) override { return try_turn(brief) != Turn::Nothing; }
  // Participant of a virtual clock.
  bool work() override;
  uint64_t next_deadline() override;

  // Locked: receive, engine and timers until there is nothing to do, or for long enough. A large packet ends it: what
  // it completes is told, and the program may post again, before the next one lands.
  enum class Turn : uint8_t { Nothing, Some, Large };
  Turn turn(bool brief);
  Turn try_turn(bool brief);                            // with the lock, unless another thread has it
  wire::Port::Helped after_turn(bool brief, Turn did);  // what must not be done under the lock
  wire::Port::Helped advance(bool brief);
  void tell(Turn did) {  // after a turn, without the lock: who rests looks again
    // One who has just begun to rest may be overlooked. It rests for a millisecond at most.
    if (did != Turn::Nothing && resting_.load(std::memory_order_relaxed)) [[unlikely]]
      wake();
  }
  void wake();
  // Locked: the thread sleeps, and what another one's turn left is not for later. A program that rings or polls has
  // woken it before, but it may have gone to sleep again before that one had the lock.
  void rouse() {
    if (bell_->asleep() && (more_.load(std::memory_order_relaxed) || deadline() < sleeps_until_)) [[unlikely]]
      bell_->ring();
  }
  void touch() {  // a program rings or polls
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    bell_->ring();
  }
  bool advance_virtual();
  void run_thread();
  uint64_t deadline();  // locked

  // What a closed receive path does to packets.
  struct Discard final : wire::Sink {
    void packet(const wire::Header& header, const wire::Span* payload, size_t spans) override {
      if (header.is_frame() && frames) frames->packet(header, payload, spans);
    }
    Frames* frames = nullptr;
  };
  bool busy() const { return engine_.busy() || (frames_ && frames_->busy()); }

  // The engine has something to send that no timer and no packet waits for.
  bool more_work(bool blocked) const { return !blocked && more_.load(std::memory_order_relaxed); }

  const uint64_t generation_ = host::fork_generation();
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
  Frames* frames_ = nullptr;
  Discard discard_;
  std::atomic<bool> ingress_{true};

  alignas(64) Lock lock_;
  std::atomic<uint32_t> done_{0};    // turns that did anything; written under the lock
  uint64_t ticks_ = 0, now_ = 0;     // locked: the clock as last read, and when
  std::atomic<bool> more_{false};    // the last turn left something to send
  std::atomic<uint32_t> misses_{0};  // times that the lock was taken already; a lost count does not matter
  std::atomic<uint64_t> polls_{0};   // rings and polls of the program; a lost count does not matter

  std::atomic<uint32_t> resting_{0};  // threads in rest()

  std::atomic<bool> stopped_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> watch_{0};  // what the thread sleeps on while the program polls
  uint64_t sleeps_until_ = 0;       // locked: the deadline that the thread, if it sleeps, knows of
  std::atomic<uint32_t> gone_{0};   // the thread has ended
  std::unique_ptr<std::thread> thread_;
};

}  // namespace userdma::soft
