// An RDMA device that stays its kernel driver's, through the kernel's uverbs file: the driver makes queues and keys,
// and maps the registers that ring them; this process has its own memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "host/bar_maps.h"
#include "host/fork.h"
#include "host/function.h"
#include "host/sysfs.h"
#include "host/system.h"

namespace userdma::host {

class Uverbs final : public Function {
 public:
  // An asynchronous event: what user space called the object that it is of, and its kind (ib_uverbs_async_event_desc).
  struct Event {
    uint64_t element;
    uint32_t type;
  };

  // `device`: a name in /sys/class/infiniband. Throws MachineError, which says what to change.
  Uverbs(const std::string& device, const Roots& roots = {}, const std::shared_ptr<System>& system = System::real());
  ~Uverbs() override { Uverbs::release(); }

  // What the constructor would refuse, or "".
  static std::string obstacle(const std::string& device, const Roots& roots = {});

  // RDMA_VERBS_IOCTL: `request` is an ib_uverbs_ioctl_hdr with its attributes. 0, or the error of the call.
  int call(void* request);
  // Registers that the driver lets this process have, at the file's `offset`; one place a function. Throws
  // MachineError.
  Bar map_registers(uint64_t offset, size_t bytes);
  // The descriptor of asynchronous events, which becomes the function's.
  void watch(int fd);
  // The events that came; where there are none, those that come within a time. `waiting` of those that `failed` or this
  // has come across.
  std::deque<Event> take_events(int milliseconds = 0);
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }
  // Whether the limit of locked memory keeps the driver from pinning `bytes` more.
  bool over_memlock(uint64_t bytes) const;
  // Why the driver did not pin `bytes` of `what`, from the error of its call.
  MemoryError refused(uint64_t bytes, const char* what, int error) const;

  std::string name() const override { return name_; }
  size_t page() const override { return system_page(); }
  Addressing addressing() const override { return Addressing::Iova; }  // the process's addresses are the device's

  uint32_t config(unsigned offset, unsigned width) const override;  // what sysfs shows of it
  void set_config(unsigned, unsigned, uint32_t) override { keep("configuration space"); }
  uint64_t bar_address(int) const override { return 0; }
  size_t bar_size(int) const override { return 0; }
  Bar map(int) override { keep("BARs"); }
  int interrupt(unsigned) override { keep("interrupts"); }
  void reset() override { keep("reset"); }

  Memory alloc_dma(size_t bytes) override;
  void free_dma(const Memory& memory) override;
  Memory pin(void* address, size_t bytes) override;  // what is registered is pinned, by the driver
  void unpin(const Memory&) override {}

  bool failed() const override;
  std::string failure() const override {
    return "was ended by its kernel driver, which met a fatal error or let the device go (`dmesg` says why)";
  }
  void release() override;

 private:
  [[noreturn]] void keep(const char* what) const;
  void look() const;  // takes events from the kernel, and keeps them

  std::shared_ptr<System> system_;
  std::string name_;
  std::string config_;  // the file in sysfs
  std::atomic<int> fd_{-1};
  std::atomic<int> events_fd_{-1};
  mutable std::mutex mutex_;  // of what follows
  mutable std::deque<Event> events_;
  std::map<uint8_t*, size_t> memory_;
  BarMaps maps_;
  mutable std::atomic<bool> waiting_{false};
  mutable std::atomic<bool> ended_{false};
  // As long as a child has one of them, the kernel keeps what was made through it.
  AtFork leave_to_parent_{[this] {
    for (std::atomic<int>* fd : {&fd_, &events_fd_})
      if (int copy = fd->exchange(-1); copy >= 0) system_->close(copy);
    maps_.leave_to_parent();
  }};
};

}  // namespace userdma::host
