// What the driver writes for a bnxt: WQEs, the MSN table, doorbells. Expected bytes are by hand from roce_hsi.h
// (sq_send_hdr, sq_rdma_hdr, sq_sge, rq_wqe_hdr, sq_msn_search) and qplib_res.h (BNXT_QPLIB_INIT_DBHDR).
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "driver_pair.h"

namespace {

using namespace userdma::test;
using userdma::driver::Completion;
using userdma::driver::Polled;
using userdma::driver::Rdma;
using userdma::driver::Side;

// The high word: type in the top four bits, 1 << 26 valid, the number; the low word: index, epoch in bit 24.
uint64_t dbr(unsigned type, uint32_t xid, uint32_t index, unsigned epoch) {
  return (uint64_t{type} << 28 | 1u << 26 | xid) << 32 | epoch << 24 | index;
}

TEST_CASE("a send's WQE, MSN entry and doorbell") {
  Pair pair;
  pair.qp->connect(0xabcdef, 1024, false);
  REQUIRE(pair.qp->send(pair.region, 0x100, 3000));

  const uint8_t* wqe = pair.sq;
  CHECK(wqe[0] == 0x00);           // SQ_SEND_WQE_TYPE_SEND
  CHECK(wqe[1] == 0x01);           // SQ_SEND_FLAGS_SIGNAL_COMP
  CHECK(wqe[2] == 3);              // 16-byte units: a header of two, one SGE
  CHECK(get(wqe + 3, 5) == 0);     // reserved, inv_key_or_imm_data
  CHECK(get(wqe + 8, 4) == 3000);  // length
  CHECK(get(wqe + 12, 8) == 0);    // q_key, dst_qp
  CHECK(get(wqe + 20, 8) == 0);    // avid, reserved
  CHECK(get(wqe + 32, 8) == 0x7000'0000'1100);
  CHECK(get(wqe + 40, 4) == 0x1234);  // the local key, never the remote one
  CHECK(get(wqe + 44, 4) == 3000);

  // start_idx << 48 | next_psn << 24 | start_psn: three packets of up to 1024 bytes.
  CHECK(get(pair.msn, 8) == (uint64_t{0} << 48 | uint64_t{0xabcdf2} << 24 | 0xabcdef));
  CHECK(pair.last_doorbell() == dbr(0x0, 0x1c3, 1, 0));
}

TEST_CASE("a receive's WQE and doorbell") {
  Pair pair;
  pair.qp->connect(0, 1024, false);
  REQUIRE(pair.qp->receive(pair.region, 0, 64));
  REQUIRE(pair.qp->receive(pair.region, 0x200, 4096));

  const uint8_t* wqe = pair.rq + 128;
  CHECK(wqe[0] == 0x80);  // RQ_WQE_WQE_TYPE_RCV
  CHECK(wqe[1] == 0);     // flags
  CHECK(wqe[2] == 3);
  CHECK(get(wqe + 3, 5) == 0);
  CHECK(get(wqe + 8, 8) == 1);  // wr_id: the slot
  CHECK(get(wqe + 16, 8) == 0);
  CHECK(get(wqe + 24, 8) == 0);
  CHECK(get(wqe + 32, 8) == 0x7000'0000'1200);
  CHECK(get(wqe + 40, 4) == 0x1234);
  CHECK(get(wqe + 44, 4) == 4096);
  CHECK(pair.last_doorbell() == dbr(0x1, 0x1c3, 2, 0));
}

TEST_CASE("RDMA reads and writes name the peer's memory") {
  Pair pair;
  pair.qp->connect(7, 4096, false);
  REQUIRE(pair.qp->rdma(Rdma::Op::Write, pair.region, 16, 5000, 0xfedc'ba98'7654'3210, 0xcafe));
  REQUIRE(pair.qp->rdma(Rdma::Op::Read, pair.region, 32, 4096, 0x1000, 0xbeef));

  const uint8_t* write = pair.sq;
  CHECK(write[0] == 0x04);  // SQ_RDMA_WQE_TYPE_WRITE_WQE
  CHECK(write[1] == 0x01);
  CHECK(write[2] == 3);
  CHECK(get(write + 8, 4) == 5000);
  CHECK(get(write + 16, 8) == 0xfedc'ba98'7654'3210);  // remote_va
  CHECK(get(write + 24, 4) == 0xcafe);                 // remote_key
  CHECK(get(write + 28, 4) == 0);
  CHECK(get(write + 32, 8) == 0x7000'0000'1010);
  CHECK(get(write + 44, 4) == 5000);
  const uint8_t* read = pair.sq + 128;
  CHECK(read[0] == 0x06);  // SQ_RDMA_WQE_TYPE_READ_WQE
  CHECK(get(read + 16, 8) == 0x1000);
  CHECK(get(read + 24, 4) == 0xbeef);

  CHECK(get(pair.msn, 8) == (uint64_t{9} << 24 | 7));                           // two packets
  CHECK(get(pair.msn + 8, 8) == (uint64_t{1} << 48 | uint64_t{10} << 24 | 9));  // one: a full MTU is no more
}

TEST_CASE("a message of no bytes has no SGE, and takes one PSN") {
  Pair pair;
  pair.qp->connect(0xffffff, 4096, false);
  REQUIRE(pair.qp->send(pair.region, pair.region.bytes, 0));
  CHECK(pair.sq[2] == 2);
  CHECK(get(pair.sq + 8, 4) == 0);
  CHECK(get(pair.msn, 8) == (uint64_t{0} << 24 | 0xffffff));  // the PSN after the last is 0
  REQUIRE(pair.qp->receive(pair.region, 0, 0));
  CHECK(pair.rq[2] == 3);  // as qplib_fp.c: one SGE of nothing
  CHECK(get(pair.rq + 32, 8) == 0);
  CHECK(get(pair.rq + 40, 8) == 0);
}

TEST_CASE("a message of 2^31 bytes") {
  Pair pair;
  pair.qp->connect(0, 4096, false);
  pair.region.bytes = uint64_t{1} << 40;
  REQUIRE(pair.qp->send(pair.region, 1, uint64_t{1} << 31));
  CHECK(get(pair.sq + 8, 4) == 0x8000'0000);
  CHECK(get(pair.sq + 44, 4) == 0x8000'0000);
  CHECK(get(pair.msn, 8) == uint64_t{1 << 19} << 24);
  CHECK_FALSE(pair.qp->send(pair.region, 1, (uint64_t{1} << 31) + 1));
  CHECK(pair.qp->refusal(Side::Send, pair.region, 1, (uint64_t{1} << 31) + 1) ==
        "2147483649 bytes are more than a message takes: 2147483648 at most");
}

TEST_CASE("indices wrap and the epoch flips, of the rings, the MSN table and the completion rings") {
  Pair pair(4, 8);
  pair.qp->connect(0, 256, false);
  for (unsigned i = 0; i < 40; ++i) {
    CAPTURE(i);
    REQUIRE(pair.qp->send(pair.region, i, 300));
    CHECK(pair.last_doorbell() == dbr(0x0, 0x1c3, (i + 1) % 4, (i + 1) / 4 & 1));
    CHECK(get(pair.sq + i % 4 * 128 + 32, 8) == 0x7000'0000'1000 + i);
    CHECK(get(pair.msn + i % 4 * 8, 8) == (uint64_t{i % 4} << 48 | uint64_t{2 * i + 2} << 24 | 2 * i));

    REQUIRE(pair.qp->receive(pair.region, i, 400));
    CHECK(pair.last_doorbell() == dbr(0x1, 0x1c3, (i + 1) % 4, (i + 1) / 4 & 1));
    CHECK(get(pair.rq + i % 4 * 128 + 8, 8) == i % 4);

    Completion completion;
    CHECK(pair.poll(Side::Send, completion) == Polled::None);
    pair.cq[0].sent((i + 1) % 4);
    put(pair.doorbell, 0, 8);
    REQUIRE(pair.poll(Side::Send, completion) == Polled::Ok);
    CHECK(completion.bytes == 300);
    CHECK(completion.entry == i);
    // Eight completion entries for four of the ring: the doorbell at every second completion.
    CHECK(pair.last_doorbell() == (i % 2 == 1 ? dbr(0x4, Pair::kSendCq, (i + 1) % 8, (i + 1) / 8 & 1) : 0));

    CHECK(pair.poll(Side::Receive, completion) == Polled::None);
    pair.cq[1].received(i % 4, 300 + i);
    put(pair.doorbell, 0, 8);
    REQUIRE(pair.poll(Side::Receive, completion) == Polled::Ok);
    CHECK(completion.bytes == 300 + i);
    CHECK(pair.last_doorbell() == (i % 2 == 1 ? dbr(0x4, Pair::kReceiveCq, (i + 1) % 8, (i + 1) / 8 & 1) : 0));
  }
}

TEST_CASE("a completion ring as small as its ring: the doorbell at every completion") {
  Pair pair(8, 8);
  pair.qp->connect(0, 1024, false);
  Completion completion;
  for (unsigned i = 0; i < 20; ++i) {
    REQUIRE(pair.qp->send(pair.region, 0, 1));
    pair.cq[0].sent((i + 1) % 8);
    REQUIRE(pair.poll(Side::Send, completion) == Polled::Ok);
    CHECK(pair.last_doorbell() == dbr(0x4, Pair::kSendCq, (i + 1) % 8, (i + 1) / 8 & 1));
  }
}

TEST_CASE("4095 entries a ring of 4096 slots") {
  Pair pair(4096, 8192);
  pair.qp->connect(0, 1024, false);
  for (unsigned i = 0; i < 4095; ++i) {
    REQUIRE(pair.qp->room(Side::Send) == 4095 - i);
    REQUIRE(pair.qp->send(pair.region, 0, 1));
    REQUIRE(pair.qp->receive(pair.region, 0, 1));
  }
  CHECK(pair.qp->room(Side::Send) == 0);
  CHECK_FALSE(pair.qp->send(pair.region, 0, 1));
  CHECK_FALSE(pair.qp->receive(pair.region, 0, 1));
  CHECK(pair.qp->refusal(Side::Receive, pair.region, 0, 1) ==
        "no room in the receive ring: 4095 of 4095 entries are posted and their completions not taken");
  pair.cq[0].sent(4095);
  Completion completion;
  REQUIRE(pair.qp->poll(Side::Send, completion) == Polled::Ok);
  CHECK(pair.qp->room(Side::Send) == 1);
}

TEST_CASE("rings that cannot be") {
  PlainFunction function;
  auto domain = std::make_shared<userdma::driver::Domain>(std::make_shared<PlainFunction>());
  using userdma::driver::BnxtRings;
  auto memory = function.alloc_dma(65536);
  auto doorbell = function.map(2).doorbell(0);
  auto queue = [&](uint32_t entries, size_t bytes) { return BnxtRings::Queue{memory.data, bytes, entries}; };
  auto make = [&](BnxtRings::Queue send, BnxtRings::Queue receive, BnxtRings::Queue cq) {
    BnxtRings rings(domain, 1, send, receive, cq, cq, doorbell);
  };
  CHECK_NOTHROW(make(queue(16, 4096 + 128), queue(16, 2048), queue(16, 512)));
  CHECK_THROWS_WITH_AS(make(queue(12, 65536), queue(16, 2048), queue(16, 512)),
                       "a send ring of 12 entries: a power of two up to 65536 wanted", std::invalid_argument);
  // The MSN table begins on the page after the ring.
  CHECK_THROWS_WITH_AS(make(queue(16, 2048 + 127), queue(16, 2048), queue(16, 512)),
                       "a send ring of 16 entries takes 2176 bytes, not 2175", std::invalid_argument);
  CHECK_THROWS_AS(make(queue(16, 65536), queue(16, 2047), queue(16, 512)), std::invalid_argument);
  CHECK_THROWS_AS(make(queue(16, 65536), queue(16, 2048), queue(16, 511)), std::invalid_argument);
  CHECK_THROWS_WITH_AS(make(queue(16, 65536), queue(16, 2048), queue(8, 512)),
                       "a completion ring must have at least the entries of its ring", std::invalid_argument);
  Pair pair;
  CHECK_THROWS_AS(pair.qp->connect(0, 1500, false), std::invalid_argument);
}

}  // namespace
