// Virtual time: it stands still while anybody has something to do, and then jumps to the earliest timer.
#include <doctest/doctest.h>

#include <string>

#include "soft/clock.h"

using namespace userdma::soft;

namespace {

struct Alarm final : Participant {
  Alarm(VirtualClock& clock, std::string& log, char name) : clock(clock), log(log), name(name) {}
  bool work() override {
    if (again) CHECK(!clock.step());  // a step inside a step is refused
    if (todo > 0) {
      todo--;
      log += name;
      return true;
    }
    if (due > clock.now()) return false;
    log += static_cast<char>(name - 'a' + 'A');
    due = every == 0 ? never : due + every;
    return true;
  }
  uint64_t next_deadline() override { return due; }

  VirtualClock& clock;
  std::string& log;
  char name;
  int todo = 0;
  bool again = false;
  uint64_t due = never;
  uint64_t every = 0;
};

}  // namespace

TEST_CASE("time jumps to the earliest deadline once nobody has anything to do, in the order of attaching") {
  VirtualClock clock(10);
  std::string log;
  Alarm a(clock, log, 'a'), b(clock, log, 'b');
  CHECK(!clock.step());
  clock.attach(a);
  clock.attach(b);
  a.todo = 1;
  b.todo = 2;
  a.due = 100;
  b.due = 50;
  a.again = true;
  CHECK(clock.step());
  CHECK(clock.step());
  CHECK(log == "abb");
  CHECK(clock.now() == 10);
  CHECK(clock.step());
  CHECK(clock.now() == 50);
  CHECK(log == "abbB");
  CHECK(clock.step());
  CHECK(clock.now() == 100);
  CHECK(log == "abbBA");
  CHECK(!clock.step());
  CHECK(clock.now() == 100);
  clock.detach(a);
  a.todo = 5;
  CHECK(!clock.step());
}

TEST_CASE("advance stops at every deadline on its way") {
  VirtualClock clock;
  std::string log;
  Alarm a(clock, log, 'a'), b(clock, log, 'b');
  clock.attach(a);
  clock.attach(b);
  a.due = a.every = 10;
  b.due = b.every = 25;
  clock.advance(55);
  CHECK(clock.now() == 55);
  CHECK(log == "AABAAAB");  // at 10, 20, 25, 30, 40, 50, 50
}

TEST_CASE("the real clock does not go back") {
  RealClock clock;
  CHECK(!clock.is_virtual());
  uint64_t last = clock.now();
  for (int i = 0; i < 1000; i++) {
    const uint64_t now = clock.now();
    CHECK(now >= last);
    last = now;
  }
}
