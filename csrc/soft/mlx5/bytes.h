// Big-endian numbers of the hardware's structs.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace userdma::soft::mlx5 {

static_assert(std::endian::native == std::endian::little, "the structs are swapped");

// The same both ways.
inline uint16_t big(uint16_t value) { return __builtin_bswap16(value); }
inline uint32_t big(uint32_t value) { return __builtin_bswap32(value); }
inline uint64_t big(uint64_t value) { return __builtin_bswap64(value); }

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace userdma::soft::mlx5
