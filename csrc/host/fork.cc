#include "host/fork.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

#include "host/function.h"

namespace userdma::host {

std::atomic<uint64_t> detail::forks{1};

void at_fork_in_child(void (*run)()) { ::pthread_atfork(nullptr, nullptr, run); }

namespace {

// What a fork locks, and what children let go of. The forking thread holds the locks over the fork, so that the child's
// lists are whole.
class Forks {
 public:
  void add(ForkMutex* held) {
    std::lock_guard lock(mutex_);
    held_.push_back(held);
  }
  void remove(ForkMutex* held) {
    std::lock_guard lock(mutex_);
    held_.erase(std::find(held_.begin(), held_.end(), held));
  }
  void add(const std::function<void()>* in_child) {
    std::lock_guard lock(mutex_);
    list_.push_back(in_child);
  }
  void remove(const std::function<void()>* in_child) {
    std::lock_guard lock(mutex_);
    list_.erase(std::find(list_.begin(), list_.end(), in_child));
  }

  void before() {
    mutex_.lock();
    for (ForkMutex* held : held_) held->lock();
    if (list_.empty() || ::pipe2(done_, O_CLOEXEC) != 0) done_[0] = done_[1] = -1;
  }
  void in_child() {
    detail::forks.fetch_add(1, std::memory_order_relaxed);
    unlock();
    if (done_[0] >= 0) {
      const char begun = 0;
      if (::write(done_[1], &begun, 1) < 0) {
        // The parent does not wait for longer, then.
      }
    }
    for (const auto* each : list_) (*each)();
    if (done_[0] >= 0) {
      ::close(done_[0]);
      ::close(done_[1]);
    }
    mutex_.unlock();
  }
  void in_parent() {
    unlock();
    if (done_[0] >= 0) {
      ::close(done_[1]);
      // A child that another library's handler holds up is not waited for longer than that. What has begun ends: with
      // the child, at the latest.
      char byte;
      for (int limit = 1000; readable(limit) && ::read(done_[0], &byte, 1) > 0;) limit = -1;
      ::close(done_[0]);
    }
    mutex_.unlock();
  }

 private:
  void unlock() {
    for (ForkMutex* held : held_) held->unlock();
  }
  bool readable(int milliseconds) {
    pollfd end{done_[0], POLLIN, 0};
    int ready;
    while ((ready = ::poll(&end, 1, milliseconds)) < 0 && errno == EINTR) {
    }
    return ready > 0;
  }

  std::mutex mutex_;
  std::vector<ForkMutex*> held_;
  std::vector<const std::function<void()>*> list_;
  int done_[2] = {-1, -1};  // a pipe that the child closes
};

// Made by what is made first, which is when the library is loaded: never amid a fork.
Forks* known = nullptr;

Forks& forks() {
  if (!known) {
    known = new Forks;
    ::pthread_atfork([] { known->before(); }, [] { known->in_parent(); }, [] { known->in_child(); });
  }
  return *known;
}

[[maybe_unused]] const Forks& made_when_loaded = forks();

}  // namespace

void MadeHere::check_made_here(const std::string& what) const {
  if (!made_here())
    throw MachineError(what +
                       " belongs to the process that made it, of which this is a fork: make one in this process");
}

ForkMutex::ForkMutex() { forks().add(this); }

ForkMutex::~ForkMutex() { forks().remove(this); }

AtFork::AtFork(std::function<void()> in_child) : in_child_(std::move(in_child)) { forks().add(&in_child_); }

AtFork::~AtFork() { forks().remove(&in_child_); }

}  // namespace userdma::host
