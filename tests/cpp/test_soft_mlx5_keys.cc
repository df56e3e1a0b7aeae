// The ConnectX's memory keys, and the entries that change them as Linux's driver writes them; datagrams.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "soft_mlx5_world.h"

namespace {

using namespace mlx5_world;  // NOLINT
namespace op = chip::opcode;
namespace kind = chip::cqe_opcode;
namespace syndrome = chip::syndrome;
namespace mask = chip::update_mask;
namespace flag = chip::update_flag;

constexpr uint8_t no_error = 0;

// Sends one message of `n` bytes from under one key to a receive under another. What the sender's completion says.
uint8_t copies(World& w, std::vector<Segment> from, std::vector<Segment> to) {
  w.receive({std::move(to)});
  w.post(op::kSend, from);
  w.kick();
  w.run();
  chip::ErrorCqe ended;
  REQUIRE(w.sent(ended));
  chip::Cqe got;
  if (ended.op_own >> 4 == kind::kRequest) {
    REQUIRE(w.got(got));
    return no_error;
  }
  return ended.syndrome;
}

uint8_t reads(World& w, uint64_t address, uint32_t rkey, uint32_t n, size_t to) {
  w.post(op::kRead, w.remote(address, rkey) + w.sge(to, n));
  w.kick();
  w.run();
  chip::ErrorCqe ended;
  REQUIRE(w.sent(ended));
  return ended.op_own >> 4 == kind::kRequest ? no_error : ended.syndrome;
}

TEST_CASE("a key of bus addresses, and one of all of them") {
  for (const bool all : {true, false}) {
    World w;
    MkeySpec spec;
    spec.pd = World::pd;
    spec.access = 1;
    spec.mode = MkeySpec::Mode::Physical;
    spec.all = all;
    const uint64_t bus = w.data.memory.runs[0].address;
    if (!all) spec.start = bus, spec.bytes = 4096;
    w.nic.mkey_create(9 << 8, spec);
    fill(w.bytes(0), 100, 1);
    CHECK(copies(w, w.data_segment(bus, 9 << 8, 100), w.sge(5000, 100)) == no_error);
    CHECK(std::memcmp(w.bytes(0), w.bytes(5000), 100) == 0);
    CHECK(copies(w, w.data_segment(bus + 4000, 9 << 8, 100), w.sge(5000, 100)) ==
          (all ? no_error : syndrome::kLocalProtection));
  }
}

TEST_CASE("a key whose memory begins within a page, and pages that are not next to each other") {
  World w;
  const auto& all = w.data.pages.pages;
  MkeySpec spec = w.mtt({all[7], all[3], all[9]});
  spec.start = 0x5000'0000'0123;
  spec.bytes = 2 * 4096;
  w.nic.mkey_create(9 << 8, spec);
  fill(w.bytes(0), 8192, 3);
  CHECK(copies(w, w.sge(0, 8192), w.data_segment(0x5000'0000'0123, 9 << 8, 8192)) == no_error);
  CHECK(std::memcmp(w.bytes(0), w.bytes(7 * 4096 + 0x123), 4096 - 0x123) == 0);
  CHECK(std::memcmp(w.bytes(4096 - 0x123), w.bytes(3 * 4096), 4096) == 0);
  CHECK(std::memcmp(w.bytes(8192 - 0x123), w.bytes(9 * 4096), 0x123) == 0);
  CHECK(copies(w, w.data_segment(0x5000'0000'0123, 9 << 8, 8193), w.sge(0, 9000)) == syndrome::kLocalProtection);
}

TEST_CASE("rights, domains and owners of keys") {
  struct Case {
    const char* what;
    void (*spoil)(MkeySpec&);
    bool reading;  // a peer's read can still reach it
  };
  const Case cases[] = {
      {"no remote read", [](MkeySpec& s) { s.access = 0x1; }, false},
      {"another domain", [](MkeySpec& s) { s.pd = 4; }, false},
      {"another queue pair's", [](MkeySpec& s) { s.qpn = 0x48; }, false},
      {"free", [](MkeySpec& s) { s.free = true; }, false},
      {"this queue pair's", [](MkeySpec& s) { s.qpn = World::qpn; }, true},
      {"read only", [](MkeySpec& s) { s.access = 0x4; }, true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    World peer;
    World w({}, &peer);
    MkeySpec spec = peer.mtt(peer.data.pages.pages);
    c.spoil(spec);
    peer.nic.mkey_create(9 << 8, spec);
    CHECK(reads(w, w.va, 9 << 8, 100, 5000) == (c.reading ? no_error : syndrome::kRemoteAccess));
  }
}

TEST_CASE("keys that are parts of other keys, and a key that is nowhere") {
  World w;
  MkeySpec parts = w.mtt({});
  parts.mode = MkeySpec::Mode::Parts;
  parts.start = 0;
  parts.bytes = 300;
  parts.parts = {{100, World::key, World::va + 5000}, {50, World::key, World::va}, {150, World::key, World::va + 9000}};
  w.nic.mkey_create(9 << 8, parts);
  MkeySpec fixed = w.mtt({});
  fixed.mode = MkeySpec::Mode::FixedParts;
  fixed.page_shift = 12;
  fixed.start = 100;
  fixed.bytes = 8000;
  fixed.parts = {{0, World::key, World::va + 16384}, {0, World::key, World::va + 8192}};
  w.nic.mkey_create(10 << 8, fixed);
  MkeySpec two = parts;
  two.parts = {{20, 9 << 8, 90}, {280, 10 << 8, 100}};
  w.nic.mkey_create(11 << 8, two);
  MkeySpec nowhere = w.mtt({});
  nowhere.mode = MkeySpec::Mode::Null;
  nowhere.all = true;
  w.nic.mkey_create(12 << 8, nowhere);

  fill(w.bytes(40000), 8000, 9);
  CHECK(copies(w, w.sge(40000, 300), w.data_segment(0, 9 << 8, 300)) == no_error);
  CHECK(std::memcmp(w.bytes(5000), w.bytes(40000), 100) == 0);
  CHECK(std::memcmp(w.bytes(0), w.bytes(40100), 50) == 0);
  CHECK(std::memcmp(w.bytes(9000), w.bytes(40150), 150) == 0);
  CHECK(copies(w, w.sge(40000, 8000), w.data_segment(100, 10 << 8, 8000)) == no_error);
  CHECK(std::memcmp(w.bytes(16384 + 100), w.bytes(40000), 3996) == 0);
  CHECK(std::memcmp(w.bytes(8192), w.bytes(43996), 4004) == 0);
  // Parts of parts.
  CHECK(copies(w, w.data_segment(0, 11 << 8, 300), w.sge(60000, 300)) == no_error);
  CHECK(std::memcmp(w.bytes(60000), w.bytes(5090), 10) == 0);
  CHECK(std::memcmp(w.bytes(60010), w.bytes(0), 10) == 0);
  CHECK(std::memcmp(w.bytes(60020), w.bytes(16484), 280) == 0);
  CHECK(copies(w, w.sge(40000, 8000), w.data_segment(77, 12 << 8, 8000)) == no_error);
  CHECK(reads(w, 1234, 12 << 8, 100, 60000) == no_error);
  CHECK(std::vector<uint8_t>(w.bytes(60000), w.bytes(60100)) == std::vector<uint8_t>(100, 0));
  // The part goes, and what is made of it with it.
  w.nic.mkey_destroy(9 << 8);
  CHECK(copies(w, w.data_segment(0, 11 << 8, 300), w.sge(60000, 300)) == syndrome::kLocalProtection);
}

TEST_CASE("keys that are parts of each other end") {
  World w;
  MkeySpec parts = w.mtt({});
  parts.mode = MkeySpec::Mode::Parts;
  parts.start = 0;
  parts.bytes = 100;
  parts.parts = {{100, 10 << 8, 0}};
  w.nic.mkey_create(9 << 8, parts);
  parts.parts = {{100, 9 << 8, 0}};
  w.nic.mkey_create(10 << 8, parts);
  CHECK(copies(w, w.data_segment(0, 9 << 8, 100), w.sge(0, 100)) == syndrome::kLocalProtection);
  w.nic.mkey_destroy(9 << 8);
}

// ---- Entries that change keys

struct Update {
  uint8_t flags = 0;
  uint64_t fields = 0;
  uint16_t octwords = 0;
  uint64_t offset = 0;
  bool free = false;
  uint8_t rights = 0;
  uint8_t low = 0;  // the key's low byte
  uint32_t flags_pd = 0;
  uint64_t start = 0;
  uint64_t bytes = 0;
  uint8_t page_shift = 0;

  std::vector<Segment> operator()() const {
    chip::UmrSegment umr{};
    umr.flags = flags;
    umr.klm_octowords = be(octwords);
    umr.translation_offset = be(static_cast<uint16_t>(offset));
    umr.mkey_mask = be(fields);
    const uint32_t high = be(static_cast<uint32_t>(offset >> 16));
    std::memcpy(umr.rsvd1, &high, 4);
    chip::KeySegment to{};
    to.free = free ? 1 << 6 : 0;
    to.access_flags = rights;
    to.qpn_mkey = be(0xffffff00 | low);
    to.flags_pd = be(flags_pd);
    to.start_addr = be(start);
    to.len = be(bytes);
    to.log_page_size = page_shift;
    return segments(umr) + segments(to);
  }
};

constexpr uint8_t all_rights = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6;
// What mlx5_ib's frwr_mkey_mask asks for.
constexpr uint64_t register_fields = mask::kLength | mask::kPageSize | mask::kStart | mask::kRemoteInvalidate |
                                     mask::kKey | mask::kLocalRead | mask::kLocalWrite | mask::kRemoteRead |
                                     mask::kRemoteWrite | mask::kSmallFence | mask::kFree | mask::kAtomic;

uint8_t updates(World& w, uint32_t key, const std::vector<Segment>& list) {
  const uint64_t counter = w.posted;
  w.post(op::kUmr, list, chip::control::kCompletion, key);
  w.kick();
  w.run();
  chip::ErrorCqe ended;
  REQUIRE(w.sent(ended));
  CHECK(be(ended.wqe_counter) == static_cast<uint16_t>(counter));
  CHECK((be(ended.s_wqe_opcode_qpn) >> 24) == op::kUmr);
  return ended.op_own >> 4 == kind::kRequest ? no_error : ended.syndrome;
}

// A key for registration by entries, with the list in the entry or in memory under the key of all bus addresses.
struct Registrar {
  explicit Registrar(World& w) : w(w), list(w.nic, 4096) {
    MkeySpec spec;
    spec.pd = World::pd;
    spec.octwords = 16;
    spec.update = spec.free = true;
    w.nic.mkey_create(9 << 8, spec);
    MkeySpec dma;
    dma.pd = World::pd;
    dma.access = 1;
    dma.mode = MkeySpec::Mode::Physical;
    dma.all = true;
    w.nic.mkey_create(20 << 8, dma);
  }

  std::vector<Segment> pages(bool in_entry, std::vector<unsigned> numbers) {
    std::vector<Segment> out((numbers.size() + 7) / 8 * 4);
    for (size_t i = 0; i < numbers.size(); i++) {
      const uint64_t entry = be(w.data.pages.pages[numbers[i]] | 3);  // MLX5_IB_MTT_PRESENT
      std::memcpy(out[i / 2].data() + i % 2 * 8, &entry, 8);
    }
    if (in_entry) return out;
    std::memcpy(list.at(0), out.data(), out.size() * 16);
    return w.data_segment(list.memory.runs[0].address, 20 << 8, static_cast<uint32_t>(out.size() * 16));
  }

  Update registration(bool in_entry, uint8_t low) const {
    Update u;
    u.flags = static_cast<uint8_t>(flag::kMustBeFree | (in_entry ? flag::kInline : 0));
    u.fields = register_fields;
    u.octwords = 4;
    u.rights = all_rights;
    u.low = low;
    u.flags_pd = 1 << 24;  // MLX5_MKEY_REMOTE_INVAL
    u.start = 0x6000'0000'0000;
    u.bytes = 3 * 4096;
    u.page_shift = 12;
    return u;
  }

  World& w;
  Paged list;
};

TEST_CASE("fast registration, its local invalidation, and the next one under the next key") {
  for (const bool in_entry : {true, false}) {
    CAPTURE(in_entry);
    World w;
    Registrar r(w);
    fill(w.bytes(0), 3 * 4096, 5);
    for (uint8_t low = 1; low < 4; low++) {
      const uint32_t key = 9 << 8 | low;
      CHECK(updates(w, key, r.registration(in_entry, low)() + r.pages(in_entry, {10, 12u + low, 11})) == no_error);
      CHECK(w.nic.mkey_query(9 << 8).key == key);
      CHECK_FALSE(w.nic.mkey_query(9 << 8).spec.free);
      CHECK(copies(w, w.sge(0, 3 * 4096), w.data_segment(0x6000'0000'0000, key, 3 * 4096)) == no_error);
      CHECK(std::memcmp(w.bytes(10 * 4096), w.bytes(0), 4096) == 0);
      CHECK(std::memcmp(w.bytes((12u + low) * 4096), w.bytes(4096), 4096) == 0);
      CHECK(std::memcmp(w.bytes(11 * 4096), w.bytes(8192), 4096) == 0);
      Update invalidation;  // set_linv_umr_seg
      invalidation.flags = flag::kInline;
      invalidation.fields = mask::kFree;
      invalidation.free = true;
      CHECK(updates(w, key, invalidation()) == no_error);
      CHECK(w.nic.mkey_query(9 << 8).spec.free);
    }
    CHECK(copies(w, w.data_segment(0x6000'0000'0000, 9 << 8 | 3, 100), w.sge(0, 100)) == syndrome::kLocalProtection);
  }
}

TEST_CASE("what an entry must not change is an error of its own, and changes nothing") {
  struct Case {
    const char* what;
    uint8_t syndrome;
    void (*spoil)(Registrar&, Update&, uint32_t& key, std::vector<Segment>& list);
  };
  const Case cases[] = {
      {"a key of nobody", syndrome::kWindowBind,
       [](Registrar&, Update&, uint32_t& key, std::vector<Segment>&) { key = 77 << 8; }},
      {"a key that entries may not change", syndrome::kWindowBind,
       [](Registrar&, Update&, uint32_t& key, std::vector<Segment>&) { key = World::key; }},
      {"an old key", syndrome::kWindowBind,
       [](Registrar&, Update& u, uint32_t& key, std::vector<Segment>&) {
         u.fields &= ~mask::kKey;
         key = 9 << 8 | 7;
       }},
      {"one that must not be free", syndrome::kWindowBind,
       [](Registrar&, Update& u, uint32_t&, std::vector<Segment>&) { u.flags = flag::kMustNotBeFree; }},
      {"a list longer than the key's", syndrome::kWindowBind,
       [](Registrar&, Update& u, uint32_t&, std::vector<Segment>&) {
         u.flags |= flag::kOffset;
         u.offset = 13;
       }},
      {"a list far past the key's", syndrome::kWindowBind,
       [](Registrar&, Update& u, uint32_t&, std::vector<Segment>&) {
         u.flags |= flag::kOffset;
         u.offset = 0xffff'ffff'ffff;
       }},
      {"another domain", syndrome::kWindowBind,
       [](Registrar&, Update& u, uint32_t&, std::vector<Segment>&) {
         u.fields |= mask::kPd;
         u.flags_pd = 4;
       }},
      {"a list that is not there", syndrome::kLocalProtection,
       [](Registrar&, Update&, uint32_t&, std::vector<Segment>& list) {
         list = World::data_segment(0x123'0000, 20 << 8, 64);
       }},
      {"a list of fewer bytes", syndrome::kLocalLength,
       [](Registrar& r, Update&, uint32_t&, std::vector<Segment>& list) {
         list = World::data_segment(r.list.memory.runs[0].address, 20 << 8, 63);
       }},
      {"no list at all", syndrome::kLocalQpOperation,
       [](Registrar&, Update&, uint32_t&, std::vector<Segment>& list) { list.clear(); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    World w;
    Registrar r(w);
    Update u = r.registration(false, 1);
    uint32_t key = 9 << 8 | 1;
    std::vector<Segment> list = r.pages(false, {1, 2, 3});
    c.spoil(r, u, key, list);
    CHECK(updates(w, key, u() + list) == c.syndrome);
    CHECK(w.nic.mkey_query(9 << 8).key == 9 << 8);
    CHECK(w.nic.mkey_query(9 << 8).spec.free);
    CHECK(w.nic.mkey_query(World::key).spec.bytes == World::data_bytes);
    CHECK(w.nic.qp_query(World::qpn).attributes.state == State::Err);
  }
}

TEST_CASE("registration by the queue pair for it: lists in pieces, of any domain, taken back") {
  Shape shape;
  shape.type = chip::qp_type::kRegUmr;
  World w(shape);
  w.nic.qp_destroy(World::qpn);
  w.qp.umr = true;
  w.nic.qp_create(World::qpn, w.qp);
  w.connect(w.mac);
  Registrar r(w);
  MkeySpec spec;
  spec.pd = 9;
  spec.octwords = 16;
  spec.update = spec.free = true;
  w.nic.mkey_create(30 << 8, spec);
  // mlx5r_umr_update_mr_pas: the first piece only writes the list, the last one enables the key.
  Update first;
  first.flags = flag::kMustBeFree;
  first.octwords = 4;
  CHECK(updates(w, 30 << 8 | 5, first() + r.pages(false, {1, 2, 3, 4, 5, 6, 7, 8})) == syndrome::kWindowBind);
  w.state(State::Reset);
  w.set_record(2, 0, 0);
  w.set_record(2, 1, 0);
  w.posted = 0;
  w.connect(w.mac);
  CHECK(updates(w, 30 << 8, first() + r.pages(false, {1, 2, 3, 4, 5, 6, 7, 8})) == no_error);
  CHECK(w.nic.mkey_query(30 << 8).spec.free);
  Update last = r.registration(false, 0);
  last.flags |= flag::kOffset;
  last.offset = 4;
  last.bytes = 9 * 4096;
  last.flags_pd = 3;
  last.fields |= mask::kPd;
  CHECK(updates(w, 30 << 8, last() + r.pages(false, {20})) == no_error);
  const MkeySpec now = w.nic.mkey_query(30 << 8).spec;
  CHECK(now.pd == 3);
  CHECK_FALSE(now.free);
  CHECK(now.access == 0xf);
  CHECK((now.pages[7] & ~uint64_t{3}) == w.data.pages.pages[8]);
  CHECK((now.pages[8] & ~uint64_t{3}) == w.data.pages.pages[20]);
  // mlx5r_umr_revoke_mr.
  Update revoke;
  revoke.flags = flag::kInline;
  revoke.fields = mask::kFree | mask::kPd;
  revoke.free = true;
  revoke.flags_pd = 1;
  CHECK(updates(w, 30 << 8, revoke()) == no_error);
  CHECK(w.nic.mkey_query(30 << 8).spec.pd == 1);
  // It sends nothing.
  w.post(op::kSend, w.sge(0, 4));
  w.kick();
  w.run();
  chip::ErrorCqe failed;
  REQUIRE(w.sent(failed));
  CHECK(failed.syndrome == syndrome::kLocalQpOperation);
}

TEST_CASE("a peer's send invalidates a key that lets it, and fails on one that does not") {
  for (const bool lets : {true, false}) {
    CAPTURE(lets);
    World peer;
    World w({}, &peer);
    Registrar r(peer);
    Update u = r.registration(true, 1);
    if (!lets) u.flags_pd = 0;
    CHECK(updates(peer, 9 << 8 | 1, u() + r.pages(true, {1, 2, 3})) == no_error);
    peer.receive({w.sge(0, 8)});
    w.post(op::kSendInvalidate, w.sge(0, 8), chip::control::kCompletion, 9 << 8 | 1);
    w.kick();
    for (int i = 0; i < 20; i++) w.nic.nic().advance();
    CHECK(peer.nic.mkey_query(9 << 8).spec.free == lets);
    chip::Cqe got;
    REQUIRE(peer.got(got));
    if (lets) {
      CHECK((got.op_own >> 4) == kind::kReceivedInvalidate);
      CHECK(be(got.imm_inval_pkey) == (9 << 8 | 1));
    } else {
      CHECK((got.op_own >> 4) == kind::kReceiveError);
    }
  }
}

// As rdma-core's set_bind_wr writes them: a list of one part and three empty ones.
TEST_CASE("memory windows: bound to a part of a region, for one queue pair or all, and taken back") {
  for (const bool second : {true, false}) {
    CAPTURE(second);
    World peer;
    World w({}, &peer);
    MkeySpec window;
    window.pd = World::pd;
    window.mode = MkeySpec::Mode::Parts;
    window.octwords = 4;
    window.update = window.free = true;
    peer.nic.mkey_create(9 << 8, window);
    const auto bind = [&](uint32_t imm, uint8_t low, uint64_t at, uint32_t bytes, uint32_t qpn) {
      chip::UmrSegment umr{};
      umr.flags = static_cast<uint8_t>(1 << 7 | 1 << 4 | (!second ? 0 : bytes ? 1 << 5 : 1 << 3));
      umr.klm_octowords = be(static_cast<uint16_t>(bytes ? 4 : 0));
      uint64_t fields = 1ull << 29 | 1 << 13;
      if (second) fields |= 1 << 14;
      if (bytes) fields |= 1 | 1 << 6 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21;
      umr.mkey_mask = be(fields);
      chip::KeySegment to{};
      to.qpn_mkey = be(low | (second && bytes ? qpn : 0xffffff) << 8);
      if (bytes) {
        to.access_flags = 1 << 4;  // MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ
        to.start_addr = be(at);
        to.len = be(uint64_t{bytes});
      } else {
        to.free = 1 << 6;
      }
      auto list = segments(umr) + segments(to);
      if (bytes) {
        list = list + segments(chip::KlmSegment{be(bytes), be(World::key), be(at)});
        list.resize(list.size() + 3);
      }
      return updates(peer, imm, list);
    };
    CHECK(bind(9 << 8, 1, World::va + 8192, 4096, World::qpn) == no_error);
    fill(peer.bytes(0), 16384, 4);
    CHECK(reads(w, World::va + 9000, 9 << 8 | 1, 1000, 5000) == no_error);
    CHECK(std::memcmp(w.bytes(5000), peer.bytes(9000), 1000) == 0);
    if (!second) CHECK(bind(9 << 8 | 1, 1, World::va + 4096, 4096, World::qpn) == no_error);  // another part
    CHECK(bind(9 << 8 | 1, 1, 0, 0, World::qpn) == no_error);
    CHECK(reads(w, World::va + 9000, 9 << 8 | 1, 1000, 5000) == syndrome::kRemoteAccess);
  }
  // Another queue pair's window is not this one's to use, nor to take back.
  World w;
  MkeySpec window;
  window.pd = World::pd;
  window.mode = MkeySpec::Mode::Parts;
  window.octwords = 4;
  window.update = true;
  window.qpn = World::qpn + 1;
  w.nic.mkey_create(9 << 8, window);
  chip::UmrSegment umr{};
  umr.flags = 1 << 7 | 1 << 3;
  umr.mkey_mask = be(uint64_t{1} << 29);
  chip::KeySegment to{};
  to.free = 1 << 6;
  CHECK(updates(w, 9 << 8, segments(umr) + segments(to)) == syndrome::kWindowBind);
  CHECK_FALSE(w.nic.mkey_query(9 << 8).spec.free);
}

TEST_CASE("an entry that does nothing, and one that invalidates by its opcode") {
  World w;
  Registrar r(w);
  CHECK(updates(w, 9 << 8 | 1, r.registration(true, 1)() + r.pages(true, {1, 2, 3})) == no_error);
  w.post(op::kNop, {});
  w.post(op::kLocalInvalidate, {}, chip::control::kCompletion, 9 << 8 | 1);
  w.kick();
  w.run();
  chip::Cqe sent;
  for (const uint8_t code : {op::kNop, op::kLocalInvalidate}) {
    REQUIRE(w.sent(sent));
    CHECK((sent.op_own >> 4) == kind::kRequest);
    CHECK((be(sent.sop_drop_qpn) >> 24) == code);
  }
  CHECK(w.nic.mkey_query(9 << 8).spec.free);
}

// ---- Datagrams

std::vector<Segment> address(uint8_t to, uint32_t qpn, uint32_t qkey, uint32_t gid_index = 0) {
  const soft::mlx5::Gid peer = World::make_gid(to);
  chip::AddressVector v{};
  v.key = be(qkey);  // the first half
  v.dqp_dct = be(qpn | 0x80000000);
  std::memcpy(v.rmac, peer.mac, 6);
  v.hop_limit = 7;
  v.tclass = 0x20;
  v.grh_gid_fl = be(1u << 30 | gid_index << 20);
  std::memcpy(v.rgid, peer.gid, 16);
  return segments(v);
}

Shape datagrams(uint8_t type = chip::qp_type::kUd) {
  Shape shape;
  shape.type = type;
  return shape;
}

TEST_CASE("datagrams: the header in front, the sender in the completion") {
  World peer(datagrams());
  World w(datagrams(), &peer);
  peer.receive({w.sge(0, 40), w.sge(4096, 1000)});
  fill(w.bytes(0), 500, 7);
  w.post(op::kSendImmediate, address(1, World::qpn, World::qkey) + w.sge(0, 500), chip::control::kCompletion, 99);
  w.kick();
  w.run();
  chip::Cqe sent, got;
  REQUIRE(w.sent(sent));
  CHECK((sent.op_own >> 4) == kind::kRequest);
  REQUIRE(peer.got(got));
  CHECK((got.op_own >> 4) == kind::kReceivedImmediate);
  CHECK(be(got.byte_cnt) == 540);
  CHECK(be(got.imm_inval_pkey) == 99);
  // flags_rqpn: the GRH is in the buffer, RoCE over IPv4, and who it was (mlx5_ib, handle_responder).
  CHECK(be(got.flags_rqpn) == (1u << 28 | 2u << 24 | World::qpn));
  CHECK(std::memcmp(peer.bytes(4096), w.bytes(0), 500) == 0);
  // The IPv4 header is the last 20 of the 40 bytes (IBTA A17.4.5.1).
  const uint8_t* ip = peer.bytes(20);
  CHECK(ip[0] == 0x45);
  CHECK(ip[1] == 0x20);
  CHECK(ip[8] == 7);
  CHECK(std::memcmp(ip + 12, World::make_gid(2).gid + 12, 4) == 0);
  CHECK(std::memcmp(ip + 16, World::make_gid(1).gid + 12, 4) == 0);
  // Another Q_Key's are not for it; a message of its own comes back to it.
  peer.receive({w.sge(0, 1000)});
  w.post(op::kSend, address(1, World::qpn, 77) + w.sge(0, 5));
  w.kick();
  w.run();
  CHECK_FALSE(peer.got(got));
  peer.post(op::kSend, address(1, World::qpn, World::qkey) + w.inlined("hello"));
  peer.kick();
  peer.run();
  REQUIRE(peer.got(got));
  CHECK(be(got.byte_cnt) == 45);
  CHECK(std::memcmp(peer.bytes(40), "hello", 5) == 0);
}

TEST_CASE("datagrams that cannot be sent") {
  struct Case {
    const char* what;
    uint8_t syndrome;
    std::vector<Segment> (*rest)();
  };
  const Case cases[] = {
      {"by no GID", syndrome::kLocalQpOperation, [] { return address(1, World::qpn, 1, 5) + World::inlined("hello"); }},
      {"of no address", syndrome::kLocalQpOperation, [] { return World::inlined("hello"); }},
      {"longer than the MTU", syndrome::kLocalLength,
       [] { return address(1, World::qpn, 1) + World::data_segment(World::va, World::key, 4097); }},
      {"of a key of nobody", syndrome::kLocalProtection,
       [] { return address(1, World::qpn, 1) + World::data_segment(World::va, 1 << 8, 5); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    World w(datagrams());
    w.receive({w.sge(0, 4)});
    w.post(op::kSend, c.rest());
    w.post(op::kSend, address(1, World::qpn, 1) + w.inlined("hello"), 0);
    w.kick();
    w.run();
    chip::ErrorCqe failed;
    REQUIRE(w.sent(failed));
    CHECK(failed.syndrome == c.syndrome);
    REQUIRE(w.sent(failed));
    CHECK(failed.syndrome == syndrome::kFlushed);
    REQUIRE(w.got(failed));
    CHECK(failed.syndrome == syndrome::kFlushed);
  }
  World w(datagrams());
  w.post(op::kWrite, address(1, World::qpn, 1) + w.remote(w.va, w.key) + w.sge(0, 4));
  w.kick();
  w.run();
  chip::ErrorCqe failed;
  REQUIRE(w.sent(failed));
  CHECK(failed.syndrome == syndrome::kLocalQpOperation);
}

TEST_CASE("the general services' queue pair is number 1 to its peers, and so is what sends in its name") {
  World peer(datagrams(chip::qp_type::kQp1));
  peer.nic.qp_destroy(World::qpn);
  peer.qp.wire_qpn = 1;
  peer.nic.qp_create(World::qpn, peer.qp);
  World w(datagrams(), &peer);
  w.nic.qp_destroy(World::qpn);
  w.qp.source_qpn = 1;
  w.nic.qp_create(World::qpn, w.qp);
  w.connect(1);
  peer.receive({w.sge(0, 1000)});
  w.post(op::kSend, address(1, 1, World::qkey) + w.inlined("management"));
  w.kick();
  w.run();
  chip::Cqe got;
  REQUIRE(peer.got(got));
  CHECK((be(got.flags_rqpn) & 0xffffff) == 1);
  CHECK((be(got.sop_drop_qpn) & 0xffffff) == World::qpn);
  CHECK((be(got.imm_inval_pkey) & 0xffff) == 0xffff);
}

TEST_CASE("a datagram to a group reaches its members, on the sender's NIC too") {
  World peer(datagrams());
  World w(datagrams(), &peer);
  const std::array<uint8_t, 16> group = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
  chip::AddressVector v{};
  v.key = be(World::qkey);
  v.dqp_dct = be(0x80ffffff);
  const uint8_t mac[6] = {1, 0, 0x5e, 1, 2, 3};
  std::memcpy(v.rmac, mac, 6);
  v.grh_gid_fl = be(1u << 30);
  std::memcpy(v.rgid, group.data(), 16);
  const auto reached = [&] {
    for (World* one : {&w, &peer}) {
      one->receive({w.sge(0, 1000)});
      std::memset(one->bytes(40), 0, 5);
    }
    w.post(op::kSend, segments(v) + w.inlined("group"));
    w.kick();
    w.run();
    int out = 0;
    for (World* one : {&w, &peer}) {
      chip::Cqe got;
      if (one->got(got)) {
        out |= one == &w ? 1 : 2;
        CHECK(be(got.byte_cnt) == 45);
        CHECK(std::memcmp(one->bytes(40), "group", 5) == 0);
        CHECK((be(got.flags_rqpn) & 0xffffff) == World::qpn);
      }
    }
    return out;
  };
  CHECK(reached() == 0);
  peer.nic.group_attach(group, World::qpn);
  CHECK(reached() == 2);
  w.nic.group_attach(group, World::qpn);
  w.nic.group_attach(group, World::qpn);  // once is enough
  CHECK(reached() == 3);
  peer.nic.group_detach(group, World::qpn);
  CHECK(reached() == 1);
  peer.nic.group_attach(group, World::qpn);
  peer.nic.qp_destroy(World::qpn);
  peer.nic.qp_create(World::qpn, peer.qp);
  CHECK(reached() == 1);
  World connected;
  CHECK_THROWS_AS(connected.nic.group_attach(group, World::qpn), std::invalid_argument);
  CHECK_THROWS_AS(connected.nic.group_attach(group, 1), soft::UnknownId);
}

}  // namespace
