#include "host/uverbs.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "hw/uverbs.h"

namespace userdma::host {

namespace fs = std::filesystem;

namespace {

constexpr size_t kKept = 4096;  // events; of a device that tells without end the oldest go

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The device's file in /dev. Throws MachineError.
std::string file_of(const std::string& device, const Roots& roots) {
  const std::vector<std::string> devices = names_in(roots.sysfs + "/class/infiniband");
  if (std::find(devices.begin(), devices.end(), device) == devices.end())
    throw MachineError("the kernel has no RDMA device " + device + ": " +
                       (devices.empty() ? "it has none at all; load the driver of yours (`modprobe mlx5_ib`, say)"
                                        : "it has " + joined(devices)));
  const std::string folder = roots.sysfs + "/class/infiniband_verbs";
  for (const std::string& name : names_in(folder))
    if (read_text(folder + "/" + name + "/ibdev") == device) return roots.dev + "/infiniband/" + name;
  throw MachineError("the kernel gives user space no file for " + device + ": `modprobe ib_uverbs`");
}

std::string cannot_open(const std::string& path, const std::string& device, int error) {
  std::string why = with_errno("cannot open " + path + " for " + device, error);
  if (error == EACCES || error == EPERM)
    why +=
        ": a udev rule gives it to every user, as Debian's rdma-core does: SUBSYSTEM==\"infiniband_verbs\", "
        "MODE=\"0666\" (in /etc/udev/rules.d/60-rdma.rules)";
  if (error == ENOENT) why += ": a container is given it by --device=" + path;
  if (error == ENXIO || error == EIO) why += ": its driver is letting it go, or has failed (`dmesg` says why)";
  return why;
}

}  // namespace

std::string Uverbs::obstacle(const std::string& device, const Roots& roots) {
  try {
    const std::string path = file_of(device, roots);
    return ::access(path.c_str(), R_OK | W_OK) == 0 ? "" : cannot_open(path, device, errno);
  } catch (const MachineError& error) {
    return error.what();
  }
}

Uverbs::Uverbs(const std::string& device, const Roots& roots, const std::shared_ptr<System>& system)
    : system_(system), name_(device), config_(roots.sysfs + "/class/infiniband/" + device + "/device/config") {
  const std::string path = file_of(device, roots);
  fd_ = system_->open(path.c_str());
  if (fd_ < 0) throw MachineError(cannot_open(path, device, errno));
}

int Uverbs::call(void* request) {
  const int fd = fd_.load();
  if (fd < 0) return EBADF;
  return system_->ioctl(fd, RDMA_VERBS_IOCTL, request) == 0 ? 0 : errno;
}

Bar Uverbs::map_registers(uint64_t offset, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (maps_.find(0)) throw MachineError(name_ + " has its registers mapped already");
  void* base =
      system_->mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.load(), static_cast<off_t>(offset));
  if (base == MAP_FAILED) throw MachineError(with_errno("the driver of " + name_ + " maps no registers", errno));
  return maps_.add(0, base, bytes);
}

void Uverbs::watch(int fd) {
  system_->never_wait(fd);
  if (int old = events_fd_.exchange(fd); old >= 0) system_->close(old);
}

void Uverbs::look() const {
  const int fd = events_fd_.load();
  if (fd < 0) return;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread looks
  for (size_t i = 0; i < kKept; ++i) {
    ib_uverbs_async_event_desc event{};
    const ssize_t n = system_->read(fd, &event, sizeof(event));
    if (n != static_cast<ssize_t>(sizeof(event))) {
      if (n < 0 && errno == EIO) ended_ = true;  // the driver is gone, and its last event was read
      break;
    }
    if (event.event_type == hw::uverbs::event::kDeviceFatal) ended_ = true;
    if (events_.size() == kKept) events_.pop_front();
    events_.push_back({event.element, event.event_type});
    waiting_.store(true, std::memory_order_release);
  }
}

std::deque<Uverbs::Event> Uverbs::take_events(int milliseconds) {
  look();
  if (const int fd = events_fd_.load(); fd >= 0 && milliseconds > 0 && !waiting()) {
    system_->await(fd, milliseconds);
    look();
  }
  std::lock_guard lock(mutex_);
  waiting_.store(false, std::memory_order_relaxed);
  return std::exchange(events_, {});
}

bool Uverbs::failed() const {
  look();
  return ended_ || fd_.load() < 0;
}

bool Uverbs::over_memlock(uint64_t bytes) const {
  const uint64_t limit = system_->memlock();
  const uint64_t pinned = system_->pinned();
  return limit != ~uint64_t{0} && (pinned > limit || bytes > limit - pinned);
}

MemoryError Uverbs::refused(uint64_t bytes, const char* what, int error) const {
  if (error == ENOMEM && !over_memlock(bytes))
    return MemoryError(with_errno("the system refuses to pin " + kib(bytes) + " of " + what, error));
  return refused_pin(*system_, bytes, what, error, system_->pinned());
}

uint32_t Uverbs::config(unsigned offset, unsigned width) const {
  const uint32_t none = width == 4 ? ~0u : (1u << (8 * width)) - 1;
  std::ifstream file(config_, std::ios::binary);
  uint32_t value = 0;
  file.seekg(offset);
  if (!file.read(reinterpret_cast<char*>(&value), width)) return none;
  return value;
}

void Uverbs::keep(const char* what) const {
  throw MachineError(name_ + " stays its kernel driver's, and so do its " + what +
                     ": open its PCI function instead, once the driver has given it up");
}

Memory Uverbs::alloc_dma(size_t bytes) {
  const size_t size = whole_pages(bytes);
  uint8_t* data = map_anonymous(*system_, size);
  std::lock_guard lock(mutex_);
  memory_[data] = size;
  return {data, size, {{reinterpret_cast<uintptr_t>(data), size}}, reinterpret_cast<uintptr_t>(data)};
}

void Uverbs::free_dma(const Memory& memory) {
  if (process != ::getpid()) return;
  std::lock_guard lock(mutex_);
  auto found = memory_.find(memory.data);
  if (found == memory_.end()) return;
  system_->munmap(found->first, found->second);
  memory_.erase(found);
}

Memory Uverbs::pin(void* address, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (bytes > SIZE_MAX / 2 || at + bytes < at) throw MemoryError("no process has such memory");
  return {static_cast<uint8_t*>(address), bytes, {{at, bytes}}, at};
}

void Uverbs::release() {
  if (fd_.load() < 0) return;
  // What is mapped holds the file open, and the last of it ends the device's work: only then goes the memory.
  maps_.clear([this](uint8_t* base, size_t size) { system_->munmap(base, size); });
  for (std::atomic<int>* fd : {&events_fd_, &fd_})
    if (int own = fd->exchange(-1); own >= 0) system_->close(own);
  std::lock_guard lock(mutex_);
  for (auto [data, size] : memory_) system_->munmap(data, size);
  memory_.clear();
}

}  // namespace userdma::host
