#include "soft/wire/tap.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "host/function.h"

namespace userdma::soft::wire {
namespace {

constexpr unsigned batch = 64;
constexpr uint32_t max_mtu = 4096;  // of RoCE

}  // namespace

Tap::Tap(std::shared_ptr<Wire> wire, const uint8_t mac[6]) {
  wire->check_made_here("the wire " + wire->name());
  port_ = wire->attach(mac, nullptr, nullptr);
  if (port_->largest(max_mtu) != max_mtu)
    throw host::Error("the wire " + wire->name() + " carries whole messages, not frames: a tap needs frames");
}

Tap::~Tap() { close(); }

Malformed Tap::send(const uint8_t* frame, size_t bytes) {
  Header header;
  Span payload;
  const Malformed malformed = decode(frame, bytes, header, payload);
  if (malformed != Malformed::No) return malformed;
  pass(header, payload);
  return Malformed::No;
}

void Tap::send_ethernet(const uint8_t* frame, size_t bytes) {
  if (bytes < min_frame || bytes > max_packet)
    throw std::invalid_argument("a frame of " + std::to_string(bytes) + " bytes");
  Header header;
  header.opcode = frame_opcode;
  header.copy = true;
  header.payload = static_cast<uint32_t>(bytes);
  std::memcpy(header.dmac, frame, 6);
  pass(header, {const_cast<uint8_t*>(frame), bytes});
}

void Tap::pass(const Header& header, const Span& payload) {
  check_made_here("the tap");
  std::lock_guard guard(mutex_);
  if (!port_) throw host::Error("the tap has left its wire");
  if (!port_->send(header, &payload, payload.bytes ? 1 : 0)) throw host::Error("the wire has no room for a frame now");
  port_->help(false);  // nobody else tells the receiver
}

std::vector<std::vector<uint8_t>> Tap::receive() {
  check_made_here("the tap");
  std::lock_guard guard(mutex_);
  if (port_)
    while (port_->receive(*this, batch) > 0) {
    }
  return std::exchange(frames_, {});
}

void Tap::close() {
  if (!made_here()) {
    (void)port_.release();
    return;
  }
  std::lock_guard guard(mutex_);
  if (port_) port_->leave();
  port_.reset();
}

void Tap::packet(const Header& header, const Span* payload, size_t spans) {
  if (header.is_frame()) {
    std::vector<uint8_t>& frame = frames_.emplace_back();
    for (size_t i = 0; i < spans; ++i) frame.insert(frame.end(), payload[i].at, payload[i].at + payload[i].bytes);
    return;
  }
  std::vector<uint8_t> frame(encoded_bytes(header));
  if (encode(header, payload, spans, frame.data(), frame.size()) != 0) frames_.push_back(std::move(frame));
}

}  // namespace userdma::soft::wire
