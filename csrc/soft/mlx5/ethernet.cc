#include "soft/mlx5/ethernet.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace userdma::soft::mlx5 {

using transport::Access;
using transport::Receive;
using transport::Spans;
using transport::Status;
namespace state = hw::queue_state;

namespace {

constexpr size_t longest_packet = 1 << 18;  // of a packet that is to be cut into segments
constexpr unsigned packets_per_turn = 256;

std::string number(const char* what, uint64_t id) { return std::string(what) + " " + std::to_string(id); }

template <class Map>
auto& known(Map& map, typename Map::key_type id, const char* what) {
  const auto found = map.find(id);
  if (found == map.end()) throw UnknownId(number(what, id));
  return found->second;
}

template <class Map>
void check_new(const Map& map, typename Map::key_type id, const char* what) {
  if (map.contains(id)) throw std::invalid_argument(number(what, id) + " is there already");
}

void check_state(unsigned to) {
  if (to != state::kReset && to != state::kReady && to != state::kError)
    throw std::invalid_argument(number("the state of a queue", to));
}

}  // namespace

// ---- Objects ----------------------------------------------------------------------------------------------------

void Ethernet::sq_create(uint32_t id, const SendQueueSpec& spec, std::shared_ptr<Cq> cq) {
  check_new(send_, id, "send queue");
  auto made = std::make_unique<SendQueue>(dma(), spec, std::move(cq));
  made->id = id;
  send_[id] = std::move(made);
}

void Ethernet::sq_modify(uint32_t id, unsigned to) {
  check_state(to);
  SendQueue& queue = *known(send_, id, "no send queue");
  if (to == state::kReset) {
    queue.produced = queue.consumed = 0;
    queue.segments.clear();
    queue.owed.reset();
  }
  queue.state = to;
  if (to == state::kError) flush(queue);
  if (to == state::kReady) send_doorbell(id);
}

void Ethernet::sq_destroy(uint32_t id) {
  known(send_, id, "no send queue");
  send_.erase(id);
}

void Ethernet::rq_create(uint32_t id, const ReceiveQueueSpec& spec, std::shared_ptr<Cq> cq, std::shared_ptr<Srq> srq) {
  check_new(receive_, id, "receive queue");
  if (spec.linked && !srq) {
    const SrqSpec own{spec.pd, spec.pages, spec.log_entries, spec.log_stride, spec.record, 0};
    srq = std::make_shared<Srq>(dma(), id, own, events_);
  }
  auto made = std::make_unique<ReceiveQueue>(dma(), spec, std::move(cq), std::move(srq));
  made->id = id;
  made->strip_vlan = spec.strip_vlan;
  receive_[id] = std::move(made);
}

void Ethernet::rq_modify(uint32_t id, std::optional<unsigned> to, std::optional<bool> strip_vlan) {
  if (to) check_state(*to);
  ReceiveQueue& queue = *known(receive_, id, "no receive queue");
  if (strip_vlan) queue.strip_vlan = *strip_vlan;
  if (!to) return;
  if (*to == state::kReset) {
    queue.produced = queue.consumed = 0;
    const ReceiveQueueSpec& spec = queue.spec;
    if (spec.linked && !spec.srqn) {
      const SrqSpec own{spec.pd, spec.pages, spec.log_entries, spec.log_stride, spec.record, 0};
      queue.srq = std::make_shared<Srq>(dma(), id, own, events_);
    }
  }
  queue.state = *to;
}

void Ethernet::rq_destroy(uint32_t id) {
  known(receive_, id, "no receive queue");
  receive_.erase(id);
}

void Ethernet::tir_set(uint32_t id, TirSpec spec) { tirs_[id] = std::move(spec); }

void Ethernet::tir_remove(uint32_t id) {
  known(tirs_, id, "no TIR");
  tirs_.erase(id);
}

void Ethernet::clear() {
  send_.clear();
  receive_.clear();
  tirs_.clear();
  steering_.clear();
  port_.clear();
  loopback_ = false;
  lost_ = 0;
  work_ = false;
}

void Ethernet::check_cq(Cq& cq, bool posted) {
  if (!posted) events_.cq_overrun(cq);
}

// ---- Send -------------------------------------------------------------------------------------------------------

void Ethernet::send_doorbell(uint32_t id) {
  const auto found = send_.find(id);
  if (found == send_.end() || found->second->state == state::kReset) return;
  SendQueue& queue = *found->second;
  uint32_t word = 0;
  const bool there = queue.record.load(hw::record::kSend, word);
  const uint32_t distance = (word - static_cast<uint32_t>(queue.produced)) & hw::record::kCounterMask;
  if (!there || distance > queue.ring.blocks() - (queue.produced - queue.consumed)) {
    if (queue.state == state::kReady) {
      events_.queue_event(id, hw::queue_kind::kSend, hw::event::kCatastrophic);
      fail(queue);
    }
    return;
  }
  queue.produced += distance;
  if (queue.state == state::kError) return flush(queue);
  work_ = true;
}

bool Ethernet::run() {
  if (!work_) return false;
  work_ = false;
  bool did = false;
  unsigned budget = packets_per_turn;
  for (auto& [id, queue] : send_) did |= transmit(*queue, budget);
  if (!budget) work_ = true;
  return did;
}

// Sends what it can of a queue. It goes on when its doorbell or the wire lets it.
bool Ethernet::transmit(SendQueue& queue, unsigned& budget) {
  bool did = false;
  while (budget && queue.state == state::kReady) {
    if (!queue.segments.empty()) {
      std::vector<uint8_t>& frame = queue.segments.front();
      const EthernetPort::Sent sent = port_.send(frame);
      if (sent == EthernetPort::Sent::NoRoom) {
        work_ = true;  // the NIC looks again: wire::Port::blocked
        return did;
      }
      if (sent == EthernetPort::Sent::Yes && loopback_ && cast(frame.data()) != Cast::Unicast)
        steer(frame.data(), frame.size(), &queue);
      queue.segments.pop_front();
      budget--;
      did = true;
      continue;
    }
    if (queue.owed) {
      const bool posted = queue.cq->post(*queue.owed, false);
      queue.owed.reset();
      if (!posted) {
        events_.cq_overrun(*queue.cq);
        queue.state = state::kError;
        return true;
      }
      did = true;
    }
    if (queue.consumed == queue.produced) return did;
    take_packet(queue);
    budget--;
    did = true;
  }
  return did;
}

// The next entry of a queue, off it; a packet is cut into the frames that are to be sent.
void Ethernet::take_packet(SendQueue& queue) {
  SendRing::Buffer buffer;
  const auto available = static_cast<uint32_t>(queue.produced - queue.consumed);
  const SendRing::Entry entry = queue.ring.entry(queue.consumed, available, buffer);
  const uint64_t counter = queue.consumed;
  std::optional<Error> error = bad_entry;
  bool completes = true;
  if (entry.at) {
    completes = load<hw::ControlSegment>(entry.at).fm_ce_se & hw::control::kCompletion;
    error = entry.opcode() == hw::opcode::kNop ? std::nullopt : gather(queue, entry);
  }
  queue.consumed += entry.at ? entry.blocks() : available;
  const auto& spec = queue.spec;
  if (error) {
    port_.sent.errors++;
    hw::Cqe failure = mlx5::failed(hw::cqe_opcode::kRequestError, entry.opcode(), queue.id,
                                   static_cast<uint16_t>(counter), spec.user_index, *error);
    check_cq(*queue.cq, queue.cq->post(failure, true));
    return fail(queue);
  }
  if (completes)
    queue.owed = completed(hw::cqe_opcode::kRequest, entry.opcode(), queue.id, static_cast<uint16_t>(counter),
                           spec.user_index, 0);
}

// The packet of an entry, as the frames that it stands for.
std::optional<Error> Ethernet::gather(SendQueue& queue, const SendRing::Entry& entry) {
  const bool segments = entry.opcode() == hw::opcode::kTso;
  if (!segments && entry.opcode() != hw::opcode::kSend) return bad_entry;
  const uint8_t* const end = entry.at + entry.bytes();
  const uint8_t* at = entry.at + sizeof(hw::ControlSegment);
  if (end - at < static_cast<int>(sizeof(hw::EthernetSegment))) return bad_entry;
  const auto how = load<hw::EthernetSegment>(at);
  std::vector<uint8_t>& packet = queue.packet;
  packet.clear();
  size_t headers = 0;
  // Bytes of headers, or the type of a tag; then their beginning, or the tag.
  const auto word = static_cast<uint16_t>(big(how.trailer) >> 16);
  const bool inserts = word & hw::eth_flag::kInsertVlan;
  if (!inserts && (headers = word & hw::kInlineHeadersMask) != 0) {
    constexpr size_t begin = offsetof(hw::EthernetSegment, trailer) + 2;
    if (begin + headers > static_cast<size_t>(end - at)) return bad_entry;
    packet.assign(at + begin, at + begin + headers);
    at += (begin + headers + hw::kSegment - 1) / hw::kSegment * hw::kSegment;
  } else {
    at += sizeof how;
  }
  if (const auto error = gather_data(queue, at, end)) return error;
  if (packet.size() < ether::kHeader) return bad_entry;
  if (inserts) {
    uint8_t tag[ether::kTag];
    store16(tag, word & hw::eth_flag::kServiceVlan ? ether::kServiceVlan : ether::kVlan);
    store16(tag + 2, static_cast<uint16_t>(big(how.trailer)));
    packet.insert(packet.begin() + 12, tag, tag + sizeof tag);
    headers += ether::kTag;
  }
  if (segments) {
    if (!segment(packet, headers, big(how.mss), {}, queue.segments)) return bad_entry;
    return std::nullopt;
  }
  namespace flag = hw::eth_flag;
  if (how.cs_flags & (flag::kL3Checksum | flag::kL4Checksum | flag::kInnerL3Checksum | flag::kInnerL4Checksum)) {
    const Layers layers = parse(packet.data(), packet.size(), packet.size());
    const auto set = [&](const Layer& layer, bool l3, bool l4) {
      if (!layer.version) return;
      if (l4 && layer.payload) set_l4_checksum(packet.data(), layer);
      if (l3) set_ip_checksum(packet.data(), layer);
    };
    set(layers.inner, how.cs_flags & flag::kInnerL3Checksum, how.cs_flags & flag::kInnerL4Checksum);
    set(layers.outer, how.cs_flags & flag::kL3Checksum, how.cs_flags & flag::kL4Checksum);
  }
  queue.segments.push_back(std::move(packet));
  packet = {};
  return std::nullopt;
}

std::optional<Error> Ethernet::gather_data(SendQueue& queue, const uint8_t* at, const uint8_t* end) {
  std::vector<uint8_t>& packet = queue.packet;
  while (at < end) {
    const auto segment = load<hw::DataSegment>(at);
    const uint32_t count = big(segment.byte_count);
    const size_t before = packet.size();
    if (count & hw::kInline) {
      const uint32_t bytes = count & hw::kInlineBytesMask;
      const uint8_t* from = at + sizeof(hw::InlineSegment);
      if (bytes > static_cast<size_t>(end - from)) return bad_entry;
      packet.insert(packet.end(), from, from + bytes);
      at += (sizeof(hw::InlineSegment) + bytes + hw::kSegment - 1) / hw::kSegment * hw::kSegment;
      continue;
    }
    at += sizeof segment;
    if (before + count > longest_packet) return bad_entry;
    Mkey* key = keys_.find(big(segment.lkey));
    if (!key || key->pd() != queue.spec.pd) return no_send_memory;
    for (uint64_t done = 0; done < count;) {
      Spans spans;
      uint64_t covered = 0;
      if (key->reach(keys_, hw::kKeyAnyQp, big(segment.addr) + done, count - done, 0, false, spans, covered) !=
              Status::Ok ||
          !covered) {
        return no_send_memory;
      }
      for (unsigned i = 0; i < spans.count; i++)
        packet.insert(packet.end(), spans.span[i].at, spans.span[i].at + spans.span[i].bytes);
      done += covered;
    }
  }
  return std::nullopt;
}

void Ethernet::fail(SendQueue& queue) {
  queue.state = state::kError;
  queue.segments.clear();
  queue.owed.reset();
  flush(queue);
}

// flush_in_error_en: what is posted completes for itself.
void Ethernet::flush(SendQueue& queue) {
  while (queue.consumed != queue.produced) {
    SendRing::Buffer buffer;
    const auto left = static_cast<uint32_t>(queue.produced - queue.consumed);
    const SendRing::Entry entry = queue.ring.entry(queue.consumed, left, buffer);
    const auto counter = static_cast<uint16_t>(queue.consumed);
    queue.consumed += entry.at ? entry.blocks() : left;
    if (queue.cq->overrun()) continue;
    hw::Cqe failure = mlx5::failed(hw::cqe_opcode::kRequestError, entry.opcode(), queue.id, counter,
                                   queue.spec.user_index, flushed_send);
    check_cq(*queue.cq, queue.cq->post(failure, true));
  }
}

// ---- Receive ----------------------------------------------------------------------------------------------------

void Ethernet::packet(const wire::Span* payload, size_t spans) {
  const EthernetPort::Frame frame = port_.arrived(payload, spans);
  if (frame.at && !steer(frame.at, frame.bytes, nullptr)) port_.received.discards++;
}

bool Ethernet::steer(const uint8_t* frame, size_t bytes, const SendQueue* from) {
  const Layer layer = parse(frame, bytes, bytes).outer;
  bool taken = false;
  for (const Steering::Target& target : steering_.route(frame, bytes, layer))
    taken |= deliver(target, frame, bytes, layer, from);
  return taken;
}

uint32_t Ethernet::hash(const TirSpec& tir, const uint8_t* frame, const Layer& layer, uint8_t& kind) const {
  if (tir.hash_function == hw::hash_function::kNone || !layer.version) return 0;
  namespace field = hw::hash_field;
  uint8_t input[36];
  size_t n = 0;
  const bool v4 = layer.version == 4;
  const size_t address = v4 ? 4 : 16;
  const uint8_t* from = frame + layer.l3 + (v4 ? 12 : 8);
  const auto add = [&](uint32_t which, const uint8_t* at, size_t bytes) {
    if (!(tir.fields & which)) return;
    std::memcpy(input + n, at, bytes);
    n += bytes;
  };
  add(field::kSource, from, address);
  add(field::kDestination, from + address, address);
  kind = v4 ? hw::kHashIpv4 : hw::kHashIpv6;
  if (layer.payload && tir.fields & (field::kSourcePort | field::kDestinationPort)) {
    add(field::kSourcePort, frame + layer.l4, 2);
    add(field::kDestinationPort, frame + layer.l4 + 2, 2);
    kind |= layer.tcp() ? hw::kHashTcp : hw::kHashUdp;
  }
  if (tir.hash_function == hw::hash_function::kToeplitz) return toeplitz(tir.key.data(), input, n);
  uint8_t folded = 0;
  for (size_t i = 0; i < n; i++) folded ^= input[i];
  return static_cast<uint8_t>(~folded);
}

bool Ethernet::take(ReceiveQueue& queue, Receive& out) {
  if (queue.srq) {
    Status status;
    return queue.srq->next(out, status) == transport::Rings::Next::Entry;
  }
  const ReceiveQueueSpec& spec = queue.spec;
  const uint32_t entries = 1u << spec.log_entries;
  if (queue.consumed == queue.produced) {
    uint32_t word = 0;
    const bool there = queue.record.load(hw::record::kReceive, word);
    const uint32_t distance = (word - static_cast<uint32_t>(queue.produced)) & hw::record::kCounterMask;
    if (!there || distance > entries) {
      queue.state = state::kError;
      events_.queue_event(queue.id, hw::queue_kind::kReceive, hw::event::kCatastrophic);
      return false;
    }
    queue.produced += distance;
    if (!distance) return false;
  }
  uint8_t buffer[1u << log_stride_limit];
  const uint32_t stride = 1u << spec.log_stride;
  const uint64_t offset = (queue.consumed & (entries - 1)) << spec.log_stride;
  out.handle = static_cast<uint16_t>(queue.consumed++);
  out.sges = 0;
  out.length = 0;
  const uint8_t* at = queue.ring.flat();
  if (at) {
    at += offset;
  } else if (queue.ring.read(offset, buffer, stride)) {
    at = buffer;
  } else {
    return true;  // of no memory
  }
  read_receive(at, stride / hw::kSegment, out);
  return true;
}

bool Ethernet::scatter(const ReceiveQueue& queue, const Receive& receive, const uint8_t* from, size_t bytes) {
  for (unsigned i = 0; i < receive.sges && bytes; i++) {
    const transport::Sge& sge = receive.sge[i];
    Mkey* key = keys_.find(sge.key);
    if (!key || key->pd() != queue.spec.pd) return false;
    const uint64_t n = std::min<uint64_t>(bytes, sge.bytes);
    for (uint64_t done = 0; done < n;) {
      Spans spans;
      uint64_t covered = 0;
      if (key->reach(keys_, hw::kKeyAnyQp, sge.va + done, n - done, Access::LocalWrite, false, spans, covered) !=
              Status::Ok ||
          !covered) {
        return false;
      }
      for (unsigned j = 0; j < spans.count; j++) {
        std::memcpy(spans.span[j].at, from, spans.span[j].bytes);
        from += spans.span[j].bytes;
      }
      done += covered;
    }
    bytes -= n;
  }
  return true;
}

// To the receive queue of a TIR. False: dropped.
bool Ethernet::deliver(const Steering::Target& target, const uint8_t* frame, size_t bytes, const Layer& layer,
                       const SendQueue* from) {
  const auto tir = tirs_.find(target.tir);
  if (tir == tirs_.end() || tir->second.rqns.empty()) return false;
  if (from && from->spec.transport_domain == tir->second.transport_domain) return false;
  uint8_t hash_kind = 0;
  const uint32_t hashed = hash(tir->second, frame, layer, hash_kind);
  const auto found = receive_.find(tir->second.rqns[hashed % tir->second.rqns.size()]);
  if (found == receive_.end() || found->second->state != state::kReady) return false;
  ReceiveQueue& queue = *found->second;
  Receive receive;
  if (!take(queue, receive)) {
    lost_++;
    return false;
  }

  uint8_t ok = hw::packet_ok::kL2;
  uint8_t kinds = 0;
  if (layer.version) {
    kinds |= static_cast<uint8_t>((layer.version == 4 ? hw::kL3Ipv4 : hw::kL3Ipv6) << hw::kL3KindShift);
    if (ip_checksum_good(frame, layer)) ok |= hw::packet_ok::kL3;
    const bool unsummed = layer.udp() && load16(frame + layer.l4 + 6) == 0;
    if (layer.payload && (unsummed || l4_checksum_good(frame, layer))) ok |= hw::packet_ok::kL4;
    if (layer.udp()) kinds |= static_cast<uint8_t>(hw::l4_kind::kUdp << hw::kL4KindShift);
    if (layer.tcp()) {
      constexpr uint8_t ack = 0x10;
      const bool acks = frame[layer.l4 + 13] & ack;
      const bool data = layer.payload < layer.end;
      kinds |= static_cast<uint8_t>((!acks  ? hw::l4_kind::kTcp
                                     : data ? hw::l4_kind::kTcpAckData
                                            : hw::l4_kind::kTcpAck)
                                    << hw::kL4KindShift);
    }
  }
  uint16_t tag = 0;
  if (queue.strip_vlan && bytes >= ether::kHeader + ether::kTag && load16(frame + 12) == ether::kVlan) {
    tag = load16(frame + 14);
    kinds |= hw::kVlanStripped;
    stripped_.assign(frame, frame + 12);
    stripped_.insert(stripped_.end(), frame + 16, frame + bytes);
    frame = stripped_.data();
    bytes = stripped_.size();
  }

  const ReceiveQueueSpec& spec = queue.spec;
  if (bytes > receive.length || !scatter(queue, receive, frame, bytes)) {
    const Error error = receive.sges && bytes > receive.length
                            ? Error{hw::syndrome::kLocalLength, hw::syndrome::kLocalLength}
                            : no_receive_memory;
    hw::Cqe failure = mlx5::failed(hw::cqe_opcode::kReceiveError, 0, queue.id, receive.handle, spec.user_index, error);
    check_cq(*queue.cq, queue.cq->post(failure, true));
    if (error.syndrome != hw::syndrome::kLocalLength) queue.state = state::kError;
    port_.received.errors++;
    return true;
  }
  hw::Cqe entry = completed(hw::cqe_opcode::kReceived, 0, target.tag, receive.handle, spec.user_index, bytes);
  auto* raw = reinterpret_cast<uint8_t*>(&entry);
  const uint32_t result = big(hashed);
  std::memcpy(raw + hw::kHashAt, &result, sizeof result);
  raw[hw::kHashKindAt] = hash_kind;
  // Of all that follows the Ethernet header (cap.cqe_checksum_full).
  const uint16_t sum = checksum(frame + ether::kHeader, bytes - ether::kHeader);
  std::memcpy(raw + hw::kChecksumAt, &sum, sizeof sum);
  entry.hds_ip_ext = ok;
  entry.l4_hdr_type_etc = kinds;
  entry.vlan_info = big(tag);
  if (!queue.cq->post(entry, false)) {
    events_.cq_overrun(*queue.cq);
    queue.state = state::kError;
  }
  return true;
}

}  // namespace userdma::soft::mlx5
