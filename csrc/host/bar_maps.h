// The BARs of a PCI function that are mapped in this process.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "host/mmio.h"

namespace userdma::host {

class BarMaps {
 public:
  std::optional<Bar> find(int index) const {
    const Map& map = maps_[static_cast<size_t>(index)];
    if (map.base.load() == nullptr) return std::nullopt;
    return Bar{index, map.base.load(), map.size};
  }

  Bar add(int index, void* base, size_t size) {
    Map& map = maps_[static_cast<size_t>(index)];
    map.size = size;
    map.base = static_cast<uint8_t*>(base);
    return {index, map.base.load(), size};
  }

  // Calls `unmap(base, bytes)` for each, and forgets it.
  template <class Unmap>
  void clear(Unmap unmap) {
    for (Map& map : maps_)
      if (uint8_t* base = map.base.exchange(nullptr); base != nullptr) unmap(base, map.size);
  }

  // In the child of a fork: plain memory takes the place of the parent's device, whose mapping would hold it. Needs
  // no lock, as a thread of the parent may have had it.
  void leave_to_parent() {
    clear([](uint8_t* base, size_t size) {
      mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    });
  }

 private:
  struct Map {
    std::atomic<uint8_t*> base{nullptr};
    size_t size = 0;  // written before the base is
  };
  std::array<Map, 6> maps_;
};

}  // namespace userdma::host
