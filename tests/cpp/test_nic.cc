// Who advances a soft NIC.
#include <sys/resource.h>
#include <sys/syscall.h>

#include "host/function.h"
#include "nic_support.h"
#include "soft/wire/faults.h"

using namespace nic_support;   // NOLINT
using namespace wire_support;  // NOLINT

#if defined(__SANITIZE_THREAD__)
// Tests fork while NICs have threads, and the children start NICs of their own.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace {

using Clocks = std::chrono::steady_clock;

double seconds_since(Clocks::time_point start) { return std::chrono::duration<double>(Clocks::now() - start).count(); }

struct Two {
  explicit Two(std::shared_ptr<Wire> wire, bool thread, std::shared_ptr<Clock> clock = real_clock())
      : a(wire, 1, clock, thread), b(wire, 2, clock, thread) {
    a.connect(2);
    b.connect(1);
  }
  Machine a, b;
};

}  // namespace

TEST_CASE("nic: within a process, one thread that rings does the work of all NICs on the wire") {
  Two two(Wire::make(), false);
  auto data = pattern(100000, 1);
  std::memcpy(two.a.memory, data.data(), data.size());
  two.b.receive(1000, 100000);
  two.a.post(Op::Send, 0, 100000);
  CHECK(eventually([&] {
    two.a.nic->advance();
    return two.a.sent == 1;
  }));
  CHECK(two.a.send_status == Status::Ok);
  CHECK(two.b.received == 1);
  CHECK(two.b.received_bytes == 100000);
  CHECK(std::memcmp(two.b.memory + 1000, data.data(), data.size()) == 0);
  two.a.post(Op::Read, 200000, 50000, 1000);
  CHECK(eventually([&] { return two.a.nic->advance(), two.a.sent == 2; }));
  CHECK(std::memcmp(two.a.memory + 200000, data.data(), 50000) == 0);
}

TEST_CASE("nic: its threads do the work while the program does nothing") {
  for (bool shm : {false, true}) {
    CAPTURE(shm);
    Two two(shm ? Wire::named(fresh_wire()) : Wire::make(), true);
    for (unsigned i = 1; i <= 20; ++i) {
      // Long enough for both threads to sleep, or not.
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 4 * 3));
      two.a.memory[0] = static_cast<uint8_t>(i);
      two.a.post(Op::Write, 0, 8, 64);
      bool done = eventually([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        return two.a.sent == i;
      });
      REQUIRE(done);
      CHECK(two.a.send_status == Status::Ok);
      CHECK(two.b.memory[64] == i);
    }
  }
}

TEST_CASE("nic: its thread, which sleeps without end, is woken by a timer that another thread's turn set") {
  auto wire = Wire::make();
  Machine a(wire, 1, real_clock(), true), b(wire, 2, real_clock(), true);
  a.connect(2, 0);  // no ACK timeout: nothing but an answer gives it anything to do
  b.connect(1);
  for (unsigned i = 1; i <= 20; ++i) {
    {
      std::lock_guard guard(b.nic->lock());  // so that nobody answers before the other one sleeps
      a.post(Op::Send, 0, 8);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // b has no receive. Its thread says so, and does a's work on that too: to send again after a while.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    b.receive(64, 8);
    bool done = eventually([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      return a.sent == i;
    });
    REQUIRE(done);
    CHECK(a.send_status == Status::Ok);
  }
}

TEST_CASE("nic: an idle NIC costs nothing") {
  auto wire = Wire::named(fresh_wire());
  Two two(wire, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  getrusage(RUSAGE_SELF, &after);
  // Its threads slept all the time: no switch but of this thread, and of whatever a sanitizer runs.
  CHECK(after.ru_nvcsw - before.ru_nvcsw < 20);
}

TEST_CASE("nic: a process whose program sleeps is written to and read from by another") {
  std::string name = fresh_wire();
  Child child([&] {
    Machine b(Wire::named(name), 2, real_clock(), true);
    b.connect(1);
    {
      std::lock_guard guard(b.nic->lock());  // its thread may read it from here on
      b.memory[100] = 42;
    }
    Child::say('r');
    ::pause();
    return 0;
  });
  REQUIRE(child.hear() == 'r');
  Machine a(Wire::named(name), 1, real_clock(), true);
  a.connect(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto data = pattern(1 << 20, 3);
  std::memcpy(a.memory, data.data(), data.size());
  a.post(Op::Write, 0, 1 << 20, 1 << 20);
  a.post(Op::Read, 2 << 20, 1 << 20, 1 << 20);
  a.post(Op::Read, 3 << 20, 8, 100);
  CHECK(eventually([&] { return a.nic->advance(), a.sent == 3; }));
  CHECK(a.send_status == Status::Ok);
  CHECK(std::memcmp(a.memory + (2 << 20), data.data(), data.size()) == 0);
  CHECK(a.memory[3 << 20] == 42);
  child.kill();  // before this side leaves, which then removes the wire
}

TEST_CASE("nic: two processes that poll answer each other") {
  std::string name = fresh_wire();
  constexpr unsigned times = 3000;
  auto play = [](Machine& m, bool first) {
    for (unsigned i = 0; i < 16; ++i) m.receive(4096 + i * 64, 64);
    for (unsigned i = 1; i <= times; ++i) {
      if (first) m.post(Op::Send, 0, 8);
      if (!eventually([&] { return m.nic->advance(), m.received >= i; }) || m.is_failed) return false;
      m.receive(4096, 64);
      if (!first) m.post(Op::Send, 0, 8);
    }
    return eventually([&] { return m.nic->advance(), m.sent == times; });
  };
  Child child([&] {
    Machine b(Wire::named(name), 2, real_clock(), true);
    b.connect(1);
    Child::say('r');
    bool good = play(b, false);
    Child::say('d');
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return good ? 0 : 1;
  });
  REQUIRE(child.hear() == 'r');
  Machine a(Wire::named(name), 1, real_clock(), true);
  a.connect(2);
  CHECK(play(a, true));
  CHECK(child.hear() == 'd');
  CHECK(child.wait() == 0);
}

TEST_CASE("nic: a killed peer makes entries fail after the retries, and the wire serves the next one") {
  std::string name = fresh_wire();
  Machine a(Wire::named(name), 1, real_clock(), true);
  for (int times = 0; times < 2; ++times) {
    Child child([&] {
      Machine b(Wire::named(name), 2, real_clock(), true);
      b.connect(1);
      Child::say('r');
      ::pause();
      return 0;
    });
    REQUIRE(child.hear() == 'r');
    {
      std::lock_guard guard(a.nic->lock());
      Attributes reset;
      reset.state = State::Reset;
      a.nic->engine().modify(Machine::qpn, reset, Attributes::HasState);
    }
    a.connect(2);
    unsigned before = a.sent;
    a.post(Op::Write, 0, 100000, 0);
    CHECK(eventually([&] { return a.nic->advance(), a.sent == before + 1; }));
    CHECK(a.send_status == Status::Ok);
    child.kill();
    {
      std::lock_guard guard(a.nic->lock());
      Attributes sooner;
      sooner.timeout = 8;  // 1 ms
      a.nic->engine().modify(Machine::qpn, sooner, Attributes::HasTimeout);
    }
    a.post(Op::Write, 0, 100000, 0);
    CHECK(eventually([&] { return a.sent == before + 2; }));  // by its thread alone
    CHECK(a.send_status == Status::RetryExceeded);
    // Nothing of the packet is left that would hold the memory.
    auto start = Clocks::now();
    a.nic->recall(a.memory, Machine::bytes);
    CHECK(seconds_since(start) < 60);
  }
}

TEST_CASE("nic: on a virtual clock seven retries take no time, and every run is the same") {
  auto run = [] {
    auto clock = std::make_shared<VirtualClock>();
    Faults faults;
    faults.loss = 0.2;
    faults.reorder = 0.1;
    faults.duplicate = 0.1;
    faults.delay = 0.2;
    faults.corrupt = 0.05;
    faults.seed = 99;
    auto wire = std::make_shared<FaultyWire>(Wire::make(), faults, clock);
    Two two(wire, true, clock);
    auto data = pattern(300000, 5);
    std::memcpy(two.a.memory, data.data(), data.size());
    two.b.receive(0, 300000);
    two.a.post(Op::Send, 0, 300000);
    auto start = Clocks::now();
    while (two.a.sent == 0 && seconds_since(start) < 600) two.a.nic->advance();
    CHECK(two.a.send_status == Status::Ok);
    CHECK(two.b.received == 1);
    CHECK(std::memcmp(two.b.memory, data.data(), data.size()) == 0);
    return clock->now();
  };
  uint64_t first = run();
  CHECK(first > 0);
  CHECK(run() == first);

  auto clock = std::make_shared<VirtualClock>();
  Machine a(Wire::make(), 1, clock, true);
  a.connect(9, 14);
  a.post(Op::Send, 0, 8);
  auto start = Clocks::now();
  while (a.sent == 0 && seconds_since(start) < 600) a.nic->advance();
  CHECK(a.send_status == Status::RetryExceeded);
  // The eighth expiry of 4.096 us * 2^14 each.
  CHECK(clock->now() >= 8 * 67108864ull);
  CHECK(clock->now() < 8 * 4 * 67108864ull);
  CHECK_FALSE(a.nic->advance());
}

TEST_CASE("nic: a program that rests is woken by what its NIC did, and leaves the timers to its thread") {
  Two two(Wire::named(fresh_wire()), true);
  // Rests that end by their time, of those until `done`.
  const auto rests = [](Machine& m, const std::function<bool()>& done) {
    unsigned late = 0;
    for (;;) {
      const uint32_t ticket = m.nic->ticket();
      if (done()) return late;
      const auto start = Clocks::now();
      m.nic->rest(ticket, 10'000'000'000);
      late += seconds_since(start) > 9;
    }
  };
  for (unsigned i = 1; i <= 20; ++i) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
      two.b.post(Op::Write, 0, 4096, 0);
    });
    two.a.receive(0, 8);
    two.a.post(Op::Read, 8192, 4096, 0);
    CHECK(rests(two.a, [&] { return two.a.sent == i; }) == 0);
    CHECK(rests(two.b, [&] { return two.b.sent == i; }) == 0);
    other.join();
  }
  Machine dead(Wire::make(), 1, std::make_shared<RealClock>(), true);
  dead.connect(9, 10, 2);  // nobody: 3 times 4 ms
  dead.post(Op::Send, 0, 8);
  CHECK(rests(dead, [&] { return dead.sent == 1; }) == 0);
  CHECK(dead.send_status == Status::RetryExceeded);
}

TEST_CASE("nic: what has no bound is not done in a brief look, which says so") {
  auto clock = std::make_shared<VirtualClock>();
  Machine a(Wire::make(), 1, clock, true);
  a.connect(9, 14);
  a.post(Op::Send, 0, 8);
  const userdma::host::Idle idle = a.nic->idle();
  for (int i = 0; i < 100; ++i) CHECK(idle.run(idle.self, true));
  CHECK(clock->now() == 0);
  CHECK(eventually([&] { return idle.run(idle.self, false), a.sent == 1; }));
}

TEST_CASE("nic: after the program stopped polling, its thread takes over") {
  Two two(Wire::named(fresh_wire()), true);
  for (int i = 0; i < 5; ++i) {
    auto end = Clocks::now() + std::chrono::milliseconds(20);
    while (Clocks::now() < end) {
      two.a.nic->advance();
      two.b.nic->advance();
    }
    unsigned before = two.a.sent;
    two.a.post(Op::Write, 0, 4096, 0);
    CHECK(eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return two.a.sent == before + 1;
    }));
  }
}

TEST_CASE("nic: threads that ring, poll, recall and stop at once") {
  for (bool shm : {false, true}) {
    CAPTURE(shm);
    Two two(shm ? Wire::named(fresh_wire()) : Wire::make(), true);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (Machine* m : {&two.a, &two.b})
      threads.emplace_back([&, m] {
        unsigned posted = 0;
        while (!stop) {
          m->post(Op::Write, 0, posted % 3 ? 64 : 20000, 65536);
          ++posted;
          while (!stop && m->sent < posted) m->nic->advance();
        }
      });
    threads.emplace_back([&] {
      while (!stop) {
        two.a.nic->recall(two.a.memory + 30000, 100);
        two.b.nic->advance();
        std::this_thread::yield();
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(eventually([&] { return two.a.sent > 0 && two.b.sent > 0; }));
    two.b.nic->stop();
    two.b.nic->stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    two.a.nic->stop();
    stop = true;
    for (auto& thread : threads) thread.join();
  }
}

// A program that posts a receive for each message it takes never runs out of them, however fast the sender is.
TEST_CASE("nic: a turn that landed a large packet ends, and says that there is more") {
  Two two(Wire::named(fresh_wire()), false);
  for (int i = 0; i < 3; ++i) two.a.post(Op::Write, 0, 100000, 0);
  two.a.post(Op::Write, 0, 8, 0);
  const userdma::host::Idle idle = two.b.nic->idle();
  for (unsigned landed = 1; landed <= 3; ++landed) {
    CHECK(idle.run(idle.self, false));
    CHECK(two.b.nic->port().counts().received == landed);
  }
  CHECK(!idle.run(idle.self, false));
  CHECK(two.b.nic->port().counts().received == 4);
  CHECK(eventually([&] { return two.a.nic->advance(), two.a.sent == 4; }));
  CHECK(two.a.send_status == Status::Ok);
}

TEST_CASE("nic: a closed receive path throws packets away") {
  Two two(Wire::make(), false);
  two.b.nic->ingress(false);
  two.a.post(Op::Write, 0, 8, 0);
  for (int i = 0; i < 100; ++i) two.a.nic->advance();
  CHECK(two.a.sent == 0);
  two.b.nic->ingress(true);
  CHECK(eventually([&] { return two.a.nic->advance(), two.a.sent == 1; }));
  CHECK(two.a.send_status == Status::Ok);
}

TEST_CASE("nic: a forked child leaves the NIC alone, and the parent's goes on") {
  for (bool shm : {false, true}) {
    CAPTURE(shm);
    auto two = std::make_unique<Two>(shm ? Wire::named(fresh_wire()) : Wire::make(), true);
    Child child([&] {
      if (two->a.nic->owned() || two->a.nic->advance()) return 1;
      two->a.post(Op::Write, 0, 8, 0);
      two->a.nic->recall(two->a.memory, 100);
      two->a.nic->stop();
      two.reset();
      return 0;
    });
    CHECK(child.wait() == 0);
    two->a.post(Op::Write, 0, 8, 0);
    CHECK(eventually([&] { return two->a.sent == 1; }));
    CHECK(two->a.send_status == Status::Ok);
  }
}

TEST_CASE("nic: many come and go") {
  auto wire = Wire::make();
  for (int i = 0; i < 50; ++i) {
    Two two(wire, i % 2);
    two.a.post(Op::Write, 0, 1000, 0);
    if (i % 3) CHECK(eventually([&] { return two.a.nic->advance(), two.a.sent == 1; }));
  }
  CHECK_THROWS_AS(([&] {
                    Machine a(wire, 1, real_clock(), true);
                    Machine b(wire, 1, real_clock(), true);
                  }()),
                  userdma::host::Error);
}
