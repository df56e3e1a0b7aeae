#include "soft/vfio_user/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace userdma::soft::vfio_user {

int Memory::map(const Map& map, const Fd& file) {
  if (mappings_.size() >= kMaxMaps || function_.dma_nodes() >= most_nodes) return ENOSPC;
  constexpr uint64_t limit = uint64_t{1} << Dma::address_bits;
  if (map.size > limit || map.address > limit - map.size) return ENOSPC;
  const auto after = mappings_.lower_bound(map.address);
  if (after != mappings_.end() && after->first < map.address + map.size) return EEXIST;
  if (after != mappings_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes > map.address) return EEXIST;
  }
  const auto access = static_cast<Dma::Access>((map.flags & dma_flag::kRead ? Dma::Read : 0) |
                                               (map.flags & dma_flag::kWrite ? Dma::Write : 0));
  Mapping mapping{map.size, nullptr, files_.end()};
  if (map.has_memory) {
    if (const int error = open(map, file, mapping.file)) return error;
    mapping.at = mapping.file->at + (map.offset - mapping.file->offset);
  }
  try {
    if (mapping.at) {
      function_.map_memory(map.address, mapping.at, map.size, access);
    } else {
      function_.map_memory(map.address, remote_, map.size, access);
    }
  } catch (const std::invalid_argument&) {  // what the function's own memory has
    return EEXIST;
  }
  if (mapping.at) ++mapping.file->users;
  mappings_.emplace_hint(after, map.address, mapping);
  return 0;
}

int Memory::open(const Map& map, const Fd& file, std::list<File>::iterator& out) {
  struct stat status{};
  if (::fstat(file.get(), &status)) return errno;
  const int mode = ::fcntl(file.get(), F_GETFL);
  if (mode < 0 || (mode & O_ACCMODE) == O_WRONLY) return EACCES;
  const bool writable = (mode & O_ACCMODE) == O_RDWR;
  if (map.flags & dma_flag::kWrite && !writable) return EACCES;
  const bool bounded = S_ISREG(status.st_mode);
  const auto size = static_cast<uint64_t>(status.st_size);
  if (bounded && (map.size > size || map.offset > size - map.size)) return EINVAL;

  const auto same = [&](const File& known) {
    return known.device == status.st_dev && known.inode == status.st_ino && known.writable == writable &&
           known.offset <= map.offset && map.size <= known.bytes && map.offset - known.offset <= known.bytes - map.size;
  };
  out = bounded ? std::find_if(files_.begin(), files_.end(), same) : files_.end();
  if (out != files_.end()) {
    files_.splice(files_.begin(), files_, out);
    return 0;
  }
  drop_unused(files_.size() < most_files ? kept_files : 0);
  if (files_.size() >= most_files) return ENOSPC;
  const uint64_t offset = bounded ? 0 : map.offset, bytes = bounded ? size : map.size;
  void* at = ::mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED | MAP_NORESERVE, file.get(),
                    static_cast<off_t>(offset));
  if (at == MAP_FAILED) return errno;
  struct statfs system{};
  const bool huge = ::fstatfs(file.get(), &system) == 0 && system.f_type == HUGETLBFS_MAGIC;
  Guard guard(at, bytes, huge ? static_cast<size_t>(system.f_bsize) : Arena::page());
  if (!guard.made()) {
    ::munmap(at, bytes);
    return ENOSPC;
  }
  files_.push_front(
      {status.st_dev, status.st_ino, writable, offset, bytes, static_cast<uint8_t*>(at), std::move(guard)});
  out = files_.begin();
  return 0;
}

int Memory::unmap(uint64_t address, uint64_t bytes, uint64_t& unmapped) {
  unmapped = 0;
  const uint64_t last = address + (bytes - 1);  // the end may be 2^64
  auto first = mappings_.lower_bound(address);
  if (first != mappings_.begin()) {
    const auto before = std::prev(first);
    if (before->first + before->second.bytes > address) return EINVAL;
  }
  auto end = first;
  for (; end != mappings_.end() && end->first <= last; ++end) {
    if (end->first + (end->second.bytes - 1) > last) return EINVAL;
    unmapped += end->second.bytes;
  }
  while (first != end) this->end(first++);
  drop_unused(kept_files);
  return 0;
}

bool Memory::lost() const {
  return std::any_of(files_.begin(), files_.end(), [](const File& file) { return file.guard.lost(); });
}

void Memory::unmap_all() {
  while (!mappings_.empty()) end(mappings_.begin());
  drop_unused(0);
}

void Memory::end(std::map<uint64_t, Mapping>::iterator mapping) {
  const Mapping& one = mapping->second;
  function_.unmap_memory(mapping->first, one.at, one.bytes);
  if (one.at) --one.file->users;
  mappings_.erase(mapping);
}

void Memory::drop_unused(size_t keep) {
  size_t unused = 0;
  for (auto file = files_.begin(); file != files_.end();) {
    if (file->users || ++unused <= keep) {
      ++file;
      continue;
    }
    ::munmap(file->at, file->bytes);
    file = files_.erase(file);
  }
}

}  // namespace userdma::soft::vfio_user
