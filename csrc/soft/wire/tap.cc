#include "soft/wire/tap.h"

#include <utility>

#include "host/function.h"

namespace userdma::soft::wire {
namespace {

constexpr unsigned batch = 64;
constexpr uint32_t max_mtu = 4096;  // of RoCE

}  // namespace

Tap::Tap(std::shared_ptr<Wire> wire, const uint8_t mac[6]) : port_(wire->attach(mac, nullptr, nullptr)) {
  if (port_->largest(max_mtu) != max_mtu)
    throw host::Error("the wire " + wire->name() + " carries whole messages, not frames: a tap needs frames");
}

Tap::~Tap() { close(); }

Malformed Tap::send(const uint8_t* frame, size_t bytes) {
  Header header;
  Span payload;
  const Malformed malformed = decode(frame, bytes, header, payload);
  if (malformed != Malformed::No) return malformed;
  std::lock_guard guard(mutex_);
  if (!port_) throw host::Error("the tap has left its wire");
  if (!port_->send(header, &payload, payload.bytes ? 1 : 0)) throw host::Error("the wire has no room for a frame now");
  port_->help();  // nobody else tells the receiver
  return Malformed::No;
}

std::vector<std::vector<uint8_t>> Tap::receive() {
  std::lock_guard guard(mutex_);
  if (port_)
    while (port_->receive(*this, batch) > 0) {
    }
  return std::exchange(frames_, {});
}

void Tap::close() {
  std::lock_guard guard(mutex_);
  if (port_) port_->leave();
  port_.reset();
}

void Tap::packet(const Header& header, const Span* payload, size_t spans) {
  std::vector<uint8_t> frame(encoded_bytes(header));
  if (encode(header, payload, spans, frame.data(), frame.size()) != 0) frames_.push_back(std::move(frame));
}

}  // namespace userdma::soft::wire
