// The client's memory, as the device reaches it: what DMA_MAP and DMA_UNMAP say.
//
// A client sends the same few files again and again, with a virtual IOMMU for every page of its guest. So a file is
// mapped here in whole, once, and a message changes the device's translation table alone. Memory without a file is
// had by asking the client for it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>

#include "soft/dma.h"
#include "soft/guard.h"
#include "soft/soft_function.h"
#include "soft/vfio_user/fd.h"
#include "soft/vfio_user/message.h"

namespace userdma::soft::vfio_user {

// Not thread-safe: the serving thread's.
class Memory {
 public:
  // `remote`: how memory without a file is reached.
  Memory(SoftFunction& function, Dma::Remote& remote) : function_(function), remote_(remote) {}
  ~Memory() { unmap_all(); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // 0, or the errno to answer with.
  int map(const Map& map, const Fd& file);
  // Ends the mappings that lie within, which may be none, as VFIO does: EINVAL if one lies there only in part.
  // `unmapped`: their bytes.
  int unmap(uint64_t address, uint64_t bytes, uint64_t& unmapped);
  void unmap_all();

  // Whether the client has cut a file short that the device then reached for.
  bool lost() const;

  size_t mappings() const { return mappings_.size(); }
  size_t files() const { return files_.size(); }

 private:
  // A file mapped from its start, or, if it has no end that is known, a part of one.
  struct File {
    dev_t device;
    ino_t inode;
    bool writable;
    uint64_t offset;
    uint64_t bytes;
    uint8_t* at;
    Guard guard;
    size_t users = 0;
  };
  struct Mapping {
    uint64_t bytes;
    uint8_t* at;  // null: it is asked for
    std::list<File>::iterator file;
  };

  // So that one client leaves room for those of other functions in the process: a machine has a file for each of its
  // memory devices, and the translation table of a function few parts.
  static constexpr size_t most_files = 64;
  static constexpr size_t most_nodes = 16384;  // of 8 KiB

  // A file of which nothing is mapped any more is kept, so that a page that comes and goes costs no mmap.
  static constexpr size_t kept_files = 1;

  int open(const Map& map, const Fd& file, std::list<File>::iterator& out);
  void end(std::map<uint64_t, Mapping>::iterator mapping);
  void drop_unused(size_t keep);

  SoftFunction& function_;
  Dma::Remote& remote_;
  std::map<uint64_t, Mapping> mappings_;  // by address
  std::list<File> files_;                 // the one used last first
};

}  // namespace userdma::soft::vfio_user
