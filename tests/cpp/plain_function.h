// A function over plain memory with no device behind it: what the driver writes stays where it is, and what a device
// would write, the test does. It has no hooks, so the driver runs as on hardware.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "host/function.h"

namespace userdma::test {

class PlainFunction : public host::Function {
 public:
  explicit PlainFunction(size_t bar_bytes = 65536) : bar_(bar_bytes) {}
  ~PlainFunction() override { PlainFunction::release(); }

  std::string name() const override { return "plain"; }
  size_t page() const override { return 4096; }
  host::Addressing addressing() const override { return host::Addressing::Physical; }

  uint32_t config(unsigned, unsigned width) const override { return width == 4 ? ~0u : (1u << (8 * width)) - 1; }
  void set_config(unsigned, unsigned, uint32_t) override {}
  uint64_t bar_address(int) const override { return 0; }
  size_t bar_size(int index) const override { return index == 2 ? bar_.size() : 0; }
  host::Bar map(int index) override { return {index, bar_.data(), bar_.size()}; }
  int interrupt(unsigned) override { return -1; }
  void reset() override {}

  host::Memory alloc_dma(size_t bytes) override {
    size_t size = (bytes + page() - 1) / page() * page();
    auto* data = static_cast<uint8_t*>(std::aligned_alloc(page(), size));
    std::memset(data, 0, size);
    blocks_.push_back(data);
    return {data, size, {{reinterpret_cast<uintptr_t>(data), size}}, 0};
  }
  void free_dma(const host::Memory& memory) override {
    std::erase(blocks_, memory.data);
    std::free(memory.data);
  }
  host::Memory pin(void*, size_t) override { throw host::MemoryError("plain memory is not pinned"); }
  void unpin(const host::Memory&) override {}

  bool failed() const override { return failed_.load(); }
  void release() override {
    for (uint8_t* block : blocks_) std::free(block);
    blocks_.clear();
  }
  host::Idle idle() override { return idle_; }

  void fail() { failed_.store(true); }
  void set_idle(host::Idle idle) { idle_ = idle; }  // before a Domain is made

 private:
  std::vector<uint8_t> bar_;
  std::vector<uint8_t*> blocks_;
  std::atomic<bool> failed_{false};
  host::Idle idle_{};
};

}  // namespace userdma::test
