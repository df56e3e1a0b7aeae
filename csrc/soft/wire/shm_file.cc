#include "soft/wire/shm_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "host/fork.h"
#include "host/function.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire::shm {
namespace {

// Bytes of the file that are locked: the first for whoever changes records, then one for each port, by its process.
constexpr unsigned control_byte = 0;
constexpr unsigned port_byte = 1;

const char* const folder = "/dev/shm";
const std::string prefix = "userdma-";

// How long the file's lock is waited for. Whoever has it gives it back within microseconds, unless it is stopped.
constexpr std::chrono::milliseconds to_join{5'000};
constexpr std::chrono::milliseconds to_leave{2'000};
constexpr std::chrono::milliseconds to_send{100};
constexpr std::chrono::milliseconds to_look{5};  // it is looked again soon

// The files that this process has open, by path. A forked child starts with none: ports and locks are the parent's,
// and so are the parent's descriptors, which the child must not close, lest it lose locks of its own.
struct Files {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Shared>> open;
};

constexpr host::OneOfProcess<Files> current;

// NICs that nobody stopped (a thread of Python's that never ends may hold one) still have their ports at the end.
[[maybe_unused]] const int at_exit = std::atexit([] {
  std::unique_lock registry(current->mutex, std::try_to_lock);
  if (!registry) return;
  for (auto& [path, shared] : current->open)
    if (shared) shared->abandon();
});

std::string reason() { return std::strerror(errno); }

std::string text_of(const uint8_t mac[6]) {
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
  return text;
}

// Whom a ring joins. What stands in the file may be anything, for another process wrote it: it is read once, and a
// record that names no ports is nobody's.
struct Ends {
  explicit Ends(const RingRecord& record)
      : sender(__atomic_load_n(&record.sender, __ATOMIC_RELAXED)),
        receiver(__atomic_load_n(&record.receiver, __ATOMIC_RELAXED)),
        sender_port(__atomic_load_n(&record.sender_port, __ATOMIC_RELAXED)),
        receiver_port(__atomic_load_n(&record.receiver_port, __ATOMIC_RELAXED)) {}
  bool valid() const { return sender && sender_port < max_ports && receiver_port < max_ports; }

  const Life sender, receiver;
  const unsigned sender_port, receiver_port;
};

struct flock range(short type, unsigned first, unsigned count) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return lock;
}

}  // namespace

std::atomic<void (*)()> on_wait{nullptr};

// True if the file's lock was to be had.
class Shared::Guard {
 public:
  Guard(Shared& shared, std::chrono::milliseconds limit, bool join = false)
      : shared_(shared), guard_(shared.mutex_), locked_(shared.lock_control(limit, join)) {}
  // The lock is this process's already.
  struct Locked {};
  Guard(Shared& shared, Locked) : shared_(shared), guard_(shared.mutex_), locked_(true) {}
  ~Guard() {
    if (locked_ && shared_.fd_ >= 0) shared_.unlock_byte(control_byte);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  explicit operator bool() const { return locked_; }

 private:
  Shared& shared_;
  std::lock_guard<std::mutex> guard_;
  const bool locked_;
};

Shared::Joined Shared::join(const std::string& name, const uint8_t mac[6]) {
  Files& files = *current;
  std::lock_guard registry(files.mutex);
  sweep(files.open);
  const std::string path = std::string(folder) + "/" + prefix + name;
  std::string trouble;
  Joined joined{};
  if (auto found = files.open.find(path); found != files.open.end()) {
    const std::shared_ptr<Shared> shared = found->second;
    Guard guard(*shared, to_join, true);
    if (!guard) throw host::Error(shared->locked_out());
    joined = shared->take_port(mac, trouble);
    joined.shared = shared;
  } else {
    const std::shared_ptr<Shared> shared(new Shared(path, "shm:" + name));
    shared->open();
    // The lock is kept from there on, or the file could be taken for one that nobody is on.
    Guard guard(*shared, Guard::Locked{});
    try {
      joined = shared->take_port(mac, trouble);
    } catch (...) {
      shared->close();
      throw;
    }
    joined.shared = shared;
    files.open.emplace(path, shared);
  }
  if (!trouble.empty()) std::fprintf(stderr, "userdma: %s\n", trouble.c_str());
  return joined;
}

// With the lock held.
Shared::Joined Shared::take_port(const uint8_t mac[6], std::string& trouble) {
  FileHeader& header = file_->header;
  reap();
  if (!named()) trouble = gone();
  for (const PortRecord& port : header.port)
    if (port.life.load(std::memory_order_relaxed) && std::memcmp(port.mac, mac, 6) == 0)
      throw host::Error("the MAC " + text_of(mac) + " is on the wire " + name_ + " already: give the NIC another one");
  for (unsigned index = 0; index < max_ports; ++index) {
    PortRecord& port = header.port[index];
    if (port.life.load(std::memory_order_relaxed) || (mine_ >> index & 1)) continue;
    // What its last owner sent must be read first.
    bool read = false;
    for (const PortRecord& other : header.port)
      read = read || (other.life.load(std::memory_order_relaxed) && other.from[index].load(std::memory_order_relaxed));
    if (read || !lock_byte(port_byte + index)) continue;
    mine_ |= uint64_t{1} << index;
    port.pid = static_cast<uint32_t>(::getpid());
    port.file = fd_;
    std::memcpy(port.mac, mac, 6);
    port.bell.store(0, std::memory_order_relaxed);
    for (auto& from : port.from) from.store(0, std::memory_order_relaxed);
    Life life = ++header.next_life;
    if (!life) life = ++header.next_life;  // somebody wrote there
    port.life.store(life, std::memory_order_release);
    return {nullptr, index, life};
  }
  throw host::Error("the wire " + name_ + " is full: " + std::to_string(max_ports) + " NICs are on it");
}

void Shared::leave(unsigned index) {
  Files& files = *current;
  std::lock_guard registry(files.mutex);
  Guard guard(*this, to_leave);
  if (!(mine_ >> index & 1)) return;  // abandoned: it may be another process's by now
  if (guard) release_port(index);     // else others find it dead
  mine_ &= ~(uint64_t{1} << index);
  unlock_byte(port_byte + index);
  if (mine_) return;
  // The last one out removes the file. Whoever opened it meanwhile waits for the lock, and then sees that it is gone.
  if (guard) {
    reap();
    if (empty() && named()) ::unlink(path_.c_str());
  }
  close();
  files.open.erase(path_);
}

void Shared::abandon() {
  Guard guard(*this, to_leave);
  if (!guard) return;
  for (unsigned i = 0; i < max_ports; ++i)
    if (mine_ >> i & 1) release_port(i);
  mine_ = 0;
  reap();
  if (empty() && named()) ::unlink(path_.c_str());
}

// True if no port has an owner.
bool Shared::empty() {
  for (auto& port : file_->header.port)
    if (port.life.load(std::memory_order_relaxed)) return false;
  return true;
}

Shared::~Shared() {
  uncut_.reset();
  if (file_) ::munmap(file_, sizeof(File));
}

void Shared::remove_abandoned() {
  Files& files = *current;
  std::lock_guard registry(files.mutex);
  sweep(files.open);
}

// `open`: the wires of this process, whose files it must not close, for that would release its locks.
void Shared::sweep(const Open& open) {
  DIR* listing = ::opendir(folder);
  if (!listing) return;
  const int in = ::dirfd(listing);
  while (const dirent* entry = ::readdir(listing)) {
    struct stat here{}, named{};
    const auto a_wire = [&] {
      return S_ISREG(here.st_mode) && here.st_uid == ::geteuid() && here.st_size == static_cast<off_t>(sizeof(File));
    };
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) != 0 ||
        ::fstatat(in, entry->d_name, &here, AT_SYMLINK_NOFOLLOW) != 0 || !a_wire())
      continue;
    bool ours = false;
    for (const auto& [path, shared] : open)
      ours = ours || (::fstat(shared->fd_, &named) == 0 && named.st_ino == here.st_ino && named.st_dev == here.st_dev);
    if (ours) continue;
    const int fd = ::openat(in, entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    // With the lock, nobody can be about to take a port; one that waits for it sees that the file lost its name.
    struct flock control = range(F_WRLCK, control_byte, 1), ports = range(F_WRLCK, port_byte, max_ports);
    struct {
      uint64_t magic;
      uint32_t version;
    } header{};
    if (::fcntl(fd, F_SETLK, &control) == 0 && ::fstat(fd, &here) == 0 && a_wire() &&
        ::fstatat(in, entry->d_name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == here.st_ino &&
        named.st_dev == here.st_dev && ::pread(fd, &header, sizeof header, 0) == sizeof header &&
        (!header.magic || (header.magic == magic && header.version == version)) && ::fcntl(fd, F_GETLK, &ports) == 0 &&
        ports.l_type == F_UNLCK)
      ::unlinkat(in, entry->d_name, 0);
    ::close(fd);
  }
  ::closedir(listing);
}

// Opens and maps the file, and returns with its lock.
void Shared::open() {
  for (;;) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd_ < 0)
      throw host::Error("the wire " + name_ + " cannot be used: " + path_ + ": " + reason() +
                        (errno == EACCES  ? " (it is another user's: choose another name)"
                         : errno == ELOOP ? " (it is a symbolic link: remove it, or choose another name)"
                         : errno == ENXIO ? " (it is a socket: remove it, or choose another name)"
                                          : ""));
    std::string error;
    try {
      if (!lock_control(to_join, true)) error = locked_out();
    } catch (...) {
      close();
      throw;
    }
    if (error.empty() && create_or_check(error)) {
      void* at = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
      if (at != MAP_FAILED) {
        file_ = static_cast<File*>(at);
        uncut_ = std::make_unique<soft::Guard>(at, sizeof(File));
        return;
      }
      error = "the wire " + name_ + " cannot be mapped: " + reason() + " (ulimit -v?)";
    }
    close();
    if (!error.empty()) throw host::Error(error);
  }
}

void Shared::close() {
  ::close(fd_);
  fd_ = -1;
}

// True if the file still has its name.
bool Shared::named() {
  struct stat here{}, named{};
  return ::fstat(fd_, &here) == 0 && ::lstat(path_.c_str(), &named) == 0 && named.st_ino == here.st_ino &&
         named.st_dev == here.st_dev;
}

// With the lock held. False: an error, or (without a text) the file is gone, and another must be opened.
bool Shared::create_or_check(std::string& error) {
  struct stat here{};
  if (::fstat(fd_, &here) != 0) {
    error = "the wire " + name_ + ": " + reason();
    return false;
  }
  if (!named()) return false;
  if (!S_ISREG(here.st_mode) || here.st_uid != ::geteuid()) {
    error = "the wire " + name_ + " cannot be used: " + path_ + " is " +
            (S_ISFIFO(here.st_mode)   ? "a FIFO: remove it, or"
             : !S_ISREG(here.st_mode) ? "no regular file: remove it, or"
                                      : "another user's:") +
            " choose another name";
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
    error = "the wire " + name_ + " cannot be made: " + path_ + ": " + reason() +
            (errno == EFBIG ? " (raise `ulimit -f`)" : "");
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

// Polls: F_SETLKW could wait without end for a process that is stopped, and tells nobody meanwhile.
bool Shared::lock_control(std::chrono::milliseconds limit, bool join) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (auto pause = std::chrono::microseconds(10);; pause = std::min(2 * pause, std::chrono::microseconds(1000))) {
    if (lock_byte(control_byte)) return true;
    if ((errno != EAGAIN && errno != EACCES) || std::chrono::steady_clock::now() >= until) return false;
    if (auto call = on_wait.load(); join && call) call();
    std::this_thread::sleep_for(pause);
  }
}

// Who has the file's lock.
std::string Shared::holder() {
  struct flock lock = range(F_WRLCK, control_byte, 1);
  if (::fcntl(fd_, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK || lock.l_pid <= 0) return "another process";
  return "process " + std::to_string(lock.l_pid);
}

std::string Shared::locked_out() {
  const std::string who = holder();
  return "the wire " + name_ + " cannot be used: " + who + " keeps its lock (of " + path_ +
         "), which takes microseconds: let it go on if it is stopped, or end it";
}

// To be told once.
std::string Shared::gone() {
  if (told_gone_) return {};
  told_gone_ = true;
  if (uncut_->lost()) {
    return "the wire " + name_ + " lost its file: " + path_ +
           " was cut short while NICs were on it, and no packet crosses: close all of its NICs, and open them again";
  }
  return "the wire " + name_ + " lost its file: " + path_ +
         " was removed while NICs were on it. Processes that join it now are on another wire, and no packet crosses: "
         "close all of its NICs, and open them again";
}

bool Shared::lock_byte(unsigned byte) {
  struct flock lock = range(F_WRLCK, byte, 1);
  int result;
  do result = ::fcntl(fd_, F_SETLK, &lock);
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
  std::string trouble;
  const int port = look_up(mac, trouble);
  if (!trouble.empty()) std::fprintf(stderr, "userdma: %s\n", trouble.c_str());  // without the lock: it may block
  return port;
}

int Shared::look_up(const uint8_t mac[6], std::string& trouble) {
  Guard guard(*this, to_send);
  if (!guard) {
    if (!told_locked_) trouble = locked_out() + ". Meanwhile packets are lost";
    told_locked_ = true;
    return -1;
  }
  for (unsigned i = 0; i < max_ports; ++i) {
    PortRecord& port = file_->header.port[i];
    if (!port.life.load(std::memory_order_relaxed) || std::memcmp(port.mac, mac, 6) != 0) continue;
    if ((mine_ >> i & 1) || locked_elsewhere(port_byte + i, 1)) return static_cast<int>(i);
    release_port(i);
  }
  if (!told_gone_ && (!named() || uncut_->lost())) trouble = gone();
  return -1;
}

bool Shared::alive(unsigned index, Life life) {
  Guard guard(*this, to_look);
  if (file_->header.port[index].life.load(std::memory_order_relaxed) != life) return false;
  if (!guard || (mine_ >> index & 1) || locked_elsewhere(port_byte + index, 1)) return true;
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
  Guard guard(*this, to_send);
  if (!guard) return -1;
  FileHeader& header = file_->header;
  if (header.port[receiver].life.load(std::memory_order_relaxed) != receiver_life) return -1;
  auto holds = [&](unsigned port, Life life) { return header.port[port].life.load(std::memory_order_relaxed) == life; };
  for (unsigned i = 0; i < max_rings; ++i) {
    RingRecord& record = header.ring[i];
    uint32_t flags = record.flags.load(std::memory_order_relaxed);
    if (const Ends ends(record); ends.valid()) {
      bool written = !(flags & Left) && holds(ends.sender_port, ends.sender);
      bool read = (flags & Adopted) && holds(ends.receiver_port, ends.receiver);
      // ... or its receiver has not looked yet.
      bool named = holds(ends.receiver_port, ends.receiver) &&
                   header.port[ends.receiver_port].from[ends.sender_port].load(std::memory_order_relaxed) == i + 1;
      if (written || read || named) continue;
    }
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

void Shared::leave_ring(unsigned index) { file_->header.ring[index].flags.fetch_or(Left, std::memory_order_relaxed); }

bool Shared::adopt(unsigned index, Life life, uint32_t (&adopted)[max_ports]) {
  Guard guard(*this, to_look);
  if (!guard) return true;
  FileHeader& header = file_->header;
  PortRecord& port = header.port[index];
  if (port.life.load(std::memory_order_relaxed) != life) return false;
  bool again = false;
  for (unsigned i = 0; i < max_ports; ++i) {
    uint32_t named = port.from[i].load(std::memory_order_relaxed);
    if (!named) continue;
    RingRecord& record = header.ring[(named - 1) % max_rings];
    const Ends ends(record);
    if (named > max_rings || !ends.valid() || ends.sender_port != i || ends.receiver_port != index ||
        ends.receiver != life) {
      port.from[i].store(0, std::memory_order_relaxed);  // no ring that leads from there to here
      continue;
    }
    bool left = ends.sender != header.port[i].life.load(std::memory_order_relaxed);
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
  Guard guard(*this, to_send);
  if (!guard) return false;
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
