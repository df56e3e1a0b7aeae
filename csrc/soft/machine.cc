#include "soft/machine.h"

#include <algorithm>
#include <mutex>
#include <string>

namespace userdma::soft {

Machine& Machine::instance_ = *new Machine;

uint64_t Machine::place(uint64_t bytes, uint64_t alignment, uint64_t apart) {
  std::lock_guard guard(mutex_);
  const auto at = free_.take(bytes, alignment, next_);
  if (!at) {
    throw host::MemoryError("the machine of this process's soft NICs has no physical addresses left for " +
                            std::to_string(bytes) + " bytes together: free some of its memory, or close a NIC");
  }
  next_ = *at + bytes + apart;
  return *at;
}

void Machine::give_back(uint64_t at, uint64_t bytes) {
  std::lock_guard guard(mutex_);
  free_.give(at, bytes);
}

uint64_t Machine::available() {
  std::lock_guard guard(mutex_);
  return free_.available();
}

void Machine::show(uint64_t bus, uint8_t* at, uint64_t bytes) {
  std::lock_guard guard(mutex_);
  shown_[bus] = {at, bytes};
  for (Reacher* reacher : reachers_) reacher->device_memory(bus, at, bytes);
}

void Machine::hide(uint64_t bus) {
  std::lock_guard guard(mutex_);
  const auto found = shown_.find(bus);
  if (found == shown_.end()) return;
  for (Reacher* reacher : reachers_) reacher->device_memory_gone(bus, found->second.at, found->second.bytes);
  shown_.erase(found);
}

void Machine::attach(Reacher& reacher) {
  std::lock_guard guard(mutex_);
  reachers_.push_back(&reacher);
  for (const auto& [bus, shown] : shown_) reacher.device_memory(bus, shown.at, shown.bytes);
}

void Machine::detach(Reacher& reacher) {
  std::lock_guard guard(mutex_);
  const auto found = std::find(reachers_.begin(), reachers_.end(), &reacher);
  if (found == reachers_.end()) return;
  for (const auto& [bus, shown] : shown_) reacher.device_memory_gone(bus, shown.at, shown.bytes);
  reachers_.erase(found);
}

}  // namespace userdma::soft
