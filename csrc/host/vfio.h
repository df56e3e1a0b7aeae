#pragma once
#include "host/function.h"
namespace userdma::host {
struct Roots { std::string sysfs = "/sys"; std::string dev = "/dev"; };
std::string pci_kind(const std::string& bus, const std::string& sysfs);
std::shared_ptr<Function> open_vfio(const std::string& bus, const Roots& roots);
void check_vfio(const std::string& bus, const Roots& roots);
}
