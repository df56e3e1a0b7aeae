// The wire in shared memory, between processes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>

#include "host/function.h"
#include "soft/memory.h"
#include "soft/wire/shm_layout.h"
#include "wire_support.h"

using namespace wire_support;  // NOLINT
using userdma::host::Error;
using userdma::soft::Arena;

namespace {

// A process with the port mac(2) on `wire` that sends every packet back to mac(1), with the PSN it had, until one comes
// with `stop_psn`: answers are read in place, so its memory must be there until they are.
int echo(const std::string& name, bool own_arena, uint32_t stop_psn) {
  Arena arena;
  auto port = Wire::named(name)->attach(mac(2).bytes, nullptr, own_arena ? &arena : nullptr);
  uint8_t* memory = arena.alloc(1 << 20);
  struct Echo final : Sink {
    Port* port;
    uint8_t* memory;
    uint32_t stop_psn = 0;
    bool stop = false;
    void packet(const Header& header, const Span* payload, size_t spans) override {
      stop = header.psn == stop_psn;
      if (stop) return;
      uint32_t bytes = 0;
      // One answer at a time is on its way, so its memory may be used again.
      for (size_t i = 0; i < spans; ++i) {
        std::memcpy(memory + bytes, payload[i].at, payload[i].bytes);
        bytes += static_cast<uint32_t>(payload[i].bytes);
      }
      Header answer = header;
      std::memcpy(answer.dmac, header.smac, 6);
      std::memcpy(answer.smac, header.dmac, 6);
      answer.payload = bytes;
      Span span{memory, bytes};
      while (!port->send(answer, &span, bytes ? 1 : 0)) {
      }
    }
  } sink;
  sink.port = port.get();
  sink.memory = memory;
  sink.stop_psn = stop_psn;
  Child::say('r');
  while (!sink.stop) port->receive(sink, 16);
  return 0;
}

Header everything(uint32_t psn, uint32_t payload) {
  Header h = header_to(mac(2), mac(1), psn, payload);
  h.immediate = 1;
  h.va = 0x123456789abcdef0;
  h.rkey = 2;
  h.dma_length = 3;
  h.swap_or_add = 4;
  h.compare = 5;
  h.syndrome = 6;
  h.msn = 7;
  h.qkey = 8;
  h.src_qp = 9;
  h.psns = 10;
  h.hop_limit = 11;
  h.traffic_class = 12;
  h.pkey = 0x8001;
  return h;
}

}  // namespace

TEST_CASE("shm wire: ports of one process, all header fields, all sizes") {
  std::string name = fresh_wire();
  {
    Arena arena;
    auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, &arena);
    auto b = Wire::named(name)->attach(mac(2).bytes, nullptr, &arena);
    CHECK(exists(path_of(name)));
    struct stat status{};
    REQUIRE(::stat(path_of(name).c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK_THROWS_AS(Wire::named(name)->attach(mac(2).bytes, nullptr, &arena), Error);
    Keep keep;
    uint8_t* memory = arena.alloc(1 << 20);
    uint32_t psn = 0;
    for (int round = 0; round < 400; ++round)
      for (uint32_t bytes : {0u, 1u, 7u, 8u, 32u, 33u, 100u, 512u, 513u, 4096u, 9000u, 1u << 20}) {
        if (bytes > 100000 && round > 5) continue;
        auto data = pattern(bytes, psn);
        const bool in_place = round % 2;
        if (in_place && bytes) std::memcpy(memory, data.data(), bytes);
        Header header = round % 3 == 0 ? everything(psn, bytes) : header_to(mac(2), mac(1), psn, bytes);
        Span spans[3] = {{in_place ? memory : data.data(), bytes / 3}, {}, {}};
        spans[1] = {spans[0].at + bytes / 3, bytes / 3};
        spans[2] = {spans[1].at + bytes / 3, bytes - bytes / 3 * 2};
        REQUIRE(a->send(header, spans, bytes ? 3 : 0));
        keep.packets.clear();
        REQUIRE(b->pending());
        REQUIRE(b->receive(keep, 10) == 1);
        REQUIRE(same(keep.packets[0].header, header));
        REQUIRE(keep.packets[0].payload == data);
        REQUIRE_FALSE(b->pending());
        ++psn;
      }
    CHECK(a->counts().dropped == 0);
  }
  CHECK_FALSE(exists(path_of(name)));
}

TEST_CASE("shm wire: a full ring refuses, and takes again what is read; order is kept around its end") {
  std::string name = fresh_wire();
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  auto b = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
  Keep keep;
  uint32_t sent = 0;
  for (int round = 0; round < 20; ++round) {
    for (;;) {
      auto data = pattern(sent % 50 * 20, sent);
      if (!send(*a, header_to(mac(2), mac(1), sent, static_cast<uint32_t>(data.size())), data)) break;
      ++sent;
    }
    CHECK(a->blocked());
    while (b->receive(keep, static_cast<unsigned>(round) + 1)) {
      if (round < 19 && keep.packets.size() + 10 > sent) break;
    }
  }
  CHECK(keep.packets.size() == sent);
  CHECK(sent > 1000);
  bool good = true;
  for (uint32_t i = 0; i < sent; ++i)
    good = good && keep.packets[i].header.psn == i && keep.packets[i].payload == pattern(i % 50 * 20, i);
  CHECK(good);
}

TEST_CASE("shm wire: two processes exchange packets, in place and copied") {
  for (bool in_place : {true, false}) {
    CAPTURE(in_place);
    std::string name = fresh_wire();
    Child child([&] { return echo(name, in_place, 999); });
    REQUIRE(child.hear() == 'r');
    Arena arena;
    auto port = Wire::named(name)->attach(mac(1).bytes, nullptr, in_place ? &arena : nullptr);
    uint8_t* memory = arena.alloc(1 << 20);
    uint32_t psn = 0;
    Keep keep;
    for (uint32_t bytes :
         {0u, 8u, 500u, 1000u, 4096u, 60000u, 1u << 20, 8u, 1u << 20, 1u << 20, 1u << 20, 1u << 20, 8u}) {
      auto data = pattern(bytes, psn + 5);
      if (bytes) std::memcpy(memory, data.data(), bytes);
      Span span{memory, bytes};
      ++psn;
      REQUIRE(port->send(header_to(mac(2), mac(1), psn, bytes), &span, bytes ? 1 : 0));
      keep.packets.clear();
      REQUIRE(eventually([&] { return port->receive(keep, 4) > 0; }));
      REQUIRE(keep.packets.size() == 1);
      CHECK(keep.packets[0].header.psn == psn);
      CHECK(keep.packets[0].payload == data);
    }
    REQUIRE(port->send(header_to(mac(2), mac(1), 999, 0), nullptr, 0));
    CHECK(child.wait() == 0);
    port.reset();
    CHECK_FALSE(exists(path_of(name)));
  }
}

TEST_CASE("shm wire: what a process sent before it left is read") {
  std::string name = fresh_wire();
  auto port = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  for (int times = 0; times < 3; ++times) {
    Child child([&] {
      auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
      std::vector<uint8_t> data(8, 42);
      for (uint32_t i = 0; i < 100; ++i) send(*mine, header_to(mac(1), mac(2), i, 8), data);
      return 0;
    });
    CHECK(child.wait() == 0);
    Keep keep;
    while (port->receive(keep, 7)) {
    }
    CHECK(keep.packets.size() == 100);
  }
  std::vector<uint8_t> data(8);
  CHECK(send(*port, header_to(mac(2), mac(1), 0, 8), data));
  CHECK(port->counts().dropped == 1);
}

TEST_CASE("shm wire: a killed peer loses its place, and the wire goes on") {
  std::string name = fresh_wire();
  auto port = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  for (int times = 0; times < 3; ++times) {
    Child child([&] {
      auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
      std::vector<uint8_t> data(8, 1);
      send(*mine, header_to(mac(1), mac(2), 77, 8), data);
      Child::say('r');
      ::pause();
      return 0;
    });
    REQUIRE(child.hear() == 'r');
    std::vector<uint8_t> data(5000);
    REQUIRE(send(*port, header_to(mac(2), mac(1), 0, 5000), data));
    CHECK_THROWS_AS(Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr), Error);
    child.kill();
    // Sends to it fill its ring, and are then lost instead of refused for ever.
    uint64_t before = port->counts().dropped;
    CHECK(eventually([&] {
      send(*port, header_to(mac(2), mac(1), 0, 5000), data);
      return port->counts().dropped > before + 3;
    }));
    CHECK_FALSE(port->blocked());
    Keep keep;
    while (port->receive(keep, 16)) {
    }
    for (auto& packet : keep.packets) CHECK(packet.header.psn == 77);
    // Its MAC and its place are free.
    auto again = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
    Keep arrived;
    CHECK(again->receive(arrived, 16) == 0);
    REQUIRE(send(*port, header_to(mac(2), mac(1), 5, 8), data = std::vector<uint8_t>(8, 3)));
    CHECK(again->receive(arrived, 16) == 1);
    REQUIRE(send(*again, header_to(mac(1), mac(2), 6, 8), data));
    keep.packets.clear();
    CHECK(port->receive(keep, 16) == 1);
    CHECK(keep.packets[0].header.psn == 6);
  }
  port.reset();
  CHECK_FALSE(exists(path_of(name)));
}

TEST_CASE("shm wire: a process killed anywhere does not stop the other") {
  std::string name = fresh_wire();
  auto port = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  uint64_t got = 0;
  for (int times = 0; times < 40; ++times) {
    Child child([&] {
      auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
      Child::say('r');
      auto data = pattern(3000, 9);
      struct Nothing final : Sink {
        void packet(const Header&, const Span*, size_t) override {}
      } sink;
      for (uint32_t i = 0;; ++i) {
        Span span{data.data(), i % 3000};
        mine->send(header_to(mac(1), mac(2), i, i % 3000), &span, i % 3000 ? 1 : 0);
        mine->receive(sink, 4);
      }
      return 0;
    });
    REQUIRE(child.hear() == 'r');
    auto expected = pattern(3000, 9);
    struct Check final : Sink {
      const std::vector<uint8_t>* expected;
      bool good = true;
      void packet(const Header& header, const Span* payload, size_t spans) override {
        good = good && (spans ? payload->bytes : 0) == header.payload &&
               (!spans || std::memcmp(payload->at, expected->data(), payload->bytes) == 0);
      }
    } check;
    check.expected = &expected;
    auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(500 + 137 * times);
    std::vector<uint8_t> data(600);
    while (std::chrono::steady_clock::now() < end || got == 0) {
      got += port->receive(check, 16);
      send(*port, header_to(mac(2), mac(1), 0, 600), data);
    }
    child.kill();
    while (port->receive(check, 16)) {
    }
    CHECK(check.good);
  }
}

// A process joins the wire and is killed. Whether its file stays: any other program of this user that joins a wire
// clears it away, and one may do so at this very moment.
bool left_behind(const std::string& name) {
  for (int i = 0; i < 20; ++i) {
    Child child([&] {
      auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
      Child::say('r');
      ::pause();
      return 0;
    });
    REQUIRE(child.hear() == 'r');
    child.kill();
    if (exists(path_of(name))) return true;
  }
  return false;
}

TEST_CASE("shm wire: a file whose ports are all dead is taken over, and removed by the last") {
  std::string name = fresh_wire();
  CHECK(left_behind(name));
  {
    auto port = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
    CHECK(exists(path_of(name)));
  }
  CHECK_FALSE(exists(path_of(name)));
}

TEST_CASE("shm wire: files that are no wire, or another version's") {
  std::string name = fresh_wire();
  auto write = [&](const void* data, size_t bytes) {
    int fd = ::open(path_of(name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(::write(fd, data, bytes) == static_cast<ssize_t>(bytes));
    ::close(fd);
  };
  char text[64] = "this is somebody's file";
  write(text, sizeof text);
  CHECK_THROWS_WITH_AS(Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr), doctest::Contains("not a wire"),
                       Error);
  CHECK(exists(path_of(name)));
  // Another version's, that nobody uses: replaced.
  struct {
    uint64_t magic = shm::magic;
    uint32_t version = 0;
    uint32_t bytes = 1;
    char rest[100] = {};
  } old;
  write(&old, sizeof old);
  {
    auto port = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  }
  CHECK_FALSE(exists(path_of(name)));
  // ... that somebody uses: refused.
  write(&old, sizeof old);
  Child child([&] {
    int fd = ::open(path_of(name).c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = 1;
    lock.l_len = 1;
    if (::fcntl(fd, F_SETLK, &lock) != 0) return 1;
    Child::say('r');
    ::pause();
    return 0;
  });
  REQUIRE(child.hear() == 'r');
  CHECK_THROWS_WITH_AS(Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr), doctest::Contains("another version"),
                       Error);
  child.kill();
  // An empty one: its creator died.
  ::unlink(path_of(name).c_str());
  write("", 0);
  {
    auto port = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  }
  CHECK_FALSE(exists(path_of(name)));
}

TEST_CASE("shm wire: the wire is full, and says so") {
  std::string name = fresh_wire();
  std::vector<std::unique_ptr<Port>> ports;
  for (unsigned i = 0; i < shm::max_ports; ++i)
    ports.push_back(Wire::named(name)->attach(mac(static_cast<uint8_t>(i)).bytes, nullptr, nullptr));
  CHECK_THROWS_WITH_AS(Wire::named(name)->attach(mac(200).bytes, nullptr, nullptr), doctest::Contains("full"), Error);
  ports.pop_back();
  ports.push_back(Wire::named(name)->attach(mac(200).bytes, nullptr, nullptr));
  // Every port reaches every other.
  std::vector<uint8_t> data(8);
  Keep keep;
  for (auto& port : ports) {
    REQUIRE(send(*port, header_to(mac(0), mac(1), 0, 8), data));
    CHECK(ports[0]->receive(keep, 4) == 1);
  }
}

TEST_CASE("shm wire: a reader leaves what is longer than it wants, and all behind it") {
  std::string name = fresh_wire();
  Arena arena;
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, &arena);
  auto b = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
  uint8_t* memory = arena.alloc(1 << 20);
  for (uint32_t bytes : {100u, 8192u, 8193u, 10u}) {
    Span span{memory, bytes};
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

TEST_CASE("shm wire: recall takes back what is not read") {
  std::string name = fresh_wire();
  Arena arena;
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, &arena);
  auto b = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
  uint8_t* memory = arena.alloc(1 << 20);
  for (uint32_t i = 0; i < 4; ++i) {
    Span span{memory + i * 10000, 10000};
    REQUIRE(a->send(header_to(mac(2), mac(1), i, 10000), &span, 1));
  }
  a->recall(memory + 10000, 10001);
  CHECK(a->counts().recalled == 2);
  a->recall(memory + 10000, 10001);
  CHECK(a->counts().recalled == 2);
  Keep keep;
  while (b->receive(keep, 10)) {
  }
  REQUIRE(keep.packets.size() == 2);
  CHECK(keep.packets[0].header.psn == 0);
  CHECK(keep.packets[1].header.psn == 3);
}

TEST_CASE("shm wire: recall waits for a reader, but not for a dead one") {
  std::string name = fresh_wire();
  Arena arena;
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, &arena);
  uint8_t* memory = arena.alloc(1 << 20);
  for (bool dies : {false, true}) {
    CAPTURE(dies);
    Child child([&] {
      auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
      Child::say('r');
      Keep keep;
      keep.during = [&] {
        Child::say('c');
        if (dies) ::pause();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        Child::say('e');
      };
      while (!mine->receive(keep, 1)) {
      }
      return 0;
    });
    REQUIRE(child.hear() == 'r');
    Span span{memory, 10000};
    REQUIRE(a->send(header_to(mac(2), mac(1), 0, 10000), &span, 1));
    REQUIRE(child.hear() == 'c');
    std::thread killer([&] {
      if (!dies) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ::kill(child.pid(), SIGKILL);
    });
    a->recall(memory, 1);
    killer.join();
    CHECK(a->counts().recalled == 0);
    if (!dies) CHECK(child.hear() == 'e');
    child.wait();
  }
}

TEST_CASE("shm wire: memory that others may not open goes by copy") {
  // A descriptor that is not sealed against shrinking is one that a peer must not map.
  std::string name = fresh_wire();
  Arena arena;
  int fd = ::memfd_create("unsealed", MFD_CLOEXEC);
  REQUIRE(::ftruncate(fd, 1 << 20) == 0);
  auto* memory = static_cast<uint8_t*>(::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  arena.adopt(fd, 0, memory, 1 << 20);
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, &arena);
  auto b = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
  auto data = pattern(1 << 20, 1);
  std::memcpy(memory, data.data(), 1 << 20);
  Span span{memory, 1 << 20};
  Keep keep;
  REQUIRE(a->send(header_to(mac(2), mac(1), 0, 1 << 20), &span, 1));
  b->receive(keep, 4);
  CHECK(keep.packets.empty());  // lost, as the peer found out
  for (uint32_t i = 1; i < 20; ++i) {
    REQUIRE(a->send(header_to(mac(2), mac(1), i, 1 << 20), &span, 1));
    b->receive(keep, 4);
    REQUIRE(keep.packets.size() == i);
    CHECK(keep.packets.back().payload == data);
  }
  // As many as there is room for, then it refuses.
  uint32_t sent = 0;
  while (sent < 100 && a->send(header_to(mac(2), mac(1), sent, 1 << 20), &span, 1)) ++sent;
  CHECK(sent >= 2);
  CHECK(sent < 100);
  keep.packets.clear();
  while (b->receive(keep, 4)) {
  }
  CHECK(keep.packets.size() == sent);
  arena.abandon(memory);
  ::munmap(memory, 1 << 20);
  ::close(fd);
}

TEST_CASE("shm wire: a forked child leaves the parent's ports alone") {
  std::string name = fresh_wire();
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  Child child([&] {
    auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
    std::vector<uint8_t> data(8);
    send(*mine, header_to(mac(1), mac(2), 3, 8), data);
    return 0;
  });
  CHECK(child.wait() == 0);
  Keep keep;
  CHECK(a->receive(keep, 10) == 1);
  Child observer([&] {
    try {
      auto mine = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
    } catch (const Error&) {
      return 0;
    }
    return 1;
  });
  CHECK(observer.wait() == 0);
}

TEST_CASE("shm wire: what a broken peer writes is refused, not followed") {
  std::string name = fresh_wire();
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  for (unsigned seed = 0; seed < 60; ++seed) {
    Child child([&] {
      auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
      std::vector<uint8_t> data(8);
      send(*mine, header_to(mac(1), mac(2), 1, 8), data);
      int fd = ::open(path_of(name).c_str(), O_RDWR | O_CLOEXEC);
      void* at = ::mmap(nullptr, sizeof(shm::File), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
      if (at == MAP_FAILED) return 1;
      auto* file = static_cast<shm::File*>(at);
      shm::Life life = 0;
      for (auto& port : file->header.port)
        if (port.mac[5] == 2 && port.life) life = port.life;
      for (unsigned i = 0; i < shm::max_rings; ++i) {
        if (file->header.ring[i].sender != life) continue;
        auto noise = pattern(sizeof(shm::Line) * 400, seed);
        auto* line = reinterpret_cast<uint8_t*>(&file->ring[i].line[2]);
        for (size_t l = 0; l < 400; ++l) {
          uint8_t* first = noise.data() + l * 64;
          if (seed % 4) first[1] %= 3;                                                 // a kind that there is
          if (seed % 4) first[0] = 1 + first[0] % 4;                                   // lines that there are
          if (seed % 3 == 1) first[16] %= 250, first[17] = first[18] = first[19] = 0;  // a payload that may fit
          if (seed % 3 == 2) std::memset(first + 24, 0, 4), first[28] %= 3, first[29] = first[30] = first[31] = 0;
        }
        std::memcpy(line, noise.data(), noise.size());
      }
      return 0;
    });
    CHECK(child.wait() == 0);
    Keep keep;
    unsigned rounds = 0;
    while (a->receive(keep, 16) && ++rounds < 1000) {
    }
    CHECK(rounds < 1000);
  }
  auto b = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
  std::vector<uint8_t> data(8);
  REQUIRE(send(*b, header_to(mac(1), mac(2), 7, 8), data));
  Keep keep;
  CHECK(a->receive(keep, 1) == 1);
}

TEST_CASE("shm wire: records of rings and ports that lead nowhere are no rings") {
  std::string name = fresh_wire();
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  auto b = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
  int fd = ::open(path_of(name).c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  void* at = ::mmap(nullptr, sizeof(shm::File), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  REQUIRE(at != MAP_FAILED);
  auto& header = static_cast<shm::File*>(at)->header;
  std::vector<uint8_t> data(8);
  Keep keep;
  for (uint32_t named : {shm::max_rings + 1, 0x40000000u, 0xffffffffu, 1u}) {
    header.port[0].from[5] = named;  // of a port that there is not
    header.port[0].changes.fetch_add(1);
    // Nor does a record that names ports past the last one stand for a ring in use.
    for (unsigned i = 1; i < 4; ++i) {
      header.ring[i].sender = 77;
      header.ring[i].sender_port = 0xffff;
      header.ring[i].receiver_port = static_cast<uint16_t>(named);
      header.ring[i].flags = shm::Adopted;
    }
    REQUIRE(send(*b, header_to(mac(1), mac(2), 1, 8), data));
    keep.packets.clear();
    REQUIRE(a->receive(keep, 16) == 1);
    CHECK(header.port[0].from[5] == 0);
  }
  ::munmap(at, sizeof(shm::File));
  ::close(fd);
}

TEST_CASE("shm wire: any bytes in the header cost packets, and nothing else") {
  // In processes of their own: one that died there would take the tests with it.
  for (unsigned seed = 0; seed < 24; ++seed) {
    Child child([&] {
      std::string name = fresh_wire();
      Arena arena;
      auto wire = Wire::named(name);
      auto a = wire->attach(mac(1).bytes, nullptr, &arena);
      auto b = wire->attach(mac(2).bytes, nullptr, &arena);
      int fd = ::open(path_of(name).c_str(), O_RDWR | O_CLOEXEC);
      void* at = ::mmap(nullptr, sizeof(shm::File), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
      if (at == MAP_FAILED) return 1;
      auto* bytes = static_cast<uint8_t*>(at);
      auto* header = static_cast<shm::FileHeader*>(at);
      std::vector<uint8_t> data(6000);
      Keep keep;
      unsigned round = 0;
      for (uint8_t byte : pattern(3000, seed)) {
        auto noise = pattern(8, ++round * 97 + seed);
        uint32_t where;
        std::memcpy(&where, noise.data(), 4);
        switch (seed % 3) {
          case 0:  // anywhere
            bytes[16 + where % (sizeof(shm::FileHeader) - 16)] = byte;
            break;
          case 1:  // the ports in use
            bytes[offsetof(shm::FileHeader, port) + where % (2 * sizeof(shm::PortRecord))] = byte;
            break;
          case 2:  // the rings in use
            bytes[offsetof(shm::FileHeader, ring) + where % (4 * sizeof(shm::RingRecord))] = byte;
            header->port[round % 2].from[where % shm::max_ports] = noise[4] % 8;
        }
        header->port[0].changes.fetch_add(1);
        header->port[1].changes.fetch_add(1);
        data.resize(round % 7 ? 8 : 6000);
        send(*a, header_to(mac(2), mac(1), round, static_cast<uint32_t>(data.size())), data);
        send(*b, header_to(mac(1), mac(2), round, static_cast<uint32_t>(data.size())), data);
        a->receive(keep, 16);
        b->receive(keep, 16);
        keep.packets.clear();
        if (round % 500 == 0) {
          try {
            auto other = wire->attach(mac(static_cast<uint8_t>(3 + round / 500)).bytes, nullptr, &arena);
          } catch (const Error&) {
          }
        }
      }
      a.reset();
      b.reset();
      ::unlink(path_of(name).c_str());
      return 0;
    });
    CHECK(child.wait() == 0);
  }
}

TEST_CASE("shm wire: a process that keeps the lock is waited for with a bound, and named") {
  std::string name = fresh_wire();
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  Child child([&] {
    int fd = ::open(path_of(name).c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    if (::fcntl(fd, F_SETLK, &lock) != 0) return 1;
    Child::say('r');
    ::pause();
    return 0;
  });
  REQUIRE(child.hear() == 'r');
  const std::string who = "process " + std::to_string(child.pid());
  auto join = [&](uint8_t last) { Wire::named(name)->attach(mac(last).bytes, nullptr, nullptr); };
  auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH_AS(join(2), doctest::Contains(who.c_str()), Error);
  CHECK(std::chrono::steady_clock::now() - start > std::chrono::seconds(1));
  // What the interpreter wants meanwhile comes through.
  Wire::while_waiting([] { throw std::runtime_error("interrupted"); });
  CHECK_THROWS_WITH_AS(join(2), "interrupted", std::runtime_error);
  Child newcomer([&] {  // which has to open the file first
    try {
      join(3);
    } catch (const std::runtime_error& error) {
      return std::string(error.what()) == "interrupted" ? 0 : 1;
    }
    return 2;
  });
  CHECK(newcomer.wait() == 0);
  Wire::while_waiting(nullptr);
  // Packets are lost: a send does not wait.
  std::vector<uint8_t> data(8);
  CHECK(send(*a, header_to(mac(9), mac(1), 1, 8), data));
  CHECK(a->counts().dropped == 1);
  child.kill();
  join(2);
}

TEST_CASE("shm wire: what killed processes left is removed when another wire is joined") {
  std::string dead = fresh_wire(), alive = fresh_wire(), other = fresh_wire();
  Child living([&] {
    auto mine = Wire::named(alive)->attach(mac(2).bytes, nullptr, nullptr);
    Child::say('r');
    ::pause();
    return 0;
  });
  REQUIRE(living.hear() == 'r');
  CHECK(left_behind(dead));
  // Somebody's file whose name begins alike.
  std::string text = "/dev/shm/userdma-notes-" + std::to_string(::getpid());
  int fd = ::open(text.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::ftruncate(fd, sizeof(shm::File)) == 0);
  REQUIRE(::pwrite(fd, "notes", 5, 0) == 5);
  ::close(fd);
  auto mine = Wire::named(other)->attach(mac(1).bytes, nullptr, nullptr);
  CHECK_FALSE(exists(path_of(dead)));
  CHECK(exists(path_of(alive)));
  CHECK(exists(path_of(other)));
  CHECK(exists(text));
  ::unlink(text.c_str());
  // This process's own is not touched, nor are its locks lost.
  Wire::remove_abandoned();
  CHECK(exists(path_of(other)));
  Child observer([&] {
    Wire::remove_abandoned();
    return exists(path_of(other)) ? 0 : 1;
  });
  CHECK(observer.wait() == 0);
}

TEST_CASE("shm wire: joins race with the removal of what is left") {
  std::string name = fresh_wire();
  auto race = [&](uint8_t last) {
    return [&name, last] {
      for (int i = 0; i < 300; ++i) {
        auto mine = Wire::named(name)->attach(mac(last).bytes, nullptr, nullptr);
        // It is on the file that has the name: nobody took it for one that is left.
        struct stat status{};
        if (::stat(path_of(name).c_str(), &status) != 0) return 1;
      }
      return 0;
    };
  };
  Child one(race(1)), two(race(2));
  for (int i = 0; i < 2000; ++i) Wire::remove_abandoned();
  CHECK(one.wait() == 0);
  CHECK(two.wait() == 0);
  CHECK_FALSE(exists(path_of(name)));
}

TEST_CASE("shm wire: what is in the place of the file is named") {
  std::string name = fresh_wire();
  REQUIRE(::mkfifo(path_of(name).c_str(), 0600) == 0);
  auto join = [&] { Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr); };
  CHECK_THROWS_WITH_AS(join(), doctest::Contains("is a FIFO"), Error);
  CHECK(exists(path_of(name)));
  ::unlink(path_of(name).c_str());
  REQUIRE(::symlink("/dev/shm", path_of(name).c_str()) == 0);
  CHECK_THROWS_WITH_AS(join(), doctest::Contains("a symbolic link"), Error);
  ::unlink(path_of(name).c_str());
  REQUIRE(::mkdir(path_of(name).c_str(), 0700) == 0);
  CHECK_THROWS_WITH_AS(join(), doctest::Contains("Is a directory"), Error);
  ::rmdir(path_of(name).c_str());
}

TEST_CASE("shm wire: a file that was removed while NICs are on it") {
  std::string name = fresh_wire();
  auto a = Wire::named(name)->attach(mac(1).bytes, nullptr, nullptr);
  ::unlink(path_of(name).c_str());
  // The next process gets a file of its own, which this one's end leaves alone.
  Child child([&] {
    auto mine = Wire::named(name)->attach(mac(2).bytes, nullptr, nullptr);
    Child::say('r');
    ::pause();
    return 0;
  });
  REQUIRE(child.hear() == 'r');
  // Said once, on standard error.
  char path[] = "/tmp/userdma-test-XXXXXX";
  int log = ::mkstemp(path), before = ::dup(2);
  ::dup2(log, 2);
  std::vector<uint8_t> data(8);
  for (int i = 0; i < 3; ++i) send(*a, header_to(mac(2), mac(1), 1, 8), data);
  ::dup2(before, 2);
  ::close(before);
  char text[4096] = {};
  REQUIRE(::pread(log, text, sizeof text - 1, 0) > 0);
  ::close(log);
  ::unlink(path);
  const std::string said(text);
  CHECK(said.find("lost its file") != std::string::npos);
  CHECK(said.find("lost its file") == said.rfind("lost its file"));
  a.reset();
  CHECK(exists(path_of(name)));
  child.kill();
  Wire::remove_abandoned();
  CHECK_FALSE(exists(path_of(name)));
}
