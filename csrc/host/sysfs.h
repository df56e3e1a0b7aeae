// What sysfs says of a PCI function: who drives it, its IOMMU group, its BARs; and what to change where it cannot be
// taken.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace userdma::host {

// Where the kernel's file systems are; tests have their own.
struct Roots {
  std::string sysfs = "/sys";
  std::string dev = "/dev";
};

struct PciBar {
  uint64_t address = 0;
  uint64_t size = 0;  // 0: there is none
  bool memory = true;
};

class PciDevice {
 public:
  // `bus` is a full name, "0000:17:00.0". Throws MachineError where there is no such function.
  PciDevice(const std::string& bus, const std::string& sysfs);

  const std::string& bus() const { return bus_; }
  const std::string& path() const { return path_; }  // its folder
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string driver() const;                        // "" if none is bound
  int group() const;                                 // its IOMMU group, -1 if none
  std::string group_type() const;                    // "DMA", "DMA-FQ", "identity", "" if unknown
  std::vector<std::string> group_functions() const;  // every function of the group, itself included
  std::array<PciBar, 6> bars() const;
  uint32_t numbers() const;  // the vendor's (low) and the device's (high); all ones if they are not told

  // What stops VFIO from taking it, and what to change: "" if nothing does.
  std::string vfio_obstacle() const;
  // The same for taking it by its physical addresses.
  std::string physical_obstacle() const;

 private:
  std::string bus_;
  std::string sysfs_;
  std::string path_;
};

// "vfio" or "physical": which way to take the function. Throws MachineError, which says what to change.
std::string pci_kind(const std::string& bus, const std::string& sysfs);

// The file's text without the newline at its end; "" if it cannot be read.
std::string read_text(const std::string& path);

// "<what>: <the text of errno>".
std::string with_errno(const std::string& what, int error);

}  // namespace userdma::host
