// A wire that impairs: each fault by itself, all of them seeded, over both wires.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "soft/memory.h"
#include "soft/wire/codec.h"
#include "soft/wire/faults.h"
#include "soft/wire/random.h"
#include "wire_support.h"

using namespace wire_support;  // NOLINT
using userdma::soft::Clock;
using userdma::soft::VirtualClock;

namespace {

Header packet_header(uint32_t psn, uint32_t bytes) {
  Header header = header_to(mac(2), mac(1), psn, bytes);
  for (uint8_t* gid : {header.sgid, header.dgid}) {  // IPv4-mapped
    std::memset(gid, 0, 10);
    gid[10] = gid[11] = 0xff;
  }
  return header;
}

struct Pair {
  explicit Pair(const Faults& faults, std::shared_ptr<Wire> below = Wire::make())
      : clock(std::make_shared<VirtualClock>(1000)),
        wire(std::make_shared<FaultyWire>(std::move(below), faults, clock)),
        a(wire->attach(mac(1).bytes, nullptr, nullptr)),
        b(wire->attach(mac(2).bytes, nullptr, nullptr)) {}

  // Sends `count` packets, with the time standing still, and takes what arrives.
  void run(uint32_t count, uint32_t bytes = 100) {
    for (uint32_t i = 0; i < count; ++i) {
      auto data = pattern(bytes, i);
      REQUIRE(send(*a, packet_header(i, bytes), data));
      while (b->receive(keep, 16)) {
      }
    }
  }
  // Lets time pass until nothing waits any more.
  void settle() {
    while (a->next_deadline() != UINT64_MAX) {
      uint64_t due = a->next_deadline();
      if (due > clock->now()) clock->advance(due - clock->now());
      Keep nothing;
      a->receive(nothing, 1);
      while (b->receive(keep, 16)) {
      }
    }
  }
  std::vector<uint32_t> psns() const {
    std::vector<uint32_t> result;
    for (auto& packet : keep.packets) result.push_back(packet.header.psn);
    return result;
  }
  bool whole(uint32_t bytes = 100) const {
    return std::all_of(keep.packets.begin(), keep.packets.end(),
                       [&](const Packet& packet) { return packet.payload == pattern(bytes, packet.header.psn); });
  }

  std::shared_ptr<VirtualClock> clock;
  std::shared_ptr<FaultyWire> wire;
  std::unique_ptr<Port> a, b;
  Keep keep;
};

}  // namespace

TEST_CASE("faults: the generator is xoshiro256**, seeded by splitmix64") {
  // splitmix64 of seed 0 begins 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec (as its
  // authors' C code prints); xoshiro256**'s first output is rotl(state[1] * 5, 7) * 9.
  Random random(0);
  uint64_t product = 0x6e789e6aa1b965f4ull * 5;
  CHECK(random.next() == ((product << 7) | (product >> 57)) * 9);
}

TEST_CASE("faults: none of them, nothing happens, one MTU a packet") {
  Pair pair{Faults{}};
  CHECK(pair.a->largest(1024) == 1024);
  pair.run(300);
  CHECK(pair.keep.packets.size() == 300);
  CHECK(pair.whole());
  CHECK(std::is_sorted(pair.keep.packets.begin(), pair.keep.packets.end(),
                       [](auto& x, auto& y) { return x.header.psn < y.header.psn; }));
}

TEST_CASE("faults: loss") {
  Faults faults;
  faults.loss = 0.2;
  Pair pair{faults};
  pair.run(2000);
  CHECK(pair.a->counts().lost + pair.keep.packets.size() == 2000);
  CHECK(pair.a->counts().lost > 320);  // six standard deviations
  CHECK(pair.a->counts().lost < 480);
  CHECK(pair.whole());
  auto psns = pair.psns();
  CHECK(std::is_sorted(psns.begin(), psns.end()));
}

TEST_CASE("faults: duplication") {
  Faults faults;
  faults.duplicate = 0.5;
  Pair pair{faults};
  pair.run(1000);
  CHECK(pair.keep.packets.size() == 1000 + pair.a->counts().duplicated);
  CHECK(pair.a->counts().duplicated > 400);
  CHECK(pair.a->counts().duplicated < 600);
  CHECK(pair.whole());
}

TEST_CASE("faults: reordering, and nothing waits for ever to be overtaken") {
  Faults faults;
  faults.reorder = 0.3;
  Pair pair{faults};
  pair.run(1000);
  pair.settle();
  auto psns = pair.psns();
  REQUIRE(psns.size() == 1000);
  CHECK_FALSE(std::is_sorted(psns.begin(), psns.end()));
  CHECK(pair.whole());
  // None is further away than reorder_depth packets, and those that overtake those.
  for (uint32_t i = 0; i < 1000; ++i) CHECK(std::abs(static_cast<int>(psns[i]) - static_cast<int>(i)) <= 8);
  std::sort(psns.begin(), psns.end());
  for (uint32_t i = 0; i < 1000; ++i) CHECK(psns[i] == i);
}

TEST_CASE("faults: delay runs on the clock") {
  Faults faults;
  faults.delay = 1;
  faults.delay_ns = 1000000;
  Pair pair{faults};
  pair.run(50);
  CHECK(pair.keep.packets.empty());
  CHECK(pair.a->next_deadline() > pair.clock->now());
  CHECK(pair.a->next_deadline() < pair.clock->now() + 1000000);
  CHECK_FALSE(pair.a->pending());
  pair.clock->advance(pair.a->next_deadline() - pair.clock->now());
  CHECK(pair.a->pending());
  pair.settle();
  CHECK(pair.keep.packets.size() == 50);
  CHECK(pair.clock->now() <= 1000 + 1000001);
  CHECK(pair.whole());
}

TEST_CASE("faults: corruption is caught by the ICRC, or hits what it leaves out") {
  Faults faults;
  faults.corrupt = 1;
  Pair pair{faults};
  pair.run(3000);
  CHECK(pair.a->counts().corrupted == 3000);
  CHECK(pair.a->counts().icrc_errors > 1500);
  CHECK(pair.keep.packets.size() < 600);
  CHECK(pair.whole());  // no payload was ever changed unseen
  for (auto& packet : pair.keep.packets) CHECK(packet.header.dest_qp == 0x123456);
}

TEST_CASE("faults: the same seed makes the same run, another seed another") {
  Faults faults;
  faults.loss = faults.duplicate = faults.reorder = faults.corrupt = faults.delay = 0.1;
  auto run = [&](uint64_t seed, std::shared_ptr<Wire> below) {
    faults.seed = seed;
    Pair pair{faults, std::move(below)};
    pair.run(500);
    pair.settle();
    return pair.psns();
  };
  auto first = run(7, Wire::make());
  CHECK(run(7, Wire::make()) == first);
  CHECK(run(7, Wire::named(fresh_wire())) == first);
  CHECK(run(8, Wire::make()) != first);
}

TEST_CASE("faults: the two directions are impaired differently") {
  Faults faults;
  faults.loss = 0.5;
  Pair pair{faults};
  Keep back;
  std::vector<uint8_t> data(8);
  for (uint32_t i = 0; i < 200; ++i) {
    send(*pair.a, packet_header(i, 8), data);
    Header header = packet_header(i, 8);
    std::memcpy(header.dmac, mac(1).bytes, 6);
    send(*pair.b, header, data);
    pair.b->receive(pair.keep, 10);
    pair.a->receive(back, 10);
  }
  std::vector<uint32_t> psns;
  for (auto& packet : back.packets) psns.push_back(packet.header.psn);
  CHECK(psns != pair.psns());
}

TEST_CASE("faults: payloads are copied at once") {
  Faults faults;
  faults.delay = 1;
  Pair pair{faults};
  auto data = pattern(4096, 0);
  REQUIRE(send(*pair.a, packet_header(0, 4096), data));
  data.assign(4096, 0);
  pair.settle();
  REQUIRE(pair.keep.packets.size() == 1);
  CHECK(pair.keep.packets[0].payload == pattern(4096, 0));
}

TEST_CASE("faults: what is captured are the frames that went") {
  Faults faults;
  faults.loss = 0.3;
  faults.duplicate = 0.3;
  Pair pair{faults};
  pair.wire->capture(1000);
  pair.run(200);
  auto frames = pair.wire->take();
  REQUIRE(frames.size() == pair.keep.packets.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    Header header;
    Span payload;
    REQUIRE(decode(frames[i].data(), frames[i].size(), header, payload) == Malformed::No);
    CHECK(header.psn == pair.keep.packets[i].header.psn);
    CHECK(std::vector<uint8_t>(payload.at, payload.at + payload.bytes) == pair.keep.packets[i].payload);
  }
  CHECK(pair.wire->take().empty());
  pair.wire->capture(5);
  pair.run(50);
  CHECK(pair.wire->take().size() == 5);
}

TEST_CASE("faults: numbers that cannot be are refused") {
  auto clock = std::make_shared<VirtualClock>();
  for (double wrong : {-0.1, 1.1, std::nan("")}) {
    Faults faults;
    faults.corrupt = wrong;
    CHECK_THROWS_AS(FaultyWire(Wire::make(), faults, clock), std::invalid_argument);
  }
  Faults faults;
  faults.reorder_depth = 0;
  CHECK_THROWS_AS(FaultyWire(Wire::make(), faults, clock), std::invalid_argument);
}

TEST_CASE("faults: a receiver that takes nothing makes the sender wait, not lose") {
  Faults faults;
  faults.delay = 0.5;
  Pair pair{faults};
  std::vector<uint8_t> data(8);
  uint32_t sent = 0;
  while (sent < 5000 && send(*pair.a, packet_header(sent, 8), data)) ++sent;
  CHECK(sent < 5000);
  CHECK(pair.a->blocked());
  for (int i = 0; i < 100; ++i) {
    pair.clock->advance(100000);
    Keep nothing;
    pair.a->receive(nothing, 1);
    while (pair.b->receive(pair.keep, 16)) {
    }
  }
  CHECK(pair.keep.packets.size() == sent);
}
