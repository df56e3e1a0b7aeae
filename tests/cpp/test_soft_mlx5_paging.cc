// The ConnectX's page faults: what a driver reads of their events, what waits meanwhile, and how it goes on. The
// kernel's driver (mlx5_ib, odp.c) is what the events are for.
#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "soft_mlx5_world.h"

namespace {

using namespace mlx5_world;  // NOLINT
namespace op = chip::opcode;
namespace kind = chip::cqe_opcode;
namespace syndrome = chip::syndrome;
namespace mask = chip::update_mask;
namespace flag = chip::update_flag;
using Resumed = SoftMlx5::Resumed;

constexpr unsigned none = 0, readable = 1, present = 3;
constexpr uint32_t paged_key = 9 << 8;
constexpr uint64_t paged_va = 0x6000'0000'0000;
constexpr unsigned pages = 16;
constexpr size_t page = 4096;

// Another queue pair of the NIC, connected to itself, with a send ring only.
struct Second {
  static constexpr uint32_t send_cq = 20;
  static constexpr unsigned blocks = 32;

  Second(World& w, uint32_t id, uint8_t type)
      : w(w), id(id), cq(w.nic, 64 * 64), ring(w.nic, blocks * 64 + 64 * blocks), record(w.nic, 4096) {
    for (int i = 0; i < 64; i++) cq.at(64 * i)[63] = 0xf1;
    soft::mlx5::CqSpec completions;
    completions.pages = cq.pages;
    completions.log_entries = 6;
    completions.eqn = 3;
    completions.record = record.memory.runs[0].address + 64;
    completions.overrun_ignore = true;
    w.nic.cq_create(send_cq + id, completions);
    QueuePairSpec spec;
    spec.type = type;
    spec.pd = World::pd;
    spec.pages = ring.pages;
    spec.record = record.memory.runs[0].address;
    spec.log_sq_entries = 5;
    spec.log_rq_entries = 5;
    spec.log_rq_stride = 6;
    spec.cqn_send = spec.cqn_receive = send_cq + id;
    spec.umr = type == chip::qp_type::kRegUmr;
    w.nic.qp_create(id, spec);
    const soft::mlx5::Gid own = World::make_gid(w.mac);
    Attributes a;
    a.access = 0xf;
    a.dest_qp = id;
    a.mtu = 4096;
    a.timeout = 14;
    a.retry = 7;
    std::memcpy(a.dmac, own.mac, 6);
    std::memcpy(a.smac, own.mac, 6);
    std::memcpy(a.sgid, own.gid, 16);
    std::memcpy(a.dgid, own.gid, 16);
    a.max_dest_rd_atomic = a.max_rd_atomic = 4;
    for (const State to : {State::Init, State::Rtr, State::Rts}) {
      a.state = to;
      w.nic.qp_modify(id, a, ~0u);
    }
  }

  // What its completion says of an entry.
  uint8_t executes(uint8_t opcode, const std::vector<Segment>& rest, uint32_t immediate = 0) {
    chip::ControlSegment control{};
    control.opmod_idx_opcode = be(uint32_t{static_cast<uint16_t>(posted)} << 8 | opcode);
    control.qpn_ds = be(id << 8 | static_cast<uint32_t>(1 + rest.size()));
    control.fm_ce_se = chip::control::kCompletion;
    control.imm = be(immediate);
    const std::vector<Segment> all = segments(control) + rest;
    for (size_t i = 0; i < all.size(); i++)
      std::memcpy(ring.at(64 * blocks + (posted * 64 + i * 16) % (64 * blocks)), all[i].data(), 16);
    posted += (all.size() + 3) / 4;
    const uint32_t count = be(static_cast<uint32_t>(posted & 0xffff));
    std::memcpy(record.at(4), &count, 4);
    uint64_t doorbell;
    std::memcpy(&doorbell, &control, sizeof doorbell);
    w.bar.write<uint64_t>(World::uar + 0x800, doorbell);
    const uint8_t* at = cq.at(completed % 64 * 64);
    const auto written = [&] { return at[63] >> 4 != 0xf && (at[63] & 1) == (completed / 64 & 1); };
    for (int i = 0; i < 20 && !written(); i++) w.nic.nic().advance();
    REQUIRE(written());
    completed++;
    return at[63] >> 4 == kind::kRequest ? 0 : at[55];
  }

  World& w;
  const uint32_t id;
  Paged cq, ring, record;
  uint64_t posted = 0, completed = 0;
};

// A key over some of the data's pages, each of which is there or not, and the queue pair by which the driver says so.
struct Paging {
  explicit Paging(World& w, unsigned bits = none) : driver(w, 0x100, chip::qp_type::kRegUmr) {
    MkeySpec spec = w.mtt({w.data.pages.pages.begin(), w.data.pages.pages.begin() + pages});
    for (uint64_t& entry : spec.pages) entry |= bits;
    list = spec.pages;
    spec.paged = spec.update = true;
    spec.octwords = pages / 2;
    spec.start = paged_va;
    spec.bytes = pages * page;
    w.nic.mkey_create(paged_key, spec);
  }

  // mlx5r_umr_update_xlt: the list is written in whole groups of eight pages.
  void set(unsigned first, unsigned n, unsigned bits) {
    for (unsigned i = first; i < first + n; i++) list[i] = (list[i] & ~uint64_t{3}) | bits;
    for (unsigned group = first / 8; group <= (first + n - 1) / 8; group++) {
      chip::UmrSegment umr{};
      umr.flags = flag::kInline | flag::kOffset | flag::kMustNotBeFree;
      umr.klm_octowords = be(uint16_t{4});
      umr.translation_offset = be(static_cast<uint16_t>(4 * group));
      std::vector<Segment> entries(4);
      for (unsigned i = 0; i < 8; i++) {
        const uint64_t entry = be(list[8 * group + i]);
        std::memcpy(entries[i / 2].data() + i % 2 * 8, &entry, 8);
      }
      CHECK(driver.executes(op::kUmr, segments(umr) + segments(chip::KeySegment{}) + entries, paged_key) == 0);
    }
  }

  std::vector<Segment> sge(size_t at, uint32_t n) const { return World::data_segment(paged_va + at, paged_key, n); }

  Second driver;
  std::vector<uint64_t> list;
};

struct Fault {
  uint8_t kind, type;
  uint32_t token, queue;
  uint32_t committed;
  uint16_t packet;
  uint16_t index = 0;           // of an entry
  uint32_t rkey = 0, left = 0;  // of a peer's request
  uint64_t va = 0;
};

// The next event, which is of a page fault: as mlx5_ib_eq_pf_process reads it.
std::optional<Fault> fault(World& w) {
  chip::Event event;
  if (!w.event(event)) return std::nullopt;
  REQUIRE(event.type == 0x0c);  // MLX5_EVENT_TYPE_PAGE_FAULT
  const auto word = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, event.data + at, 4);
    return be(value);
  };
  const auto half = [&](size_t at) { return static_cast<uint16_t>(event.data[at] << 8 | event.data[at + 1]); };
  Fault out{};
  out.kind = event.sub_type;
  out.committed = word(0);
  out.packet = half(10);
  out.type = static_cast<uint8_t>(word(24) >> 24 & 7);
  if (event.sub_type == 0) {  // MLX5_PFAULT_SUBTYPE_WQE
    out.index = half(6);
    out.token = word(12);
    out.queue = word(24) & 0xff'ffff;
  } else {
    out.rkey = word(4);
    out.left = word(12);
    out.va = uint64_t{word(16)} << 32 | word(20);
    out.token = out.queue = word(24) & 0xff'ffff;
  }
  return out;
}

void resume(World& w, const Fault& f, bool error = false) {
  CHECK(w.nic.page_fault_resume(f.type, f.token, f.queue, error) == Resumed::Yes);
  for (int i = 0; i < 5; i++) w.nic.nic().advance();
}

// Some time goes by, in which a receiver that is not ready is asked several times, and a requester without an answer
// does not give up.
void pass(World& w) {
  const uint64_t until = w.clock->now() + 200'000'000;
  for (int i = 0; i < 200 && w.clock->now() < until; i++) w.nic.nic().advance();
}

uint8_t ended(World& w) {
  chip::ErrorCqe entry;
  REQUIRE(w.sent(entry));
  return entry.op_own >> 4 == kind::kRequest ? 0 : entry.syndrome;
}
bool quiet(World& w) {
  chip::Cqe entry;
  return !w.sent(entry) && !w.got(entry);
}

constexpr uint8_t of_send = 1, of_receive = 2, of_read = 3, of_shared_receive = 0;  // MLX5_WQE_PF_TYPE_*
constexpr uint8_t rdma = 4, rdma_write = 6;                                         // MLX5_PFAULT_RDMA, and _WRITE

TEST_CASE("a message from pages that come one after the other") {
  World peer;
  World w({}, &peer);
  Paging p(w);
  fill(w.bytes(0), 3 * page, 7);
  peer.receive({peer.sge(0, 100)});
  peer.receive({peer.sge(page, 3 * page)});
  w.post(op::kSend, w.sge(50000, 100));
  const auto index = static_cast<uint16_t>(w.posted);
  w.post(op::kSend, p.sge(100, 3 * page - 100));
  w.kick();
  pass(w);
  CHECK(ended(w) == 0);  // what was posted before
  chip::Cqe got;
  REQUIRE(peer.got(got));
  uint32_t last = 0;
  for (unsigned i = 0; i < 3; i++) {
    CAPTURE(i);
    const auto f = fault(w);
    REQUIRE(f);
    CHECK((f->kind == 0 && f->type == of_send && f->queue == World::qpn && f->index == index));
    // Whole MTUs are sent from what is there.
    CHECK(f->committed == (i < 2 ? 0 : page));
    CHECK(f->packet > 0);
    CHECK(f->token != last);
    last = f->token;
    CHECK_FALSE(fault(w));
    pass(w);
    CHECK(quiet(w));
    p.set(i, 1, readable);
    CHECK(quiet(w));  // not before it is told
    resume(w, *f);
  }
  CHECK(ended(w) == 0);
  REQUIRE(peer.got(got));
  CHECK(be(got.byte_cnt) == 3 * page - 100);
  CHECK(std::memcmp(peer.bytes(page), w.bytes(100), 3 * page - 100) == 0);
  CHECK(w.nic.page_faults() == 0);
}

TEST_CASE("what answers an entry, to pages that are not there, is asked for again") {
  World peer;
  World w({}, &peer);
  Paging p(w, readable);  // not to be written
  fill(peer.bytes(0), 2 * page, 9);
  w.post(op::kRead, w.remote(peer.va, peer.key) + p.sge(0, 2 * page));
  w.post(op::kSend, w.sge(50000, 10));
  peer.receive({peer.sge(90000, 10)});
  w.kick();
  pass(w);
  for (unsigned i = 0; i < 2; i++) {
    CAPTURE(i);
    const auto f = fault(w);
    REQUIRE(f);
    CHECK((f->kind == 0 && f->type == of_read && f->queue == World::qpn && f->index == 0));
    CHECK_FALSE(fault(w));
    CHECK(quiet(w));
    CHECK(f->committed <= i * page);
    p.set(i, 1, present);
    resume(w, *f);
    pass(w);
  }
  CHECK_FALSE(fault(w));
  CHECK(ended(w) == 0);
  CHECK(ended(w) == 0);
  CHECK(std::memcmp(peer.bytes(0), w.bytes(0), 2 * page) == 0);
  chip::Cqe got;
  REQUIRE(peer.got(got));
}

TEST_CASE("the result of an atomic, to a page that is not there, is fetched again and executed once") {
  World peer;
  World w({}, &peer);
  Paging p(w);
  uint64_t value = 40;
  std::memcpy(peer.bytes(64), &value, 8);
  chip::AtomicSegment add{};
  add.swap_add = be(uint64_t{2});
  w.post(op::kFetchAdd, w.remote(peer.va + 64, peer.key) + segments(add) + p.sge(8, 8));
  w.kick();
  pass(w);
  const auto f = fault(w);
  REQUIRE(f);
  CHECK((f->kind == 0 && f->type == of_read && f->index == 0 && f->committed == 0));
  CHECK(quiet(w));
  p.set(0, 1, present);
  resume(w, *f);
  pass(w);
  CHECK(ended(w) == 0);
  std::memcpy(&value, w.bytes(8), 8);
  CHECK(value == 40);
  std::memcpy(&value, peer.bytes(64), 8);
  CHECK(value == 42);
}

TEST_CASE("a receive of pages that are not there: the sender comes again") {
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    Shape shape;
    if (shared) shape.srqn = 0x21;
    World w;
    World peer(shape, &w);
    Paging p(peer);
    const auto receive = [&](size_t at, uint32_t n) {
      if (shared) {
        World::write_receive(peer.srq->at(peer.received % 32 * 64) + 16, 3, {p.sge(at, n)});
        peer.set_record(3, 0, static_cast<uint16_t>(++peer.received));
      } else {
        peer.receive({p.sge(at, n)});
      }
    };
    receive(0, page);
    receive(page, 2 * page);
    fill(w.bytes(0), 2 * page, 3);
    for (unsigned i = 0; i < 2; i++) {
      CAPTURE(i);
      w.post(op::kSend, w.sge(0, page << i));
      w.kick();
      pass(w);
      const auto f = fault(peer);
      REQUIRE(f);
      CHECK((f->kind == 0 && f->type == (shared ? of_shared_receive : of_receive)));
      CHECK((f->queue == (shared ? 0x21 : World::qpn) && f->index == i && f->committed == 0));
      CHECK_FALSE(fault(peer));  // however often the sender comes
      CHECK((quiet(w) && quiet(peer)));
      p.set(i, 1 + i, present);
      resume(peer, *f);
      pass(w);
      CHECK(ended(w) == 0);
      chip::Cqe got;
      REQUIRE(peer.got(got));
      CHECK((be(got.wqe_counter) == i && be(got.byte_cnt) == page << i));
      CHECK(std::memcmp(peer.bytes(i * page), w.bytes(0), page << i) == 0);
    }
  }
}

TEST_CASE("a peer's writes, reads and atomics of pages that are not there") {
  World peer;
  World w({}, &peer);
  Paging p(peer);
  fill(w.bytes(0), 3 * page, 1);
  const auto remote = [&](size_t at) { return World::remote(paged_va + at, paged_key); };
  const auto check = [&](const std::optional<Fault>& f, uint8_t type, size_t at, size_t left) {
    REQUIRE(f);
    CHECK((f->kind == 1 && f->type == type && f->token == World::qpn && f->rkey == paged_key));
    CHECK((f->va + f->committed == paged_va + at && f->left - f->committed == left));
    CHECK_FALSE(fault(peer));
    CHECK(quiet(w));
  };

  w.post(op::kWrite, remote(50) + w.sge(0, 3 * page));
  w.kick();
  pass(w);
  auto f = fault(peer);
  check(f, rdma_write, 50, 3 * page);
  p.set(0, 4, present);
  resume(peer, *f);
  pass(w);
  CHECK(ended(w) == 0);
  CHECK(std::memcmp(peer.bytes(50), w.bytes(0), 3 * page) == 0);

  p.set(0, 4, none);
  w.post(op::kRead, remote(50) + w.sge(5 * page, 3 * page));
  w.kick();
  pass(w);
  f = fault(peer);
  check(f, rdma, 50, 3 * page);
  p.set(0, 4, readable);
  resume(peer, *f);
  pass(w);
  CHECK(ended(w) == 0);
  CHECK(std::memcmp(w.bytes(5 * page), w.bytes(0), 3 * page) == 0);

  // A page that may be read is not there to be written.
  uint64_t value = 5;
  std::memcpy(peer.bytes(8), &value, 8);
  chip::AtomicSegment swap{};
  swap.swap_add = be(uint64_t{77});
  swap.compare = be(uint64_t{5});
  w.post(op::kCompareSwap, remote(8) + segments(swap) + w.sge(0, 8));
  w.kick();
  pass(w);
  f = fault(peer);
  check(f, rdma_write, 8, 8);
  p.set(0, 1, present);
  resume(peer, *f);
  pass(w);
  CHECK(ended(w) == 0);
  std::memcpy(&value, peer.bytes(8), 8);
  CHECK(value == 77);
  CHECK(peer.nic.page_faults() == 0);
}

TEST_CASE("a write with immediate data takes one receive, however often it comes") {
  World peer;
  World w({}, &peer);
  Paging p(peer);
  peer.receive({});
  peer.receive({});
  w.post(op::kWriteImmediate, World::remote(paged_va, paged_key) + w.sge(0, 100), chip::control::kCompletion, 0x55);
  w.post(op::kSendImmediate, {}, chip::control::kCompletion, 0x66);
  w.kick();
  pass(w);
  const auto f = fault(peer);
  REQUIRE(f);
  p.set(0, 1, present);
  resume(peer, *f);
  pass(w);
  chip::Cqe got;
  for (const uint16_t i : {0, 1}) {
    REQUIRE(peer.got(got));
    CHECK((be(got.wqe_counter) == i && be(got.imm_inval_pkey) == (i ? 0x66u : 0x55u)));
    CHECK(ended(w) == 0);
  }
}

TEST_CASE("a fault that is not resolved ends its entry, or the peer's") {
  struct Case {
    const char* what;
    uint8_t opcode;
    bool here;     // whose memory it is
    bool receive;  // into a receive of it
    uint8_t type;
    uint8_t sender, receiver;  // their syndromes; 0: no completion
  };
  const Case cases[] = {
      {"source", op::kSend, true, false, of_send, syndrome::kLocalProtection, 0},
      {"target", op::kRead, true, false, of_read, syndrome::kLocalProtection, 0},
      {"receive", op::kSend, false, true, of_receive, syndrome::kRemoteOperation, syndrome::kLocalProtection},
      {"write", op::kWrite, false, false, rdma_write, syndrome::kRemoteAccess, syndrome::kFlushed},
      {"read", op::kRead, false, false, rdma, syndrome::kRemoteAccess, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    World peer;
    World w({}, &peer);
    World& faulty = c.here ? w : peer;
    Paging p(faulty);
    peer.receive({c.receive ? p.sge(0, 100) : peer.sge(page, 100)});
    const auto local = c.here ? p.sge(0, 100) : w.sge(0, 100);
    const bool named = c.opcode != op::kSend;
    const auto remote = !named   ? std::vector<Segment>{}
                        : c.here ? World::remote(peer.va, peer.key)
                                 : World::remote(paged_va, paged_key);
    w.post(c.opcode, remote + local);
    w.post(op::kSend, w.sge(0, 1));
    w.kick();
    pass(w);
    const auto f = fault(faulty);
    REQUIRE(f);
    CHECK(f->type == c.type);
    resume(faulty, *f, true);
    pass(w);
    CHECK(ended(w) == c.sender);
    CHECK(ended(w) == syndrome::kFlushed);
    chip::ErrorCqe got;
    // The message behind a read was on its way, or there, already.
    REQUIRE(peer.got(got) == (c.receiver != 0 || c.opcode == op::kRead));
    if (c.receiver) CHECK(got.syndrome == c.receiver);
    CHECK(w.nic.qp_query(World::qpn).attributes.state == State::Err);
  }
}

TEST_CASE("a page that is still not there when it is resumed is the next fault") {
  World peer;
  World w({}, &peer);
  Paging here(w), there(peer);
  peer.receive({there.sge(0, 100)});
  w.post(op::kSend, here.sge(0, 100));
  w.kick();
  pass(w);
  auto f = fault(w);
  for (int i = 0; i < 3; i++) {
    REQUIRE(f);
    resume(w, *f);
    const auto next = fault(w);
    REQUIRE(next);
    CHECK(next->token != f->token);
    CHECK(w.nic.page_fault_resume(f->type, f->token, f->queue, false) == Resumed::NoFault);
    f = next;
  }
  here.set(0, 1, readable);
  resume(w, *f);
  pass(w);
  f = fault(peer);
  for (int i = 0; i < 3; i++) {
    REQUIRE(f);
    resume(peer, *f);
    pass(w);
    f = fault(peer);
  }
  REQUIRE(f);
  there.set(0, 1, present);
  resume(peer, *f);
  pass(w);
  CHECK(ended(w) == 0);
}

TEST_CASE("what a resumption must name") {
  World peer;
  World w({}, &peer);
  Paging p(peer);
  w.post(op::kWrite, World::remote(paged_va, paged_key) + w.sge(0, 100));
  w.kick();
  pass(w);
  const auto f = fault(peer);
  REQUIRE(f);
  CHECK(peer.nic.page_fault_resume(f->type, f->token + 1, f->queue, false) == Resumed::NoFault);
  CHECK(peer.nic.page_fault_resume(of_send, f->token, f->queue, false) == Resumed::NoFault);
  CHECK(peer.nic.page_fault_resume(f->type, f->token, f->queue + 1, false) == Resumed::AnotherQueue);
  CHECK(peer.nic.page_faults() == 1);
  p.set(0, 1, present);
  resume(peer, *f);
  pass(w);
  CHECK(ended(w) == 0);
  CHECK(peer.nic.page_fault_resume(f->type, f->token, f->queue, false) == Resumed::NoFault);
}

TEST_CASE("a pair that is reset while it waits goes on anew, and the old fault's resumption is nothing to it") {
  for (const bool error : {false, true}) {
    CAPTURE(error);
    World w;
    Paging p(w);
    w.post(op::kSend, p.sge(0, 100));
    w.kick();
    pass(w);
    const auto old = fault(w);
    REQUIRE(old);
    w.state(State::Reset);
    w.set_record(2, 0, 0);
    w.set_record(2, 1, 0);
    w.posted = 0;
    w.connect(w.mac);
    w.receive({w.sge(50000, 100)});
    w.post(op::kSend, p.sge(page, 100));
    w.kick();
    pass(w);
    const auto f = fault(w);
    REQUIRE(f);
    resume(w, *old, error);
    CHECK((quiet(w) && !fault(w)));
    p.set(1, 1, readable);
    resume(w, *f);
    pass(w);
    CHECK(ended(w) == 0);
  }
}

TEST_CASE("a pair that ends, or goes to the error state, while it waits") {
  World w;
  Paging p(w);
  w.post(op::kSend, p.sge(0, 100));
  w.kick();
  pass(w);
  const auto f = fault(w);
  REQUIRE(f);
  w.state(State::Err);
  CHECK(ended(w) == syndrome::kFlushed);
  resume(w, *f);
  CHECK(quiet(w));
  w.state(State::Reset);
  w.set_record(2, 0, 0);
  w.set_record(2, 1, 0);
  w.posted = 0;
  w.connect(w.mac);
  w.post(op::kSend, p.sge(0, 100));
  w.kick();
  pass(w);
  const auto again = fault(w);
  REQUIRE(again);
  w.nic.qp_destroy(World::qpn);
  CHECK(w.nic.page_faults() == 0);
  CHECK(w.nic.page_fault_resume(again->type, again->token, again->queue, false) == Resumed::NoFault);
}

TEST_CASE("a NIC that is reset, or ends, while pairs wait") {
  for (const bool reset : {true, false}) {
    World peer;
    World w({}, &peer);
    Paging here(w), there(peer);
    w.post(op::kRead, World::remote(paged_va, paged_key) + w.sge(0, 100));
    w.post(op::kSend, here.sge(0, 100));
    w.kick();
    pass(w);
    const auto f = fault(peer);
    REQUIRE(f);
    if (reset) {
      peer.nic.reset();
      CHECK(peer.nic.page_faults() == 0);
      CHECK(peer.nic.page_fault_resume(f->type, f->token, f->queue, false) == Resumed::NoFault);
    } else {
      peer.nic.release();
    }
    pass(w);
  }
}

TEST_CASE("other pairs go on while one waits") {
  World w;
  Paging p(w);
  Second other(w, 0x101, chip::qp_type::kRc);
  w.receive({w.sge(50000, 100)});
  w.post(op::kSend, p.sge(0, 100));
  w.kick();
  pass(w);
  const auto f = fault(w);
  REQUIRE(f);
  fill(w.bytes(100000), 5000, 2);
  const auto write = [&](size_t to) { return World::remote(World::va + to, World::key) + w.sge(100000, 5000); };
  CHECK(other.executes(op::kWrite, write(200000)) == 0);
  CHECK(std::memcmp(w.bytes(200000), w.bytes(100000), 5000) == 0);
  CHECK(quiet(w));
  p.set(0, 1, readable);
  resume(w, *f);
  pass(w);
  CHECK(ended(w) == 0);
}

TEST_CASE("a datagram from a page that is not there") {
  for (const bool error : {false, true}) {
    CAPTURE(error);
    Shape shape;
    shape.type = chip::qp_type::kUd;
    World peer(shape);
    World w(shape, &peer);
    Paging p(w);
    peer.receive({peer.sge(0, 40 + 100)});
    const soft::mlx5::Gid to = World::make_gid(peer.mac);
    chip::AddressVector v{};
    v.key = be(World::qkey);
    v.dqp_dct = be(World::qpn | 0x80000000);
    std::memcpy(v.rmac, to.mac, 6);
    v.grh_gid_fl = be(1u << 30);
    std::memcpy(v.rgid, to.gid, 16);
    fill(w.bytes(0), 100, 6);
    w.post(op::kSend, segments(v) + p.sge(0, 100));
    w.kick();
    pass(w);
    const auto f = fault(w);
    REQUIRE(f);
    CHECK((f->kind == 0 && f->type == of_send && f->queue == World::qpn && f->index == 0 && f->committed == 0));
    CHECK((quiet(w) && !fault(w)));
    if (!error) p.set(0, 1, readable);
    resume(w, *f, error);
    pass(w);
    CHECK(ended(w) == (error ? syndrome::kLocalProtection : 0));
    chip::Cqe got;
    REQUIRE(peer.got(got) == !error);
    if (!error) CHECK(std::memcmp(peer.bytes(40), w.bytes(0), 100) == 0);
  }
}

TEST_CASE("parts of other keys that are not there, and pages of theirs") {
  World peer;
  World w({}, &peer);
  Paging p(peer);
  MkeySpec parts = peer.mtt({});
  parts.mode = MkeySpec::Mode::FixedParts;
  parts.page_shift = 12;
  parts.start = 0;
  parts.all = true;
  parts.update = true;
  parts.octwords = 4;
  parts.parts = {{0, World::key, World::va + 30 * page}, {0, chip::kAbsentKey, 0}, {0, paged_key, paged_va}};
  peer.nic.mkey_create(30 << 8, parts);
  fill(w.bytes(0), 3 * page, 8);
  w.post(op::kWrite, World::remote(0, 30 << 8) + w.sge(0, 3 * page));
  w.kick();
  pass(w);
  auto f = fault(peer);
  REQUIRE(f);
  CHECK((f->kind == 1 && f->type == rdma_write && f->rkey == 30 << 8 && f->va + f->committed == 0));
  // mlx5_ib fills the part in, and the pages.
  chip::UmrSegment umr{};
  umr.flags = flag::kInline | flag::kOffset | flag::kMustNotBeFree;
  umr.klm_octowords = be(uint16_t{4});
  auto list = segments(chip::KlmSegment{be(uint32_t{page}), be(World::key), be(World::va + 30 * page)}) +
              segments(chip::KlmSegment{be(uint32_t{page}), be(World::key), be(World::va + 40 * page)}) +
              segments(chip::KlmSegment{be(uint32_t{page}), be(paged_key), be(paged_va)}) +
              segments(chip::KlmSegment{be(uint32_t{page}), be(chip::kAbsentKey), 0});
  CHECK(p.driver.executes(op::kUmr, segments(umr) + segments(chip::KeySegment{}) + list, 30 << 8) == 0);
  resume(peer, *f);
  pass(w);
  f = fault(peer);
  REQUIRE(f);
  CHECK(quiet(w));
  p.set(0, 1, present);
  resume(peer, *f);
  pass(w);
  CHECK(ended(w) == 0);
  CHECK(std::memcmp(peer.bytes(30 * page), w.bytes(0), page) == 0);
  CHECK(std::memcmp(peer.bytes(40 * page), w.bytes(page), page) == 0);
  CHECK(std::memcmp(peer.bytes(0), w.bytes(2 * page), page) == 0);
}

TEST_CASE("without a queue for its events, memory that is not there is an error as any other") {
  World w;
  Paging p(w);
  w.nic.eq_destroy(3);
  w.post(op::kSend, p.sge(0, 100));
  w.kick();
  pass(w);
  CHECK(ended(w) == syndrome::kLocalProtection);
}

TEST_CASE("a list that says nothing of its pages is of pages that are there") {
  World w;
  MkeySpec spec = w.mtt(w.data.pages.pages);
  w.nic.mkey_create(paged_key, spec);
  w.receive({World::data_segment(World::va + 50000, paged_key, 100)});
  w.post(op::kSend, World::data_segment(World::va, paged_key, 100));
  w.kick();
  w.run();
  CHECK(ended(w) == 0);
}

}  // namespace
