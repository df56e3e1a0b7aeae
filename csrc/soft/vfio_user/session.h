// One client of a served function, from its first message to its last.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "soft/dma.h"
#include "soft/soft_function.h"
#include "soft/vfio_user/channel.h"
#include "soft/vfio_user/memory.h"
#include "soft/vfio_user/message.h"

namespace userdma::soft::vfio_user {

class Session final : private Dma::Remote {
 public:
  // `patience`: how long the device waits for memory that it must ask the client for. One that is silent for longer is
  // not asked again: what it does not answer is a fault. One that leaves off within a message for `stalls` times as
  // long is gone.
  static constexpr int stalls = 5;
  Session(SoftFunction& function, Fd socket, std::chrono::milliseconds patience = std::chrono::seconds(1));
  // The function is as at power-on again, and nothing of the client is left: no memory, no descriptor.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Until the client leaves, or breaks the protocol, or `close`.
  void run();
  void close() { channel_.close(); }  // any thread

 private:
  bool read(uint64_t bus, void* into, uint64_t bytes) override;
  bool write(uint64_t bus, const void* from, uint64_t bytes) override;

  // Asks for memory. `least`: how much of an answer must come, into the buffer, which is as long as what came.
  bool ask(uint16_t command, const DmaAccess& access, const uint8_t* data, size_t bytes, size_t least);

  // How many bytes the answer in the buffer is about, of those that were asked for.
  uint64_t answered(const DmaAccess& asked) const;

  // Each answers one kind of command. False: the client is gone.
  bool serve(const Message& message);
  bool on(const Message& message, const Refused& refused);
  bool on(const Message& message, const Negotiate& version);
  bool on(const Message& message, const Map& map);
  bool on(const Message& message, const Unmap& unmap);
  bool on(const Message& message, const DeviceInfo&);
  bool on(const Message& message, const RegionInfo& info);
  bool on(const Message& message, const RegionDescriptors& descriptors);
  bool on(const Message& message, const IrqInfo& info);
  bool on(const Message& message, const SetIrqs& set);
  bool on(const Message& message, const Read& read);
  bool on(const Message& message, const Write& write);
  bool on(const Message& message, const WriteMulti& multi);
  bool on(const Message& message, const Reset&);

  uint64_t region_bytes(uint32_t region) const;  // 0: there is none
  bool within(const RegionAccess& access) const;
  void read_region(const RegionAccess& access, uint8_t* into);
  void write_region(const RegionAccess& access, const uint8_t* from);
  uint32_t vectors(uint32_t index) const;

  SoftFunction& function_;
  const std::chrono::milliseconds patience_;
  Channel channel_;
  Memory memory_;
  bool negotiated_ = false;
  uint64_t max_transfer_ = kMaxTransfer;  // of the client
  // Of the requests for memory; the NIC's lock is held.
  std::vector<uint8_t> buffer_;
  bool silent_ = false;  // one was not answered in time
  // Signalled by nobody: they are kept because a client may set them.
  Fd error_event_;
  Fd request_event_;
};

}  // namespace userdma::soft::vfio_user
