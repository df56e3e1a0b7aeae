#include "soft/vfio_user/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace userdma::soft::vfio_user {

Channel::Channel(Fd socket, std::chrono::milliseconds stall) : socket_(std::move(socket)), stall_(stall) {
  const timeval limit{static_cast<time_t>(stall.count() / 1000), static_cast<suseconds_t>(stall.count() % 1000 * 1000)};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool Channel::next(Message& out) {
  std::unique_lock guard(mutex_);
  for (;;) {
    changed_.wait(guard, [this] { return !commands_.empty() || over_ || !reading_; });
    if (!commands_.empty()) {
      out = std::move(commands_.front());
      commands_.pop_front();
      commands_bytes_ -= out.payload.size();
      commands_fds_ -= out.fds.size();
      return true;
    }
    if (over_) return false;
    read_one(guard, Clock::time_point::max());
  }
}

bool Channel::reply(const Header& command, const void* payload, size_t bytes, const void* more, size_t more_bytes) {
  if (command.flags & flag::kNoReply) return true;
  Header header;
  header.id = command.id;
  header.command = command.command;
  header.flags = flag::kReply;
  return send(header, payload, bytes, more, more_bytes);
}

bool Channel::refuse(const Header& command, int error) {
  if (command.flags & flag::kNoReply) return true;
  Header header;
  header.id = command.id;
  header.command = command.command;
  header.flags = flag::kReply | flag::kError;
  header.error = static_cast<uint32_t>(error);
  return send(header, nullptr, 0, nullptr, 0);
}

ptrdiff_t Channel::ask(uint16_t command, const void* payload, size_t bytes, const void* more, size_t more_bytes,
                       void* answer, size_t answer_bytes, std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  Message reply;
  Header header;
  header.command = command;
  {
    std::lock_guard guard(mutex_);
    if (over_) return -ENOTCONN;
    do header.id = next_id_++;
    while (waiting_.contains(header.id));
    waiting_[header.id] = &reply;
  }
  const bool sent = send(header, payload, bytes, more, more_bytes);
  std::unique_lock guard(mutex_);
  while (sent && !over_ && !reply.header.size && Clock::now() < until) {
    if (reading_) {
      changed_.wait_until(guard, until);
    } else {
      read_one(guard, until);
    }
  }
  // An answer that comes later finds nobody, and is thrown away.
  waiting_.erase(header.id);
  if (!sent || over_) return -ENOTCONN;
  if (!reply.header.size) return -ETIMEDOUT;
  if (reply.header.command != command) return -EPROTO;
  if (reply.header.flags & flag::kError) return reply.header.error ? -static_cast<ptrdiff_t>(reply.header.error) : -EIO;
  const size_t n = std::min(answer_bytes, reply.payload.size());
  std::copy_n(reply.payload.data(), n, static_cast<uint8_t*>(answer));  // which may be none, of nothing
  return static_cast<ptrdiff_t>(n);
}

void Channel::close() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  std::lock_guard guard(mutex_);
  over_ = true;
  changed_.notify_all();
}

void Channel::read_one(std::unique_lock<std::mutex>& guard, Clock::time_point until) {
  reading_ = true;
  guard.unlock();
  Message message;
  bool whole = true, any = true;
  if (until != Clock::time_point::max()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count() + 1;
    pollfd ready{socket_.get(), POLLIN, 0};
    any = ::poll(&ready, 1, static_cast<int>(std::max<long>(left, 0))) > 0;
  }
  if (any) whole = receive(message);
  guard.lock();
  reading_ = false;
  if (!whole) over_ = true;
  if (any && whole) {
    if ((message.header.flags & flag::kTypeMask) == flag::kCommand) {
      commands_bytes_ += message.payload.size();
      commands_fds_ += message.fds.size();
      commands_.push_back(std::move(message));
      over_ = over_ || commands_.size() > most_commands || commands_bytes_ > most_commands_bytes ||
              commands_fds_ > most_commands_fds;
    } else if (const auto found = waiting_.find(message.header.id);
               found != waiting_.end() && !found->second->header.size) {
      *found->second = std::move(message);
    }
  }
  changed_.notify_all();
}

bool Channel::receive(Message& out) {
  Clock::time_point begun{};
  if (!receive_bytes(&out.header, sizeof out.header, out.fds, begun)) return false;
  if (framing(out.header) != Framing::Whole) {
    // Nobody knows where the next message begins.
    if ((out.header.flags & flag::kTypeMask) != flag::kReply) refuse(out.header, EINVAL);
    return false;
  }
  out.payload.resize(out.header.size - sizeof out.header);
  return out.payload.empty() || receive_bytes(out.payload.data(), out.payload.size(), out.fds, begun);
}

bool Channel::receive_bytes(void* into, size_t bytes, std::vector<Fd>& fds, Clock::time_point& begun) {
  auto* at = static_cast<uint8_t*>(into);
  while (bytes) {
    iovec part{at, bytes};
    // As many as the system passes at once, so that none is ever dropped unseen.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(253 * sizeof(int))> control;
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    const bool any = begun != Clock::time_point{};
    // Interrupted by a signal, as by the continuation of a stopped process, the socket's own time begins anew.
    if (n < 0 && errno == EINTR && (!any || Clock::now() - begun <= stall_)) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && !any) continue;
    if (n <= 0) return false;
    // They are this process's from here on, also if the message is refused.
    for (cmsghdr* one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
      if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; i++) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(one) + i * sizeof fd, sizeof fd);
        fds.emplace_back(fd);
      }
    }
    // More descriptors in one message than it can have: nobody knows which are missing.
    if (message.msg_flags & MSG_CTRUNC || fds.size() > 253) return false;
    const Clock::time_point now = Clock::now();
    if (!any) begun = now;
    if (now - begun > stall_) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool Channel::send(const Header& header, const void* payload, size_t bytes, const void* more, size_t more_bytes) {
  Header whole = header;
  whole.size = static_cast<uint32_t>(sizeof whole + bytes + more_bytes);
  std::array<iovec, 3> parts{
      {{&whole, sizeof whole}, {const_cast<void*>(payload), bytes}, {const_cast<void*>(more), more_bytes}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  std::lock_guard guard(send_mutex_);
  const Clock::time_point until = Clock::now() + stall_;
  while (message.msg_iovlen) {
    ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR && Clock::now() <= until) continue;
    if (n < 0 || Clock::now() > until) {
      ::shutdown(socket_.get(), SHUT_RDWR);  // with a part of a message on its way, nothing more can be said
      return false;
    }
    while (message.msg_iovlen && static_cast<size_t>(n) >= message.msg_iov->iov_len) {
      n -= static_cast<ssize_t>(message.msg_iov->iov_len);
      message.msg_iov++;
      message.msg_iovlen--;
    }
    if (message.msg_iovlen) {
      message.msg_iov->iov_base = static_cast<char*>(message.msg_iov->iov_base) + n;
      message.msg_iov->iov_len -= static_cast<size_t>(n);
    }
  }
  return true;
}

}  // namespace userdma::soft::vfio_user
