// A PCI function by its physical addresses, where no IOMMU is in the way: as root, through sysfs.
//
// The device reaches all memory of the machine, so memory that it may write must not go back to the system while it
// could: alloc_dma's comes from a file of huge pages that outlives the process, and is given back only after a reset.
// For the same reason no other memory of the process is taken.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "host/function.h"
#include "host/sysfs.h"

namespace userdma::host {

struct PhysicalOptions {
  std::string sysfs = "/sys";
  std::string huge_pages;  // a folder on hugetlbfs; "": the first that /proc/mounts names
  size_t huge_page = 0;    // its page in bytes; 0: as the file system says
  // The physical address of mapped, locked memory, 0 if the system does not tell; null: /proc/self/pagemap.
  std::function<uint64_t(const void*)> physical;
};

// Takes the function. Throws MachineError or MemoryError, which say what to change.
std::shared_ptr<Function> open_physical(const std::string& bus, const PhysicalOptions& options = {});

// What open_physical would refuse before it touches the function.
void check_physical(const std::string& bus, const PhysicalOptions& options = {});

}  // namespace userdma::host
