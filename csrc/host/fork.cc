#include "host/fork.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace userdma::host {

std::atomic<uint64_t> detail::forks{1};

void at_fork_in_child(void (*run)()) { ::pthread_atfork(nullptr, nullptr, run); }

namespace {

[[maybe_unused]] const bool installed = [] {
  at_fork_in_child([] { detail::forks.fetch_add(1, std::memory_order_relaxed); });
  return true;
}();

// What children let go of. The forking thread holds the lock over the fork, so that the child's list is whole.
class Registered {
 public:
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
    if (list_.empty() || ::pipe2(done_, O_CLOEXEC) != 0) done_[0] = done_[1] = -1;
  }
  void in_child() {
    for (const auto* each : list_) (*each)();
    if (done_[0] >= 0) {
      ::close(done_[0]);
      ::close(done_[1]);
    }
    mutex_.unlock();
  }
  void in_parent() {
    if (done_[0] >= 0) {
      ::close(done_[1]);
      pollfd end{done_[0], POLLIN, 0};
      ::poll(&end, 1, 1000);  // a child that another library's handler holds up is not waited for longer
      ::close(done_[0]);
    }
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::vector<const std::function<void()>*> list_;
  int done_[2] = {-1, -1};  // a pipe that the child closes
};

Registered& registered() {
  static auto* const all = [] {
    ::pthread_atfork([] { registered().before(); }, [] { registered().in_parent(); }, [] { registered().in_child(); });
    return new Registered;
  }();
  return *all;
}

}  // namespace

AtFork::AtFork(std::function<void()> in_child) : in_child_(std::move(in_child)) { registered().add(&in_child_); }

AtFork::~AtFork() { registered().remove(&in_child_); }

}  // namespace userdma::host
