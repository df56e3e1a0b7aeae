#include "soft/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

#include "host/function.h"

namespace userdma::soft {
namespace {

// A block is address space until it is written, so a big one costs nothing and makes blocks few.
constexpr size_t block_bytes = size_t{256} << 20;

std::atomic<uint32_t> next_id{1};

size_t round_up(size_t bytes) {
  size_t mask = Arena::page() - 1;
  return (bytes + mask) & ~mask;
}

std::string reason() { return std::strerror(errno); }

// Bytes that the machine could still give, by /proc/meminfo; 0: not known.
uint64_t available() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (!file) return 0;
  char line[128];
  unsigned long long kib = 0;
  while (std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
  std::fclose(file);
  return uint64_t{kib} << 10;
}

Segment describe(int fd, uint64_t offset, uint8_t* base, size_t size) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) throw host::MemoryError("fstat of a memory segment: " + reason());
  return {fd, next_id.fetch_add(1, std::memory_order_relaxed), base, size, offset, status.st_dev, status.st_ino};
}

}  // namespace

const size_t Arena::page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

Arena::Arena(uint64_t limit) : limit_(limit) {}

Arena::~Arena() {
  while (!blocks_.empty()) drop_block(blocks_.begin());
}

uint8_t* Arena::alloc(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX / 2) throw std::invalid_argument("Arena::alloc: bytes out of range");
  size_t size = round_up(bytes);
  std::lock_guard guard(mutex_);
  if (limit_ && (size > limit_ || allocated_ > limit_ - size))
    throw host::MemoryError("the soft machine has no memory for " + std::to_string(size) + " bytes: " +
                            std::to_string(allocated_) + " of its " + std::to_string(limit_) + " are allocated");
  // A segment is sparse, and the kernel would find out only when a page is touched (and kill the process).
  if (size >= (size_t{64} << 20)) {
    uint64_t left = available();
    if (left && size > left)
      throw host::MemoryError("no memory for " + std::to_string(size) + " bytes: the machine has " +
                              std::to_string(left) + " left");
  }
  Block* block = nullptr;
  std::map<size_t, size_t>::iterator hole;
  for (auto& [end, candidate] : blocks_) {
    if (candidate.adopted) continue;
    hole = std::find_if(candidate.free.begin(), candidate.free.end(), [&](auto& it) { return it.second >= size; });
    if (hole != candidate.free.end()) {
      block = &candidate;
      break;
    }
  }
  if (!block) {
    block = &make_block(std::max(size, block_bytes));
    hole = block->free.begin();
  }
  auto [offset, room] = *hole;
  block->free.erase(hole);
  if (room > size) block->free.emplace(offset + size, room - size);
  block->used += size;
  allocated_ += size;
  return block->segment.base + offset;
}

void Arena::free(uint8_t* at, size_t bytes) {
  size_t size = round_up(bytes);
  std::lock_guard guard(mutex_);
  auto found = blocks_.upper_bound(reinterpret_cast<uintptr_t>(at));
  if (found == blocks_.end() || at < found->second.segment.base || found->second.adopted)
    throw std::invalid_argument("Arena::free: not memory of this arena");
  Block& block = found->second;
  size_t offset = static_cast<size_t>(at - block.segment.base);
  auto next = block.free.lower_bound(offset);
  bool overlaps = size > block.segment.size - offset || (next != block.free.end() && next->first < offset + size) ||
                  (next != block.free.begin() && std::prev(next)->first + std::prev(next)->second > offset);
  if (overlaps) throw std::invalid_argument("Arena::free: not allocated");
  block.used -= size;
  allocated_ -= size;
  // The pages go back, for peers that still map the file too, and read as zeros when they are allocated again.
  ::fallocate(block.segment.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size));
  if (block.used == 0 && blocks_.size() > 1) {
    drop_block(found);
    return;
  }
  size_t end = offset + size;
  if (next != block.free.end() && next->first == end) {
    end += next->second;
    next = block.free.erase(next);
  }
  if (next != block.free.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second = end - before->first;
      return;
    }
  }
  block.free.emplace(offset, end - offset);
}

Arena::Block& Arena::make_block(size_t bytes) {
  int fd = ::memfd_create("userdma-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw host::MemoryError("memfd_create for DMA memory: " + reason() + " (ulimit -n?)");
  void* base = MAP_FAILED;
  // Sealed, so that a peer that maps the file need not fear a SIGBUS.
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0 && ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    const char* limit = errno == EFBIG ? "; raise `ulimit -f`" : "; raise `ulimit -v`, if it is limited";
    std::string why = reason();
    ::close(fd);
    throw host::MemoryError("no DMA memory of " + std::to_string(bytes) + " bytes: " + why + limit);
  }
  auto* start = static_cast<uint8_t*>(base);
  Block block{describe(fd, 0, start, bytes), false, {{0, bytes}}, 0};
  return blocks_.emplace(reinterpret_cast<uintptr_t>(start) + bytes, std::move(block)).first->second;
}

void Arena::drop_block(std::map<uintptr_t, Block>::iterator block) {
  const Segment& segment = block->second.segment;
  if (!block->second.adopted) {
    ::fallocate(segment.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(segment.size));
    ::munmap(segment.base, segment.size);
  }
  ::close(segment.fd);
  blocks_.erase(block);
}

void Arena::adopt(int fd, uint64_t offset, uint8_t* base, size_t size) {
  int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) throw host::MemoryError("duplicating a memory descriptor: " + reason() + " (ulimit -n?)");
  std::lock_guard guard(mutex_);
  blocks_.emplace(reinterpret_cast<uintptr_t>(base) + size, Block{describe(own, offset, base, size), true, {}, size});
}

void Arena::abandon(uint8_t* base) {
  std::lock_guard guard(mutex_);
  auto found = blocks_.upper_bound(reinterpret_cast<uintptr_t>(base));
  if (found == blocks_.end() || !found->second.adopted || found->second.segment.base != base)
    throw std::invalid_argument("Arena::abandon: not adopted");
  drop_block(found);
}

const Segment* Arena::find(const void* at) const {
  std::lock_guard guard(mutex_);
  auto found = blocks_.upper_bound(reinterpret_cast<uintptr_t>(at));
  if (found == blocks_.end() || static_cast<const uint8_t*>(at) < found->second.segment.base) return nullptr;
  return &found->second.segment;
}

uint64_t Arena::allocated() const {
  std::lock_guard guard(mutex_);
  return allocated_;
}

}  // namespace userdma::soft
