// Packet sequence numbers: 24 bits, compared within half of their circle (IBTA volume 1, 9.7.1).
#pragma once

#include <cstdint>

#include "hw/roce.h"

namespace userdma::soft::transport {

constexpr uint32_t psn_add(uint32_t psn, uint32_t n) { return (psn + n) & hw::roce::mask24; }

// How far `a` is past `b`.
constexpr uint32_t psn_sub(uint32_t a, uint32_t b) { return (a - b) & hw::roce::mask24; }

constexpr bool psn_before(uint32_t a, uint32_t b) { return psn_sub(a, b) >= hw::roce::psn_half; }

}  // namespace userdma::soft::transport
