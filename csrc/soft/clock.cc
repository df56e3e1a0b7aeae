#include "soft/clock.h"

#include <time.h>

#include <algorithm>

namespace userdma::soft {

uint64_t RealClock::now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

void VirtualClock::attach(Participant& participant) {
  std::lock_guard lock(mutex_);
  participants_.push_back(&participant);
}

void VirtualClock::detach(Participant& participant) {
  std::lock_guard lock(mutex_);
  std::erase(participants_, &participant);
}

bool VirtualClock::work_all() {
  bool any = false;
  // By index: a participant may attach another one.
  for (size_t i = 0; i < participants_.size(); i++) any |= participants_[i]->work();
  return any;
}

uint64_t VirtualClock::earliest() {
  uint64_t first = never;
  for (Participant* p : participants_) first = std::min(first, p->next_deadline());
  return first;
}

bool VirtualClock::step() {
  check_made_here("the virtual clock");
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || stepping_) return false;
  stepping_ = true;
  bool any = work_all();
  if (!any) {
    const uint64_t first = earliest();
    if (first != never) {
      if (first > now()) now_.store(first, std::memory_order_release);
      work_all();
      any = true;  // time moved, or a timer that was due was served
    }
  }
  stepping_ = false;
  return any;
}

void VirtualClock::advance(uint64_t nanoseconds) {
  check_made_here("the virtual clock");
  std::lock_guard lock(mutex_);
  if (stepping_) return;
  stepping_ = true;
  const uint64_t end = now() + nanoseconds;
  for (;;) {
    while (work_all()) {
    }
    const uint64_t first = earliest();
    if (first > end) break;
    if (first > now()) now_.store(first, std::memory_order_release);
    if (!work_all() && first <= now() && earliest() == first) break;  // a timer that its owner does not serve
  }
  now_.store(end, std::memory_order_release);
  while (work_all()) {
  }
  stepping_ = false;
}

}  // namespace userdma::soft
