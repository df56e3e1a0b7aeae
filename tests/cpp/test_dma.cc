// The soft function's translation table.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "soft/dma.h"

using userdma::soft::Dma;

namespace {

// Addresses that are never read: translate only computes with them.
void* fake(uint64_t at) { return reinterpret_cast<void*>(at); }
uint64_t number(const userdma::soft::wire::Span& span) { return reinterpret_cast<uint64_t>(span.at); }

struct Buffer {
  explicit Buffer(size_t bytes) : memory(bytes + 4096) {}
  uint8_t* at() { return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) & ~4095ull); }
  std::vector<uint8_t> memory;
};

}  // namespace

TEST_CASE("a mapping translates to its end, and what lies outside is a counted fault") {
  Dma dma;
  dma.map(0x10000, fake(0x70000000), 0x3000);
  CHECK(dma.pages() == 3);
  auto span = dma.translate(0x10010, 0x100);
  CHECK(number(span) == 0x70000010);
  CHECK(span.bytes == 0x100);
  span = dma.translate(0x12ff0, 0x100);
  CHECK(number(span) == 0x70002ff0);
  CHECK(span.bytes == 0x10);
  CHECK(dma.faults() == 0);
  CHECK(dma.translate(0x13000, 1, true).at == nullptr);
  CHECK(dma.faults() == 1);
  CHECK(dma.last_fault().address == 0x13000);
  CHECK(dma.last_fault().write);
  CHECK(dma.translate(0xffff, 1).at == nullptr);
  CHECK_FALSE(dma.last_fault().write);
  CHECK(dma.translate(~0ull, 1).at == nullptr);
  CHECK(dma.translate(1ull << 52, 1).at == nullptr);
  CHECK(dma.faults() == 4);
}

TEST_CASE("what is mapped wrongly is refused and changes nothing") {
  Dma dma;
  dma.map(0x10000, fake(0x70000000), 0x2000);
  CHECK_THROWS_AS(dma.map(0x11000, fake(0x80000000), 0x1000), std::invalid_argument);
  CHECK_THROWS_AS(dma.map(0xf000, fake(0x80000000), 0x2000), std::invalid_argument);
  CHECK_THROWS_AS(dma.map(0, fake(0x80000000), 1ull << 40), std::invalid_argument);
  CHECK_THROWS_AS(dma.map(0x20001, fake(0x80000000), 0x1000), std::invalid_argument);
  CHECK_THROWS_AS(dma.map(0x20000, fake(0x80000001), 0x1000), std::invalid_argument);
  CHECK_THROWS_AS(dma.map(0x20000, fake(0x80000000), 0), std::invalid_argument);
  CHECK_THROWS_AS(dma.map((1ull << 52) - 0x1000, fake(0x80000000), 0x2000), std::invalid_argument);
  CHECK_THROWS_AS(dma.unmap(0x10000, 0x1000), std::invalid_argument);
  CHECK_THROWS_AS(dma.unmap(0x11000, 0x10000), std::invalid_argument);
  CHECK(dma.pages() == 2);
  CHECK(number(dma.translate(0x11000, 1)) == 0x70001000);
}

TEST_CASE("unmap ends cached translations") {
  Dma dma;
  dma.map(0x10000, fake(0x70000000), 0x1000);
  CHECK(dma.translate(0x10000, 1).at);
  auto generation = dma.generation();
  dma.unmap(0x10000, 0x1000);
  CHECK(dma.generation() != generation);
  CHECK_FALSE(dma.translate(0x10000, 1).at);
  CHECK(dma.pages() == 0);
  dma.map(0x10000, fake(0x90000000), 0x1000);
  CHECK(number(dma.translate(0x10000, 1)) == 0x90000000);
}

TEST_CASE("read and write cross mappings and stop at a fault") {
  Dma dma;
  Buffer a(4096), b(4096);
  dma.map(0x10000, b.at(), 4096);
  dma.map(0x11000, a.at(), 4096);
  std::vector<uint8_t> data(6000), back(6000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  CHECK(dma.write(0x10100, data.data(), data.size()));
  CHECK(std::memcmp(b.at() + 0x100, data.data(), 4096 - 0x100) == 0);
  CHECK(dma.read(0x10100, back.data(), back.size()));
  CHECK(back == data);
  CHECK_FALSE(dma.write(0x11f00, data.data(), 0x200));
  CHECK(dma.faults() == 1);
  CHECK(dma.last_fault().address == 0x12000);
  CHECK(std::memcmp(a.at() + 0xf00, data.data(), 0x100) == 0);
}

TEST_CASE("mappings of all sizes, against a plain map") {
  std::mt19937_64 random(1);
  Dma dma;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> model;  // bus -> (at, bytes)
  auto expected = [&](uint64_t bus) -> uint64_t {
    auto next = model.upper_bound(bus);
    if (next == model.begin()) return 0;
    auto& [start, place] = *std::prev(next);
    return bus < start + place.second ? place.first + (bus - start) : 0;
  };
  uint64_t pages = 0;
  for (int i = 0; i < 4000; ++i) {
    static const uint64_t sizes[] = {1, 1, 2, 1023, 1024, 1025, 3000, 1 << 20, (1 << 20) + 5};
    uint64_t bytes = sizes[random() % std::size(sizes)] * 4096;
    uint64_t bus = random() % (1ull << 34) & ~4095ull;
    if (random() % 2) bus &= ~((4ull << 20) - 1);
    bool taken = false;
    auto next = model.lower_bound(bus);
    if (next != model.end() && next->first < bus + bytes) taken = true;
    if (expected(bus)) taken = true;
    uint64_t at = (random() % (1ull << 40) & ~4095ull) + (1ull << 40);
    if (taken) {
      CHECK_THROWS(dma.map(bus, fake(at), bytes));
    } else {
      dma.map(bus, fake(at), bytes);
      model[bus] = {at, bytes};
      pages += bytes / 4096;
    }
    if (model.size() > 6 || random() % 4 == 0) {
      if (model.empty()) continue;
      auto victim = std::next(model.begin(), static_cast<long>(random() % model.size()));
      dma.unmap(victim->first, victim->second.second);
      pages -= victim->second.second / 4096;
      model.erase(victim);
    }
    CHECK(dma.pages() == pages);
    for (auto& [start, place] : model)
      for (uint64_t probe :
           {start - 1, start, start + place.second / 2, start + place.second - 1, start + place.second})
        CHECK(number(dma.translate(probe, 1)) == expected(probe));
  }
}

TEST_CASE("a mapping allows what it was mapped for") {
  Dma dma;
  dma.map(0x10000, fake(0x70000000), 0x2000, Dma::Read);
  dma.map(0x12000, fake(0x70002000), 0x1000, Dma::Write);
  dma.map(0x13000, fake(0x70003000), 0x1000);
  for (int i = 0; i < 2; i++) {  // also right after a translation that was allowed
    CHECK(number(dma.translate(0x10000, 0x4000)) == 0x70000000);
    CHECK(dma.translate(0x11fff, 1, true).at == nullptr);
    CHECK(dma.last_fault().address == 0x11fff);
    CHECK(dma.last_fault().write);
    CHECK(number(dma.translate(0x12000, 1, true)) == 0x70002000);
    CHECK(dma.translate(0x12000, 1).at == nullptr);
    CHECK(number(dma.translate(0x13000, 1, true)) == 0x70003000);
    CHECK(number(dma.translate(0x13000, 1)) == 0x70003000);
  }
  CHECK(dma.faults() == 4);
  CHECK(dma.look(0x11800, 0x4000).bytes == 0x800);
  CHECK(dma.look(0x11800, 0x4000).access == Dma::Read);
  CHECK(dma.look(0x12000, 1).access == Dma::Write);
  CHECK(dma.look(0x14010, 0x4000).at == nullptr);
  CHECK(dma.look(0x14010, 0x4000).bytes == 0xff0);
  CHECK(dma.faults() == 4);
}

TEST_CASE("memory that is elsewhere is read and written, and never translated") {
  struct Elsewhere final : Dma::Remote {
    bool read(uint64_t bus, void* into, uint64_t bytes) override {
      asked.push_back({bus, bytes});
      std::memset(into, 0x5a, bytes);
      return !refuses;
    }
    bool write(uint64_t bus, const void*, uint64_t bytes) override {
      asked.push_back({bus, bytes});
      return !refuses;
    }
    std::vector<std::pair<uint64_t, uint64_t>> asked;
    bool refuses = false;
  } elsewhere;
  Dma dma;
  alignas(4096) static uint8_t here[4096];
  std::memset(here, 1, sizeof here);
  dma.map(0x10000, here, 0x1000);
  dma.map_remote(0x11000, elsewhere, 0x2000, Dma::ReadWrite);
  dma.map_remote(0x13000, elsewhere, 0x1000, Dma::Read);
  uint8_t got[0x3000];
  CHECK(dma.read(0x10800, got, 0x2000));
  CHECK(got[0x7ff] == 1);
  CHECK(got[0x800] == 0x5a);
  CHECK(got[0x1fff] == 0x5a);
  using Asked = std::vector<std::pair<uint64_t, uint64_t>>;
  CHECK(elsewhere.asked == Asked{{0x11000, 0x1800}});
  elsewhere.asked.clear();
  CHECK(dma.write(0x10ff0, got, 0x20));
  CHECK(elsewhere.asked == Asked{{0x11000, 0x10}});
  CHECK(dma.faults() == 0);
  CHECK(dma.translate(0x11000, 1).at == nullptr);
  CHECK(dma.faults() == 1);
  elsewhere.asked.clear();
  CHECK_FALSE(dma.write(0x13000, got, 1));
  CHECK(elsewhere.asked.empty());
  elsewhere.refuses = true;
  CHECK_FALSE(dma.read(0x13000, got, 1));
  CHECK(dma.faults() == 3);
  dma.unmap(0x11000, 0x3000);
  CHECK_FALSE(dma.read(0x11000, got, 1));
  CHECK(dma.pages() == 1);
}

TEST_CASE("what is kept of a translation stays good while mappings elsewhere end") {
  Dma dma;
  constexpr uint64_t near = 1 << 12, far = 1ull << 32;
  dma.map(0, fake(0x70000000), 0x1000);
  dma.map(near, fake(0x70001000), 0x1000);
  dma.map(far, fake(0x80000000), 0x1000);
  const uint64_t before = dma.generation();
  CHECK(dma.held(before, 0, 0x1000));
  dma.unmap(far, 0x1000);
  CHECK(dma.generation() != before);
  CHECK(dma.held(before, 0, 0x2000));
  CHECK_FALSE(dma.held(before, far, 1));
  CHECK_FALSE(dma.held(before, far - 1, 2));
  CHECK(dma.held(dma.generation(), far, 1));
  CHECK_FALSE(dma.held(before, 0, 1ull << 40));  // too long to look at
  dma.unmap(near, 0x1000);
  CHECK_FALSE(dma.held(before, near, 1));
  dma.set_enabled(false);
  CHECK_FALSE(dma.held(before, 0, 1));
  // One that is as long as all there is.
  Dma other;
  other.map(0, fake(0x70000000), 1ull << 40);
  other.map(1ull << 41, fake(0x60000000), 0x1000);
  const uint64_t then = other.generation();
  other.unmap(0, 1ull << 40);
  CHECK_FALSE(other.held(then, 5, 1));
}
