#include "soft/wire/icrc.h"

#include <array>
#include <cstring>

#include "hw/roce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace userdma::soft::wire {

namespace roce = hw::roce;

namespace {

constexpr uint32_t polynomial = 0xedb8'8320;  // 0x04c11db7, least significant bit first

// tables[k][b]: the register after byte b and k bytes of zero, for eight bytes at a step.
constexpr auto tables = [] {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t b = 0; b < 256; b++) {
    uint32_t r = b;
    for (int i = 0; i < 8; i++) r = (r >> 1) ^ ((r & 1) ? polynomial : 0);
    t[0][b] = r;
  }
  for (uint32_t b = 0; b < 256; b++)
    for (size_t k = 1; k < 8; k++) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 0xff];
  return t;
}();

// The functions below work on the register itself: without the complements before and after.
uint32_t by_table(uint32_t r, const uint8_t* at, size_t bytes) {
  while (bytes >= 8) {
    uint64_t v;
    std::memcpy(&v, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    v ^= r;
    r = tables[7][v & 0xff] ^ tables[6][(v >> 8) & 0xff] ^ tables[5][(v >> 16) & 0xff] ^ tables[4][(v >> 24) & 0xff] ^
        tables[3][(v >> 32) & 0xff] ^ tables[2][(v >> 40) & 0xff] ^ tables[1][(v >> 48) & 0xff] ^ tables[0][v >> 56];
    at += 8;
    bytes -= 8;
  }
  while (bytes-- > 0) r = (r >> 8) ^ tables[0][(r ^ *at++) & 0xff];
  return r;
}

#if defined(__x86_64__)

// x^n mod the polynomial, bit 31 first, shifted by the one place that a product of two reflected numbers is off by.
constexpr uint64_t power(unsigned n) {
  uint32_t r = 0x8000'0000;  // x^0
  for (unsigned i = 0; i < n; i++) r = (r >> 1) ^ ((r & 1) ? polynomial : 0);
  return uint64_t{r} << 1;
}

// Moves 128 bits of the message `distance` bits on: the two halves of `a`, each times what that power of x leaves.
// With the reflected order of bits, the low half is the one further from the end.
template <unsigned distance>
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i a) {
  const __m128i k =
      _mm_set_epi64x(static_cast<long long>(power(distance - 32)), static_cast<long long>(power(distance + 32)));
  return _mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11));
}

// Gueron and Kounavis, "Efficient CRC computation by carry-less multiplication": four strands of 16 bytes are folded
// onto each next 64 bytes. What remains is 16 bytes that leave the same remainder as the message.
template <bool copy>
__attribute__((target("pclmul,sse4.1"))) uint32_t by_folding(uint32_t r, uint8_t* to, const uint8_t* at, size_t bytes) {
  const auto load = [&at](size_t i) __attribute__((target("pclmul,sse4.1"), always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at) + i);
  };
  const auto store = [&to](size_t i, __m128i v) __attribute__((target("pclmul,sse4.1"), always_inline)) {
    if constexpr (copy) _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + i, v);
  };
  __m128i s0 = load(0), s1 = load(1), s2 = load(2), s3 = load(3);
  store(0, s0), store(1, s1), store(2, s2), store(3, s3);
  s0 = _mm_xor_si128(s0, _mm_cvtsi32_si128(static_cast<int>(r)));
  at += 64;
  bytes -= 64;
  if constexpr (copy) to += 64;
  while (bytes >= 64) {
    const __m128i d0 = load(0), d1 = load(1), d2 = load(2), d3 = load(3);
    store(0, d0), store(1, d1), store(2, d2), store(3, d3);
    s0 = _mm_xor_si128(fold<512>(s0), d0);
    s1 = _mm_xor_si128(fold<512>(s1), d1);
    s2 = _mm_xor_si128(fold<512>(s2), d2);
    s3 = _mm_xor_si128(fold<512>(s3), d3);
    at += 64;
    bytes -= 64;
    if constexpr (copy) to += 64;
  }
  s0 = _mm_xor_si128(fold<128>(s0), s1);
  s0 = _mm_xor_si128(fold<128>(s0), s2);
  s0 = _mm_xor_si128(fold<128>(s0), s3);
  while (bytes >= 16) {
    const __m128i d = load(0);
    store(0, d);
    s0 = _mm_xor_si128(fold<128>(s0), d);
    at += 16;
    bytes -= 16;
    if constexpr (copy) to += 16;
  }
  uint8_t rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), s0);
  r = by_table(0, rest, sizeof rest);
  if constexpr (copy) std::memcpy(to, at, bytes);
  return by_table(r, at, bytes);
}

const bool folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");

#endif

}  // namespace

uint32_t crc32(uint32_t crc, const uint8_t* at, size_t bytes) {
#if defined(__x86_64__)
  if (bytes >= 64 && folds) return ~by_folding<false>(~crc, nullptr, at, bytes);
#endif
  return ~by_table(~crc, at, bytes);
}

uint32_t crc32_copy(uint32_t crc, uint8_t* to, const uint8_t* from, size_t bytes) {
#if defined(__x86_64__)
  if (bytes >= 64 && folds) return ~by_folding<true>(~crc, to, from, bytes);
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
  return ~by_table(~crc, from, bytes);
}

uint32_t icrc_headers(const uint8_t* ip, bool ipv6) {
  // A17.3.3: eight bytes of ones stand for the LRH; fields that a router may change count as ones.
  uint8_t h[8 + roce::ipv6_bytes + roce::udp_bytes + roce::bth::bytes];
  std::memset(h, 0xff, 8);
  const size_t ip_bytes = ipv6 ? roce::ipv6_bytes : roce::ipv4_bytes;
  uint8_t* const to = h + 8;
  std::memcpy(to, ip, ip_bytes + roce::udp_bytes + roce::bth::bytes);
  if (ipv6) {
    to[0] |= 0x0f;  // traffic class and flow label
    to[1] = to[2] = to[3] = 0xff;
    to[7] = 0xff;  // hop limit
  } else {
    to[1] = 0xff;            // type of service
    to[8] = 0xff;            // time to live
    to[10] = to[11] = 0xff;  // checksum
  }
  uint8_t* const udp = to + ip_bytes;
  udp[6] = udp[7] = 0xff;  // checksum
  udp[roce::udp_bytes + roce::bth::congestion] = 0xff;
  return crc32(0, h, 8 + ip_bytes + roce::udp_bytes + roce::bth::bytes);
}

namespace detail {

uint32_t crc32_table(uint32_t crc, const uint8_t* at, size_t bytes) { return ~by_table(~crc, at, bytes); }

bool crc32_folds() {
#if defined(__x86_64__)
  return folds;
#else
  return false;
#endif
}

}  // namespace detail

}  // namespace userdma::soft::wire
