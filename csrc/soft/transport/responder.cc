// The answering side of a pair: checks each request in the order of IBTA volume 1, 9.7.4 (PSN, opcode sequence,
// operation, resources, length, keys), executes it, and answers (9.7.5; errors: 9.9.3).
//
// What is owed is kept as state and sent by respond(): a full port, or answers that come to be while packets arrive,
// lose nothing, and one acknowledgement covers all that arrived before it.
#include <algorithm>
#include <cstring>

#include "hw/roce.h"
#include "soft/transport/engine.h"
#include "soft/transport/pair.h"

namespace userdma::soft::transport {

namespace roce = hw::roce;

namespace {

constexpr uint8_t positive = roce::syndrome_ack | roce::credits_invalid;

// The lengths that a packet may have at its place in a message (IBTA 9.7.4.1.6): whole MTUs until the last.
bool sized(const Pair& p, const wire::Header& h, const roce::Traits& t) {
  if (h.psns != psns_of(h.payload, p.mtu_shift)) return false;
  if (!t.last) return h.payload > 0 && (h.payload & (p.mtu() - 1)) == 0;
  return t.first || h.payload > 0;
}

// Whether all of a request's range may be accessed, now or later. A range of nothing names no key (IBTA 9.4.3, 9.4.4).
bool reachable(Pair& p, const wire::Header& h, uint64_t bytes, uint8_t need) {
  if (bytes == 0) return true;
  Spans spans;
  uint64_t covered = 0;
  const Status status = p.rings->reach(h.rkey, h.va, bytes, need, true, spans, covered);
  return status == Status::Ok ? covered > 0 : status == Status::Absent;
}

// The 8 bytes at `at`, as one access where the memory lets it be one.
uint64_t execute_atomic(const wire::Header& h, uint8_t* at) {
  const bool swap = h.opcode == roce::CompareSwap;
  if ((reinterpret_cast<uintptr_t>(at) & 7) == 0) {
    auto* word = reinterpret_cast<uint64_t*>(at);
    if (!swap) return __atomic_fetch_add(word, h.swap_or_add, __ATOMIC_SEQ_CST);
    uint64_t expected = h.compare;
    __atomic_compare_exchange_n(word, &expected, h.swap_or_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
  }
  uint64_t original;
  std::memcpy(&original, at, sizeof original);
  const uint64_t value = swap ? (original == h.compare ? h.swap_or_add : original) : original + h.swap_or_add;
  std::memcpy(at, &value, sizeof value);
  return original;
}

}  // namespace

void Engine::request_arrived(Pair& p, const wire::Header& h, const Span* payload, size_t spans) {
  const uint32_t ahead = psn_sub(h.psn, p.expected_psn);
  if (ahead != 0) [[unlikely]] {
    if (ahead >= roce::psn_half) return duplicate(p, h);
    // IBTA 9.7.5.1.2: one NAK for a gap; the rest of what follows the gap is thrown away until it is filled.
    if (p.nak_sent) return drop(Drop::Sequence);
    p.nak_sent = true;
    p.answer = Pair::Answer::Sequence;
    return activate(p);
  }
  if (p.holds) [[unlikely]]
    return hold(p);
  p.nak_sent = false;
  const roce::Traits& t = roce::traits[h.opcode];
  const Pair::Message message = t.kind == roce::Kind::Send    ? Pair::Message::Send
                                : t.kind == roce::Kind::Write ? Pair::Message::Write
                                                              : Pair::Message::None;
  // IBTA 9.7.4.1.2: a message in progress goes on, and only a first packet begins one.
  const bool follows = p.message == Pair::Message::None ? t.first : !t.first && p.message == message;
  if (t.kind == roce::Kind::Unknown || !follows) [[unlikely]]
    return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
  switch (t.kind) {
    case roce::Kind::Send:
      return send_arrived(p, h, payload, spans);
    case roce::Kind::Write:
      return write_arrived(p, h, payload, spans);
    case roce::Kind::ReadRequest:
      return read_arrived(p, h);
    default:
      return atomic_arrived(p, h);
  }
}

// The packet was executed: the next one is expected.
void Engine::accepted(Pair& p, const wire::Header& h, bool last) {
  p.expected_psn = psn_add(p.expected_psn, h.psns);
  if (last) {
    p.message = Pair::Message::None;
    p.msn = psn_add(p.msn, 1);
  }
  // An answer to something earlier that has not gone out is implied by what comes later.
  if (h.flags & wire::Header::AckRequest) {
    p.answer = Pair::Answer::Ack;
    activate(p);
  } else if (p.answer != Pair::Answer::Ack) {
    p.answer = Pair::Answer::None;
  }
}

// Takes a receive for a message. False: there is none (an RNR NAK will say so), or it is bad (the pair failed).
bool Engine::take_receive(Pair& p) {
  Status status = Status::LocalQpOperation;
  switch (p.rings->next_receive(p.receive, status)) {
    case Rings::Next::Entry:
      p.receiving = true;
      return true;
    case Rings::Next::None:
      // IBTA 9.7.5.2.8: what follows is dropped silently until the requester comes back with this PSN.
      p.nak_sent = true;
      p.answer = Pair::Answer::Rnr;
      activate(p);
      return false;
    case Rings::Next::Bad:
      break;
  }
  p.receiving = true;
  refuse(p, roce::NakRemoteOperation, status == Status::Ok ? Status::LocalQpOperation : status);
  return false;
}

void Engine::send_arrived(Pair& p, const wire::Header& h, const Span* payload, size_t spans) {
  const roce::Traits& t = roce::traits[h.opcode];
  if (t.first) {
    if (!p.receiving && !take_receive(p)) return;  // one that came before and waited for memory has taken it
    p.received = 0;
  }
  if (!sized(p, h, t)) return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
  if (p.received + h.payload > p.receive.length)
    return refuse(p, roce::NakInvalidRequest, Status::LocalLength);  // IBTA 9.7.4.1.6
  if (h.payload > 0) {
    const Receive& r = p.receive;
    const Status status = scatter(*p.rings, r.sge, r.sges, p.received, h.payload, payload, spans);
    if (status != Status::Ok) [[unlikely]] {
      if (status != Status::Absent)
        return refuse(p, roce::NakRemoteOperation, status);  // IBTA 9.7.5.2.7: its own memory is at fault
      return absent(p, {.of = Absence::Of::Receive, .handle = r.handle, .done = p.received, .packet = h.payload});
    }
    p.received += h.payload;
  }
  if (t.last) {
    if (t.invalidate && !p.rings->invalidate(h.immediate)) [[unlikely]]
      return refuse(p, 0, Status::RemoteInvalidRequest);  // class J (IBTA 9.9.3.1): fails, with no NAK
    p.receiving = false;
    Arrival a;
    a.status = Status::Ok;
    a.bytes = p.received;
    a.immediate = h.immediate;
    a.has_immediate = t.immediate;
    a.invalidated = t.invalidate;
    a.write = false;
    a.solicited = (h.flags & wire::Header::Solicited) != 0;
    p.rings->complete_receive(p.receive.handle, a);
  } else {
    p.message = Pair::Message::Send;
  }
  accepted(p, h, t.last);
}

void Engine::write_arrived(Pair& p, const wire::Header& h, const Span* payload, size_t spans) {
  const roce::Traits& t = roce::traits[h.opcode];
  if (t.first) {
    if (!(p.access & Access::RemoteWrite) || h.dma_length > roce::max_message)
      return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
    p.write_key = h.rkey;
    p.write_va = h.va;
    p.write_left = p.write_length = h.dma_length;
  }
  if (!sized(p, h, t) || (t.last ? h.payload != p.write_left : h.payload >= p.write_left))
    return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
  // The key is checked for the whole message at its first packet (IBTA 9.7.4.1.5), and again by each packet that
  // uses it.
  if (t.first && !t.last && !reachable(p, h, h.dma_length, Access::RemoteWrite))
    return refuse(p, roce::NakRemoteAccess, Status::LocalAccess);
  if (t.immediate && !p.receiving && !take_receive(p)) return;
  if (h.payload > 0) {
    const Status status =
        copy_in(*p.rings, p.write_key, p.write_va, h.payload, Access::RemoteWrite, true, payload, spans, 0);
    if (status != Status::Ok) [[unlikely]] {
      if (status != Status::Absent) return refuse(p, roce::NakRemoteAccess, Status::LocalAccess);
      return absent(p, {.of = Absence::Of::Write,
                        .done = p.write_length - p.write_left,
                        .packet = h.payload,
                        .rkey = p.write_key,
                        .remote = p.write_va,
                        .left = p.write_left});
    }
    p.write_va += h.payload;
    p.write_left -= h.payload;
  }
  if (t.immediate) {
    p.receiving = false;
    Arrival a;
    a.status = Status::Ok;
    a.bytes = p.write_length;
    a.immediate = h.immediate;
    a.has_immediate = true;
    a.invalidated = false;
    a.write = true;
    a.solicited = (h.flags & wire::Header::Solicited) != 0;
    p.rings->complete_receive(p.receive.handle, a);
  }
  if (!t.last) p.message = Pair::Message::Write;
  accepted(p, h, t.last);
}

void Engine::read_arrived(Pair& p, const wire::Header& h) {
  if (!(p.access & Access::RemoteRead) || h.dma_length > roce::max_message)
    return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
  // IBTA 9.7.4.1.4: the requester was told how many it may have outstanding.
  if (p.owed - p.owed_again >= p.max_dest_rd_atomic)
    return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
  if (!reachable(p, h, h.dma_length, Access::RemoteRead)) return refuse(p, roce::NakRemoteAccess, Status::LocalAccess);
  Response r{};
  r.psn = r.first = p.expected_psn;
  r.end = psn_add(p.expected_psn, psns_of(h.dma_length, p.mtu_shift));
  r.rkey = h.rkey;
  r.va = h.va;
  r.length = h.dma_length;
  p.responses.push_back(r);
  p.owed++;
  p.expected_psn = r.end;
  p.msn = psn_add(p.msn, 1);
  p.answer = Pair::Answer::None;  // the response acknowledges what came before
  activate(p);
}

void Engine::atomic_arrived(Pair& p, const wire::Header& h) {
  if (!(p.access & Access::RemoteAtomic) || (h.va & 7) != 0)
    return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
  if (p.owed - p.owed_again >= p.max_dest_rd_atomic)
    return refuse(p, roce::NakInvalidRequest, Status::RemoteInvalidRequest);
  Spans spans;
  uint64_t covered = 0;
  const Status status = p.rings->reach(h.rkey, h.va, 8, Access::RemoteAtomic, true, spans, covered);
  if (status == Status::Absent) [[unlikely]]
    return absent(p, {.of = Absence::Of::Atomic, .packet = 8, .rkey = h.rkey, .remote = h.va, .left = 8});
  if (status != Status::Ok || covered != 8 || spans.count != 1)
    return refuse(p, roce::NakRemoteAccess, Status::LocalAccess);
  Response r{};
  r.atomic = true;
  r.psn = r.first = p.expected_psn;
  r.end = psn_add(p.expected_psn, 1);
  r.value = execute_atomic(h, spans.span[0].at);
  p.responses.push_back(r);
  p.owed++;
  p.results[p.result_next] = Result{r.psn, r.value};
  p.result_next = (p.result_next + 1) % p.results.size();
  p.expected_psn = r.end;
  p.msn = psn_add(p.msn, 1);
  p.answer = Pair::Answer::None;
  activate(p);
}

// A request that was executed before (IBTA 9.7.4.3.2, 9.7.5.1.5): its answer may have been lost.
void Engine::duplicate(Pair& p, const wire::Header& h) {
  stats_.duplicates++;
  const roce::Traits& t = roce::traits[h.opcode];
  switch (t.kind) {
    case roce::Kind::Send:
    case roce::Kind::Write:
      if (psn_sub(p.expected_psn, h.psn) < h.psns) {
        // A large packet of which a part is new. Which part depends on where it was cut: the requester is told
        // where to go on.
        p.nak_sent = true;
        p.answer = Pair::Answer::Sequence;
      } else if (p.answer == Pair::Answer::None) {
        p.answer = Pair::Answer::Ack;
      }
      return activate(p);
    case roce::Kind::ReadRequest:
      return duplicate_read(p, h);
    case roce::Kind::Atomic: {
      const uint32_t psn = h.psn & roce::mask24;
      for (size_t i = p.response_head; i < p.responses.size(); i++)
        if (p.responses[i].atomic && p.responses[i].first == psn) return activate(p);  // still to be sent
      for (const Result& result : p.results) {
        if (result.psn != psn) continue;
        Response r{};
        r.atomic = r.again = true;
        r.psn = r.first = psn;
        r.end = psn_add(psn, 1);
        r.value = result.value;
        const auto later = [&p, psn](const Response& other) {
          return psn_sub(p.expected_psn, other.first) < psn_sub(p.expected_psn, psn);
        };
        const auto begin = p.responses.begin() + static_cast<std::ptrdiff_t>(p.response_head);
        p.responses.insert(std::find_if(begin, p.responses.end(), later), r);
        p.owed++;
        p.owed_again++;
        return activate(p);
      }
      return drop(Drop::Stale);
    }
    default:
      return drop(Drop::Stale);
  }
}

// Executed again, after the same checks: from where the requester wants it.
void Engine::duplicate_read(Pair& p, const wire::Header& h) {
  const uint32_t psn = h.psn & roce::mask24;
  const uint32_t psns = psns_of(h.dma_length, p.mtu_shift);
  const uint32_t age = psn_sub(p.expected_psn, psn);
  if (!(p.access & Access::RemoteRead) || h.dma_length > roce::max_message || age < psns) return drop(Drop::Stale);
  if (!reachable(p, h, h.dma_length, Access::RemoteRead)) {
    // Whoever still waits for it must know; that it once was allowed is no fault of this pair.
    p.answer = Pair::Answer::Refusal;
    p.refusal = roce::NakRemoteAccess;
    p.refusal_psn = psn;
    return activate(p);
  }
  auto at = p.responses.begin() + static_cast<std::ptrdiff_t>(p.response_head);
  for (; at != p.responses.end(); ++at) {
    const uint64_t into = psn_sub(psn, at->first);
    if (!at->atomic && at->rkey == h.rkey && into < psn_sub(at->end, at->first) &&
        at->va + (into << p.mtu_shift) == h.va) {
      // Still being answered: what has not been sent yet will be, what has is sent again.
      if (psn_sub(p.expected_psn, at->psn) < age) {
        at->psn = psn;
        at->started = false;
      }
      return activate(p);
    }
    if (psn_sub(p.expected_psn, at->first) < age) break;
  }
  // The requester has no more outstanding than are kept; more are copies that the wire made.
  if (p.owed_again >= p.max_dest_rd_atomic) return drop(Drop::Stale);
  Response r{};
  r.again = true;
  r.psn = r.first = psn;
  r.end = psn_add(psn, psns);
  r.rkey = h.rkey;
  r.va = h.va;
  r.length = h.dma_length;
  p.responses.insert(at, r);
  p.owed++;
  p.owed_again++;
  activate(p);
}

// The pair fails for the request at the expected PSN: its NAK goes out after what is owed to earlier ones, and
// nothing after it (IBTA 9.9.3.1, classes A and C). A syndrome of 0: no NAK.
void Engine::refuse(Pair& p, uint8_t syndrome, Status status) {
  const bool receiving = p.receiving;
  const uint32_t handle = p.receive.handle;
  std::vector<Response> owed;
  owed.swap(p.responses);
  const size_t owed_head = p.response_head;
  const uint32_t owed_count = p.owed, owed_again = p.owed_again;
  const bool holds_response = p.holds_response;
  stop(p);
  p.responses.swap(owed);
  p.response_head = owed_head;
  p.owed = owed_count;
  p.owed_again = owed_again;
  p.holds_response = holds_response;
  p.state = State::Err;
  if (syndrome != 0) {
    p.refused = true;
    p.answer = Pair::Answer::Refusal;
    p.refusal = syndrome;
    p.refusal_psn = p.expected_psn;
    activate(p);
  } else {
    p.forget_responses();
  }
  if (receiving) {
    Arrival a{};
    a.status = status;
    p.rings->complete_receive(handle, a);
  }
  p.rings->failed(false, status);
}

// Sends what is owed. False: the port has no room, or the budget is spent.
bool Engine::respond(Pair& p, unsigned& budget, bool& did) {
  if (!p.owes() && p.answer == Pair::Answer::None) return true;
  if (p.state == State::Err && !p.refused) return true;
  while (p.owes()) {
    if (p.holds_response) [[unlikely]]
      return true;
    if (budget == 0) return false;
    Response& r = p.responses[p.response_head];
    if (r.atomic) {
      wire::Header& h = begin_packet(p, roce::AtomicAcknowledge, 0, r.psn);
      h.syndrome = positive;
      h.msn = p.msn;
      h.swap_or_add = r.value;
      if (!transmit(p, 1, nullptr, 0, 0)) return false;
      r.psn = r.end;
    } else {
      switch (respond_read(p, r)) {
        case Sent::Yes:
          break;
        case Sent::NoRoom:
          return false;
        case Sent::Wait:
          return true;
        default:
          did = true;
          refuse_response(p, r);
          continue;
      }
    }
    budget--;
    did = true;
    if (r.psn == r.end) p.pop_response();
  }
  if (p.answer == Pair::Answer::None) return true;
  if (budget == 0) return false;
  uint8_t syndrome = positive;
  uint32_t psn = p.expected_psn;
  switch (p.answer) {
    case Pair::Answer::None:
      break;
    case Pair::Answer::Ack:
      psn = psn_sub(psn, 1);
      break;
    case Pair::Answer::Sequence:
      syndrome = roce::NakSequence;
      break;
    case Pair::Answer::Rnr:
      syndrome = roce::syndrome_rnr_nak | p.min_rnr_timer;
      break;
    case Pair::Answer::Refusal:
      syndrome = p.refusal;
      psn = p.refusal_psn;
      break;
  }
  wire::Header& h = begin_packet(p, roce::Acknowledge, 0, psn);
  h.syndrome = syndrome;
  h.msn = p.msn;
  if (!transmit(p, 1, nullptr, 0, 0)) return false;
  if (p.answer == Pair::Answer::Sequence) stats_.sequence_naks_sent++;
  if (p.answer == Pair::Answer::Rnr) stats_.rnr_naks_sent++;
  if (p.answer == Pair::Answer::Refusal) stats_.naks_sent++;
  p.answer = Pair::Answer::None;
  p.refused = false;
  budget--;
  did = true;
  return true;
}

// The memory went away since (IBTA 9.7.4.1.5): the requester hears of it instead of the data.
void Engine::refuse_response(Pair& p, const Response& r) {
  p.expected_psn = p.refusal_psn = r.psn;
  p.refusal = roce::NakRemoteAccess;
  p.forget_responses();
  if (p.state != State::Err) refuse(p, roce::NakRemoteAccess, Status::LocalAccess);
}

// One packet of a read's response.
Engine::Sent Engine::respond_read(Pair& p, Response& r) {
  const uint64_t offset = uint64_t{psn_sub(r.psn, r.first)} << p.mtu_shift;
  uint64_t bytes = std::min<uint64_t>(r.length - offset, p.largest);
  spans_.count = 0;
  if (bytes > 0) {
    uint64_t covered = 0;
    Status status = p.rings->reach(r.rkey, r.va + offset, bytes, Access::RemoteRead, true, spans_, covered);
    if (status == Status::Ok && covered < bytes) {
      // Too many spans for so large a packet, or the rest is absent: as many whole MTUs as there are.
      const uint64_t whole = covered & ~uint64_t{p.mtu() - 1};
      if (whole == 0) {
        Spans rest;
        uint64_t more = 0;
        status = p.rings->reach(r.rkey, r.va + offset + covered, bytes - covered, Access::RemoteRead, true, rest, more);
        if (status == Status::Ok) return Sent::Failed;
      } else {
        bytes = whole;
      }
    }
    if (status != Status::Ok) [[unlikely]] {
      p.holds_response = status == Status::Absent && p.rings->absent({.of = Absence::Of::Read,
                                                                      .done = offset,
                                                                      .packet = bytes,
                                                                      .rkey = r.rkey,
                                                                      .remote = r.va + offset,
                                                                      .left = r.length - offset});
      return p.holds_response ? Sent::Wait : Sent::Failed;
    }
    if (covered > bytes) {
      uint64_t over = covered - bytes;
      while (over > 0) {
        Span& last = spans_.span[spans_.count - 1];
        const uint64_t cut = std::min(over, last.bytes);
        last.bytes -= cut;
        over -= cut;
        if (last.bytes == 0) spans_.count--;
      }
    }
  }
  const bool first = !r.started;
  const bool last = offset + bytes == r.length;
  const uint8_t opcode = first ? (last ? roce::ReadResponseOnly : roce::ReadResponseFirst)
                               : (last ? roce::ReadResponseLast : roce::ReadResponseMiddle);
  const uint32_t psns = psns_of(bytes, p.mtu_shift);
  wire::Header& h = begin_packet(p, opcode, 0, r.psn);
  if (roce::traits[opcode].aeth) {
    h.syndrome = positive;
    h.msn = p.msn;
  }
  if (!transmit(p, psns, spans_.span, spans_.count, bytes)) return Sent::NoRoom;
  r.started = true;
  r.psn = psn_add(r.psn, psns);
  return Sent::Yes;
}

// ---- Memory that is not there yet. The requester is told to come again as if it had found no receive
// (IBTA 9.7.5.2.8), with whatever it does; but a read was accepted when its memory is wanted, and its response waits.

void Engine::absent(Pair& p, const Absence& absence) {
  const bool receive = absence.of == Absence::Of::Receive;
  if (!p.rings->absent(absence)) return refuse_absent(p, receive);
  p.holds = true;
  p.holds_receive = receive;
  hold(p);
}

void Engine::hold(Pair& p) {
  p.nak_sent = true;
  p.answer = Pair::Answer::Rnr;
  activate(p);
}

void Engine::refuse_absent(Pair& p, bool receive) {
  if (receive) return refuse(p, roce::NakRemoteOperation, Status::LocalProtection);
  refuse(p, roce::NakRemoteAccess, Status::LocalAccess);
}

void Engine::resume_responder(Pair& p, bool there) {
  if (!p.holds) return;
  p.holds = false;
  if (!there) refuse_absent(p, p.holds_receive);
}

void Engine::resume_response(Pair& p, bool there) {
  if (!p.holds_response) return;
  p.holds_response = false;
  if (!there && p.owes()) refuse_response(p, p.responses[p.response_head]);
  activate(p);
}

}  // namespace userdma::soft::transport
