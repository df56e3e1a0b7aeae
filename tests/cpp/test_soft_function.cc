// A soft function as a PCI function: configuration space, BARs, interrupts, DMA memory, pins, reset and leaving.
//
// Expected values are the PCI and PCIe specifications', by the names of Linux's pci_regs.h.
#include <doctest/doctest.h>
#include <linux/pci_regs.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "host/relax.h"
#include "soft/allocation.h"
#include "soft/bnxt/soft_bnxt.h"
#include "soft/gpu.h"
#include "soft/machine.h"
#include "soft/soft_function.h"

namespace {

using namespace userdma;
using soft::SoftFunction;
using soft::bnxt::SoftBnxt;

SoftFunction::Options options(bool iommu = true) {
  static uint8_t last = 0;
  SoftFunction::Options o;
  o.name = "soft:test";
  o.wire = soft::wire::Wire::make();
  o.clock = std::make_shared<soft::RealClock>();
  o.mac = {2, 0, 0, 0, 7, ++last};
  o.iommu = iommu;
  o.seed = 1;
  o.thread = false;
  return o;
}

unsigned capability(SoftFunction& f, uint8_t id) {
  for (unsigned at = f.config(PCI_CAPABILITY_LIST, 1); at; at = f.config(at + PCI_CAP_LIST_NEXT, 1)) {
    if (f.config(at + PCI_CAP_LIST_ID, 1) == id) return at;
  }
  return 0;
}

uint8_t* dma_byte(SoftFunction& f, uint64_t bus) {
  std::lock_guard guard(f.nic().lock());
  return f.nic().dma().translate(bus, 1).at;
}

void master(SoftFunction& f) { f.set_config(PCI_COMMAND, 2, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER); }

struct Pages {  // anonymous memory of the process
  explicit Pages(size_t bytes, int flags = MAP_PRIVATE) : bytes(bytes) {
    at = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0));
    REQUIRE(at != MAP_FAILED);
  }
  ~Pages() { munmap(at, bytes); }
  uint8_t* at;
  size_t bytes;
};

TEST_CASE("configuration space names the device and keeps read-only bits") {
  SoftBnxt f(options());
  CHECK(f.config(PCI_VENDOR_ID, 2) == 0x14e4);
  CHECK(f.config(PCI_DEVICE_ID, 2) == 0x1760);
  CHECK(f.config(PCI_VENDOR_ID, 4) == 0x176014e4);
  CHECK((f.config(PCI_CLASS_REVISION, 4) >> 8) == 0x020000);
  CHECK(f.config(PCI_HEADER_TYPE, 1) == PCI_HEADER_TYPE_NORMAL);
  f.set_config(PCI_VENDOR_ID, 4, 0);
  CHECK(f.config(PCI_VENDOR_ID, 4) == 0x176014e4);
  CHECK((f.config(PCI_STATUS, 2) & PCI_STATUS_CAP_LIST));
  // Of the command register only the bits that a PCIe endpoint without I/O space has.
  f.set_config(PCI_COMMAND, 2, 0xffff);
  CHECK(f.config(PCI_COMMAND, 2) ==
        (PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR | PCI_COMMAND_INTX_DISABLE));
  CHECK(f.config(0x1000, 1) == 0xff);
  CHECK(f.config(0x1000, 4) == 0xffffffff);
  CHECK(f.config(0xffe, 4) == 0xffffffff);
  CHECK(f.config(0xfff, 1) == 0);
}

TEST_CASE("a BAR answers all ones with its size") {
  SoftBnxt f(options());
  const size_t sizes[] = {64 << 10, 1 << 20, 16 << 10};
  for (int i = 0; i < 3; i++) {
    const unsigned at = PCI_BASE_ADDRESS_0 + 8 * i;
    CHECK(f.bar_size(2 * i) == sizes[i]);
    CHECK((f.config(at, 4) & ~PCI_BASE_ADDRESS_MEM_MASK) ==
          (PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH));
    const uint64_t address = (f.config(at, 4) & PCI_BASE_ADDRESS_MEM_MASK) | uint64_t{f.config(at + 4, 4)} << 32;
    CHECK(address == f.bar_address(2 * i));
    CHECK(address % sizes[i] == 0);
    f.set_config(at, 4, 0xffffffff);
    f.set_config(at + 4, 4, 0xffffffff);
    const uint64_t mask = (f.config(at, 4) & 0xfffffff0u) | uint64_t{f.config(at + 4, 4)} << 32;
    CHECK((~mask + 1) == sizes[i]);
    CHECK(f.bar_size(2 * i + 1) == 0);
  }
  CHECK_THROWS_AS(f.map(1), host::MachineError);
}

TEST_CASE("capabilities: power management, MSI-X, PCIe endpoint with function-level reset") {
  SoftBnxt f(options());
  CHECK(capability(f, PCI_CAP_ID_PM));
  const unsigned msix = capability(f, PCI_CAP_ID_MSIX);
  REQUIRE(msix);
  CHECK((f.config(msix + PCI_MSIX_TABLE, 4) & PCI_MSIX_TABLE_BIR) == 4);
  CHECK((f.config(msix + PCI_MSIX_PBA, 4) & PCI_MSIX_PBA_BIR) == 4);
  const unsigned pcie = capability(f, PCI_CAP_ID_EXP);
  REQUIRE(pcie);
  CHECK(((f.config(pcie + PCI_EXP_FLAGS, 2) & PCI_EXP_FLAGS_TYPE) >> 4) == PCI_EXP_TYPE_ENDPOINT);
  CHECK((f.config(pcie + PCI_EXP_DEVCAP, 4) & PCI_EXP_DEVCAP_FLR));
  const uint32_t control = f.config(pcie + PCI_EXP_DEVCTL, 2);
  CHECK((control & PCI_EXP_DEVCTL_RELAX_EN));
  f.set_config(pcie + PCI_EXP_DEVCTL, 2, control & ~uint32_t{PCI_EXP_DEVCTL_RELAX_EN});
  CHECK(f.config(pcie + PCI_EXP_DEVCTL, 2) == (control & ~uint32_t{PCI_EXP_DEVCTL_RELAX_EN}));
  // The extended space has a list too: error reporting, then the serial number.
  CHECK((f.config(0x100, 4) & 0xffff) == PCI_EXT_CAP_ID_ERR);
  CHECK((f.config(f.config(0x100, 4) >> 20, 4) & 0xffff) == PCI_EXT_CAP_ID_DSN);
}

TEST_CASE("a function-level reset by its bit puts the space back to power-on; reset() keeps what a host restores") {
  SoftBnxt f(options());
  master(f);
  auto bar = f.map(0);
  bar.write<uint32_t>(0x40, 7);
  f.reset();
  CHECK(bar.read<uint32_t>(0x40) == 0);
  CHECK((f.config(PCI_COMMAND, 2) & PCI_COMMAND_MASTER));
  CHECK(f.config(PCI_BASE_ADDRESS_2, 4) != 0xc);
  bar.write<uint32_t>(0x40, 7);
  const unsigned pcie = capability(f, PCI_CAP_ID_EXP);
  f.set_config(pcie + PCI_EXP_DEVCTL, 2, f.config(pcie + PCI_EXP_DEVCTL, 2) | PCI_EXP_DEVCTL_BCR_FLR);
  CHECK(f.config(PCI_COMMAND, 2) == 0);
  CHECK(f.config(PCI_BASE_ADDRESS_2, 4) == 0xc);
  CHECK_FALSE((f.config(pcie + PCI_EXP_DEVCTL, 2) & PCI_EXP_DEVCTL_BCR_FLR));
  CHECK(bar.read<uint32_t>(0x40) == 0xffffffff);  // no memory space
  f.set_config(PCI_COMMAND, 2, PCI_COMMAND_MEMORY);
  CHECK(bar.read<uint32_t>(0x40) == 0);
}

TEST_CASE("interrupts: table, masks, pending bits, and none without bus mastering") {
  SoftBnxt f(options());
  const unsigned msix = capability(f, PCI_CAP_ID_MSIX);
  CHECK_FALSE((f.config(msix + PCI_MSIX_FLAGS, 2) & PCI_MSIX_FLAGS_ENABLE));
  const int fd = f.interrupt(3);
  CHECK(f.interrupt(3) == fd);
  CHECK((f.config(msix + PCI_MSIX_FLAGS, 2) & PCI_MSIX_FLAGS_ENABLE));
  CHECK_THROWS_AS(f.interrupt(74), host::MachineError);
  const auto fired = [&] {
    uint64_t n = 0;
    return read(fd, &n, sizeof n) == sizeof n ? n : 0;
  };
  const auto raise = [&] {
    std::lock_guard guard(f.nic().lock());
    f.raise(3);
  };
  raise();
  CHECK(fired() == 0);
  master(f);
  raise();
  CHECK(fired() == 1);
  auto table = f.map(4);
  const uint32_t pending = f.config(msix + PCI_MSIX_PBA, 4) & PCI_MSIX_PBA_OFFSET;
  const uint64_t control = 3 * PCI_MSIX_ENTRY_SIZE + PCI_MSIX_ENTRY_VECTOR_CTRL;
  CHECK((table.read<uint32_t>(2 * PCI_MSIX_ENTRY_SIZE + PCI_MSIX_ENTRY_VECTOR_CTRL) & PCI_MSIX_ENTRY_CTRL_MASKBIT));
  table.write<uint32_t>(control, PCI_MSIX_ENTRY_CTRL_MASKBIT);
  raise();
  CHECK(fired() == 0);
  CHECK(table.read<uint32_t>(pending) == 1u << 3);
  table.write<uint32_t>(control, 0);
  CHECK(fired() == 1);
  CHECK(table.read<uint32_t>(pending) == 0);
  f.set_config(msix + PCI_MSIX_FLAGS, 2, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
  raise();
  CHECK(fired() == 0);
  f.set_config(msix + PCI_MSIX_FLAGS, 2, PCI_MSIX_FLAGS_ENABLE);
  CHECK(fired() == 1);
  f.reset();
  raise();
  CHECK(fired() == 1);  // what the host set up, it set up again
}

TEST_CASE("DMA memory is zeroed whole pages at bus addresses that are no process addresses") {
  SoftBnxt f(options());
  const auto m = f.alloc_dma(5000);
  CHECK(m.size == 8192);
  REQUIRE(m.runs.size() == 1);
  CHECK(m.runs[0].address >= 0x40000000);
  CHECK(m.runs[0].address != reinterpret_cast<uintptr_t>(m.data));
  CHECK(std::set<uint8_t>(m.data, m.data + m.size) == std::set<uint8_t>{0});
  CHECK(f.dma_pages() == 2);
  CHECK(dma_byte(f, m.runs[0].address) == nullptr);  // no bus mastering yet
  master(f);
  CHECK(dma_byte(f, m.runs[0].address + 4097) == m.data + 4097);
  f.set_config(PCI_COMMAND, 2, PCI_COMMAND_MEMORY);
  CHECK(dma_byte(f, m.runs[0].address) == nullptr);
  master(f);
  f.free_dma(m);
  CHECK(f.dma_pages() == 0);
  CHECK(f.arena().allocated() == 0);
  CHECK(dma_byte(f, m.runs[0].address) == nullptr);
  CHECK(f.alloc_dma(4096).runs[0].address != m.runs[0].address);
}

TEST_CASE("addresses come back with their memory, and are given again only after all others") {
  auto o = options();
  o.iovas = 1 << 20;
  SoftBnxt f(o);
  master(f);
  constexpr size_t bytes = 64 << 10;  // with the hole behind it and its alignment, 8 of them
  Pages pages(bytes);
  std::vector<uint64_t> given;
  for (int i = 0; i < 100; i++) {
    const auto m = i % 2 == 0 ? f.alloc_dma(bytes) : f.pin(pages.at, bytes);
    REQUIRE(m.runs.size() == 1);
    const uint64_t at = m.runs[0].address;
    for (size_t back = 1; back < 8 && back <= given.size(); back++) {
      CHECK(given[given.size() - back] != at);
      CHECK(dma_byte(f, given[given.size() - back]) == nullptr);
    }
    given.push_back(at);
    CHECK(dma_byte(f, at + bytes - 1) != nullptr);
    CHECK(dma_byte(f, at + bytes) == nullptr);
    f.free_dma(m);
  }
}

TEST_CASE("no addresses left is a refusal that says what to do") {
  auto o = options();
  o.iovas = 1 << 20;
  SoftBnxt f(o);
  const auto m = f.alloc_dma(512 << 10);
  CHECK_THROWS_WITH_AS(f.alloc_dma(512 << 10), doctest::Contains("deregister regions"), host::MemoryError);
  CHECK(f.arena().allocated() == 512 << 10);
  f.free_dma(m);
  f.free_dma(f.alloc_dma(512 << 10));
}

TEST_CASE("without an IOMMU memory is at physical addresses, in runs that are whole pages and cover it in order") {
  SoftBnxt f(options(false));
  master(f);
  const auto m = f.alloc_dma(9 << 20);
  CHECK(m.runs.size() > 3);
  size_t at = 0;
  for (const auto& run : m.runs) {
    CHECK(run.address % 4096 == 0);
    CHECK(run.bytes % 4096 == 0);
    CHECK(dma_byte(f, run.address) == m.data + at);
    CHECK(dma_byte(f, run.address + run.bytes - 1) == m.data + at + run.bytes - 1);
    at += run.bytes;
  }
  CHECK(at == m.size);
  f.free_dma(m);
  CHECK(f.dma_pages() == 0);
}

TEST_CASE("physical addresses come back with a function's memory and BARs, and with a GPU's") {
  auto& machine = soft::Machine::instance();
  const uint64_t before = machine.available();
  uint64_t stale = 0;
  {
    SoftBnxt f(options(false));
    master(f);
    const auto m = f.alloc_dma(3 << 20);
    soft::SoftGpu gpu(1 << 20);
    CHECK(machine.available() < before - (4 << 20));
    stale = m.runs[0].address;
    f.free_dma(m);
    CHECK(f.alloc_dma(3 << 20).runs[0].address != stale);
    CHECK(dma_byte(f, stale) == nullptr);
    CHECK_THROWS_WITH_AS(machine.place(before, 4096), doctest::Contains("free some of its memory"), host::MemoryError);
  }
  CHECK(machine.available() == before);
}

TEST_CASE("without an IOMMU only alloc_dma's memory is pinned, at the addresses it has") {
  SoftBnxt f(options(false));
  master(f);
  Pages pages(8192);
  CHECK_THROWS_WITH_AS(f.pin(pages.at, 8192), doctest::Contains("not behind an IOMMU"), host::MemoryError);
  const auto m = f.alloc_dma(64 << 10);
  CHECK_THROWS_AS(f.pin(m.data + (60 << 10), 8192), host::MemoryError);
  const auto p = f.pin(m.data + 8192, 5000);
  CHECK(p.data == m.data + 8192);
  CHECK(p.size == 5000);
  CHECK(dma_byte(f, p.runs[0].address) == m.data + 8192);
  // The pages stay while the pin holds them.
  m.data[8192] = 42;
  f.free_dma(m);
  CHECK(dma_byte(f, p.runs[0].address) == p.data);
  CHECK(*p.data == 42);
  CHECK(f.arena().allocated() == 64 << 10);
  f.unpin(p);
  CHECK(f.arena().allocated() == 0);
  CHECK(f.dma_pages() == 0);
}

TEST_CASE("limits of memory and of pins are refusals that say how much") {
  auto o = options();
  o.memory = 16384;
  o.pin_limit = 8192;
  SoftBnxt f(o);
  const auto m = f.alloc_dma(12288);
  CHECK_THROWS_AS(f.alloc_dma(8192), host::MemoryError);
  f.free_dma(m);
  f.free_dma(f.alloc_dma(16384));
  Pages pages(16384);
  const auto p = f.pin(pages.at, 4096);
  CHECK_THROWS_WITH_AS(
      f.pin(pages.at + 4096, 8192),
      "pinning 8192 bytes for soft:test is over the limit: 4096 bytes are pinned, and the limit is 8192 "
      "bytes",
      host::MemoryError);
  f.unpin(p);
  f.unpin(f.pin(pages.at + 4096, 8192));
  CHECK(f.dma_pages() == 0);
}

TEST_CASE("a pin reaches the pages that held the bytes, whatever is mapped there later") {
  for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
    CAPTURE(kind);
    SoftBnxt f(options());
    master(f);
    Pages pages(4 * 4096, kind);
    std::memset(pages.at, 1, pages.bytes);
    const auto p = f.pin(pages.at + 4096, 2 * 4096);
    CHECK(pages.at[4096] == 1);
    pages.at[4096] = 2;
    CHECK(*dma_byte(f, p.runs[0].address) == 2);
    *dma_byte(f, p.runs[0].address + 4096) = 3;
    CHECK(pages.at[8192] == 3);
    REQUIRE(mmap(pages.at + 4096, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
            MAP_FAILED);
    CHECK(pages.at[4096] == 0);
    CHECK(*dma_byte(f, p.runs[0].address) == 2);
    *dma_byte(f, p.runs[0].address) = 9;
    CHECK(pages.at[4096] == 0);
    CHECK(pages.at[0] == 1);
    CHECK(pages.at[3 * 4096] == 1);
    f.unpin(p);
  }
}

TEST_CASE("pins of the same pages overlap, in one function and in two") {
  SoftBnxt f(options()), g(options());
  master(f);
  master(g);
  Pages pages(8 * 4096);
  const auto a = f.pin(pages.at, 4 * 4096);
  const auto b = f.pin(pages.at + 2 * 4096, 4 * 4096);
  const auto c = g.pin(pages.at, 8 * 4096);
  pages.at[3 * 4096] = 5;
  CHECK(*dma_byte(f, a.runs[0].address + 3 * 4096) == 5);
  CHECK(*dma_byte(f, b.runs[0].address + 4096) == 5);
  CHECK(*dma_byte(g, c.runs[0].address + 3 * 4096) == 5);
  f.unpin(a);
  pages.at[3 * 4096] = 6;
  CHECK(*dma_byte(f, b.runs[0].address + 4096) == 6);
  f.unpin(b);
  *dma_byte(g, c.runs[0].address + 3 * 4096) = 7;
  CHECK(pages.at[3 * 4096] == 7);
}

TEST_CASE("memory of one function is pinned for another, and outlives it") {
  auto f = std::make_unique<SoftBnxt>(options());
  SoftBnxt g(options());
  master(g);
  const auto m = f->alloc_dma(8192);
  const auto p = g.pin(m.data, 8192);
  m.data[5] = 55;
  f.reset();
  CHECK(*dma_byte(g, p.runs[0].address + 5) == 55);
}

TEST_CASE("pin refuses what cannot be pinned, and names it") {
  SoftBnxt f(options());
  Pages pages(4 * 4096);
  CHECK_THROWS_AS(f.pin(pages.at + 1, 10), host::MemoryError);
  mprotect(pages.at + 2 * 4096, 4096, PROT_READ);
  CHECK_THROWS_WITH_AS(f.pin(pages.at, pages.bytes), doctest::Contains("read-only"), host::MemoryError);
  munmap(pages.at + 4096, 4096);
  CHECK_THROWS_WITH_AS(f.pin(pages.at, 8192), doctest::Contains("nothing is mapped"), host::MemoryError);
  uint8_t local;
  auto* stack = reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(&local) & ~uintptr_t{4095});
  CHECK_THROWS_WITH_AS(f.pin(stack, 4096), doctest::Contains("stack"), host::MemoryError);
  CHECK_THROWS_AS(f.pin(reinterpret_cast<void*>(4096), SIZE_MAX), host::MemoryError);
  CHECK(f.dma_pages() == 0);
  f.unpin(f.pin(pages.at, 4096));  // what was tried before is as it was
}

TEST_CASE("a forked child has its own copy of memory that was pinned") {
  SoftBnxt f(options());
  master(f);
  Pages pages(3 * 4096);
  std::memset(pages.at, 1, pages.bytes);
  const auto p = f.pin(pages.at, pages.bytes);
  const pid_t child = fork();
  if (child == 0) {
    const bool kept = pages.at[0] == 1 && pages.at[2 * 4096] == 1;
    std::memset(pages.at, 2, pages.bytes);
    f.free_dma(p);
    f.release();
    _exit(kept && f.config(0, 4) == 0xffffffff ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(pages.at[0] == 1);
  CHECK(*dma_byte(f, p.runs[0].address + 4096) == 1);
}

TEST_CASE("a forked child has pinned memory as it was at the fork, and pins memory of its own") {
  SoftBnxt f(options());
  master(f);
  Pages pages(64 * 4096);
  std::memset(pages.at, 1, pages.bytes);
  const auto p = f.pin(pages.at, pages.bytes);
  const auto written =
      static_cast<std::atomic<bool>*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(written != MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    while (!*written) usleep(1000);
    for (size_t i = 0; i < pages.bytes; i += 4096)
      if (pages.at[i] != 1) _exit(1);
    SoftBnxt own(options());
    master(own);
    // By the bytes of a page, for both processes begin at the same place.
    uint8_t* more =
        static_cast<uint8_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(more, 7, 4096);
    const auto a = own.pin(pages.at, pages.bytes), b = own.pin(more, 4096);
    std::memset(pages.at, 9, pages.bytes);
    more[1] = 8;
    if (*dma_byte(own, a.runs[0].address) != 9 || *dma_byte(own, b.runs[0].address) != 7) _exit(2);
    if (*dma_byte(own, b.runs[0].address + 1) != 8) _exit(3);
    own.unpin(a);
    own.unpin(b);
    _exit(0);
  }
  std::memset(pages.at, 3, pages.bytes);
  Pages later(4096);  // where the store has room after the fork
  std::memset(later.at, 4, later.bytes);
  const auto q = f.pin(later.at, later.bytes);
  *written = true;
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(*dma_byte(f, p.runs[0].address) == 3);
  CHECK(*dma_byte(f, q.runs[0].address) == 4);
  CHECK(later.at[0] == 4);
  munmap(written, 4096);
}

TEST_CASE("threads that pin the same memory for two functions: both devices have it") {
  SoftBnxt one(options()), other(options());
  master(one);
  master(other);
  for (int round = 0; round < 200; round++) {
    Pages pages(16 * 4096);
    std::memset(pages.at, 1, pages.bytes);
    std::atomic<int> ready{0};
    host::Memory first, second;
    const auto pin = [&](SoftBnxt& f, host::Memory& into) {
      ready++;
      while (ready != 2) std::this_thread::yield();
      into = f.pin(pages.at, pages.bytes);
    };
    std::thread thread([&] { pin(other, second); });
    pin(one, first);
    thread.join();
    pages.at[5 * 4096] = 2;
    REQUIRE(*dma_byte(one, first.runs[0].address + 5 * 4096) == 2);
    REQUIRE(*dma_byte(other, second.runs[0].address + 5 * 4096) == 2);
    one.unpin(first);
    other.unpin(second);
  }
}

TEST_CASE("memory that ends while somebody looks whose it is") {
  const auto arena = std::make_shared<soft::Arena>();
  std::atomic<uint8_t*> at{nullptr};
  std::atomic<bool> end{false};
  std::thread looks([&] {
    while (!end) {
      (void)soft::Allocation::find(at.load());
      const auto address = reinterpret_cast<uintptr_t>(at.load());
      (void)soft::Allocation::next(address, address + (1 << 20));
    }
  });
  for (int i = 0; i < 20000; i++) {
    auto held = soft::Allocation::make(arena, 4096);
    at = held->data() + i % 2;
    for (int wait = i % 64; wait; wait--) host::relax();
    held.reset();
  }
  end = true;
  looks.join();
  CHECK(arena->allocated() == 0);
}

// A family's NIC that cannot be made.
class Failing final : public SoftFunction {
 public:
  explicit Failing(const Options& options) : SoftFunction(identity(), options) { throw std::runtime_error("nothing"); }

 private:
  static soft::Identity identity() {
    soft::Identity id{};
    id.bar_bytes[4] = 4096;
    id.vector_pending = 16;
    return id;
  }
  void stored(int, uint64_t, uint64_t, unsigned) override {}
  void device_stop() override {}
};

TEST_CASE("a function whose making failed is not of the machine any more") {
  for (int i = 0; i < 3; i++) CHECK_THROWS_AS(Failing(options(false)), std::runtime_error);
  soft::SoftGpu gpu(4096);  // of which the machine tells its functions
  CHECK(gpu.bus() != 0);
}

TEST_CASE("a GPU's memory is reached by its bus address where there is no IOMMU, and not where there is one") {
  SoftBnxt early(options(false)), behind(options());
  master(early);
  master(behind);
  auto gpu = std::make_unique<soft::SoftGpu>(10000);
  SoftBnxt late(options(false));
  master(late);
  CHECK(gpu->size() == 12288);
  gpu->data()[4096] = 7;
  const uint64_t bus = gpu->bus();
  CHECK(*dma_byte(early, bus + 4096) == 7);
  CHECK(*dma_byte(late, bus + 4096) == 7);
  CHECK(dma_byte(behind, bus + 4096) == nullptr);
  gpu.reset();
  CHECK(dma_byte(early, bus) == nullptr);
}

TEST_CASE("a function that vanished reads all ones and reaches nothing") {
  SoftBnxt f(options());
  master(f);
  const auto m = f.alloc_dma(4096);
  auto bar = f.map(0), doorbells = f.map(2);
  bar.write<uint32_t>(0, 1);
  f.vanish();
  CHECK(f.failed());
  CHECK(f.config(PCI_VENDOR_ID, 2) == 0xffff);
  CHECK(bar.read<uint32_t>(0) == 0xffffffff);
  bar.write<uint32_t>(0, 1);
  CHECK(bar.read<uint32_t>(0) == 0xffffffff);
  CHECK(doorbells.read<uint64_t>(0x10000) == UINT64_MAX);
  CHECK(dma_byte(f, m.runs[0].address) == nullptr);
  f.reset();
  CHECK(f.failed());
  f.free_dma(m);
  f.release();
  f.release();
}

TEST_CASE("release gives everything back, twice if asked") {
  SoftBnxt f(options());
  master(f);
  Pages pages(8192);
  f.alloc_dma(8192);
  f.pin(pages.at, 8192);
  auto& arena = f.arena();
  CHECK(arena.allocated() == 8192);
  f.release();
  CHECK(arena.allocated() == 0);
  f.release();
  CHECK_THROWS_AS(f.alloc_dma(1), host::MachineError);
}

}  // namespace
