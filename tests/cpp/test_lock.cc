// The lock of a NIC.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "soft/lock.h"

using userdma::soft::Lock;

TEST_CASE("lock: one at a time") {
  Lock lock;
  CHECK(lock.try_lock());
  CHECK_FALSE(lock.try_lock());
  lock.unlock();
  CHECK(lock.try_lock());
  lock.unlock();
  uint64_t count = 0;
  std::atomic<uint64_t> tried{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20000; ++i) {
        if (t == 0) {
          if (!lock.try_lock()) continue;
          ++tried;
        } else {
          lock.lock();
        }
        ++count;
        if (i % 1000 == 0) std::this_thread::yield();
        lock.unlock();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(count == 60000 + tried);
  CHECK(lock.try_lock());
}

TEST_CASE("lock: a thread that takes it again and again does not keep others out") {
  Lock lock;
  std::atomic<bool> stop{false};
  std::vector<std::thread> greedy;
  for (int t = 0; t < 2; ++t)
    greedy.emplace_back([&] {
      while (!stop) {
        std::lock_guard guard(lock);
        auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
        while (std::chrono::steady_clock::now() < end) {
        }
      }
    });
  // Each turn is granted after a few lost ones, so this ends; how soon depends on the machine's load.
  for (int i = 0; i < 50; ++i) {
    std::lock_guard guard(lock);
    CHECK_FALSE(lock.try_lock());
  }
  stop = true;
  for (auto& thread : greedy) thread.join();
}
