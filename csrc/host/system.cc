#include "host/system.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "host/sysfs.h"

namespace userdma::host {

namespace {

constexpr size_t kHuge = 2 << 20;

}  // namespace

int System::open(const char* path) { return ::open(path, O_RDWR | O_CLOEXEC); }
int System::close(int fd) { return ::close(fd); }
int System::ioctl(int fd, unsigned long request, void* argument) { return ::ioctl(fd, request, argument); }
void* System::mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  return ::mmap(at, size, protection, flags, fd, offset);
}
int System::munmap(void* at, size_t size) { return ::munmap(at, size); }
ssize_t System::pread(int fd, void* to, size_t n, off_t offset) { return ::pread(fd, to, n, offset); }
ssize_t System::read(int fd, void* to, size_t n) { return ::read(fd, to, n); }
ssize_t System::pwrite(int fd, const void* from, size_t n, off_t offset) { return ::pwrite(fd, from, n, offset); }
int System::eventfd() { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
int System::never_wait(int fd) { return ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }
void System::await(int fd, int milliseconds) {
  pollfd one{fd, POLLIN, 0};
  ::poll(&one, 1, milliseconds);
}
bool System::signaled(int fd) {
  uint64_t count = 0;
  return ::read(fd, &count, sizeof(count)) == sizeof(count);
}
uint64_t System::memlock() {
  rlimit limit{};
  return getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
}

uint64_t System::pinned() {
  std::ifstream status("/proc/self/status");
  std::string name;
  for (uint64_t kilobytes; status >> name; status.ignore(256, '\n'))
    if (name == "VmPin:") return status >> kilobytes ? kilobytes * 1024 : 0;
  return 0;
}

const std::shared_ptr<System>& System::real_ = *new std::shared_ptr<System>(new System);

size_t system_page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

size_t whole_pages(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw MemoryError("no machine has " + std::to_string(bytes) + " bytes");
  const size_t page = system_page();
  return (bytes + page - 1) / page * page;
}

uint8_t* map_anonymous(System& system, size_t size) {
  size_t extra = size >= kHuge ? kHuge : 0;
  void* base =
      system.mmap(nullptr, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw MemoryError(with_errno("the machine has no " + kib(size) + " of memory", errno));
  auto at = reinterpret_cast<uintptr_t>(base);
  if (extra != 0) {
    uintptr_t aligned = (at + kHuge - 1) / kHuge * kHuge;
    if (aligned != at) system.munmap(base, aligned - at);
    if (size_t tail = at + extra - aligned; tail != 0) system.munmap(reinterpret_cast<void*>(aligned + size), tail);
    at = aligned;
    madvise(reinterpret_cast<void*>(at), size, MADV_HUGEPAGE);  // only advice
  }
  return reinterpret_cast<uint8_t*>(at);
}

MemoryError refused_pin(System& system, uint64_t bytes, const char* what, int error, uint64_t pinned) {
  const std::string why = "the system refuses to pin " + kib(bytes) + " of " + what;
  const uint64_t limit = system.memlock();
  if (error == ENOMEM && limit != ~uint64_t{0}) {
    // The system counts what the process locks all together, by other functions and by mlock too.
    const uint64_t needed = pinned + bytes;
    return MemoryError(why + ": " + kib(needed) + " of locked memory are needed" +
                       (needed > limit ? "" : ", beside what else this process locks,") + " and `ulimit -l` is " +
                       kib(limit) +
                       ": raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a systemd unit, or "
                       "memlock in /etc/security/limits.conf)");
  }
  if (error == EFAULT) return MemoryError(why + ": it is not mapped in the process, or not writable");
  return MemoryError(with_errno(why, error));
}

}  // namespace userdma::host
