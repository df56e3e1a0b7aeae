// The ConnectX's data path: doorbells, entries and completions, with firmware and driver that are this test.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "soft_mlx5_world.h"

namespace {

using namespace mlx5_world;  // NOLINT
namespace op = chip::opcode;
namespace kind = chip::cqe_opcode;
namespace syndrome = chip::syndrome;

uint8_t opcode_of(const chip::Cqe& entry) { return entry.op_own >> 4; }
uint8_t opcode_of(const chip::ErrorCqe& entry) { return entry.op_own >> 4; }

void check_request(const chip::Cqe& entry, uint8_t opcode, uint64_t counter) {
  CHECK(opcode_of(entry) == kind::kRequest);
  CHECK(be(entry.sop_drop_qpn) == (uint32_t{opcode} << 24 | World::qpn));
  CHECK(be(entry.wqe_counter) == static_cast<uint16_t>(counter));
}

void check_error(const chip::ErrorCqe& entry, uint8_t ring, uint8_t cause, uint64_t counter) {
  CHECK(opcode_of(entry) == ring);
  CHECK(entry.syndrome == cause);
  CHECK((be(entry.s_wqe_opcode_qpn) & 0xffffff) == World::qpn);
  CHECK(be(entry.wqe_counter) == static_cast<uint16_t>(counter));
}

uint32_t number_of(const chip::Event& event) {
  chip::QueueEvent data;
  std::memcpy(&data, event.data, sizeof data);
  return be(data.qp_srq_n);
}

TEST_CASE("sends and receives: rings that wrap, entries of both sizes, with and without an IOMMU") {
  for (const bool iommu : {true, false}) {
    for (const unsigned cqe_bytes : {64u, 128u}) {
      for (const uint64_t offset : {0, 2048}) {
        CAPTURE(iommu);
        CAPTURE(cqe_bytes);
        CAPTURE(offset);
        Shape shape;
        shape.iommu = iommu;
        shape.cqe_bytes = cqe_bytes;
        shape.offset = offset;
        World w(shape);
        for (uint32_t i = 0; i < 200; i++) {
          const uint32_t n = 1 + i * 97 % 9000;
          const uint32_t split = n / 3;
          fill(w.bytes(0), n, static_cast<uint8_t>(i));
          std::memset(w.bytes(1 << 20), 0, n + 1);
          w.receive({w.sge(1 << 20, n / 2 + 1), w.sge((1 << 20) + n / 2 + 1, 10000)});
          // Of one block, of two, and of three across the end of the ring.
          std::vector<Segment> list = split ? w.sge(0, split) + w.sge(split, n - split) : w.sge(0, n);
          for (uint32_t more = 0; more < i % 3; more++) {
            for (int j = 0; j < 4; j++) list = list + w.sge(n, 1);
          }
          const uint32_t length = n + i % 3 * 4;
          const uint64_t counter = w.posted;
          w.post(op::kSend, list);
          w.kick();
          w.run();
          chip::Cqe got, sent;
          REQUIRE(w.got(got));
          CHECK(opcode_of(got) == kind::kReceived);
          CHECK(be(got.byte_cnt) == length);
          CHECK(be(got.sop_drop_qpn) == World::qpn);
          CHECK(be(got.wqe_counter) == i);
          CHECK(be(got.srqn_uidx) == 0);
          CHECK(std::memcmp(w.bytes(0), w.bytes(1 << 20), n) == 0);
          REQUIRE(w.sent(sent));
          check_request(sent, op::kSend, counter);
        }
      }
    }
  }
}

TEST_CASE("counters wrap at 2^16") {
  World w;
  for (uint32_t i = 0; i < 66000; i++) {
    w.receive({w.sge(4096, 8)});
    w.post(op::kSend, w.sge(0, 8), i % 16 == 15 ? chip::control::kCompletion : 0);
    w.kick();
    chip::Cqe entry;
    while (!w.got(entry)) w.run();
    if (i % 16 == 15) {
      w.run();
      REQUIRE(w.sent(entry));
      REQUIRE(be(entry.wqe_counter) == static_cast<uint16_t>(i));
    }
  }
  CHECK(w.nic.qp_query(World::qpn).sq_counter == static_cast<uint16_t>(66000));
}

TEST_CASE("inline data, immediate data, solicited and unsignaled entries") {
  World w;
  const std::string text = "a message of more than one block that is in its entry, and whose end is in another one";
  w.receive({w.sge(0, 128)});
  w.receive({w.sge(128, 64)});
  w.post(op::kSendImmediate, w.inlined(text), chip::control::kSolicited, 0xdeadbeef);
  w.post(op::kSend, {});
  w.kick();
  w.run();
  chip::Cqe got;
  REQUIRE(w.got(got));
  CHECK(opcode_of(got) == kind::kReceivedImmediate);
  CHECK(be(got.imm_inval_pkey) == 0xdeadbeef);
  CHECK(be(got.byte_cnt) == text.size());
  CHECK((got.op_own & 2) == 2);  // mlx5dv_get_cqe_se
  CHECK(std::memcmp(w.bytes(0), text.data(), text.size()) == 0);
  REQUIRE(w.got(got));
  CHECK(be(got.byte_cnt) == 0);
  CHECK((got.op_own & 2) == 0);
  chip::Cqe sent;
  REQUIRE(w.sent(sent));
  check_request(sent, op::kSend, 2);
  CHECK_FALSE(w.sent(sent));
}

TEST_CASE("RDMA write, write with immediate, read and atomics") {
  World w;
  fill(w.bytes(0), 10000, 1);
  w.post(op::kWrite, w.remote(w.va + 20000, w.key) + w.sge(0, 10000));
  w.post(op::kRead, w.remote(w.va + 20001, w.key) + w.sge(40000, 9000));
  w.kick();
  w.run();
  chip::Cqe sent;
  REQUIRE(w.sent(sent));
  check_request(sent, op::kWrite, 0);
  REQUIRE(w.sent(sent));
  check_request(sent, op::kRead, 1);
  CHECK(be(sent.byte_cnt) == 9000);
  CHECK(std::memcmp(w.bytes(0), w.bytes(20000), 10000) == 0);
  CHECK(std::memcmp(w.bytes(1), w.bytes(40000), 9000) == 0);

  w.receive({w.sge(0, 8)});
  w.post(op::kWriteImmediate, w.remote(w.va + 60000, w.key) + w.sge(0, 8), chip::control::kCompletion, 77);
  *reinterpret_cast<uint64_t*>(w.bytes(70000)) = 37;
  w.post(op::kFetchAdd,
         w.remote(w.va + 70000, w.key) + segments(chip::AtomicSegment{be(uint64_t{5}), 0}) + w.sge(80000, 8));
  w.post(op::kCompareSwap,
         w.remote(w.va + 70000, w.key) + segments(chip::AtomicSegment{be(uint64_t{99}), be(uint64_t{42})}) +
             w.sge(80008, 8),
         chip::control::kCompletion | chip::control::kFence);
  w.kick();
  w.run();
  chip::Cqe got;
  REQUIRE(w.got(got));
  CHECK(opcode_of(got) == kind::kReceivedWriteImmediate);
  CHECK(be(got.imm_inval_pkey) == 77);
  CHECK(be(got.byte_cnt) == 8);
  CHECK(std::memcmp(w.bytes(0), w.bytes(60000), 8) == 0);
  for (const uint8_t code : {op::kWriteImmediate, op::kFetchAdd, op::kCompareSwap}) {
    const uint64_t counter = code == op::kWriteImmediate ? 2 : code == op::kFetchAdd ? 3 : 4;
    REQUIRE(w.sent(sent));
    check_request(sent, code, counter);
  }
  CHECK(*reinterpret_cast<uint64_t*>(w.bytes(70000)) == 99);
  CHECK(*reinterpret_cast<uint64_t*>(w.bytes(80000)) == 37);
  CHECK(*reinterpret_cast<uint64_t*>(w.bytes(80008)) == 42);
}

TEST_CASE("the result of an atomic is in the order that the function was set to") {
  for (const bool big : {false, true}) {
    CAPTURE(big);
    Shape shape;
    shape.big_endian_atomics = big;
    World w(shape);
    *reinterpret_cast<uint64_t*>(w.bytes(70000)) = 37;
    w.post(op::kFetchAdd,
           w.remote(w.va + 70000, w.key) + segments(chip::AtomicSegment{be(uint64_t{5}), 0}) + w.sge(80000, 8));
    w.kick();
    w.run();
    CHECK(*reinterpret_cast<uint64_t*>(w.bytes(70000)) == 42);
    CHECK(*reinterpret_cast<uint64_t*>(w.bytes(80000)) == (big ? be(uint64_t{37}) : 37));
  }
}

TEST_CASE("a message that is longer than the NIC's limit fails") {
  Shape shape;
  shape.longest = 4096;
  World w(shape);
  w.receive({w.sge(50000, 8192)});
  w.post(op::kSend, w.sge(0, 4096));
  w.post(op::kSend, w.sge(0, 4096) + w.sge(4096, 1));
  w.kick();
  w.run();
  chip::Cqe sent;
  REQUIRE(w.sent(sent));
  check_request(sent, op::kSend, 0);
  chip::ErrorCqe failed;
  REQUIRE(w.sent(failed));
  check_error(failed, kind::kRequestError, syndrome::kLocalLength, 1);
}

TEST_CASE("a message may go to where it comes from, in part") {
  World w;
  fill(w.bytes(0), 3000, 1);
  const std::vector<uint8_t> before(w.bytes(0), w.bytes(2000));
  w.post(op::kWrite, w.remote(w.va + 1000, w.key) + w.sge(0, 2000));
  w.kick();
  w.run();
  chip::Cqe sent;
  REQUIRE(w.sent(sent));
  check_request(sent, op::kWrite, 0);
  CHECK(std::vector<uint8_t>(w.bytes(1000), w.bytes(3000)) == before);
}

TEST_CASE("a malformed entry fails with its own syndrome after those before it, and all that is posted is flushed") {
  struct Case {
    const char* what;
    uint8_t syndrome;
    uint8_t vendor;  // 0: not known
    void (*post)(World&);
  };
  const Case cases[] = {
      {"unknown opcode", syndrome::kLocalQpOperation, 0x68, [](World& w) { w.post(0x7f, w.sge(0, 4)); }},
      {"a write without an address", syndrome::kLocalQpOperation, 0x68, [](World& w) { w.post(op::kWrite, {}); }},
      {"inline data past the end", syndrome::kLocalQpOperation, 0x68,
       [](World& w) {
         auto list = w.inlined("abc");
         list[0][3] = 13;  // its length
         w.post(op::kSend, list);
       }},
      {"an inline read", syndrome::kLocalQpOperation, 0x68,
       [](World& w) { w.post(op::kRead, w.remote(w.va, w.key) + w.inlined("abc")); }},
      {"an atomic of four bytes", syndrome::kLocalLength, 0,
       [](World& w) { w.post(op::kFetchAdd, w.remote(w.va, w.key) + segments(chip::AtomicSegment{}) + w.sge(0, 4)); }},
      {"a key of nobody", syndrome::kLocalProtection, 0x51,
       [](World& w) { w.post(op::kSend, w.data_segment(w.va, w.key + 1, 4)); }},
      {"past the region", syndrome::kLocalProtection, 0x51,
       [](World& w) { w.post(op::kSend, w.sge(w.data_bytes - 2, 4)); }},
      {"twice 2^31 bytes", syndrome::kLocalLength, 0, [](World& w) { w.post(op::kSend, w.sge(0, 0) + w.sge(0, 0)); }},
      {"a remote key of nobody", syndrome::kRemoteAccess, 0x88,
       [](World& w) { w.post(op::kWrite, w.remote(w.va, 1 << 8) + w.sge(0, 4)); }},
      {"past the remote region", syndrome::kRemoteAccess, 0x88,
       [](World& w) { w.post(op::kRead, w.remote(w.va + w.data_bytes - 1, w.key) + w.sge(0, 4)); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    World peer;
    World w({}, &peer);
    w.receive({w.sge(4096, 100)});
    peer.receive({w.sge(4096, 100)});
    w.post(op::kSend, w.sge(0, 10));
    const uint64_t at = w.posted;
    c.post(w);
    const uint64_t after = w.posted;
    w.post(op::kSend, w.sge(0, 10), 0);  // one that asks for no completion gets one
    w.kick();
    w.run();
    chip::Cqe sent;
    REQUIRE(w.sent(sent));
    check_request(sent, op::kSend, 0);
    chip::ErrorCqe failed;
    REQUIRE(w.sent(failed));
    check_error(failed, kind::kRequestError, c.syndrome, at);
    if (c.vendor) CHECK(failed.vendor_err_synd == c.vendor);
    REQUIRE(w.sent(failed));
    check_error(failed, kind::kRequestError, syndrome::kFlushed, after);
    CHECK(failed.vendor_err_synd == 0xf9);
    CHECK((be(failed.s_wqe_opcode_qpn) >> 24) == op::kSend);
    CHECK_FALSE(w.sent(failed));
    REQUIRE(w.got(failed));
    check_error(failed, kind::kReceiveError, syndrome::kFlushed, 0);
    CHECK_FALSE(w.got(failed));
    CHECK(w.nic.qp_query(World::qpn).attributes.state == State::Err);
    chip::Event event;
    CHECK_FALSE(w.event(event));  // the completion says it all
    // What is posted from now on is flushed: the send ring rings, the receive ring's record is looked at.
    w.post(op::kWrite, w.remote(w.va, w.key) + w.sge(0, 4));
    w.kick();
    REQUIRE(w.sent(failed));
    check_error(failed, kind::kRequestError, syndrome::kFlushed, after + 1);
    w.receive({w.sge(0, 4)});
    w.run();
    REQUIRE(w.got(failed));
    check_error(failed, kind::kReceiveError, syndrome::kFlushed, 1);
    chip::Cqe got;
    REQUIRE(peer.got(got));
    CHECK(opcode_of(got) == kind::kReceived);
  }
}

TEST_CASE("a peer's fault without a receive to blame is an event") {
  struct Case {
    uint8_t type;
    std::vector<Segment> (*post)(World&);
  };
  const Case cases[] = {
      {chip::event::kAccess, [](World& w) { return w.remote(w.va, 1 << 8) + w.sge(0, 4); }},
      {chip::event::kInvalidRequest,
       [](World& w) {  // the responder no longer serves writes
         Attributes a;
         a.access = 0;
         w.nic.qp_modify(World::qpn, a, Attributes::HasAccess);
         return w.remote(w.va, w.key) + w.sge(0, 4);
       }},
  };
  for (const Case& c : cases) {
    World peer;
    World w({}, &peer);
    peer.receive({w.sge(0, 4)});
    w.post(op::kWrite, c.post(peer));
    w.kick();
    w.run();
    chip::Event event;
    REQUIRE(peer.event(event));
    CHECK(event.type == c.type);
    CHECK(number_of(event) == World::qpn);
    CHECK_FALSE(peer.event(event));
    chip::ErrorCqe failed;
    REQUIRE(peer.got(failed));
    check_error(failed, kind::kReceiveError, syndrome::kFlushed, 0);
    REQUIRE(w.sent(failed));
    CHECK(failed.syndrome ==
          (c.type == chip::event::kAccess ? syndrome::kRemoteAccess : syndrome::kRemoteInvalidRequest));
  }
}

TEST_CASE("a receive that is too short fails both sides") {
  World peer;
  World w({}, &peer);
  peer.receive({w.sge(4096, 99)});
  peer.receive({w.sge(4096, 99)});
  w.post(op::kSend, w.sge(0, 100));
  w.kick();
  w.run();
  chip::ErrorCqe failed;
  REQUIRE(peer.got(failed));
  check_error(failed, kind::kReceiveError, syndrome::kLocalLength, 0);
  REQUIRE(peer.got(failed));
  check_error(failed, kind::kReceiveError, syndrome::kFlushed, 1);
  REQUIRE(w.sent(failed));
  check_error(failed, kind::kRequestError, syndrome::kRemoteInvalidRequest, 0);
  CHECK(failed.vendor_err_synd == 0x8a);
}

TEST_CASE("receivers that are not ready, and peers that are not there") {
  World w;
  w.post(op::kSend, w.sge(0, 5000));
  w.kick();
  for (int i = 0; i < 20; i++) w.nic.nic().advance();
  chip::Cqe sent;
  CHECK_FALSE(w.sent(sent));
  w.receive({w.sge(8192, 5000)});
  w.run();
  REQUIRE(w.sent(sent));
  check_request(sent, op::kSend, 0);

  Attributes a;
  a.rnr_retry = 2;
  w.nic.qp_modify(World::qpn, a, Attributes::HasRnrRetry);
  w.post(op::kSend, w.sge(0, 5));
  w.kick();
  w.run();
  chip::ErrorCqe failed;
  REQUIRE(w.sent(failed));
  check_error(failed, kind::kRequestError, syndrome::kRnrRetryExceeded, 1);

  World lost;
  lost.nic.ingress(false);
  lost.post(op::kSend, lost.sge(0, 5));
  lost.kick();
  lost.run();
  REQUIRE(lost.sent(failed));
  check_error(failed, kind::kRequestError, syndrome::kRetryExceeded, 0);
  CHECK(failed.vendor_err_synd == 0x81);
  // Eight expiries of 4.096 us * 2^14.
  CHECK(lost.clock->now() >= 8 * 67108864ull);
}

TEST_CASE("doorbells: 32-bit halves, 64 bytes of BlueFlame, all its registers, and what is none") {
  World w;
  const auto arrives = [&] {
    w.run();
    chip::Cqe entry;
    return w.sent(entry);
  };
  const auto post = [&] {
    w.receive({w.sge(4096, 8)});
    w.post(op::kSend, w.sge(0, 8));
    w.set_record(2, 1, static_cast<uint16_t>(w.posted));
  };
  post();
  w.bar.write<uint32_t>(w.uar + 0x800, static_cast<uint32_t>(w.last));
  CHECK_FALSE(arrives());
  w.bar.write<uint32_t>(w.uar + 0x804, static_cast<uint32_t>(w.last >> 32));
  CHECK(arrives());
  for (unsigned at = 0x800; at < 0x1000; at += 0x100) {
    post();
    CHECK(w.nic.bar_write(0, w.uar + at, w.queues.at(w.rq_bytes() + (w.posted - 1) % 32 * 64), 64));
    CHECK(arrives());
  }
  // Another page, no register of one, a queue pair that is not there, an entry that was announced already.
  post();
  w.bar.write<uint64_t>(w.uar + 0x808, w.last);
  w.bar.write<uint64_t>(w.uar + 0x700, w.last);
  w.bar.write<uint64_t>(w.uar + 0x800, uint64_t{be(0xfffffu << 8 | 2)} << 32);
  w.bar.write<uint64_t>(4 * 4096 + 0x800, w.last);  // no UAR there
  CHECK_FALSE(arrives());
  w.bar.write<uint64_t>(77 * 4096 + 0x800, w.last);
  CHECK(arrives());
  w.ring();
  CHECK_FALSE(arrives());
}

TEST_CASE("counters that cannot be fail the pair with an event, and its entries are flushed") {
  SUBCASE("of the send ring") {
    World w;
    w.receive({w.sge(0, 4)});
    w.set_record(2, 1, 33);  // of 32 blocks
    w.last = uint64_t{be(World::qpn << 8 | 1)} << 32;
    w.ring();
    w.run();
    chip::Event event;
    REQUIRE(w.event(event));
    CHECK(event.type == chip::event::kCatastrophic);
    CHECK(number_of(event) == World::qpn);
    chip::ErrorCqe failed;
    REQUIRE(w.got(failed));
    check_error(failed, kind::kReceiveError, syndrome::kFlushed, 0);
  }
  SUBCASE("of the receive ring") {
    World w;
    w.set_record(2, 0, 33);
    w.post(op::kSend, w.sge(0, 4));
    w.kick();
    w.run();
    chip::Event event;
    REQUIRE(w.event(event));
    CHECK(event.type == chip::event::kCatastrophic);
    chip::ErrorCqe failed;
    REQUIRE(w.sent(failed));
    check_error(failed, kind::kRequestError, syndrome::kFlushed, 0);
    CHECK_FALSE(w.got(failed));
  }
  SUBCASE("a record that is not there") {
    World w;
    w.nic.free_dma(w.records.memory);
    w.last = uint64_t{be(World::qpn << 8 | 1)} << 32;
    w.ring();
    w.run();
    chip::Event event;
    REQUIRE(w.event(event));
    CHECK(event.type == chip::event::kCatastrophic);
  }
  SUBCASE("an entry longer than what was announced") {
    World w;
    w.post(op::kSend, w.sge(0, 4) + w.sge(0, 4) + w.sge(0, 4) + w.sge(0, 4));  // two blocks
    w.set_record(2, 1, 1);
    w.ring();
    w.run();
    chip::ErrorCqe failed;
    REQUIRE(w.sent(failed));
    check_error(failed, kind::kRequestError, syndrome::kLocalQpOperation, 0);
    CHECK_FALSE(w.sent(failed));
  }
  SUBCASE("an entry of no size") {
    World w;
    w.post(op::kSend, w.sge(0, 4));
    std::memset(w.queues.at(w.rq_bytes()) + 7, 0, 1);
    w.kick();
    w.run();
    chip::ErrorCqe failed;
    REQUIRE(w.sent(failed));
    check_error(failed, kind::kRequestError, syndrome::kLocalQpOperation, 0);
  }
}

TEST_CASE("rings and regions that are no longer mapped are faults, never stray accesses") {
  SUBCASE("the region's memory") {
    World w;
    w.receive({w.sge(4096, 100)});
    w.nic.free_dma(w.data.memory);
    w.post(op::kSend, w.sge(0, 100));
    w.kick();
    w.run();
    chip::ErrorCqe failed;
    REQUIRE(w.sent(failed));
    CHECK(failed.syndrome == syndrome::kLocalProtection);
    CHECK(w.nic.nic().dma().faults() > 0);
    CHECK(w.nic.nic().dma().last_fault().address >= w.data.memory.runs[0].address);
  }
  SUBCASE("the rings") {
    World w;
    w.post(op::kSend, w.sge(0, 100));
    w.nic.free_dma(w.queues.memory);
    w.kick();
    w.run();
    chip::ErrorCqe failed;
    REQUIRE(w.sent(failed));
    CHECK(failed.syndrome == syndrome::kLocalQpOperation);
  }
  SUBCASE("the completion ring") {
    World w;
    w.nic.free_dma(w.scq.memory);
    w.receive({w.sge(4096, 100)});
    w.post(op::kSend, w.sge(0, 100));
    w.kick();
    w.run();
    chip::Event event;
    REQUIRE(w.event(event));
    CHECK(event.type == chip::event::kCqError);
    chip::CqErrorEvent data;
    std::memcpy(&data, event.data, sizeof data);
    CHECK(be(data.cqn) == World::send_cq);
    REQUIRE(w.event(event));
    CHECK(event.type == chip::event::kCatastrophic);
    CHECK(w.nic.qp_query(World::qpn).attributes.state == State::Err);
  }
  SUBCASE("all of it, without bus mastering") {
    World w;
    w.post(op::kSend, w.sge(0, 100));
    w.nic.set_config(4, 2, 2);
    w.kick();
    w.run();
    chip::Cqe sent;
    CHECK_FALSE(w.sent(sent));
    CHECK(w.nic.nic().dma().faults() > 0);
  }
}

TEST_CASE("no more completions than the queue has room for: an error of the queue and of the pair") {
  World w;
  for (uint32_t i = 0; i < World::cq_entries + 1; i++) {
    w.receive({w.sge(4096, 8)});
    w.post(op::kSend, w.sge(0, 8));
    w.kick();
    w.run();
    chip::Cqe sent;
    while (w.sent(sent)) {
    }
  }
  chip::Event event;
  REQUIRE(w.event(event));
  CHECK(event.type == chip::event::kCqError);
  chip::CqErrorEvent data;
  std::memcpy(&data, event.data, sizeof data);
  CHECK(be(data.cqn) == World::receive_cq);
  CHECK(data.syndrome == 1);
  REQUIRE(w.event(event));
  CHECK(event.type == chip::event::kCatastrophic);
  CHECK(w.nic.cq_query(World::receive_cq).overrun);
  uint32_t whole = 0;
  for (chip::Cqe got; w.got(got);) CHECK(be(got.wqe_counter) == whole++);
  CHECK(whole == World::cq_entries);
}

TEST_CASE("a completion queue notifies when it is armed, once, with a sequence number that the next arming must have") {
  World w;
  const int fd = w.nic.interrupt(1);
  const auto fired = [&] {
    uint64_t n = 0;
    return read(fd, &n, sizeof n) == sizeof n;
  };
  const auto pass = [&](uint8_t flags = chip::control::kCompletion) {
    w.receive({w.sge(4096, 8)});
    w.post(op::kSend, w.sge(0, 8), flags);
    w.kick();
    w.run();
    chip::Cqe entry;
    w.sent(entry);
    w.got(entry);
  };
  const auto notified = [&](uint32_t cq) {
    chip::Event event;
    if (!w.event(event)) return false;
    chip::CompletionEvent data;
    std::memcpy(&data, event.data, sizeof data);
    CHECK(event.type == chip::event::kCompletion);
    return be(data.cqn) == cq;
  };
  w.bar.write<uint32_t>(w.uar + 0x40, be(3u << 24));  // the event queue asks for interrupts
  pass();
  CHECK_FALSE(fired());
  w.arm(World::send_cq, 0, false, w.scq_consumed);
  CHECK_FALSE(fired());
  pass();
  CHECK(fired());
  CHECK(notified(World::send_cq));
  pass();
  CHECK_FALSE(fired());
  w.arm(World::send_cq, 0, false, w.scq_consumed);  // an old one
  pass();
  CHECK_FALSE(fired());
  w.arm(World::send_cq, 1, false, w.scq_consumed);
  pass();
  CHECK(fired());
  CHECK(notified(World::send_cq));
  // Armed behind an entry that was not read: at once.
  pass();
  w.arm(World::send_cq, 2, false, w.scq_consumed - 1);
  CHECK(fired());
  CHECK(notified(World::send_cq));
  // Solicited entries only.
  w.arm(World::receive_cq, 0, true, w.rcq_consumed);
  pass();
  CHECK_FALSE(fired());
  pass(chip::control::kCompletion | chip::control::kSolicited);
  CHECK(fired());
  CHECK(notified(World::receive_cq));
  // Entries that are only told of, without an interrupt.
  w.bar.write<uint32_t>(w.uar + 0x48, be(3u << 24 | static_cast<uint32_t>(w.eq_consumed)));
}

TEST_CASE("events that find the queue full wait for its driver") {
  World w;
  uint8_t data[28] = {};
  for (uint32_t i = 0; i < 300; i++) {
    std::memcpy(data, &i, 4);
    CHECK(w.nic.event(chip::event::kPort, 1, data));
  }
  uint32_t taken = 0;
  for (chip::Event event; w.event(event);) {
    uint32_t n;
    std::memcpy(&n, event.data, 4);
    CHECK(n == taken++);
    CHECK(event.type == chip::event::kPort);
    CHECK(event.sub_type == 1);
  }
  CHECK(taken == 300);
  CHECK_FALSE(w.nic.event(0x77, 0, data));  // nobody asked for it
}

TEST_CASE("a queue goes on in a larger one: its last entry says so, and is counted") {
  World w;
  const auto pass = [&] {
    w.receive({w.sge(4096, 8)});
    w.post(op::kSend, w.sge(0, 8));
    w.kick();
    w.run();
  };
  for (int i = 0; i < 3; i++) pass();
  chip::Cqe entry;
  REQUIRE(w.sent(entry));
  Paged larger(w.nic, 256 * 64);
  for (int i = 0; i < 256; i++) larger.at(i * 64)[63] = 0xf1;
  soft::mlx5::CqSpec spec;
  spec.pages = larger.pages;
  spec.log_entries = 8;
  REQUIRE(w.nic.cq_resize(World::send_cq, spec));
  for (int i = 0; i < 2; i++) REQUIRE(w.sent(entry));
  REQUIRE(w.sent(entry));
  CHECK(opcode_of(entry) == 5);  // MLX5_CQE_RESIZE_CQ
  pass();
  CHECK_FALSE(w.sent(entry));
  CHECK((larger.at(4 * 64)[63] >> 4) == kind::kRequest);  // the fifth entry of the queue
  CHECK((larger.at(4 * 64)[63] & 1) == 0);
}

TEST_CASE("a pair that fails by itself, and one that its driver takes to the error state") {
  for (const bool by_itself : {true, false}) {
    World w;
    w.receive({w.sge(0, 4)});
    if (by_itself) {
      w.nic.fail_qp(World::qpn);
    } else {
      w.state(State::Err);
    }
    chip::Event event;
    CHECK(w.event(event) == by_itself);
    if (by_itself) CHECK(event.type == chip::event::kCatastrophic);
    chip::ErrorCqe failed;
    REQUIRE(w.got(failed));
    check_error(failed, kind::kReceiveError, syndrome::kFlushed, 0);
  }
}

TEST_CASE("the first packet to a pair in RTR is an event, once; completions have the time") {
  World peer;
  World w({}, &peer);
  peer.state(State::Reset);
  peer.connect(2, false);
  chip::Event event;
  w.clock->advance(1'000'000);
  for (int i = 0; i < 2; i++) {
    peer.receive({w.sge(0, 8)});
    w.post(op::kSend, w.sge(0, 8));
    w.kick();
    w.run();
    chip::Cqe entry;
    REQUIRE(w.sent(entry));
    CHECK(be(entry.timestamp) == w.clock->now());
    CHECK(peer.event(event) == (i == 0));
    CHECK(event.type == chip::event::kEstablished);
    CHECK(number_of(event) == World::qpn);
  }
  CHECK_FALSE(w.event(event));
}

TEST_CASE("reset and connect again starts the rings anew") {
  World w;
  w.receive({w.sge(4096, 8)});
  w.post(op::kSend, w.sge(0, 8));
  w.kick();
  w.run();
  w.state(State::Reset);
  w.set_record(2, 0, 0);
  w.set_record(2, 1, 0);
  w.posted = w.received = 0;
  w.ring();  // in RESET nothing rings
  w.connect(w.mac);
  chip::Cqe sent;
  REQUIRE(w.sent(sent));
  w.receive({w.sge(4096, 8)});
  w.post(op::kSend, w.sge(0, 8));
  w.kick();
  w.run();
  REQUIRE(w.sent(sent));
  check_request(sent, op::kSend, 0);
}

TEST_CASE("completions have the user's index of their queue pair, where it has one") {
  World w;
  w.nic.qp_destroy(World::qpn);
  w.qp.user_index = 0x123456;
  w.nic.qp_create(World::qpn, w.qp);
  w.connect(w.mac);
  w.receive({w.sge(4096, 8)});
  w.post(op::kSend, w.sge(0, 8));
  w.kick();
  w.run();
  chip::Cqe entry;
  REQUIRE(w.sent(entry));
  CHECK(be(entry.srqn_uidx) == 0x123456);
  REQUIRE(w.got(entry));
  CHECK(be(entry.srqn_uidx) == 0x123456);
}

TEST_CASE("a shared receive queue: its list, its limit, and the last receive of a pair") {
  Shape shape;
  shape.srqn = 0x21;
  World w(shape);
  // The list goes 0, 2, 1, 3.
  const auto link = [&](uint16_t from, uint16_t to) {
    to = be(to);
    std::memcpy(w.srq->at(from * 64) + 2, &to, 2);
  };
  link(0, 2);
  link(2, 1);
  link(1, 3);
  for (unsigned i = 0; i < 4; i++) w.write_receive(w.srq->at(i * 64) + 16, 3, {w.sge(4096 + 64 * i, 64)});
  w.set_record(3, 0, 4);
  w.nic.srq_arm(0x21, 3);
  chip::Event event;
  CHECK_FALSE(w.event(event));
  const uint16_t order[] = {0, 2, 1};
  for (int i = 0; i < 3; i++) {
    w.post(op::kSend, w.inlined(std::string(1, static_cast<char>('a' + i))));
    w.kick();
    w.run();
    chip::Cqe got;
    REQUIRE(w.got(got));
    CHECK(be(got.wqe_counter) == order[i]);
    CHECK(be(got.srqn_uidx) == 0x21);
    CHECK(*w.bytes(4096 + 64 * order[i]) == 'a' + i);
    CHECK(w.event(event) == (i == 1));  // fewer than three are left
    if (i == 1) {
      CHECK(event.type == chip::event::kSrqLimit);
      CHECK(number_of(event) == 0x21);
      CHECK(w.nic.srq_limit(0x21) == 0);
    }
  }
  CHECK_THROWS_AS(w.nic.srq_destroy(0x21), std::invalid_argument);
  w.state(State::Err);
  REQUIRE(w.event(event));
  CHECK(event.type == chip::event::kSrqLast);
  CHECK(number_of(event) == World::qpn);
  chip::Cqe got;
  CHECK_FALSE(w.got(got));  // what is posted there is other pairs' too
  w.nic.qp_destroy(World::qpn);
  w.nic.srq_destroy(0x21);
}

TEST_CASE("a shared receive queue whose counter cannot be is in error") {
  Shape shape;
  shape.srqn = 0x21;
  World w(shape);
  w.set_record(3, 0, 33);
  w.post(op::kSend, w.sge(0, 4));
  w.kick();
  for (int i = 0; i < 20; i++) w.nic.nic().advance();
  chip::Event event;
  REQUIRE(w.event(event));
  CHECK(event.type == chip::event::kSrqCatastrophic);
  CHECK(number_of(event) == 0x21);
}

TEST_CASE("a NIC that vanished moves nothing, and its objects are gone") {
  World w;
  w.receive({w.sge(4096, 8)});
  w.nic.vanish();
  w.post(op::kSend, w.sge(0, 8));
  w.kick();
  w.run();
  chip::Cqe sent;
  CHECK_FALSE(w.sent(sent));
  for (const auto& [name, count] : w.nic.counts()) {
    if (name == "qp" || name == "cq" || name == "mr" || name == "eq") CHECK(count == 0);
  }
  CHECK_THROWS_AS(w.nic.qp_destroy(World::qpn), soft::UnknownId);
}

TEST_CASE("firmware hears its doorbell; the health counter counts; ids that are not there are errors") {
  World w;
  uint32_t entries = 0;
  uint32_t place = 0;
  int resets = 0;
  w.nic.set_firmware(
      {[&](uint32_t value) { entries = value; }, [&] { resets++; }, [&](uint32_t value) { place = value; }});
  w.bar.write<uint32_t>(0x10, be(0x12345678u));
  CHECK(place == 0);
  w.bar.write<uint32_t>(0x14, be(0x1234'5056u));
  CHECK(place == 0x1234'5056);
  CHECK(entries == 0);
  w.bar.write<uint32_t>(0x18, be(1u << 31 | 1));
  CHECK(entries == (1u << 31 | 1));
  const auto health = [&] { return be(w.bar.read<uint32_t>(offsetof(chip::InitSegment, health_counter))); };
  const uint32_t before = health();
  w.clock->advance(2'000'000'000);
  CHECK(health() != before);
  w.nic.set_healthy(false);
  const uint32_t stopped = health();
  w.clock->advance(2'000'000'000);
  CHECK(health() == stopped);
  CHECK(be(w.bar.read<uint32_t>(offsetof(chip::InitSegment, internal_timer_l))) ==
        static_cast<uint32_t>(w.clock->now()));
  CHECK_THROWS_AS(w.nic.qp_destroy(8), soft::UnknownId);
  CHECK_THROWS_AS(w.nic.cq_destroy(World::send_cq), std::invalid_argument);  // a pair uses it
  CHECK_THROWS_AS(w.nic.mkey_create(World::key, {}), std::invalid_argument);
  soft::mlx5::CqSpec spec;
  spec.eqn = 3;
  spec.log_entries = 4;
  CHECK_THROWS_AS(w.nic.cq_create(12, spec), std::invalid_argument);  // of no pages
  w.nic.qp_destroy(World::qpn);
  w.nic.cq_destroy(World::send_cq);
  w.nic.mkey_destroy(World::key & ~0xffu);
  w.nic.reset();
  CHECK(resets == 1);
  w.nic.release();
  CHECK(resets == 2);
}

// Entries that are nearly right: a valid one with some bytes changed, or anything at all.
TEST_CASE("whatever a driver writes, the NIC goes on, and writes nowhere else") {
  for (uint32_t seed = 0; seed < 300; seed++) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Shape shape;
    if (seed % 3 == 1) shape.srqn = 0x21;
    shape.type = seed % 5 == 4 ? chip::qp_type::kUd : chip::qp_type::kRc;
    World w(shape);
    host::Memory guard = w.nic.alloc_dma(4096);
    std::memset(guard.data, 0x5a, 4096);
    MkeySpec registered;
    registered.pd = World::pd;
    registered.octwords = 64;
    registered.update = registered.free = true;
    w.nic.mkey_create(9 << 8, registered);
    const uint8_t opcodes[] = {op::kSend,     op::kSendImmediate, op::kWrite, op::kWriteImmediate, op::kRead,
                               op::kFetchAdd, op::kCompareSwap,   op::kUmr,   op::kSendInvalidate, op::kNop};
    for (int round = 0; round < 20; round++) {
      for (int i = random() % 4; i > 0; i--) {
        if (!shape.srqn) w.receive({w.sge(random() % 4096, random() % 5000 + 1)});
      }
      if (shape.srqn) w.set_record(3, 0, static_cast<uint16_t>(round));
      std::vector<Segment> rest = w.remote(w.va + random() % 65536, World::key);
      for (int i = random() % 12; i > 0; i--) rest = rest + w.sge(random() % 65536, random() % 5000 + 1);
      w.post(opcodes[random() % std::size(opcodes)], rest, static_cast<uint8_t>(random()),
             random() % 2 ? 9 << 8 : random());
      for (int i = random() % 4; i > 0; i--) *w.queues.at(random() % w.queues.memory.size) ^= 1 << random() % 8;
      if (random() % 16 == 0) w.set_record(random() % 4, random() % 2, random());
      if (random() % 8 == 0) {
        for (size_t i = 0; i < 4096; i++) w.queues.at(0)[i] = static_cast<uint8_t>(random());
      }
      if (random() % 4 == 0) w.bar.write<uint64_t>(w.uar + random() % 512 * 8, uint64_t{random()} << 32 | random());
      if (random() % 4 == 0) w.bar.write<uint32_t>(w.uar + random() % 1024 * 4, random());
      w.kick();
      for (int i = 0; i < 50; i++) w.nic.nic().advance();
      chip::Cqe entry;
      while (w.sent(entry) || w.got(entry)) {
      }
      for (chip::Event event; w.event(event);) {
      }
      if (w.nic.qp_query(World::qpn).attributes.state == State::Err && random() % 2) {
        w.state(State::Reset);
        w.set_record(2, 0, 0);
        w.set_record(2, 1, 0);
        w.posted = w.received = 0;
        w.connect(w.mac);
      }
    }
    for (size_t i = 0; i < 4096; i++) CHECK_FALSE(guard.data[i] != 0x5a);
    w.nic.qp_destroy(World::qpn);
    w.nic.cq_destroy(World::send_cq);
    w.nic.cq_destroy(World::receive_cq);
  }
}

}  // namespace
