// A client's message, taken apart and checked, without a socket or a device: what is wrong with it by itself is found
// here, and the rest of the server meets only commands that can be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "soft/vfio_user/protocol.h"

namespace userdma::soft::vfio_user {

// Of a header: whether a message can follow it. After one that cannot, nobody knows where the next begins.
enum class Framing { Whole, TooShort, TooLong, UnknownType };
Framing framing(const Header& header);

using Bytes = std::span<const uint8_t>;

struct Negotiate {
  uint16_t minor;         // what is spoken from here on
  uint32_t max_fds;       // that the client takes in a message
  uint32_t max_transfer;  // of DMA_READ and DMA_WRITE
  std::string reply;      // the JSON of the answer, which announces nothing that the client did not
};
struct Map : DmaMap {
  bool has_memory;  // a descriptor came with it
};
struct Unmap {
  DmaUnmap entry;
  bool all;
};
struct DeviceInfo {};
struct RegionInfo {
  uint32_t index;
  uint32_t argsz;
};
struct RegionDescriptors {
  uint32_t index;
};
struct IrqInfo {
  uint32_t index;
};
struct SetIrqs {
  enum class Data { None, Bool, Eventfd };
  enum class Action { Mask, Unmask, Trigger };
  Data data;
  Action action;
  uint32_t index;
  uint32_t start;
  uint32_t count;
  Bytes bools;        // Data::Bool: one a vector
  bool has_eventfds;  // Data::Eventfd: one a vector came; otherwise the vectors are disconnected
};
struct Read {
  RegionAccess access;
};
struct Write {
  RegionAccess access;
  Bytes data;
};
struct WriteMulti {
  uint64_t count;
  Bytes writes;  // MultiWrite
};
struct Reset {};

// It is answered with this error.
struct Refused {
  int error;
};

using Request = std::variant<Refused, Negotiate, Map, Unmap, DeviceInfo, RegionInfo, RegionDescriptors, IrqInfo,
                             SetIrqs, Read, Write, WriteMulti, Reset>;

// The command in a message whose payload is `payload` and with which `fds` descriptors came. What it says refers to
// the payload.
Request parse(uint16_t command, Bytes payload, size_t fds);

}  // namespace userdma::soft::vfio_user
