#include "host/vfio.h"

#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "host/bar_maps.h"
#include "host/fork.h"
#include "host/iova.h"
#include "host/uses.h"
#include "hw/pci.h"

namespace userdma::host {

namespace pci = userdma::hw::pci;

namespace {

constexpr uint64_t kHuge = 2 << 20;

// Runs an ioctl whose answer may be longer than its struct: again with what argsz asks for.
template <class T>
std::vector<uint8_t> info_with_capabilities(System& system, int fd, unsigned long request, T head) {
  std::vector<uint8_t> buffer(sizeof(T));
  for (int i = 0; i < 3; ++i) {
    head.argsz = static_cast<uint32_t>(buffer.size());
    std::memcpy(buffer.data(), &head, sizeof(T));
    if (system.ioctl(fd, request, buffer.data()) != 0) return {};
    T answer;
    std::memcpy(&answer, buffer.data(), sizeof(T));
    if (answer.argsz <= buffer.size()) return buffer;
    buffer.assign(answer.argsz, 0);
  }
  return {};
}

// Calls `each(header, bytes from the header on)` for every capability of an answer.
template <class Each>
void for_capabilities(const std::vector<uint8_t>& info, uint32_t offset, Each each) {
  for (int i = 0; i < 64 && offset != 0; ++i) {  // a chain that loops ends
    vfio_info_cap_header header;
    if (offset > info.size() || info.size() - offset < sizeof(header)) return;
    std::memcpy(&header, info.data() + offset, sizeof(header));
    each(header, info.data() + offset, info.size() - offset);
    offset = header.next;
  }
}

// An IOMMU group in a container of its own: what the functions of the group share in a process, as the kernel lets
// one process open a group once.
class Group {
 public:
  Group(const PciDevice& device, const Roots& roots, std::shared_ptr<System> system)
      : system_(std::move(system)), number_(device.group()) {
    const std::string container = roots.dev + "/vfio/vfio";
    const std::string path = roots.dev + "/vfio/" + std::to_string(number_);
    // Linux 6.6 and later may be built with the interface of devices alone.
    container_ = open(container,
                      access((roots.dev + "/vfio/devices").c_str(), F_OK) == 0
                          ? "this kernel has only VFIO's interface of devices (/dev/vfio/devices), and userdma uses "
                            "that of groups: a kernel with CONFIG_VFIO_GROUP and CONFIG_VFIO_CONTAINER has it"
                          : "load VFIO: `modprobe vfio-pci`",
                      device);
    int version = system_->ioctl(container_->get(), VFIO_GET_API_VERSION, nullptr);
    if (version != VFIO_API_VERSION)
      throw MachineError("the kernel's VFIO has version " + std::to_string(version) + " of its interface, not " +
                         std::to_string(VFIO_API_VERSION));
    if (system_->ioctl(container_->get(), VFIO_CHECK_EXTENSION, number(VFIO_TYPE1v2_IOMMU)) <= 0)
      throw MachineError("the kernel's VFIO has no type 1 IOMMU: `modprobe vfio_iommu_type1`");
    group_ =
        open(path, "bind the function to vfio-pci: `driverctl set-override " + device.bus() + " vfio-pci`", device);

    vfio_group_status status{};
    status.argsz = sizeof(status);
    if (system_->ioctl(group_->get(), VFIO_GROUP_GET_STATUS, &status) != 0)
      throw MachineError(with_errno("VFIO does not tell the state of IOMMU group " + std::to_string(number_), errno));
    if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
      std::string others;
      for (const std::string& name : device.group_functions())
        if (name != device.bus()) others += (others.empty() ? "" : ", ") + name;
      throw MachineError("IOMMU group " + std::to_string(number_) + " of " + device.bus() +
                         " goes to VFIO only as a whole, and not all of its functions are vfio-pci's" +
                         (others.empty() ? "" : ": `driverctl set-override FUNCTION vfio-pci` for " + others));
    }
    int fd = container_->get();
    if (system_->ioctl(group_->get(), VFIO_GROUP_SET_CONTAINER, &fd) != 0)
      throw MachineError(with_errno("VFIO refuses IOMMU group " + std::to_string(number_), errno));
    if (system_->ioctl(container_->get(), VFIO_SET_IOMMU, number(VFIO_TYPE1v2_IOMMU)) != 0) {
      const int error = errno;
      std::string why =
          with_errno("VFIO refuses IOMMU group " + std::to_string(number_) + " of " + device.bus(), error);
      if (error == EPERM)
        why +=
            ": the IOMMU does not remap interrupts, so a device could raise any: turn that on in the firmware's setup, "
            "or accept it (`echo 1 >/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts` as root, or "
            "vfio_iommu_type1.allow_unsafe_interrupts=1 on the kernel's command line)";
      throw MachineError(why);
    }
    read_iommu();
  }

  ~Group() {
    if (group_->get() >= 0) system_->ioctl(group_->get(), VFIO_GROUP_UNSET_CONTAINER, nullptr);
  }

  int device_fd(const std::string& bus) {
    int fd = system_->ioctl(group_->get(), VFIO_GROUP_GET_DEVICE_FD, const_cast<char*>(bus.c_str()));
    if (fd < 0) {
      std::string why = with_errno("VFIO does not give " + bus, errno);
      if (errno == EBUSY) why += ": another process has it, or its reset hangs";
      throw MachineError(why);
    }
    return fd;
  }

  // Maps process memory for the group's devices. `address` and `bytes` are whole pages.
  uint64_t map(void* address, uint64_t bytes, const char* what) {
    std::lock_guard lock(mutex_);
    uint64_t alignment = bytes >= kHuge ? kHuge : iova_->page();
    auto iova = iova_->take(bytes, alignment);
    if (!iova) throw MemoryError("the IOMMU has no " + kib(bytes) + " of addresses left");
    vfio_iommu_type1_dma_map request{};
    request.argsz = sizeof(request);
    request.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
    request.vaddr = reinterpret_cast<uintptr_t>(address);
    request.iova = *iova;
    request.size = bytes;
    if (system_->ioctl(container_->get(), VFIO_IOMMU_MAP_DMA, &request) == 0) {
      system_->locked += bytes;
      return *iova;
    }
    int error = errno;
    iova_->give(*iova, bytes);
    if (error == ENOSPC)
      throw MemoryError("the system refuses to pin " + kib(bytes) + " of " + what +
                        ": VFIO's limit of mappings is reached (the module parameter "
                        "vfio_iommu_type1.dma_entry_limit); use fewer, larger regions");
    throw refused_pin(*system_, bytes, what, error, system_->locked);
  }

  // What cannot be unmapped stays reachable for the device: it keeps its address then, and is never given again.
  bool unmap(uint64_t iova, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    vfio_iommu_type1_dma_unmap request{};
    request.argsz = sizeof(request);
    request.iova = iova;
    request.size = bytes;
    if (system_->ioctl(container_->get(), VFIO_IOMMU_UNMAP_DMA, &request) != 0 || request.size != bytes) return false;
    iova_->give(iova, bytes);
    system_->locked -= bytes;
    return true;
  }

 private:
  static void* number(uintptr_t value) { return reinterpret_cast<void*>(value); }

  std::unique_ptr<Fd> open(const std::string& path, const std::string& absent, const PciDevice& device) {
    int fd = system_->open(path.c_str());
    if (fd >= 0) return std::make_unique<Fd>(system_, fd);
    std::string why = with_errno("cannot open " + path + " for " + device.bus(), errno);
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO) why += ": " + absent;
    if (errno == EACCES || errno == EPERM)
      why +=
          ": a udev rule gives it to a group of users: SUBSYSTEM==\"vfio\", GROUP=\"vfio\", MODE=\"0660\" "
          "(in /etc/udev/rules.d/60-vfio.rules), and you to that group";
    if (errno == EBUSY)
      why +=
          ": another process has a function of IOMMU group " + std::to_string(number_) + " (`fuser -v " + path + "`)";
    throw MachineError(why);
  }

  void read_iommu() {
    vfio_iommu_type1_info head{};
    std::vector<uint8_t> info = info_with_capabilities(*system_, container_->get(), VFIO_IOMMU_GET_INFO, head);
    if (info.empty()) throw MachineError(with_errno("VFIO does not tell what the IOMMU can do", errno));
    std::memcpy(&head, info.data(), sizeof(head));
    uint64_t page = system_page();
    if ((head.flags & VFIO_IOMMU_INFO_PGSIZES) != 0 && head.iova_pgsizes != 0)
      page = std::max<uint64_t>(page, uint64_t{1} << std::countr_zero(head.iova_pgsizes));
    std::vector<Run> ranges;
    if ((head.flags & VFIO_IOMMU_INFO_CAPS) != 0) {
      for_capabilities(info, head.cap_offset, [&](const vfio_info_cap_header& header, const uint8_t* at, size_t size) {
        if (header.id != VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) return;
        vfio_iommu_type1_info_cap_iova_range list;
        if (size < sizeof(list)) return;
        std::memcpy(&list, at, sizeof(list));
        for (uint32_t i = 0; i < list.nr_iovas && (i + 1) * sizeof(vfio_iova_range) <= size - sizeof(list); ++i) {
          vfio_iova_range range;
          std::memcpy(&range, at + sizeof(list) + i * sizeof(range), sizeof(range));
          if (range.end < range.start) continue;
          // Kept below 2^63, so that an address is a number for everyone and a range's end does not wrap.
          uint64_t end = std::min<uint64_t>(range.end, (uint64_t{1} << 63) - 1);
          if (range.start <= end) ranges.push_back({range.start, end - range.start + 1});
        }
      });
    }
    // A kernel before 5.4 does not tell its ranges: what every IOMMU takes, below the MSI window of x86.
    if (ranges.empty()) ranges.push_back({0, 0xfee0'0000});
    iova_ = std::make_unique<IovaAllocator>(ranges, page);
  }

  std::shared_ptr<System> system_;
  int number_;
  std::unique_ptr<Fd> container_;
  std::unique_ptr<Fd> group_;
  std::unique_ptr<IovaAllocator> iova_;
  std::mutex mutex_;
  // As long as a child has them, the kernel takes the group as in use, and no process gets it again.
  AtFork leave_to_parent_{[this] {
    if (group_) group_->close();
    if (container_) container_->close();
  }};
};

// The groups that this process has. A child that is forked begins with none: the parent's are not its own.
struct Groups {
  std::mutex mutex;
  std::map<std::pair<System*, int>, std::weak_ptr<Group>> known;
};

constexpr OneOfProcess<Groups> groups;

std::shared_ptr<Group> group_of(const PciDevice& device, const Roots& roots, const std::shared_ptr<System>& system) {
  Groups& all = *groups;
  std::lock_guard lock(all.mutex);
  auto& known = all.known[{system.get(), device.group()}];
  if (auto group = known.lock()) return group;
  auto group = std::make_shared<Group>(device, roots, system);
  known = group;
  return group;
}

class VfioFunction final : public Function {
 public:
  VfioFunction(const PciDevice& device, std::shared_ptr<Group> group, std::shared_ptr<System> system)
      : system_(std::move(system)), name_(device.bus()), bars_(device.bars()), group_(std::move(group)) {
    fd_ = group_->device_fd(name_);
    try {
      vfio_device_info info{};
      info.argsz = sizeof(info);
      if (system_->ioctl(fd_, VFIO_DEVICE_GET_INFO, &info) != 0)
        throw MachineError(with_errno("VFIO does not describe " + name_, errno));
      if ((info.flags & VFIO_DEVICE_FLAGS_PCI) == 0) throw MachineError(name_ + " is no PCI function to VFIO");
      resets_ = (info.flags & VFIO_DEVICE_FLAGS_RESET) != 0;
      vfio_region_info region = region_info(VFIO_PCI_CONFIG_REGION_INDEX);
      config_offset_ = region.offset;
      config_size_ = region.size;
      // Without memory decoding a load from a BAR would end the process.
      put(pci::kCommand, 2, get(pci::kCommand, 2) | pci::command::kMemory);
      removal_ = watch(VFIO_PCI_REQ_IRQ_INDEX);
      error_ = watch(VFIO_PCI_ERR_IRQ_INDEX);
    } catch (...) {
      for (int fd : {removal_.load(), error_.load()})
        if (fd >= 0) system_->close(fd);
      system_->close(fd_.exchange(-1));
      throw;
    }
  }
  ~VfioFunction() override { VfioFunction::release(); }

  std::string name() const override { return name_; }
  size_t page() const override { return system_page(); }
  Addressing addressing() const override { return Addressing::Iova; }

  uint32_t config(unsigned offset, unsigned width) const override {
    auto use = uses_.one();
    return get(offset, width);
  }
  void set_config(unsigned offset, unsigned width, uint32_t value) override {
    auto use = uses_.one();
    put(offset, width, value);
  }

  uint64_t bar_address(int index) const override { return index >= 0 && index < 6 ? bars_[index].address : 0; }
  size_t bar_size(int index) const override {
    auto use = uses_.one();
    return size_of(index);
  }

  Bar map(int index) override {
    auto use = uses_.one();
    check_taken();
    if (size_of(index) == 0) throw MachineError(name_ + " has no BAR " + std::to_string(index));
    std::lock_guard lock(mutex_);
    if (auto found = maps_.find(index)) return *found;
    return map_region(index);
  }

  int interrupt(unsigned vector) override {
    auto use = uses_.one();
    check_taken();
    std::lock_guard lock(mutex_);
    uint32_t count = vectors(VFIO_PCI_MSIX_IRQ_INDEX);
    // A function that is none of an RDMA NIC's kind may have the older message-signaled interrupts only.
    const bool older = count == 0 && vectors(VFIO_PCI_MSI_IRQ_INDEX) != 0;
    if (older) count = vectors(VFIO_PCI_MSI_IRQ_INDEX);
    if (vector >= count)
      throw MachineError(name_ + " has no " + (older ? "MSI" : "MSI-X") + " vector " + std::to_string(vector) +
                         ": it has " + std::to_string(count));
    interrupt_index_ = older ? VFIO_PCI_MSI_IRQ_INDEX : VFIO_PCI_MSIX_IRQ_INDEX;
    if (vector < interrupts_.size() && interrupts_[vector] >= 0) return interrupts_[vector];
    int fd = system_->eventfd();
    if (fd < 0) throw MachineError(with_errno("no event descriptor for an interrupt of " + name_, errno));
    std::vector<int32_t> all = interrupts_;
    if (all.size() <= vector) all.resize(vector + 1, -1);
    all[vector] = fd;
    // Not every kernel lets the set of vectors grow: all go and come again.
    if (!interrupts_.empty()) set_interrupts({});
    if (int refused = set_interrupts(all); refused != 0) {
      const int error = errno;
      if (!interrupts_.empty()) set_interrupts(interrupts_);
      system_->close(fd);
      const std::string why = "VFIO refuses interrupt " + std::to_string(vector) + " of " + name_;
      // The machine has fewer vectors left than were asked for, and this is how many.
      if (refused > 0) throw MachineError(why + ": the machine has only " + std::to_string(refused) + " left for it");
      throw MachineError(with_errno(why, error));
    }
    interrupts_ = std::move(all);
    return fd;
  }

  void reset() override {
    auto use = uses_.one();
    check_taken();
    if (!resets_)
      throw MachineError(name_ + " cannot be reset by itself (no function-level reset): `cat /sys/bus/pci/devices/" +
                         name_ + "/reset_method` says what it has");
    // The kernel would wait a minute for it to answer.
    if (gone()) throw MachineError(name_ + " " + Function::failure());
    if (system_->ioctl(fd_, VFIO_DEVICE_RESET, nullptr) != 0)
      throw MachineError(with_errno("the reset of " + name_ + " failed", errno));
  }

  Memory alloc_dma(size_t bytes) override {
    auto use = uses_.one();
    check_taken();
    size_t size = whole_pages(bytes);
    uint8_t* data = map_anonymous(*system_, size);
    uint64_t iova;
    try {
      iova = group_->map(data, size, "DMA memory");
    } catch (...) {
      system_->munmap(data, size);
      throw;
    }
    std::lock_guard lock(mutex_);
    memory_[iova] = {data, size, true};
    return {data, size, {{iova, size}}, iova};
  }
  void free_dma(const Memory& memory) override {
    auto use = uses_.one();
    give_back(memory.handle);
  }

  Memory pin(void* address, size_t bytes) override {
    auto use = uses_.one();
    check_taken();
    auto at = reinterpret_cast<uintptr_t>(address);
    if (bytes > SIZE_MAX / 2 || at + bytes < at) throw MemoryError("no process has such memory");
    size_t size = whole_pages(bytes);
    uint64_t iova = group_->map(address, size, "the process's memory");
    std::lock_guard lock(mutex_);
    memory_[iova] = {static_cast<uint8_t*>(address), size, false};
    return {static_cast<uint8_t*>(address), bytes, {{iova, bytes}}, iova};
  }
  void unpin(const Memory& memory) override { free_dma(memory); }

  bool failed() const override {
    auto use = uses_.one();
    if (int fd = removal_; fd >= 0 && system_->signaled(fd)) wanted_ = true;
    if (int fd = error_; fd >= 0 && system_->signaled(fd)) broken_ = true;
    return wanted_ || broken_ || gone();
  }
  std::string failure() const override {
    if (wanted_) return "has to be given back: it is unplugged, or taken from vfio-pci";
    if (broken_) return "reported an uncorrectable PCI Express error (the kernel's log says which: `dmesg`)";
    return Function::failure();
  }

  void release() override {
    if (fd_.load() < 0) return;
    auto end = uses_.end();
    if (fd_.load() < 0) return;
    // No DMA may run when the memory goes: bus mastering off, then the reset, then the mappings.
    put(pci::kCommand, 2, get(pci::kCommand, 2) & ~uint32_t{pci::command::kMaster});
    if (resets_ && !gone()) system_->ioctl(fd_, VFIO_DEVICE_RESET, nullptr);
    if (!interrupts_.empty()) set_interrupts({});
    for (int fd : interrupts_)
      if (fd >= 0) system_->close(fd);
    interrupts_.clear();
    for (std::atomic<int>* watched : {&removal_, &error_})
      if (int fd = watched->exchange(-1); fd >= 0) system_->close(fd);
    maps_.clear([this](uint8_t* base, size_t size) { system_->munmap(base, size); });
    while (!memory_.empty()) give_back(memory_.begin()->first);
    system_->close(fd_.exchange(-1));
    group_.reset();
  }

 private:
  struct Mapped {
    uint8_t* data;
    size_t size;
    bool ours;  // allocated here, to be unmapped
  };

  void check_taken() const {
    if (fd_.load() < 0) throw MachineError(name_ + " was released");
  }

  // The kernel answers for the vendor's and the device's number itself (vfio_pci_config.c), not for these.
  bool gone() const { return get(pci::kRevision, 4) == pci::kNothing; }

  uint32_t get(unsigned offset, unsigned width) const {
    uint32_t value = pci::kNothing;
    int fd = fd_.load();
    if (fd < 0 || offset + width > config_size_ ||
        system_->pread(fd, &value, width, static_cast<off_t>(config_offset_ + offset)) != static_cast<ssize_t>(width))
      value = pci::kNothing;
    return width == 4 ? value : value & ((1u << (8 * width)) - 1);
  }
  void put(unsigned offset, unsigned width, uint32_t value) {
    int fd = fd_.load();
    if (fd < 0 || offset + width > config_size_) return;
    // A function that left the bus takes no writes; `failed` tells.
    (void)system_->pwrite(fd, &value, width, static_cast<off_t>(config_offset_ + offset));
  }

  size_t size_of(int bar) const {
    if (bar < 0 || bar > 5 || fd_.load() < 0) return 0;
    vfio_region_info info{};
    info.argsz = sizeof(info);
    info.index = static_cast<uint32_t>(bar);
    return system_->ioctl(fd_, VFIO_DEVICE_GET_REGION_INFO, &info) == 0 ? info.size : 0;
  }

  vfio_region_info region_info(uint32_t index) {
    vfio_region_info info{};
    info.argsz = sizeof(info);
    info.index = index;
    if (system_->ioctl(fd_, VFIO_DEVICE_GET_REGION_INFO, &info) != 0)
      throw MachineError(with_errno("VFIO does not describe region " + std::to_string(index) + " of " + name_, errno));
    return info;
  }

  // The whole of a BAR, or the parts that VFIO lets a process map: it keeps the MSI-X table to itself where the
  // kernel or the machine cannot share it. What is not mapped is not reached by any driver here.
  Bar map_region(int index) {
    vfio_region_info head{};
    head.index = static_cast<uint32_t>(index);
    std::vector<uint8_t> info = info_with_capabilities(*system_, fd_, VFIO_DEVICE_GET_REGION_INFO, head);
    if (info.empty())
      throw MachineError(with_errno("VFIO does not describe BAR " + std::to_string(index) + " of " + name_, errno));
    std::memcpy(&head, info.data(), sizeof(head));
    if ((head.flags & VFIO_REGION_INFO_FLAG_MMAP) == 0)
      throw MachineError("VFIO does not let a process map BAR " + std::to_string(index) + " of " + name_);
    std::vector<Run> areas;
    if ((head.flags & VFIO_REGION_INFO_FLAG_CAPS) != 0) {
      for_capabilities(info, head.cap_offset, [&](const vfio_info_cap_header& header, const uint8_t* at, size_t size) {
        if (header.id != VFIO_REGION_INFO_CAP_SPARSE_MMAP) return;
        vfio_region_info_cap_sparse_mmap list;
        if (size < sizeof(list)) return;
        std::memcpy(&list, at, sizeof(list));
        for (uint32_t i = 0; i < list.nr_areas && (i + 1) * sizeof(vfio_region_sparse_mmap_area) <= size - sizeof(list);
             ++i) {
          vfio_region_sparse_mmap_area area;
          std::memcpy(&area, at + sizeof(list) + i * sizeof(area), sizeof(area));
          if (area.size != 0 && area.offset <= head.size && area.size <= head.size - area.offset)
            areas.push_back({area.offset, area.size});
        }
      });
    }
    if (areas.empty()) areas.push_back({0, head.size});
    size_t page = system_page();
    size_t size = (head.size + page - 1) / page * page;
    void* base = system_->mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw MachineError(with_errno("no room to map BAR " + std::to_string(index), errno));
    for (const Run& area : areas) {
      void* wanted = static_cast<uint8_t*>(base) + area.address;
      if (system_->mmap(wanted, area.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_,
                        static_cast<off_t>(head.offset + area.address)) == MAP_FAILED) {
        std::string why = with_errno("VFIO refuses to map BAR " + std::to_string(index) + " of " + name_, errno);
        system_->munmap(base, size);
        throw MachineError(why);
      }
    }
    return maps_.add(index, base, head.size);
  }

  // An eventfd that the kernel signals when it wants the function back, and then waits until it is released
  // (VFIO_PCI_REQ_IRQ_INDEX), or once the function reported an error after which it is not what it was
  // (VFIO_PCI_ERR_IRQ_INDEX). -1 where the kernel has none.
  int watch(uint32_t index) {
    if (vectors(index) == 0) return -1;
    const int fd = system_->eventfd();
    if (fd >= 0) set_interrupts({fd}, index);
    return fd;
  }

  // How many interrupts of a kind the function has.
  uint32_t vectors(uint32_t index) {
    vfio_irq_info info{};
    info.argsz = sizeof(info);
    info.index = index;
    return system_->ioctl(fd_, VFIO_DEVICE_GET_IRQ_INFO, &info) == 0 ? info.count : 0;
  }

  // 0, or what the kernel answered instead.
  int set_interrupts(const std::vector<int32_t>& fds) { return set_interrupts(fds, interrupt_index_); }
  int set_interrupts(const std::vector<int32_t>& fds, uint32_t index) {
    std::vector<uint8_t> buffer(sizeof(vfio_irq_set) + fds.size() * sizeof(int32_t));
    vfio_irq_set set{};
    set.argsz = static_cast<uint32_t>(buffer.size());
    set.flags = VFIO_IRQ_SET_ACTION_TRIGGER | (fds.empty() ? VFIO_IRQ_SET_DATA_NONE : VFIO_IRQ_SET_DATA_EVENTFD);
    set.index = index;
    set.start = 0;
    set.count = static_cast<uint32_t>(fds.size());
    std::memcpy(buffer.data(), &set, sizeof(set));
    if (!fds.empty()) std::memcpy(buffer.data() + sizeof(set), fds.data(), fds.size() * sizeof(int32_t));
    return system_->ioctl(fd_, VFIO_DEVICE_SET_IRQS, buffer.data());
  }

  void give_back(uint64_t iova) {
    if (process != ::getpid()) return;  // the parent's mapping
    Mapped mapped;
    {
      std::lock_guard lock(mutex_);
      auto found = memory_.find(iova);
      if (found == memory_.end()) return;
      mapped = found->second;
      memory_.erase(found);
    }
    // Memory that the device may still reach is never given back to the process.
    if (group_->unmap(iova, mapped.size) && mapped.ours) system_->munmap(mapped.data, mapped.size);
  }

  std::shared_ptr<System> system_;
  std::string name_;
  std::array<PciBar, 6> bars_;
  std::shared_ptr<Group> group_;
  std::atomic<int> fd_{-1};
  bool resets_ = false;
  std::atomic<int> removal_{-1}, error_{-1};                 // eventfds
  mutable std::atomic<bool> wanted_{false}, broken_{false};  // they were signaled
  uint64_t config_offset_ = 0;
  uint64_t config_size_ = 0;
  Uses uses_;
  std::mutex mutex_;  // of what follows
  BarMaps maps_;
  uint32_t interrupt_index_ = VFIO_PCI_MSIX_IRQ_INDEX;
  std::vector<int32_t> interrupts_;  // eventfds by vector, -1 where none
  std::map<uint64_t, Mapped> memory_;
  // Nor does the kernel end what a descriptor or a mapping of a child holds.
  AtFork leave_to_parent_{[this] {
    for (std::atomic<int>* fd : {&fd_, &removal_, &error_})
      if (int copy = fd->exchange(-1); copy >= 0) system_->close(copy);
    maps_.leave_to_parent();
  }};
};

}  // namespace

std::shared_ptr<Function> open_vfio(const std::string& bus, const Roots& roots, const std::shared_ptr<System>& system) {
  PciDevice device(bus, roots.sysfs);
  if (std::string obstacle = device.vfio_obstacle(); !obstacle.empty()) throw MachineError(obstacle);
  return std::make_shared<VfioFunction>(device, group_of(device, roots, system), system);
}

void check_vfio(const std::string& bus, const Roots& roots) {
  PciDevice device(bus, roots.sysfs);
  if (std::string obstacle = device.vfio_obstacle(); !obstacle.empty()) throw MachineError(obstacle);
  const std::string path = roots.dev + "/vfio/" + std::to_string(device.group());
  if (access(path.c_str(), R_OK | W_OK) == 0) return;
  std::string why = with_errno("cannot open " + path + " for " + bus, errno);
  if (errno == EACCES)
    why +=
        ": a udev rule gives it to a group of users: SUBSYSTEM==\"vfio\", GROUP=\"vfio\", MODE=\"0660\" "
        "(in /etc/udev/rules.d/60-vfio.rules), and you to that group";
  throw MachineError(why);
}

}  // namespace userdma::host
