#include "soft/vfio_user/session.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "hw/pci.h"
#include "soft/event_fd.h"

namespace userdma::soft::vfio_user {

namespace pci = hw::pci;

Session::Session(SoftFunction& function, Fd socket, std::chrono::milliseconds patience)
    : function_(function),
      patience_(patience),
      channel_(std::move(socket), stalls * patience),
      memory_(function, *this) {
  function_.power_cycle();
  function_.host_keeps_vectors(true);
  function_.host_takes_atomics(true);
}

Session::~Session() {
  channel_.close();
  function_.power_cycle();
  memory_.unmap_all();
  for (unsigned i = 0; i < function_.vector_count(); i++) function_.connect_interrupt(i, -1);
  function_.host_keeps_vectors(false);
  function_.host_takes_atomics(false);
}

void Session::run() {
  Message message;
  while (channel_.next(message) && serve(message) && !memory_.lost()) {
  }
  channel_.close();
}

bool Session::serve(const Message& message) {
  const Request request = parse(message.header.command, message.payload, message.fds.size());
  // The version comes first, and once.
  if (negotiated_ == (message.header.command == command::kVersion)) {
    channel_.refuse(message.header, EINVAL);
    return false;
  }
  return std::visit([&](const auto& one) { return on(message, one); }, request);
}

bool Session::on(const Message& message, const Refused& refused) {
  return channel_.refuse(message.header, refused.error) && negotiated_;
}

bool Session::on(const Message& message, const Negotiate& version) {
  negotiated_ = true;
  max_transfer_ = version.max_transfer;
  const Version reply{kMajor, version.minor};
  return channel_.reply(message.header, &reply, sizeof reply, version.reply.c_str(), version.reply.size() + 1);
}

// ---- Memory -------------------------------------------------------------------------------------------------------

bool Session::on(const Message& message, const Map& map) {
  const Fd none;
  const int error = memory_.map(map, map.has_memory ? message.fds[0] : none);
  return error ? channel_.refuse(message.header, error) : channel_.reply(message.header);
}

bool Session::on(const Message& message, const Unmap& unmap) {
  DmaUnmap reply = unmap.entry;
  if (unmap.all) {
    memory_.unmap_all();
  } else if (const int error = memory_.unmap(unmap.entry.address, unmap.entry.size, reply.size)) {
    return channel_.refuse(message.header, error);
  }
  return channel_.reply(message.header, &reply, sizeof reply);
}

bool Session::read(uint64_t bus, void* into, uint64_t bytes) {
  auto* at = static_cast<uint8_t*>(into);
  for (uint64_t n; bytes; at += n, bus += n, bytes -= n) {
    n = std::min(bytes, max_transfer_);
    const DmaAccess access{bus, n};
    buffer_.resize(sizeof access + n);
    if (!ask(command::kDmaRead, access, nullptr, 0, buffer_.size())) return false;
    if (answered(access) != n) return false;
    std::memcpy(at, buffer_.data() + sizeof access, n);
  }
  return true;
}

bool Session::write(uint64_t bus, const void* from, uint64_t bytes) {
  const auto* at = static_cast<const uint8_t*>(from);
  for (uint64_t n; bytes; at += n, bus += n, bytes -= n) {
    n = std::min(bytes, max_transfer_);
    const DmaAccess access{bus, n};
    buffer_.resize(sizeof access);
    if (!ask(command::kDmaWrite, access, at, n, 0)) return false;
    // QEMU answers with the header alone.
    if (buffer_.size() == sizeof access && answered(access) != n) return false;
  }
  return true;
}

bool Session::ask(uint16_t command, const DmaAccess& access, const uint8_t* data, size_t bytes, size_t least) {
  if (silent_) return false;
  const ptrdiff_t n =
      channel_.ask(command, &access, sizeof access, data, bytes, buffer_.data(), buffer_.size(), patience_);
  silent_ = n == -ETIMEDOUT;
  if (n < static_cast<ptrdiff_t>(least)) return false;
  buffer_.resize(static_cast<size_t>(n));
  return true;
}

uint64_t Session::answered(const DmaAccess& asked) const {
  DmaAccess answer;
  std::memcpy(&answer, buffer_.data(), sizeof answer);
  return answer.address == asked.address ? answer.count : 0;
}

// ---- What the device has ------------------------------------------------------------------------------------------

bool Session::on(const Message& message, const DeviceInfo&) {
  vfio_device_info info{};
  info.argsz = 16;  // the protocol's part of the structure
  info.flags = VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI;
  info.num_regions = VFIO_PCI_NUM_REGIONS;
  info.num_irqs = VFIO_PCI_NUM_IRQS;
  return channel_.reply(message.header, &info, info.argsz);
}

uint64_t Session::region_bytes(uint32_t region) const {
  if (region == VFIO_PCI_CONFIG_REGION_INDEX) return pci::kExtendedConfigSize;
  return region <= VFIO_PCI_BAR5_REGION_INDEX ? function_.bar_size(static_cast<int>(region)) : 0;
}

bool Session::on(const Message& message, const RegionInfo& asked) {
  if (asked.index >= VFIO_PCI_NUM_REGIONS) return channel_.refuse(message.header, EINVAL);
  vfio_region_info info{};
  info.argsz = sizeof info;
  info.index = asked.index;
  info.size = region_bytes(asked.index);
  // None can be mapped: an access starts something in the device.
  if (info.size) info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
  return channel_.reply(message.header, &info, sizeof info);
}

bool Session::on(const Message& message, const RegionDescriptors& descriptors) {
  if (!region_bytes(descriptors.index)) return channel_.refuse(message.header, EINVAL);
  const RegionIoFds none{sizeof none, 0, descriptors.index, 0};
  return channel_.reply(message.header, &none, sizeof none);
}

// ---- Registers ----------------------------------------------------------------------------------------------------

bool Session::within(const RegionAccess& access) const {
  const uint64_t size = region_bytes(access.region);
  return access.offset <= size && access.count <= size - access.offset && size;
}

bool Session::on(const Message& message, const Read& read) {
  if (!within(read.access)) return channel_.refuse(message.header, EINVAL);
  std::vector<uint8_t> data(read.access.count);
  read_region(read.access, data.data());
  return channel_.reply(message.header, &read.access, sizeof read.access, data.data(), data.size());
}

// A write is answered before it is done, as a bus posts it: what it sets going may take its time, or may need the
// client, which perhaps waits for this answer.
bool Session::on(const Message& message, const Write& write) {
  if (!within(write.access)) return channel_.refuse(message.header, EINVAL);
  if (!channel_.reply(message.header, &write.access, sizeof write.access)) return false;
  write_region(write.access, write.data.data());
  return true;
}

bool Session::on(const Message& message, const WriteMulti& multi) {
  const auto each = [&](auto&& visit) {
    for (size_t at = 0; at < multi.writes.size(); at += sizeof(MultiWrite)) {
      MultiWrite one;
      std::memcpy(&one, multi.writes.data() + at, sizeof one);
      if (!visit(RegionAccess{one.offset, one.region, one.count}, one.data)) return false;
    }
    return true;
  };
  if (!each([&](const RegionAccess& access, const uint8_t*) { return within(access); }))
    return channel_.refuse(message.header, EINVAL);
  if (!channel_.reply(message.header, &multi.count, sizeof multi.count)) return false;
  return each([&](const RegionAccess& access, const uint8_t* data) {
    write_region(access, data);
    return true;
  });
}

void Session::read_region(const RegionAccess& access, uint8_t* into) {
  if (access.region != VFIO_PCI_CONFIG_REGION_INDEX) {
    function_.bar_read(static_cast<int>(access.region), access.offset, into, access.count);
    return;
  }
  for (uint32_t done = 0; done < access.count;) {
    const auto at = static_cast<unsigned>(access.offset + done);
    unsigned width = 4;
    while (width > access.count - done || at % width) width /= 2;
    const uint32_t value = function_.config(at, width);
    std::memcpy(into + done, &value, width);
    done += width;
  }
}

void Session::write_region(const RegionAccess& access, const uint8_t* from) {
  if (access.region != VFIO_PCI_CONFIG_REGION_INDEX) {
    function_.bar_write(static_cast<int>(access.region), access.offset, from, access.count);
    return;
  }
  for (uint32_t done = 0; done < access.count;) {
    const auto at = static_cast<unsigned>(access.offset + done);
    unsigned width = 4;
    while (width > access.count - done || at % width) width /= 2;
    uint32_t value = 0;
    std::memcpy(&value, from + done, width);
    function_.set_config(at, width, value);
    done += width;
  }
}

// ---- Interrupts ---------------------------------------------------------------------------------------------------

// Anything else could hold up the device that writes to it.
static bool is_eventfd(const Fd& fd) {
  char target[32] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
  return ::readlink(link.c_str(), target, sizeof target - 1) > 0 && std::string_view(target) == "anon_inode:[eventfd]";
}

uint32_t Session::vectors(uint32_t index) const {
  switch (index) {
    case VFIO_PCI_MSIX_IRQ_INDEX:
      return function_.vector_count();
    case VFIO_PCI_ERR_IRQ_INDEX:
    case VFIO_PCI_REQ_IRQ_INDEX:
      return 1;
    default:
      return 0;  // INTx and MSI
  }
}

bool Session::on(const Message& message, const IrqInfo& asked) {
  if (asked.index >= VFIO_PCI_NUM_IRQS) return channel_.refuse(message.header, EINVAL);
  vfio_irq_info info{};
  info.argsz = sizeof info;
  info.index = asked.index;
  info.count = vectors(asked.index);
  if (info.count) info.flags = VFIO_IRQ_INFO_EVENTFD;
  if (asked.index == VFIO_PCI_MSIX_IRQ_INDEX) info.flags |= VFIO_IRQ_INFO_MASKABLE;
  return channel_.reply(message.header, &info, sizeof info);
}

bool Session::on(const Message& message, const SetIrqs& set) {
  const uint32_t count = vectors(set.index);
  if (set.index >= VFIO_PCI_NUM_IRQS || set.start + set.count > count) return channel_.refuse(message.header, EINVAL);
  const bool msix = set.index == VFIO_PCI_MSIX_IRQ_INDEX;
  // Events of masking are for interrupts that a device masks by itself.
  if (set.action != SetIrqs::Action::Trigger && (!msix || set.data == SetIrqs::Data::Eventfd))
    return channel_.refuse(message.header, EINVAL);
  if (!std::all_of(message.fds.begin(), message.fds.end(), is_eventfd)) return channel_.refuse(message.header, EINVAL);

  // Descriptors of this process's own, all of them before anything changes.
  std::vector<Fd> events;
  if (set.has_eventfds) {
    for (const Fd& fd : message.fds) {
      events.emplace_back(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
      if (!events.back()) return channel_.refuse(message.header, errno);
    }
  }
  const bool all = set.count == 0;  // disconnect them
  const uint32_t first = all ? 0 : set.start, end = all ? count : set.start + set.count;
  for (uint32_t i = first; i < end; i++) {
    if (set.data == SetIrqs::Data::Bool && !set.bools[i - first]) continue;
    Fd event = set.has_eventfds ? std::move(events[i - first]) : Fd();
    const bool connects = all || set.data == SetIrqs::Data::Eventfd;
    if (!msix) {
      Fd& own = set.index == VFIO_PCI_ERR_IRQ_INDEX ? error_event_ : request_event_;
      if (connects) own = std::move(event);
      // Triggered by hand: that a client may see whether its event arrives.
      if (const int error = connects || !own ? 0 : signal_event(own.get()))
        return channel_.refuse(message.header, error);
    } else if (set.action != SetIrqs::Action::Trigger) {
      function_.mask_interrupt(i, set.action == SetIrqs::Action::Mask);
    } else if (connects) {
      function_.connect_interrupt(i, event.release());
    } else {
      function_.trigger_interrupt(i);
    }
  }
  return channel_.reply(message.header);
}

bool Session::on(const Message& message, const Reset&) {
  function_.reset();
  return channel_.reply(message.header);
}

}  // namespace userdma::soft::vfio_user
