#include "soft/transport/datagrams.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "hw/roce.h"
#include "soft/transport/pair.h"

namespace userdma::soft::transport {

namespace roce = hw::roce;

namespace {

// Datagrams that a pair sends before the next one gets its turn.
constexpr unsigned turn_packets = 64;

// IBTA 10.2.5: a Q_Key of an entry with this bit stands for the queue pair's own.
constexpr uint32_t privileged_qkey = 0x8000'0000;

constexpr uint8_t send_only = roce::transport_ud | roce::SendOnly;
constexpr uint8_t send_only_immediate = roce::transport_ud | roce::SendOnlyImmediate;

constexpr uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

void put16(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

// The header that the packet had on the wire, as the receive gets it.
void network_header(const wire::Header& h, uint8_t out[grh_bytes]) {
  std::memset(out, 0, grh_bytes);
  const bool immediate = h.opcode == send_only_immediate;
  const uint32_t udp = static_cast<uint32_t>(roce::udp_bytes + roce::bth::bytes + roce::deth::bytes +
                                             (immediate ? roce::immediate_bytes : 0) + roce::icrc_bytes) +
                       ((h.payload + 3) & ~3u);
  if (std::memcmp(h.sgid, mapped_prefix, sizeof mapped_prefix) != 0) {
    out[0] = static_cast<uint8_t>(0x60 | h.traffic_class >> 4);
    out[1] = static_cast<uint8_t>(h.traffic_class << 4);
    put16(out + 4, udp);
    out[6] = roce::ip_protocol_udp;
    out[7] = h.hop_limit;
    std::memcpy(out + 8, h.sgid, 16);
    std::memcpy(out + 24, h.dgid, 16);
    return;
  }
  uint8_t* const ip = out + grh_bytes - roce::ipv4_bytes;
  ip[0] = 0x45;
  ip[1] = h.traffic_class;
  put16(ip + 2, static_cast<uint32_t>(roce::ipv4_bytes) + udp);
  put16(ip + 6, 0x4000);  // do not fragment
  ip[8] = h.hop_limit;
  ip[9] = roce::ip_protocol_udp;
  std::memcpy(ip + 12, h.sgid + 12, 4);
  std::memcpy(ip + 16, h.dgid + 12, 4);
  uint32_t sum = 0;
  for (size_t i = 0; i < roce::ipv4_bytes; i += 2) sum += static_cast<uint32_t>(ip[i] << 8 | ip[i + 1]);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  put16(ip + 10, ~sum);
}

}  // namespace

bool Datagrams::create(uint32_t qpn, Rings* rings, uint32_t source) {
  auto d = std::make_unique<Datagram>();
  d->qpn = qpn;
  d->source = source;
  d->rings = rings;
  return pairs_.emplace(qpn, std::move(d)).second;
}

bool Datagrams::destroy(uint32_t qpn) {
  if (!pairs_.erase(qpn)) return false;
  std::erase(ready_, qpn);
  for (auto group = groups_.begin(); group != groups_.end();) {
    std::erase(group->second, qpn);
    group = group->second.empty() ? groups_.erase(group) : std::next(group);
  }
  return true;
}

void Datagrams::attach(const Gid& group, uint32_t qpn) {
  std::vector<uint32_t>& members = groups_[group];
  if (std::find(members.begin(), members.end(), qpn) == members.end()) members.push_back(qpn);
}

void Datagrams::detach(const Gid& group, uint32_t qpn) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  std::erase(found->second, qpn);
  if (found->second.empty()) groups_.erase(found);
}

bool Datagrams::modify(uint32_t qpn, const Attributes& a, uint32_t fields) {
  Datagram* d = find(qpn);
  if (!d) return false;
  Attributes& to = d->attributes;
  const bool moves = fields & Attributes::HasState;
  if (moves && a.state == State::Reset) to = Attributes{};
  if (fields & Attributes::HasPkey) to.pkey = a.pkey;
  if (fields & Attributes::HasQkey) to.qkey = a.qkey;
  if (fields & Attributes::HasMtu) to.mtu = a.mtu;
  if (fields & Attributes::HasSqPsn) to.sq_psn = a.sq_psn & roce::mask24;
  if (!moves) return true;
  to.state = a.state;
  if (a.state == State::Reset || a.state == State::Err) forget(*d);
  if (a.state == State::Rts) activate(*d);
  return true;
}

bool Datagrams::query(uint32_t qpn, Attributes& out) const {
  const Datagram* d = find(qpn);
  if (!d) return false;
  out = d->attributes;
  return true;
}

void Datagrams::kick(uint32_t qpn) {
  Datagram* d = find(qpn);
  if (d && d->attributes.state == State::Rts) activate(*d);
}

void Datagrams::resume(uint32_t qpn, bool there) {
  Datagram* d = find(qpn);
  if (!d || !d->waits) return;
  d->waits = false;
  if (there) return activate(*d);
  d->rings->complete_work(d->held->handle, true, Status::LocalProtection, 0);
  fail(*d, true, Status::LocalProtection);
}

void Datagrams::forget(Datagram& d) {
  d.held.reset();
  d.waits = false;
}

void Datagrams::activate(Datagram& d) {
  if (d.ready) return;
  d.ready = true;
  ready_.push_back(d.qpn);
}

// ---- Sending ---------------------------------------------------------------------------------------------------

bool Datagrams::run(unsigned& budget) {
  bool did = false;
  for (size_t turns = ready_.size(); turns > 0 && budget > 0; turns--) {
    Datagram* d = find(ready_.front());
    ready_.pop_front();
    d->ready = false;
    if (work(*d, budget, did)) activate(*d);
  }
  return did;
}

// One turn of a pair. True if it wants another.
bool Datagrams::work(Datagram& d, unsigned& budget, bool& did) {
  for (unsigned turn = std::min(budget, turn_packets); turn > 0; turn--, budget--) {
    if (d.attributes.state != State::Rts || d.waits) return false;
    Status status = Status::Ok;
    if (!d.held) {
      status = Status::LocalQpOperation;
      const Rings::Next next = d.rings->next_work(*work_, status);
      if (next == Rings::Next::None) return false;
      did = true;
      if (next == Rings::Next::Entry) status = check(d, *work_);
    }
    const Work& w = d.held ? *d.held : *work_;
    if (status == Status::Ok) status = gather(d, w);
    if (status != Status::Ok) {
      if (status == Status::Absent) {
        d.waits = d.rings->absent({.of = Absence::Of::Source, .handle = w.handle, .packet = w.length});
        status = Status::LocalProtection;
      }
      if (d.waits) {
        if (!d.held) d.held = std::make_unique<Work>(w);
        return false;
      }
      d.rings->complete_work(w.handle, true, status, 0);
      fail(d, true, status);
      return false;
    }
    if (!send(d, w)) {
      if (!d.held) d.held = std::make_unique<Work>(w);
      return true;
    }
    did = true;
    d.rings->complete_work(w.handle, w.signaled, Status::Ok, w.length);
    d.held.reset();
  }
  return true;
}

Status Datagrams::check(const Datagram& d, const Work& w) {
  if (w.op != Op::Send && w.op != Op::SendImmediate) return Status::LocalQpOperation;
  if (w.length > d.attributes.mtu) return Status::LocalLength;  // IBTA 9.8.3: a message of one packet
  return Status::Ok;
}

Status Datagrams::gather(Datagram& d, const Work& w) {
  gathered_.clear();
  if (w.inline_bytes != 0) {
    gathered_.push_back({const_cast<uint8_t*>(w.data), w.length});
    return Status::Ok;
  }
  Spans spans;
  for (unsigned i = 0; i < w.sges; i++) {
    for (uint64_t done = 0; done < w.sge[i].bytes;) {
      uint64_t covered = 0;
      const Status status =
          d.rings->reach(w.sge[i].key, w.sge[i].va + done, w.sge[i].bytes - done, 0, false, spans, covered);
      if (status != Status::Ok) return status;
      if (covered == 0) return Status::LocalProtection;
      gathered_.insert(gathered_.end(), spans.span, spans.span + spans.count);
      done += covered;
    }
  }
  return Status::Ok;
}

// False: the port has no room.
bool Datagrams::send(Datagram& d, const Work& w) {
  wire::Header h;
  h.opcode = w.op == Op::SendImmediate ? send_only_immediate : send_only;
  h.flags = w.solicited ? wire::Header::Solicited : 0;
  h.pkey = d.attributes.pkey;
  h.dest_qp = w.dest_qp & roce::mask24;
  h.psn = d.attributes.sq_psn;
  h.payload = static_cast<uint32_t>(w.length);
  h.copy = true;  // the entry completes now, and its memory is the program's again
  h.udp_source = static_cast<uint16_t>(0xc000 | ((d.qpn * 0x9e37'79b1u) ^ (h.dest_qp * 0x85eb'ca6bu)) >> 18);
  h.hop_limit = w.address.hop_limit;
  h.traffic_class = w.address.traffic_class;
  h.immediate = w.op == Op::SendImmediate ? w.immediate : 0;
  h.qkey = w.qkey & privileged_qkey ? d.attributes.qkey : w.qkey;
  h.src_qp = d.source;
  std::memcpy(h.dmac, w.address.dmac, 6);
  std::memcpy(h.smac, w.address.smac, 6);
  std::memcpy(h.sgid, w.address.sgid, 16);
  std::memcpy(h.dgid, w.address.dgid, 16);
  if (!port_.send(h, gathered_.data(), gathered_.size())) return false;
  d.attributes.sq_psn = (d.attributes.sq_psn + 1) & roce::mask24;
  stats_.packets_sent++;
  stats_.bytes_sent += w.length;
  stats_.sent.count(h);
  // Members on this NIC get it too, the sender if it is one: the wire does not bring it back.
  if (h.dest_qp == roce::multicast_qp && groups()) to_group(h, gathered_.data(), gathered_.size());
  return true;
}

void Datagrams::fail(Datagram& d, bool requester, Status status) {
  d.attributes.state = State::Err;
  forget(d);
  d.rings->failed(requester, status);
}

// ---- Receiving ---------------------------------------------------------------------------------------------------

// What cannot be taken is dropped without a word (IBTA 9.8.3.2, 9.9.3, class of datagrams).
void Datagrams::packet(const wire::Header& h, const Span* payload, size_t spans) {
  if (h.dest_qp == roce::multicast_qp) return to_group(h, payload, spans);
  Datagram* d = find(h.dest_qp);
  if (!d) return drop(Drop::UnknownQp);
  deliver(*d, h, payload, spans);
}

void Datagrams::to_group(const wire::Header& h, const Span* payload, size_t spans) {
  Gid group;
  std::memcpy(group.data(), h.dgid, group.size());
  const auto found = groups_.find(group);
  if (found == groups_.end()) return drop(Drop::UnknownQp);
  for (const uint32_t qpn : found->second) {
    if (Datagram* d = find(qpn)) deliver(*d, h, payload, spans);
  }
}

void Datagrams::deliver(Datagram& d, const wire::Header& h, const Span* payload, size_t spans) {
  const Attributes& a = d.attributes;
  if (a.state < State::Rtr || a.state == State::Err) return drop(Drop::State);
  if ((h.opcode != send_only && h.opcode != send_only_immediate) || h.psns != 1) return drop(Drop::Transport);
  if (((h.pkey ^ a.pkey) & 0x7fff) != 0) return drop(Drop::Pkey);
  if (h.qkey != a.qkey) return drop(Drop::Qkey);

  Receive r;
  Status status = Status::LocalQpOperation;
  const Rings::Next next = d.rings->next_receive(r, status);
  if (next == Rings::Next::None) return drop(Drop::NoReceive);
  if (next == Rings::Next::Entry) {
    uint8_t header[grh_bytes];
    network_header(h, header);
    const Span first{header, grh_bytes};
    status = uint64_t{grh_bytes} + h.payload > r.length ? Status::LocalLength
                                                        : scatter(*d.rings, r.sge, r.sges, 0, grh_bytes, &first, 1);
    if (status == Status::Ok && h.payload > 0)
      status = scatter(*d.rings, r.sge, r.sges, grh_bytes, h.payload, payload, spans);
    if (status == Status::Absent) status = Status::LocalProtection;  // nobody sends it again
  }
  Arrival arrival{};
  arrival.status = status;
  arrival.datagram = &h;
  if (status == Status::Ok) {
    arrival.bytes = grh_bytes + h.payload;
    arrival.immediate = h.immediate;
    arrival.has_immediate = h.opcode == send_only_immediate;
    arrival.solicited = (h.flags & wire::Header::Solicited) != 0;
  }
  d.rings->complete_receive(r.handle, arrival);
  if (status != Status::Ok) fail(d, false, status);
}

}  // namespace userdma::soft::transport
