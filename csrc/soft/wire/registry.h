// The wires that have a name.
#pragma once

#include <memory>
#include <string>

namespace userdma::soft::wire {

class Wire;

// The wire in shared memory of that name (shm.cc). Throws host::Error where the name cannot be one.
std::shared_ptr<Wire> make_shm(const std::string& name);

}  // namespace userdma::soft::wire
