#pragma once
#include "host/function.h"
#include "host/vfio.h"
namespace userdma::host {
std::shared_ptr<Function> open_physical(const std::string& bus, const Roots& roots);
void check_physical(const std::string& bus, const Roots& roots);
}
