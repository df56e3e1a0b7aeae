#include "soft/gpu.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "host/function.h"
#include "soft/machine.h"
#include "soft/memory.h"

namespace userdma::soft {

namespace {
constexpr uint64_t bar_alignment = 2 << 20;
}

SoftGpu::SoftGpu(size_t bytes) {
  const size_t page = Arena::page();
  if (bytes == 0 || bytes > SIZE_MAX - page)
    throw host::MemoryError("a GPU's memory of " + std::to_string(bytes) + " bytes");
  size_ = (bytes + page - 1) / page * page;
  bus_ = Machine::instance().place(size_, bar_alignment);
  void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    Machine::instance().give_back(bus_, size_);
    throw host::MemoryError("a GPU's memory of " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  }
  data_ = static_cast<uint8_t*>(at);
  Machine::instance().show(bus_, data_, size_);
}

SoftGpu::~SoftGpu() {
  Machine::instance().hide(bus_);
  munmap(data_, size_);
  Machine::instance().give_back(bus_, size_);
}

}  // namespace userdma::soft
