#include "soft/allocation.h"

#include <map>
#include <mutex>

#include "host/fork.h"

namespace userdma::soft {

namespace {

// Every allocation of the process, by its end.
struct Registry {
  struct Known {
    uintptr_t begin;
    std::weak_ptr<Allocation> allocation;
  };
  host::ForkMutex mutex;  // no allocation may end under it: its end takes it
  std::map<uintptr_t, Known> by_end;
};

Registry& all = *new Registry;  // never destroyed: allocations may outlive static destruction

}  // namespace

std::shared_ptr<Allocation> Allocation::make(std::shared_ptr<Arena> arena, size_t bytes) {
  uint8_t* data = arena->alloc(bytes);
  const size_t page = Arena::page();
  const size_t size = (bytes + page - 1) / page * page;
  std::shared_ptr<Allocation> made(new Allocation(std::move(arena), data, size));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::lock_guard guard(all.mutex);
  all.by_end[begin + size] = {begin, made};
  return made;
}

std::shared_ptr<Allocation> Allocation::find(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  std::lock_guard guard(all.mutex);
  const auto found = all.by_end.upper_bound(address);
  if (found == all.by_end.end() || found->second.begin > address) return nullptr;
  return found->second.allocation.lock();
}

uintptr_t Allocation::next(uintptr_t at, uintptr_t limit) {
  std::lock_guard guard(all.mutex);
  for (auto it = all.by_end.upper_bound(at); it != all.by_end.end(); ++it) {
    const auto& [begin, allocation] = it->second;
    if (allocation.expired()) continue;
    return begin <= at ? at : begin < limit ? begin : limit;
  }
  return limit;
}

Allocation::~Allocation() {
  {
    std::lock_guard guard(all.mutex);
    all.by_end.erase(reinterpret_cast<uintptr_t>(data_) + size_);
  }
  arena_->free(data_, size_);
}

}  // namespace userdma::soft
