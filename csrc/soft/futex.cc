#include "soft/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace userdma::soft {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

bool futex_wait(std::atomic<uint32_t>& word, uint32_t value, uint64_t nanoseconds, bool shared) {
  timespec limit{};
  timespec* timeout = nullptr;
  if (nanoseconds != UINT64_MAX) {
    limit.tv_sec = static_cast<time_t>(nanoseconds / 1000000000);
    limit.tv_nsec = static_cast<long>(nanoseconds % 1000000000);
    timeout = &limit;
  }
  long result = ::syscall(SYS_futex, &word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, timeout, nullptr, 0);
  return !(result < 0 && errno == ETIMEDOUT);
}

void futex_wake(std::atomic<uint32_t>& word, int threads, bool shared) {
  ::syscall(SYS_futex, &word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

}  // namespace userdma::soft
