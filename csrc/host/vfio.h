// A PCI function through VFIO: the kernel's IOMMU maps the memory that its device may reach.
#pragma once

#include <memory>
#include <string>

#include "host/function.h"
#include "host/sysfs.h"
#include "host/system.h"

namespace userdma::host {

// Takes the function. Throws MachineError, which says what to change.
std::shared_ptr<Function> open_vfio(const std::string& bus, const Roots& roots = {},
                                    const std::shared_ptr<System>& system = System::real());

// What open_vfio would refuse before it touches the function.
void check_vfio(const std::string& bus, const Roots& roots = {});

}  // namespace userdma::host
