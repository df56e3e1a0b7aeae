// A PCI function through VFIO: the kernel's IOMMU maps the memory that its device may reach.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "host/function.h"
#include "host/sysfs.h"

namespace userdma::host {

// The system calls that VFIO takes, so that a test can stand in for the kernel. They return as the calls do, with the
// error in errno.
class System {
 public:
  virtual ~System() = default;
  virtual int open(const char* path);
  virtual int close(int fd);
  virtual int ioctl(int fd, unsigned long request, void* argument);
  virtual void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset);
  virtual int munmap(void* at, size_t size);
  virtual ssize_t pread(int fd, void* to, size_t n, off_t offset);
  virtual ssize_t pwrite(int fd, const void* from, size_t n, off_t offset);
  virtual int eventfd();
  virtual uint64_t memlock();  // the limit of locked memory in bytes, RLIMIT_MEMLOCK

  static const std::shared_ptr<System>& real();
};

// Takes the function. Throws MachineError, which says what to change.
std::shared_ptr<Function> open_vfio(const std::string& bus, const Roots& roots = {},
                                    const std::shared_ptr<System>& system = System::real());

// What open_vfio would refuse before it touches the function.
void check_vfio(const std::string& bus, const Roots& roots = {});

}  // namespace userdma::host
