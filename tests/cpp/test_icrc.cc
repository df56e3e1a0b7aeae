// CRC-32 against zlib: the expected values are Python's zlib.crc32 of the same bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "soft/wire/icrc.h"

using namespace userdma::soft::wire;

namespace {

// The bytes of the expected values: a linear congruential generator that Python repeats in one line.
std::vector<uint8_t> generated(size_t n, uint32_t state) {
  std::vector<uint8_t> v(n);
  for (auto& b : v) {
    state = (state * 1103515245u + 12345u) & 0x7fffffffu;
    b = static_cast<uint8_t>(state >> 16);
  }
  return v;
}

struct Known {
  size_t bytes;  // of generated(bytes, bytes + 1)
  uint32_t crc;
};
constexpr Known known[] = {
    {0, 0x00000000u},   {1, 0x360c2086u},    {3, 0xf57ea658u},    {15, 0xa818d288u},   {16, 0x2eacb4eau},
    {31, 0xde9274beu},  {63, 0x9a7bcf21u},   {64, 0xde07f6e7u},   {65, 0xb8731378u},   {79, 0xe627c4afu},
    {80, 0x0f025260u},  {127, 0xf5839aebu},  {128, 0x50743fe6u},  {200, 0xa949a245u},  {255, 0xa4e50ad8u},
    {256, 0xab60c8a3u}, {1024, 0x2ab9c675u}, {4096, 0xc5901798u}, {5000, 0x70fcf7a3u},
};

}  // namespace

TEST_CASE("crc32 equals zlib's, by table and by folding, at any alignment") {
  MESSAGE("the CPU folds: ", detail::crc32_folds());
  for (const Known& k : known) {
    const auto bytes = generated(k.bytes, static_cast<uint32_t>(k.bytes) + 1);
    CHECK(detail::crc32_table(0, bytes.data(), bytes.size()) == k.crc);
    for (size_t shift : {0, 1, 7}) {
      std::vector<uint8_t> moved(k.bytes + shift);
      if (k.bytes > 0) std::memcpy(moved.data() + shift, bytes.data(), k.bytes);
      CHECK(crc32(0, moved.data() + shift, k.bytes) == k.crc);
      std::vector<uint8_t> copy(k.bytes + 1, 0xee);
      CHECK(crc32_copy(0, copy.data(), moved.data() + shift, k.bytes) == k.crc);
      CHECK(std::equal(bytes.begin(), bytes.end(), copy.begin()));
      CHECK(copy[k.bytes] == 0xee);
    }
  }
}

TEST_CASE("crc32 of parts continues to the same value") {
  for (const Known& k : known) {
    const auto bytes = generated(k.bytes, static_cast<uint32_t>(k.bytes) + 1);
    for (size_t cut = 0; cut <= k.bytes; cut += 1 + cut / 3) {
      const uint32_t first = crc32(0, bytes.data(), cut);
      CHECK(crc32(first, bytes.data() + cut, k.bytes - cut) == k.crc);
    }
  }
}

TEST_CASE("the check value of CRC-32") {
  // The catalogue of parametrised CRC algorithms: CRC-32/ISO-HDLC.
  CHECK(crc32(0, reinterpret_cast<const uint8_t*>("123456789"), 9) == 0xcbf43926u);
}
