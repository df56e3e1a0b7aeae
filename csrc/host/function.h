// A PCI function as a driver sees it: configuration space, BARs, memory the device reaches, interrupts, reset.
//
// Three kinds implement it: VFIO (vfio.h), physical (physical.h) and soft (soft/soft_function.h). Nothing above
// this interface knows which one it has.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "host/mmio.h"

namespace userdma::host {

// A refusal: what was refused, by whom, and what to change. Bound to the subclasses of userdma.Error.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct MemoryError : Error {  // no memory, no room to pin, a pin the system refuses
  using Error::Error;
};
struct MachineError : Error {  // the machine or the function itself failed or refused
  using Error::Error;
};

// `bytes` of consecutive addresses on the bus, from `address`.
struct Run {
  uint64_t address;
  uint64_t bytes;
};

// Memory that the function's device can reach, as alloc_dma or pin gives it. `runs` cover it in order; each run
// starts on a machine page, and every run but the last is whole pages.
struct Memory {
  uint8_t* data = nullptr;
  size_t size = 0;  // whole machine pages from alloc_dma; the bytes asked for from pin
  std::vector<Run> runs;
  uint64_t handle = 0;  // the implementation's own name for it
};

enum class Addressing {
  Iova,      // bus addresses pass an IOMMU: any memory of the process can be pinned
  Physical,  // bus addresses are physical: only alloc_dma's memory is reachable
};

// What a poll that found nothing runs: null but on soft functions.
struct Idle {
  // `brief`: the caller holds what others want, and only what takes few microseconds is done. True: there is more.
  bool (*run)(void* self, bool brief) = nullptr;
  // A waiter that stops polling for a while, at most `nanoseconds`: it returns early if the device did anything since
  // the ticket was taken.
  uint32_t (*ticket)(void* self) = nullptr;
  void (*rest)(void* self, uint32_t ticket, uint64_t nanoseconds) = nullptr;
  void* self = nullptr;
};

class Function {
 public:
  virtual ~Function() = default;

  virtual std::string name() const = 0;  // "0000:17:00.0", "soft:bnxt#3"
  virtual size_t page() const = 0;       // the machine's page, in bytes
  virtual Addressing addressing() const = 0;

  virtual uint32_t config(unsigned offset, unsigned width) const = 0;  // width 1, 2 or 4; all ones past what is there
  virtual void set_config(unsigned offset, unsigned width, uint32_t value) = 0;

  virtual uint64_t bar_address(int index) const = 0;  // bus address of a BAR, 0 where it has none
  virtual size_t bar_size(int index) const = 0;       // 0: no such BAR
  virtual Bar map(int index) = 0;                     // stays mapped until release; throws MachineError

  virtual int interrupt(unsigned vector) = 0;  // an eventfd the function signals; owned by the function

  virtual void reset() = 0;  // function-level reset; the device forgets everything, DMA stops

  virtual Memory alloc_dma(size_t bytes) = 0;  // new, zeroed; throws MemoryError
  virtual void free_dma(const Memory&) = 0;
  virtual Memory pin(void* address, size_t bytes) = 0;  // throws MemoryError
  virtual void unpin(const Memory&) = 0;

  virtual bool failed() const = 0;  // the function left the bus: its reads are all ones; or it has to be given back
  virtual std::string failure() const { return "left the bus: its reads are all ones"; }  // what a failed one did
  virtual void release() = 0;  // reset, bus mastering off, everything unmapped and freed; idempotent

  virtual Idle idle() { return {}; }

  // Kept by who lends the function's memory out: `views` counts buffers of it that others hold, and release must
  // not run while there is one; `released` is set before release runs.
  std::atomic<int> views{0};
  std::atomic<bool> released{false};

  // Whose it is: a child that is forked has a copy of what leads to it, and must not touch it.
  const pid_t process = ::getpid();
};

}  // namespace userdma::host
