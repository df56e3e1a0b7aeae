// The time that a soft NIC's timers run on: the machine's, or one that moves only when nobody has anything to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "host/fork.h"

namespace userdma::soft {

// A deadline that never comes.
inline constexpr uint64_t never = UINT64_MAX;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now() = 0;  // nanoseconds from an arbitrary start; never goes back
  virtual bool is_virtual() const { return false; }
};

// The machine's monotonic clock.
class RealClock final : public Clock {
 public:
  uint64_t now() override;
};

// Whoever has timers on a virtual clock: a NIC, or a wire that delays packets.
class Participant {
 public:
  // Does what can be done at the clock's present time (arrived packets, posted work, timers that are due), without
  // blocking and without calling VirtualClock::step. True if anything was done.
  virtual bool work() = 0;

  // When its earliest timer is due; `never` if it has none.
  virtual uint64_t next_deadline() = 0;

 protected:
  ~Participant() = default;
};

// Time that stands still while any participant has something to do, and then jumps to the earliest timer. Seven
// timeouts of 67 ms take no time, and the same calls give the same run: participants work in the order in which
// they attached.
class VirtualClock final : public Clock, public host::MadeHere {
 public:
  explicit VirtualClock(uint64_t start = 0) : now_(start) {}

  uint64_t now() override { return now_.load(std::memory_order_acquire); }
  bool is_virtual() const override { return true; }

  // The calls below throw host::MachineError in a forked child of who made the clock. They take the clock's lock, and
  // step and advance call participants with it held: a participant that holds its own lock must not make them.
  void attach(Participant& participant);
  void detach(Participant& participant);  // on return it is not working and never will be again

  // Called by a participant that found nothing to do. Every participant works once; if none did anything, time
  // jumps to the earliest deadline and those that are due work. False if nothing at all can happen any more, or
  // another thread is stepping.
  bool step();

  // Moves time by `nanoseconds`, stopping at each deadline on the way.
  void advance(uint64_t nanoseconds);

 private:
  bool work_all();
  uint64_t earliest();

  std::atomic<uint64_t> now_;
  std::recursive_mutex mutex_;  // recursive: so that a step inside a step is seen (and refused) by its own thread
  bool stepping_ = false;
  std::vector<Participant*> participants_;
};

}  // namespace userdma::soft
