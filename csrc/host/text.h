// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace userdma::host {

// "0x1c3"
inline std::string hex(uint64_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), digits[value & 15]);
  while (value >>= 4);
  return "0x" + text;
}

}  // namespace userdma::host
