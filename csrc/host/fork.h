// Tells a forked child from its parent: what runs, shares memory or drives a device is the parent's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace userdma::host {

namespace detail {
extern std::atomic<uint64_t> forks;
}

// Differs between a process and the child that it forked.
inline uint64_t fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

// Runs in every child that is forked from here on, before anything else of it; `run` must not need a lock that a
// thread of the parent may have held.
void at_fork_in_child(void (*run)());

// The same for as long as this lives, and the fork returns in the parent when it has run in the child.
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
