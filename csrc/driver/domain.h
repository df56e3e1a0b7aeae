// What the regions, the event ring and the queue pairs of one NIC share, and the identity they are compared by.
//
// Threads: the calls of one domain, its queue pairs and event ring come one at a time (from Python: under the GIL).
// Only what a waiting thread looks at meanwhile is atomic, and says so. A store to a doorbell or an idle hook of a
// soft function may let another call in; every call has its state in order before it does either.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>

#include "host/function.h"

namespace userdma::driver {

// Lets threads look at memory that another thread is about to free: look only between a true enter() and leave();
// after close() returned, nobody looks and nobody will.
class Gate {
 public:
  bool enter() {
    inside_.fetch_add(1);
    if (!closed_.load()) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() { inside_.fetch_sub(1); }

  void shut() { closed_.store(true); }
  void drain() const {
    while (inside_.load() != 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> closed_{false};
};

// A queue pair or an event ring, as its domain sees it.
class Member {
 public:
  virtual void machine_failed(const std::string& why) = 0;  // every entry without a completion fails with `why`
  virtual void retire(const std::string& why) = 0;          // its memory and registers are not touched again
  virtual void drain() = 0;                                 // waits for threads that look at them right now

 protected:
  ~Member() = default;
};

class Domain {
 public:
  explicit Domain(std::shared_ptr<host::Function> function)
      : function_(std::move(function)), idle_(function_->idle()) {}
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  const std::shared_ptr<host::Function>& function() const { return function_; }
  host::Idle idle() const { return idle_; }
  const std::string& failure() const { return failure_; }
  bool closed() const { return closed_; }
  const std::string& state() const { return state_; }  // what the NIC is since it is closed
  int views = 0;                                       // buffers of its regions that Python holds

  void add(Member* member) { members_.insert(member); }
  void remove(Member* member) { members_.erase(member); }

  // The first failure stays.
  void fail(const std::string& why) {
    if (!failure_.empty()) return;
    failure_ = why;
    failed_.store(true, std::memory_order_relaxed);
    for (Member* member : members_) member->machine_failed(why);
  }

  // What else shows that the NIC failed, and how: "" while it works. Any thread may ask, until the domain is closed; it
  // costs a load of a register, so it is asked now and then.
  void watch(std::function<std::string()> ails) { ails_ = std::move(ails); }

  // Whether the machine works.
  bool check() {
    if (!failed_.load(std::memory_order_relaxed)) {
      if (function_->failed())
        fail("the function " + function_->name() + " " + function_->failure());
      else if (due())
        if (const std::string why = ails_(); !why.empty()) fail(why);
    }
    return failure_.empty();
  }

  // For a waiting thread: whether check() has something to do.
  bool attention() {
    if (failed_.load(std::memory_order_relaxed)) return false;
    if (function_->failed()) return true;
    if (!due() || ails_().empty()) return false;
    asked_.store(0, std::memory_order_relaxed);  // it is due again at once
    return true;
  }

  // The NIC is closed: every member retires. Then drain(), where other threads may run. (In the child of a fork there
  // are none, and those that looked when it forked never leave.)
  void close(const std::string& why, const std::string& state = "closed") {
    closed_ = true;
    state_ = state;
    for (Member* member : members_) member->retire(why);
  }
  void drain() const {
    for (Member* member : members_) member->drain();
  }

 private:
  // A soft function is checked at every poll that found nothing, a real one seldom enough.
  bool due() {
    if (!ails_) return false;
    const uint32_t every = idle_.run != nullptr ? 4096 : 1;
    return asked_.fetch_add(1, std::memory_order_relaxed) % every == 0;
  }

  std::shared_ptr<host::Function> function_;
  std::function<std::string()> ails_;
  std::atomic<uint32_t> asked_{0};
  host::Idle idle_;
  std::unordered_set<Member*> members_;
  std::string failure_;
  std::string state_;
  std::atomic<bool> failed_{false};
  bool closed_ = false;
};

}  // namespace userdma::driver
