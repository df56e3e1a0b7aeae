// Tells a forked child from its parent: what runs and shares memory is the parent's.
#pragma once

#include <atomic>
#include <cstdint>

namespace userdma::soft {

namespace detail {
extern std::atomic<uint64_t> forks;
}

// Differs between a process and the child that it forked.
inline uint64_t fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

// Runs in every child that is forked from here on, before anything else of it; `run` must not need a lock that a
// thread of the parent may have held.
void at_fork_in_child(void (*run)());

}  // namespace userdma::soft
