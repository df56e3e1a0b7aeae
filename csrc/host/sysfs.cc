#include "host/sysfs.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "host/function.h"

namespace userdma::host {

namespace fs = std::filesystem;

namespace {

// The last part of what a link points to; "" if there is no such link.
std::string link_name(const std::string& path) {
  std::error_code error;
  fs::path target = fs::read_symlink(path, error);
  return error ? "" : target.filename().string();
}

// dddd:bb:ss.f in hexadecimal: nothing else may become part of a path.
bool is_bus_name(const std::string& bus) {
  if (bus.size() < 12 || bus.size() > 16) return false;
  size_t tail = bus.size() - 8;  // ":bb:ss.f"
  for (size_t i = 0; i < bus.size(); ++i) {
    char wanted = i < tail ? 'x' : ":xx:xx.x"[i - tail];
    if (wanted == 'x' ? !std::isxdigit(static_cast<unsigned char>(bus[i])) : bus[i] != wanted) return false;
  }
  return true;
}

std::string override_line(const std::string& bus) { return "`driverctl set-override " + bus + " vfio-pci`"; }

}  // namespace

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && (all.back() == '\n' || all.back() == '\0')) all.pop_back();
  return all;
}

std::string with_errno(const std::string& what, int error) {
  return what + ": " + std::generic_category().message(error);
}

PciDevice::PciDevice(const std::string& bus, const std::string& sysfs)
    : bus_(bus), sysfs_(sysfs), path_(sysfs + "/bus/pci/devices/" + bus) {
  if (!is_bus_name(bus)) throw MachineError("\"" + bus + "\" is no PCI function's name such as 0000:17:00.0");
  std::error_code error;
  if (!fs::exists(path_, error)) throw MachineError("there is no PCI function " + bus + ": `lspci -D` lists them");
}

std::string PciDevice::driver() const { return link_name(file("driver")); }

int PciDevice::group() const {
  std::string name = link_name(file("iommu_group"));
  return name.empty() || name.find_first_not_of("0123456789") != std::string::npos ? -1 : std::stoi(name);
}

std::string PciDevice::group_type() const { return read_text(file("iommu_group/type")); }

std::vector<std::string> PciDevice::group_functions() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(file("iommu_group/devices"), error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::array<PciBar, 6> PciDevice::bars() const {
  // A line for each: first address, last address, flags (include/linux/ioport.h: 0x100 I/O ports, 0x200 memory).
  std::array<PciBar, 6> bars{};
  std::ifstream file(this->file("resource"));
  std::string line;
  for (PciBar& bar : bars) {
    unsigned long long first = 0, last = 0, flags = 0;
    if (!std::getline(file, line) || std::sscanf(line.c_str(), "%llx %llx %llx", &first, &last, &flags) != 3) break;
    if (flags == 0 || last < first) continue;
    bar = {first, last - first + 1, (flags & 0x200) != 0};
  }
  return bars;
}

uint32_t PciDevice::numbers() const {
  unsigned vendor = 0, device = 0;
  if (std::sscanf(read_text(file("vendor")).c_str(), "0x%4x", &vendor) != 1 ||
      std::sscanf(read_text(file("device")).c_str(), "0x%4x", &device) != 1)
    return ~0u;
  return device << 16 | vendor;
}

std::string PciDevice::vfio_obstacle() const {
  std::string driver = this->driver();
  if (driver.empty())
    return bus_ + " has no driver; VFIO's is wanted: " + override_line(bus_) + " (as root; driverctl is a package)";
  if (driver != "vfio-pci")
    return bus_ + " belongs to the kernel's driver " + driver + ": " + override_line(bus_) +
           " gives it to VFIO (as root; undone by `driverctl unset-override " + bus_ + "`)";
  int group = this->group();
  if (group < 0)
    return bus_ +
           " is not behind an IOMMU: turn it on in the firmware's setup and on the kernel's command line "
           "(intel_iommu=on, or AMD's, which is on by default)";
  if (read_text(file("iommu_group/name")) == "vfio-noiommu")
    return bus_ +
           " is in VFIO's no-IOMMU mode, which maps no memory: turn the IOMMU on, or unbind it from vfio-pci "
           "(`driverctl --nosave set-override " +
           bus_ + " none`) to take it by its physical addresses";
  // The kernel lends a group only as a whole (Documentation/driver-api/vfio.rst): drivers that do no DMA may stay.
  std::string others;
  for (const std::string& name : group_functions()) {
    if (name == bus_) continue;
    std::string its = link_name(sysfs_ + "/bus/pci/devices/" + name + "/driver");
    if (its.empty() || its.starts_with("vfio") || its == "pci-stub" || its == "pcieport") continue;
    others += (others.empty() ? "" : ", ") + name + " (" + its + "): " + override_line(name);
  }
  if (!others.empty())
    return "IOMMU group " + std::to_string(group) + " of " + bus_ +
           " holds functions of other drivers, and goes to VFIO only as a whole: " + others;
  return {};
}

std::string PciDevice::physical_obstacle() const {
  std::string driver = this->driver();
  if (!driver.empty())
    return bus_ + " belongs to the kernel's driver " + driver + ": `driverctl --nosave set-override " + bus_ +
           " none` unbinds it (as root)";
  if (int group = this->group(); group >= 0 && group_type() != "identity")
    return bus_ + " is behind an IOMMU (group " + std::to_string(group) +
           "), which keeps it from physical addresses; take it by VFIO: " + override_line(bus_);
  return {};
}

std::string pci_kind(const std::string& bus, const std::string& sysfs) {
  PciDevice device(bus, sysfs);
  if (device.driver() == "vfio-pci") return "vfio";
  if (device.driver().empty()) {
    if (std::string obstacle = device.physical_obstacle(); !obstacle.empty()) throw MachineError(obstacle);
    return "physical";
  }
  throw MachineError(device.vfio_obstacle());
}

}  // namespace userdma::host
