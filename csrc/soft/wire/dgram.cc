// A wire to one peer that speaks Ethernet frames, a datagram of a Unix socket each: what QEMU's `-netdev dgram` is at
// the other end of. What leaves is bytes: RoCE packets are frames of RoCEv2 with their ICRC.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "host/function.h"
#include "soft/thread.h"
#include "soft/wire/codec.h"
#include "soft/wire/registry.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire {
namespace {

constexpr size_t max_frame = 64 << 10;
constexpr size_t max_waiting = 1024;  // frames that came and were not taken: then the peer waits
constexpr uint32_t max_mtu = 4096;    // of RoCE

sockaddr_un address(const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, path.data(), path.size());
  return to;
}

// A thread reads the socket, so that looking for frames costs a load and a frame can wake the NIC.
class DgramPort final : public Port {
 public:
  DgramPort(std::shared_ptr<Wire> wire, std::string local, const std::string& remote)
      : wire_(std::move(wire)), local_(std::move(local)), remote_(address(remote)) {
    const auto fail = [&](const std::string& what) {
      const int error = errno;
      close_all();
      throw host::Error(what + ": " + std::strerror(error));
    };
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    if (socket_ < 0 || stop_ < 0) fail("no socket for " + wire_->name());
    const int size = 4 << 20;
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    const sockaddr_un own = address(local_);
    const auto bind_it = [&] { return ::bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0; };
    if (!bind_it()) {
      // A socket that nobody listens at any more is in the way; one of a live process is not ours to take.
      const int error = errno;
      if (error != EADDRINUSE || alive(own) || ::unlink(local_.c_str()) != 0 || !bind_it()) {
        errno = error;
        fail("the socket " + local_ + " of " + wire_->name());
      }
    }
    try {
      reader_ = start_thread("userdma-dgram", [this] { read(); });
    } catch (...) {
      ::unlink(local_.c_str());
      close_all();
      throw;
    }
  }
  ~DgramPort() override { leave(); }

  void leave() override {
    if (std::exchange(left_, true)) return;
    const uint64_t one = 1;
    (void)!::write(stop_, &one, sizeof one);
    stopping_.store(true, std::memory_order_seq_cst);
    room_.store(1, std::memory_order_seq_cst);
    room_.notify_all();
    reader_.join();
    ::unlink(local_.c_str());
    close_all();
    std::lock_guard guard(mutex_);
    arrived_.clear();
    count_.store(0, std::memory_order_relaxed);
  }

  bool send(const Header& header, const Span* payload, size_t spans) override {
    blocked_ = false;
    if (left_) return true;
    out_.resize(header.is_frame() ? header.payload : encoded_bytes(header));
    if (header.is_frame()) {
      uint8_t* to = out_.data();
      for (size_t i = 0; i < spans; ++i) {
        std::memcpy(to, payload[i].at, payload[i].bytes);
        to += payload[i].bytes;
      }
    } else if (!encode(header, payload, spans, out_.data(), out_.size())) {
      ++counts_.dropped;
      return true;
    }
    if (::sendto(socket_, out_.data(), out_.size(), 0, reinterpret_cast<const sockaddr*>(&remote_), sizeof remote_) <
        0) {
      blocked_ = errno == EAGAIN || errno == ENOBUFS;
      if (blocked_) return false;
      ++counts_.dropped;  // there is no peer, as where a cable has no other end
      return true;
    }
    ++counts_.sent;
    return true;
  }

  unsigned receive(Sink& sink, unsigned budget, uint32_t most) override {
    unsigned taken = 0;
    while (taken < budget && count_.load(std::memory_order_acquire)) {
      std::vector<uint8_t> frame;
      {
        std::lock_guard guard(mutex_);
        if (arrived_.empty() || arrived_.front().size() > most) break;
        frame = std::move(arrived_.front());
        arrived_.pop_front();
        count_.store(arrived_.size(), std::memory_order_release);
        if (arrived_.size() == max_waiting / 2) {
          room_.store(1, std::memory_order_release);
          room_.notify_all();
        }
      }
      Header header;
      header.opcode = frame_opcode;
      header.payload = static_cast<uint32_t>(frame.size());
      std::memcpy(header.dmac, frame.data(), 6);
      const Span span{frame.data(), frame.size()};
      sink.packet(header, &span, 1);
      ++counts_.received;
      ++taken;
    }
    return taken;
  }

  bool pending() const override { return count_.load(std::memory_order_acquire) != 0; }
  uint32_t largest(uint32_t mtu) const override { return std::min(mtu, max_mtu); }
  bool recall(const void*, size_t) override { return true; }  // what is sent is copied
  bool blocked() const override { return blocked_; }
  Bell* bell() override { return &bell_; }
  Counts counts() const override { return counts_; }

 private:
  static bool alive(const sockaddr_un& at) {
    const int probe = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool found = probe >= 0 && ::connect(probe, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
    if (probe >= 0) ::close(probe);
    return found;
  }

  void read() {
    std::vector<uint8_t> buffer(max_frame);
    for (;;) {
      pollfd wait[2] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
      if (::poll(wait, 2, -1) < 0 && errno != EINTR) return;
      if (wait[1].revents) return;
      for (;;) {
        const ssize_t bytes = ::recv(socket_, buffer.data(), buffer.size(), MSG_TRUNC);
        if (bytes < 0) break;
        if (bytes < static_cast<ssize_t>(min_frame) || bytes > static_cast<ssize_t>(buffer.size())) continue;
        size_t waiting;
        {
          std::lock_guard guard(mutex_);
          arrived_.emplace_back(buffer.data(), buffer.data() + bytes);
          waiting = arrived_.size();
          count_.store(waiting, std::memory_order_release);
          if (waiting >= max_waiting) room_.store(0, std::memory_order_seq_cst);
        }
        bell_.ring();
        if (waiting < max_waiting) continue;
        if (stopping_.load(std::memory_order_seq_cst)) return;  // or its store to room_ comes after ours
        room_.wait(0, std::memory_order_seq_cst);
      }
    }
  }

  void close_all() {
    for (int* fd : {&socket_, &stop_}) {
      if (*fd >= 0) ::close(*fd);
      *fd = -1;
    }
  }

  const std::shared_ptr<Wire> wire_;
  const std::string local_;
  const sockaddr_un remote_;
  int socket_ = -1;
  int stop_ = -1;
  bool left_ = false;
  bool blocked_ = false;
  Counts counts_;
  std::vector<uint8_t> out_;

  std::atomic<uint32_t> asleep_{0};
  Bell bell_{asleep_, false};
  std::mutex mutex_;
  std::deque<std::vector<uint8_t>> arrived_;
  std::atomic<size_t> count_{0};   // of arrived_
  std::atomic<uint32_t> room_{1};  // the reader may go on
  std::atomic<bool> stopping_{false};
  std::thread reader_;
};

class DgramWire final : public Wire {
 public:
  DgramWire(std::string local, std::string remote) : local_(std::move(local)), remote_(std::move(remote)) {}

  std::unique_ptr<Port> attach(const uint8_t*, Owner*, Arena*) override {
    return std::make_unique<DgramPort>(shared_from_this(), local_, remote_);
  }
  std::string name() const override { return "dgram:" + local_ + "," + remote_; }

 private:
  const std::string local_;
  const std::string remote_;
};

}  // namespace

std::shared_ptr<Wire> make_dgram(const std::string& paths) {
  const size_t comma = paths.find(',');
  const std::string local = paths.substr(0, comma);
  const std::string remote = comma == std::string::npos ? "" : paths.substr(comma + 1);
  const auto good = [](const std::string& path) {
    return !path.empty() && path.size() < sizeof(sockaddr_un::sun_path) && path.find(',') == std::string::npos &&
           path.find('\0') == std::string::npos;
  };
  if (!good(local) || !good(remote)) {
    throw host::Error("no wire can be named \"dgram:" + paths + "\": two socket paths of at most " +
                      std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes are wanted, \"dgram:LOCAL,REMOTE\"");
  }
  return std::make_shared<DgramWire>(local, remote);
}

}  // namespace userdma::soft::wire
