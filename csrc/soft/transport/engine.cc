#include "soft/transport/engine.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "hw/roce.h"
#include "soft/transport/pair.h"

namespace userdma::soft::transport {

namespace roce = hw::roce;

namespace {

// Packets that a pair sends before the next one gets its turn.
constexpr unsigned turn_packets = 64;

// PSNs of sends and writes outstanding at most: enough to keep a wire busy, few enough that going back is cheap.
// Where one packet stands for many PSNs, that many packets of those.
constexpr uint32_t window_psns = 512;
constexpr uint32_t window_large_packets = 8;

bool same_gid(const uint8_t* a, const uint8_t* b) { return std::memcmp(a, b, 16) == 0; }

// With thousands of pairs, what one needs is in no cache: the lines are asked for at once, not one after the other.
inline void prefetch_requester(const Pair& p) {
  __builtin_prefetch(&p.head, 1);
  __builtin_prefetch(&p.records, 1);
  __builtin_prefetch(&p.header, 1);
  __builtin_prefetch(&p.header.sgid, 1);
}
inline void prefetch_responder(const Pair& p) {
  __builtin_prefetch(&p.expected_psn, 1);
  __builtin_prefetch(&p.header, 1);
  __builtin_prefetch(&p.header.sgid, 1);
  __builtin_prefetch(&p.receive, 1);
  __builtin_prefetch(&p.mtu_shift, 1);
}

// Flow entropy for the UDP source port, of the range that annex A17 recommends (A17.9.2: 0xc000 to 0xffff).
uint16_t udp_source(uint32_t qpn, uint32_t dest_qp) {
  const uint32_t mix = (qpn * 0x9e37'79b1u) ^ (dest_qp * 0x85eb'ca6bu);
  return static_cast<uint16_t>(0xc000 | (mix >> 18));
}

}  // namespace

Engine::Engine(wire::Port& port) : port_(port), datagrams_(port, stats_), work_(std::make_unique<Work>()) {}

Engine::~Engine() = default;

bool Engine::create(uint32_t qpn, Rings* rings, Service service, std::optional<uint32_t> source) {
  if (qpn > roce::mask24 || find(qpn) || datagrams_.has(qpn)) return false;
  if (service == Service::Datagram) return datagrams_.create(qpn, rings, source.value_or(qpn) & roce::mask24);
  const size_t leaf = qpn >> leaf_bits;
  if (leaf >= leaves_.size()) leaves_.resize(leaf + 1);
  if (!leaves_[leaf]) leaves_[leaf] = std::make_unique<Leaf>();
  auto pair = std::make_unique<Pair>();
  pair->qpn = qpn;
  pair->rings = rings;
  reset(*pair);
  leaves_[leaf]->at[qpn & (leaf_entries - 1)] = std::move(pair);
  pairs_++;
  return true;
}

bool Engine::destroy(uint32_t qpn) {
  Pair* p = find(qpn);
  if (!p) return datagrams_.destroy(qpn);
  forget_ready(*p);
  timers_.remove(*p);
  if (work_pair_ == p) work_pair_ = nullptr;
  leaves_[qpn >> leaf_bits]->at[qpn & (leaf_entries - 1)].reset();
  pairs_--;
  return true;
}

bool Engine::modify(uint32_t qpn, const Attributes& a, uint32_t fields) {
  Pair* p = find(qpn);
  if (!p) return datagrams_.modify(qpn, a, fields);
  Attributes& to = p->attributes;
  const auto has = [fields](uint32_t field) { return (fields & field) != 0; };
  const bool moves = has(Attributes::HasState);
  if (moves && a.state == State::Reset) reset(*p);

  if (has(Attributes::HasAccess)) to.access = a.access;
  if (has(Attributes::HasPkey)) to.pkey = a.pkey;
  if (has(Attributes::HasDestQp)) to.dest_qp = a.dest_qp & roce::mask24;
  if (has(Attributes::HasMtu)) to.mtu = std::bit_floor(std::clamp(a.mtu, 256u, 8192u));
  if (has(Attributes::HasDmac)) std::memcpy(to.dmac, a.dmac, 6);
  if (has(Attributes::HasSmac)) std::memcpy(to.smac, a.smac, 6);
  if (has(Attributes::HasSgid)) std::memcpy(to.sgid, a.sgid, 16);
  if (has(Attributes::HasDgid)) std::memcpy(to.dgid, a.dgid, 16);
  if (has(Attributes::HasHopLimit)) to.hop_limit = a.hop_limit;
  if (has(Attributes::HasTrafficClass)) to.traffic_class = a.traffic_class;
  if (has(Attributes::HasUdpSource)) to.udp_source = a.udp_source;
  if (has(Attributes::HasTimeout)) to.timeout = a.timeout & 31;
  if (has(Attributes::HasRetry)) to.retry = a.retry & 7;
  if (has(Attributes::HasRnrRetry)) to.rnr_retry = a.rnr_retry & 7;
  if (has(Attributes::HasMinRnrTimer)) to.min_rnr_timer = a.min_rnr_timer & 31;
  if (has(Attributes::HasMaxRdAtomic)) to.max_rd_atomic = a.max_rd_atomic;
  if (has(Attributes::HasMaxDestRdAtomic)) to.max_dest_rd_atomic = a.max_dest_rd_atomic;
  if (has(Attributes::HasRqPsn) && !p->owes() && p->message == Pair::Message::None) {
    to.rq_psn = a.rq_psn & roce::mask24;
    p->expected_psn = to.rq_psn;
  }
  if (has(Attributes::HasSqPsn) && p->head == p->tail) {
    to.sq_psn = a.sq_psn & roce::mask24;
    p->una = p->next_psn = p->max_psn = to.sq_psn;
  }

  wire::Header& h = p->header;
  h.pkey = to.pkey;
  h.dest_qp = to.dest_qp;
  h.hop_limit = to.hop_limit;
  h.traffic_class = to.traffic_class;
  h.udp_source = to.udp_source ? to.udp_source : udp_source(qpn, to.dest_qp);
  std::memcpy(h.dmac, to.dmac, 6);
  std::memcpy(h.smac, to.smac, 6);
  std::memcpy(h.sgid, to.sgid, 16);
  std::memcpy(h.dgid, to.dgid, 16);

  // The path MTU gives every packet in flight its place: it stays while there are any.
  if (p->head == p->tail && !p->owes() && p->message == Pair::Message::None) {
    p->mtu_shift = static_cast<uint8_t>(std::countr_zero(to.mtu));
    const uint32_t largest = port_.largest(to.mtu);
    p->largest = std::max(to.mtu, largest - largest % to.mtu);
    const uint32_t unit = p->largest >> p->mtu_shift;
    p->window_max = std::min(std::max(window_psns, window_large_packets * unit), roce::psn_half / 4);
    p->window_min = std::min(std::max(8u, 2 * unit), p->window_max);
    p->window = p->window_max;
  }
  p->ack_timeout = roce::ack_timeout_ns(to.timeout);
  p->retry = to.retry;
  p->rnr_retry = to.rnr_retry;
  p->max_rd_atomic = to.max_rd_atomic;
  p->max_dest_rd_atomic = to.max_dest_rd_atomic;
  p->min_rnr_timer = to.min_rnr_timer;
  p->access = to.access;
  p->responses.reserve(size_t{2} * to.max_dest_rd_atomic);
  if (p->results.size() != to.max_dest_rd_atomic) {
    p->results.assign(to.max_dest_rd_atomic, Result{~0u, 0});
    p->result_next = 0;
  }

  if (moves) {
    if (a.state == State::Err) {
      // A refusal that has not gone out yet still does (IBTA 9.9.3: the requester learns why).
      if (p->state != State::Err) stop(*p);
    } else {
      p->refused = false;
    }
    p->state = to.state = a.state;
    if (a.state == State::Rts) {
      p->retries_left = to.retry;
      p->rnr_left = to.rnr_retry;
      p->posted = true;  // entries may have been posted before
      activate(*p);
    }
  }
  return true;
}

bool Engine::query(uint32_t qpn, Attributes& out) const {
  const Pair* p = find(qpn);
  if (!p) return datagrams_.query(qpn, out);
  out = p->attributes;
  out.state = p->state;
  out.rq_psn = p->expected_psn;
  out.sq_psn = p->next_psn;
  return true;
}

void Engine::kick(uint32_t qpn) {
  Pair* p = find(qpn);
  if (!p) [[unlikely]]
    return datagrams_.kick(qpn);
  prefetch_requester(*p);
  p->posted = true;
  if (p->state == State::Rts) activate(*p);
}

void Engine::resume(uint32_t qpn, Absence::Of of, bool there) {
  Pair* p = find(qpn);
  if (!p) return datagrams_.resume(qpn, there);
  switch (of) {
    case Absence::Of::Source:
    case Absence::Of::Landing:
      return resume_requester(*p, there);
    case Absence::Of::Read:
      return resume_response(*p, there);
    default:
      return resume_responder(*p, there);
  }
}

void Engine::arrived(const wire::Header& h) {
  stats_.packets_received++;
  stats_.bytes_received += h.payload;
  stats_.received.count(h);
}

void Engine::packet(const wire::Header& h, const Span* payload, size_t spans) {
  if ((h.opcode & roce::transport_mask) != roce::transport_rc) [[unlikely]] {
    if (h.is_frame() && frames_) return frames_->packet(h, payload, spans);
    arrived(h);
    if ((h.opcode & roce::transport_mask) == roce::transport_ud && !find(h.dest_qp))
      return datagrams_.packet(h, payload, spans);
    return drop(Drop::Transport);
  }
  arrived(h);
  Pair* p = find(h.dest_qp);
  if (!p) [[unlikely]]
    return drop(Drop::UnknownQp);
  const bool response = roce::traits[h.opcode].response();
  if (response) {
    prefetch_requester(*p);
  } else {
    prefetch_responder(*p);
  }
  if (((h.pkey ^ p->header.pkey) & 0x7fff) != 0) [[unlikely]]  // bit 15 is the membership (IBTA 10.9.1)
    return drop(Drop::Pkey);
  if (!same_gid(h.sgid, p->header.dgid) || !same_gid(h.dgid, p->header.sgid)) [[unlikely]]
    return drop(Drop::Address);
  // IBTA 10.3.1: requests are taken from RTR on, answers from RTS on; a pair in error is silent (9.9.3.1).
  if (response) {
    if (p->state != State::Rts && p->state != State::Sqd) [[unlikely]]
      return drop(Drop::State);
    this->response(*p, h, payload, spans);
  } else {
    if (p->state < State::Rtr || p->state == State::Err) [[unlikely]]
      return drop(Drop::State);
    if (!p->heard) [[unlikely]] {
      p->heard = true;
      if (p->state == State::Rtr) p->rings->established();
    }
    request_arrived(*p, h, payload, spans);
  }
}

bool Engine::run(uint64_t now, unsigned budget) {
  bool did = false;
  while (Timer* t = timers_.take(now)) {
    expire(*static_cast<Pair*>(t), now);
    did = true;
  }
  did |= datagrams_.run(budget);
  const Pair* const last = ready_tail_;
  while (ready_head_ && budget > 0) {
    Pair& p = *ready_head_;
    forget_ready(p);
    if (work(p, now, budget, did)) activate(p);
    if (&p == last) break;
  }
  return did;
}

// One turn of a pair. True if it wants another.
bool Engine::work(Pair& p, uint64_t now, unsigned& budget, bool& did) {
  const unsigned turn = std::min(budget, turn_packets);
  unsigned left = turn;
  // Answers first: they go in the order of the requests, and a peer's progress should not wait for ours.
  bool again = !respond(p, left, did);
  if (p.posted || p.cursor != p.tail) again |= !request(p, left, did);
  budget -= turn - left;
  if (p.waits != Pair::Waits::Nothing || p.una != p.max_psn) start_timer(p, now);
  return again;
}

// Brings the timer in line with what is outstanding (IBTA 9.7.6.1.3). In run() only, where the time is known.
void Engine::start_timer(Pair& p, uint64_t now) {
  if (p.waits >= Pair::Waits::Rnr) {
    if (!p.restart || p.waits == Pair::Waits::Memory) return;
    p.deadline = now + p.rnr_wait;
  } else if (p.una == p.max_psn) {
    p.waits = Pair::Waits::Nothing;
    p.deadline = never;
    p.restart = false;
    return;
  } else {
    if (p.waits == Pair::Waits::Ack && !p.restart) return;
    p.waits = Pair::Waits::Ack;
    p.restart = false;
    if (p.ack_timeout == 0) {
      p.deadline = never;
      return;
    }
    p.deadline = now + p.ack_timeout;
  }
  p.restart = false;
  timers_.arm(p);
}

void Engine::expire(Pair& p, uint64_t now) {
  if (p.restart) return start_timer(p, now);  // there was progress since: it had not been told the time
  switch (p.waits) {
    case Pair::Waits::Nothing:
    case Pair::Waits::Memory:
      return;
    case Pair::Waits::Rnr:
      p.waits = Pair::Waits::Nothing;
      activate(p);
      return;
    case Pair::Waits::Ack:
      stats_.timeouts++;
      retry(p, true);
      if (p.waits == Pair::Waits::Ack) start_timer(p, now);
      return;
  }
}

uint64_t Engine::next_deadline() { return timers_.earliest(); }

void Engine::activate(Pair& p) {
  if (p.ready) return;
  p.ready = true;
  p.next = nullptr;
  p.previous = ready_tail_;
  (ready_tail_ ? ready_tail_->next : ready_head_) = &p;
  ready_tail_ = &p;
}

void Engine::forget_ready(Pair& p) {
  if (!p.ready) return;
  p.ready = false;
  (p.previous ? p.previous->next : ready_head_) = p.next;
  (p.next ? p.next->previous : ready_tail_) = p.previous;
}

// Nothing is in flight any more, in either direction.
void Engine::stop(Pair& p) {
  forget_ready(p);
  timers_.remove(p);
  p.deadline = never;
  p.waits = Pair::Waits::Nothing;
  p.restart = p.recovering = p.posted = false;
  p.head = p.cursor = p.tail;
  p.una = p.max_psn = p.next_psn;
  p.since_request = p.reads_outstanding = p.read_psns = 0;
  p.message = Pair::Message::None;
  p.nak_sent = p.receiving = p.refused = false;
  p.holds = p.holds_receive = p.holds_response = false;
  p.answer = Pair::Answer::None;
  p.forget_responses();
  if (work_pair_ == &p) work_pair_ = nullptr;
}

void Engine::reset(Pair& p) {
  stop(p);
  p.head = p.tail = p.cursor = 0;
  p.una = p.next_psn = p.max_psn = p.expected_psn = 0;
  p.msn = p.messages = 0;
  p.results.clear();
  p.result_next = 0;
  p.state = State::Reset;
  p.heard = false;
  p.attributes = Attributes{};
}

// Hands over the packet that begin_packet began. False: the port has no room.
bool Engine::transmit(Pair& p, uint32_t psns, const Span* payload, size_t spans, uint64_t bytes) {
  p.header.psns = psns;
  p.header.payload = static_cast<uint32_t>(bytes);
  if (!port_.send(p.header, payload, spans)) return false;
  stats_.packets_sent++;
  stats_.bytes_sent += bytes;
  stats_.sent.count(p.header);
  return true;
}

}  // namespace userdma::soft::transport
