#include "soft/wire/shm_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "host/function.h"
#include "soft/fork.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire::shm {
namespace {

// Bytes of the file that are locked: the first for whoever changes records, then one for each port, by its process.
constexpr unsigned control_byte = 0;
constexpr unsigned port_byte = 1;

// The files that this process has open, by path. A forked child starts with none: ports and locks are the parent's,
// and so are the parent's descriptors, which the child must not close, lest it lose locks of its own.
struct Files {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Shared>> open;
};

std::atomic<Files*>& current() {
  static std::atomic<Files*> instance{[] {
    at_fork_in_child([] { current().store(new Files, std::memory_order_release); });
    // NICs that nobody stopped (a thread of Python's that never ends may hold one) still have their ports then.
    std::atexit([] {
      Files& files = *current().load(std::memory_order_acquire);
      std::unique_lock registry(files.mutex, std::try_to_lock);
      if (!registry) return;
      for (auto& [path, shared] : files.open)
        if (shared) shared->abandon();
    });
    return new Files;
  }()};
  return instance;
}

std::string reason() { return std::strerror(errno); }

std::string text_of(const uint8_t mac[6]) {
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
  return text;
}

struct flock range(short type, unsigned first, unsigned count) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return lock;
}

}  // namespace

class Shared::Guard {
 public:
  explicit Guard(Shared& shared) : shared_(shared), guard_(shared.mutex_) { shared_.lock_byte(control_byte, true); }
  ~Guard() {
    if (shared_.fd_ >= 0) shared_.unlock_byte(control_byte);
  }

 private:
  Shared& shared_;
  std::lock_guard<std::mutex> guard_;
};

Shared::Joined Shared::join(const std::string& name, const uint8_t mac[6]) {
  Files& files = *current().load(std::memory_order_acquire);
  std::lock_guard registry(files.mutex);
  const std::string path = "/dev/shm/userdma-" + name;
  auto& entry = files.open[path];
  if (!entry) {
    entry = std::shared_ptr<Shared>(new Shared(path, "shm:" + name));
    try {
      entry->open();
    } catch (...) {
      files.open.erase(path);
      throw;
    }
  }
  std::shared_ptr<Shared> shared = entry;
  std::string error;
  {
    Guard guard(*shared);
    FileHeader& header = shared->file_->header;
    shared->reap();
    int place = -1;
    for (unsigned i = 0; i < max_ports && error.empty(); ++i) {
      PortRecord& port = header.port[i];
      if (port.life.load(std::memory_order_relaxed)) {
        if (std::memcmp(port.mac, mac, 6) == 0)
          error = "the MAC " + text_of(mac) + " is on the wire " + shared->name_ + " already: give the NIC another one";
      } else if (place < 0) {
        // What its last owner sent must be read first.
        bool read = false;
        for (const PortRecord& other : header.port)
          read = read || (other.life.load(std::memory_order_relaxed) && other.from[i].load(std::memory_order_relaxed));
        if (!read) place = static_cast<int>(i);
      }
    }
    if (error.empty() && place < 0)
      error = "the wire " + shared->name_ + " is full: " + std::to_string(max_ports) + " NICs are on it";
    if (error.empty()) {
      auto index = static_cast<unsigned>(place);
      shared->lock_byte(port_byte + index, false);
      shared->mine_ |= uint64_t{1} << index;
      PortRecord& port = header.port[index];
      port.pid = static_cast<uint32_t>(::getpid());
      port.file = shared->fd_;
      std::memcpy(port.mac, mac, 6);
      port.bell.store(0, std::memory_order_relaxed);
      for (auto& from : port.from) from.store(0, std::memory_order_relaxed);
      Life life = ++header.next_life;
      port.life.store(life, std::memory_order_release);
      return {shared, index, life};
    }
  }
  if (!shared->mine_) {
    ::close(shared->fd_);
    shared->fd_ = -1;
    files.open.erase(path);
  }
  throw host::Error(error);
}

void Shared::leave(unsigned index) {
  Files& files = *current().load(std::memory_order_acquire);
  std::lock_guard registry(files.mutex);
  Guard guard(*this);
  if (!(mine_ >> index & 1)) return;  // abandoned: it may be another process's by now
  release_port(index);
  mine_ &= ~(uint64_t{1} << index);
  unlock_byte(port_byte + index);
  if (mine_) return;
  // The last one out removes the file. Whoever opened it meanwhile waits for the lock, and then sees that it is gone.
  reap();
  bool empty = true;
  for (auto& port : file_->header.port) empty = empty && !port.life.load(std::memory_order_relaxed);
  if (empty) ::unlink(path_.c_str());
  ::close(fd_);
  fd_ = -1;
  files.open.erase(path_);
}

void Shared::abandon() {
  Guard guard(*this);
  for (unsigned i = 0; i < max_ports; ++i)
    if (mine_ >> i & 1) release_port(i);
  mine_ = 0;
  reap();
  bool empty = true;
  for (auto& port : file_->header.port) empty = empty && !port.life.load(std::memory_order_relaxed);
  if (empty) ::unlink(path_.c_str());
}

Shared::~Shared() {
  if (file_) ::munmap(file_, sizeof(File));
}

void Shared::open() {
  for (;;) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0)
      throw host::Error("the wire " + name_ + " cannot be used: " + path_ + ": " + reason() +
                        (errno == EACCES ? " (it is another user's: choose another name)" : ""));
    std::string error;
    bool usable = lock_byte(control_byte, true) && create_or_check(error);
    if (usable) {
      void* at = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
      if (at != MAP_FAILED) {
        file_ = static_cast<File*>(at);
        unlock_byte(control_byte);
        return;
      }
      error = "the wire " + name_ + " cannot be mapped: " + reason() + " (ulimit -v?)";
    }
    ::close(fd_);
    fd_ = -1;
    if (!error.empty()) throw host::Error(error);
  }
}

// With the lock held. False: an error, or (without a text) the file is gone, and another must be opened.
bool Shared::create_or_check(std::string& error) {
  struct stat here{}, named{};
  if (::fstat(fd_, &here) != 0) {
    error = "the wire " + name_ + ": " + reason();
    return false;
  }
  if (::stat(path_.c_str(), &named) != 0 || named.st_ino != here.st_ino || named.st_dev != here.st_dev) return false;
  if (!S_ISREG(here.st_mode) || here.st_uid != ::geteuid()) {
    error = "the wire " + name_ + " cannot be used: " + path_ + " is another user's: choose another name";
    return false;
  }
  struct {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
  } header{};
  static_assert(offsetof(FileHeader, version) == 8 && offsetof(FileHeader, bytes) == 12);
  constexpr uint32_t mib = sizeof(File) >> 20;
  bool read = ::pread(fd_, &header, sizeof header, 0) == sizeof header;
  if (read && header.magic == magic && header.version == version && header.bytes == mib &&
      here.st_size == static_cast<off_t>(sizeof(File)))
    return true;
  if (read && header.magic) {
    // Of another version, or not a wire at all. It is replaced if nobody has a port on it.
    if (header.magic != magic || locked_elsewhere(port_byte, max_ports)) {
      error = "the wire " + name_ + " cannot be used: " + path_ +
              (header.magic == magic ? " is in use by another version of userdma" : " is not a wire: remove it") +
              ", or choose another name";
      return false;
    }
    ::unlink(path_.c_str());
    return false;
  }
  // New, or its creator died before it was done.
  if (::ftruncate(fd_, 0) != 0 || ::ftruncate(fd_, sizeof(File)) != 0) {
    error = "the wire " + name_ + " cannot be made: " + path_ + ": " + reason();
  } else if (int code = ::posix_fallocate(fd_, 0, sizeof(FileHeader)); code != 0) {
    error = "the wire " + name_ + " cannot be made: no room in /dev/shm: " + std::strerror(code);
  } else {
    // The magic number last: until it is there, the file is not a wire yet.
    header = {0, version, mib};
    bool written = ::pwrite(fd_, &header, sizeof header, 0) == sizeof header;
    header.magic = magic;
    if (written && ::pwrite(fd_, &header, sizeof header, 0) == sizeof header) return true;
    error = "the wire " + name_ + " cannot be made: " + path_ + ": " + reason();
  }
  ::unlink(path_.c_str());
  return false;
}

bool Shared::lock_byte(unsigned byte, bool wait) {
  struct flock lock = range(F_WRLCK, byte, 1);
  int result;
  do result = ::fcntl(fd_, wait ? F_SETLKW : F_SETLK, &lock);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

void Shared::unlock_byte(unsigned byte) {
  struct flock lock = range(F_UNLCK, byte, 1);
  ::fcntl(fd_, F_SETLK, &lock);
}

bool Shared::locked_elsewhere(unsigned first, unsigned count) {
  struct flock lock = range(F_WRLCK, first, count);
  return ::fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int Shared::find(const uint8_t mac[6]) {
  Guard guard(*this);
  for (unsigned i = 0; i < max_ports; ++i) {
    PortRecord& port = file_->header.port[i];
    if (!port.life.load(std::memory_order_relaxed) || std::memcmp(port.mac, mac, 6) != 0) continue;
    if ((mine_ >> i & 1) || locked_elsewhere(port_byte + i, 1)) return static_cast<int>(i);
    release_port(i);
  }
  return -1;
}

bool Shared::alive(unsigned index, Life life) {
  Guard guard(*this);
  if (file_->header.port[index].life.load(std::memory_order_relaxed) != life) return false;
  if ((mine_ >> index & 1) || locked_elsewhere(port_byte + index, 1)) return true;
  release_port(index);
  return false;
}

void Shared::reap() {
  for (unsigned i = 0; i < max_ports; ++i)
    if (file_->header.port[i].life.load(std::memory_order_relaxed) && !(mine_ >> i & 1) &&
        !locked_elsewhere(port_byte + i, 1))
      release_port(i);
}

void Shared::release_port(unsigned index) {
  PortRecord& port = file_->header.port[index];
  port.life.store(0, std::memory_order_release);
  port.bell.store(0, std::memory_order_relaxed);
  for (auto& from : port.from) from.store(0, std::memory_order_relaxed);
  for (auto& other : file_->header.port) {
    if (!other.from[index].load(std::memory_order_relaxed)) continue;
    other.changes.fetch_add(1, std::memory_order_release);
    Bell(other.bell, true).ring();
  }
}

int Shared::open_ring(unsigned sender, unsigned receiver, Life receiver_life, std::string& why) {
  Guard guard(*this);
  FileHeader& header = file_->header;
  if (header.port[receiver].life.load(std::memory_order_relaxed) != receiver_life) return -1;
  auto holds = [&](unsigned port, Life life) { return header.port[port].life.load(std::memory_order_relaxed) == life; };
  for (unsigned i = 0; i < max_rings; ++i) {
    RingRecord& record = header.ring[i];
    uint32_t flags = record.flags.load(std::memory_order_relaxed);
    bool written = record.sender && !(flags & Left) && holds(record.sender_port, record.sender);
    bool read = record.sender && (flags & Adopted) && holds(record.receiver_port, record.receiver);
    // ... or its receiver has not looked yet.
    bool named = record.sender && holds(record.receiver_port, record.receiver) &&
                 header.port[record.receiver_port].from[record.sender_port].load(std::memory_order_relaxed) == i + 1;
    if (written || read || named) continue;
    auto offset = static_cast<size_t>(reinterpret_cast<uint8_t*>(&file_->ring[i]) - reinterpret_cast<uint8_t*>(file_));
    ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), sizeof(Ring));
    record.sender = 0;
    if (!reserve(offset, sizeof(Ring), why)) return -1;
    record.receiver = receiver_life;
    record.sender_port = static_cast<uint16_t>(sender);
    record.receiver_port = static_cast<uint16_t>(receiver);
    record.flags.store(0, std::memory_order_relaxed);
    record.sender = header.port[sender].life.load(std::memory_order_relaxed);
    header.port[receiver].from[sender].store(i + 1, std::memory_order_relaxed);
    header.port[receiver].changes.fetch_add(1, std::memory_order_release);
    return static_cast<int>(i);
  }
  if (!told_) why = "the wire " + name_ + " has no ring left";
  told_ = true;
  return -1;
}

void Shared::leave_ring(unsigned index) {
  Guard guard(*this);
  file_->header.ring[index].flags.fetch_or(Left, std::memory_order_relaxed);
}

bool Shared::adopt(unsigned index, Life life, uint32_t (&adopted)[max_ports]) {
  Guard guard(*this);
  FileHeader& header = file_->header;
  PortRecord& port = header.port[index];
  if (port.life.load(std::memory_order_relaxed) != life) return false;
  bool again = false;
  for (unsigned i = 0; i < max_ports; ++i) {
    uint32_t named = port.from[i].load(std::memory_order_relaxed);
    if (!named) continue;
    RingRecord& record = header.ring[named - 1];
    bool left = record.sender != header.port[i].life.load(std::memory_order_relaxed);
    if (adopted[i] != named) {
      record.flags.fetch_or(Adopted, std::memory_order_relaxed);
      adopted[i] = named;
      again = again || left;
    } else if (left) {
      record.flags.fetch_and(~uint32_t{Adopted}, std::memory_order_relaxed);
      port.from[i].store(0, std::memory_order_relaxed);
      adopted[i] = 0;
    }
  }
  return again;
}

bool Shared::reserve_bounce(unsigned port, std::string& why) {
  Guard guard(*this);
  auto* at = reinterpret_cast<uint8_t*>(&file_->bounce[port]);
  return reserve(static_cast<size_t>(at - reinterpret_cast<uint8_t*>(file_)), sizeof(Bounce), why);
}

// Memory that is touched without being reserved would end the process by SIGBUS where /dev/shm is full.
bool Shared::reserve(size_t offset, size_t bytes, std::string& why) {
  int code;
  do code = ::posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (code == EINTR);
  if (code == 0) return true;
  if (!told_)
    why = "the wire " + name_ + " loses packets: no room in /dev/shm for " + std::to_string(bytes >> 10) +
          " KiB: " + std::strerror(code);
  told_ = true;
  return false;
}

}  // namespace userdma::soft::wire::shm
