// PCI functions by their physical addresses, over a folder that looks like sysfs, and what sysfs says of a function.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include "fake_sysfs.h"
#include "host/physical.h"

namespace {

using namespace userdma::test;
using namespace userdma::host;

constexpr size_t kHugePage = 64 << 10;  // small, as the test may lock little memory

struct Machine : FakeSysfs {
  Machine() { fs::create_directories(root / "huge"); }

  // Frames lie anywhere: the n-th huge page is at (n * 7 + 3) of them.
  PhysicalOptions options() {
    return {.sysfs = root.string(),
            .huge_pages = (root / "huge").string(),
            .huge_page = kHugePage,
            .physical = [this](const void*) { return tells ? (frames++ * 7 + 3) * kHugePage : 0; }};
  }
  uint64_t frames = 0;
  bool tells = true;
};

TEST_CASE("which way a function is taken, and what stops it") {
  FakeSysfs sysfs;
  const std::string root = sysfs.root.string();
  auto kind = [&](const std::string& bus = FakeSysfs::kBus) { return pci_kind(bus, root); };

  CHECK(thrown([&] { kind("0000:99:00.0"); }) == "there is no PCI function 0000:99:00.0: `lspci -D` lists them");
  for (const char* wrong : {"17:00.0", "../../etc", "0000:17:00.x", "0000-17:00.0", ""})
    CHECK(contains(thrown([&] { kind(wrong); }), "is no PCI function's name"));
  CHECK(kind() == "physical");
  sysfs.bind("bnxt_en");
  CHECK(contains(thrown([&] { kind(); }), "belongs to the kernel's driver bnxt_en"));
  CHECK(contains(thrown([&] { kind(); }), "`driverctl set-override 0000:17:00.0 vfio-pci`"));
  sysfs.bind("");
  sysfs.group(7);
  CHECK(contains(thrown([&] { kind(); }), "is behind an IOMMU (group 7)"));
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, {.sysfs = root, .huge_pages = {}, .physical = {}}); }),
                 "is behind an IOMMU (group 7)"));
  FakeSysfs::write(sysfs.root / "kernel/iommu_groups/7/type", "identity\n");
  CHECK(kind() == "physical");
  sysfs.bind("vfio-pci");
  CHECK(kind() == "vfio");
  CHECK(contains(thrown([&] { check_physical(FakeSysfs::kBus, {.sysfs = root, .huge_pages = {}, .physical = {}}); }),
                 "belongs to the kernel's driver vfio-pci"));
}

TEST_CASE("taking a function ends what its owner before left running, and takes it from others") {
  Machine machine;
  FakeSysfs::write(machine.root / "huge/userdma-0000:17:00.0", "what an owner that died left");
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  CHECK(function->name() == "0000:17:00.0");
  CHECK(function->addressing() == Addressing::Physical);
  CHECK(FakeSysfs::read(machine.file("enable"))[0] == '1');
  CHECK(FakeSysfs::read(machine.file("reset")) == "1");
  CHECK(function->config(0, 4) == 0x176014e4);
  CHECK(function->config(0, 2) == 0x14e4);
  CHECK(function->config(3, 1) == 0x17);
  CHECK(function->config(4, 2) == 0x0002);  // memory decoding on, bus mastering off
  CHECK(function->config(4000, 4) == 0xffffffff);
  CHECK_FALSE(function->failed());
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }), "is driven by another process"));

  function->set_config(4, 2, 0x0006);
  CHECK(function->config(4, 2) == 0x0006);
  FakeSysfs::write(machine.file("reset"), "");
  function->release();
  CHECK(FakeSysfs::read(machine.file("reset")) == "1");
  CHECK(FakeSysfs::read(machine.file("config"))[4] == 0x02);
  CHECK(FakeSysfs::read(machine.file("enable"))[0] == '0');
  CHECK_FALSE(fs::exists(machine.root / "huge/userdma-0000:17:00.0"));
  CHECK(function->failed());
  function->release();
  open_physical(FakeSysfs::kBus, machine.options())->release();
}

TEST_CASE("a function has one owner, whatever sysfs it was found in") {
  // Each network namespace has a sysfs of its own, with locks of its own; the file system of huge pages is the same.
  Machine machine, elsewhere;
  PhysicalOptions there = elsewhere.options();
  there.huge_pages = machine.options().huge_pages;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  Memory memory = function->alloc_dma(4096);
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, there); }), "0000:17:00.0 is driven by another process"));
  CHECK(FakeSysfs::read(elsewhere.file("reset")).empty());  // nothing was done to it
  CHECK(FakeSysfs::read(elsewhere.file("enable"))[0] == '0');
  CHECK(fs::file_size(machine.root / "huge/userdma-0000:17:00.0") == kHugePage);
  memory.data[0] = 1;
  function->release();
  open_physical(FakeSysfs::kBus, there)->release();
}

TEST_CASE("what an owner that died left stays until the function was reset") {
  Machine machine;
  const fs::path file = machine.root / "huge/userdma-0000:17:00.0";
  FakeSysfs::write(file, "what the device may still write");
  fs::remove(machine.file("reset"));
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }), "cannot be reset by itself"));
  CHECK(FakeSysfs::read(file) == "what the device may still write");
  FakeSysfs::make(machine.file("reset"));
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  CHECK(FakeSysfs::read(file).empty());
  function->release();
  CHECK(fs::is_empty(machine.root / "huge"));
}

TEST_CASE("a function that the kernel does not enable is not taken") {
  Machine machine;
  fs::remove(machine.file("enable"));
  fs::create_directory(machine.file("enable"));  // no write succeeds
  FakeSysfs::write(machine.file("driver_override"), "(null)\n");
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }),
                 "the kernel does not enable 0000:17:00.0: "));
  CHECK(FakeSysfs::read(machine.file("reset")).empty());
  CHECK(FakeSysfs::read(machine.file("driver_override"))[0] == '\n');
}

TEST_CASE("a driver that is loaded meanwhile does not take the function") {
  Machine machine;
  FakeSysfs::write(machine.file("driver_override"), "(null)\n");
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  CHECK(FakeSysfs::read(machine.file("driver_override")) == "userdma\n");
  // Not even what is refused it takes that back.
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }), "is driven by another process"));
  CHECK(FakeSysfs::read(machine.file("driver_override")) == "userdma\n");
  function->release();
  CHECK(FakeSysfs::read(machine.file("driver_override"))[0] == '\n');  // sysfs takes it as none
  // One that its owner set stays as it is.
  FakeSysfs::write(machine.file("driver_override"), "none\n");
  open_physical(FakeSysfs::kBus, machine.options())->release();
  CHECK(FakeSysfs::read(machine.file("driver_override")) == "none\n");
  // One that a process which was killed left is taken back by the next.
  FakeSysfs::write(machine.file("driver_override"), "userdma\n");
  open_physical(FakeSysfs::kBus, machine.options())->release();
  CHECK(FakeSysfs::read(machine.file("driver_override"))[0] == '\n');
}

TEST_CASE("a virtual function, whose numbers only the kernel knows") {
  Machine machine;
  std::string config = FakeSysfs::read(machine.file("config"));
  config[0] = config[1] = config[2] = config[3] = '\xff';
  FakeSysfs::write(machine.file("config"), config);
  FakeSysfs::write(machine.file("vendor"), "0x15b3\n");
  FakeSysfs::write(machine.file("device"), "0x101e\n");
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  CHECK_FALSE(function->failed());
  CHECK(function->config(0, 4) == 0x101e15b3);
  CHECK(function->config(0, 2) == 0x15b3);
  CHECK(function->config(2, 2) == 0x101e);
  CHECK(function->config(1, 1) == 0x15);
  CHECK(function->config(4, 2) == 0x0002);
}

TEST_CASE("BARs") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  CHECK(function->bar_address(2) == 0xe0100000);
  CHECK(function->bar_size(2) == 0x100000);
  CHECK(function->bar_size(1) == 0);
  CHECK(function->bar_size(6) == 0);
  CHECK(function->bar_size(-1) == 0);
  Bar bar = function->map(2);
  bar.write<uint64_t>(0x10008, 0x1122334455667788);
  CHECK(FakeSysfs::read(machine.file("resource2")).substr(0x10008, 8) == "\x88\x77\x66\x55\x44\x33\x22\x11");
  CHECK(bar.base() == function->map(2).base());
  CHECK(contains(thrown([&] { function->map(1); }), "has no BAR 1"));
  CHECK(contains(thrown([&] { function->map(4); }), "is I/O ports"));
  CHECK(contains(thrown([&] { function->interrupt(0); }), "VFIO is needed"));
}

TEST_CASE("memory: zeroed, its addresses page by page, given again after it came back") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  Memory small = function->alloc_dma(100);
  CHECK(small.size == 4096);
  REQUIRE(small.runs.size() == 1);
  CHECK(small.runs[0].address == 3 * kHugePage);
  CHECK(small.runs[0].bytes == 4096);
  Memory second = function->alloc_dma(4097);
  CHECK(second.size == 8192);
  CHECK(second.runs[0].address == 3 * kHugePage + 4096);

  Memory large = function->alloc_dma(3 * kHugePage - 4096);
  CHECK(large.size == 3 * kHugePage - 4096);
  REQUIRE(large.runs.size() == 3);  // whose frames do not touch
  CHECK(large.runs[0].address == 10 * kHugePage);
  CHECK(large.runs[1].address == 17 * kHugePage);
  CHECK(large.runs[2].bytes == kHugePage - 4096);

  std::memset(small.data, 0xff, small.size);
  function->free_dma(small);
  Memory again = function->alloc_dma(4096);
  CHECK(again.data == small.data);
  CHECK(again.data[0] == 0);
  function->free_dma(again);
  function->free_dma(second);
  Memory whole = function->alloc_dma(kHugePage);
  CHECK(whole.runs.size() == 1);
  CHECK(whole.data == small.data);  // what came back joined
}

TEST_CASE("pieces of memory take few descriptors") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  function->alloc_dma(kHugePage);
  const auto before = open_files();
  for (int i = 0; i < 600; ++i) function->alloc_dma(kHugePage);
  CHECK(open_files() - before <= 600 / 16);  // pipe(7): a pipe takes 16 pages at least
  function->release();
  CHECK(open_files() < before);
}

TEST_CASE("a function is released while threads use it") {
  for (int round = 0; round < 20; ++round) {
    Machine machine;
    auto options = machine.options();
    options.physical = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
    auto function = open_physical(FakeSysfs::kBus, options);
    const auto told = released_in_use(*function, 2 * kHugePage, [] {});
    CHECK(told == std::vector<std::string>(2, "0000:17:00.0 was released"));
    CHECK(fs::is_empty(machine.root / "huge"));
  }
}

TEST_CASE("only its own memory is pinned") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  Memory memory = function->alloc_dma(3 * kHugePage);
  Memory pinned = function->pin(memory.data + 4096, 2 * kHugePage + 100);
  CHECK(pinned.size == 2 * kHugePage + 100);
  REQUIRE(pinned.runs.size() == 3);
  CHECK(pinned.runs[0].address == 3 * kHugePage + 4096);
  CHECK(pinned.runs[2].bytes == 4096 + 100);
  function->unpin(pinned);
  static char other[8192];
  CHECK(contains(thrown([&] { function->pin(other, 1); }), "takes only memory of its alloc_dma"));
  CHECK(contains(thrown([&] { function->pin(memory.data + 2 * kHugePage, 2 * kHugePage); }), "takes only memory"));
}

TEST_CASE("memory that was freed stays while it is pinned, and is nobody else's") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  Memory memory = function->alloc_dma(kHugePage);
  Memory first = function->pin(memory.data, kHugePage);
  Memory second = function->pin(memory.data + 4096, 4096);
  function->free_dma(memory);
  function->free_dma(memory);  // a second time is nothing
  for (int holders = 2; holders > 0; --holders) {
    CAPTURE(holders);
    Memory other = function->alloc_dma(kHugePage);
    CHECK((other.data >= memory.data + kHugePage || other.data + kHugePage <= memory.data));
    CHECK(other.runs[0].address != first.runs[0].address);
    function->free_dma(other);
    function->unpin(holders == 2 ? first : second);
  }
  function->unpin(second);
  Memory again = function->alloc_dma(kHugePage);
  CHECK(again.data == memory.data);
  CHECK(function->alloc_dma(kHugePage).data != memory.data);
}

TEST_CASE("memory that is free or another's is not pinned") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  Memory memory = function->alloc_dma(8192);
  Memory next = function->alloc_dma(8192);
  CHECK(next.data == memory.data + 8192);
  CHECK(contains(thrown([&] { function->pin(memory.data + 4096, 8192); }), "takes only memory"));  // of two
  CHECK(contains(thrown([&] { function->pin(memory.data, 0); }), "takes only memory"));
  function->free_dma(memory);
  CHECK(contains(thrown([&] { function->pin(memory.data, 4096); }), "takes only memory"));
  function->unpin(function->pin(next.data + 4096, 4096));
  CHECK(contains(thrown([&] { function->alloc_dma(0); }), "DMA memory of 0 bytes"));
  function->release();
  CHECK(contains(thrown([&] { function->alloc_dma(1); }), "was released"));
  CHECK(contains(thrown([&] { function->pin(next.data, 4096); }), "was released"));
}

TEST_CASE("what a machine may refuse") {
  Machine machine;
  machine.tells = false;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  CHECK(contains(thrown([&] { function->alloc_dma(1); }), "CAP_SYS_ADMIN"));
  CHECK(contains(thrown([&] { function->alloc_dma(size_t{1} << 62); }), "/proc/sys/vm/nr_hugepages"));
  function->release();

  fs::remove(machine.file("reset"));
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }), "cannot be reset by itself"));
  FakeSysfs::make(machine.file("reset"));
  auto options = machine.options();
  options.huge_pages = (machine.root / "nowhere").string();
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, options); }), "cannot make"));
  CHECK(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }) == "");  // nothing held it
}

TEST_CASE("the child of a fork lets go of nothing") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  Memory memory = function->alloc_dma(4096);
  function->set_config(4, 2, 0x6);  // it masters the bus
  FakeSysfs::write(machine.file("reset"), "");
  const pid_t child = fork();
  if (child == 0) {
    function.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(function->config(4, 2) == 0x6);
  CHECK(FakeSysfs::read(machine.file("reset")).empty());
  CHECK(FakeSysfs::read(machine.file("enable"))[0] == '1');
  CHECK(fs::exists(machine.root / "huge/userdma-0000:17:00.0"));
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }), "is driven by another process"));
  memory.data[0] = 1;
  function->release();
  CHECK(FakeSysfs::read(machine.file("reset")) == "1");
}

TEST_CASE("a function can be taken again while a child of a fork lives, released or killed with its process") {
  Machine machine;
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const auto lives_on = [&] {
    const pid_t child = fork();
    if (child != 0) return child;
    close(pipe[1]);
    char byte;
    _exit(read(pipe[0], &byte, 1) == 0 ? 0 : 1);  // until the parent closes its end
  };
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  function->alloc_dma(1);  // which the child keeps mapped
  const pid_t child = lives_on();
  function->release();
  CHECK(open_physical(FakeSysfs::kBus, machine.options())->config(0, 4) == 0x176014e4);
  const pid_t killed = fork();
  if (killed == 0) {
    auto own = open_physical(FakeSysfs::kBus, machine.options());
    own->alloc_dma(1);
    lives_on();
    kill(getpid(), SIGKILL);
  }
  int how = -1;
  waitpid(killed, &how, 0);
  CHECK(WIFSIGNALED(how));
  CHECK(open_physical(FakeSysfs::kBus, machine.options())->config(0, 4) == 0x176014e4);
  close(pipe[1]);
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  close(pipe[0]);
}

TEST_CASE("a function that cannot be taken is left disabled, as it was") {
  Machine machine;
  FakeSysfs::write(machine.file("enable"), "0");
  fs::remove(machine.file("reset"));
  CHECK(contains(thrown([&] { open_physical(FakeSysfs::kBus, machine.options()); }), "cannot be reset by itself"));
  CHECK(FakeSysfs::read(machine.file("enable"))[0] == '0');
}

TEST_CASE("a function that left the bus reads all ones") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  FakeSysfs::write(machine.file("config"), std::string(256, '\xff'));
  CHECK(function->failed());
  function->release();
  CHECK_FALSE(fs::exists(machine.root / "huge/userdma-0000:17:00.0"));
}

TEST_CASE("memory that a device may still write stays") {
  Machine machine;
  auto function = open_physical(FakeSysfs::kBus, machine.options());
  function->alloc_dma(1);
  fs::remove(machine.file("reset"));  // so that the reset is refused
  function->release();
  CHECK(fs::exists(machine.root / "huge/userdma-0000:17:00.0"));
}

}  // namespace
