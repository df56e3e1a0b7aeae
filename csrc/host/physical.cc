#include "host/physical.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "host/bar_maps.h"
#include "host/fork.h"
#include "host/system.h"
#include "host/uses.h"
#include "hw/pci.h"

namespace userdma::host {

namespace pci = userdma::hw::pci;

namespace {

std::string mib(uint64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

// Documentation/admin-guide/mm/pagemap.rst: 8 bytes for each page; the frame in bits 0 to 54, present in bit 63.
uint64_t from_pagemap(const void* at) {
  // Opened each time: after a fork, one that was open already is still of the parent's memory.
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  uint64_t entry = 0;
  auto address = reinterpret_cast<uintptr_t>(at);
  const size_t page = system_page();
  const bool read =
      fd >= 0 && pread(fd, &entry, sizeof(entry), static_cast<off_t>(address / page * sizeof(entry))) == sizeof(entry);
  if (fd >= 0) close(fd);
  if (!read) return 0;
  constexpr uint64_t frames = (uint64_t{1} << 55) - 1;
  if (entry >> 63 == 0 || (entry & frames) == 0) return 0;
  return (entry & frames) * page + address % page;
}

// The size of huge pages that /proc/sys/vm/nr_hugepages reserves, in bytes; 0 if it is not told.
size_t default_huge_page() {
  std::ifstream info("/proc/meminfo");
  std::string name;
  for (size_t kib; info >> name; info.ignore(256, '\n'))
    if (name == "Hugepagesize:") return info >> kib ? kib * 1024 : 0;
  return 0;
}

// Where huge pages can be made, rather of the default size than of another one.
std::string huge_page_folder() {
  const size_t wanted = default_huge_page();
  std::ifstream mounts("/proc/mounts");
  std::string line, first;
  while (std::getline(mounts, line)) {
    std::istringstream words(line);
    std::string device, folder, type;
    if (!(words >> device >> folder >> type) || type != "hugetlbfs") continue;
    struct statfs info{};
    if (statfs(folder.c_str(), &info) == 0 && static_cast<size_t>(info.f_bsize) == wanted) return folder;
    if (first.empty()) first = folder;
  }
  if (!first.empty()) return first;
  throw MemoryError("no hugetlbfs is mounted: `mount -t hugetlbfs none /dev/hugepages`");
}

// References of the kernel's to pages, so that it moves none of them: neither for memory whose errors are corrected
// (soft offline), nor for `migratepages`, a cpuset, or memory that goes offline. Pipes hold them.
class InPlace {
 public:
  InPlace() = default;
  ~InPlace() {
    for (int end : full_) close(end);
    if (filling_ >= 0) close(filling_);
  }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

  // One more reference to each page; false, with the error in errno, if the system gives none.
  bool hold(uint8_t* data, size_t size, size_t page) {
    for (size_t at = 0; at < size; at += page) {
      if (room_ == 0 && !grow()) return false;
      iovec first{data + at, 1};
      if (vmsplice(filling_, &first, 1, SPLICE_F_NONBLOCK) != 1) return false;
      --room_;
    }
    return true;
  }

 private:
  bool grow() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    if (filling_ >= 0) close(filling_);
    full_.push_back(ends[0]);
    filling_ = ends[1];
    // pipe(7): its capacity is in pages of 4 KiB, of which each reference takes one: 16, or as many as anyone may have
    // (/proc/sys/fs/pipe-max-size is 1 MiB, unless it was changed).
    constexpr int slot = 4096, most = 1 << 20;
    const int bytes = fcntl(filling_, F_SETPIPE_SZ, most);
    room_ = static_cast<size_t>((bytes > 0 ? bytes : fcntl(filling_, F_GETPIPE_SZ)) / slot);
    return true;
  }

  std::vector<int> full_;  // ends that hold what is in them
  int filling_ = -1;       // the other end of the last one
  size_t room_ = 0;        // references that it still takes
};

// A file of huge pages: memory whose physical addresses do not change while its owner lives, given out in pages and
// runs of pages. Its name is the function's, and who has it locked is the function's owner.
class HugePages {
 public:
  // Throws MachineError if another process has it.
  HugePages(const std::string& name, const PhysicalOptions& options)
      : folder_(options.huge_pages.empty() ? huge_page_folder() : options.huge_pages),
        path_(folder_ + "/userdma-" + name),
        physical_(options.physical ? options.physical : from_pagemap) {
    lock_ = locked(path_);
    if (lock_ < 0) throw MachineError(name + " is driven by another process (`fuser -v " + path_ + "`)");
    struct statfs info{};
    page_ = options.huge_page;
    default_page_ = page_ != 0 ? page_ : default_huge_page();
    if (page_ == 0 && fstatfs(lock_, &info) == 0) page_ = static_cast<size_t>(info.f_bsize);
  }
  ~HugePages() {
    for (const Chunk& chunk : chunks_) munmap(chunk.data, chunk.size);
    if (fd_ >= 0) close(fd_);
    if (lock_ < 0) return;
    // While it is locked, so that it is nobody else's. What an owner that died left stays, unless the function was
    // reset.
    if (fd_ >= 0 || empty()) unlink(path_.c_str());
    close(lock_);
  }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  // Leaves what an owner that died had in the file: the caller has reset the function, so nothing writes there any
  // more. A child of that owner may still read it, so the memory is not cut off: another file takes its name.
  void begin() {
    if (!empty()) {
      const std::string next = path_ + ".next";
      unlink(next.c_str());
      const int lock = locked(next);
      if (lock < 0 || rename(next.c_str(), path_.c_str()) != 0) {
        const std::string why = with_errno("cannot make " + path_ + " anew", errno);
        if (lock >= 0) close(lock);
        throw MemoryError(why);
      }
      close(std::exchange(lock_, lock));
    }
    // Opened once more: memory that is mapped by a descriptor holds its lock, also in the child of a fork.
    fd_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd_ < 0) throw MemoryError(with_errno("cannot open " + path_, errno));
  }

  // The device may still write its memory: it stays, with its name, and the next owner may take the function.
  void keep() { flock(lock_, LOCK_UN); }

  Memory take(size_t bytes) {
    const size_t page = system_page();
    const size_t size = (bytes + page - 1) / page * page;
    for (Chunk& chunk : chunks_) {
      for (auto each = chunk.free.begin(); each != chunk.free.end(); ++each) {
        auto [offset, room] = *each;
        if (room < size) continue;
        chunk.free.erase(each);
        if (room > size) chunk.free[offset + size] = room - size;
        return memory(chunk, offset, size);
      }
    }
    Chunk& chunk = grow((size + page_ - 1) / page_ * page_);
    if (chunk.size > size) chunk.free[size] = chunk.size - size;
    return memory(chunk, 0, size);
  }

  void give(const uint8_t* data, size_t size) {
    Chunk* chunk = find(data, size);
    if (chunk == nullptr) return;
    size_t offset = static_cast<size_t>(data - chunk->data);
    auto next = chunk->free.lower_bound(offset);
    if (next != chunk->free.end() && offset + size == next->first) {
      size += next->second;
      next = chunk->free.erase(next);
    }
    if (next != chunk->free.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    chunk->free[offset] = size;
  }

  // In the child of a fork: the file is the parent's. Its pages stay mapped here too, for who still reads them, and go
  // back to the system when both have let them go.
  void leave_to_parent() {
    for (int* fd : {&fd_, &lock_})
      if (*fd >= 0) close(std::exchange(*fd, -1));
  }

  // The runs of memory that `take` gave.
  std::vector<Run> runs(const uint8_t* data, size_t size) {
    Chunk* chunk = find(data, size);
    return chunk == nullptr ? std::vector<Run>{} : runs(*chunk, static_cast<size_t>(data - chunk->data), size);
  }

 private:
  struct Chunk {
    uint8_t* data;
    size_t size;
    std::vector<uint64_t> frames;   // the physical address of each huge page
    std::map<size_t, size_t> free;  // offset, bytes
  };

  // The file by its name, made if there is none, and locked as long as its descriptor is open; -1 if somebody else has
  // it locked.
  static int locked(const std::string& path) {
    for (;;) {
      const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (fd < 0) throw MemoryError(with_errno("cannot make " + path, errno));
      struct stat own{}, named{};
      const bool mine = flock(fd, LOCK_EX | LOCK_NB) == 0;
      // An owner that ended meanwhile took the name away.
      if (mine && fstat(fd, &own) == 0 && stat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino) return fd;
      close(fd);
      if (!mine) return -1;
    }
  }

  bool empty() const {
    struct stat info{};
    return fstat(lock_, &info) == 0 && info.st_size == 0;
  }

  Chunk& grow(size_t size) {
    auto refuse = [&](const std::string& why) {
      throw MemoryError(why + ": the machine has no " + mib(size) + " of huge pages left for " + path_ +
                        "; `echo N > " + reserve() + "` reserves N of " + mib(page_) +
                        " (HugePages_Free in /proc/meminfo says how many are left)");
    };
    if (ftruncate(fd_, static_cast<off_t>(length_ + size)) != 0) refuse(with_errno("cannot grow the file", errno));
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_,
                      static_cast<off_t>(length_));  // huge pages are not swapped
    if (data == MAP_FAILED) {
      int error = errno;
      (void)!ftruncate(fd_, static_cast<off_t>(length_));
      refuse(with_errno("cannot map huge pages", error));
    }
    Chunk chunk{static_cast<uint8_t*>(data), size, {}, {}};
    const auto drop_all = [&] {
      munmap(data, size);
      (void)!ftruncate(fd_, static_cast<off_t>(length_));
    };
    if (!present(data, size)) {  // a control group or a memory policy may refuse what mmap has promised
      drop_all();
      refuse("the system gives no huge pages, by the limit of a control group (hugetlb) or a memory policy");
    }
    if (!in_place_.hold(chunk.data, size, page_)) {
      std::string why = with_errno("the system does not hold huge pages in place by a pipe (vmsplice)", errno);
      if (errno == EMFILE) why += ": raise `ulimit -n`";
      drop_all();
      throw MemoryError(why);
    }
    for (size_t offset = 0; offset < size; offset += page_) {
      uint64_t address = physical_(chunk.data + offset);
      if (address == 0) {
        drop_all();
        throw MemoryError(
            "the system does not tell physical addresses (/proc/self/pagemap): root is needed, with "
            "CAP_SYS_ADMIN");
      }
      chunk.frames.push_back(address);
    }
    length_ += size;
    chunks_.push_back(std::move(chunk));
    return chunks_.back();
  }

  // Where pages of this size are reserved.
  std::string reserve() const {
    if (page_ == default_page_) return "/proc/sys/vm/nr_hugepages";
    return "/sys/kernel/mm/hugepages/hugepages-" + std::to_string(page_ / 1024) + "kB/nr_hugepages";
  }

  static bool present(void* data, size_t size) {
    std::vector<unsigned char> pages(size / system_page());
    return mincore(data, size, pages.data()) != 0 ||
           std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  }

  Chunk* find(const uint8_t* data, size_t size) {
    for (Chunk& chunk : chunks_)
      if (data >= chunk.data && data < chunk.data + chunk.size &&
          size <= chunk.size - static_cast<size_t>(data - chunk.data))
        return &chunk;
    return nullptr;
  }

  std::vector<Run> runs(const Chunk& chunk, size_t offset, size_t size) const {
    std::vector<Run> list;
    for (size_t end = offset + size; offset < end;) {
      size_t within = offset % page_;
      size_t bytes = std::min(page_ - within, end - offset);
      uint64_t address = chunk.frames[offset / page_] + within;
      if (!list.empty() && list.back().address + list.back().bytes == address)
        list.back().bytes += bytes;
      else
        list.push_back({address, bytes});
      offset += bytes;
    }
    return list;
  }

  Memory memory(const Chunk& chunk, size_t offset, size_t size) const {
    std::memset(chunk.data + offset, 0, size);
    return {chunk.data + offset, size, runs(chunk, offset, size), 0};
  }

  std::string folder_;
  std::string path_;
  std::function<uint64_t(const void*)> physical_;
  int lock_ = -1;  // the file, locked
  int fd_ = -1;    // the file, once what is in it is this owner's
  size_t page_ = 0;
  size_t default_page_ = 0;  // the system's, unless an option says otherwise
  size_t length_ = 0;
  std::vector<Chunk> chunks_;
  InPlace in_place_;  // every page of every chunk
};

// What outlives its function, as its device may still write there.
struct Kept {
  void add(std::unique_ptr<HugePages> pages) {
    pages->keep();
    std::lock_guard lock(mutex_);
    all_.push_back(std::move(pages));
  }

 private:
  ForkMutex mutex_;
  std::vector<std::unique_ptr<HugePages>> all_;
};

Kept& kept = *new Kept;  // never destroyed

// What to change where a function's configuration space cannot be opened for writing.
std::string needed(int error) {
  if (error == EACCES || error == EPERM) return ": taking a function by its physical addresses needs root";
  if (error == EROFS) return ": /sys is mounted read-only, as containers have it (`mount -o remount,rw /sys`)";
  return "";
}

class PhysicalFunction final : public Function {
 public:
  PhysicalFunction(const PciDevice& device, const PhysicalOptions& options)
      : name_(device.bus()), path_(device.path()), bars_(device.bars()), numbers_(device.numbers()) {
    fd_ = open((path_ + "/config").c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ < 0) throw MachineError(with_errno("cannot open " + path_ + "/config", errno) + needed(errno));
    bool enabled = false, kept_off = false;
    try {
      // Gone with the process, however it ends.
      if (flock(fd_, LOCK_EX | LOCK_NB) != 0)
        throw MachineError(name_ + " is driven by another process (`fuser -v " + path_ + "/config`)");
      // Each network namespace has its own sysfs, and its own locks there; the file of huge pages is the machine's.
      pages_ = std::make_unique<HugePages>(name_, options);
      // Whatever an owner before left running ends here, before its memory can go.
      set_master(false);
      if (errno == EPERM)
        throw MachineError(name_ +
                           " cannot be taken by its physical addresses: the kernel is locked down (Secure Boot, or "
                           "lockdown= on its command line); VFIO behind an IOMMU works there");
      // Before the kernel says whether a driver has it.
      kept_off = true;
      keep_drivers_off();
      enabled = write_file("enable", "1");
      if (!enabled) {
        const int error = errno;
        std::string why = with_errno("the kernel does not enable " + name_, error);
        if (error == EPERM || error == EACCES) why += ": root is needed, with CAP_SYS_ADMIN";
        if (error == EBUSY) why += ": a driver has taken it meanwhile (`lspci -k -s " + name_ + "`)";
        throw MachineError(why);
      }
      do_reset();
      put(pci::kCommand, 2, get(pci::kCommand, 2) | pci::command::kMemory);
      pages_->begin();
    } catch (...) {
      if (kept_off) let_drivers_come();
      if (enabled) write_file("enable", "0");  // the kernel counts
      pages_.reset();
      close(fd_.exchange(-1));
      throw;
    }
  }
  ~PhysicalFunction() override { PhysicalFunction::release(); }

  std::string name() const override { return name_; }
  size_t page() const override { return system_page(); }
  Addressing addressing() const override { return Addressing::Physical; }

  uint32_t config(unsigned offset, unsigned width) const override {
    auto use = uses_.one();
    return get(offset, width);
  }
  void set_config(unsigned offset, unsigned width, uint32_t value) override {
    auto use = uses_.one();
    put(offset, width, value);
  }

  uint64_t bar_address(int index) const override { return index >= 0 && index < 6 ? bars_[index].address : 0; }
  size_t bar_size(int index) const override { return index >= 0 && index < 6 ? bars_[index].size : 0; }

  Bar map(int index) override {
    auto use = uses_.one();
    check_taken();
    if (bar_size(index) == 0) throw MachineError(name_ + " has no BAR " + std::to_string(index));
    if (!bars_[index].memory) throw MachineError("BAR " + std::to_string(index) + " of " + name_ + " is I/O ports");
    std::lock_guard lock(mutex_);
    if (auto found = maps_.find(index)) return *found;
    const std::string file = path_ + "/resource" + std::to_string(index);
    int fd = open(file.c_str(), O_RDWR | O_SYNC | O_CLOEXEC);
    if (fd < 0) throw MachineError(with_errno("cannot open " + file, errno));
    void* base = mmap(nullptr, bar_size(index), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    close(fd);
    if (base == MAP_FAILED) {
      std::string why = with_errno("cannot map " + file, error);
      if (error == EPERM) why += ": the kernel is locked down (Secure Boot, or lockdown= on its command line)";
      if (error == EINVAL || error == EBUSY) why += ": another driver uses it (iomem=relaxed on the command line)";
      throw MachineError(why);
    }
    return maps_.add(index, base, bar_size(index));
  }

  int interrupt(unsigned) override {
    throw MachineError(name_ +
                       " is taken by its physical addresses, where interrupts cannot reach the process: VFIO "
                       "is needed for them");
  }

  void reset() override {
    auto use = uses_.one();
    check_taken();
    do_reset();
  }

  Memory alloc_dma(size_t bytes) override {
    auto use = uses_.one();
    if (bytes == 0 || bytes > SIZE_MAX / 2) throw MemoryError("DMA memory of " + std::to_string(bytes) + " bytes");
    std::lock_guard lock(mutex_);
    check_taken();
    Memory memory = pages_->take(bytes);
    allocations_[memory.data] = {memory.size, 1};
    memory.handle = hold(memory.data);
    return memory;
  }
  void free_dma(const Memory& memory) override {
    auto use = uses_.one();
    std::lock_guard lock(mutex_);
    let_go(memory.handle);
  }
  // The pages stay while the pin holds them, as the device may write them by it, whether they are freed or not.
  Memory pin(void* address, size_t bytes) override {
    auto use = uses_.one();
    std::lock_guard lock(mutex_);
    check_taken();
    auto* data = static_cast<uint8_t*>(address);
    auto found = allocations_.upper_bound(data);
    const bool any = found != allocations_.begin() && bytes != 0;
    if (any) --found;
    if (!any || static_cast<size_t>(data - found->first) > found->second.size ||
        bytes > found->second.size - static_cast<size_t>(data - found->first))
      throw MemoryError(name_ +
                        " is not behind an IOMMU and takes only memory of its alloc_dma: other pages of the "
                        "process go back to the system when it dies, while the NIC may still write them");
    ++found->second.holders;
    return {data, bytes, pages_->runs(data, bytes), hold(found->first)};
  }
  void unpin(const Memory& memory) override { free_dma(memory); }

  bool failed() const override {
    auto use = uses_.one();
    return gone();
  }

  void release() override {
    if (fd_.load() < 0) return;
    auto end = uses_.end();
    if (fd_.load() < 0) return;
    set_master(false);
    const bool stopped = quiet();
    maps_.clear(munmap);
    // Memory that the device may still write must not go back to the system: the file stays, and so does its name.
    if (!stopped) kept.add(std::move(pages_));
    pages_.reset();
    let_drivers_come();
    write_file("enable", "0");
    close(fd_.exchange(-1));
  }

 private:
  // Memory of alloc_dma, held by whoever has it from there and by its pins.
  struct Allocation {
    size_t size = 0;
    unsigned holders = 0;
  };

  void check_taken() const {
    if (!pages_) throw MachineError(name_ + " was released");
  }

  uint64_t hold(uint8_t* allocation) {
    held_[++last_handle_] = allocation;
    return last_handle_;
  }

  void let_go(uint64_t handle) {
    auto held = held_.find(handle);
    if (held == held_.end() || !pages_) return;
    auto found = allocations_.find(held->second);
    held_.erase(held);
    if (--found->second.holders != 0) return;
    pages_->give(found->first, found->second.size);
    allocations_.erase(found);
  }

  uint32_t get(unsigned offset, unsigned width) const {
    uint32_t value = pci::kNothing;
    int fd = fd_.load();
    // Past the end of the file, or of a function that left: fewer bytes, or all ones.
    if (fd < 0 || pread(fd, &value, width, offset) != static_cast<ssize_t>(width)) value = pci::kNothing;
    // A virtual function has no numbers of its own (PCI Express base specification 9.3.4.1): the kernel knows them.
    if (numbers_ != pci::kNothing && fd >= 0 && offset + width <= pci::kDeviceId + 2 && !gone())
      value = numbers_ >> (8 * offset);
    return width == 4 ? value : value & ((1u << (8 * width)) - 1);
  }
  void put(unsigned offset, unsigned width, uint32_t value) {
    if (int fd = fd_.load(); fd >= 0) (void)!pwrite(fd, &value, width, offset);
  }

  // Not by the vendor's number, which is all ones in a virtual function too.
  bool gone() const { return get(pci::kRevision, 4) == pci::kNothing; }

  // Whether it writes no memory any more.
  bool quiet() {
    try {
      do_reset();
    } catch (const MachineError&) {
      return gone();  // what left the bus writes nothing
    }
    return true;
  }

  void do_reset() {
    int fd = open((path_ + "/reset").c_str(), O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
      bool done = write(fd, "1", 1) == 1;
      int error = errno;
      close(fd);
      if (!done) throw MachineError(with_errno("the reset of " + name_ + " failed", error));
      return;
    }
    if (errno != ENOENT) throw MachineError(with_errno("cannot open " + path_ + "/reset", errno));
    throw MachineError(name_ + " cannot be reset by itself (no function-level reset), so it cannot be taken safely");
  }

  // A function without a driver gets one as soon as a module that fits is loaded, however it is used: not while it
  // waits for a driver of this name (Documentation/ABI/testing/sysfs-bus-pci, driver_override).
  void keep_drivers_off() {
    if (read_text(path_ + "/driver_override") == "(null)") write_file("driver_override", "userdma\n");
  }
  void let_drivers_come() {
    if (read_text(path_ + "/driver_override") == "userdma") write_file("driver_override", "\n");
  }

  // Leaves the error of the write in errno, 0 if there was none.
  void set_master(bool on) {
    errno = 0;
    uint32_t command = get(pci::kCommand, 2);
    if (command == uint16_t(pci::kNothing)) return;
    put(pci::kCommand, 2, on ? command | pci::command::kMaster : command & ~uint32_t{pci::command::kMaster});
  }

  bool write_file(const std::string& name, const char* text) {
    int fd = open((path_ + "/" + name).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool done = write(fd, text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text));
    const int error = errno;
    close(fd);
    errno = error;
    return done;
  }

  std::string name_;
  std::string path_;
  std::array<PciBar, 6> bars_;
  uint32_t numbers_;  // the vendor's and the device's
  std::atomic<int> fd_{-1};
  Uses uses_;
  std::mutex mutex_;  // of what follows
  BarMaps maps_;
  std::unique_ptr<HugePages> pages_;
  std::map<uint8_t*, Allocation> allocations_;
  std::map<uint64_t, uint8_t*> held_;  // the allocation of each handle that alloc_dma and pin gave
  uint64_t last_handle_ = 0;
  // The lock lasts as long as any process has the descriptor that it is of.
  AtFork leave_to_parent_{[this] {
    if (int fd = fd_.exchange(-1); fd >= 0) close(fd);
    maps_.leave_to_parent();
    if (pages_) pages_->leave_to_parent();
  }};
};

}  // namespace

std::shared_ptr<Function> open_physical(const std::string& bus, const PhysicalOptions& options) {
  PciDevice device(bus, options.sysfs);
  if (std::string obstacle = device.physical_obstacle(); !obstacle.empty()) throw MachineError(obstacle);
  return std::make_shared<PhysicalFunction>(device, options);
}

void check_physical(const std::string& bus, const PhysicalOptions& options) {
  PciDevice device(bus, options.sysfs);
  if (std::string obstacle = device.physical_obstacle(); !obstacle.empty()) throw MachineError(obstacle);
  if (access(device.file("config").c_str(), R_OK | W_OK) != 0)
    throw MachineError(with_errno("cannot open " + device.file("config"), errno) + needed(errno));
}

}  // namespace userdma::host
