#include "soft/ethernet_port.h"

#include <algorithm>
#include <cstring>

#include "soft/wire/codec.h"

namespace userdma::soft {

namespace {

constexpr uint16_t roce_port = 4791;  // IBTA annex A17.4.5

}  // namespace

Cast cast(const uint8_t* frame) {
  if (!(frame[0] & 1)) return Cast::Unicast;
  return std::all_of(frame, frame + 6, [](uint8_t byte) { return byte == 0xff; }) ? Cast::Broadcast : Cast::Multicast;
}

void PortCounts::count(const uint8_t* frame, size_t length) {
  static constexpr std::array<size_t, 10> up_to = {64, 127, 255, 511, 1023, 1518, 2047, 4095, 9216, 16383};
  const size_t whole = std::max(length, ether::kShortest) + ether::kFcs;
  frames++;
  bytes += whole;
  switch (cast(frame)) {
    case Cast::Unicast:
      unicast++;
      break;
    case Cast::Multicast:
      multicast++;
      break;
    case Cast::Broadcast:
      broadcast++;
  }
  const uint16_t type = load16(frame + 12);
  if (type == ether::kVlan || type == ether::kServiceVlan) tagged++;
  const auto size = std::lower_bound(up_to.begin(), up_to.end(), whole);
  if (size != up_to.end()) sizes[static_cast<size_t>(size - up_to.begin())]++;
}

EthernetPort::Sent EthernetPort::send(std::vector<uint8_t>& frame) {
  if (frame.size() > longest) {
    sent.errors++;
    return Sent::TooLong;
  }
  if (frame.size() < ether::kShortest) frame.resize(ether::kShortest);
  if (!link_) {
    sent.discards++;
    return Sent::NoLink;
  }
  wire::Header header;
  header.opcode = wire::frame_opcode;
  header.copy = true;
  header.payload = static_cast<uint32_t>(frame.size());
  std::memcpy(header.dmac, frame.data(), 6);
  std::memcpy(header.smac, frame.data() + 6, 6);
  const wire::Span span{frame.data(), frame.size()};
  if (!function_.nic().port().send(header, &span, 1)) return Sent::NoRoom;
  sent.count(frame.data(), frame.size());
  return Sent::Yes;
}

EthernetPort::Frame EthernetPort::arrived(const wire::Span* payload, size_t spans) {
  if (!link_) return {nullptr, 0};
  Frame frame{payload->at, payload->bytes};
  if (spans != 1) {
    whole_.clear();
    for (size_t i = 0; i < spans; i++) whole_.insert(whole_.end(), payload[i].at, payload[i].at + payload[i].bytes);
    frame = {whole_.data(), whole_.size()};
  }
  if (frame.bytes < ether::kHeader || frame.bytes > longest) {
    received.errors++;
    return {nullptr, 0};
  }
  received.count(frame.at, frame.bytes);
  if (roce(frame.at, frame.bytes)) return {nullptr, 0};
  return frame;
}

// A RoCE packet that came as the bytes of a frame belongs to the RoCE part, if that has any queue pair. One whose ICRC
// is wrong is nobody's then.
bool EthernetPort::roce(const uint8_t* frame, size_t bytes) {
  Nic& nic = function_.nic();
  if (!nic.open() || !nic.engine().pairs()) return false;
  if (std::memcmp(frame, mac_.data(), 6) != 0 && !(frame[0] & 1 && nic.engine().groups())) return false;
  const Layers layers = parse(frame, bytes, bytes);
  if (!layers.outer.udp() || load16(frame + layers.outer.l4 + 2) != roce_port) return false;
  wire::Header header;
  wire::Span payload;
  if (wire::decode(frame, bytes, header, payload) == wire::Malformed::No)
    nic.engine().packet(header, &payload, payload.bytes ? 1 : 0);
  return true;
}

void EthernetPort::clear() {
  sent = received = {};
  link_ = true;
}

}  // namespace userdma::soft
