// Registered memory of one NIC, as work queue entries name it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "driver/domain.h"

namespace userdma::driver {

struct Region {
  std::shared_ptr<Domain> domain;
  uint8_t* data = nullptr;  // where the process reads and writes it; null: it does not (pages, device)
  // What entries of this NIC say for its first byte, reads within the NIC included; for no peer to know.
  uint64_t va = 0;
  uint64_t bytes = 0;
  uint32_t lkey = 0;
  bool retired = false;
  bool remote = false;  // peers on other NICs may name it, by these:
  uint32_t remote_key = 0;
  uint64_t remote_va = 0;
  std::string why = "deregistered";  // what it is since it retired
  int views = 0;                     // buffers of it that Python holds

  bool holds(uint64_t at, uint64_t n) const { return at <= bytes && n <= bytes - at; }
};

}  // namespace userdma::driver
