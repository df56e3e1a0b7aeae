// The ConnectX's Ethernet: send queues and their offloads, flow tables, TIRs and receive queues, with firmware and
// driver that are this test.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "hw/mlx5_ethernet.h"
#include "soft_mlx5_world.h"

namespace {

using namespace mlx5_world;  // NOLINT
namespace op = chip::opcode;
namespace kind = chip::cqe_opcode;
namespace syndrome = chip::syndrome;
using soft::mlx5::Ethernet;
using soft::mlx5::FlowEntry;
using soft::mlx5::FlowTableSpec;
using soft::mlx5::TirSpec;
using Bytes = std::vector<uint8_t>;

Bytes hex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

// By scapy 2.6, as test_frame.cc's: their sums are right. Padded to 60 bytes, as they arrive.
const Bytes tcp4 =
    hex("ffffffffffff00000000000008004500002b00010000400666ca0a0000010a00000200010002000000000000000050022000b777000061"
        "626300"
        "0000");
const Bytes vlan_udp4 =
    hex("ffffffffffff0000000000008100000508004500002000010000401166ca0a0000010a00000200010002000c270a61626364"
        "00000000000000000000");
const Bytes tcp6 =
    hex("ffffffffffff00000000000086dd60000000001f3c40fd000000000000000000000000000001fd00000000000000000000000000000206"
        "00010400"
        "00000000010002000000000000000050022000d1750000616263");

// The sum of big-endian words (RFC 1071), over an even or odd number of bytes.
uint16_t sum(const uint8_t* at, size_t n, uint32_t from = 0) {
  uint64_t total = from;
  for (size_t i = 0; i < n; i++) total += static_cast<uint32_t>(at[i]) << (i % 2 ? 0 : 8);
  while (total >> 16) total = (total & 0xffff) + (total >> 16);
  return static_cast<uint16_t>(total);
}

uint16_t load16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }
uint32_t load32(const uint8_t* at) { return static_cast<uint32_t>(load16(at)) << 16 | load16(at + 2); }

// Whether the sums of an IPv4 packet of TCP or UDP are right.
bool right(const Bytes& frame, size_t l3 = 14) {
  const uint8_t* ip = frame.data() + l3;
  const size_t length = load16(ip + 2) - 20u;
  const uint32_t pseudo = sum(ip + 12, 8, ip[9] + static_cast<uint32_t>(length));
  return sum(ip, 20) == 0xffff && sum(ip + 20, length, pseudo) == 0xffff;
}

struct Port {
  explicit Port(World* other = nullptr) : w({}, other), queue(w.nic, 16 * 64), ring(w.nic, 16 * 64) {
    soft::mlx5::SendQueueSpec send;
    send.pd = World::pd;
    send.pages = queue.pages;
    send.log_entries = 4;
    send.record = w.record(5);
    send.cqn = World::send_cq;
    w.nic.sq_create(sqn, send);
    w.nic.ethernet([](Ethernet& it) { it.sq_modify(sqn, 1); });
    soft::mlx5::ReceiveQueueSpec receive;
    receive.pd = World::pd;
    receive.pages = ring.pages;
    receive.log_entries = 4;
    receive.log_stride = 5;
    receive.record = w.record(6);
    receive.cqn = World::receive_cq;
    receive.user_index = 0x77;
    w.nic.rq_create(rqn, receive);
    w.nic.ethernet([](Ethernet& it) { it.rq_modify(rqn, 1, std::nullopt); });
    set_tir(1, {{rqn}, 0, {}, 0});
    table(5, {{to_tir(1)}});
    w.nic.ethernet([](Ethernet& it) { it.steering().root_set(5); });
  }

  void set_tir(uint32_t id, TirSpec spec) {
    w.nic.ethernet([&](Ethernet& it) { it.tir_set(id, std::move(spec)); });
  }
  static FlowEntry to_tir(uint32_t id) { return {{}, {}, 4, {{false, id}}, {}, 0}; }
  static FlowEntry to_table(uint32_t id) { return {{}, {}, 4, {{true, id}}, {}, 0}; }
  void table(uint32_t id, std::vector<FlowEntry> entries, std::optional<uint32_t> miss = std::nullopt) {
    w.nic.ethernet([&](Ethernet& it) { it.steering().table_set(id, {miss, std::move(entries)}); });
  }

  // Writes an entry. Its Ethernet segment: flags, MSS, and headers within it or a tag to insert.
  void post(uint8_t opcode, const std::vector<Segment>& rest, uint8_t completion = chip::control::kCompletion) {
    chip::ControlSegment control{};
    control.opmod_idx_opcode = be(uint32_t{static_cast<uint16_t>(posted)} << 8 | opcode);
    control.qpn_ds = be(sqn << 8 | static_cast<uint32_t>(1 + rest.size()));
    control.fm_ce_se = completion;
    const std::vector<Segment> all = segments(control) + rest;
    for (size_t i = 0; i < all.size(); i++)
      std::memcpy(queue.at((posted * 64 + i * 16) % (16 * 64)), all[i].data(), 16);
    std::memcpy(&w.last, &control, sizeof w.last);
    posted += (all.size() + 3) / 4;
  }
  void kick() {
    w.set_record(5, 1, static_cast<uint16_t>(posted));
    w.ring();
    w.run();
  }
  static std::vector<Segment> ethernet(uint8_t flags, uint16_t mss, const Bytes& headers, uint16_t type = 0,
                                       uint16_t tag = 0) {
    chip::EthernetSegment segment{};
    segment.cs_flags = flags;
    segment.mss = be(mss);
    segment.trailer = be(static_cast<uint32_t>(headers.empty() ? type : headers.size()) << 16 | tag);
    std::vector<Segment> out((14 + std::max<size_t>(headers.size(), 2) + 15) / 16);
    std::memcpy(out.data(), &segment, sizeof segment);
    if (!headers.empty()) std::memcpy(out[0].data() + 14, headers.data(), headers.size());
    return out;
  }
  // A frame whose first bytes are in the entry and whose others are in memory.
  void send(const Bytes& frame, uint8_t flags = 0, size_t inlined = 18) {
    std::memcpy(w.bytes(0), frame.data(), frame.size());
    post(op::kSend, ethernet(flags, 0, Bytes(frame.begin(), frame.begin() + static_cast<long>(inlined))) +
                        w.sge(inlined, static_cast<uint32_t>(frame.size() - inlined)));
    kick();
  }

  void receive(std::vector<std::vector<Segment>> list) {
    w.write_receive(ring.at(received % 16 * 32), 2, list);
    w.set_record(6, 0, static_cast<uint16_t>(++received));
  }
  void receive() { receive({w.sge(1 << 20, 2000)}); }
  // The frame that arrived by the last receive.
  std::optional<Bytes> arrived(chip::Cqe& entry) {
    if (!w.got(entry)) return std::nullopt;
    CHECK((entry.op_own >> 4) == kind::kReceived);
    return Bytes(w.bytes(1 << 20), w.bytes(1 << 20) + be(entry.byte_cnt));
  }

  static constexpr uint32_t sqn = 0x90, rqn = 0x91;
  World w;
  Paged queue, ring;
  uint64_t posted = 0, received = 0;
};

TEST_CASE("a frame out of an entry and memory, into two buffers, and what its completions say") {
  Port b;
  Port a(&b.w);
  for (uint64_t i = 0; i < 100; i++) {
    b.receive({b.w.sge(1 << 20, 20), b.w.sge((1 << 20) + 20, 2000)});
    a.send(tcp4, 0, 18 + i % 20);
    chip::Cqe sent, got;
    REQUIRE(a.w.sent(sent));
    CHECK((sent.op_own >> 4) == kind::kRequest);
    CHECK(be(sent.sop_drop_qpn) == (uint32_t{op::kSend} << 24 | Port::sqn));
    const auto frame = b.arrived(got);
    REQUIRE(frame);
    CHECK(*frame == tcp4);
    CHECK(be(got.wqe_counter) == i);
    CHECK((be(got.sop_drop_qpn) & 0xffffff) == 0);  // the flow tag
    CHECK(be(got.srqn_uidx) == 0x77);
    CHECK(got.hds_ip_ext == 7);                       // CQE_L2_OK, CQE_L3_OK, CQE_L4_OK
    CHECK(got.l4_hdr_type_etc == (1 << 4 | 2 << 2));  // TCP without ACK, IPv4
    const auto* raw = reinterpret_cast<const uint8_t*>(&got);
    CHECK(load16(raw + 20) == sum(tcp4.data() + 14, tcp4.size() - 14));  // check_sum
    CHECK(load32(raw + 12) == 0);
  }
}

TEST_CASE("checksums that the NIC sets and checks") {
  for (const Bytes& whole : {tcp4, vlan_udp4, tcp6}) {
    Port b;
    Port a(&b.w);
    const size_t l3 = whole == vlan_udp4 ? 18 : 14;
    const size_t field = whole == tcp4 ? 14 + 20 + 16 : whole == vlan_udp4 ? 18 + 20 + 6 : 14 + 48 + 16;
    Bytes bare = whole;
    bare[field] = bare[field + 1] = 0;
    if (whole != tcp6) bare[l3 + 10] = bare[l3 + 11] = 0;
    b.receive();
    a.send(bare, 1 << 6 | 1 << 7);  // MLX5_ETH_WQE_L3_CSUM, MLX5_ETH_WQE_L4_CSUM
    chip::Cqe got;
    const auto frame = b.arrived(got);
    REQUIRE(frame);
    CHECK(*frame == whole);
    CHECK(got.hds_ip_ext == 7);
    CHECK(got.l4_hdr_type_etc == (whole == tcp4 ? 0x18 : whole == vlan_udp4 ? 0x28 : 0x14));
    Bytes wrong = whole;
    wrong[field] ^= 1;
    b.receive();
    a.send(wrong);
    REQUIRE(b.arrived(got));
    CHECK(got.hds_ip_ext == 3);
  }
}

TEST_CASE("segmentation: each segment's headers are its own") {
  for (const bool udp : {false, true}) {
    CAPTURE(udp);
    Port b;
    Port a(&b.w);
    const size_t header = udp ? 42 : 54;
    Bytes headers(tcp4.begin(), tcp4.begin() + 54);
    headers[34 + 13] = 0x19;  // ACK, PSH, FIN
    headers[34 + 7] = 100;    // of the sequence number
    if (udp) {
      headers.resize(header);
      headers[14 + 9] = 17;
    }
    fill(a.w.bytes(0), 2500, 3);
    const Bytes payload(a.w.bytes(0), a.w.bytes(2500));
    a.post(op::kTso, Port::ethernet(1 << 6 | 1 << 7, 1000, headers) + a.w.sge(0, 2500));
    for (int i = 0; i < 3; i++) b.receive({b.w.sge((1 << 20) + 4096 * static_cast<size_t>(i), 2000)});
    a.kick();
    chip::Cqe entry;
    REQUIRE(a.w.sent(entry));
    CHECK_FALSE(a.w.sent(entry));
    size_t at = 0;
    for (uint32_t i = 0; i < 3; i++) {
      const size_t n = i < 2 ? 1000 : 500;
      REQUIRE(b.w.got(entry));
      REQUIRE(be(entry.byte_cnt) == header + n);
      const uint8_t* from = b.w.bytes((1 << 20) + 4096 * i);
      const Bytes frame(from, from + header + n);
      CHECK(right(frame));
      CHECK(load16(frame.data() + 16) == header - 14 + n);
      CHECK(load16(frame.data() + 18) == 1 + i);  // the identification
      if (udp) {
        CHECK(load16(frame.data() + 34 + 4) == 8 + n);
      } else {
        CHECK(load32(frame.data() + 38) == 100 + 1000 * i);
        CHECK(frame[34 + 13] == (i < 2 ? 0x10 : 0x19));
      }
      CHECK(Bytes(frame.begin() + static_cast<long>(header), frame.end()) ==
            Bytes(payload.begin() + static_cast<long>(at), payload.begin() + static_cast<long>(at + n)));
      at += n;
    }
  }
}

TEST_CASE("VLAN tags that the NIC puts in and takes off") {
  Port b;
  Port a(&b.w);
  b.receive();
  std::memcpy(a.w.bytes(0), tcp4.data(), tcp4.size());
  a.post(op::kSend, Port::ethernet(0, 0, {}, 1 << 15, 0x6005) + a.w.sge(0, 60));  // MLX5_ETH_WQE_INSERT_VLAN
  a.kick();
  chip::Cqe got;
  auto frame = b.arrived(got);
  REQUIRE(frame);
  CHECK(frame->size() == 64);
  CHECK(load32(frame->data() + 12) == 0x81006005);
  CHECK((got.l4_hdr_type_etc & 1) == 0);
  CHECK(got.hds_ip_ext == 7);
  b.w.nic.ethernet([](Ethernet& it) { it.rq_modify(Port::rqn, std::nullopt, true); });
  b.receive();
  a.post(op::kSend, Port::ethernet(0, 0, {}, 1 << 15, 0x6005) + a.w.sge(0, 60));
  a.kick();
  frame = b.arrived(got);
  REQUIRE(frame);
  CHECK(*frame == tcp4);
  CHECK((got.l4_hdr_type_etc & 1) == 1);  // cqe_has_vlan
  CHECK(be(got.vlan_info) == 0x6005);
  b.receive();
  a.post(op::kSend, Port::ethernet(0, 0, {}, 1 << 15 | 1, 0x6005) + a.w.sge(0, 60));  // MLX5_ETH_WQE_SVLAN
  a.kick();
  frame = b.arrived(got);
  REQUIRE(frame);
  CHECK(load32(frame->data() + 12) == 0x88a86005);
}

TEST_CASE("entries that do nothing, and a queue that is reset") {
  Port a;
  a.post(op::kNop, {}, 0);
  a.post(op::kNop, {});
  a.kick();
  chip::Cqe entry;
  REQUIRE(a.w.sent(entry));
  CHECK(be(entry.sop_drop_qpn) == Port::sqn);
  CHECK(be(entry.wqe_counter) == 1);
  a.w.nic.ethernet([](Ethernet& it) { it.sq_modify(Port::sqn, 0); });
  a.posted = 0;
  a.w.set_record(5, 1, 0);
  a.post(op::kNop, {});
  a.kick();
  CHECK_FALSE(a.w.sent(entry));
  a.w.nic.ethernet([](Ethernet& it) { it.sq_modify(Port::sqn, 1); });
  a.w.run();
  REQUIRE(a.w.sent(entry));
  CHECK(be(entry.wqe_counter) == 0);
}

TEST_CASE("what cannot be sent is an error of its entry, and the others are flushed") {
  struct Case {
    const char* what;
    uint8_t syndrome;
    void (*post)(Port&);
  };
  const Case cases[] = {
      {"unknown opcode", syndrome::kLocalQpOperation, [](Port& a) { a.post(op::kRead, Port::ethernet(0, 0, {})); }},
      {"no Ethernet segment", syndrome::kLocalQpOperation, [](Port& a) { a.post(op::kSend, {}); }},
      {"headers past the end", syndrome::kLocalQpOperation,
       [](Port& a) {
         auto list = Port::ethernet(0, 0, Bytes(18, 1));
         list.resize(1);
         a.post(op::kSend, list);
       }},
      {"shorter than a header", syndrome::kLocalQpOperation,
       [](Port& a) { a.post(op::kSend, Port::ethernet(0, 0, {}) + a.w.sge(0, 13)); }},
      {"a key of nobody", syndrome::kLocalProtection,
       [](Port& a) { a.post(op::kSend, Port::ethernet(0, 0, {}) + World::data_segment(World::va, 77 << 8, 60)); }},
      {"segments of no size", syndrome::kLocalQpOperation,
       [](Port& a) {
         a.post(op::kTso, Port::ethernet(0, 0, Bytes(tcp4.begin(), tcp4.begin() + 54)) + a.w.sge(0, 2000));
       }},
      {"segments of what is no TCP", syndrome::kLocalQpOperation,
       [](Port& a) { a.post(op::kTso, Port::ethernet(0, 500, Bytes(54, 1)) + a.w.sge(0, 2000)); }},
      {"a packet longer than any", syndrome::kLocalQpOperation,
       [](Port& a) { a.post(op::kTso, Port::ethernet(0, 500, Bytes(54, 1)) + a.w.sge(0, 1 << 20)); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    Port a;
    c.post(a);
    const uint64_t after = a.posted;
    a.post(op::kNop, {}, 0);
    a.kick();
    chip::ErrorCqe failed;
    REQUIRE(a.w.sent(failed));
    CHECK((failed.op_own >> 4) == kind::kRequestError);
    CHECK(failed.syndrome == c.syndrome);
    CHECK(be(failed.wqe_counter) == 0);
    CHECK((be(failed.s_wqe_opcode_qpn) & 0xffffff) == Port::sqn);
    REQUIRE(a.w.sent(failed));
    CHECK(failed.syndrome == syndrome::kFlushed);
    CHECK(be(failed.wqe_counter) == after);
    CHECK_FALSE(a.w.sent(failed));
  }
  Port a;
  a.w.set_record(5, 1, 17);  // of 16 blocks
  a.w.last = uint64_t{be(Port::sqn << 8 | 1)} << 32;
  a.w.ring();
  chip::Event event;
  REQUIRE(a.w.event(event));
  CHECK(event.type == chip::event::kCatastrophic);
  CHECK(event.data[20] == 2);  // MLX5_EVENT_QUEUE_TYPE_SQ
}

TEST_CASE("receives that are not there, too short, or of nobody's memory") {
  Port b;
  Port a(&b.w);
  a.send(tcp4);
  chip::ErrorCqe failed;
  CHECK_FALSE(b.w.got(failed));
  CHECK(b.w.nic.ethernet([](Ethernet& it) { return it.lost(); }) == 1);
  b.receive({b.w.sge(0, 59)});
  a.send(tcp4);
  REQUIRE(b.w.got(failed));
  CHECK((failed.op_own >> 4) == kind::kReceiveError);
  CHECK(failed.syndrome == syndrome::kLocalLength);
  b.receive();
  a.send(tcp4);
  chip::Cqe got;
  CHECK(b.arrived(got));  // the queue goes on
  b.receive({World::data_segment(World::va, 77 << 8, 2000)});
  a.send(tcp4);
  REQUIRE(b.w.got(failed));
  CHECK(failed.syndrome == syndrome::kLocalProtection);
  b.receive();
  a.send(tcp4);
  CHECK_FALSE(b.w.got(got));  // it does not
  b.w.nic.ethernet([](Ethernet& it) { it.rq_modify(Port::rqn, 0, std::nullopt); });
  b.w.set_record(6, 0, b.received = 0);
  b.w.nic.ethernet([](Ethernet& it) { it.rq_modify(Port::rqn, 1, std::nullopt); });
  b.receive();
  a.send(tcp4);
  CHECK(b.arrived(got));
  CHECK(be(got.wqe_counter) == 0);
  b.w.set_record(6, 0, 33);
  a.send(tcp4);
  chip::Event event;
  REQUIRE(b.w.event(event));
  CHECK(event.type == chip::event::kCatastrophic);
  CHECK(event.data[20] == 1);  // MLX5_EVENT_QUEUE_TYPE_RQ
}

TEST_CASE("flow tables: what entries match, the way through tables, counters, tags, drops") {
  Port b;
  Port a(&b.w);
  soft::mlx5::Steering* steering = nullptr;
  b.w.nic.ethernet([&](Ethernet& it) { steering = &it.steering(); });
  // mlx5_ifc.h, fte_match_set_lyr_2_4: byte offsets of its fields.
  const auto match = [](std::vector<std::pair<size_t, uint8_t>> mask, std::vector<std::pair<size_t, uint8_t>> value) {
    FlowEntry entry;
    entry.mask.resize(64);
    entry.value.resize(64);
    for (const auto& [at, byte] : mask) entry.mask[at] = byte;
    for (const auto& [at, byte] : value) entry.value[at] = byte;
    entry.action = 4;
    return entry;
  };
  const auto reaches = [&](const std::vector<FlowEntry>& entries, const Bytes& frame) {
    std::vector<FlowEntry> list = entries;
    for (FlowEntry& one : list) one.destinations = {{false, 1}};
    b.table(5, list);
    b.receive();
    a.send(frame);
    chip::Cqe got;
    const bool there = b.w.got(got);
    if (!there) {  // the receive is left: take it back
      b.received--;
      b.w.set_record(6, 0, static_cast<uint16_t>(b.received));
    }
    return there;
  };
  // The destination's MAC (bytes 8 to 13), the type (6), the VLAN (14), the protocol (16), the IP version and tags
  // (18), ports (22, 30), addresses (44, 60).
  CHECK(reaches({match({{8, 0xff}, {13, 0xff}}, {{8, 0xff}, {13, 0xff}})}, tcp4));
  CHECK_FALSE(reaches({match({{8, 0xff}}, {{8, 0xfe}})}, tcp4));
  CHECK(reaches({match({{6, 0xff}, {7, 0xff}}, {{6, 0x86}, {7, 0xdd}})}, tcp6));
  CHECK_FALSE(reaches({match({{6, 0xff}, {7, 0xff}}, {{6, 0x86}, {7, 0xdd}})}, tcp4));
  CHECK(reaches({match({{6, 0xff}, {7, 0xff}}, {{6, 0x08}})}, vlan_udp4));
  CHECK(reaches({match({{15, 0xff}, {18, 0x80}}, {{15, 5}, {18, 0x80}})}, vlan_udp4));
  CHECK_FALSE(reaches({match({{18, 0x80}}, {{18, 0x80}})}, tcp4));
  CHECK(reaches({match({{18, 0x80}}, {})}, tcp4));
  CHECK(reaches({match({{16, 0xff}}, {{16, 17}})}, vlan_udp4));
  CHECK(reaches({match({{18, 0x1e}}, {{18, 6 << 1}})}, tcp6));
  CHECK_FALSE(reaches({match({{18, 0x1e}}, {{18, 6 << 1}})}, tcp4));
  CHECK(reaches({match({{19, 0xff}}, {{19, 2}})}, tcp4));  // SYN
  CHECK(reaches({match({{22, 0xff}, {23, 0xff}}, {{23, 2}})}, tcp4));
  CHECK_FALSE(reaches({match({{22, 0xff}, {23, 0xff}}, {{23, 2}})}, vlan_udp4));
  CHECK(reaches({match({{30, 0xff}, {31, 0xff}}, {{31, 2}})}, vlan_udp4));
  CHECK(reaches({match({{44, 0xff}, {47, 0xff}, {63, 0xff}}, {{44, 10}, {47, 1}, {63, 2}})}, tcp4));
  CHECK(reaches({match({{32, 0xff}, {48, 0xff}}, {{32, 0xfd}, {48, 0xfd}})}, tcp6));
  // Criteria of other parts: of what is not described everything is zero.
  FlowEntry other = match({}, {});
  other.mask.resize(512, 0xff);
  other.value.resize(512);
  CHECK(reaches({other}, tcp4));
  other.value[100] = 1;
  CHECK_FALSE(reaches({other}, tcp4));

  // Tables behind tables: by an entry, by a miss; the first entry that matches counts.
  FlowEntry dropped = match({{16, 0xff}}, {{16, 17}});
  dropped.action = 2 | 8;
  dropped.counters = {7};
  FlowEntry counted = match({}, {});
  counted.action = 4 | 8;
  counted.destinations = {{true, 6}};
  counted.counters = {8};
  counted.tag = 0x1234;
  b.table(5, {dropped, counted});
  b.table(6, {}, 7);
  b.table(7, {Port::to_tir(1)});
  b.receive();
  a.send(vlan_udp4);
  a.send(tcp4);
  chip::Cqe got;
  REQUIRE(b.arrived(got));
  CHECK((be(got.sop_drop_qpn) & 0xffffff) == 0x1234);
  CHECK_FALSE(b.w.got(got));
  CHECK(steering->counter(7) == std::pair<uint64_t, uint64_t>{1, vlan_udp4.size()});
  CHECK(steering->counter(8) == std::pair<uint64_t, uint64_t>{1, tcp4.size()});
  CHECK(steering->counter(9) == std::pair<uint64_t, uint64_t>{0, 0});
  // Two ways at once, and circles, which end.
  FlowEntry both = match({}, {});
  both.destinations = {{false, 1}, {false, 1}};
  b.table(5, {both});
  b.receive();
  b.receive();
  a.send(tcp4);
  CHECK(b.w.got(got));
  CHECK(b.w.got(got));
  b.table(5, {Port::to_table(6)});
  b.table(6, {Port::to_table(5)});
  a.send(tcp4);
  CHECK_FALSE(b.w.got(got));
  b.table(5, {}, 5);
  a.send(tcp4);
  b.w.nic.ethernet([](Ethernet& it) { it.steering().root_set(std::nullopt); });
  a.send(tcp4);
  CHECK_FALSE(b.w.got(got));
}

TEST_CASE("the hash of Microsoft's specification picks the queue") {
  Port b;
  Port a(&b.w);
  // "Verifying the RSS Hash Calculation": key, addresses, ports and results.
  const Bytes key = hex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa");
  Bytes frame = tcp4;
  const Bytes addresses = hex("420995bba18e6450"), ports = hex("0aea06e6");
  std::memcpy(frame.data() + 26, addresses.data(), 8);
  std::memcpy(frame.data() + 34, ports.data(), 4);
  soft::mlx5::ReceiveQueueSpec other;
  other.pd = World::pd;
  other.pages = b.ring.pages;
  other.log_entries = 4;
  other.log_stride = 5;
  other.record = b.w.record(7);
  other.cqn = World::receive_cq;
  b.w.nic.rq_create(0x92, other);  // in RESET: what goes there is dropped
  struct Case {
    uint32_t fields;
    uint32_t result;
    uint8_t kind;
  };
  for (const Case& c : {Case{0xf, 0x51ccc178, 1 << 6 | 1 << 2}, Case{0x3, 0x323e8fc2, 1 << 2}}) {
    for (const bool hit : {true, false}) {
      TirSpec tir{std::vector<uint32_t>(8, hit ? 0x92 : Port::rqn), 2, {}, c.fields};
      tir.rqns[c.result % 8] = hit ? Port::rqn : 0x92;
      std::copy(key.begin(), key.end(), tir.key.begin());
      b.set_tir(1, tir);
      b.receive();
      a.send(frame);
      chip::Cqe got;
      const auto arrived = b.arrived(got);
      CHECK(arrived.has_value() == hit);
      if (!hit) continue;
      const auto* raw = reinterpret_cast<const uint8_t*>(&got);
      CHECK(load32(raw + 12) == c.result);
      CHECK(raw[16] == c.kind);
    }
  }
}

TEST_CASE("receive queues that are lists, and those that take from a shared queue") {
  for (const bool shared : {true, false}) {
    CAPTURE(shared);
    Port b;
    Port a(&b.w);
    b.w.nic.ethernet([](Ethernet& it) { it.rq_destroy(Port::rqn); });
    soft::mlx5::ReceiveQueueSpec spec;
    spec.pd = World::pd;
    spec.cqn = World::receive_cq;
    if (shared) {
      soft::mlx5::SrqSpec pool{World::pd, b.ring.pages, 3, 6, b.w.record(6), 0};
      b.w.nic.srq_create(0x21, pool);
      spec.srqn = 0x21;
    } else {
      spec.pages = b.ring.pages;
      spec.log_entries = 3;
      spec.log_stride = 6;
      spec.record = b.w.record(6);
      spec.linked = true;
    }
    b.w.nic.rq_create(Port::rqn, spec);
    b.w.nic.ethernet([](Ethernet& it) { it.rq_modify(Port::rqn, 1, std::nullopt); });
    for (uint16_t i = 0; i < 8; i++) {
      const uint16_t next = be(static_cast<uint16_t>((i + 3) % 8));
      std::memcpy(b.ring.at(i * 64) + 2, &next, 2);
      b.w.write_receive(b.ring.at(i * 64) + 16, 3, {b.w.sge(1 << 20, 2000)});
    }
    b.w.set_record(6, 0, 8);
    for (uint16_t i = 0; i < 8; i++) {
      a.send(tcp4);
      chip::Cqe got;
      REQUIRE(b.arrived(got));
      CHECK(be(got.wqe_counter) == i * 3 % 8);
    }
  }
}

TEST_CASE("a port whose link is down neither sends nor receives, and counts") {
  Port b;
  Port a(&b.w);
  a.send(tcp4);
  a.w.nic.ethernet([](Ethernet& it) { it.link(false); });
  a.send(tcp4);
  const auto counts = a.w.nic.ethernet([](Ethernet& it) { return it.sent(); });
  CHECK(counts.frames == 1);
  CHECK(counts.broadcast == 1);
  CHECK(counts.bytes == 64);
  CHECK(counts.discards == 1);
  CHECK(b.w.nic.ethernet([](Ethernet& it) { return it.received(); }).frames == 1);
}

TEST_CASE("local loopback: what goes to groups comes back, to other transport domains") {
  Port b;
  Port a(&b.w);
  Bytes multicast = tcp4, unicast = tcp4;
  multicast[0] = 0x01;
  unicast[0] = 0x02;
  const auto comes_back = [&](bool loopback, uint32_t domain, const Bytes& frame) {
    a.w.nic.ethernet([&](Ethernet& it) { it.loopback(loopback); });
    a.set_tir(1, {{Port::rqn}, 0, {}, 0, domain});
    a.receive();
    a.send(frame);
    chip::Cqe sent, got;
    REQUIRE(a.w.sent(sent));
    const auto back = a.arrived(got);
    if (back) CHECK(*back == frame);
    return back.has_value();
  };
  // The send queue is of transport domain 0. tcp4 is a broadcast.
  for (const Bytes& frame : {tcp4, multicast}) {
    CHECK_FALSE(comes_back(false, 1, frame));
    CHECK(comes_back(true, 1, frame));
    CHECK_FALSE(comes_back(true, 0, frame));
  }
  CHECK_FALSE(comes_back(true, 1, unicast));
  CHECK(a.w.nic.ethernet([](Ethernet& it) { return it.sent(); }).frames == 7);  // they leave by the wire as well
  CHECK(a.w.nic.ethernet([](Ethernet& it) { return it.received(); }).frames == 0);
}

TEST_CASE("numbers that are taken, and what a queue needs") {
  Port a;
  soft::mlx5::SendQueueSpec send;
  send.pages = a.queue.pages;
  send.cqn = World::send_cq;
  CHECK_THROWS_AS(a.w.nic.sq_create(World::qpn, send), std::invalid_argument);
  CHECK_THROWS_AS(a.w.nic.qp_create(Port::sqn, a.w.qp), std::invalid_argument);
  CHECK_THROWS_AS(a.w.nic.sq_create(Port::sqn, send), std::invalid_argument);
  send.cqn = 77;
  CHECK_THROWS_AS(a.w.nic.sq_create(0x99, send), soft::UnknownId);
  soft::mlx5::ReceiveQueueSpec receive;
  receive.cqn = World::receive_cq;
  CHECK_THROWS_AS(a.w.nic.rq_create(0x99, receive), std::invalid_argument);  // no pages
  CHECK_THROWS_AS(a.w.nic.ethernet([](Ethernet& it) { it.sq_modify(Port::sqn, 2); }), std::invalid_argument);
  CHECK_THROWS_AS(a.w.nic.ethernet([](Ethernet& it) { it.rq_destroy(0x99); }), soft::UnknownId);
  CHECK_THROWS_AS(a.w.nic.cq_destroy(World::send_cq), std::invalid_argument);
}

}  // namespace
