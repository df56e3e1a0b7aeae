#include "soft/vfio_user/message.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "soft/vfio_user/json.h"

namespace userdma::soft::vfio_user {
namespace {

// The fixed part at the start of a payload. False: the payload is shorter.
template <class T>
bool take(Bytes payload, T& out) {
  if (payload.size() < sizeof(T)) return false;
  std::memcpy(&out, payload.data(), sizeof(T));
  return true;
}

// As take, for a payload whose first member says how long an answer (or it itself) may be: at least this long.
template <class T>
bool take_sized(Bytes payload, T& out) {
  return take(payload, out) && out.argsz >= sizeof(T);
}

// ---- VERSION ------------------------------------------------------------------------------------------------------

// A capability that is a number of at least `least` and at most `most`. False: it is there, and is none.
bool number(const Json& capabilities, const char* name, uint64_t least, uint64_t most, uint64_t& out) {
  const Json* value = capabilities.member(name);
  if (!value) return true;
  if (!value->is_number() || value->number() < static_cast<double>(least) ||
      value->number() > static_cast<double>(most))
    return false;
  out = static_cast<uint64_t>(value->number());
  return true;
}

Request parse_version(Bytes payload) {
  Version version;
  if (!take(payload, version) || version.major != kMajor) return Refused{EINVAL};
  Negotiate out;
  out.minor = std::min(version.minor, kMinor);
  uint64_t fds = 1, transfer = kMaxTransfer, pages = kPage;  // what a client has that says nothing
  Json proposed;
  bool multiple = false;
  const Bytes text = payload.subspan(sizeof version);
  if (!text.empty()) {
    if (text.back() != 0) return Refused{EINVAL};
    const auto* begin = reinterpret_cast<const char*>(text.data());
    const std::string_view json(begin, text.size() - 1);
    if (!Json::parse(json, proposed) || !proposed.is_object()) return Refused{EINVAL};
  }
  const Json* capabilities = proposed.member("capabilities");
  if (capabilities) {
    if (!capabilities->is_object()) return Refused{EINVAL};
    if (!number(*capabilities, "max_msg_fds", 0, 253, fds) ||  // SCM_MAX_FD
        !number(*capabilities, "max_data_xfer_size", 1, uint64_t{1} << 40, transfer) ||
        !number(*capabilities, "pgsizes", 1, uint64_t{1} << 52, pages))
      return Refused{EINVAL};
    // Memory is mapped in pages of 4 KiB here.
    if (!(pages & kPage)) return Refused{EINVAL};
    if (const Json* value = capabilities->member("write_multiple")) {
      if (!value->is_bool()) return Refused{EINVAL};
      multiple = value->boolean();
    }
    for (const char* name : {"migration", "twin_socket"}) {
      if (const Json* value = capabilities->member(name); value && !value->is_object()) return Refused{EINVAL};
    }
  }
  out.max_fds = static_cast<uint32_t>(fds);
  out.max_transfer = static_cast<uint32_t>(std::min<uint64_t>(transfer, kMaxTransfer));

  std::string list;
  const auto announce = [&](const char* name, const std::string& value, bool optional = false) {
    if (capabilities ? !capabilities->member(name) : optional) return;
    list += (list.empty() ? "\"" : ",\"") + std::string(name) + "\":" + value;
  };
  announce("max_msg_fds", std::to_string(kMaxFds));
  announce("max_data_xfer_size", std::to_string(kMaxTransfer));
  announce("pgsizes", std::to_string(kPage));
  announce("max_dma_maps", std::to_string(kMaxMaps));
  if (multiple) announce("write_multiple", "true", true);
  out.reply = "{\"capabilities\":{" + list + "}}";
  return out;
}

// ---- DMA ----------------------------------------------------------------------------------------------------------

Request parse_map(Bytes payload, size_t fds) {
  Map map;
  if (!take_sized<DmaMap>(payload, map)) return Refused{EINVAL};
  if (map.flags & ~(dma_flag::kRead | dma_flag::kWrite) || !map.flags || fds > 1) return Refused{EINVAL};
  if (map.address % kPage || map.size % kPage || map.size == 0) return Refused{EINVAL};
  if (map.address + map.size < map.address && map.address + map.size != 0) return Refused{EINVAL};
  map.has_memory = fds == 1;
  if (map.has_memory && (map.offset % kPage || map.offset + map.size < map.offset)) return Refused{EINVAL};
  return map;
}

Request parse_unmap(Bytes payload) {
  Unmap unmap;
  if (!take_sized(payload, unmap.entry) || unmap.entry.argsz > kMaxTransfer) return Refused{EINVAL};
  const DmaUnmap& entry = unmap.entry;
  unmap.all = entry.flags & VFIO_DMA_UNMAP_FLAG_ALL;
  // Dirty bitmaps belong to migration, which there is not.
  if (entry.flags & ~VFIO_DMA_UNMAP_FLAG_ALL) return Refused{EINVAL};
  if (unmap.all ? entry.address || entry.size : entry.address % kPage || entry.size % kPage || !entry.size)
    return Refused{EINVAL};
  if (entry.address + entry.size < entry.address && entry.address + entry.size != 0) return Refused{EINVAL};
  return unmap;
}

// ---- Interrupts ---------------------------------------------------------------------------------------------------

Request parse_set_irqs(Bytes payload, size_t fds) {
  vfio_irq_set set;
  if (payload.size() < sizeof set) return Refused{EINVAL};
  std::memcpy(&set, payload.data(), sizeof set);
  const Bytes data = payload.subspan(sizeof set);
  if (set.argsz < sizeof set || set.flags & ~(VFIO_IRQ_SET_DATA_TYPE_MASK | VFIO_IRQ_SET_ACTION_TYPE_MASK))
    return Refused{EINVAL};
  SetIrqs out{};
  out.index = set.index;
  out.start = set.start;
  out.count = set.count;
  switch (set.flags & VFIO_IRQ_SET_DATA_TYPE_MASK) {
    case VFIO_IRQ_SET_DATA_NONE:
      out.data = SetIrqs::Data::None;
      break;
    case VFIO_IRQ_SET_DATA_BOOL:
      out.data = SetIrqs::Data::Bool;
      if (data.size() != set.count) return Refused{EINVAL};
      out.bools = data;
      break;
    case VFIO_IRQ_SET_DATA_EVENTFD:
      out.data = SetIrqs::Data::Eventfd;
      if (fds && fds != set.count) return Refused{EINVAL};
      out.has_eventfds = fds;
      break;
    default:
      return Refused{EINVAL};
  }
  switch (set.flags & VFIO_IRQ_SET_ACTION_TYPE_MASK) {
    case VFIO_IRQ_SET_ACTION_MASK:
      out.action = SetIrqs::Action::Mask;
      break;
    case VFIO_IRQ_SET_ACTION_UNMASK:
      out.action = SetIrqs::Action::Unmask;
      break;
    case VFIO_IRQ_SET_ACTION_TRIGGER:
      out.action = SetIrqs::Action::Trigger;
      break;
    default:
      return Refused{EINVAL};
  }
  if (fds && out.data != SetIrqs::Data::Eventfd) return Refused{EINVAL};
  // No vectors at all: all of them are disconnected, and that is all that it can mean.
  if (!set.count && (set.start || out.data != SetIrqs::Data::None || out.action != SetIrqs::Action::Trigger))
    return Refused{EINVAL};
  if (set.start + set.count < set.start) return Refused{EINVAL};
  return out;
}

// ---- Registers ----------------------------------------------------------------------------------------------------

Request parse_read(Bytes payload) {
  Read read;
  if (!take(payload, read.access) || read.access.count > kMaxTransfer) return Refused{EINVAL};
  return read;
}

Request parse_write(Bytes payload) {
  Write write;
  if (!take(payload, write.access)) return Refused{EINVAL};
  write.data = payload.subspan(sizeof write.access);
  if (write.access.count > kMaxTransfer || write.data.size() != write.access.count) return Refused{EINVAL};
  return write;
}

Request parse_write_multi(Bytes payload) {
  WriteMulti multi;
  if (!take(payload, multi.count)) return Refused{EINVAL};
  multi.writes = payload.subspan(sizeof multi.count);
  if (multi.writes.size() % sizeof(MultiWrite) || multi.writes.size() / sizeof(MultiWrite) != multi.count)
    return Refused{EINVAL};
  for (size_t at = 0; at < multi.writes.size(); at += sizeof(MultiWrite)) {
    MultiWrite one;
    std::memcpy(&one, multi.writes.data() + at, sizeof one);
    if (one.count > sizeof one.data) return Refused{EINVAL};
  }
  return multi;
}

}  // namespace

Framing framing(const Header& header) {
  const uint32_t type = header.flags & flag::kTypeMask;
  if (type != flag::kCommand && type != flag::kReply) return Framing::UnknownType;
  if (header.size < sizeof(Header)) return Framing::TooShort;
  if (header.size > kMaxMessage) return Framing::TooLong;
  return Framing::Whole;
}

Request parse(uint16_t command, Bytes payload, size_t fds) {
  if (fds && command != command::kDmaMap && command != command::kSetIrqs) return Refused{EINVAL};
  switch (command) {
    case command::kVersion:
      return parse_version(payload);
    case command::kDmaMap:
      return parse_map(payload, fds);
    case command::kDmaUnmap:
      return parse_unmap(payload);
    case command::kGetInfo: {
      vfio_device_info info{};
      // The structure has grown past the protocol's 16 bytes.
      if (payload.size() < 16) return Refused{EINVAL};
      std::memcpy(&info, payload.data(), 16);
      return info.argsz < 16 ? Request{Refused{EINVAL}} : DeviceInfo{};
    }
    case command::kGetRegionInfo: {
      vfio_region_info info;
      if (!take_sized(payload, info)) return Refused{EINVAL};
      return RegionInfo{info.index, info.argsz};
    }
    case command::kGetRegionIoFds: {
      RegionIoFds fds_of;
      if (!take_sized(payload, fds_of) || fds_of.flags || fds_of.count) return Refused{EINVAL};
      return RegionDescriptors{fds_of.index};
    }
    case command::kGetIrqInfo: {
      vfio_irq_info info;
      if (!take_sized(payload, info)) return Refused{EINVAL};
      return IrqInfo{info.index};
    }
    case command::kSetIrqs:
      return parse_set_irqs(payload, fds);
    case command::kRegionRead:
      return parse_read(payload);
    case command::kRegionWrite:
      return parse_write(payload);
    case command::kRegionWriteMulti:
      return parse_write_multi(payload);
    case command::kReset:
      return payload.empty() ? Request{Reset{}} : Refused{EINVAL};
    case command::kDirtyPages:
    case command::kFeature:
    case command::kMigrationRead:
    case command::kMigrationWrite:
      return Refused{ENOTSUP};  // migration
    default:
      return Refused{EINVAL};  // DMA_READ and DMA_WRITE too: they are the server's to ask
  }
}

}  // namespace userdma::soft::vfio_user
