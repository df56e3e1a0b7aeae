#include "host/vfio.h"
#include "host/physical.h"
namespace userdma::host {
std::string pci_kind(const std::string&, const std::string&) { return "vfio"; }
std::shared_ptr<Function> open_vfio(const std::string& bus, const Roots&) { throw MachineError(bus); }
void check_vfio(const std::string& bus, const Roots&) { throw MachineError(bus); }
std::shared_ptr<Function> open_physical(const std::string& bus, const Roots&) { throw MachineError(bus); }
void check_physical(const std::string& bus, const Roots&) { throw MachineError(bus); }
}
