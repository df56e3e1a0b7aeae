// The calls that a function is in, and its end, which waits for them: memory and descriptors go at no other moment.
#pragma once

#include <mutex>
#include <shared_mutex>

#include "host/fork.h"

namespace userdma::host {

class Uses : private MadeHere {
 public:
  using One = std::shared_lock<std::shared_mutex>;
  using End = std::unique_lock<std::shared_mutex>;

  // Held over a call. In the child of a fork nothing is: it has no descriptors of the function any more, and a thread
  // that it does not have may have been in the end.
  One one() const {
    if (!made_here()) return {};
    std::lock_guard queue(queue_);
    return One(calls_);
  }

  // Held over the end: calls that come meanwhile find the function gone.
  End end() const {
    if (!made_here()) return {};
    std::lock_guard queue(queue_);  // threads that call without a pause do not keep it waiting
    return End(calls_);
  }

 private:
  mutable std::mutex queue_;
  mutable std::shared_mutex calls_;
};

}  // namespace userdma::host
