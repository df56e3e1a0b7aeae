// Queue pairs of unreliable datagrams (IBTA volume 1, 9.8.3): each message is one packet, to the queue pair and by the
// address that its entry names, and nothing answers it. The general services' queue pair, number 1, is one of them.
//
// As Engine, whose part it is: every call comes with the NIC's lock held, nothing blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "soft/transport/stats.h"
#include "soft/transport/types.h"
#include "soft/wire/wire.h"

namespace userdma::soft::transport {

// What is written in front of a datagram's bytes in its receive: a GRH, or the IP header that stands for one (A17.4.5.1
// and IBTA 9.8.3.2: IPv4's 20 bytes are the last of the 40).
inline constexpr uint32_t grh_bytes = 40;

class Datagrams {
 public:
  Datagrams(wire::Port& port, Stats& stats) : port_(port), stats_(stats) {}

  // As Engine's.
  bool create(uint32_t qpn, Rings* rings, uint32_t source);
  bool modify(uint32_t qpn, const Attributes& attributes, uint32_t fields);
  bool query(uint32_t qpn, Attributes& out) const;
  bool destroy(uint32_t qpn);
  void kick(uint32_t qpn);
  void resume(uint32_t qpn, bool there);
  void packet(const wire::Header& header, const Span* payload, size_t spans);
  bool run(unsigned& budget);

  // Groups of pairs, by GID: each gets a datagram to the group (IBTA 10.5).
  using Gid = std::array<uint8_t, 16>;
  void attach(const Gid& group, uint32_t qpn);
  void detach(const Gid& group, uint32_t qpn);
  bool groups() const { return !groups_.empty(); }

  bool has(uint32_t qpn) const { return pairs_.contains(qpn); }
  bool busy() const { return !ready_.empty(); }
  size_t pairs() const { return pairs_.size(); }

 private:
  struct Datagram {
    uint32_t qpn = 0;
    uint32_t source = 0;  // what its datagrams say they are of
    Rings* rings = nullptr;
    Attributes attributes;
    bool ready = false;          // in ready_
    bool waits = false;          // for memory of `held`
    std::unique_ptr<Work> held;  // fetched, and the port had no room for it, or its memory is absent
  };

  Datagram* find(uint32_t qpn) const {
    const auto found = pairs_.find(qpn);
    return found == pairs_.end() ? nullptr : found->second.get();
  }
  void to_group(const wire::Header& header, const Span* payload, size_t spans);
  void deliver(Datagram& d, const wire::Header& header, const Span* payload, size_t spans);
  static void forget(Datagram& d);  // what it holds
  void drop(Drop why) { stats_.dropped[static_cast<size_t>(why)]++; }
  void activate(Datagram& d);
  bool work(Datagram& d, unsigned& budget, bool& did);
  bool send(Datagram& d, const Work& w);
  Status check(const Datagram& d, const Work& w);
  Status gather(Datagram& d, const Work& w);
  void fail(Datagram& d, bool requester, Status status);

  wire::Port& port_;
  Stats& stats_;
  std::unordered_map<uint32_t, std::unique_ptr<Datagram>> pairs_;
  std::map<Gid, std::vector<uint32_t>> groups_;
  std::deque<uint32_t> ready_;
  std::unique_ptr<Work> work_ = std::make_unique<Work>();
  std::vector<Span> gathered_;
};

}  // namespace userdma::soft::transport
