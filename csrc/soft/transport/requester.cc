// The requesting side of a pair: entries of the send ring become packets, answers complete them, and what is lost is
// sent again (IBTA volume 1, 9.7.1 to 9.7.3 and 9.7.5 to 9.7.6; errors: 9.9.2).
#include <algorithm>

#include "hw/roce.h"
#include "soft/transport/engine.h"
#include "soft/transport/pair.h"

namespace userdma::soft::transport {

namespace roce = hw::roce;

namespace {

// A read whose response has more PSNs than this goes as several requests, so that it never takes half of all PSNs
// (IBTA 9.7.1): a read of 2^31 bytes at an MTU of 256 would.
constexpr uint32_t read_request_psns = roce::psn_half / 4;

// PSNs of all that is outstanding, reads included.
constexpr uint32_t outstanding_psns = roce::psn_half / 2;

// Spans of one packet's payload, at most, if a smaller packet can do without more.
constexpr size_t packet_spans = 256;

// What an entry says about itself must agree before any of it is sent.
Status check(const Work& w, unsigned max_rd_atomic) {
  if (w.length > roce::max_message) return Status::LocalLength;
  const bool atomic = w.op == Op::FetchAdd || w.op == Op::CompareSwap;
  if (atomic && w.length != 8) return Status::LocalLength;
  if (atomic || w.op == Op::Read) {
    if (w.inline_bytes != 0 || max_rd_atomic == 0) return Status::LocalQpOperation;
  }
  if (w.inline_bytes != 0) {
    if (w.sges != 0 || w.inline_bytes > max_inline) return Status::LocalQpOperation;
    return w.inline_bytes == w.length ? Status::Ok : Status::LocalLength;
  }
  if (w.sges == 1) [[likely]]
    return w.sge[0].bytes >= w.length ? Status::Ok : Status::LocalLength;
  if (w.sges > max_sges) return Status::LocalQpOperation;
  uint64_t room = 0;
  for (unsigned i = 0; i < w.sges; i++) room += w.sge[i].bytes;
  return room >= w.length ? Status::Ok : Status::LocalLength;
}

uint8_t data_opcode(Op op, bool first, bool last) {
  const bool write = op == Op::Write || op == Op::WriteImmediate;
  if (!last) {
    if (write) return first ? roce::WriteFirst : roce::WriteMiddle;
    return first ? roce::SendFirst : roce::SendMiddle;
  }
  switch (op) {
    case Op::Write:
      return first ? roce::WriteOnly : roce::WriteLast;
    case Op::WriteImmediate:
      return first ? roce::WriteOnlyImmediate : roce::WriteLastImmediate;
    case Op::SendImmediate:
      return first ? roce::SendOnlyImmediate : roce::SendLastImmediate;
    case Op::SendInvalidate:
      return first ? roce::SendOnlyInvalidate : roce::SendLastInvalidate;
    default:
      return first ? roce::SendOnly : roce::SendLast;
  }
}

}  // namespace

// Sends new and repeated requests while the window, the port and the budget let it.
bool Engine::request(Pair& p, unsigned& budget, bool& did) {
  if (p.waits >= Pair::Waits::Rnr || (p.state != State::Rts && p.state != State::Sqd)) return true;
  for (;;) {
    if (p.cursor == p.tail) {
      // SQD starts nothing new (IBTA 10.3.1.5). An acknowledgement that opens the window comes back here.
      if (!p.posted || p.state != State::Rts) return true;
      if (psn_sub(p.next_psn, p.una) - p.read_psns >= p.window) return true;
      if (budget == 0) return false;
      if (!fetch(p)) return true;
    }
    if (budget == 0) return false;
    Record& r = p.records[p.cursor];
    switch (r.status == Status::Ok ? send_record(p) : Sent::Failed) {
      case Sent::Yes:
        budget--;
        did = true;
        if (p.next_psn == psn_add(r.psn, r.psns)) p.cursor++;
        continue;
      case Sent::NoRoom:
        return false;
      case Sent::Wait:
        return true;
      case Sent::Failed:
        // Entries complete in order: it fails when those before it have (see settle).
        if (p.cursor == p.head) {
          did = true;
          fail_requester(p, r.status);
        }
        return true;
    }
  }
}

// Takes the next entry of the send ring and gives it its PSNs. False: there is none.
bool Engine::fetch(Pair& p) {
  Status status = Status::LocalQpOperation;
  Work& w = *work_;
  work_pair_ = nullptr;
  const Rings::Next next = p.rings->next_work(w, status);
  if (next == Rings::Next::None) {
    p.posted = false;
    return false;
  }
  p.records.reserve(p.head, p.tail);
  Record& r = p.records[p.tail];
  r.handle = w.handle;
  r.msn = p.messages;
  r.psn = p.next_psn;
  r.fence = r.signaled = false;
  r.sges = 0;
  r.op = Op::Send;
  r.length = 0;
  if (next == Rings::Next::Entry) [[likely]] {
    r.op = w.op;
    r.signaled = w.signaled;
    r.fence = w.fence;
    r.length = w.length;
    r.sges = w.sges;
    if (w.sges == 1) r.sge = w.sge[0];
    status = check(w, p.max_rd_atomic);
  } else if (status == Status::Ok) {
    status = Status::LocalQpOperation;
  }
  r.status = status;
  r.psns = status == Status::Ok && r.op != Op::Local ? psns_of(r.length, p.mtu_shift) : 0;
  p.messages += r.psns != 0;
  work_pair_ = &p;
  work_position_ = p.tail++;
  return true;
}

// The entry at `position`: kept from when it was last read, or read again.
const Work* Engine::load(Pair& p, uint32_t position) {
  if (work_pair_ == &p && work_position_ == position) [[likely]]
    return work_.get();
  const Record& r = p.records[position];
  work_pair_ = nullptr;
  if (!p.rings->work_again(r.handle, r.msn, r.psn, *work_)) return nullptr;
  // What it says of itself may have changed, while its PSNs are given out.
  if (work_->op != r.op || work_->length != r.length || check(*work_, p.max_rd_atomic) != Status::Ok) return nullptr;
  work_pair_ = &p;
  work_position_ = position;
  return work_.get();
}

// One packet of the record at the cursor.
Engine::Sent Engine::send_record(Pair& p) {
  Record& r = p.records[p.cursor];
  const uint32_t at = psn_sub(p.next_psn, r.psn);
  // IBTA 10.8.3.3: a fenced entry starts when the reads and atomics before it have completed.
  if (r.fence && at == 0 && p.reads_outstanding > 0) return Sent::Wait;
  if (r.reads() && p.reads_outstanding >= p.max_rd_atomic) return Sent::Wait;
  if (r.op == Op::Local) return perform(p, r);
  const Work* w = load(p, p.cursor);
  if (!w) {
    r.status = Status::LocalQpOperation;
    return Sent::Failed;
  }
  const uint64_t offset = uint64_t{at} << p.mtu_shift;
  switch (r.op) {
    case Op::Read:
      return send_read(p, r, *w, offset);
    case Op::FetchAdd:
    case Op::CompareSwap:
      return send_atomic(p, r, *w);
    default:
      return send_data(p, r, *w, offset);
  }
}

// What a local entry changes must not be under what was posted before it, so it waits for that to complete: stricter
// than IBTA 10.8.3.3 wants of invalidation, as it wants of registration.
Engine::Sent Engine::perform(Pair& p, Record& r) {
  if (p.cursor != p.head) return Sent::Wait;
  r.status = p.rings->perform(r.handle);
  if (r.status != Status::Ok) return Sent::Failed;
  complete_head(p);
  return Sent::Yes;
}

// Accounts for a packet that the port took.
void Engine::sent(Pair& p, uint32_t psns) {
  if (p.next_psn != p.max_psn) [[unlikely]] {
    stats_.retransmits++;
    p.next_psn = psn_add(p.next_psn, psns);
    if (psn_before(p.max_psn, p.next_psn)) p.max_psn = p.next_psn;
  } else {
    p.next_psn = p.max_psn = psn_add(p.next_psn, psns);
  }
}

Engine::Sent Engine::send_data(Pair& p, Record& r, const Work& w, uint64_t offset) {
  const uint32_t out = psn_sub(p.next_psn, p.una);
  uint64_t bytes = std::min<uint64_t>(r.length - offset, p.largest);
  uint32_t psns = psns_of(bytes, p.mtu_shift);
  const uint32_t in_window = out - p.read_psns;
  if (in_window > 0 && in_window + psns > p.window) return Sent::Wait;
  if (out + psns > outstanding_psns) return Sent::Wait;

  const Span* spans = nullptr;
  size_t count = 0;
  if (bytes > 0) {
    const Status status = gather(p, w, offset, bytes, spans, count);
    if (status != Status::Ok) [[unlikely]] {
      if (status == Status::Absent &&
          await(p, p.cursor, {.of = Absence::Of::Source, .handle = r.handle, .done = offset, .packet = bytes}))
        return Sent::Wait;
      r.status = status == Status::Absent ? Status::LocalProtection : status;
      return Sent::Failed;
    }
    psns = psns_of(bytes, p.mtu_shift);
  }
  const bool first = offset == 0;
  const bool last = offset + bytes == r.length;
  uint8_t flags = 0;
  // Every message's last packet asks for an acknowledgement, and so do packets often enough for the window to open
  // again before it closes.
  const bool asks = last || p.since_request + psns >= p.window / 4;
  if (asks) flags |= wire::Header::AckRequest;
  // IBTA 9.2.2: of a send, or a write with immediate data, in its last packet.
  if (last && w.solicited && r.op != Op::Write) flags |= wire::Header::Solicited;
  wire::Header& h = begin_packet(p, data_opcode(r.op, first, last), flags, p.next_psn);
  if (first && (r.op == Op::Write || r.op == Op::WriteImmediate)) {
    h.va = w.remote;
    h.rkey = w.rkey;
    h.dma_length = static_cast<uint32_t>(r.length);
  }
  if (last && (r.op == Op::SendImmediate || r.op == Op::WriteImmediate || r.op == Op::SendInvalidate))
    h.immediate = w.immediate;
  if (!transmit(p, psns, spans, count, bytes)) return Sent::NoRoom;
  p.since_request = asks ? 0 : p.since_request + psns;
  sent(p, psns);
  return Sent::Yes;
}

Engine::Sent Engine::send_read(Pair& p, Record& r, const Work& w, uint64_t offset) {
  // A repeated request asks for the rest of what the first asked for (IBTA 9.7.5.1.4: a retry may begin at the
  // response that is missing).
  const uint64_t part = uint64_t{read_request_psns} << p.mtu_shift;
  const uint64_t end = std::min<uint64_t>(r.length, (offset / part + 1) * part);
  const uint64_t bytes = end - offset;
  const uint32_t psns = psns_of(bytes, p.mtu_shift);
  const uint32_t out = psn_sub(p.next_psn, p.una);
  if (out > 0 && out + psns > outstanding_psns) return Sent::Wait;
  wire::Header& h = begin_packet(p, roce::ReadRequest, wire::Header::AckRequest, p.next_psn);
  h.va = w.remote + offset;
  h.rkey = w.rkey;
  h.dma_length = static_cast<uint32_t>(bytes);
  if (!transmit(p, 1, nullptr, 0, 0)) return Sent::NoRoom;
  p.since_request = 0;
  p.reads_outstanding++;
  p.read_psns += psns;
  sent(p, psns);
  return Sent::Yes;
}

Engine::Sent Engine::send_atomic(Pair& p, Record& r, const Work& w) {
  if (psn_sub(p.next_psn, p.una) >= outstanding_psns) return Sent::Wait;
  const uint8_t opcode = r.op == Op::FetchAdd ? roce::FetchAdd : roce::CompareSwap;
  wire::Header& h = begin_packet(p, opcode, wire::Header::AckRequest, p.next_psn);
  h.va = w.remote;
  h.rkey = w.rkey;
  h.swap_or_add = w.swap_or_add;
  h.compare = r.op == Op::CompareSwap ? w.compare : 0;
  if (!transmit(p, 1, nullptr, 0, 0)) return Sent::NoRoom;
  p.since_request = 0;
  p.reads_outstanding++;
  p.read_psns++;
  sent(p, 1);
  return Sent::Yes;
}

// The memory of the message's bytes [offset, offset + bytes). `bytes` shrinks to whole MTUs where it takes too many
// spans, or where the rest is absent.
Status Engine::gather(Pair& p, const Work& w, uint64_t offset, uint64_t& bytes, const Span*& spans, size_t& count) {
  if (w.inline_bytes != 0) {
    gathered_.resize(1);
    gathered_[0] = Span{const_cast<uint8_t*>(w.data) + offset, bytes};
    spans = gathered_.data();
    count = 1;
    return Status::Ok;
  }
  uint64_t covered = 0;
  if (w.sges == 1) [[likely]] {
    const Status status = p.rings->reach(w.sge[0].key, w.sge[0].va + offset, bytes, 0, false, spans_, covered);
    if (status != Status::Ok) return status;
    if (covered == bytes) [[likely]] {
      spans = spans_.span;
      count = spans_.count;
      return Status::Ok;
    }
  }
  gathered_.clear();
  uint64_t got = 0;
  for (unsigned i = 0; i < w.sges && got < bytes; i++) {
    const Sge& sge = w.sge[i];
    while (offset < sge.bytes && got < bytes) {
      if (gathered_.size() >= packet_spans && got >= p.mtu()) {
        bytes = got & ~uint64_t{p.mtu() - 1};
        break;
      }
      const uint64_t want = std::min<uint64_t>(bytes - got, sge.bytes - offset);
      const Status status = p.rings->reach(sge.key, sge.va + offset, want, 0, false, spans_, covered);
      if (status == Status::Absent && got >= p.mtu()) {
        bytes = got & ~uint64_t{p.mtu() - 1};
        break;
      }
      if (status != Status::Ok) return status;
      if (covered == 0) return Status::LocalProtection;
      gathered_.insert(gathered_.end(), spans_.span, spans_.span + spans_.count);
      offset += covered;
      got += covered;
    }
    offset -= std::min<uint64_t>(offset, sge.bytes);
  }
  // What was gathered past a shortened packet.
  while (got > bytes) {
    Span& last = gathered_.back();
    const uint64_t cut = std::min(got - bytes, last.bytes);
    last.bytes -= cut;
    got -= cut;
    if (last.bytes == 0) gathered_.pop_back();
  }
  spans = gathered_.data();
  count = gathered_.size();
  return Status::Ok;
}

// An answer to this side's requests.
void Engine::response(Pair& p, const wire::Header& h, const Span* payload, size_t spans) {
  // Only what is outstanding can be answered; the rest are ghosts of earlier tries (IBTA 9.7.5.1.3).
  if (psn_sub(h.psn, p.una) >= p.outstanding()) [[unlikely]]
    return drop(Drop::Stale);
  const roce::Traits& t = roce::traits[h.opcode];
  if (t.aeth && (h.syndrome & roce::syndrome_type_mask) != roce::syndrome_ack) [[unlikely]]
    return nak(p, h);
  switch (t.kind) {
    case roce::Kind::ReadResponse:
      return read_response(p, h, payload, spans);
    case roce::Kind::AtomicAcknowledge:
      return atomic_response(p, h);
    default: {
      const uint32_t before = p.una;
      const bool missing = !acknowledge(p, psn_add(h.psn, 1));
      if (!settle(p, before)) return;
      if (missing) {
        stats_.implied_naks++;
        retry(p, false);
      }
    }
  }
}

// All requests before PSN `end` have been answered by what arrived. False: one of them is a read or atomic whose
// response has not arrived, which an answer past it says is lost (IBTA 9.7.5.1.4, implied NAK); `una` then stands
// at it.
bool Engine::acknowledge(Pair& p, uint32_t end) {
  while (p.una != end && p.head != p.tail) {
    const Record& r = p.records[p.head];
    if (r.reads()) return false;
    if (r.psns == 0) return true;  // cannot be: nothing of it was sent
    if (psn_sub(end, r.psn) < r.psns) {
      p.una = end;
      return true;
    }
    p.una = psn_add(r.psn, r.psns);
    complete_head(p);
  }
  return true;
}

void Engine::complete_head(Pair& p) {
  const Record& r = p.records[p.head];
  p.rings->complete_work(r.handle, r.signaled, Status::Ok, r.length);
  p.head++;
}

// After answers moved `una` from `before`: counters start anew, the window opens, sending goes on. False: the pair
// failed.
bool Engine::settle(Pair& p, uint32_t before) {
  if (p.una == before) return true;
  p.retries_left = p.retry;
  p.rnr_left = p.rnr_retry;
  p.recovering = false;
  p.window = std::min(p.window_max, p.window + psn_sub(p.una, before));
  if (psn_before(p.next_psn, p.una)) {
    // An answer to an earlier try came while going back: what it answers need not be sent again.
    p.next_psn = p.una;
    p.cursor = p.head;
    p.reads_outstanding = p.read_psns = 0;
    // A request may have been answered in part, or all that is left is one that cannot be sent.
  } else if (static_cast<int32_t>(p.cursor - p.head) < 0) {
    p.cursor = p.head;
  }
  if (p.una == p.max_psn) {
    if (p.waits == Pair::Waits::Ack) {
      p.waits = Pair::Waits::Nothing;
      p.deadline = never;
      p.restart = false;
    }
  } else if (p.waits == Pair::Waits::Ack) {
    p.restart = true;
    activate(p);
  }
  if (p.cursor != p.tail) {
    const Record& r = p.records[p.head];
    if (p.cursor == p.head && r.status != Status::Ok) {
      fail_requester(p, r.status);
      return false;
    }
    activate(p);
  } else if (p.posted) {
    activate(p);
  }
  return true;
}

void Engine::read_response(Pair& p, const wire::Header& h, const Span* payload, size_t spans) {
  uint32_t before = p.una;
  const bool missing = !acknowledge(p, h.psn);
  if (!settle(p, before)) return;
  if (missing) {
    stats_.implied_naks++;
    return retry(p, false);
  }
  Record& r = p.records[p.head];
  if (p.una != h.psn || p.head == p.tail) return drop(Drop::Stale);
  if (r.op != Op::Read) return fail_requester(p, Status::BadResponse);

  // Where in the message, and in the request that asked for it, the packet is says what it must be. A response to
  // an earlier try may begin elsewhere than the last request did; its bytes are the same.
  const roce::Traits& t = roce::traits[h.opcode];
  const uint32_t at = psn_sub(h.psn, r.psn);
  const uint64_t offset = uint64_t{at} << p.mtu_shift;
  const uint64_t part = uint64_t{read_request_psns} << p.mtu_shift;
  const uint64_t end = std::min<uint64_t>(r.length, (offset / part + 1) * part);
  const uint32_t psns = psns_of(h.payload, p.mtu_shift);
  const bool sized = t.last ? offset + h.payload == end
                            : h.payload > 0 && (h.payload & (p.mtu() - 1)) == 0 && offset + h.payload < end;
  const bool placed = t.first || offset % part != 0;  // a request's response begins with FIRST or ONLY
  if (!sized || !placed || h.psns != psns) return fail_requester(p, Status::BadResponse);  // IBTA 9.9.2.4.2
  if (psns > p.outstanding()) return drop(Drop::Stale);

  if (h.payload > 0) {
    const Status status = land(p, r, offset, h.payload, payload, spans);
    if (status != Status::Ok) [[unlikely]]
      return landing_failed(p, r, offset, h.payload, status);
  }
  before = p.una;
  landed(p, psns, t.last);
  settle(p, before);
}

void Engine::atomic_response(Pair& p, const wire::Header& h) {
  uint32_t before = p.una;
  const bool missing = !acknowledge(p, h.psn);
  if (!settle(p, before)) return;
  if (missing) {
    stats_.implied_naks++;
    return retry(p, false);
  }
  Record& r = p.records[p.head];
  if (p.una != h.psn || p.head == p.tail) return drop(Drop::Stale);
  if (r.op != Op::FetchAdd && r.op != Op::CompareSwap) return fail_requester(p, Status::BadResponse);
  uint64_t original = p.rings->atomic_result(h.swap_or_add);
  const Span value{reinterpret_cast<uint8_t*>(&original), sizeof original};
  const Status status = land(p, r, 0, sizeof original, &value, 1);
  if (status != Status::Ok) [[unlikely]]
    return landing_failed(p, r, 0, sizeof original, status);
  before = p.una;
  landed(p, 1, true);
  settle(p, before);
}

// `psns` of the read or atomic at the head have landed; `request_done`: the last of one request.
void Engine::landed(Pair& p, uint32_t psns, bool request_done) {
  const Record& r = p.records[p.head];
  if (p.next_psn != p.una && !psn_before(p.next_psn, p.una)) {  // asked for since the last going back
    p.read_psns -= std::min(p.read_psns, psns);
    if (request_done && p.reads_outstanding > 0) p.reads_outstanding--;
  }
  p.una = psn_add(p.una, psns);
  if (p.una == psn_add(r.psn, r.psns)) complete_head(p);
}

// Bytes that answer the record at the head, to its memory.
Status Engine::land(Pair& p, const Record& r, uint64_t offset, uint64_t bytes, const Span* payload, size_t spans) {
  if (r.sges == 1) [[likely]]
    return copy_in(*p.rings, r.sge.key, r.sge.va + offset, bytes, Access::LocalWrite, false, payload, spans, 0);
  const Work* w = load(p, p.head);
  if (!w) return Status::LocalQpOperation;
  return scatter(*p.rings, w->sge, w->sges, offset, bytes, payload, spans);
}

void Engine::nak(Pair& p, const wire::Header& h) {
  const uint32_t before = p.una;
  const bool missing = !acknowledge(p, h.psn);  // IBTA 9.7.5.1.2: a NAK acknowledges all before it
  if (!settle(p, before)) return;
  if (missing) {
    stats_.implied_naks++;
    return retry(p, false);
  }
  const uint8_t type = h.syndrome & roce::syndrome_type_mask;
  if (type == roce::syndrome_rnr_nak) {
    stats_.rnr_naks_received++;
    if (p.waits == Pair::Waits::Rnr) return;  // the same one, doubled
    if (p.waits == Pair::Waits::Memory) return go_back(p);
    if (p.rnr_retry != roce::rnr_retry_endless) {
      if (p.rnr_left == 0) return fail_requester(p, Status::RnrRetryExceeded);
      p.rnr_left--;
    }
    p.retries_left = p.retry;  // the peer is there
    go_back(p);
    p.waits = Pair::Waits::Rnr;
    p.rnr_wait = roce::rnr_timer_ns[h.syndrome & roce::syndrome_value_mask];
    p.restart = true;
    return;
  }
  if (type != roce::syndrome_nak) return fail_requester(p, Status::BadResponse);
  if (h.syndrome == roce::NakSequence) {
    stats_.sequence_naks_received++;
    if (p.waits == Pair::Waits::Rnr) return;
    return retry(p, false);
  }
  stats_.naks_received++;
  switch (h.syndrome) {
    case roce::NakInvalidRequest:
      return fail_requester(p, Status::RemoteInvalidRequest);
    case roce::NakRemoteAccess:
      return fail_requester(p, Status::RemoteAccess);
    case roce::NakRemoteOperation:
      return fail_requester(p, Status::RemoteOperation);
    default:
      return fail_requester(p, Status::BadResponse);
  }
}

// Something was lost (IBTA 9.7.6.1): sends again from the oldest that has no answer, as often as the pair may in a
// row.
void Engine::retry(Pair& p, bool timeout) {
  // One loss can be reported many times, and what is sent again can only fail to arrive, which the timer tells.
  if (p.waits == Pair::Waits::Rnr || (p.recovering && !timeout)) return;
  if (p.waits == Pair::Waits::Memory) return go_back(p);  // from there on, when the memory has come
  if (p.retries_left == 0) {
    stats_.retries_exceeded++;
    return fail_requester(p, Status::RetryExceeded);
  }
  p.retries_left--;
  p.recovering = !timeout;
  p.window = std::max(p.window_min, p.window / 2);
  go_back(p);
  p.restart = true;
}

void Engine::go_back(Pair& p) {
  p.next_psn = p.una;
  p.cursor = p.head;
  p.reads_outstanding = p.read_psns = 0;
  p.since_request = 0;
  // What is sent again is read again: the entry may have changed since, and hardware keeps none.
  if (work_pair_ == &p) work_pair_ = nullptr;
  activate(p);
}

// ---- Memory that is not there yet: nothing is sent until it is, and no timer runs.

bool Engine::await(Pair& p, uint32_t position, const Absence& absence) {
  if (!p.rings->absent(absence)) return false;
  p.waits = Pair::Waits::Memory;
  p.absent = position;
  p.deadline = never;
  p.restart = false;
  return true;
}

// What answers the record at the head cannot be written. Where its memory is still to come the answer is forgotten, and
// asked for again then.
void Engine::landing_failed(Pair& p, const Record& r, uint64_t offset, uint64_t bytes, Status status) {
  if (status != Status::Absent) return fail_requester(p, status);
  if (p.waits != Pair::Waits::Memory &&
      !await(
          p, p.head,
          {.of = Absence::Of::Landing, .read = r.op == Op::Read, .handle = r.handle, .done = offset, .packet = bytes}))
    return fail_requester(p, Status::LocalProtection);
  go_back(p);
}

void Engine::resume_requester(Pair& p, bool there) {
  if (p.waits != Pair::Waits::Memory) return;
  p.waits = Pair::Waits::Nothing;
  if (!there) p.records[p.absent].status = Status::LocalProtection;  // it fails when those before it have completed
  activate(p);
}

// The record at the head ends with `status`, and the pair with it.
void Engine::fail_requester(Pair& p, Status status) {
  const Record r = p.records[p.head];
  const bool owned = p.head != p.tail;
  stop(p);
  p.state = State::Err;
  if (owned) p.rings->complete_work(r.handle, r.signaled, status, 0);
  p.rings->failed(true, status);
}

}  // namespace userdma::soft::transport
