// What the soft functions of a process share when no IOMMU stands between them and memory: one physical address
// space, in which every device reaches what another shows behind a BAR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "host/fork.h"
#include "host/iova.h"

namespace userdma::soft {

class Machine {
 public:
  static Machine& instance() { return instance_; }

  // A device that reaches physical addresses. Called with the machine's lock held: take no machine call from inside.
  class Reacher {
   public:
    virtual void device_memory(uint64_t bus, uint8_t* at, uint64_t bytes) = 0;       // it is there now
    virtual void device_memory_gone(uint64_t bus, uint8_t* at, uint64_t bytes) = 0;  // no access after the return

   protected:
    ~Reacher() = default;
  };

  // `bytes` (whole pages) of physical addresses that nothing else has, aligned to `alignment` (a power of two);
  // `apart` free bytes lie between it and what is placed next. Throws host::MemoryError.
  uint64_t place(uint64_t bytes, uint64_t alignment, uint64_t apart = 0);
  // Nothing is there any more. The addresses are used again only after all others.
  void give_back(uint64_t at, uint64_t bytes);
  uint64_t available();  // bytes of addresses that nothing has

  // Memory behind a BAR: every reacher sees it, those that come later too.
  void show(uint64_t bus, uint8_t* at, uint64_t bytes);
  void hide(uint64_t bus);

  void attach(Reacher& reacher);
  void detach(Reacher& reacher);

 private:
  struct Shown {
    uint8_t* at;
    uint64_t bytes;
  };

  static constexpr uint64_t first_ = 0x1'0000'0000;  // past the 32-bit hole
  static constexpr uint64_t end_ = uint64_t{1} << 52;

  static Machine& instance_;  // never destroyed: devices may outlive static destruction

  host::ForkMutex mutex_;
  host::IovaAllocator free_{{{first_, end_ - first_}}, 4096};
  uint64_t next_ = first_;
  std::map<uint64_t, Shown> shown_;
  std::vector<Reacher*> reachers_;
};

}  // namespace userdma::soft
