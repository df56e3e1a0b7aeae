// What a forked child finds of what its parent's threads were at: locks free, what is the parent's refused.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "host/fork.h"
#include "host/function.h"
#include "host/relax.h"
#include "soft/clock.h"
#include "soft/nic.h"
#include "soft/wire/faults.h"
#include "soft/wire/tap.h"
#include "wire_support.h"

namespace {

using namespace userdma;
using namespace wire_support;  // NOLINT

constexpr unsigned patience = 60;  // seconds that a child may take before a signal ends it: it hangs

template <class Work>
bool refused(Work&& work) {
  try {
    work();
  } catch (const host::MachineError& error) {
    return std::string(error.what()).find("fork") != std::string::npos;
  }
  return false;
}

TEST_CASE("a fork holds what a process shares: the child finds it free and whole") {
  host::ForkMutex mutex;
  volatile uint64_t one = 0, other = 0;  // the same, but under the lock
  std::atomic<bool> end{false};
  std::thread thread([&] {
    while (!end) {
      std::lock_guard guard(mutex);
      one = one + 1;
      for (int i = 0; i < 1000; ++i) host::relax();
      other = other + 1;
    }
  });
  unsigned whole = 0;
  for (int i = 0; i < 30; ++i) {
    Child child([&] {
      ::alarm(patience);
      std::lock_guard guard(mutex);
      return one == other ? 0 : 1;
    });
    whole += child.wait() == 0;
  }
  end = true;
  thread.join();
  CHECK(whole == 30);
}

TEST_CASE("a fork returns in the parent when the child has let go, however long that takes") {
  const auto done =
      static_cast<std::atomic<bool>*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(done != MAP_FAILED);
  host::AtFork slow([done] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    *done = true;
  });
  Child child([] { return 0; });
  CHECK(*done);
  CHECK(child.wait() == 0);
  ::munmap(done, 4096);
}

TEST_CASE("a fork whose child is killed while it lets go returns") {
  host::AtFork last([] { ::raise(SIGKILL); });
  Child child([] { return 0; });
  CHECK(child.wait() != 0);
}

TEST_CASE("a forked child is refused its parent's wires, taps and clocks") {
  const auto wire = Wire::make();
  const auto clock = std::make_shared<soft::VirtualClock>();
  const auto faulty = std::make_shared<FaultyWire>(wire, Faults{}, std::make_shared<soft::RealClock>());
  auto tap = std::make_unique<Tap>(faulty, mac(1).bytes);
  const auto nic = [](std::shared_ptr<Wire> wire, std::shared_ptr<soft::Clock> clock) {
    soft::Nic made(std::move(wire), std::move(clock), nullptr, {{2, 0, 0, 0, 0, 9}, false});
  };
  uint8_t frame[60] = {2};
  Child child([&] {
    ::alarm(patience);
    if (!refused([&] { nic(wire, std::make_shared<soft::RealClock>()); })) return 1;
    if (!refused([&] { nic(Wire::make(), clock); })) return 2;
    if (!refused([&] { clock->advance(1); })) return 3;
    if (!refused([&] { clock->step(); })) return 4;
    if (!refused([&] { faulty->capture(1); })) return 5;
    if (!refused([&] { faulty->take(); })) return 6;
    if (!refused([&] { Tap again(faulty, mac(2).bytes); })) return 7;
    if (!refused([&] { tap->send_ethernet(frame, sizeof frame); })) return 8;
    if (!refused([&] { tap->receive(); })) return 9;
    tap.reset();
    nic(Wire::make(), std::make_shared<soft::VirtualClock>());
    return 0;
  });
  CHECK(child.wait() == 0);
  // The parent's tap is where it was.
  Tap other(faulty, mac(2).bytes);
  std::memcpy(frame, mac(1).bytes, 6);
  other.send_ethernet(frame, sizeof frame);
  CHECK(tap->receive().size() == 1);
}

}  // namespace
