#include "soft/wire/registry.h"

#include <atomic>
#include <mutex>

#include "host/fork.h"
#include "host/function.h"
#include "soft/wire/shm_file.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire {
namespace {

// The default wire of this process. A child that is forked gets a new one: the ports of the old one, and maybe its
// locks, are the parent's.
struct Default {
  std::mutex mutex;
  std::shared_ptr<Wire> wire;
};

std::atomic<Default*>& current() {
  static std::atomic<Default*> instance{[] {
    host::at_fork_in_child([] { current().store(new Default, std::memory_order_release); });
    return new Default;
  }()};
  return instance;
}

}  // namespace

std::shared_ptr<Wire> Wire::named(const std::string& name) {
  if (name.empty()) {
    Default& wires = *current().load(std::memory_order_acquire);
    std::lock_guard guard(wires.mutex);
    if (!wires.wire) wires.wire = make();
    return wires.wire;
  }
  static const std::string shm = "shm:";
  if (name.compare(0, shm.size(), shm) == 0) return make_shm(name.substr(shm.size()));
  static const std::string dgram = "dgram:";
  if (name.compare(0, dgram.size(), dgram) == 0) return make_dgram(name.substr(dgram.size()));
  throw host::Error("no wire is named \"" + name +
                    "\": \"\" is this process's own, \"shm:NAME\" joins processes, \"dgram:LOCAL,REMOTE\" is one to "
                    "the peer at a Unix socket");
}

void Wire::remove_abandoned() { shm::Shared::remove_abandoned(); }

void Wire::while_waiting(void (*call)()) { shm::on_wait.store(call); }

}  // namespace userdma::soft::wire
