// Serves a function over vfio-user on a Unix socket, to one client after the other.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "host/fork.h"
#include "soft/soft_function.h"
#include "soft/vfio_user/fd.h"
#include "soft/vfio_user/session.h"

namespace userdma::soft::vfio_user {

class Server : public host::MadeHere {
 public:
  struct Options {
    std::string path;   // of the socket
    bool once = false;  // ends when its first client leaves
  };

  // Listens from here on, and serves in a thread of its own. The function is the server's until that ends: nobody else
  // may use it. Throws host::Error: somebody listens there already, the path cannot be a socket's, the function's
  // memory is in use.
  Server(std::shared_ptr<SoftFunction> function, const Options& options);
  ~Server() { close(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Lets go of the client, and ends. The socket is gone. Any thread; idempotent. The function is not released. In a
  // forked child: nothing; the server is the parent's.
  void close();

  const std::string& path() const { return options_.path; }
  SoftFunction& function() { return *function_; }
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  bool connected() const { return connected_.load(std::memory_order_acquire); }
  uint64_t clients() const { return clients_.load(std::memory_order_acquire); }  // that have come so far
  // Readable once it has ended. Throws host::MachineError in a forked child, which would not learn of it.
  int end_event() const {
    check_made_here("the server of " + options_.path);
    return end_.get();
  }

 private:
  void listen();
  void start();
  void unlink_own();
  void serve();
  void serve_client(Fd socket);

  const std::shared_ptr<SoftFunction> function_;
  const Options options_;
  Fd listener_;
  ino_t inode_ = 0;  // of its name
  Fd stop_;          // an eventfd: the thread is to end
  Fd end_;           // an eventfd: it has
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> connected_{false};
  std::atomic<uint64_t> clients_{0};

  std::mutex mutex_;  // what follows
  Session* session_ = nullptr;

  std::mutex closing_;  // close at a time
  std::unique_ptr<std::thread> thread_;
};

}  // namespace userdma::soft::vfio_user
