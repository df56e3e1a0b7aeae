// What the driver writes for a ConnectX and what it reads. Expected bytes are by hand from infiniband/mlx5dv.h
// (mlx5_wqe_ctrl_seg, mlx5_wqe_raddr_seg, mlx5_wqe_data_seg, mlx5_cqe64, mlx5_err_cqe) and linux/mlx5/device.h
// (mlx5_eqe); all big-endian.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/mlx5_events.h"
#include "driver/mlx5_rings.h"
#include "driver/mlx5_wqe.h"
#include "plain_function.h"

namespace {

using namespace userdma;
using driver::Completion;
using driver::Error;
using driver::Mlx5Events;
using driver::Mlx5Rings;
using driver::Polled;
using driver::Rdma;
using driver::Side;

void put(uint8_t* at, uint64_t value, unsigned width) {
  for (unsigned i = 0; i < width; ++i) at[i] = static_cast<uint8_t>(value >> 8 * (width - 1 - i));
}
uint64_t get(const uint8_t* at, unsigned width) {
  uint64_t value = 0;
  for (unsigned i = 0; i < width; ++i) value = value << 8 | at[i];
  return value;
}

// A completion queue, as its NIC sees it.
struct DeviceCq {
  uint8_t* base = nullptr;
  uint32_t entries = 0;
  uint64_t producer = 0;

  // byte_cnt at 0x2c, imm at 0x24, sop_drop_qpn at 0x38, wqe_counter at 0x3c, op_own at 0x3f: opcode in the high four
  // bits, the owner in bit 0 (0 in the first pass).
  void write(unsigned opcode, unsigned counter, uint32_t bytes = 0, uint32_t immediate = 0, unsigned syndrome = 0,
             unsigned vendor = 0, unsigned low = 0) {
    uint8_t cqe[64] = {};
    put(cqe + 0x24, immediate, 4);
    put(cqe + 0x2c, bytes, 4);
    if (opcode >= 13) cqe[0x36] = static_cast<uint8_t>(vendor), cqe[0x37] = static_cast<uint8_t>(syndrome);
    put(cqe + 0x38, 0x1c3, 4);
    put(cqe + 0x3c, counter, 2);
    uint8_t* at = base + producer % entries * 64;
    std::memcpy(at, cqe, 63);
    const unsigned owner = producer / entries & 1;
    __atomic_store_n(at + 63, static_cast<uint8_t>(opcode << 4 | low | owner), __ATOMIC_RELEASE);
    ++producer;
  }
  void sent(unsigned counter) { write(0, counter); }
  void received(unsigned counter, uint32_t bytes) { write(2, counter, bytes); }
};

struct Pair {
  static constexpr uint32_t kQpn = 0x1c3;
  static constexpr uint64_t kUar = 0x3000;

  explicit Pair(uint32_t entries = 8, uint32_t cq_entries = 16, bool immediate = false,
                uint64_t longest = uint64_t{1} << 30, bool shared = false)
      : function(std::make_shared<test::PlainFunction>()), domain(std::make_shared<driver::Domain>(function)) {
    host::Bar bar = function->map(2);
    uar = bar.base() + kUar;
    host::Memory rings = function->alloc_dma(entries * 80);
    rq = rings.data;
    sq = rings.data + entries * 16;
    records = reinterpret_cast<uint32_t*>(function->alloc_dma(4096).data);
    host::Memory ring = function->alloc_dma(16 * 64);
    for (int i = 0; i < 16; ++i) ring.data[i * 64 + 63] = 1;
    eq = ring.data;
    events = std::make_shared<Mlx5Events>(domain, ring.data, 16, 5, bar, kUar);
    Mlx5Rings::Cq queues[2];
    for (unsigned i = 0; i < 2; ++i) {
      host::Memory memory = function->alloc_dma(cq_entries * 64);
      cq[i] = {memory.data, cq_entries};
      queues[i] = {{memory.data, memory.size, cq_entries}, 11 + i, records + 16 * (i + 1)};
    }
    if (shared) queues[1] = queues[0];
    qp = std::make_unique<driver::Qp>(
        std::make_unique<Mlx5Rings>(domain, kQpn, Mlx5Rings::Queue{sq, entries * 64, entries},
                                    Mlx5Rings::Queue{rq, entries * 16, entries}, records, queues[0], queues[1], bar,
                                    kUar, longest, events),
        entries - 1, entries - 1, immediate);
    memory.resize(1 << 16);
    region.domain = domain;
    region.data = memory.data();
    region.va = 0x7000'0000'1000;
    region.bytes = memory.size();
    region.lkey = 0x1234;
    qp->connect(0, 1024, false);
  }

  const uint8_t* record(unsigned index) const { return reinterpret_cast<const uint8_t*>(records + index); }
  Polled poll(Side side, Completion& out) {
    for (int i = 0; i < 600; ++i)
      if (auto polled = qp->poll(side, out); polled != Polled::None) return polled;
    return Polled::None;
  }
  // mlx5_eqe: type at 1, event data from 0x20 on, owner in bit 0 of 0x3f (0 in the first pass).
  void event(unsigned type, unsigned at, uint32_t number, unsigned index = 0) {
    uint8_t* eqe = eq + index * 64;
    eqe[1] = static_cast<uint8_t>(type);
    put(eqe + 0x20 + at, number, 4);
    __atomic_store_n(eqe + 63, uint8_t{0}, __ATOMIC_RELEASE);
  }

  std::shared_ptr<test::PlainFunction> function;
  std::shared_ptr<driver::Domain> domain;
  std::shared_ptr<Mlx5Events> events;
  std::unique_ptr<driver::Qp> qp;
  uint8_t* sq = nullptr;
  uint8_t* rq = nullptr;
  uint8_t* eq = nullptr;
  uint8_t* uar = nullptr;
  uint32_t* records = nullptr;
  DeviceCq cq[2];
  std::vector<uint8_t> memory;
  driver::Region region;
};

TEST_CASE("mlx5: a send's WQE, record and doorbell") {
  Pair pair;
  REQUIRE(pair.qp->send(pair.region, 0x100, 3000));
  REQUIRE(pair.qp->send(pair.region, 0x200, 5));

  const uint8_t* wqe = pair.sq;
  CHECK(get(wqe, 4) == 0x0000'000a);      // opcode modifier 0, index 0, MLX5_OPCODE_SEND
  CHECK(get(wqe + 4, 4) == 0x0001'c302);  // the pair, two segments of 16 bytes
  CHECK(get(wqe + 8, 4) == 0x0000'0008);  // no signature; fm_ce_se: MLX5_WQE_CTRL_CQ_UPDATE
  CHECK(get(wqe + 12, 4) == 0);           // imm
  CHECK(get(wqe + 16, 4) == 3000);
  CHECK(get(wqe + 20, 4) == 0x1234);
  CHECK(get(wqe + 24, 8) == 0x7000'0000'1100);
  CHECK(get(wqe + 64, 4) == 0x0000'010a);                    // the next entry has index 1
  CHECK(get(pair.record(1), 4) == 2);                        // MLX5_SND_DBR: entries posted
  CHECK(get(pair.record(0), 4) == 0);                        // MLX5_RCV_DBR
  CHECK(get(pair.uar + 0x800, 8) == 0x0000'000a'0001'c302);  // the entry's first eight bytes, at the first half
  CHECK(get(pair.uar + 0x900, 8) == 0x0000'010a'0001'c302);  // and the other half for the next
}

TEST_CASE("mlx5: a receive's WQE and record, and no doorbell") {
  Pair pair;
  REQUIRE(pair.qp->receive(pair.region, 0, 64));
  REQUIRE(pair.qp->receive(pair.region, 0x200, 4096));
  CHECK(get(pair.rq + 16, 4) == 4096);
  CHECK(get(pair.rq + 20, 4) == 0x1234);
  CHECK(get(pair.rq + 24, 8) == 0x7000'0000'1200);
  CHECK(get(pair.record(0), 4) == 2);
  CHECK(get(pair.uar + 0x800, 8) == 0);
}

TEST_CASE("mlx5: RDMA reads and writes name the peer's memory") {
  Pair pair;
  REQUIRE(pair.qp->rdma(Rdma::Op::Write, pair.region, 16, 5000, 0xfedc'ba98'7654'3210, 0xcafe));
  REQUIRE(pair.qp->rdma(Rdma::Op::Read, pair.region, 32, 4096, 0x1000, 0xbeef));
  CHECK(get(pair.sq, 8) == 0x0000'0008'0001'c303);  // MLX5_OPCODE_RDMA_WRITE, three segments
  CHECK(get(pair.sq + 16, 8) == 0xfedc'ba98'7654'3210);
  CHECK(get(pair.sq + 24, 8) == 0xcafe'0000'0000ull);  // rkey, reserved
  CHECK(get(pair.sq + 32, 8) == (5000ull << 32 | 0x1234));
  CHECK(get(pair.sq + 40, 8) == 0x7000'0000'1010);
  CHECK(get(pair.sq + 64, 8) == 0x0000'0110'0001'c303);  // MLX5_OPCODE_RDMA_READ
  CHECK(get(pair.sq + 64 + 16, 8) == 0x1000);
  CHECK(get(pair.sq + 64 + 24, 8) == 0xbeef'0000'0000ull);
}

TEST_CASE("mlx5: a message of no bytes has no data segment, and one of 2^31 says 0") {
  Pair pair(8, 16, false, uint64_t{1} << 31);
  REQUIRE(pair.qp->send(pair.region, pair.region.bytes, 0));
  CHECK(get(pair.sq, 8) == 0x0000'000a'0001'c301);
  REQUIRE(pair.qp->rdma(Rdma::Op::Write, pair.region, 0, 0, 0x10, 1));
  CHECK(get(pair.sq + 64, 8) == 0x0000'0108'0001'c302);
  REQUIRE(pair.qp->receive(pair.region, 0, 0));
  CHECK(get(pair.rq, 4) == 0);
  CHECK(get(pair.rq + 4, 4) == 0x100);  // MLX5_INVALID_LKEY ends the list
  pair.region.bytes = uint64_t{1} << 40;
  REQUIRE(pair.qp->send(pair.region, 1, uint64_t{1} << 31));
  CHECK(get(pair.sq + 128 + 16, 4) == 0);  // byte_count has 31 bits, of which 0 is 2^31
}

TEST_CASE("mlx5: the NIC's own limit of a message's length") {
  Pair pair;
  pair.region.bytes = uint64_t{1} << 40;
  CHECK(pair.qp->send(pair.region, 1, uint64_t{1} << 30));
  CHECK_FALSE(pair.qp->send(pair.region, 1, (uint64_t{1} << 30) + 1));
  CHECK(pair.qp->refusal(Side::Send, pair.region, 1, (uint64_t{1} << 30) + 1) ==
        "1073741825 bytes are more than a message takes: 1073741824 at most");
}

TEST_CASE("mlx5: completions in their order, over many passes of the rings, and the consumer record") {
  Pair pair(4, 8);
  Completion out;
  for (unsigned i = 0; i < 70'000; ++i) {  // past 65536: the counters have 16 bits
    REQUIRE(pair.qp->send(pair.region, 0, i % 100));
    REQUIRE(pair.qp->receive(pair.region, 0, 100));
    CHECK(get(pair.sq + i % 4 * 64, 4) == ((i & 0xffffu) << 8 | 0xa));
    CHECK(get(pair.record(1), 4) == ((i + 1) & 0xffff));
    CHECK(pair.qp->poll(Side::Send, out) == Polled::None);
    pair.cq[0].sent(i & 0xffff);
    pair.cq[1].received(i & 0xffff, i % 101);
    REQUIRE(pair.poll(Side::Send, out) == Polled::Ok);
    CHECK(out.bytes == i % 100);
    REQUIRE(pair.poll(Side::Receive, out) == Polled::Ok);
    CHECK(out.bytes == i % 101);
    CHECK(out.entry == i);
    // Never as far behind as the ring is long: 8 entries hold what is posted and not yet taken, and this.
    CHECK(((i + 1 - get(pair.record(16), 4)) & 0xff'ffff) <= 2);
  }
  CHECK(pair.qp->poll(Side::Send, out) == Polled::None);
}

TEST_CASE("mlx5: a completion that is not written is none, in the first pass too") {
  Pair pair;
  Completion out;
  for (int i = 0; i < 16; ++i) CHECK((pair.cq[0].base[i * 64 + 63] >> 4) == 15);  // MLX5_CQE_INVALID
  REQUIRE(pair.qp->send(pair.region, 0, 1));
  CHECK(pair.poll(Side::Send, out) == Polled::None);
  pair.cq[0].base[63] = 0xf0;  // invalid by its opcode, with the owner bit of this pass
  CHECK(pair.poll(Side::Send, out) == Polled::None);
  pair.cq[0].sent(0);
  CHECK(pair.poll(Side::Send, out) == Polled::Ok);
}

TEST_CASE("mlx5: errors by their syndromes, with the vendor's, and flushes") {
  struct {
    unsigned syndrome;
    Error error;
  } all[] = {{0x01, Error::LocalLength},
             {0x02, Error::LocalQpOperation},
             {0x04, Error::LocalProtection},
             {0x10, Error::BadResponse},
             {0x11, Error::LocalAccess},
             {0x12, Error::RemoteInvalidRequest},
             {0x13, Error::RemoteAccess},
             {0x14, Error::RemoteOperation},
             {0x15, Error::RetryExceeded},
             {0x22, Error::RemoteAborted},
             {0x16, Error::Other}};
  for (const auto& each : all) {
    CAPTURE(each.syndrome);
    Pair pair;
    Completion out;
    for (int i = 0; i < 3; ++i) REQUIRE(pair.qp->send(pair.region, 0, 10));
    REQUIRE(pair.qp->receive(pair.region, 0, 10));
    pair.cq[0].sent(0);
    pair.cq[0].write(13, 1, 0, 0, each.syndrome, 0x88);  // MLX5_CQE_REQ_ERR
    pair.cq[0].write(13, 2, 0, 0, 5, 0xf9);              // flushed
    pair.cq[1].write(14, 0, 0, 0, 5, 0x90);
    REQUIRE(pair.poll(Side::Send, out) == Polled::Ok);
    REQUIRE(pair.poll(Side::Send, out) == Polled::Failed);
    CHECK(out.error == each.error);
    CHECK(out.status == each.syndrome);
    CHECK(out.vendor == 0x88);
    CHECK(out.entry == 1);
    REQUIRE(pair.poll(Side::Send, out) == Polled::Failed);
    CHECK(out.error == Error::Flushed);
    REQUIRE(pair.poll(Side::Receive, out) == Polled::Failed);
    CHECK(out.error == Error::Flushed);
    CHECK(pair.qp->failure().starts_with("send entry 1: "));
    CHECK(pair.qp->failure().ends_with("(vendor status 0x88)"));
  }
}

TEST_CASE("mlx5: immediate data, where it is wanted and where not") {
  for (const bool wanted : {true, false})
    for (const unsigned opcode : {3u, 1u}) {  // MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_WR_IMM
      CAPTURE(wanted);
      CAPTURE(opcode);
      Pair pair(8, 16, wanted);
      Completion out;
      REQUIRE(pair.qp->receive(pair.region, 0, 100));
      pair.cq[1].write(opcode, 0, 70, 0xfeed'beef);
      REQUIRE(pair.poll(Side::Receive, out) == (wanted ? Polled::Ok : Polled::Failed));
      if (wanted) {
        CHECK(out.has_immediate);
        CHECK(out.immediate == 0xfeed'beef);
        CHECK(out.bytes == 70);
      } else {
        CHECK(pair.qp->failure() ==
              "its receive completions hold one of a kind that the ring does not take: a receive's of a message with "
              "immediate data");
      }
    }
}

TEST_CASE("mlx5: completions of other kinds, of other entries and of too many bytes fail the pair") {
  struct {
    unsigned opcode, counter;
    uint32_t bytes;
    const char* why;
    unsigned format = 0;
  } all[] = {{4, 0, 1, "opcode 0x4 (of a message that invalidates a key)"},
             {0, 0, 1, "opcode 0x0 (a send's)"},
             {13, 0, 1, "opcode 0xd (a send's error)"},
             {2, 1, 1, "a completion of another entry than the oldest"},
             {2, 0, 101, "a receive's of 101 bytes into 100"},
             // mlx5dv_get_cqe_format, bits 2 and 3: the bytes of a message are in the completion and not in memory
             // (1, 2), or it is the first of compressed ones (3). Nobody asked for these.
             {2, 0, 9, "one that has the message's bytes in it, or stands for several", 1},
             {2, 0, 9, "one that has the message's bytes in it, or stands for several", 2},
             {2, 0, 9, "one that has the message's bytes in it, or stands for several", 3}};
  for (const auto& each : all) {
    CAPTURE(each.why);
    Pair pair;
    Completion out;
    REQUIRE(pair.qp->receive(pair.region, 0, 100));
    pair.cq[1].write(each.opcode, each.counter, each.bytes, 0, 0, 0, each.format << 2);
    REQUIRE(pair.poll(Side::Receive, out) == Polled::Failed);
    CHECK(out.error == Error::Flushed);
    CHECK(pair.qp->failure().ends_with(each.why));
  }
  Pair solicited;  // the bit that the sender asked for an event is none of these
  Completion out;
  REQUIRE(solicited.qp->receive(solicited.region, 0, 100));
  solicited.cq[1].write(2, 0, 9, 0, 0, 0, 2);
  CHECK(solicited.poll(Side::Receive, out) == Polled::Ok);
}

TEST_CASE("mlx5: events of queue pairs and completion queues go to the pair, others are kept") {
  Pair pair;
  Completion out;
  REQUIRE(pair.qp->send(pair.region, 0, 1));
  pair.event(0x0b, 4, 12);              // a request of pages
  pair.event(0x05, 24, Pair::kQpn, 1);  // MLX5_EVENT_TYPE_WQ_CATAS_ERROR
  REQUIRE(pair.poll(Side::Send, out) == Polled::Failed);
  CHECK(out.error == Error::Flushed);
  CHECK(pair.qp->failure() == "the NIC reported its failure: a catastrophic error of its work queue (event 0x5)");
  CHECK(get(pair.uar + 0x48, 4) == (5u << 24 | 2));  // the queue's number and how many were taken, without arming
  auto others = pair.events->take();
  REQUIRE(others.size() == 1);
  CHECK(others[0][1] == 0x0b);

  Pair overrun;
  REQUIRE(overrun.qp->send(overrun.region, 0, 1));
  overrun.eq[0x20 + 11] = 1;   // its syndrome
  overrun.event(0x04, 0, 12);  // MLX5_EVENT_TYPE_CQ_ERROR of the receive completion queue
  REQUIRE(overrun.poll(Side::Send, out) == Polled::Failed);
  CHECK(overrun.qp->failure() == "the NIC ended its completion queue 0xc, which overran");

  Pair other;
  other.event(0x05, 24, 77);  // of no pair here
  other.events->service();
  CHECK(other.qp->failure().empty());
  CHECK(other.events->take().size() == 1);
}

TEST_CASE("mlx5: memory that is too small, entries that are no power of two") {
  Pair pair;
  auto make = [&](uint32_t entries, size_t bytes, uint32_t completions) {
    Mlx5Rings::Queue send{pair.sq, bytes, entries};
    Mlx5Rings::Queue receive{pair.rq, 8 * 16, 8};
    Mlx5Rings::Cq cq{{pair.cq[0].base, 16 * 64, completions}, 1, pair.records};
    return Mlx5Rings(pair.domain, 1, send, receive, pair.records, cq, cq, pair.function->map(2), 0, 1 << 30);
  };
  CHECK_THROWS_WITH_AS(make(6, 8 * 64, 16), "a send ring of 6 entries: a power of two up to 65536 wanted",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(make(8, 511, 16), "a send ring of 8 entries takes 512 bytes, not 511", std::invalid_argument);
  CHECK_THROWS_WITH_AS(make(8, 512, 4), "a completion ring must have at least the entries of its ring",
                       std::invalid_argument);
}

TEST_CASE("mlx5: one completion queue for both rings") {
  Pair pair(4, 16, false, uint64_t{1} << 30, true);
  Completion out;
  DeviceCq& cq = pair.cq[0];
  for (unsigned i = 0; i < 1000; ++i) {
    CAPTURE(i);
    for (unsigned k = 0; k < 2; ++k) REQUIRE(pair.qp->send(pair.region, 0, 10 + k));
    REQUIRE(pair.qp->receive(pair.region, 0, 100));
    CHECK(pair.qp->poll(Side::Receive, out) == Polled::None);
    const unsigned first = 2 * i;
    // In turns: what one side comes across of the other's is kept for it.
    cq.sent(first & 0xffff);
    if (i % 2 != 0) cq.received(i & 0xffff, 7);
    cq.sent((first + 1) & 0xffff);
    if (i % 2 == 0) cq.received(i & 0xffff, 8);
    REQUIRE(pair.poll(Side::Receive, out) == Polled::Ok);
    CHECK(out.bytes == (i % 2 != 0 ? 7 : 8));
    CHECK(pair.poll(Side::Receive, out) == Polled::None);
    for (unsigned k = 0; k < 2; ++k) {
      REQUIRE(pair.poll(Side::Send, out) == Polled::Ok);
      CHECK(out.bytes == 10 + k);
      CHECK(out.entry == first + k);
    }
    CHECK(pair.poll(Side::Send, out) == Polled::None);
    // The NIC hears of them before the queue could be full: 6 may be due, so 10 is the most that it must not know.
    CHECK(((3 * (i + 1) - get(pair.record(16), 4)) & 0xff'ffff) < 10);
  }
}

TEST_CASE("mlx5: the NIC hears of completions that were taken for the other ring") {
  // Each poll of the send ring finds the receive ring's completions, and none of its own.
  Pair pair(8, 32, false, uint64_t{1} << 30, true);
  DeviceCq& cq = pair.cq[0];
  Completion out;
  unsigned counter = 0;
  uint64_t most = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 7; ++i) REQUIRE(pair.qp->receive(pair.region, 0, 64));
    for (int i = 0; i < 7; ++i) cq.received(counter++ & 0xffff, 5);
    most = std::max(most, cq.producer - get(pair.record(16), 4));
    CHECK(pair.qp->poll(Side::Send, out) == Polled::None);
    for (int i = 0; i < 7; ++i) CHECK(pair.qp->poll(Side::Receive, out) == Polled::Ok);
  }
  CHECK(most <= 32);  // more would overrun the queue
}

TEST_CASE("the end of a pair can be loaded by eight aligned bytes, as an entry of a completion ring is") {
  driver::Next next;
  next.close();
  const uint8_t* first = next.at.own() - 7;
  CHECK(reinterpret_cast<uintptr_t>(first) % 8 == 0);
  CHECK(std::all_of(first, first + 16, [](uint8_t byte) { return byte == 0xff; }));
  CHECK(next.written());
}

TEST_CASE("mlx5: a failure on one completion queue for both rings") {
  Pair pair(4, 16, false, uint64_t{1} << 30, true);
  Completion out;
  for (int i = 0; i < 2; ++i) REQUIRE(pair.qp->send(pair.region, 0, 10));
  REQUIRE(pair.qp->receive(pair.region, 0, 100));
  REQUIRE(pair.qp->receive(pair.region, 0, 100));
  pair.cq[0].received(0, 5);
  pair.cq[0].write(13, 0, 0, 0, 0x15, 0x81);  // retries exceeded
  pair.cq[0].write(14, 1, 0, 0, 5, 0x90);
  pair.cq[0].write(13, 1, 0, 0, 5, 0xf9);
  REQUIRE(pair.poll(Side::Send, out) == Polled::Failed);
  CHECK(out.error == Error::RetryExceeded);
  REQUIRE(pair.poll(Side::Send, out) == Polled::Failed);
  CHECK(out.error == Error::Flushed);
  REQUIRE(pair.poll(Side::Receive, out) == Polled::Ok);  // what completed before the failure keeps its result
  CHECK(out.bytes == 5);
  REQUIRE(pair.poll(Side::Receive, out) == Polled::Failed);
  CHECK(out.error == Error::Flushed);

  Pair flood(4, 16, false, uint64_t{1} << 30, true);
  REQUIRE(flood.qp->receive(flood.region, 0, 100));
  for (unsigned i = 0; i < 16; ++i) flood.cq[0].sent(i);
  REQUIRE(flood.poll(Side::Receive, out) == Polled::Failed);
  CHECK(flood.qp->failure().ends_with("more of the other ring than that has entries"));

  Pair kind(4, 16, false, uint64_t{1} << 30, true);
  REQUIRE(kind.qp->receive(kind.region, 0, 100));
  kind.cq[0].write(12, 0);
  REQUIRE(kind.poll(Side::Receive, out) == Polled::Failed);
  CHECK(kind.qp->failure().ends_with("opcode 0xc (a signature error)"));
}

TEST_CASE("mlx5: the arm word") {
  // linux/mlx5/cq.h mlx5_cq_arm: sn << 28 | cmd | ci, MLX5_CQ_DB_REQ_NOT_SOL is 1 << 24.
  CHECK(driver::mlx5::arm_word(1, false, 0x123456) == 0x1012'3456);
  CHECK(driver::mlx5::arm_word(7, true, 0xff12'3456) == 0x3112'3456);
}

}  // namespace
