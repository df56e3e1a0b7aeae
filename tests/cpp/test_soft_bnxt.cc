// The Thor2's data path: doorbells, WQEs and completions byte by byte as the chip's headers say (hw/bnxt.h, which a
// test compares with the kernel's), with firmware that is this test.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "hw/bnxt.h"
#include "soft/bnxt/soft_bnxt.h"

namespace {

using namespace userdma;
namespace chip = hw::bnxt;
using soft::bnxt::PageTable;
using soft::bnxt::QueuePairSpec;
using soft::bnxt::RegionSpec;
using soft::bnxt::SoftBnxt;
using soft::transport::Attributes;
using soft::transport::State;

constexpr uint32_t key_index = 5;

// Memory with a page table of the chip over it, of the level asked for.
struct Table {
  host::Memory memory;
  std::vector<host::Memory> tables;
  PageTable table;

  Table(SoftBnxt& nic, size_t bytes, unsigned level, bool queue = true, unsigned shift = 12) {
    memory = nic.alloc_dma(bytes);
    std::vector<uint64_t> pages;
    for (const auto& run : memory.runs) {
      for (uint64_t at = 0; at < run.bytes; at += uint64_t{1} << shift) pages.push_back(run.address + at);
    }
    table.level = level;
    table.page_shift = shift;
    if (level == 0) {
      table.base = pages[0];
      return;
    }
    for (auto& page : pages) page |= chip::kPteValid;
    if (queue) pages.back() |= chip::kPteLast;
    std::vector<uint64_t> roots;
    for (size_t i = 0; i < pages.size(); i += 512) {
      tables.push_back(nic.alloc_dma(4096));
      std::memcpy(tables.back().data, &pages[i], 8 * std::min<size_t>(512, pages.size() - i));
      roots.push_back(tables.back().runs[0].address | chip::kPdeValid);
    }
    if (level == 1) {
      table.base = tables[0].runs[0].address;
    } else {
      tables.push_back(nic.alloc_dma(4096));
      std::memcpy(tables.back().data, roots.data(), 8 * roots.size());
      table.base = tables.back().runs[0].address;
    }
  }
  uint64_t* ptes() { return reinterpret_cast<uint64_t*>(tables[0].data); }
};

struct Shape {
  bool iommu = true;
  bool variable = false;
  unsigned sq_level = 1;
  unsigned rq_level = 1;
  unsigned cq_level = 0;
  uint32_t entries = 32;  // of the send ring: WQEs, or slots if variable
};

// A NIC with one queue pair, which is connected to itself or to that of another one.
struct World {
  explicit World(const Shape& shape = {}, World* other = nullptr)
      : shape(shape),
        mac(other ? 2 : 1),
        clock(other ? other->clock : std::make_shared<soft::VirtualClock>()),
        wire(other ? other->wire : soft::wire::Wire::make()),
        nic(options()),
        doorbells(nic.map(2)),
        creq(nic, 4096, 0),
        scq(nic, cq_entries * 32, shape.cq_level),
        rcq(nic, cq_entries * 32, shape.cq_level),
        sq(nic, ring_bytes() + 4096, shape.sq_level),
        rq(nic, shape.entries * rq_stride(), shape.rq_level),
        data(nic, data_bytes, 2, false) {
    nic.set_config(4, 2, 6);
    nic.nq_create(1, creq.table, 256, 1);
    nic.creq_set(1);
    nic.cq_create(10, cq_entries, scq.table, 1, 0xc0c0);
    nic.cq_create(11, cq_entries, rcq.table, 1, 0xc1c1);
    spec.scq = 10;
    spec.rcq = 11;
    spec.pd = 3;
    spec.sq_size = shape.entries;
    spec.rq_size = shape.entries;
    spec.sq = sq.table;
    spec.rq = rq.table;
    spec.handle = 0x1122334455667788;
    spec.variable = shape.variable;
    spec.rq_sges = shape.variable ? 2 : 6;
    nic.qp_create(7, spec);
    RegionSpec region;
    region.pd = 3;
    region.va = va;
    region.bytes = data_bytes;
    region.access = 0xf;
    region.table = data.table;
    nic.mr_register(key, region);
    nic.ingress(true);
    if (!other) {
      connect(mac);
      return;
    }
    Attributes reset;
    reset.state = State::Reset;
    other->nic.qp_modify(7, reset, Attributes::HasState);
    other->connect(mac);
    connect(other->mac);
  }

  SoftBnxt::Options options() {
    SoftBnxt::Options o;
    o.name = "soft:test";
    o.wire = wire;
    o.clock = clock;
    o.mac = {2, 0, 0, 0, 8, mac};
    o.iommu = shape.iommu;
    o.seed = 3;
    return o;
  }

  void connect(uint8_t to) {
    Attributes a;
    a.state = State::Init;
    a.access = 0xf;
    nic.qp_modify(7, a, Attributes::HasState | Attributes::HasAccess);
    a.state = State::Rtr;
    a.dest_qp = 7;
    a.mtu = 4096;
    a.rq_psn = psn;
    a.dmac[0] = a.smac[0] = 2;
    a.dmac[4] = a.smac[4] = 8;
    a.dmac[5] = a.dgid[15] = to;
    a.smac[5] = a.sgid[15] = mac;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    nic.qp_modify(7, a,
                  Attributes::HasState | Attributes::HasDestQp | Attributes::HasMtu | Attributes::HasRqPsn |
                      Attributes::HasDmac | Attributes::HasSmac | Attributes::HasSgid | Attributes::HasDgid |
                      Attributes::HasMaxDestRdAtomic | Attributes::HasMinRnrTimer);
    a.state = State::Rts;
    a.sq_psn = psn;
    a.timeout = 14;
    a.retry = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 4;
    nic.qp_modify(7, a,
                  Attributes::HasState | Attributes::HasSqPsn | Attributes::HasTimeout | Attributes::HasRetry |
                      Attributes::HasRnrRetry | Attributes::HasMaxRdAtomic);
  }

  size_t ring_bytes() const { return shape.entries * (shape.variable ? 16 : 128); }
  size_t rq_stride() const { return shape.variable ? 64 : 128; }

  void ring(uint8_t type, uint32_t xid, uint64_t position, uint32_t entries, uint32_t toggle = 0) {
    const uint64_t low = position % entries | (position / entries & 1) << 24 | uint64_t{toggle} << 25;
    doorbells.write<uint64_t>(0x10000, low | uint64_t{xid} << 32 | uint64_t{1} << 58 | uint64_t{type} << 60);
  }

  // Writes a WQE of the header and SGEs (or inline bytes) given, and its MSN entry; the doorbell is not rung.
  void post(uint8_t type, uint8_t flags, const std::vector<chip::Sge>& sges, uint32_t length, uint32_t immediate = 0,
            uint64_t remote = 0, uint32_t rkey = 0, const std::string& inlined = {}) {
    chip::RdmaHeader header{};
    header.wqe_type = type;
    header.flags = flags | (inlined.empty() ? 0 : chip::wqe_flags::kInline);
    const size_t body = inlined.empty() ? sges.size() : (inlined.size() + 15) / 16;
    header.wqe_size = static_cast<uint8_t>(2 + body);
    header.imm_data = immediate;
    header.length = length;
    header.remote_va = remote;
    header.remote_key = rkey;
    std::vector<uint8_t> wqe(32 + 16 * body);
    std::memcpy(wqe.data(), &header, 32);
    if (inlined.empty()) {
      for (size_t i = 0; i < sges.size(); i++) std::memcpy(wqe.data() + 32 + 16 * i, &sges[i], 16);
    } else {
      std::memcpy(wqe.data() + 32, inlined.data(), inlined.size());
    }
    put(wqe, length);
  }

  void put(const std::vector<uint8_t>& wqe, uint32_t length) {
    const uint64_t start = produced % shape.entries;
    for (size_t i = 0; i < wqe.size(); i += 16) {
      const uint64_t at = shape.variable ? (start + i / 16) % shape.entries * 16 : start * 128 + i;
      std::memcpy(sq.memory.data + at, wqe.data() + i, 16);
    }
    const uint32_t next = (psn_next + std::max(1u, (length + 4095) / 4096)) & 0xffffff;
    const uint32_t table = shape.variable ? shape.entries / 2 : shape.entries;
    const uint64_t entry = start << 48 | uint64_t{next} << 24 | psn_next;
    std::memcpy(sq.memory.data + ring_bytes() + msn++ % table * 8, &entry, 8);
    psn_next = next;
    produced += shape.variable ? wqe.size() / 16 : 1;
  }

  void kick() { ring(chip::doorbell_type::kSq, 7, produced, shape.entries); }

  void receive(const std::vector<chip::Sge>& sges, uint32_t wr_id) {
    chip::ReceiveHeader header{};
    header.wqe_type = chip::wqe_type::kReceive;
    header.wqe_size = static_cast<uint8_t>(2 + sges.size());
    header.wr_id[0] = wr_id;
    uint8_t* at = rq.memory.data + received % shape.entries * rq_stride();
    std::memcpy(at, &header, 32);
    std::memcpy(at + 32, sges.data(), 16 * sges.size());
    received++;
    ring(chip::doorbell_type::kRq, 7, received, shape.entries);
  }

  void run() {
    while (nic.nic().advance()) {
    }
  }

  // The next completion of a queue, if it is written.
  bool take(Table& cq, uint64_t& consumed, uint32_t id, uint8_t out[32]) {
    const uint8_t* at = cq.memory.data + consumed % cq_entries * 32;
    if ((at[24] & 1) == (consumed / cq_entries & 1)) return false;
    std::memcpy(out, at, 32);
    consumed++;
    ring(chip::doorbell_type::kCq, id, consumed, cq_entries);
    return true;
  }
  bool sent(chip::CqReq& out) { return take(scq, scq_consumed, 10, reinterpret_cast<uint8_t*>(&out)); }
  bool got(chip::CqResRc& out) { return take(rcq, rcq_consumed, 11, reinterpret_cast<uint8_t*>(&out)); }

  bool event(uint8_t out[16]) {
    const uint8_t* at = creq.memory.data + nq_consumed % 256 * 16;
    if ((at[8] & 1) == (nq_consumed / 256 & 1)) return false;
    std::memcpy(out, at, 16);
    nq_consumed++;
    ring(chip::doorbell_type::kNqArm, 1, nq_consumed, 256);
    return true;
  }

  uint8_t* bytes(size_t at) { return data.memory.data + at; }
  chip::Sge sge(size_t at, uint32_t n) const { return {va + at, key, n}; }

  static constexpr uint32_t cq_entries = 64;
  static constexpr size_t data_bytes = 3 << 20;
  static constexpr uint64_t va = 0x7000'0000'0000;
  static constexpr uint32_t key = key_index << 8 | 0x42;
  static constexpr uint32_t psn = 0xfffffe;  // wraps soon

  const Shape shape;
  const uint8_t mac;
  std::shared_ptr<soft::VirtualClock> clock;
  std::shared_ptr<soft::wire::Wire> wire;
  SoftBnxt nic;
  host::Bar doorbells;
  Table creq, scq, rcq, sq, rq, data;
  QueuePairSpec spec;
  uint64_t produced = 0, received = 0, scq_consumed = 0, rcq_consumed = 0, nq_consumed = 0;
  uint32_t msn = 0, psn_next = psn;
};

void fill(uint8_t* at, size_t n, uint8_t seed) {
  for (size_t i = 0; i < n; i++) at[i] = static_cast<uint8_t>(seed + i * 7 + i / 251);
}

TEST_CASE(
    "sends and receives with static and variable-size WQEs, page tables of every level, with and without an IOMMU") {
  for (const bool iommu : {true, false}) {
    for (const bool variable : {false, true}) {
      for (const unsigned level : {1u, 2u}) {
        CAPTURE(iommu);
        CAPTURE(variable);
        CAPTURE(level);
        World w({iommu, variable, level, level, 0, variable ? 256u : 32u});
        // Often enough that every ring wraps.
        uint32_t done = 0;
        for (uint32_t i = 0; i < 200; i++) {
          const uint32_t n = 1 + i * 97 % 9000;
          const uint32_t split = n / 3;
          fill(w.bytes(0), n, static_cast<uint8_t>(i));
          std::memset(w.bytes(1 << 20), 0, n + 1);
          w.receive({w.sge(1 << 20, n / 2), w.sge((1 << 20) + n / 2, 10000)}, i);
          w.post(chip::wqe_type::kSend, chip::wqe_flags::kSignal, {w.sge(0, split), w.sge(split, n - split)}, n);
          w.kick();
          w.run();
          chip::CqResRc got;
          REQUIRE(w.got(got));
          CHECK(chip::cqe_kind(got.cqe_type_toggle) == chip::cqe_type::kResRc);
          CHECK(got.status == chip::res_status::kOk);
          CHECK(got.length == n);
          CHECK(got.qp_handle == 0x1122334455667788);
          CHECK(got.srq_or_rq_wr_id == i);
          CHECK(got.flags == 0);
          CHECK(std::memcmp(w.bytes(0), w.bytes(1 << 20), n) == 0);
          CHECK(*w.bytes((1 << 20) + n) == 0);
          chip::CqReq sent;
          REQUIRE(w.sent(sent));
          CHECK(chip::cqe_kind(sent.cqe_type_toggle) == chip::cqe_type::kReq);
          CHECK(sent.status == chip::req_status::kOk);
          CHECK(sent.sq_cons_idx == ++done % w.shape.entries);
        }
      }
    }
  }
}

TEST_CASE("a level 0 queue is one page") {
  World w({true, false, 0, 0, 0, 16});  // 16 WQEs and their MSN table do not fit in a page, but IOVAs are contiguous
  w.receive({w.sge(4096, 100)}, 1);
  w.post(chip::wqe_type::kSend, chip::wqe_flags::kSignal, {w.sge(0, 100)}, 100);
  w.kick();
  w.run();
  chip::CqReq sent;
  CHECK(w.sent(sent));
}

TEST_CASE("inline data, immediate data, and unsignaled entries") {
  for (const bool variable : {false, true}) {
    CAPTURE(variable);
    World w({true, variable, 1, 1, 0, variable ? 256u : 32u});
    const std::string text = "seventeen bytes!!";
    w.receive({w.sge(0, 64)}, 3);
    w.receive({w.sge(64, 64)}, 4);
    w.post(chip::wqe_type::kSendImmediate, 0, {}, static_cast<uint32_t>(text.size()), 0xdeadbeef, 0, 0, text);
    w.post(chip::wqe_type::kSend, chip::wqe_flags::kSignal, {}, 0);
    w.kick();
    w.run();
    chip::CqResRc got;
    REQUIRE(w.got(got));
    CHECK(got.length == text.size());
    CHECK(got.flags == chip::res_flags::kImmediate);
    CHECK(got.imm_data_or_inv_r_key == 0xdeadbeef);
    CHECK(std::memcmp(w.bytes(0), text.data(), text.size()) == 0);
    REQUIRE(w.got(got));
    CHECK(got.length == 0);
    chip::CqReq sent;
    REQUIRE(w.sent(sent));
    CHECK(sent.sq_cons_idx == 2);  // of both
    CHECK_FALSE(w.sent(sent));
  }
}

TEST_CASE("RDMA write, write with immediate, read and atomics") {
  World w;
  fill(w.bytes(0), 10000, 1);
  w.post(chip::wqe_type::kWrite, chip::wqe_flags::kSignal, {w.sge(0, 10000)}, 10000, 0, w.va + 20000, w.key);
  w.post(chip::wqe_type::kRead, chip::wqe_flags::kSignal, {w.sge(40000, 9000)}, 9000, 0, w.va + 20001, w.key);
  w.kick();
  w.run();
  chip::CqReq sent;
  for (int i = 0; i < 2; i++) {
    REQUIRE(w.sent(sent));
    CHECK(sent.status == 0);
  }
  CHECK(std::memcmp(w.bytes(0), w.bytes(20000), 10000) == 0);
  CHECK(std::memcmp(w.bytes(1), w.bytes(40000), 9000) == 0);

  w.receive({w.sge(0, 8)}, 9);
  w.post(chip::wqe_type::kWriteImmediate, 0, {w.sge(0, 8)}, 8, 77, w.va + 60000, w.key);
  chip::AtomicHeader atomic{};
  atomic.wqe_type = chip::wqe_type::kFetchAdd;
  atomic.flags = chip::wqe_flags::kSignal;
  atomic.remote_key = w.key;
  atomic.remote_va = w.va + 70000;
  atomic.swap_data = 5;
  const auto sge = w.sge(80000, 8);
  std::vector<uint8_t> wqe(48);
  std::memcpy(wqe.data(), &atomic, 32);
  std::memcpy(wqe.data() + 32, &sge, 16);
  *reinterpret_cast<uint64_t*>(w.bytes(70000)) = 37;
  w.put(wqe, 8);
  w.kick();
  w.run();
  chip::CqResRc got;
  REQUIRE(w.got(got));
  CHECK(got.flags == (chip::res_flags::kImmediate | chip::res_flags::kRdmaWrite));
  CHECK(got.srq_or_rq_wr_id == 9);
  REQUIRE(w.sent(sent));
  CHECK(sent.sq_cons_idx == 4);
  CHECK(sent.status == 0);
  CHECK(*reinterpret_cast<uint64_t*>(w.bytes(70000)) == 42);
  CHECK(*reinterpret_cast<uint64_t*>(w.bytes(80000)) == 37);
}

TEST_CASE(
    "a malformed entry fails with its own status, after those before it, and the queue that has no error gets a "
    "terminal") {
  struct Case {
    const char* what;
    uint8_t status;
    void (*post)(World&);
  };
  const Case cases[] = {
      {"unknown type", chip::req_status::kLocalQpOperation, [](World& w) { w.post(3, 1, {w.sge(0, 4)}, 4); }},
      {"length and SGEs differ", chip::req_status::kLocalLength, [](World& w) { w.post(0, 1, {w.sge(0, 4)}, 5); }},
      {"inline read", chip::req_status::kLocalQpOperation,
       [](World& w) { w.post(6, 1, {}, 3, 0, w.va, w.key, "abc"); }},
      {"key of nobody", chip::req_status::kLocalProtection, [](World& w) { w.post(0, 1, {{w.va, w.key + 1, 4}}, 4); }},
      {"past the region", chip::req_status::kLocalProtection,
       [](World& w) { w.post(0, 1, {w.sge(w.data_bytes - 2, 4)}, 4); }},
      {"remote key of nobody", chip::req_status::kRemoteAccess,
       [](World& w) { w.post(4, 1, {w.sge(0, 4)}, 4, 0, w.va, 1 << 8); }},
      {"past the remote region", chip::req_status::kRemoteAccess,
       [](World& w) { w.post(6, 1, {w.sge(0, 4)}, 4, 0, w.va + w.data_bytes - 1, w.key); }},
  };
  for (const bool variable : {false, true}) {
    for (const Case& c : cases) {
      CAPTURE(variable);
      CAPTURE(c.what);
      World peer;
      World w({true, variable, 1, 1, 0, variable ? 256u : 32u}, &peer);
      w.receive({w.sge(4096, 100)}, 1);
      peer.receive({w.sge(4096, 100)}, 1);
      w.post(0, 1, {w.sge(0, 10)}, 10);
      const uint64_t at = w.produced;
      c.post(w);
      w.post(0, 1, {w.sge(0, 10)}, 10);
      w.kick();
      w.run();
      chip::CqReq sent;
      REQUIRE(w.sent(sent));
      CHECK(sent.status == 0);
      CHECK(sent.sq_cons_idx == 1);
      REQUIRE(w.sent(sent));
      CHECK(sent.status == c.status);
      CHECK(sent.sq_cons_idx == (variable ? at : 2));  // qplib: an error names the WQE's slot
      CHECK_FALSE(w.sent(sent));
      chip::CqResRc got;
      REQUIRE(peer.got(got));
      CHECK(got.status == 0);
      chip::CqTerminal terminal;
      REQUIRE(w.take(w.rcq, w.rcq_consumed, 11, reinterpret_cast<uint8_t*>(&terminal)));
      CHECK(chip::cqe_kind(terminal.cqe_type_toggle) == chip::cqe_type::kTerminal);
      CHECK(terminal.sq_cons_idx == chip::kNoConsumerIndex);
      CHECK(terminal.rq_cons_idx == 0);
      chip::CreqQpError event;
      REQUIRE(w.event(reinterpret_cast<uint8_t*>(&event)));
      CHECK((event.type & chip::kCreqTypeMask) == chip::creq_type::kQpEvent);
      CHECK(event.event == chip::creq_event::kQpError);
      CHECK(event.xid == 7);
      CHECK(w.nic.qp_query(7).attributes.state == State::Err);
    }
  }
}

TEST_CASE("a receive that is too short fails both sides") {
  World peer;
  World w({}, &peer);
  peer.receive({w.sge(4096, 99)}, 12);
  w.post(0, 1, {w.sge(0, 100)}, 100);
  w.kick();
  w.run();
  chip::CqResRc got;
  REQUIRE(peer.got(got));
  CHECK(got.status == chip::res_status::kLocalLength);
  CHECK(got.srq_or_rq_wr_id == 12);
  chip::CqReq sent;
  REQUIRE(w.sent(sent));
  CHECK(sent.status == chip::req_status::kRemoteInvalidRequest);
}

TEST_CASE("rings and regions that are no longer mapped are faults, never stray accesses") {
  SUBCASE("the region's memory") {
    World w;
    w.receive({w.sge(4096, 100)}, 1);
    w.nic.free_dma(w.data.memory);
    w.post(0, 1, {w.sge(0, 100)}, 100);
    w.kick();
    w.run();
    chip::CqReq sent;
    REQUIRE(w.sent(sent));
    CHECK(sent.status == chip::req_status::kLocalProtection);
    CHECK(w.nic.nic().dma().faults() > 0);
    CHECK(w.nic.nic().dma().last_fault().address >= w.data.memory.runs[0].address);
  }
  SUBCASE("a page of the region, in the middle") {
    World w;
    w.data.ptes()[1] = 0;  // the chip has read it already
    w.nic.mr_deregister(w.key);
    RegionSpec region{3, w.va, w.data_bytes, 0xf, w.data.table, false};
    w.nic.mr_register(w.key, region);
    w.receive({w.sge(100 * 4096, 8192)}, 1);
    w.post(0, 1, {w.sge(0, 8192)}, 8192);
    w.kick();
    w.run();
    chip::CqReq sent;
    REQUIRE(w.sent(sent));
    CHECK(sent.status == chip::req_status::kLocalProtection);
  }
  SUBCASE("the send ring") {
    World w;
    w.nic.free_dma(w.sq.memory);
    w.produced = 1;
    w.kick();
    w.run();
    chip::CqReq sent;
    REQUIRE(w.sent(sent));
    CHECK(sent.status == chip::req_status::kLocalQpOperation);
  }
  SUBCASE("the completion ring") {
    World w;
    w.nic.free_dma(w.scq.memory);
    w.receive({w.sge(4096, 100)}, 1);
    w.post(0, 1, {w.sge(0, 100)}, 100);
    w.kick();
    w.run();
    chip::CreqQpError event;
    REQUIRE(w.event(reinterpret_cast<uint8_t*>(&event)));
    CHECK(event.event == chip::creq_event::kCqError);
    CHECK(event.xid == 10);
    REQUIRE(w.event(reinterpret_cast<uint8_t*>(&event)));
    CHECK(event.event == chip::creq_event::kQpError);
  }
  SUBCASE("all of it, without bus mastering") {
    World w;
    w.post(0, 1, {w.sge(0, 100)}, 100);
    w.nic.set_config(4, 2, 2);
    w.kick();
    w.run();
    chip::CqReq sent;
    CHECK_FALSE(w.sent(sent));
    CHECK(w.nic.nic().dma().faults() > 0);
  }
}

TEST_CASE("no more completions than the queue has room for: an error of the queue and of the pair") {
  World w;
  for (uint32_t i = 0; i < 2 * w.cq_entries + 2; i++) {
    if (i % 16 == 0) {  // its driver does not read the receive queue
      chip::CqReq sent;
      while (w.sent(sent)) {
      }
    }
    w.receive({w.sge(4096, 8)}, i);
    w.post(0, 1, {w.sge(0, 8)}, 8);
    w.kick();
    w.run();
  }
  chip::CreqQpError event;
  REQUIRE(w.event(reinterpret_cast<uint8_t*>(&event)));
  CHECK(event.event == chip::creq_event::kCqError);
  CHECK(event.xid == 11);
  CHECK(event.req_slow_path_state == 5);  // RES_CQ_OVERFLOW_ERROR
  CHECK(w.nic.qp_query(7).attributes.state == State::Err);
  uint32_t whole = 0;
  for (chip::CqResRc got; w.got(got);) CHECK(got.srq_or_rq_wr_id == whole++);
  CHECK(whole == w.cq_entries);
}

TEST_CASE("a lost receiver is retried as long as it takes; what is sent again is found by the MSN table") {
  World w;
  w.post(0, 1, {w.sge(0, 5000)}, 5000);
  w.kick();
  for (int i = 0; i < 20; i++) w.nic.nic().advance();
  chip::CqReq sent;
  CHECK_FALSE(w.sent(sent));
  w.receive({w.sge(8192, 5000)}, 1);
  w.run();
  REQUIRE(w.sent(sent));
  CHECK(sent.status == 0);
}

TEST_CASE("an MSN entry that does not name the entry fails it when it is sent again") {
  World w;
  w.post(0, 1, {w.sge(0, 5000)}, 5000);
  std::memset(w.sq.memory.data + w.ring_bytes(), 0xee, 8);
  w.kick();
  for (int i = 0; i < 20; i++) w.nic.nic().advance();
  chip::CqReq sent;
  REQUIRE(w.sent(sent));
  CHECK(sent.status == chip::req_status::kLocalQpOperation);
}

TEST_CASE("a completion queue notifies when it is armed, once, with a toggle that the next doorbells must have") {
  World w;
  const int fd = w.nic.interrupt(1);
  const auto fired = [&] {
    uint64_t n = 0;
    return read(fd, &n, sizeof n) == sizeof n;
  };
  const auto pass = [&] {
    w.receive({w.sge(4096, 8)}, 0);
    w.post(0, 1, {w.sge(0, 8)}, 8);
    w.kick();
    w.run();
    chip::CqReq sent;
    w.sent(sent);
    chip::CqResRc got;
    w.got(got);
  };
  const auto arm = [&](uint32_t toggle) {
    w.ring(chip::doorbell_type::kCqArmAll, 10, w.scq_consumed, w.cq_entries, toggle);
  };
  const auto enable = [&](uint32_t toggle) { w.ring(chip::doorbell_type::kCqArmEnable, 10, 0, w.cq_entries, toggle); };
  w.ring(chip::doorbell_type::kNqArm, 1, 0, 256);
  arm(0);
  pass();
  CHECK_FALSE(fired());  // not enabled
  enable(0);
  arm(0);
  pass();
  CHECK(fired());
  chip::NqCqNotification note;
  REQUIRE(w.event(reinterpret_cast<uint8_t*>(&note)));
  CHECK((note.type & chip::kNqeTypeMask) == chip::nqe_type::kCqNotification);
  CHECK(((note.type & chip::kNqeToggleMask) >> chip::kNqeToggleShift) == 1);
  CHECK(note.cq_handle_low == 0xc0c0);
  pass();
  CHECK_FALSE(fired());
  enable(0);
  arm(0);  // old
  pass();
  CHECK_FALSE(fired());
  enable(1);
  arm(1);
  pass();
  CHECK(fired());
  REQUIRE(w.event(reinterpret_cast<uint8_t*>(&note)));
  // Armed behind an entry that was not read: at once.
  w.receive({w.sge(4096, 8)}, 0);
  w.post(0, 1, {w.sge(0, 8)}, 8);
  w.kick();
  w.run();
  enable(2);
  arm(2);
  CHECK(fired());
}

TEST_CASE("CREQ entries that find the ring full wait for its consumer") {
  World w;
  uint8_t entry[16] = {};
  for (int i = 0; i < 600; i++) {
    std::memcpy(entry, &i, 4);
    w.nic.creq_post(entry);
  }
  int taken = 0;
  uint8_t out[16];
  while (w.event(out)) {
    int n;
    std::memcpy(&n, out, 4);
    CHECK(n == taken++);
  }
  CHECK(taken == 600);
}

TEST_CASE("a pair that fails by itself, and one that its driver takes to the error state, end with terminals") {
  for (const bool by_itself : {true, false}) {
    World w;
    if (by_itself) {
      w.nic.fail_qp(7);
    } else {
      Attributes a;
      a.state = State::Err;
      w.nic.qp_modify(7, a, Attributes::HasState);
    }
    chip::CqTerminal terminal;
    REQUIRE(w.take(w.scq, w.scq_consumed, 10, reinterpret_cast<uint8_t*>(&terminal)));
    CHECK(chip::cqe_kind(terminal.cqe_type_toggle) == chip::cqe_type::kTerminal);
    CHECK(terminal.sq_cons_idx == 0);
    CHECK(terminal.rq_cons_idx == chip::kNoConsumerIndex);
    REQUIRE(w.take(w.rcq, w.rcq_consumed, 11, reinterpret_cast<uint8_t*>(&terminal)));
    chip::CreqQpError event;
    CHECK(w.event(reinterpret_cast<uint8_t*>(&event)) == by_itself);
  }
}

TEST_CASE("reset and connect again starts the rings anew") {
  World w;
  w.receive({w.sge(4096, 8)}, 0);
  w.post(0, 1, {w.sge(0, 8)}, 8);
  w.kick();
  w.run();
  Attributes a;
  a.state = State::Reset;
  w.nic.qp_modify(7, a, Attributes::HasState);
  w.produced = w.received = w.msn = 0;
  w.psn_next = w.psn;
  w.connect(w.mac);
  chip::CqReq sent;
  REQUIRE(w.sent(sent));
  w.receive({w.sge(4096, 8)}, 5);
  w.post(0, 1, {w.sge(0, 8)}, 8);
  w.kick();
  w.run();
  REQUIRE(w.sent(sent));
  CHECK(sent.sq_cons_idx == 1);
}

TEST_CASE("doorbells that are stale, invalid, of another path or of nobody change nothing") {
  World w;
  w.post(0, 1, {w.sge(0, 8)}, 8);
  w.doorbells.write<uint64_t>(0x10000, 1);                                          // not valid
  w.doorbells.write<uint64_t>(0x10000, 1 | uint64_t{7} << 32 | uint64_t{5} << 56);  // Ethernet's path
  w.ring(chip::doorbell_type::kSq, 0xfffff, 1, 32);
  w.ring(chip::doorbell_type::kCqArmAll, 99, 1, 32);
  w.ring(chip::doorbell_type::kNqArm, 99, 1, 32);
  w.ring(chip::doorbell_type::kNqArm, 1, 9, 256);                                    // past what was produced
  w.doorbells.write<uint64_t>(0x10000, 40 | uint64_t{7} << 32 | uint64_t{1} << 58);  // past the ring
  w.run();
  CHECK(w.nic.stats()[0].second == 0);
}

TEST_CASE("a NIC whose receive path is closed gets nothing") {
  World w;
  w.nic.ingress(false);
  w.receive({w.sge(4096, 8)}, 0);
  w.post(0, 1, {w.sge(0, 8)}, 8);
  w.kick();
  w.run();
  chip::CqReq sent;
  REQUIRE(w.sent(sent));
  CHECK(sent.status == chip::req_status::kTransportRetry);
  // Eight expiries of 4.096 us * 2^14.
  CHECK(w.clock->now() >= 8 * 67108864ull);
}

TEST_CASE("a NIC that vanished moves nothing, and its objects are gone") {
  World w;
  w.receive({w.sge(4096, 8)}, 0);
  w.nic.vanish();
  w.post(0, 1, {w.sge(0, 8)}, 8);
  w.kick();
  w.run();
  chip::CqReq sent;
  CHECK_FALSE(w.sent(sent));
  for (const auto& [name, count] : w.nic.counts()) {
    if (name == "qp" || name == "cq" || name == "mr" || name == "nq") CHECK(count == 0);
  }
  CHECK_THROWS_AS(w.nic.qp_destroy(7), soft::UnknownId);
}

TEST_CASE("firmware hears its triggers; ids that are not there are errors") {
  World w;
  std::vector<uint8_t> window;
  uint32_t producer = 0;
  int resets = 0;
  w.nic.set_firmware({[&](const uint8_t* at, size_t n) { window.assign(at, at + n); },
                      [&](uint32_t value) { producer = value; }, [&] { resets++; }});
  auto registers = w.nic.map(0);
  registers.write<uint32_t>(4, 0x01020304);
  CHECK(window.empty());
  registers.write<uint32_t>(0x100, 1);
  REQUIRE(window.size() >= 128);
  CHECK(window[4] == 4);
  registers.write<uint32_t>(0x60c, 0x80000010);
  registers.write<uint32_t>(0x700, 1);
  CHECK(producer == 0x80000010);
  CHECK_THROWS_AS(w.nic.qp_destroy(8), soft::UnknownId);
  CHECK_THROWS_AS(w.nic.cq_destroy(10), std::invalid_argument);  // a pair uses it
  CHECK_THROWS_AS(w.nic.mr_register(World::key, {}), std::invalid_argument);
  w.nic.qp_destroy(7);
  w.nic.cq_destroy(10);
  w.nic.mr_deregister(World::key);
  w.nic.reset();
  CHECK(resets == 1);
  w.nic.release();
  CHECK(resets == 2);
}

}  // namespace
