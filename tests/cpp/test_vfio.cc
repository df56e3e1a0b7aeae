// VFIO functions, with a stand-in for the kernel that answers as linux/vfio.h and
// Documentation/driver-api/vfio.rst say.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "fake_sysfs.h"
#include "host/iova.h"
#include "host/vfio.h"

namespace {

using namespace userdma::test;
using namespace userdma::host;

constexpr int kContainer = 1000, kGroup = 1001, kDevice = 1002;

class FakeKernel : public System {
 public:
  int open(const char* path) override {
    if (refuse_open != 0) return errno = refuse_open, -1;
    return ++opened, std::string(path).ends_with("/vfio/vfio") ? kContainer : kGroup;
  }
  int close(int fd) override {
    std::lock_guard lock(mutex);
    log.push_back("close " + std::to_string(fd));
    if (fd >= kContainer && fd <= kGroup) --opened;
    if (fd == kDevice) device_open = false;
    return 0;
  }
  int ioctl(int fd, unsigned long request, void* argument) override {
    std::lock_guard lock(mutex);
    switch (request) {
      case VFIO_GET_API_VERSION:
        return version;
      case VFIO_CHECK_EXTENSION:
        return reinterpret_cast<uintptr_t>(argument) == VFIO_TYPE1v2_IOMMU ? 1 : 0;
      case VFIO_GROUP_GET_STATUS:
        static_cast<vfio_group_status*>(argument)->flags = viable ? VFIO_GROUP_FLAGS_VIABLE : 0;
        return 0;
      case VFIO_GROUP_SET_CONTAINER:
        CHECK(*static_cast<int*>(argument) == kContainer);
        return 0;
      case VFIO_GROUP_UNSET_CONTAINER:
        log.push_back("unset");
        return 0;
      case VFIO_SET_IOMMU:
        return refuse_iommu == 0 ? 0 : (errno = refuse_iommu, -1);
      case VFIO_IOMMU_GET_INFO:
        return iommu_info(argument);
      case VFIO_GROUP_GET_DEVICE_FD:
        CHECK(std::string(static_cast<char*>(argument)) == "0000:17:00.0");
        device_open = true;
        return kDevice;
      case VFIO_DEVICE_GET_INFO: {
        auto* info = static_cast<vfio_device_info*>(argument);
        info->flags = VFIO_DEVICE_FLAGS_PCI | (resets ? VFIO_DEVICE_FLAGS_RESET : 0);
        info->num_regions = VFIO_PCI_NUM_REGIONS;
        return 0;
      }
      case VFIO_DEVICE_GET_REGION_INFO:
        return region_info(argument);
      case VFIO_DEVICE_GET_IRQ_INFO:
        if (auto* info = static_cast<vfio_irq_info*>(argument);
            info->index == VFIO_PCI_REQ_IRQ_INDEX || info->index == VFIO_PCI_ERR_IRQ_INDEX) {
          info->count = 1;
          return 0;
        }
        static_cast<vfio_irq_info*>(argument)->count =
            static_cast<vfio_irq_info*>(argument)->index == interrupt_index ? vectors : 0;
        return 0;
      case VFIO_DEVICE_SET_IRQS: {
        vfio_irq_set set;
        std::memcpy(&set, argument, sizeof(set));
        if (set.index == VFIO_PCI_REQ_IRQ_INDEX || set.index == VFIO_PCI_ERR_IRQ_INDEX) {
          int& fd = set.index == VFIO_PCI_REQ_IRQ_INDEX ? removal : error;
          std::memcpy(&fd, static_cast<uint8_t*>(argument) + sizeof(set), sizeof(fd));
          return 0;
        }
        if (set.count > left) return static_cast<int>(left);  // as pci_alloc_irq_vectors does
        CHECK(set.index == interrupt_index);
        std::vector<int32_t> fds(set.count);
        if (set.count != 0) std::memcpy(fds.data(), static_cast<uint8_t*>(argument) + sizeof(set), 4 * set.count);
        interrupts.push_back(fds);
        return 0;
      }
      case VFIO_DEVICE_RESET:
        CHECK(fd == kDevice);
        log.push_back("reset");
        return 0;
      case VFIO_IOMMU_MAP_DMA: {
        auto* map = static_cast<vfio_iommu_type1_dma_map*>(argument);
        if (refuse_map != 0) return errno = refuse_map, -1;
        CHECK(map->flags == (VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE));
        CHECK(map->size % 4096 == 0);
        for (auto [iova, other] : mapped) CHECK((map->iova >= iova + other.size || map->iova + map->size <= iova));
        mapped[map->iova] = *map;
        return 0;
      }
      case VFIO_IOMMU_UNMAP_DMA: {
        auto* unmap = static_cast<vfio_iommu_type1_dma_unmap*>(argument);
        if (refuse_unmap) return errno = EINVAL, -1;
        auto found = mapped.find(unmap->iova);
        REQUIRE(found != mapped.end());
        CHECK(found->second.size == unmap->size);
        mapped.erase(found);
        log.push_back("unmap");
        return 0;
      }
    }
    return errno = ENOTTY, -1;
  }
  void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) override {
    if (fd == kDevice) {
      bars.push_back({size, offset});
      return ::mmap(at, size, protection, (flags & ~MAP_SHARED) | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    return ::mmap(at, size, protection, flags, fd, offset);
  }
  ssize_t pread(int, void* to, size_t n, off_t offset) override {
    std::lock_guard lock(mutex);
    offset -= kConfig;
    if (offset < 0 || offset + static_cast<off_t>(n) > 256) return errno = EINVAL, -1;
    std::memcpy(to, config + offset, n);
    // What drivers/vfio/pci/vfio_pci_config.c answers itself: the numbers of vendor and device, INTx's disable bit,
    // BARs, and where capabilities and the interrupt's line and pin are.
    for (off_t at = offset; gone && at < offset + static_cast<off_t>(n); ++at)
      if (!(at < 4 || (at >= 0x10 && at < 0x28) || at == 0x34 || at == 0x3c || at == 0x3d))
        static_cast<uint8_t*>(to)[at - offset] = at == 5 ? 0xfb : 0xff;
    return static_cast<ssize_t>(n);
  }
  ssize_t pwrite(int, const void* from, size_t n, off_t offset) override {
    std::lock_guard lock(mutex);
    std::memcpy(config + (offset - kConfig), from, n);
    log.push_back("config " + std::to_string(offset - kConfig));
    return static_cast<ssize_t>(n);
  }
  int eventfd() override { return next_eventfd++; }
  bool signaled(int fd) override { return (fd == removal && wanted) || (fd == error && broken); }
  uint64_t memlock() override { return limit; }

  static constexpr off_t kConfig = off_t{7} << 40;

  std::mutex mutex;  // of what follows, for functions that threads use
  int version = 0;
  bool viable = true, resets = true, device_open = false, sparse = false, refuse_unmap = false;
  bool wanted = false, broken = false, gone = false;
  int refuse_open = 0, refuse_iommu = 0, refuse_map = 0, opened = 0, next_eventfd = 2000, removal = -1, error = -1;
  uint32_t interrupt_index = VFIO_PCI_MSIX_IRQ_INDEX, vectors = 8, left = 8;
  uint64_t limit = 8 << 20;
  uint8_t config[256] = {0xe4, 0x14, 0x60, 0x17};
  std::vector<std::pair<uint64_t, uint64_t>> ranges = {{0, 0xfedf'ffff}, {0xfef0'0000, 0xff'ffff'ffff}};
  std::map<uint64_t, vfio_iommu_type1_dma_map> mapped;
  std::vector<std::vector<int32_t>> interrupts;
  std::vector<std::pair<size_t, off_t>> bars;
  std::vector<std::string> log;

 private:
  // The capability goes behind the struct if the caller has room for it; argsz says how much that takes.
  int iommu_info(void* argument) {
    auto* info = static_cast<vfio_iommu_type1_info*>(argument);
    uint32_t room = info->argsz;
    uint32_t at = sizeof(*info);
    uint32_t needs = at + sizeof(vfio_iommu_type1_info_cap_iova_range) +
                     static_cast<uint32_t>(ranges.size() * sizeof(vfio_iova_range));
    info->flags = VFIO_IOMMU_INFO_PGSIZES | VFIO_IOMMU_INFO_CAPS;
    info->iova_pgsizes = 0x40201000;
    info->argsz = needs;
    info->cap_offset = 0;
    if (room < needs) return 0;
    info->cap_offset = at;
    vfio_iommu_type1_info_cap_iova_range list{};
    list.header.id = VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE;
    list.header.version = 1;
    list.nr_iovas = static_cast<uint32_t>(ranges.size());
    auto* bytes = static_cast<uint8_t*>(argument) + at;
    std::memcpy(bytes, &list, sizeof(list));
    bytes += sizeof(list);
    for (auto [start, end] : ranges) {
      vfio_iova_range range{start, end};
      std::memcpy(bytes, &range, sizeof(range));
      bytes += sizeof(range);
    }
    return 0;
  }
  int region_info(void* argument) {
    auto* info = static_cast<vfio_region_info*>(argument);
    uint32_t room = info->argsz;
    info->flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    info->cap_offset = 0;
    info->offset = info->index == VFIO_PCI_CONFIG_REGION_INDEX ? kConfig : uint64_t{info->index} << 40;
    info->size = info->index == VFIO_PCI_CONFIG_REGION_INDEX ? 256 : info->index == 2 ? 0x100000 : 0;
    info->argsz = sizeof(*info);
    if (info->index != 2) return 0;
    info->flags |= VFIO_REGION_INFO_FLAG_MMAP;
    if (!sparse) return 0;
    info->flags |= VFIO_REGION_INFO_FLAG_CAPS;
    constexpr uint32_t kSize = sizeof(vfio_region_info_cap_sparse_mmap) + 2 * sizeof(vfio_region_sparse_mmap_area);
    info->argsz = sizeof(*info) + kSize;
    if (room < info->argsz) return 0;
    info->cap_offset = sizeof(*info);
    vfio_region_info_cap_sparse_mmap list{};
    list.header.id = VFIO_REGION_INFO_CAP_SPARSE_MMAP;
    list.nr_areas = 2;
    auto* bytes = static_cast<uint8_t*>(argument) + sizeof(*info);
    std::memcpy(bytes, &list, sizeof(list));
    vfio_region_sparse_mmap_area areas[2] = {{0, 0x40000}, {0x80000, 0x80000}};
    std::memcpy(bytes + sizeof(list), areas, sizeof(areas));
    return 0;
  }
};

struct Machine : FakeSysfs {
  Machine() {
    bind("vfio-pci");
    group(7);
    // In pytest's or a container's /dev nothing of this exists; a plain file does for access().
    make(root / "dev/vfio/7");
  }
  Roots roots() const { return {root.string(), (root / "dev").string()}; }
  std::shared_ptr<Function> open() { return open_vfio(kBus, roots(), kernel); }
  std::string refusal() {
    return thrown([&] { open(); });
  }
  std::shared_ptr<FakeKernel> kernel = std::make_shared<FakeKernel>();
};

TEST_CASE("a function is taken, and given back in the order that keeps memory from a running device") {
  Machine machine;
  auto& kernel = *machine.kernel;
  CHECK_NOTHROW(check_vfio(FakeSysfs::kBus, machine.roots()));
  auto function = machine.open();
  CHECK(function->name() == "0000:17:00.0");
  CHECK(function->addressing() == Addressing::Iova);
  CHECK(function->config(0, 4) == 0x176014e4);
  CHECK(function->config(2, 2) == 0x1760);
  CHECK(function->config(254, 4) == 0xffffffff);
  CHECK(function->config(5000, 2) == 0xffff);
  CHECK((kernel.config[4] & 2) == 2);  // memory decoding
  function->set_config(4, 2, 0x6);
  CHECK_FALSE(function->failed());
  function->reset();
  Bar bar = function->map(2);
  function->alloc_dma(5000);
  CHECK(bar.size() == 0x100000);

  kernel.log.clear();
  function->release();
  CHECK(kernel.log == std::vector<std::string>{"config 4", "reset", "close 2000", "close 2001", "unmap", "close 1002",
                                               "unset", "close 1001", "close 1000"});
  CHECK((kernel.config[4] & 4) == 0);
  CHECK(kernel.mapped.empty());
  CHECK(kernel.opened == 0);
  CHECK(function->failed());
  CHECK(function->config(0, 4) == 0xffffffff);
  function->release();
  CHECK(machine.refusal() == "");  // and may be taken again
}

TEST_CASE("memory lies where the IOMMU has addresses, large memory at large alignment") {
  Machine machine;
  machine.kernel->ranges = {{0, 0x2fff}, {0x10'0000, 0x10'4fff}, {0x4000'0000, 0x7fff'ffff}};
  auto function = machine.open();
  Memory first = function->alloc_dma(1);
  CHECK(first.size == 4096);
  CHECK(first.runs[0].address == 0x1000);  // never 0
  CHECK(first.data[4095] == 0);
  Memory second = function->alloc_dma(4 * 4096);
  CHECK(second.runs[0].address == 0x10'0000);
  Memory large = function->alloc_dma(3 << 20);
  CHECK(large.runs.size() == 1);
  CHECK(large.runs[0].address % (2 << 20) == 0);
  CHECK(reinterpret_cast<uintptr_t>(large.data) % (2 << 20) == 0);
  std::memset(large.data, 1, large.size);
  CHECK(machine.kernel->mapped.size() == 3);
  function->free_dma(first);
  CHECK(machine.kernel->mapped.size() == 2);
  CHECK(function->alloc_dma(4096).runs[0].address == 0x1000);
  function->free_dma(first);  // a second time does nothing to others
  CHECK(contains(thrown([&] { function->alloc_dma(size_t{2} << 30); }), "the IOMMU has no"));
}

TEST_CASE("process memory is pinned where it lies") {
  Machine machine;
  auto function = machine.open();
  void* pages = aligned_alloc(4096, 3 * 4096);
  Memory memory = function->pin(pages, 2 * 4096 + 1);
  CHECK(memory.size == 2 * 4096 + 1);
  CHECK(memory.runs[0].bytes == 2 * 4096 + 1);
  auto request = machine.kernel->mapped.at(memory.runs[0].address);
  CHECK(request.vaddr == reinterpret_cast<uintptr_t>(pages));
  CHECK(request.size == 3 * 4096);  // whole pages
  function->unpin(memory);
  CHECK(machine.kernel->mapped.empty());
  std::memset(pages, 1, 3 * 4096);  // still the process's
  free(pages);
}

TEST_CASE("the child of a fork closes its copies of the descriptors, and asks nothing of the kernel") {
  Machine machine;
  auto& kernel = *machine.kernel;
  auto function = machine.open();
  function->alloc_dma(4096);
  Bar bar = function->map(2);
  bar.write<uint32_t>(0, 7);
  kernel.log.clear();
  const pid_t child = fork();
  if (child == 0) {
    std::vector<std::string> closed = std::move(kernel.log);
    std::sort(closed.begin(), closed.end());
    const int before = kernel.opened;
    kernel.log.clear();
    // Here the kernel is this process's own stand-in: the real one would have done for the parent what is asked of it.
    bool good =
        closed == std::vector<std::string>{"close 1000", "close 1001", "close 1002", "close 2000", "close 2001"} &&
        before == 0 && bar.read<uint32_t>(0) == 0 && function->failed() && kernel.mapped.size() == 1;
    // Another group, and the same one once the parent has let it go, are the child's own.
    auto own = machine.open();
    good = good && kernel.opened == 2 && own->config(0, 2) == 0x14e4;
    kernel.log.clear();
    function.reset();
    good = good && kernel.log.empty() && own->config(0, 2) == 0x14e4;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(kernel.log.empty());
  CHECK(function->config(0, 2) == 0x14e4);
}

TEST_CASE("what the system refuses to pin, and what to change") {
  Machine machine;
  auto function = machine.open();
  machine.kernel->refuse_map = ENOMEM;
  CHECK(thrown([&] { function->alloc_dma(16 << 20); }) ==
        "the system refuses to pin 16384 KiB of DMA memory: 16384 KiB of locked memory are needed and `ulimit -l` is "
        "8192 KiB: raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a systemd unit, or memlock in "
        "/etc/security/limits.conf)");
  // The system counts all that the process locks: what is below the limit alone may be too much beside the rest.
  CHECK(thrown([&] { function->alloc_dma(4096); }) ==
        "the system refuses to pin 4 KiB of DMA memory: 4 KiB of locked memory are needed, beside what else this "
        "process locks, and `ulimit -l` is 8192 KiB: raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a systemd unit, "
        "or memlock in /etc/security/limits.conf)");
  machine.kernel->limit = ~uint64_t{0};
  CHECK(thrown([&] { function->alloc_dma(4096); }) ==
        "the system refuses to pin 4 KiB of DMA memory: Cannot allocate memory");
  machine.kernel->refuse_map = ENOSPC;
  CHECK(contains(thrown([&] { function->alloc_dma(4096); }), "dma_entry_limit"));
  machine.kernel->refuse_map = EFAULT;
  CHECK(contains(thrown([&] { function->pin(reinterpret_cast<void*>(4096), 1); }), "not mapped in the process"));
  machine.kernel->refuse_map = 0;
  CHECK(function->alloc_dma(4096).runs[0].address == 0x1000);  // refusals took no address
}

TEST_CASE("memory that cannot be unmapped stays the process's, and its address is not given again") {
  Machine machine;
  auto function = machine.open();
  Memory memory = function->alloc_dma(4096);
  machine.kernel->refuse_unmap = true;
  function->free_dma(memory);
  memory.data[0] = 1;
  machine.kernel->refuse_unmap = false;
  CHECK(function->alloc_dma(4096).runs[0].address != memory.runs[0].address);
}

TEST_CASE("a BAR is mapped whole, or in the parts that VFIO lends") {
  for (bool sparse : {false, true}) {
    Machine machine;
    machine.kernel->sparse = sparse;
    auto function = machine.open();
    CHECK(function->bar_size(2) == 0x100000);
    CHECK(function->bar_address(2) == 0xe0100000);
    CHECK(function->bar_size(3) == 0);
    Bar bar = function->map(2);
    CHECK(bar.base() == function->map(2).base());
    bar.write<uint64_t>(0x80008, 1);
    std::vector<std::pair<size_t, off_t>> whole = {{0x100000, off_t{2} << 40}};
    std::vector<std::pair<size_t, off_t>> parts = {{0x40000, off_t{2} << 40}, {0x80000, (off_t{2} << 40) + 0x80000}};
    CHECK(machine.kernel->bars == (sparse ? parts : whole));
    CHECK(contains(thrown([&] { function->map(3); }), "has no BAR 3"));
  }
}

TEST_CASE("interrupts are event descriptors, all given to VFIO at once") {
  Machine machine;
  auto function = machine.open();
  int second = function->interrupt(2);
  CHECK(machine.kernel->interrupts.back() == std::vector<int32_t>{-1, -1, second});
  CHECK(function->interrupt(2) == second);
  int first = function->interrupt(0);
  CHECK(machine.kernel->interrupts.back() == std::vector<int32_t>{first, -1, second});
  CHECK(contains(thrown([&] { function->interrupt(8); }), "has no MSI-X vector 8: it has 8"));
  function->release();
  CHECK(machine.kernel->interrupts.back().empty());
}

TEST_CASE("a function without MSI-X has its MSI interrupts") {
  Machine machine;
  machine.kernel->interrupt_index = VFIO_PCI_MSI_IRQ_INDEX;
  machine.kernel->vectors = 1;
  auto function = machine.open();
  int only = function->interrupt(0);
  CHECK(machine.kernel->interrupts.back() == std::vector<int32_t>{only});
  CHECK(contains(thrown([&] { function->interrupt(1); }), "has no MSI vector 1: it has 1"));
  machine.kernel->vectors = 0;
  CHECK(contains(thrown([&] { function->interrupt(0); }), "has no MSI-X vector 0: it has 0"));
}

TEST_CASE("a function that the system wants back has failed") {
  Machine machine;
  auto function = machine.open();
  CHECK(machine.kernel->removal >= 2000);
  CHECK_FALSE(function->failed());
  machine.kernel->wanted = true;
  CHECK(function->failed());
  machine.kernel->wanted = false;  // it stays so
  CHECK(function->failed());
  CHECK(contains(function->failure(), "has to be given back"));
}

TEST_CASE("a function that reported an uncorrectable error has failed, though its configuration space answers") {
  Machine machine;
  auto function = machine.open();
  CHECK_FALSE(function->failed());
  machine.kernel->broken = true;
  CHECK(function->failed());
  machine.kernel->broken = false;  // it stays so
  CHECK(function->failed());
  CHECK(contains(function->failure(), "reported an uncorrectable PCI Express error"));
}

TEST_CASE("a function that left the bus has failed, though the kernel answers for its numbers") {
  Machine machine;
  auto function = machine.open();
  machine.kernel->gone = true;
  CHECK(function->config(0, 4) == 0x176014e4);
  CHECK(function->failed());
  CHECK(function->failure() == "left the bus: its reads are all ones");
  // It is not reset: the kernel would wait for its answer.
  machine.kernel->log.clear();
  CHECK(thrown([&] { function->reset(); }) == "0000:17:00.0 left the bus: its reads are all ones");
  function->release();
  CHECK(std::count(machine.kernel->log.begin(), machine.kernel->log.end(), "reset") == 0);
  CHECK(machine.kernel->opened == 0);
}

TEST_CASE("a machine that has fewer interrupts left says how many") {
  Machine machine;
  machine.kernel->left = 2;
  auto function = machine.open();
  CHECK(function->interrupt(1) >= 2000);
  CHECK(contains(thrown([&] { function->interrupt(2); }), "the machine has only 2 left"));
  CHECK(machine.kernel->interrupts.back().size() == 2);  // as they were
}

// The memory and the descriptors that a call uses must not go beneath it: AddressSanitizer and ThreadSanitizer watch.
TEST_CASE("a function is released while threads use it") {
  for (int round = 0; round < 20; ++round) {
    Machine machine;
    auto function = machine.open();
    size_t after = 0;
    const auto told = released_in_use(*function, 4096, [&] { after = machine.kernel->log.size(); });
    CHECK(told == std::vector<std::string>(2, "0000:17:00.0 was released"));
    CHECK(machine.kernel->log.size() == after);
    CHECK(machine.kernel->mapped.empty());
  }
}

TEST_CASE("two functions of a group share it in a process") {
  Machine machine;
  auto first = machine.open();
  auto second = machine.open();  // the kernel would refuse the same one twice; the group it would not
  CHECK(machine.kernel->opened == 2);
  Memory a = first->alloc_dma(4096);
  Memory b = second->alloc_dma(4096);
  CHECK(a.runs[0].address != b.runs[0].address);
  first->release();
  CHECK(machine.kernel->opened == 2);
  second->release();
  CHECK(machine.kernel->opened == 0);
}

TEST_CASE("every refusal says what to change") {
  {
    Machine machine;
    machine.bind("bnxt_en");
    CHECK(contains(machine.refusal(), "`driverctl set-override 0000:17:00.0 vfio-pci`"));
    machine.bind("");
    CHECK(contains(machine.refusal(), "`driverctl set-override 0000:17:00.0 vfio-pci`"));
    CHECK(contains(thrown([&] { check_vfio(FakeSysfs::kBus, machine.roots()); }), "driverctl"));
  }
  {
    Machine machine;
    fs::remove(machine.file("iommu_group"));
    CHECK(contains(machine.refusal(), "is not behind an IOMMU"));
  }
  {
    Machine machine;
    machine.add("0000:17:00.1");
    machine.bind("bnxt_en", "0000:17:00.1");
    machine.group(7, "DMA", "0000:17:00.1");
    CHECK(machine.refusal() ==
          "IOMMU group 7 of 0000:17:00.0 holds functions of other drivers, and goes to VFIO only as a whole: "
          "0000:17:00.1 (bnxt_en): `driverctl set-override 0000:17:00.1 vfio-pci`");
    machine.bind("pcieport", "0000:17:00.1");
    CHECK(machine.refusal() == "");
  }
  {
    Machine machine;
    machine.kernel->viable = false;
    CHECK(contains(machine.refusal(), "goes to VFIO only as a whole"));
    CHECK(machine.kernel->opened == 0);
  }
  {
    Machine machine;
    machine.kernel->refuse_open = EACCES;
    CHECK(contains(machine.refusal(), "SUBSYSTEM==\"vfio\", GROUP=\"vfio\", MODE=\"0660\""));
    machine.kernel->refuse_open = ENOENT;
    CHECK(contains(machine.refusal(), "`modprobe vfio-pci`"));
    fs::create_directories(machine.root / "dev/vfio/devices");
    CHECK(contains(machine.refusal(), "CONFIG_VFIO_GROUP"));
    machine.kernel->refuse_open = EBUSY;
    CHECK(contains(machine.refusal(), "another process"));
  }
  {
    Machine machine;
    machine.kernel->refuse_iommu = EPERM;
    CHECK(contains(machine.refusal(), "allow_unsafe_interrupts"));
    machine.kernel->refuse_iommu = 0;
    machine.kernel->version = 3;
    CHECK(contains(machine.refusal(), "version 3"));
    CHECK(machine.kernel->opened == 0);
  }
  {
    Machine machine;
    machine.kernel->resets = false;
    auto function = machine.open();
    CHECK(contains(thrown([&] { function->reset(); }), "cannot be reset by itself"));
  }
}

TEST_CASE("I/O virtual addresses: first fit, and neighbors join") {
  IovaAllocator free({{0x1000, 0x10000}}, 0x1000);
  CHECK(free.take(0x4000, 0x1000) == 0x1000);
  CHECK(free.take(0x4000, 0x4000) == 0x8000);
  CHECK(free.take(0x3000, 0x1000) == 0x5000);
  CHECK(free.take(0x5000, 0x1000) == 0xc000);
  CHECK_FALSE(free.take(0x1000, 0x1000));
  free.give(0x1000, 0x4000);
  free.give(0x8000, 0x4000);
  CHECK_FALSE(free.take(0x8000, 0x1000));
  free.give(0x5000, 0x3000);
  free.give(0xc000, 0x5000);
  CHECK(free.available() == 0x10000);
  CHECK(free.take(0x10000, 0x1000) == 0x1000);
}

TEST_CASE("I/O virtual addresses from an address on: those given back come last") {
  IovaAllocator free({{0x1000, 0x10000}}, 0x1000);
  CHECK(free.take(0x4000, 0x1000, 0x6000) == 0x6000);  // within the free range
  free.give(0x6000, 0x4000);
  CHECK(free.take(0x4000, 0x4000, 0xa000) == 0xc000);
  CHECK(free.take(0x2000, 0x1000, 0x10000) == 0x1000);  // what is left past it is too small
  CHECK(free.take(0x1000, 0x1000, 0x20000) == 0x3000);  // nothing is past it
  CHECK_FALSE(free.take(0x9000, 0x1000, 0x1000));
  CHECK(free.available() == 0x10000 - 0x7000);
}

}  // namespace
