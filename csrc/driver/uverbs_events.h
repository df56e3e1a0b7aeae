// Events of a NIC whose kernel driver tells of them: those of queue pairs go to these.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "driver/events.h"
#include "host/uverbs.h"

namespace userdma::driver {

// The kernel names an object by what user space called it when it was made, before it had a number.
class UverbsEvents final : public Events {
 public:
  UverbsEvents(std::shared_ptr<Domain> domain, std::shared_ptr<host::Uverbs> device)
      : Events(std::move(domain)), device_(std::move(device)) {}

  enum class Kind : uint8_t { QueuePair, CompletionQueue };
  void name(uint64_t element, Kind kind, uint32_t number) { names_[element] = {kind, number}; }
  void forget(uint64_t element) { names_.erase(element); }

  void service() override { take(0); }
  // The NIC writes completions where they are read at once, and the event is the kernel's to pass on.
  void service_flush() override { take(kPassedOn); }

 private:
  // The descriptor is looked at where the domain checks its function, which a poll does now and then.
  bool written() const override { return device_->waiting(); }
  static constexpr int kPassedOn = 50;  // milliseconds that it takes a busy kernel
  void take(int milliseconds);
  void dispatch(const host::Uverbs::Event& event) const;

  std::shared_ptr<host::Uverbs> device_;
  std::unordered_map<uint64_t, std::pair<Kind, uint32_t>> names_;
};

}  // namespace userdma::driver
