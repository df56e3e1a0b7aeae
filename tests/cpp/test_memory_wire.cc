// The wire within a process.
#include <atomic>
#include <thread>

#include "host/function.h"
#include "soft/memory.h"
#include "wire_support.h"

using namespace wire_support;  // NOLINT
using userdma::host::Error;
using userdma::soft::Arena;

TEST_CASE("memory wire: packets arrive in order, whole, at the port they name") {
  auto wire = Wire::make();
  Arena arena;
  auto a = wire->attach(mac(1).bytes, nullptr, &arena);
  auto b = wire->attach(mac(2).bytes, nullptr, &arena);
  auto c = wire->attach(mac(3).bytes, nullptr, &arena);
  std::vector<std::vector<uint8_t>> data;
  for (size_t bytes : {0, 1, 8, 512, 513, 4096, 1 << 20}) data.push_back(pattern(bytes, static_cast<unsigned>(bytes)));
  for (uint32_t i = 0; i < data.size(); ++i)
    REQUIRE(send(*a, header_to(mac(2), mac(1), i, static_cast<uint32_t>(data[i].size())), data[i]));
  CHECK(b->pending());
  CHECK_FALSE(c->pending());
  Keep keep;
  CHECK(b->receive(keep, 3) == 3);
  CHECK(b->pending());
  CHECK(b->receive(keep, 100) == 4);
  CHECK_FALSE(b->pending());
  REQUIRE(keep.packets.size() == data.size());
  for (uint32_t i = 0; i < data.size(); ++i) {
    CHECK(same(keep.packets[i].header, header_to(mac(2), mac(1), i, static_cast<uint32_t>(data[i].size()))));
    CHECK(keep.packets[i].payload == data[i]);
  }
  CHECK(c->receive(keep, 100) == 0);
}

TEST_CASE("memory wire: a port sends to itself") {
  auto wire = Wire::make();
  auto a = wire->attach(mac(1).bytes, nullptr, nullptr);
  auto data = pattern(2000, 1);
  REQUIRE(send(*a, header_to(mac(1), mac(1), 0, 2000), data));
  Keep keep;
  CHECK(a->receive(keep, 10) == 1);
  CHECK(keep.packets[0].payload == data);
}

TEST_CASE("memory wire: a MAC is on a wire once, and free again when its port has left") {
  auto wire = Wire::make();
  auto a = wire->attach(mac(1).bytes, nullptr, nullptr);
  CHECK_THROWS_AS(wire->attach(mac(1).bytes, nullptr, nullptr), Error);
  auto other = Wire::make()->attach(mac(1).bytes, nullptr, nullptr);
  a.reset();
  a = wire->attach(mac(1).bytes, nullptr, nullptr);
  CHECK_FALSE(a->pending());
}

TEST_CASE("memory wire: what is sent to nobody is lost") {
  auto wire = Wire::make();
  auto a = wire->attach(mac(1).bytes, nullptr, nullptr);
  auto b = wire->attach(mac(2).bytes, nullptr, nullptr);
  std::vector<uint8_t> data(8);
  CHECK(send(*a, header_to(mac(9), mac(1), 0, 8), data));
  CHECK(a->counts().dropped == 1);
  CHECK(send(*a, header_to(mac(2), mac(1), 0, 8), data));
  b->leave();
  CHECK_FALSE(b->pending());
  CHECK(send(*a, header_to(mac(2), mac(1), 0, 8), data));
  CHECK(a->counts().dropped == 2);
  b = wire->attach(mac(2).bytes, nullptr, nullptr);
  CHECK_FALSE(b->pending());
  CHECK(send(*a, header_to(mac(2), mac(1), 7, 8), data));
  Keep keep;
  CHECK(b->receive(keep, 10) == 1);
  CHECK(keep.packets[0].header.psn == 7);
}

TEST_CASE("memory wire: a full inbox refuses, and takes again what is read") {
  auto wire = Wire::make();
  auto a = wire->attach(mac(1).bytes, nullptr, nullptr);
  auto b = wire->attach(mac(2).bytes, nullptr, nullptr);
  std::vector<uint8_t> data(8);
  uint32_t sent = 0;
  while (send(*a, header_to(mac(2), mac(1), sent, 8), data)) ++sent;
  CHECK(sent >= 64);
  CHECK(a->blocked());
  Keep keep;
  CHECK(b->receive(keep, 1) == 1);
  CHECK(send(*a, header_to(mac(2), mac(1), sent++, 8), data));
  CHECK_FALSE(a->blocked());
  while (b->receive(keep, 10)) {
  }
  REQUIRE(keep.packets.size() == sent);
  for (uint32_t i = 0; i < sent; ++i) CHECK(keep.packets[i].header.psn == i);
}

TEST_CASE("memory wire: small payloads are copied, big ones are read where they lie until they are recalled") {
  auto wire = Wire::make();
  Arena arena;
  auto a = wire->attach(mac(1).bytes, nullptr, &arena);
  auto b = wire->attach(mac(2).bytes, nullptr, &arena);
  auto small = pattern(max_copied, 1), big = pattern(max_copied + 1, 2), other = pattern(5000, 3);
  auto small_before = small;
  send(*a, header_to(mac(2), mac(1), 0, static_cast<uint32_t>(small.size())), small);
  send(*a, header_to(mac(2), mac(1), 1, static_cast<uint32_t>(big.size())), big);
  send(*a, header_to(mac(2), mac(1), 2, static_cast<uint32_t>(other.size())), other);
  small[0] ^= 1;
  a->recall(big.data() + 100, 1);
  CHECK(a->counts().recalled == 1);
  Keep keep;
  b->receive(keep, 10);
  REQUIRE(keep.packets.size() == 2);
  CHECK(keep.packets[0].payload == small_before);
  CHECK(keep.packets[1].header.psn == 2);
  CHECK(keep.packets[1].payload == other);
}

TEST_CASE("memory wire: without memory to refer to, every payload is copied") {
  auto wire = Wire::make();
  auto a = wire->attach(mac(1).bytes, nullptr, nullptr);
  auto b = wire->attach(mac(2).bytes, nullptr, nullptr);
  auto data = pattern(4096, 1);
  auto before = data;
  send(*a, header_to(mac(2), mac(1), 0, 4096), data);
  data.assign(4096, 0);
  a->recall(data.data(), data.size());
  Keep keep;
  b->receive(keep, 10);
  REQUIRE(keep.packets.size() == 1);
  CHECK(keep.packets[0].payload == before);
}

TEST_CASE("memory wire: a reader leaves what is longer than it wants, and all behind it") {
  auto wire = Wire::make();
  Arena arena;
  auto a = wire->attach(mac(1).bytes, nullptr, &arena);
  auto b = wire->attach(mac(2).bytes, nullptr, &arena);
  auto data = pattern(100000, 1);
  for (uint32_t bytes : {1000u, 8192u, 8193u, 10u}) {
    Span span{data.data(), bytes};
    REQUIRE(a->send(header_to(mac(2), mac(1), 0, bytes), &span, 1));
  }
  Keep keep;
  CHECK(b->receive(keep, 16, 8192) == 2);
  CHECK(b->receive(keep, 16, 8192) == 0);
  CHECK(b->pending());
  CHECK(b->receive(keep, 1) == 1);
  CHECK(b->receive(keep, 16, 8192) == 1);
  CHECK_FALSE(b->pending());
}

TEST_CASE("memory wire: recall says that a packet is being read, until it has been") {
  auto wire = Wire::make();
  Arena arena;
  auto a = wire->attach(mac(1).bytes, nullptr, &arena);
  auto b = wire->attach(mac(2).bytes, nullptr, &arena);
  auto data = pattern(100000, 1);
  send(*a, header_to(mac(2), mac(1), 0, 100000), data);
  std::atomic<int> stage{0};
  std::atomic<bool> reading_ended{false};
  Keep keep;
  keep.during = [&] {
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    reading_ended = true;
  };
  std::thread reader([&] { b->receive(keep, 1); });
  while (stage == 0) std::this_thread::yield();
  CHECK_FALSE(a->recall(data.data(), data.size()));
  stage = 2;
  while (!a->recall(data.data(), data.size())) std::this_thread::yield();
  CHECK(reading_ended);
  reader.join();
  CHECK(a->counts().recalled == 0);
}

TEST_CASE("memory wire: many senders at once, each in order") {
  auto wire = Wire::make();
  Arena arena;
  auto sink_port = wire->attach(mac(100).bytes, nullptr, &arena);
  constexpr int senders = 3, packets = 3000;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Port>> ports;
  for (int s = 0; s < senders; ++s) ports.push_back(wire->attach(mac(static_cast<uint8_t>(s)).bytes, nullptr, &arena));
  for (int s = 0; s < senders; ++s)
    threads.emplace_back([&, s] {
      auto data = pattern(1000, static_cast<unsigned>(s));
      for (uint32_t i = 0; i < packets;) {
        uint32_t bytes = i % 2 ? 16 : 1000;
        Span span{data.data(), bytes};
        if (ports[static_cast<size_t>(s)]->send(header_to(mac(100), mac(static_cast<uint8_t>(s)), i, bytes), &span, 1))
          ++i;
        else
          std::this_thread::yield();
      }
      while (!ports[static_cast<size_t>(s)]->recall(data.data(), data.size())) std::this_thread::yield();
    });
  uint32_t next[senders] = {};
  uint64_t got = 0;
  struct Check final : Sink {
    uint32_t* next;
    bool good = true;
    void packet(const Header& header, const Span* payload, size_t spans) override {
      unsigned from = header.smac[5];
      // A packet that was taken back leaves a gap, and only at the end.
      good = good && header.psn >= next[from] && spans == 1 && payload->bytes == header.payload;
      next[from] = header.psn + 1;
    }
  } check;
  check.next = next;
  std::atomic<bool> done{false};
  std::thread joiner([&] {
    for (auto& thread : threads) thread.join();
    done = true;
  });
  while (!done || sink_port->pending()) got += sink_port->receive(check, 64);
  joiner.join();
  uint64_t recalled = 0;
  for (auto& port : ports) recalled += port->counts().recalled;
  CHECK(check.good);
  CHECK(got + recalled == senders * packets);
}

TEST_CASE("named wires") {
  CHECK(Wire::named("") == Wire::named(""));
  CHECK(Wire::make() != Wire::make());
  CHECK_THROWS_AS(Wire::named("ether"), Error);
  CHECK_THROWS_AS(Wire::named("shm:"), Error);
  CHECK_THROWS_AS(Wire::named("shm:a/b"), Error);
  CHECK(Wire::named("shm:a")->name() == "shm:a");
}

TEST_CASE("memory wire: a forked child has a default wire of its own") {
  auto a = Wire::named("")->attach(mac(1).bytes, nullptr, nullptr);
  Child child([] {
    auto again = Wire::named("")->attach(mac(1).bytes, nullptr, nullptr);
    return again ? 0 : 1;
  });
  CHECK(child.wait() == 0);
}
