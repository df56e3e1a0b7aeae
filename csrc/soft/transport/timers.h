// Deadlines of pairs, earliest first.
//
// A pair's deadline moves with every acknowledgement, its place here does not: an entry that comes up before its
// pair's deadline is put back at the deadline, one whose pair has none any more is dropped. So a packet costs a store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "soft/clock.h"

namespace userdma::soft::transport {

// What has a deadline; a part of a pair.
struct Timer {
  static constexpr size_t nowhere = SIZE_MAX;
  uint64_t deadline = never;
  uint64_t looked_at = never;  // when the heap looks at it
  size_t place = nowhere;      // in the heap
};

// A binary heap. Deadlines mostly grow, so that adding one costs a compare.
class Timers {
 public:
  // The timer's deadline is set; it must be looked at no later than that.
  void arm(Timer& t) {
    if (t.deadline >= t.looked_at && t.place != Timer::nowhere) [[likely]]
      return;
    if (t.place == Timer::nowhere) {
      t.place = heap_.size();
      heap_.push_back({t.deadline, &t});
    }
    t.looked_at = heap_[t.place].when = t.deadline;
    up(t.place);
  }

  void remove(Timer& t) {
    if (t.place == Timer::nowhere) return;
    const size_t hole = t.place;
    t.place = Timer::nowhere;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    put(hole, last);
    up(hole);
    down(last.timer->place);
  }

  // A lower bound of the earliest deadline, at no cost.
  uint64_t bound() const { return heap_.empty() ? never : heap_[0].when; }

  // The earliest deadline; the top entry is then true to its timer.
  uint64_t earliest() {
    while (!heap_.empty()) {
      Timer& t = *heap_[0].timer;
      if (t.deadline == heap_[0].when) return t.deadline;
      if (t.deadline == never) {
        remove(t);
      } else {
        t.looked_at = heap_[0].when = t.deadline;
        down(0);
      }
    }
    return never;
  }

  // A timer due at `now`, taken out; null if there is none.
  Timer* take(uint64_t now) {
    if (bound() > now || earliest() > now) return nullptr;
    Timer& t = *heap_[0].timer;
    remove(t);
    t.deadline = never;
    return &t;
  }

 private:
  struct Entry {
    uint64_t when;
    Timer* timer;
  };

  void put(size_t i, const Entry& e) {
    heap_[i] = e;
    e.timer->place = i;
  }
  void up(size_t i) {
    const Entry e = heap_[i];
    while (i > 0 && e.when < heap_[(i - 1) / 2].when) {
      put(i, heap_[(i - 1) / 2]);
      i = (i - 1) / 2;
    }
    put(i, e);
  }
  void down(size_t i) {
    const Entry e = heap_[i];
    for (;;) {
      size_t child = 2 * i + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1].when < heap_[child].when) child++;
      if (heap_[child].when >= e.when) break;
      put(i, heap_[child]);
      i = child;
    }
    put(i, e);
  }

  std::vector<Entry> heap_;
};

}  // namespace userdma::soft::transport
