// What the soft functions of a process share when no IOMMU stands between them and memory: one physical address
// space, in which every device reaches what another shows behind a BAR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace userdma::soft {

class Machine {
 public:
  static Machine& instance();

  // A device that reaches physical addresses. Called with the machine's lock held: take no machine call from inside.
  class Reacher {
   public:
    virtual void device_memory(uint64_t bus, uint8_t* at, uint64_t bytes) = 0;       // it is there now
    virtual void device_memory_gone(uint64_t bus, uint8_t* at, uint64_t bytes) = 0;  // no access after the return

   protected:
    ~Reacher() = default;
  };

  // `bytes` of physical addresses that nothing else has, aligned to `alignment` (a power of two).
  uint64_t place(uint64_t bytes, uint64_t alignment);

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

  std::mutex mutex_;
  uint64_t next_ = 0x1'0000'0000;  // past the 32-bit hole
  std::map<uint64_t, Shown> shown_;
  std::vector<Reacher*> reachers_;
};

}  // namespace userdma::soft
