// Devices of the kernel through their uverbs files, with a stand-in for the kernel that answers as its user headers and
// drivers/infiniband/core/uverbs_main.c say. (The real one: tests/guest.)
#include <doctest/doctest.h>
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "driver/region.h"
#include "driver/uverbs_events.h"
#include "fake_sysfs.h"
#include "host/uverbs.h"

namespace {

using namespace userdma::test;
using namespace userdma::host;
using userdma::driver::Domain;
using userdma::driver::EventListener;
using userdma::driver::UverbsEvents;

constexpr int kFile = 1000, kEvents = 1001;

class FakeKernel : public System {
 public:
  int open(const char* path) override {
    opened = path;
    return refuse_open != 0 ? (errno = refuse_open, -1) : kFile;
  }
  int close(int fd) override { return log.push_back("close " + std::to_string(fd)), 0; }
  int ioctl(int fd, unsigned long request, void* argument) override {
    CHECK(fd == kFile);
    CHECK(request == _IOWR(0x1b, 1, ib_uverbs_ioctl_hdr));  // rdma_user_ioctl_cmds.h
    last = argument;
    return refuse != 0 ? (errno = refuse, -1) : 0;
  }
  void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) override {
    if (fd != kFile) return ::mmap(at, size, protection, flags, fd, offset);
    CHECK((flags & MAP_SHARED) != 0);
    mapped.push_back({size, offset});
    return ::mmap(at, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  int munmap(void* at, size_t size) override {
    log.push_back("munmap " + std::to_string(size));
    return ::munmap(at, size);
  }
  int never_wait(int fd) override {
    CHECK(fd == kEvents);
    waits = false;
    return 0;
  }
  ssize_t read(int fd, void* to, size_t n) override {
    CHECK(fd == kEvents);
    CHECK_FALSE(waits);
    REQUIRE(n == sizeof(ib_uverbs_async_event_desc));
    if (events.empty()) return errno = gone ? EIO : EAGAIN, -1;
    std::memcpy(to, &events.front(), n);
    events.pop_front();
    return static_cast<ssize_t>(n);
  }
  void await(int fd, int milliseconds) override {
    CHECK(fd == kEvents);
    CHECK(milliseconds > 0);
    log.push_back("await");
    events.insert(events.end(), late.begin(), late.end());
    late.clear();
  }
  uint64_t memlock() override { return limit; }
  uint64_t pinned() override { return taken; }

  void event(uint64_t element, uint32_t type) { events.push_back({element, type, 0}); }

  int refuse_open = 0, refuse = 0;
  bool waits = true, gone = false;
  uint64_t limit = 8 << 20, taken = 0;
  std::string opened;
  void* last = nullptr;
  std::vector<std::pair<size_t, off_t>> mapped;
  std::deque<ib_uverbs_async_event_desc> events, late;  // late: those that come while they are waited for
  std::vector<std::string> log;
};

struct Machine : FakeSysfs {
  Machine() {
    add_device("mlx5_0", "uverbs0");
    add_device("rxe0", "uverbs1");
    fs::create_directory_symlink(device(), root / "class/infiniband/mlx5_0/device");
    fs::create_directories(root / "dev/infiniband");
    make(root / "dev/infiniband/uverbs0");
  }
  void add_device(const std::string& name, const std::string& file) const {
    fs::create_directories(root / "class/infiniband" / name);
    fs::create_directories(root / "class/infiniband_verbs" / file);
    write(root / "class/infiniband_verbs" / file / "ibdev", name + "\n");
  }
  Roots roots() const { return {root.string(), (root / "dev").string()}; }
  std::shared_ptr<Uverbs> open(const std::string& name = "mlx5_0") {
    return std::make_shared<Uverbs>(name, roots(), kernel);
  }
  std::shared_ptr<FakeKernel> kernel = std::make_shared<FakeKernel>();
};

struct Listener : EventListener {
  void event(const std::string& what) override { heard.push_back(what); }
  std::vector<std::string> heard;
};

TEST_CASE("a device is opened by its name, and given back with its memory last") {
  Machine machine;
  FakeKernel& kernel = *machine.kernel;
  auto device = machine.open();
  CHECK(kernel.opened == (machine.root / "dev/infiniband/uverbs0").string());
  CHECK(device->name() == "mlx5_0");
  CHECK(device->addressing() == Addressing::Iova);
  CHECK(device->config(0, 4) == 0x176014e4);  // as sysfs has it
  CHECK(device->config(5000, 2) == 0xffff);
  Bar bar = device->map_registers(0x901000, 4096);
  CHECK(bar.size() == 4096);
  CHECK(kernel.mapped == std::vector<std::pair<size_t, off_t>>{{4096, 0x901000}});
  device->watch(kEvents);
  Memory memory = device->alloc_dma(5000);
  CHECK(memory.size == 8192);
  CHECK(memory.runs.size() == 1);
  CHECK(memory.runs[0].address == reinterpret_cast<uintptr_t>(memory.data));
  CHECK(memory.data[8191] == 0);
  Memory other = device->alloc_dma(1);
  device->free_dma(other);
  ib_uverbs_ioctl_hdr header{};
  CHECK(device->call(&header) == 0);
  CHECK(kernel.last == &header);
  kernel.refuse = EINVAL;
  CHECK(device->call(&header) == EINVAL);
  CHECK_FALSE(device->failed());

  kernel.log.clear();
  device->release();
  CHECK(kernel.log == std::vector<std::string>{"munmap 4096", "close 1001", "close 1000", "munmap 8192"});
  CHECK(device->failed());
  CHECK(device->call(&header) == EBADF);
  device->release();
  CHECK(kernel.log.size() == 4);
}

TEST_CASE("memory of the process is its own address; what the driver keeps is refused") {
  Machine machine;
  auto device = machine.open();
  std::vector<uint8_t> bytes(100);
  Memory memory = device->pin(bytes.data(), bytes.size());
  CHECK(memory.size == 100);
  CHECK(memory.runs[0].address == reinterpret_cast<uintptr_t>(bytes.data()));
  CHECK(contains(thrown([&] { device->pin(reinterpret_cast<void*>(~uintptr_t{0}), 4096); }), "no process has such"));
  CHECK(thrown([&] { device->reset(); }) ==
        "mlx5_0 stays its kernel driver's, and so do its reset: open its PCI function instead, once the driver has "
        "given it up");
  CHECK(contains(thrown([&] { device->set_config(4, 2, 6); }), "configuration space"));
  CHECK(contains(thrown([&] { device->map(0); }), "BARs"));
  CHECK(contains(thrown([&] { device->interrupt(0); }), "interrupts"));
}

TEST_CASE("why a device cannot be opened, and what to change") {
  Machine machine;
  CHECK(Uverbs::obstacle("mlx5_0", machine.roots()) == "");
  CHECK(thrown([&] { machine.open("mlx5_9"); }) == "the kernel has no RDMA device mlx5_9: it has mlx5_0, rxe0");
  CHECK(Uverbs::obstacle("mlx5_9", machine.roots()) == "the kernel has no RDMA device mlx5_9: it has mlx5_0, rxe0");
  const std::string node = (machine.root / "dev/infiniband/uverbs1").string();
  CHECK(Uverbs::obstacle("rxe0", machine.roots()) == "cannot open " + node +
                                                         " for rxe0: No such file or directory: a container is given "
                                                         "it by --device=" +
                                                         node);
  machine.kernel->refuse_open = EACCES;
  CHECK(contains(thrown([&] { machine.open(); }),
                 "Permission denied: a udev rule gives it to every user, as Debian's rdma-core does: "
                 "SUBSYSTEM==\"infiniband_verbs\", MODE=\"0666\""));
  fs::remove_all(machine.root / "class/infiniband_verbs");
  CHECK(thrown([&] { machine.open(); }) == "the kernel gives user space no file for mlx5_0: `modprobe ib_uverbs`");
  fs::remove_all(machine.root / "class/infiniband");
  CHECK(contains(thrown([&] { machine.open(); }), "it has none at all"));
}

TEST_CASE("the limit of locked memory: what is needed, and what it is") {
  Machine machine;
  auto device = machine.open();
  machine.kernel->taken = 6 << 20;
  CHECK(device->over_memlock((2 << 20) + 1));
  CHECK_FALSE(device->over_memlock(2 << 20));
  CHECK(device->refused(4 << 20, "the process's memory", ENOMEM).what() ==
        std::string("the system refuses to pin 4096 KiB of the process's memory: 10240 KiB of locked memory are needed "
                    "and `ulimit -l` is 8192 KiB: raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a systemd unit, or "
                    "memlock in /etc/security/limits.conf)"));
  CHECK(device->refused(4096, "rings", ENOMEM).what() ==
        std::string("the system refuses to pin 4 KiB of rings: Cannot allocate memory"));
  CHECK(contains(device->refused(4096, "the process's memory", EFAULT).what(), "not mapped in the process"));
  machine.kernel->limit = ~uint64_t{0};
  CHECK_FALSE(device->over_memlock(uint64_t{1} << 60));
}

TEST_CASE("events go to the pairs that they are of, by what the objects were called") {
  Machine machine;
  FakeKernel& kernel = *machine.kernel;
  auto device = machine.open();
  device->watch(kEvents);
  auto domain = std::make_shared<Domain>(device);
  UverbsEvents events(domain, device);
  Listener one, two;
  events.listen_qp(0x11, &one);
  events.listen_cq(0x22, &one);
  events.listen_qp(0x12, &two);
  events.name(7, UverbsEvents::Kind::QueuePair, 0x11);
  events.name(8, UverbsEvents::Kind::CompletionQueue, 0x22);
  events.name(9, UverbsEvents::Kind::QueuePair, 0x12);

  CHECK_FALSE(events.pending());
  kernel.event(9, 3);             // IB_EVENT_QP_ACCESS_ERR
  kernel.event(7, 4);             // IB_EVENT_COMM_EST, which ends nothing
  kernel.event(5, 1);             // of nothing that is known
  CHECK_FALSE(events.pending());  // a look around costs no system call
  CHECK(domain->check());         // this one does
  CHECK(events.pending());
  CHECK(events.peek());
  events.service();
  CHECK_FALSE(events.pending());
  CHECK(one.heard.empty());
  CHECK(two.heard == std::vector<std::string>{"the NIC reported its failure, of its peer's requests: memory outside a "
                                              "region, or without the rights for it (remote=... of the region) (event "
                                              "QP_ACCESS_ERR)"});
  kernel.event(8, 0);  // IB_EVENT_CQ_ERR
  kernel.event(7, 1);  // IB_EVENT_QP_FATAL
  events.service();    // looks itself
  CHECK(one.heard == std::vector<std::string>{"the NIC ended its completion queue 0x22",
                                              "the NIC reported its failure: a catastrophic error of its work queue "
                                              "(event QP_FATAL)"});
  events.forget(9);
  kernel.event(9, 1);
  events.service();
  CHECK(two.heard.size() == 1);
}

TEST_CASE("why a pair was flushed is waited for") {
  Machine machine;
  FakeKernel& kernel = *machine.kernel;
  auto device = machine.open();
  device->watch(kEvents);
  auto domain = std::make_shared<Domain>(device);
  UverbsEvents events(domain, device);
  Listener one;
  events.listen_qp(0x11, &one);
  events.name(7, UverbsEvents::Kind::QueuePair, 0x11);
  kernel.late.push_back({7, 3, 0});  // IB_EVENT_QP_ACCESS_ERR
  events.service();
  CHECK(one.heard.empty());
  CHECK(kernel.log.empty());
  events.service_flush();
  CHECK(one.heard.size() == 1);
  CHECK(kernel.log == std::vector<std::string>{"await"});
  kernel.event(7, 1);  // IB_EVENT_QP_FATAL, which is there
  events.service_flush();
  CHECK(one.heard.size() == 2);
  CHECK(kernel.log.size() == 1);
}

TEST_CASE("a driver that ends is a machine that failed") {
  for (bool told : {true, false}) {
    Machine machine;
    auto device = machine.open();
    device->watch(kEvents);
    Domain domain(device);
    CHECK(domain.check());
    if (told) {
      machine.kernel->event(0, 8);  // IB_EVENT_DEVICE_FATAL
    } else {
      machine.kernel->gone = true;  // the last event was read before
    }
    CHECK(domain.attention());
    CHECK_FALSE(domain.check());
    CHECK(domain.failure() ==
          "the function mlx5_0 was ended by its kernel driver, which met a fatal error or let the "
          "device go (`dmesg` says why)");
  }
}

TEST_CASE("a NIC that tells without end does not fill the memory") {
  Machine machine;
  auto device = machine.open();
  device->watch(kEvents);
  for (uint64_t i = 0; i < 10000; ++i) machine.kernel->event(i, 4);
  CHECK_FALSE(device->failed());
  CHECK_FALSE(device->failed());
  CHECK_FALSE(device->failed());
  auto taken = device->take_events();
  CHECK(taken.size() == 4096);
  CHECK(taken.back().element == 9999);
}

TEST_CASE("a forked child lets go of the files and touches no register") {
  Machine machine;
  auto device = machine.open();
  device->watch(kEvents);
  Bar bar = device->map_registers(0, 4096);
  bar.write<uint64_t>(0x800, 1);
  machine.kernel->log.clear();
  const pid_t child = fork();
  if (child == 0) {
    bar.write<uint64_t>(0x800, 2);  // plain memory of the child's
    const bool closed = machine.kernel->log == std::vector<std::string>{"close 1000", "close 1001"};
    device->release();
    const bool nothing = machine.kernel->log.size() == 2;
    _exit(closed && nothing && device->failed() ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(machine.kernel->log.empty());
  CHECK_FALSE(device->failed());
  CHECK(bar.read<uint64_t>(0x800) == 1);
}

}  // namespace
