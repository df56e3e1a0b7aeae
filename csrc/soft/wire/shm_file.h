// The file of a wire in shared memory, as this process uses it: who has which port, which rings there are, who died.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "soft/guard.h"
#include "soft/wire/shm_layout.h"

namespace userdma::soft::wire::shm {

// One for each wire and process, however many ports the process has on it: POSIX locks are the process's, and closing
// any descriptor of the file would release them.
class Shared {
 public:
  // Takes a port with that MAC. Throws host::Error, and what on_wait threw.
  struct Joined {
    std::shared_ptr<Shared> shared;
    unsigned port;
    Life life;
  };
  static Joined join(const std::string& name, const uint8_t mac[6]);
  // Gives it back; the last port of the last process removes the file. (The memory stays mapped while somebody has
  // the object.)
  void leave(unsigned port);
  ~Shared();

  // Removes the files of wires of this user that nobody is on: their processes were killed.
  static void remove_abandoned();

  // At the end of the process: gives back the ports that it still has, as leave() does.
  void abandon();

  File& file() { return *file_; }

  // The port that has the MAC, or -1. Looks for dead ports too, and whether the file still has its name.
  int find(const uint8_t mac[6]);
  // True if the process that has the port lives; otherwise the port is nobody's from here on.
  bool alive(unsigned port, Life life);

  // A zeroed ring from `sender` to the port `receiver`, which gets to know it. -1: none; `why` says why if nobody was
  // told before.
  int open_ring(unsigned sender, unsigned receiver, Life receiver_life, std::string& why);
  void leave_ring(unsigned index);

  // The rings that lead to `port`, in `adopted` (index plus one, by sending port; zero: none). A new one is added; one
  // that was there already, and whose sender has left, is given back: it must have been emptied. True: this is to be
  // called again: a new one's sender has left already, and it must be emptied first; or others had the file's lock.
  bool adopt(unsigned port, Life life, uint32_t (&adopted)[max_ports]);

  // Room for payloads of `port`; false: no memory, and `why` as above.
  bool reserve_bounce(unsigned port, std::string& why);

 private:
  Shared(std::string path, std::string name) : path_(std::move(path)), name_(std::move(name)) {}

  class Guard;  // this process's mutex and the file's lock
  using Open = std::map<std::string, std::shared_ptr<Shared>>;

  static void sweep(const Open& open);
  void open();
  void close();
  bool create_or_check(std::string& error);
  bool lock_control(std::chrono::milliseconds limit, bool join = false);
  bool lock_byte(unsigned byte);
  void unlock_byte(unsigned byte);
  bool locked_elsewhere(unsigned first, unsigned count);
  std::string holder();
  std::string locked_out();
  std::string gone();
  bool named();
  bool empty();
  Joined take_port(const uint8_t mac[6], std::string& trouble);
  int look_up(const uint8_t mac[6], std::string& trouble);
  void reap();
  void release_port(unsigned port);
  bool reserve(size_t offset, size_t bytes, std::string& why);

  const std::string path_, name_;
  std::mutex mutex_;
  int fd_ = -1;
  File* file_ = nullptr;
  std::unique_ptr<soft::Guard> uncut_;  // whoever may write the file may cut it short
  uint64_t mine_ = 0;                   // ports of this process
  bool told_ = false;                   // that there is no room
  bool told_locked_ = false;            // that another process keeps the lock
  bool told_gone_ = false;              // that the file was removed
};

// Called again and again while a join waits for another process; what it throws ends the wait. Null: nothing. For the
// signals of an interpreter.
extern std::atomic<void (*)()> on_wait;

}  // namespace userdma::soft::wire::shm
