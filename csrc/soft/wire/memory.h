// The wire within one process: every port has an inbox that the others put packets into.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "soft/wire/wire.h"

namespace userdma::soft::wire {

class MemoryPort;
struct Inbox;

class MemoryWire final : public Wire {
 public:
  explicit MemoryWire(std::string name) : name_(std::move(name)) {}
  ~MemoryWire() override;

  std::unique_ptr<Port> attach(const uint8_t mac[6], Owner* owner, Arena* arena) override;
  std::string name() const override { return name_; }

 private:
  friend class MemoryPort;

  static constexpr unsigned words = 64;
  static constexpr unsigned max_ports = words * 64;

  Inbox* find(uint64_t mac);

  const std::string name_;
  std::mutex mutex_;  // nothing else is locked under it
  std::unordered_map<uint64_t, Inbox*> by_mac_;
  std::vector<unsigned> unused_;  // indices of inboxes that nobody has
  // Inboxes live as long as the wire, so that a sender may keep a pointer to one that its port has left.
  std::array<std::atomic<Inbox*>, max_ports> inboxes_{};
  std::atomic<unsigned> count_{0};
  // A bit for each inbox that packets were put into: set after the packet, cleared before the inbox is emptied.
  std::array<std::atomic<uint64_t>, words> hot_{};
};

}  // namespace userdma::soft::wire
