#include "soft/wire/registry.h"

#include <mutex>
#include <string_view>

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

constexpr host::OneOfProcess<Default> current;

constexpr std::string_view to_shm = "shm:";
constexpr std::string_view to_dgram = "dgram:";

}  // namespace

std::shared_ptr<Wire> Wire::named(const std::string& name) {
  if (name.empty()) {
    Default& wires = *current;
    std::lock_guard guard(wires.mutex);
    if (!wires.wire) wires.wire = make();
    return wires.wire;
  }
  if (name.starts_with(to_shm)) return make_shm(name.substr(to_shm.size()));
  if (name.starts_with(to_dgram)) return make_dgram(name.substr(to_dgram.size()));
  throw host::Error("no wire is named \"" + name +
                    "\": \"\" is this process's own, \"shm:NAME\" joins processes, \"dgram:LOCAL,REMOTE\" is one to "
                    "the peer at a Unix socket");
}

void Wire::remove_abandoned() { shm::Shared::remove_abandoned(); }

void Wire::while_waiting(void (*call)()) { shm::on_wait.store(call); }

}  // namespace userdma::soft::wire
