// Memory behind a BAR, as a GPU shows it: a second device of the machine, for DMA from device to device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace userdma::soft {

class SoftGpu {
 public:
  explicit SoftGpu(size_t bytes);  // rounded up to pages; throws host::MemoryError
  ~SoftGpu();                      // no device reaches it once this returns
  SoftGpu(const SoftGpu&) = delete;
  SoftGpu& operator=(const SoftGpu&) = delete;

  uint64_t bus() const { return bus_; }  // where the BAR is on the bus
  size_t size() const { return size_; }
  uint8_t* data() { return data_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  uint64_t bus_ = 0;
};

}  // namespace userdma::soft
