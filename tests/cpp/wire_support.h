// What the tests of wires share: packets, a sink that keeps them, other processes.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "soft/wire/wire.h"

namespace wire_support {

using namespace userdma::soft::wire;  // NOLINT

struct Mac {
  uint8_t bytes[6];
};
inline Mac mac(uint8_t last) { return {{0x02, 0, 0, 0, 0, last}}; }

inline Header header_to(const Mac& to, const Mac& from, uint32_t psn, uint32_t payload) {
  Header header;
  header.opcode = 4;
  header.flags = Header::AckRequest;
  header.dest_qp = 0x123456;
  header.psn = psn;
  header.payload = payload;
  header.udp_source = 50000;
  std::memcpy(header.dmac, to.bytes, 6);
  std::memcpy(header.smac, from.bytes, 6);
  for (int i = 0; i < 16; ++i) {
    header.sgid[i] = static_cast<uint8_t>(i + from.bytes[5]);
    header.dgid[i] = static_cast<uint8_t>(100 + i + to.bytes[5]);
  }
  return header;
}

inline bool same(const Header& a, const Header& b) {
  return a.opcode == b.opcode && a.flags == b.flags && a.pkey == b.pkey && a.dest_qp == b.dest_qp && a.psn == b.psn &&
         a.psns == b.psns && a.payload == b.payload && a.udp_source == b.udp_source && a.hop_limit == b.hop_limit &&
         a.traffic_class == b.traffic_class && !std::memcmp(a.dmac, b.dmac, 6) && !std::memcmp(a.smac, b.smac, 6) &&
         a.immediate == b.immediate && a.va == b.va && a.rkey == b.rkey && a.dma_length == b.dma_length &&
         a.swap_or_add == b.swap_or_add && a.compare == b.compare && a.syndrome == b.syndrome && a.msn == b.msn &&
         a.qkey == b.qkey && a.src_qp == b.src_qp && !std::memcmp(a.sgid, b.sgid, 16) &&
         !std::memcmp(a.dgid, b.dgid, 16);
}

struct Packet {
  Header header;
  std::vector<uint8_t> payload;
};

struct Keep final : Sink {
  std::vector<Packet> packets;
  std::function<void()> during;
  void packet(const Header& header, const Span* payload, size_t spans) override {
    Packet packet{header, {}};
    for (size_t i = 0; i < spans; ++i)
      packet.payload.insert(packet.payload.end(), payload[i].at, payload[i].at + payload[i].bytes);
    packets.push_back(std::move(packet));
    if (during) during();
  }
};

inline bool send(Port& port, const Header& header, std::vector<uint8_t>& payload) {
  Span span{payload.data(), payload.size()};
  return port.send(header, &span, payload.empty() ? 0 : 1);
}

inline std::vector<uint8_t> pattern(size_t bytes, unsigned seed) {
  std::vector<uint8_t> data(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (auto& byte : data) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return data;
}

template <class F>
bool eventually(F&& condition) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// A name for a wire that no other test and no other run uses.
inline std::string fresh_wire() {
  static int count = 0;
  return "shm:test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}
inline std::string path_of(const std::string& wire) { return "/dev/shm/userdma-" + wire.substr(4); }
inline bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Another process, which runs `body` and then ends with the status it returns. (Forked: `body` must not use doctest.)
class Child {
 public:
  explicit Child(const std::function<int()>& body) {
    std::fflush(nullptr);
    if (::pipe(pipe_) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(pipe_[0]);
      out() = pipe_[1];
      int status = body();
      ::_exit(status);
    }
    ::close(pipe_[1]);
  }
  ~Child() {
    if (pid_ > 0) {
      kill();
    }
    ::close(pipe_[0]);
  }

  // In the child: tells the parent that it got somewhere.
  static void say(char what) {
    if (::write(out(), &what, 1) != 1) ::_exit(99);
  }
  // In the parent: waits for that; 0 if the child is gone.
  char hear() {
    char what = 0;
    return ::read(pipe_[0], &what, 1) == 1 ? what : 0;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }

 private:
  static int& out() {
    static int fd = -1;
    return fd;
  }
  int pipe_[2];
  pid_t pid_;
};

}  // namespace wire_support
