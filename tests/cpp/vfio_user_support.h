// A vfio-user client for tests: messages by hand, over one end of a socket pair.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "soft/bnxt/soft_bnxt.h"
#include "soft/vfio_user/message.h"
#include "soft/vfio_user/session.h"

namespace vfio_user_support {

using namespace userdma;          // NOLINT
using namespace soft::vfio_user;  // NOLINT
using soft::SoftFunction;
using soft::bnxt::SoftBnxt;

using Buffer = std::vector<uint8_t>;

// The values one after the other, as they lie in memory.
template <class... Parts>
Buffer bytes(const Parts&... parts) {
  Buffer out;
  const auto put = [&](const void* at, size_t n) {
    const auto* from = static_cast<const uint8_t*>(at);
    out.insert(out.end(), from, from + n);
  };
  (put(&parts, sizeof parts), ...);
  return out;
}

inline Buffer text(const std::string& json) {
  Buffer out = bytes(Version{0, 0});
  out.insert(out.end(), json.begin(), json.end());
  out.push_back(0);
  return out;
}

inline std::unique_ptr<SoftBnxt> make_function() {
  static uint8_t last = 0;
  SoftFunction::Options o;
  o.name = "soft:test";
  o.wire = soft::wire::Wire::make();
  o.clock = std::make_shared<soft::RealClock>();
  o.mac = {2, 0, 0, 0, 9, ++last};
  o.thread = false;
  return std::make_unique<SoftBnxt>(o);
}

inline size_t open_descriptors() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) n++;
  return n;
}

// A file of memory.
struct File {
  explicit File(size_t size) : size(size), fd(::memfd_create("of-a-client", MFD_CLOEXEC)) {
    if (::ftruncate(fd.get(), static_cast<off_t>(size))) std::abort();
    at = static_cast<uint8_t*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  }
  ~File() { ::munmap(at, size); }
  size_t size;
  Fd fd;
  uint8_t* at;
};

inline Fd event() { return Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

// How often it was signalled since it was last asked.
inline uint64_t signalled(const Fd& event) {
  uint64_t count = 0;
  return ::read(event.get(), &count, sizeof count) == sizeof count ? count : 0;
}

// A served function and its client, which are in this thread and in another one. The device waits for the client as
// long as a busy machine may take.
class Served {
 public:
  explicit Served(SoftFunction& function, bool negotiate = true,
                  std::chrono::milliseconds patience = std::chrono::seconds(60)) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) std::abort();
    socket = Fd(ends[0]);
    session = std::make_unique<Session>(function, Fd(ends[1]), patience);
    thread = std::thread([this] { session->run(); });
    if (negotiate) call(command::kVersion, text("{}"));
  }
  ~Served() { leave(); }

  // The client leaves, and the session is over.
  void leave() {
    socket.reset();
    if (thread.joinable()) thread.join();
    session.reset();
  }

  uint16_t send(uint16_t command, const Buffer& payload = {}, const std::vector<int>& fds = {}, uint32_t flags = 0) {
    Header header;
    header.id = ++id;
    header.command = command;
    header.flags = flags;
    header.size = static_cast<uint32_t>(sizeof header + payload.size());
    put(header, payload, fds);
    return header.id;
  }

  void put(const Header& header, const Buffer& payload, const std::vector<int>& fds = {}) {
    Buffer whole = bytes(header);
    whole.insert(whole.end(), payload.begin(), payload.end());
    put(whole, fds);
  }

  // Any part of a message.
  void put(const Buffer& part, const std::vector<int>& fds = {}) {
    iovec at{const_cast<uint8_t*>(part.data()), part.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(64 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &at;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    (void)!::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  }

  // The next message of the server's. Nothing: it ended the connection.
  std::optional<Message> take() {
    Message out;
    if (!fill(&out.header, sizeof out.header)) return {};
    out.payload.resize(out.header.size - sizeof out.header);
    if (!fill(out.payload.data(), out.payload.size())) return {};
    return out;
  }

  // The error of the answer, 0 if it is none, -1 if the connection is over; `answer` has the payload.
  int call(uint16_t command, const Buffer& payload = {}, const std::vector<int>& fds = {}) {
    const uint16_t sent = send(command, payload, fds);
    auto reply = take();
    if (!reply) return -1;
    if (reply->header.id != sent || reply->header.command != command || !(reply->header.flags & flag::kReply))
      return -2;
    answer = std::move(reply->payload);
    return reply->header.flags & flag::kError ? static_cast<int>(reply->header.error) : 0;
  }

  int map(uint64_t address, uint64_t size, const File* file, uint64_t offset = 0, uint32_t flags = 3) {
    return call(command::kDmaMap, bytes(DmaMap{sizeof(DmaMap), flags, offset, address, size}),
                file ? std::vector<int>{file->fd.get()} : std::vector<int>{});
  }
  int unmap(uint64_t address, uint64_t size, uint32_t flags = 0) {
    return call(command::kDmaUnmap, bytes(DmaUnmap{sizeof(DmaUnmap), flags, address, size}));
  }
  int write(uint32_t region, uint64_t offset, const Buffer& data) {
    Buffer payload = bytes(RegionAccess{offset, region, static_cast<uint32_t>(data.size())});
    payload.insert(payload.end(), data.begin(), data.end());
    return call(command::kRegionWrite, payload);
  }
  int irqs(uint32_t flags, uint32_t index, uint32_t start, uint32_t count, const std::vector<int>& fds = {}) {
    return call(command::kSetIrqs, bytes(uint32_t{20}, flags, index, start, count), fds);
  }
  // Memory space and bus mastering. Writes are answered before they are done: the read comes after it.
  int enable() {
    const int error = write(VFIO_PCI_CONFIG_REGION_INDEX, 4, {6, 0});
    return error ? error : call(command::kRegionRead, bytes(RegionAccess{4, VFIO_PCI_CONFIG_REGION_INDEX, 2}));
  }

  Fd socket;
  std::unique_ptr<Session> session;
  std::thread thread;
  Buffer answer;
  uint16_t id = 0;

 private:
  bool fill(void* into, size_t n) {
    auto* at = static_cast<uint8_t*>(into);
    while (n) {
      const ssize_t got = ::recv(socket.get(), at, n, 0);
      if (got <= 0) return false;
      at += got;
      n -= static_cast<size_t>(got);
    }
    return true;
  }
};

}  // namespace vfio_user_support
