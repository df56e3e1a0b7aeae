// A PCI function over plain memory: nothing runs behind its doorbells, so that the driver alone is measured.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "host/function.h"

namespace userdma::bench {

class PlainFunction final : public host::Function {
 public:
  explicit PlainFunction(size_t bar_bytes = 1 << 16)
      : bar_bytes_(bar_bytes), bar_(static_cast<uint8_t*>(allocate(bar_bytes))) {}
  ~PlainFunction() override {
    for (auto& [data, bytes] : held_) std::free(data);
    std::free(bar_);
  }

  std::string name() const override { return "plain"; }
  size_t page() const override { return 4096; }
  host::Addressing addressing() const override { return host::Addressing::Iova; }
  uint32_t config(unsigned, unsigned) const override { return 0; }
  void set_config(unsigned, unsigned, uint32_t) override {}
  uint64_t bar_address(int) const override { return reinterpret_cast<uint64_t>(bar_); }
  size_t bar_size(int) const override { return bar_bytes_; }
  host::Bar map(int index) override { return host::Bar(index, bar_, bar_bytes_); }
  int interrupt(unsigned) override { throw host::MachineError("plain memory has no interrupts"); }
  void reset() override {}

  host::Memory alloc_dma(size_t bytes) override {
    bytes = (bytes + page() - 1) / page() * page();
    host::Memory memory;
    memory.data = static_cast<uint8_t*>(allocate(bytes));
    memory.size = bytes;
    memory.runs = {{reinterpret_cast<uint64_t>(memory.data), bytes}};
    held_[memory.data] = bytes;
    return memory;
  }
  void free_dma(const host::Memory& memory) override {
    if (held_.erase(memory.data)) std::free(memory.data);
  }
  host::Memory pin(void*, size_t) override { throw host::MemoryError("plain memory pins nothing"); }
  void unpin(const host::Memory&) override {}
  bool failed() const override { return false; }
  void release() override {
    for (auto& [data, bytes] : held_) std::free(data);
    held_.clear();
  }

 private:
  static void* allocate(size_t bytes) {
    void* at = std::aligned_alloc(4096, bytes);
    if (!at) throw host::MemoryError("out of memory");
    return std::memset(at, 0, bytes);
  }

  size_t bar_bytes_;
  uint8_t* bar_;
  std::map<uint8_t*, size_t> held_;
};

}  // namespace userdma::bench
