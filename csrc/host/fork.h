// Tells a forked child from its parent: what runs, shares memory or drives a device is the parent's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace userdma::host {

namespace detail {
extern std::atomic<uint64_t> forks;
}

// Differs between a process and the child that it forked.
inline uint64_t fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

// Of the process that made it. A forked child has a copy, whose locks the parent's threads may have held for good: it
// must be left alone.
class MadeHere {
 public:
  bool made_here() const { return generation_ == fork_generation(); }
  // Throws host::MachineError, which begins with `what` it is.
  void check_made_here(const std::string& what) const;

 private:
  const uint64_t generation_ = fork_generation();
};

// A lock of what a whole process shares. Whoever forks holds it over the fork: the child finds it free, and what it
// guards whole. Under it no other one is taken, and nobody waits for who might fork (Python's global lock).
class ForkMutex {
 public:
  ForkMutex();
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Runs in every child that is forked from here on, before anything else of it; `run` must not need a lock that a
// thread of the parent may have held.
void at_fork_in_child(void (*run)());

// What each process has one of: a forked child begins with a new one, whatever threads of its parent were doing with
// theirs. Made when the library is loaded, not by the first thread that needs it: a fork amid that would leave the
// child none. Never destroyed.
template <class T>
class OneOfProcess {
 public:
  T& operator*() const { return *current.load(std::memory_order_acquire); }
  T* operator->() const { return &**this; }

 private:
  static T* make() {
    at_fork_in_child([] { renew(); });
    return new T;
  }
  static void renew() { current.store(new T, std::memory_order_release); }

  static inline std::atomic<T*> current{make()};
};

// `in_child` runs in every child that is forked while this lives, and the fork returns in the parent when it has run in
// the child. ForkMutexes are free then.
class AtFork {
 public:
  explicit AtFork(std::function<void()> in_child);
  ~AtFork();
  AtFork(const AtFork&) = delete;
  AtFork& operator=(const AtFork&) = delete;

 private:
  std::function<void()> in_child_;
};

}  // namespace userdma::host
