#include "soft/vfio_user/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "host/function.h"
#include "soft/thread.h"

namespace userdma::soft::vfio_user {
namespace {

std::string reason() { return std::strerror(errno); }

Fd make_event() {
  Fd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) throw host::MachineError("an eventfd: " + reason() + " (ulimit -n?)");
  return fd;
}

void signal(const Fd& event) {
  const uint64_t one = 1;
  if (::write(event.get(), &one, sizeof one) < 0) {
    // Full: it is readable all the same.
  }
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != path.npos) {
    throw host::Error("a socket cannot be at '" + path + "': the path has " + std::to_string(path.size()) +
                      " bytes, and 1 to " + std::to_string(sizeof address.sun_path - 1) + " are wanted");
  }
  path.copy(address.sun_path, path.size());
  return address;
}

Fd make_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw host::MachineError("a Unix socket: " + reason());
  return fd;
}

// Whether a process listens on the socket there.
bool somebody_listens(const sockaddr_un& address) {
  const Fd probe = make_socket();
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno != ECONNREFUSED;
}

}  // namespace

Server::Server(std::shared_ptr<SoftFunction> function, const Options& options)
    : function_(std::move(function)), options_(options), stop_(make_event()), end_(make_event()) {
  if (function_->addressing() != host::Addressing::Iova) {
    throw host::Error(function_->name() +
                      " has no IOMMU: its bus addresses are those of this machine's memory, not of a guest's");
  }
  function_->begin_serving();
  try {
    listen();
    start();
  } catch (...) {
    function_->end_serving();
    throw;
  }
}

void Server::start() {
  try {
    thread_ = std::make_unique<std::thread>(start_thread("vfio-user", [this] { serve(); }));
  } catch (...) {
    unlink_own();
    throw;
  }
}

void Server::listen() {
  const sockaddr_un address = address_of(options_.path);
  listener_ = make_socket();
  const auto bind = [&] {
    return ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  if (!bind()) {
    const int error = errno;
    struct stat status{};
    const bool is_socket = ::lstat(options_.path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
    if (error != EADDRINUSE) throw host::MachineError("a socket at " + options_.path + ": " + std::strerror(error));
    if (!is_socket)
      throw host::MachineError("a socket at " + options_.path +
                               ": what is there is no socket; remove it, or choose another path");
    if (somebody_listens(address)) {
      throw host::MachineError("a socket at " + options_.path +
                               ": somebody listens on it already; end that server, or choose another path");
    }
    // Of a server that died.
    if (::unlink(options_.path.c_str()) || !bind())
      throw host::MachineError("a socket at " + options_.path + ": " + reason());
  }
  struct stat status{};
  if (::lstat(options_.path.c_str(), &status) == 0) inode_ = status.st_ino;
  if (::listen(listener_.get(), 4)) throw host::MachineError("listening at " + options_.path + ": " + reason());
}

// Whoever has put something else there keeps it.
void Server::unlink_own() {
  struct stat status{};
  if (::lstat(options_.path.c_str(), &status) == 0 && status.st_ino == inode_) ::unlink(options_.path.c_str());
}

void Server::serve() {
  while (!stopping_.load(std::memory_order_acquire)) {
    pollfd ready[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) break;
    if (!(ready[0].revents & POLLIN)) continue;
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      // It has left already, or there are no descriptors: not to be asked again at once.
      ::poll(&ready[1], 1, 50);
      continue;
    }
    // Who leaves without a word only looked whether somebody listens.
    pollfd first[2] = {{socket.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (::poll(first, 2, -1) < 0 && errno == EINTR) {
    }
    char byte;
    if (first[1].revents || ::recv(socket.get(), &byte, 1, MSG_PEEK) <= 0) continue;
    try {
      serve_client(std::move(socket));
    } catch (const std::exception& error) {  // no memory: the client finds the connection closed
      std::fprintf(stderr, "userdma: serving %s at %s: %s\n", function_->name().c_str(), options_.path.c_str(),
                   error.what());
    }
    connected_.store(false, std::memory_order_release);
    if (options_.once) break;
  }
  unlink_own();
  listener_.reset();
  function_->end_serving();
  ended_.store(true, std::memory_order_release);
  signal(end_);
}

void Server::serve_client(Fd socket) {
  Session session(*function_, std::move(socket));
  {
    std::lock_guard guard(mutex_);
    session_ = &session;
    if (stopping_.load(std::memory_order_acquire)) session.close();
  }
  clients_.fetch_add(1, std::memory_order_release);
  connected_.store(true, std::memory_order_release);
  const auto leave = [&] {
    std::lock_guard guard(mutex_);
    session_ = nullptr;
  };
  try {
    session.run();
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void Server::close() {
  if (!made_here()) {
    (void)thread_.release();  // the parent's
    return;
  }
  std::lock_guard closing(closing_);
  if (!thread_) return;
  stopping_.store(true, std::memory_order_release);
  signal(stop_);
  {
    std::lock_guard guard(mutex_);
    if (session_) session_->close();
  }
  thread_->join();
  thread_.reset();
}

}  // namespace userdma::soft::vfio_user
