// What a ConnectX's firmware says of its own failure, in the health buffer of the initialization segment.
#pragma once

#include <cstddef>
#include <string>

#include "host/big_endian.h"
#include "host/mmio.h"
#include "host/text.h"
#include "hw/mlx5_device.h"

namespace userdma::driver::mlx5 {

// "" while it works. `name`: the function's.
inline std::string ails(const host::Bar& bar, const std::string& name) {
  namespace hw = hw::mlx5;
  constexpr uint64_t last = offsetof(hw::InitSegment, health) + offsetof(hw::Health, irisc_index);
  const uint32_t word = host::big_endian(bar.read<uint32_t>(last));
  const uint32_t syndrome = word >> 16 & 0xff;
  if (syndrome == 0 || word == 0xffff'ffff) return {};  // all ones: it left the bus, which others say
  return "the firmware of " + name + " reports an internal error (health syndrome " + host::hex(syndrome) + ", " +
         host::hex(word & 0xffff) + "): close the NIC and open it again to reset it";
}

}  // namespace userdma::driver::mlx5
