// Queue pairs whose rings are vectors, on engines joined by a wire that a test decides about packet by packet.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include "hw/roce.h"
#include "soft/transport/engine.h"

namespace transport_test {

using namespace userdma::soft::transport;
using userdma::soft::never;
using userdma::soft::wire::Header;
using userdma::soft::wire::Port;
using userdma::soft::wire::Sink;
namespace roce = userdma::hw::roce;

struct Packet {
  Header header;
  std::vector<uint8_t> payload;
};

class TestPort;

// Packets in the order of their sending; `decide` says how many copies of one arrive, and `hold` keeps it back until
// the next one has passed.
struct TestWire {
  std::map<uint8_t, TestPort*> ports;  // by the last byte of the MAC
  std::vector<Packet> log;             // everything sent, lost or not
  std::function<int(const Packet&)> decide = [](const Packet&) { return 1; };
  std::function<bool(const Packet&)> hold = [](const Packet&) { return false; };
  std::optional<Packet> held;
  size_t room = SIZE_MAX;  // packets that wait at a port
  uint32_t large = 1;      // MTUs in a packet

  bool send(const Header& h, const Span* spans, size_t n);
  void deliver(const Packet& p);
};

class TestPort final : public Port {
 public:
  explicit TestPort(TestWire& w, uint8_t id) : wire_(w) { w.ports[id] = this; }
  bool send(const Header& h, const Span* s, size_t n) override { return wire_.send(h, s, n); }
  unsigned receive(Sink& sink, unsigned budget, uint32_t = UINT32_MAX) override {
    unsigned n = 0;
    for (; n < budget && !queue.empty(); n++) {
      Packet p = std::move(queue.front());
      queue.pop_front();
      // Two spans, so that what is copied crosses one.
      const size_t cut = p.payload.size() / 3;
      Span s[2] = {{p.payload.data(), cut}, {p.payload.data() + cut, p.payload.size() - cut}};
      sink.packet(p.header, s, 2);
    }
    return n;
  }
  bool pending() const override { return !queue.empty(); }
  uint32_t largest(uint32_t mtu) const override { return mtu * wire_.large; }
  bool recall(const void*, size_t) override { return true; }

  std::deque<Packet> queue;

 private:
  TestWire& wire_;
};

inline void TestWire::deliver(const Packet& p) {
  auto port = ports.find(p.header.dmac[5]);
  if (port != ports.end()) port->second->queue.push_back(p);
}

inline bool TestWire::send(const Header& h, const Span* spans, size_t n) {
  auto port = ports.find(h.dmac[5]);
  if (port != ports.end() && port->second->queue.size() >= room) return false;
  Packet p{h, {}};
  for (size_t i = 0; i < n; i++) p.payload.insert(p.payload.end(), spans[i].at, spans[i].at + spans[i].bytes);
  if (p.payload.size() != h.payload) throw std::logic_error("payload disagrees with its header");
  log.push_back(p);
  if (hold(p) && !held) {
    held = p;
    return true;
  }
  for (int copies = decide(p); copies > 0; copies--) deliver(p);
  if (held) {
    deliver(*held);
    held.reset();
  }
  return true;
}

struct Memory {
  uint64_t va;
  std::vector<uint8_t> bytes;
  uint8_t access;  // Access
};

struct Done {
  uint32_t handle;
  Status status;
  uint64_t bytes;
};

struct Got {
  uint32_t handle;
  Arrival arrival;
};

class TestRings final : public Rings {
 public:
  std::map<uint32_t, Memory> memory;  // by key
  std::vector<Work> works;            // handles are indices
  size_t work_next = 0;
  std::vector<uint32_t> psns;  // first PSN of each work, as a driver knows it; empty: not checked
  std::vector<Receive> receives;
  size_t receive_next = 0;
  std::vector<Done> done;
  std::vector<Got> got;
  std::vector<std::pair<bool, Status>> failures;
  std::vector<uint32_t> invalidated;
  std::optional<Status> bad_work, bad_receive;  // the next entry is bad
  unsigned span_bytes = 100;                    // reach cuts memory into spans this long
  unsigned span_limit = 7;
  unsigned again = 0;
  bool lose_again = false;
  std::function<uint64_t(uint64_t va, uint64_t bytes)> there;  // how many bytes are, from the first one on
  std::vector<Absence> absences;                               // that were not resumed

  Next next_work(Work& out, Status& status) override {
    if (bad_work) {
      status = *bad_work;
      out.handle = 999;
      bad_work.reset();
      return Next::Bad;
    }
    if (work_next == works.size()) return Next::None;
    out = works[work_next++];
    return Next::Entry;
  }
  bool work_again(uint32_t handle, uint32_t msn, uint32_t psn, Work& out) override {
    again++;
    if (lose_again || handle >= works.size() || msn != handle) return false;
    if (msn < psns.size() && psns[msn] != psn) return false;
    out = works[handle];
    return true;
  }
  Next next_receive(Receive& out, Status& status) override {
    if (bad_receive) {
      status = *bad_receive;
      out.handle = 998;
      return Next::Bad;
    }
    if (receive_next == receives.size()) return Next::None;
    out = receives[receive_next++];
    return Next::Entry;
  }
  void complete_work(uint32_t handle, bool, Status status, uint64_t bytes) override {
    done.push_back({handle, status, bytes});
  }
  void complete_receive(uint32_t handle, const Arrival& a) override { got.push_back({handle, a}); }
  void failed(bool requester, Status status) override { failures.push_back({requester, status}); }
  Status reach(uint32_t key, uint64_t va, uint64_t bytes, uint8_t need, bool remote, Spans& out,
               uint64_t& covered) override {
    const Status refused = remote ? Status::RemoteAccess : Status::LocalProtection;
    auto m = memory.find(key);
    if (m == memory.end() || (m->second.access & need) != need) return refused;
    if (va < m->second.va || va - m->second.va > m->second.bytes.size() ||
        bytes > m->second.bytes.size() - (va - m->second.va))
      return refused;
    covered = 0;
    out.count = 0;
    if (there && bytes > 0) {
      bytes = there(va, bytes);
      if (bytes == 0) return Status::Absent;
    }
    uint8_t* at = m->second.bytes.data() + (va - m->second.va);
    while (covered < bytes && out.count < span_limit) {
      const uint64_t n = std::min<uint64_t>(span_bytes, bytes - covered);
      out.span[out.count++] = {at + covered, n};
      covered += n;
    }
    return Status::Ok;
  }
  bool absent(const Absence& absence) override {
    absences.push_back(absence);
    return true;
  }
  bool invalidate(uint32_t rkey) override {
    invalidated.push_back(rkey);
    return memory.count(rkey) != 0;
  }

  uint32_t post(Op op, uint32_t key, uint64_t va, uint32_t bytes, uint32_t rkey = 0, uint64_t remote = 0) {
    Work w{};
    w.op = op;
    w.signaled = true;
    w.handle = static_cast<uint32_t>(works.size());
    w.length = bytes;
    w.remote = remote;
    w.rkey = rkey;
    if (bytes > 0) {
      w.sges = 1;
      w.sge[0] = {va, key, bytes};
    }
    works.push_back(w);
    return w.handle;
  }
  void receive(uint32_t key, uint64_t va, uint32_t bytes) {
    Receive r{};
    r.handle = static_cast<uint32_t>(receives.size());
    r.length = bytes;
    if (bytes > 0) {
      r.sges = 1;
      r.sge[0] = {va, key, bytes};
    }
    receives.push_back(r);
  }
};

struct Node {
  Node(TestWire& w, uint8_t id) : id(id), port(w, id), engine(port) {}
  uint8_t id;
  TestPort port;
  Engine engine;
};

inline std::vector<uint8_t> pattern(size_t n, uint32_t seed = 1) {
  std::minstd_rand r(seed);
  std::vector<uint8_t> v(n);
  for (auto& b : v) b = static_cast<uint8_t>(r() >> 7);
  return v;
}

constexpr uint64_t base = 0x7000'0000'1000;

// Two connected pairs: number 5 of node 1 and number 9 of node 2.
struct World {
  TestWire wire;
  Node a{wire, 1}, b{wire, 2};
  TestRings ra, rb;
  uint64_t now = 1'000'000;
  unsigned budget = 1024;

  static Attributes attributes(const Node& from, const Node& to, uint32_t dest, uint32_t sq, uint32_t rq) {
    Attributes x;
    x.state = State::Rts;
    x.access = Access::RemoteWrite | Access::RemoteRead | Access::RemoteAtomic;
    x.dest_qp = dest;
    x.mtu = 256;
    x.dmac[5] = to.id;
    x.smac[5] = from.id;
    x.dgid[15] = to.id;
    x.sgid[15] = from.id;
    x.timeout = 14;
    x.retry = 7;
    x.rnr_retry = 7;
    x.min_rnr_timer = 12;
    x.max_rd_atomic = x.max_dest_rd_atomic = 4;
    x.sq_psn = sq;
    x.rq_psn = rq;
    return x;
  }

  explicit World(std::function<void(Attributes&, Attributes&)> change = {}, uint32_t large = 1, uint32_t psn_a = 100,
                 uint32_t psn_b = 200) {
    wire.large = large;
    a.engine.create(5, &ra);
    b.engine.create(9, &rb);
    Attributes xa = attributes(a, b, 9, psn_a, psn_b), xb = attributes(b, a, 5, psn_b, psn_a);
    if (change) change(xa, xb);
    a.engine.modify(5, xa, ~0u);
    b.engine.modify(9, xb, ~0u);
    const uint8_t all = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic;
    ra.memory[1] = {base, std::vector<uint8_t>(1 << 16), all};
    rb.memory[2] = {base, std::vector<uint8_t>(1 << 16), all};
    ra.memory[1].bytes = pattern(1 << 16, 3);
  }

  bool round() {
    bool did = false;
    for (Node* n : {&a, &b}) {
      did |= n->port.receive(n->engine, 64) > 0;
      did |= n->engine.run(now, budget);
    }
    return did;
  }
  // Until nothing happens any more at this time.
  void settle() {
    for (int i = 0; i < 1'000'000; i++)
      if (!round()) return;
    throw std::logic_error("does not come to rest");
  }
  // On to the next timer; false if there is none.
  bool jump() {
    const uint64_t next = std::min(a.engine.next_deadline(), b.engine.next_deadline());
    if (next == never) return false;
    now = std::max(now, next);
    settle();
    return true;
  }
  void kick() {
    a.engine.kick(5);
    b.engine.kick(9);
  }
  void run() {
    kick();
    settle();
  }
  // A packet that claims to come from the peer of node b's pair (or, `to_a`, of node a's).
  Packet forge(uint8_t opcode, uint32_t psn, size_t payload = 0, bool to_a = false) {
    Packet p{};
    Header& h = p.header;
    h.opcode = opcode;
    h.psn = psn;
    h.dest_qp = to_a ? 5 : 9;
    h.payload = static_cast<uint32_t>(payload);
    h.psns = payload == 0 ? 1 : static_cast<uint32_t>((payload + 255) / 256);
    h.dgid[15] = h.dmac[5] = to_a ? 1 : 2;
    h.sgid[15] = h.smac[5] = to_a ? 2 : 1;
    h.flags = Header::AckRequest;
    p.payload = pattern(payload, psn + 17);
    return p;
  }
  // What node b sends when `p` arrives.
  std::vector<Packet> provoke(const Packet& p) {
    const size_t before = wire.log.size();
    wire.deliver(p);
    b.port.receive(b.engine, 64);
    while (b.engine.run(now)) {
    }
    a.port.queue.clear();
    return {wire.log.begin() + static_cast<std::ptrdiff_t>(before), wire.log.end()};
  }
  std::vector<uint8_t> opcodes() const {
    std::vector<uint8_t> v;
    for (const Packet& p : wire.log) v.push_back(p.header.opcode);
    return v;
  }
};

}  // namespace transport_test
