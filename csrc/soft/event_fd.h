// An eventfd that is another process's: it may be full, and may be one that blocks then.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace userdma::soft {

// Adds one to it, if it has room: nobody waits for its reader, who has 2^64 - 2 of them to take already. 0, or an
// errno.
inline int signal_event(int fd) {
  constexpr uint64_t one = 1;
  pollfd room{fd, POLLOUT, 0};
  if (::poll(&room, 1, 0) <= 0) return 0;
  return ::write(fd, &one, sizeof one) < 0 && errno != EAGAIN ? errno : 0;
}

}  // namespace userdma::soft
