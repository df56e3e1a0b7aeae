#include "soft/fork.h"

#include <pthread.h>

namespace userdma::soft {

std::atomic<uint64_t> detail::forks{1};

void at_fork_in_child(void (*run)()) { ::pthread_atfork(nullptr, nullptr, run); }

namespace {
[[maybe_unused]] const bool installed = [] {
  at_fork_in_child([] { detail::forks.fetch_add(1, std::memory_order_relaxed); });
  return true;
}();
}  // namespace

}  // namespace userdma::soft
