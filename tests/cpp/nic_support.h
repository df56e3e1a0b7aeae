// A NIC with one queue pair, without a NIC family: the entries are given as they are, and a key opens all of its
// memory.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "soft/nic.h"
#include "wire_support.h"

namespace nic_support {

using namespace userdma::soft;  // NOLINT
using transport::Arrival;
using transport::Attributes;
using transport::Op;
using transport::Receive;
using transport::Spans;
using transport::State;
using transport::Status;
using transport::Work;
using wire_support::Mac;
using wire_support::mac;

class Machine final : public transport::Rings {
 public:
  static constexpr size_t bytes = 4u << 20;
  static constexpr uint32_t qpn = 17;

  Machine(std::shared_ptr<wire::Wire> wire, uint8_t number, std::shared_ptr<Clock> clock, bool thread)
      : number_(number) {
    memory = arena.alloc(bytes);
    Nic::Options options;
    std::memcpy(options.mac, mac(number).bytes, 6);
    options.thread = thread;
    nic = std::make_unique<Nic>(std::move(wire), std::move(clock), &arena, options);
    std::lock_guard guard(nic->lock());
    nic->engine().create(qpn, this);
  }

  // The ACK timeout is a second, unless it matters: other processes may need their time to answer.
  void connect(uint8_t peer, uint8_t timeout = 18, uint8_t retry = 7) {
    Attributes a;
    a.dest_qp = qpn;
    a.mtu = 4096;
    std::memcpy(a.dmac, mac(peer).bytes, 6);
    std::memcpy(a.smac, mac(number_).bytes, 6);
    a.sgid[15] = number_;
    a.dgid[15] = peer;
    a.timeout = timeout;
    a.retry = retry;
    a.rnr_retry = 7;
    a.min_rnr_timer = 1;
    a.max_rd_atomic = a.max_dest_rd_atomic = 16;
    a.access = transport::RemoteWrite | transport::RemoteRead | transport::RemoteAtomic;
    a.rq_psn = a.sq_psn = 5;
    uint32_t fields = ~0u;
    std::lock_guard guard(nic->lock());
    for (State state : {State::Init, State::Rtr, State::Rts}) {
      a.state = state;
      nic->engine().modify(qpn, a, fields);
    }
  }

  void post(Op op, uint64_t at, uint32_t length, uint64_t remote = 0, uint32_t immediate = 0) {
    nic->ring([&](transport::Engine& engine) {
      Work& work = works_[posted_ % entries];
      work.op = op;
      work.signaled = true;
      work.sges = length ? 1 : 0;
      work.immediate = immediate;
      work.length = length;
      work.remote = remote;
      work.sge[0] = {at, 1, length};
      work.handle = posted_++;
      engine.kick(qpn);
    });
  }
  void receive(uint64_t at, uint32_t length) {
    // As a receive queue's doorbell: the NIC looks when it needs an entry.
    uint32_t posted = receives_posted_.load(std::memory_order_relaxed);
    Receive& receive = receives_[posted % entries];
    receive.sges = 1;
    receive.length = length;
    receive.sge[0] = {at, 1, length};
    receives_posted_.store(posted + 1, std::memory_order_release);
  }

  // Entries that ended, and how the last one did.
  std::atomic<unsigned> sent{0}, received{0};
  std::atomic<Status> send_status{Status::Ok}, receive_status{Status::Ok};
  std::atomic<uint64_t> received_bytes{0};
  std::atomic<bool> is_failed{false};

  Arena arena;
  uint8_t* memory;
  std::unique_ptr<Nic> nic;

 private:
  Next next_work(Work& out, Status&) override {
    if (next_ == posted_) return Next::None;
    copy(out, works_[next_++ % entries]);
    return Next::Entry;
  }
  bool work_again(uint32_t handle, uint32_t, uint32_t, Work& out) override {
    copy(out, works_[handle % entries]);
    return true;
  }
  Next next_receive(Receive& out, Status&) override {
    if (next_receive_ == receives_posted_.load(std::memory_order_acquire)) return Next::None;
    std::memcpy(static_cast<void*>(&out), &receives_[next_receive_++ % entries],
                offsetof(Receive, sge) + sizeof out.sge[0]);
    return Next::Entry;
  }
  void complete_work(uint32_t, bool, Status status, uint64_t) override {
    send_status.store(status, std::memory_order_relaxed);
    sent.store(sent.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void complete_receive(uint32_t, const Arrival& arrival) override {
    receive_status.store(arrival.status, std::memory_order_relaxed);
    received_bytes.store(arrival.bytes, std::memory_order_relaxed);
    received.store(received.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void failed(bool, Status) override { is_failed = true; }
  Status reach(uint32_t key, uint64_t va, uint64_t length, uint8_t, bool remote, Spans& out,
               uint64_t& covered) override {
    if ((!remote && key != 1) || va > bytes || length > bytes - va)
      return remote ? Status::RemoteAccess : Status::LocalProtection;
    out.count = length ? 1 : 0;
    out.span[0] = {memory + va, length};
    covered = length;
    return Status::Ok;
  }
  bool invalidate(uint32_t) override { return false; }

  // What is used of an entry: most of it is room for long lists.
  static void copy(Work& out, const Work& work) {
    std::memcpy(static_cast<void*>(&out), &work, offsetof(Work, sge) + sizeof work.sge[0]);
  }

  const uint8_t number_;
  // Rings: no more than this are posted at once.
  static constexpr uint32_t entries = 128;
  std::array<Work, entries> works_{};
  uint32_t posted_ = 0, next_ = 0;
  std::array<Receive, entries> receives_{};
  std::atomic<uint32_t> receives_posted_{0};
  uint32_t next_receive_ = 0;
};

inline std::shared_ptr<Clock> real_clock() { return std::make_shared<RealClock>(); }

}  // namespace nic_support
