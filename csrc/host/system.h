// What is asked of the operating system: calls on a device's files, and the process's memory for it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "host/function.h"

namespace userdma::host {

// The system calls that it takes to reach a device, so that a test can stand in for the kernel. They return as the
// calls do, with the error in errno.
class System {
 public:
  virtual ~System() = default;
  virtual int open(const char* path);
  virtual int close(int fd);
  virtual int ioctl(int fd, unsigned long request, void* argument);
  virtual void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset);
  virtual int munmap(void* at, size_t size);
  virtual ssize_t pread(int fd, void* to, size_t n, off_t offset);
  virtual ssize_t read(int fd, void* to, size_t n);
  virtual ssize_t pwrite(int fd, const void* from, size_t n, off_t offset);
  virtual int eventfd();
  virtual int never_wait(int fd);                // reads of it return EAGAIN where there is nothing (O_NONBLOCK)
  virtual void await(int fd, int milliseconds);  // until there is something to read, or the time is over
  virtual bool signaled(int fd);                 // whether an eventfd was, since it was asked last
  virtual uint64_t memlock();                    // the limit of locked memory in bytes, RLIMIT_MEMLOCK

  virtual uint64_t pinned();  // bytes that the kernel's RDMA drivers pin for this process (VmPin)

  // Bytes that VFIO locks for this process, by all its groups.
  std::atomic<uint64_t> locked{0};

  static const std::shared_ptr<System>& real() { return real_; }

 private:
  static const std::shared_ptr<System>& real_;
};

size_t system_page();

// A descriptor that is closed once.
class Fd {
 public:
  Fd(std::shared_ptr<System> system, int fd) : system_(std::move(system)), fd_(fd) {}
  ~Fd() { close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  void close() {
    if (int fd = fd_.exchange(-1); fd >= 0) system_->close(fd);
  }

 private:
  std::shared_ptr<System> system_;
  std::atomic<int> fd_;
};

// New memory of the process, zeroed, aligned so that large memory can have huge pages, which take fewer entries of an
// IOMMU. Throws MemoryError.
uint8_t* map_anonymous(System& system, size_t size);

// `bytes` as whole pages; throws MemoryError for more than any machine has.
size_t whole_pages(size_t bytes);

// Why the system did not pin `bytes` of `what`, from the error of its call; `pinned` bytes are pinned already and count
// for the limit.
MemoryError refused_pin(System& system, uint64_t bytes, const char* what, int error, uint64_t pinned);

inline std::string kib(uint64_t bytes) { return std::to_string((bytes + 1023) / 1024) + " KiB"; }

}  // namespace userdma::host
