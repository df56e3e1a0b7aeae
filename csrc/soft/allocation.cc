#include "soft/allocation.h"

#include <map>
#include <mutex>

namespace userdma::soft {

namespace {

// Every allocation of the process, by its end.
struct Registry {
  std::mutex mutex;
  std::map<uintptr_t, std::weak_ptr<Allocation>> by_end;
};

Registry& registry() {
  static Registry* all = new Registry;  // never destroyed: allocations may outlive static destruction
  return *all;
}

}  // namespace

std::shared_ptr<Allocation> Allocation::make(std::shared_ptr<Arena> arena, size_t bytes) {
  uint8_t* data = arena->alloc(bytes);
  const size_t page = Arena::page();
  const size_t size = (bytes + page - 1) / page * page;
  std::shared_ptr<Allocation> made(new Allocation(std::move(arena), data, size));
  Registry& all = registry();
  std::lock_guard guard(all.mutex);
  all.by_end[reinterpret_cast<uintptr_t>(data) + size] = made;
  return made;
}

std::shared_ptr<Allocation> Allocation::find(const void* at) {
  Registry& all = registry();
  std::lock_guard guard(all.mutex);
  const auto found = all.by_end.upper_bound(reinterpret_cast<uintptr_t>(at));
  if (found == all.by_end.end()) return nullptr;
  auto held = found->second.lock();
  return held && held->data() <= at ? held : nullptr;
}

uintptr_t Allocation::next(uintptr_t at, uintptr_t limit) {
  Registry& all = registry();
  std::lock_guard guard(all.mutex);
  for (auto it = all.by_end.upper_bound(at); it != all.by_end.end(); ++it) {
    const auto held = it->second.lock();
    if (!held) continue;
    const auto begin = reinterpret_cast<uintptr_t>(held->data());
    return begin <= at ? at : begin < limit ? begin : limit;
  }
  return limit;
}

Allocation::~Allocation() {
  {
    Registry& all = registry();
    std::lock_guard guard(all.mutex);
    all.by_end.erase(reinterpret_cast<uintptr_t>(data_) + size_);
  }
  arena_->free(data_, size_);
}

}  // namespace userdma::soft
