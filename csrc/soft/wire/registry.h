// The wires that have a name.
#pragma once

#include <memory>
#include <string>

namespace userdma::soft::wire {

class Wire;

// The wire in shared memory of that name (shm.cc). Throws host::Error where the name cannot be one.
std::shared_ptr<Wire> make_shm(const std::string& name);

// A wire to one peer that takes and sends frames as datagrams (dgram.cc): "LOCAL,REMOTE", paths of Unix sockets. Throws
// host::Error where the paths cannot be.
std::shared_ptr<Wire> make_dgram(const std::string& paths);

}  // namespace userdma::soft::wire
