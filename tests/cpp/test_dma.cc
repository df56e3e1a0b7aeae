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
