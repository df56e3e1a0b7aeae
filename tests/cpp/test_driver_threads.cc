// A thread that waits looks at a pair beside the one that works on it: under a lock that stands for Python's GIL, as
// the binding does it.
#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "driver_pair.h"

namespace {

using namespace userdma::test;
using userdma::driver::Completion;
using userdma::driver::Polled;
using userdma::driver::Qp;
using userdma::driver::Side;

struct Waiter {
  Pair& pair;
  std::mutex& gil;

  // Waits for one completion; None once the pair is retired.
  Polled wait(Side side, Completion& out) {
    for (;;) {
      Qp::Look look;
      while ((look = pair.qp->ready(side, false)) == Qp::Look::Nothing) std::this_thread::yield();
      if (look == Qp::Look::Retired) return Polled::None;
      std::lock_guard lock(gil);
      pair.qp->look_around(side);
      if (Polled polled = pair.qp->poll(side, out); polled != Polled::None) return polled;
    }
  }
};

TEST_CASE("a poster, a waiter on each side, and the NIC") {
  constexpr unsigned kEntries = 20000;
  Pair pair(64, 128);
  pair.qp->connect(0, 1024, false);
  std::mutex gil;
  std::atomic<unsigned> posted{0};
  std::atomic<uint64_t> taken{0};

  std::thread poster([&] {
    for (unsigned i = 0; i < kEntries;) {
      {
        std::lock_guard lock(gil);
        if (pair.qp->room(Side::Send) > 0 && pair.qp->room(Side::Receive) > 0) {
          REQUIRE(pair.qp->send(pair.region, 0, i % 1000));
          REQUIRE(pair.qp->receive(pair.region, 0, 1000));
          ++i;
          posted.store(i);
          continue;
        }
      }
      std::this_thread::yield();
    }
  });
  std::thread nic([&] {
    for (unsigned i = 0; i < kEntries; ++i) {
      while (posted.load() <= i || i - taken.load() / 2 > 60) std::this_thread::yield();
      pair.cq[0].sent((i + 1) % 64);
      pair.cq[1].received(i % 64, i % 1000);
    }
  });
  auto consumer = [&](Side side) {
    Waiter waiter{pair, gil};
    for (unsigned i = 0; i < kEntries; ++i) {
      Completion completion;
      REQUIRE(waiter.wait(side, completion) == Polled::Ok);
      REQUIRE(completion.bytes == i % 1000);
      REQUIRE(completion.entry == i);
      taken.fetch_add(1);
    }
  };
  std::thread sends(consumer, Side::Send);
  std::thread receives(consumer, Side::Receive);
  poster.join();
  nic.join();
  sends.join();
  receives.join();
  CHECK(pair.qp->failure().empty());
}

TEST_CASE("a pair retires under the eyes of those who wait, and its memory can be freed at once") {
  for (int round = 0; round < 200; ++round) {
    Pair pair;
    pair.qp->connect(0, 1024, false);
    REQUIRE(pair.qp->send(pair.region, 0, 1));
    REQUIRE(pair.qp->receive(pair.region, 0, 1));
    std::mutex gil;
    std::atomic<int> inside{0};
    auto wait = [&](Side side) {
      Waiter waiter{pair, gil};
      Completion completion;
      ++inside;
      CHECK(waiter.wait(side, completion) == Polled::None);
    };
    std::thread sends(wait, Side::Send);
    std::thread receives(wait, Side::Receive);
    while (inside.load() != 2) std::this_thread::yield();
    {
      std::lock_guard lock(gil);
      pair.qp->retire("destroyed");
      pair.events->retire("closed");
    }
    pair.qp->drain();
    pair.events->drain();
    pair.function->release();  // frees the rings
    sends.join();
    receives.join();
  }
}

}  // namespace
