// The vfio-user protocol, versions 0.0 and 0.1: layouts and numbers, as QEMU's docs/interop/vfio-user.rst gives them.
//
// A message is a header and a payload. Payloads that mirror an ioctl of VFIO are that ioctl's structure out of
// linux/vfio.h (vfio_device_info, vfio_region_info, vfio_irq_info, vfio_irq_set), and so are their flags. All is in
// the byte order of the host.
#pragma once

#include <linux/vfio.h>

#include <cstddef>
#include <cstdint>

namespace userdma::soft::vfio_user {

struct Header {
  uint16_t id = 0;  // the sender's; the reply carries it back
  uint16_t command = 0;
  uint32_t size = 0;  // of the message, this header included
  uint32_t flags = 0;
  uint32_t error = 0;  // an errno, of a reply with flag::kError
};
static_assert(sizeof(Header) == 16);

namespace flag {
inline constexpr uint32_t kTypeMask = 0xf;
inline constexpr uint32_t kCommand = 0x0;
inline constexpr uint32_t kReply = 0x1;
inline constexpr uint32_t kNoReply = 0x10;  // of a command: it must not be answered
inline constexpr uint32_t kError = 0x20;
}  // namespace flag

namespace command {
inline constexpr uint16_t kVersion = 1;
inline constexpr uint16_t kDmaMap = 2;
inline constexpr uint16_t kDmaUnmap = 3;
inline constexpr uint16_t kGetInfo = 4;
inline constexpr uint16_t kGetRegionInfo = 5;
inline constexpr uint16_t kGetRegionIoFds = 6;
inline constexpr uint16_t kGetIrqInfo = 7;
inline constexpr uint16_t kSetIrqs = 8;
inline constexpr uint16_t kRegionRead = 9;
inline constexpr uint16_t kRegionWrite = 10;
inline constexpr uint16_t kDmaRead = 11;  // server to client, as the next
inline constexpr uint16_t kDmaWrite = 12;
inline constexpr uint16_t kReset = 13;
inline constexpr uint16_t kDirtyPages = 14;
inline constexpr uint16_t kRegionWriteMulti = 15;
inline constexpr uint16_t kFeature = 16;
inline constexpr uint16_t kMigrationRead = 17;
inline constexpr uint16_t kMigrationWrite = 18;
}  // namespace command

// VERSION: this, then an optional JSON text with its terminating NUL.
struct Version {
  uint16_t major;
  uint16_t minor;
};
inline constexpr uint16_t kMajor = 0;
inline constexpr uint16_t kMinor = 1;  // the newest spoken

struct DmaMap {
  uint32_t argsz;
  uint32_t flags;  // dma_flag
  uint64_t offset;
  uint64_t address;
  uint64_t size;
};
static_assert(sizeof(DmaMap) == 32);

namespace dma_flag {
inline constexpr uint32_t kRead = 1;
inline constexpr uint32_t kWrite = 2;
}  // namespace dma_flag

struct DmaUnmap {
  uint32_t argsz;
  uint32_t flags;  // 0 or VFIO_DMA_UNMAP_FLAG_ALL
  uint64_t address;
  uint64_t size;
};
static_assert(sizeof(DmaUnmap) == 24);

// REGION_READ and REGION_WRITE: this, then the bytes in a write's request and in a read's reply.
struct RegionAccess {
  uint64_t offset;
  uint32_t region;
  uint32_t count;
};
static_assert(sizeof(RegionAccess) == 16);

// REGION_WRITE_MULTI: a count of 64 bits, then so many of these.
struct MultiWrite {
  uint64_t offset;
  uint32_t region;
  uint32_t count;  // at most 8
  uint8_t data[8];
};
static_assert(sizeof(MultiWrite) == 24);

// GET_REGION_IO_FDS.
struct RegionIoFds {
  uint32_t argsz;
  uint32_t flags;
  uint32_t index;
  uint32_t count;
};
static_assert(sizeof(RegionIoFds) == 16);

// DMA_READ and DMA_WRITE: this, then the bytes in a write's request and in a read's reply.
struct DmaAccess {
  uint64_t address;
  uint64_t count;
};
static_assert(sizeof(DmaAccess) == 16);

// What this server announces. QEMU takes no more than 16 descriptors, and refuses a limit of mappings over 65535.
inline constexpr uint32_t kMaxFds = 16;
inline constexpr uint32_t kMaxTransfer = 1 << 20;
inline constexpr uint32_t kMaxMaps = 65535;
inline constexpr uint32_t kPage = 4096;

// No message is longer: a write of kMaxTransfer bytes is the longest one.
inline constexpr uint32_t kMaxMessage = sizeof(Header) + sizeof(DmaAccess) + kMaxTransfer;

}  // namespace userdma::soft::vfio_user
