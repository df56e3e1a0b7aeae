#include "soft/pin.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "host/fork.h"
#include "host/function.h"
#include "host/text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // linux/mman.h, since 5.14
#endif

namespace userdma::soft {

using host::hex;

namespace {

// ---- What the process has mapped ---------------------------------------------------------------------------------

struct Mapping {  // a line of /proc/self/maps (proc_pid_maps(5))
  uintptr_t begin;
  uintptr_t end;
  bool readable;
  bool writable;
  bool executable;
  bool shared;
  uint64_t offset;
  dev_t device;
  uint64_t inode;
  bool stack;
};

bool parse(const char* line, Mapping& out) {
  unsigned long begin, end, offset, inode;
  unsigned major_number, minor_number;
  char rights[5];
  int name = 0;
  if (std::sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %n", &begin, &end, rights, &offset, &major_number, &minor_number,
                  &inode, &name) < 7) {
    return false;
  }
  out = {begin,
         end,
         rights[0] == 'r',
         rights[1] == 'w',
         rights[2] == 'x',
         rights[3] == 's',
         offset,
         makedev(major_number, minor_number),
         inode,
         std::strncmp(line + name, "[stack", 6) == 0};
  return true;
}

// Calls `visit` for each mapping, in order of address, until it returns false. Allocates nothing: a forked child
// uses it.
template <class Visit>
void each_mapping(Visit&& visit) {
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char buffer[8192];  // a line is at most PATH_MAX and its numbers
  size_t have = 0;
  bool go = true;
  while (go) {
    const ssize_t got = read(fd, buffer + have, sizeof buffer - 1 - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<size_t>(got);
    buffer[have] = 0;
    char* line = buffer;
    while (char* end = static_cast<char*>(std::memchr(line, '\n', have - static_cast<size_t>(line - buffer)))) {
      *end = 0;
      Mapping mapping;
      if (parse(line, mapping) && !visit(mapping)) {
        go = false;
        break;
      }
      line = end + 1;
    }
    have -= static_cast<size_t>(line - buffer);
    std::memmove(buffer, line, have);
  }
  close(fd);
}

// ---- Private pages that were moved ---------------------------------------------------------------------------------

// Held while pages are pinned: what is mapped changes by it, and two threads may pin the same pages.
host::ForkMutex& pinning = *new host::ForkMutex;

}  // namespace

// With `pinning` held, but where it says otherwise.
class PinnedStore {
 public:
  // Moves the pages of `mapping` in [address, address + bytes) and holds them. Where the device reaches them.
  uint8_t* move(uintptr_t address, size_t bytes, const Mapping& mapping) {
    collect();
    uint8_t* alias = arena_.alloc(bytes);
    const Segment segment = *arena_.find(alias);
    const uint64_t offset = segment.offset + static_cast<uint64_t>(alias - segment.base);
    // The kernel copies: where there turns out to be nothing behind the mapping, it says so instead of a signal.
    size_t copied = 0;
    while (copied < bytes) {
      const ssize_t n = pwrite(segment.fd, reinterpret_cast<const void*>(address + copied), bytes - copied,
                               static_cast<off_t>(offset + copied));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int error = errno;
        arena_.free(alias, bytes);
        throw host::MemoryError("the memory at " + hex(address + copied) +
                                " cannot be pinned: " + std::strerror(error));
      }
      copied += static_cast<size_t>(n);
    }
    const int protection = PROT_READ | PROT_WRITE | (mapping.executable ? PROT_EXEC : 0);
    if (mmap(reinterpret_cast<void*>(address), bytes, protection, MAP_SHARED | MAP_FIXED, segment.fd,
             static_cast<off_t>(offset)) == MAP_FAILED) {
      const int error = errno;
      arena_.free(alias, bytes);
      throw host::MemoryError("the memory at " + hex(address) + " cannot be pinned: " + std::strerror(error));
    }
    moved_[alias] = {bytes,         1,      segment.fd,   static_cast<dev_t>(segment.device),
                     segment.inode, offset, segment.base, segment.size};
    return alias;
  }

  // Holds pages that were moved before, those that `mapping` shows at `address`: at most `bytes`, or {null, 0}.
  Pinned::Piece hold(uintptr_t address, size_t bytes, const Mapping& mapping, uint8_t*& key) {
    const uint64_t offset = mapping.offset + (address - mapping.begin);
    for (auto& [alias, moved] : moved_) {
      if (moved.inode != mapping.inode || moved.device != mapping.device) continue;
      if (offset < moved.offset || offset - moved.offset >= moved.bytes) continue;
      if (moved.pins++ == 0) retired_ -= moved.bytes;
      key = alias;
      const uint64_t within = offset - moved.offset;
      return {alias + within, std::min(bytes, static_cast<size_t>(moved.bytes - within))};
    }
    return {nullptr, 0};
  }

  // The process may still map the pages: they go when it does not.
  void drop(uint8_t* alias) {
    Moved& moved = moved_.at(alias);
    if (--moved.pins == 0) retired_ += moved.bytes;
  }

  const Segment* segment(const void* at) const { return arena_.find(at); }  // without the lock too

  // In a forked child, of its parent's: the child's memory is its own again, as private memory is, with the bytes that
  // it had at the fork. Linux copies pinned pages at a fork too.
  void leave_to_parent() const {
    if (moved_.empty()) return;
    each_mapping([&](const Mapping& mapping) {
      if (!mapping.shared) return true;
      const auto shown =
          std::find_if(moved_.begin(), moved_.end(), [&](const auto& item) { return item.second.shown_by(mapping); });
      if (shown == moved_.end()) return true;
      void* at = reinterpret_cast<void*>(mapping.begin);
      const size_t bytes = mapping.end - mapping.begin;
      const int protection = (mapping.readable ? PROT_READ : 0) | (mapping.writable ? PROT_WRITE : 0) |
                             (mapping.executable ? PROT_EXEC : 0);
      if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, shown->second.fd,
               static_cast<off_t>(mapping.offset)) == MAP_FAILED)
        return true;
      for (uintptr_t page = mapping.begin; page < mapping.end; page += Arena::page()) {
        auto* byte = reinterpret_cast<volatile uint8_t*>(page);
        *byte = *byte;  // the kernel copies the page
      }
      if (protection != (PROT_READ | PROT_WRITE)) mprotect(at, bytes, protection);
      return true;
    });
  }

 private:
  struct Moved {
    size_t bytes;
    unsigned pins;
    int fd;
    dev_t device;
    uint64_t inode;
    uint64_t offset;  // in the file
    const uint8_t* base;
    size_t segment_bytes;

    // A mapping of the same pages other than the store's own.
    bool shown_by(const Mapping& mapping) const {
      const auto own = reinterpret_cast<uintptr_t>(base);
      return mapping.inode == inode && mapping.device == device &&
             !(own <= mapping.begin && mapping.begin < own + segment_bytes) && mapping.offset < offset + bytes &&
             offset < mapping.offset + (mapping.end - mapping.begin);
    }
  };

  // What may wait for the process to unmap it, before somebody looks.
  static constexpr uint64_t retired_limit = 16 << 20;

  void collect() {
    if (retired_ < retired_limit) return;
    std::map<uint8_t*, Moved*> gone;
    for (auto& [alias, moved] : moved_) {
      if (moved.pins == 0) gone[alias] = &moved;
    }
    each_mapping([&](const Mapping& mapping) {
      std::erase_if(gone, [&](const auto& item) { return item.second->shown_by(mapping); });
      return !gone.empty();
    });
    for (const auto& [alias, moved] : gone) {
      const size_t bytes = moved->bytes;
      moved_.erase(alias);
      arena_.free(alias, bytes);
    }
    retired_ = 0;  // what is still mapped is not looked for again until as much more has retired
  }

  Arena arena_;
  std::map<uint8_t*, Moved> moved_;  // by where the device reaches them
  uint64_t retired_ = 0;
};

namespace {

std::atomic<PinnedStore*> store{new PinnedStore};  // never destroyed: processes map its memory until they end

// Before the parent goes on: what it writes after the fork is not the child's.
[[maybe_unused]] const auto& own_in_child = *new host::AtFork([] {
  store.load()->leave_to_parent();
  store.store(new PinnedStore);
});

// Every page is there and can be written, or an error that names the first that cannot.
void populate(uint8_t* alias, size_t bytes, uintptr_t address) {
  if (madvise(alias, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) return;
  throw host::MemoryError("the memory at " + hex(address) + " cannot be pinned: " + std::strerror(errno));
}

}  // namespace

std::unique_ptr<Pinned> Pinned::take(void* address, size_t bytes) {
  std::unique_ptr<Pinned> pinned(new Pinned(*store));
  uintptr_t at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = at + bytes;
  const uintptr_t here = reinterpret_cast<uintptr_t>(&pinned);  // on this thread's stack

  const auto pin_mappings = [&](uintptr_t until) {
    std::lock_guard guard(pinning);
    std::vector<Mapping> mappings;
    each_mapping([&](const Mapping& mapping) {
      if (mapping.end > at && mapping.begin < until) mappings.push_back(mapping);
      return mapping.begin < until;
    });
    for (const Mapping& mapping : mappings) {
      if (mapping.begin > at) break;
      const std::string range = hex(at) + " to " + hex(std::min(until, mapping.end));
      if (!mapping.readable || !mapping.writable) {
        throw host::MemoryError("the memory at " + range + " cannot be pinned: it is read-only for this process");
      }
      if (mapping.stack || (mapping.begin <= here && here < mapping.end)) {
        throw host::MemoryError("the memory at " + range + " cannot be pinned: it is a thread's stack");
      }
      while (at < until && at < mapping.end) {
        const size_t n = std::min(until, mapping.end) - at;
        uint8_t* key = nullptr;
        Piece piece = mapping.shared ? pinned->store_.hold(at, n, mapping, key) : Piece{nullptr, 0};
        if (piece.at) {
          pinned->moved_.push_back(key);
        } else if (mapping.shared) {
          void* alias = mremap(reinterpret_cast<void*>(at), 0, n, MREMAP_MAYMOVE);
          if (alias == MAP_FAILED) {
            throw host::MemoryError("the memory at " + range + " cannot be pinned: " + std::strerror(errno));
          }
          piece = {static_cast<uint8_t*>(alias), n};
          pinned->aliases_.push_back(piece);
          populate(piece.at, piece.bytes, at);
        } else {
          piece = {pinned->store_.move(at, n, mapping), n};
          pinned->moved_.push_back(piece.at);
        }
        pinned->pieces_.push_back(piece);
        at += piece.bytes;
      }
    }
    if (at < until) throw host::MemoryError("nothing is mapped at " + hex(at) + ": it cannot be pinned");
  };

  while (at < end) {
    if (auto allocation = Allocation::find(reinterpret_cast<void*>(at))) {
      const uintptr_t limit = reinterpret_cast<uintptr_t>(allocation->data()) + allocation->size();
      const size_t n = std::min(end, limit) - at;
      pinned->pieces_.push_back({reinterpret_cast<uint8_t*>(at), n});
      pinned->held_.push_back(std::move(allocation));
      at += n;
    } else {
      pin_mappings(Allocation::next(at, end));
    }
  }
  return pinned;
}

Pinned::~Pinned() {
  for (const Piece& alias : aliases_) munmap(alias.at, alias.bytes);
  std::lock_guard guard(pinning);
  for (uint8_t* key : moved_) store_.drop(key);
}

PinnedSegments::~PinnedSegments() {
  for (const Known& known : known_) arena_.abandon(known.base);
}

void PinnedSegments::add(const Pinned& pinned) {
  for (const Pinned::Piece& piece : pinned.pieces()) {
    const Segment* segment = store.load()->segment(piece.at);
    if (!segment) continue;
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.base == segment->base; });
    if (found != known_.end()) {
      found->uses++;
      continue;
    }
    arena_.adopt(segment->fd, segment->offset, segment->base, segment->size);
    known_.push_back({segment->base, 1});
  }
}

void PinnedSegments::remove(const Pinned& pinned) {
  for (const Pinned::Piece& piece : pinned.pieces()) {
    const Segment* segment = store.load()->segment(piece.at);
    if (!segment) continue;
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.base == segment->base; });
    if (found == known_.end() || --found->uses) continue;
    arena_.abandon(found->base);
    known_.erase(found);
  }
}

}  // namespace userdma::soft
