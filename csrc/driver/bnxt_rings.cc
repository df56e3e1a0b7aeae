#include "driver/bnxt_rings.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

namespace userdma::driver {

namespace hw = userdma::hw::bnxt;

namespace {

static_assert(std::endian::native == std::endian::little, "the rings are little-endian, and written as they are");

constexpr size_t kCqe = sizeof(hw::CqBase);

void check(const char* what, const BnxtRings::Queue& queue, size_t bytes) {
  if (!std::has_single_bit(queue.entries) || queue.entries < 2 || queue.entries > 1u << 16)
    throw std::invalid_argument(std::string(what) + " of " + std::to_string(queue.entries) +
                                " entries: a power of two up to 65536 wanted");
  if (queue.bytes < bytes)
    throw std::invalid_argument(std::string(what) + " of " + std::to_string(queue.entries) + " entries takes " +
                                std::to_string(bytes) + " bytes, not " + std::to_string(queue.bytes));
}

// The first 16 bytes of every WQE: type, flags, size in 16-byte slots, immediate data; then the length.
uint64_t head(uint8_t type, uint8_t flags, unsigned slots) {
  return uint64_t{type} | uint64_t{flags} << 8 | uint64_t{slots} << 16;
}

Error of_request(uint8_t status) {
  namespace s = hw::req_status;
  switch (status) {
    case s::kBadResponse:
      return Error::BadResponse;
    case s::kLocalLength:
      return Error::LocalLength;
    case s::kLocalQpOperation:
      return Error::LocalQpOperation;
    case s::kLocalProtection:
      return Error::LocalProtection;
    case s::kRemoteInvalidRequest:
      return Error::RemoteInvalidRequest;
    case s::kRemoteAccess:
      return Error::RemoteAccess;
    case s::kRemoteOperation:
      return Error::RemoteOperation;
    case s::kTransportRetry:
      return Error::RetryExceeded;
    case s::kFlushed:
      return Error::Flushed;
    default:
      return Error::Other;
  }
}

Error of_response(uint8_t status) {
  namespace s = hw::res_status;
  switch (status) {
    case s::kLocalAccess:
      return Error::LocalAccess;
    case s::kLocalLength:
      return Error::LocalLength;
    case s::kLocalProtection:
      return Error::LocalProtection;
    case s::kLocalQpOperation:
      return Error::LocalQpOperation;
    case s::kRemoteInvalidRequest:
      return Error::RemoteInvalidRequest;
    case s::kFlushed:
    case s::kHardwareFlush:
      return Error::Flushed;
    default:
      return Error::Other;
  }
}

}  // namespace

BnxtRings::BnxtRings(std::shared_ptr<Domain> domain, uint32_t qpn, const Queue& send, const Queue& receive,
                     const Queue& send_cq, const Queue& receive_cq, host::Doorbell doorbell,
                     std::shared_ptr<Events> events)
    : doorbell_(doorbell) {
  const size_t table = send.entries * hw::kStaticWqe;
  check("a send ring", send, table + send.entries * sizeof(hw::MsnSearch));
  check("a receive ring", receive, receive.entries * hw::kStaticWqe);
  check("a send completion ring", send_cq, send_cq.entries * kCqe);
  check("a receive completion ring", receive_cq, receive_cq.entries * kCqe);
  if (send_cq.entries < send.entries || receive_cq.entries < receive.entries)
    throw std::invalid_argument("a completion ring must have at least the entries of its ring");

  this->domain = std::move(domain);
  this->events = std::move(events);
  this->qpn = qpn;
  entries[0] = send.entries;
  entries[1] = receive.entries;
  sq_ = send.base;
  msn_ = reinterpret_cast<uint64_t*>(send.base + table);
  rq_ = receive.base;
  sq_mask_ = send.entries - 1;
  rq_mask_ = receive.entries - 1;
  sq_epoch_shift_ = hw::kDoorbellEpochShift - static_cast<unsigned>(std::countr_zero(send.entries));
  rq_epoch_shift_ = hw::kDoorbellEpochShift - static_cast<unsigned>(std::countr_zero(receive.entries));
  sq_doorbell_ = hw::doorbell(qpn, hw::doorbell_type::kSq, 0, 0);
  rq_doorbell_ = hw::doorbell(qpn, hw::doorbell_type::kRq, 0, 0);
  const Queue* queues[2] = {&send_cq, &receive_cq};
  for (int i = 0; i < 2; ++i) {
    Cq& cq = cq_[i];
    cq.base = queues[i]->base;
    cq.entries = queues[i]->entries;
    cq.end = toggle(cq) + cq.entries * kCqe;
    cq.id = queues[i]->id;
    // The ring must hold a completion of every entry beside those that were taken and not told to the NIC; half of
    // the spare room leaves some for what completes no entry.
    cq.batch = std::max<uint64_t>(1, (queues[i]->entries - entries[i]) / 2);
    cq.left = cq.batch;
  }
  // A plain success: status 0, and for a receive no flags (the 16 bits after the status; a send's are reserved).
  cq_[0].simple_mask = hw::kCqeTypeMask | 0xff << 8;
  cq_[0].simple = hw::cqe_type::kReq << hw::kCqeTypeShift;
  cq_[1].simple_mask = hw::kCqeTypeMask | 0xffu << 8 | 0xffffu << 16;
  cq_[1].simple = hw::cqe_type::kResRc << hw::kCqeTypeShift;
}

void BnxtRings::connect(uint32_t psn, uint32_t mtu) {
  if (mtu < 256 || mtu > 4096 || !std::has_single_bit(mtu))
    throw std::invalid_argument("an MTU of " + std::to_string(mtu) + " bytes: 256, 512, 1024, 2048 or 4096 wanted");
  psn_ = psn & hw::kPsnMask;
  mtu_shift_ = static_cast<unsigned>(std::countr_zero(mtu));
}

void BnxtRings::listen(EventListener* listener) {
  if (!events) return;
  events->listen_qp(qpn, listener);
  for (const Cq& cq : cq_) events->listen_cq(cq.id, listener);
}

void BnxtRings::forget() {
  if (!events) return;
  events->forget_qp(qpn);
  for (const Cq& cq : cq_) events->forget_cq(cq.id);
}

// ---- Posts ----

void BnxtRings::send(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) {
  auto* wqe = reinterpret_cast<uint64_t*>(sq_ + (number & sq_mask_) * hw::kStaticWqe);
  // A message of no bytes has no SGE: one of size 0 could mean 2^32.
  wqe[0] = head(hw::wqe_type::kSend, hw::wqe_flags::kSignal, bytes != 0 ? 3 : 2);
  wqe[1] = bytes;  // length, q_key
  wqe[2] = 0;      // dst_qp, avid
  wqe[3] = 0;      // reserved, timestamp
  wqe[4] = va;
  wqe[5] = lkey | uint64_t{bytes} << 32;
  finish_send(number, bytes);
}

void BnxtRings::rdma(uint64_t number, const Rdma& rdma) {
  auto* wqe = reinterpret_cast<uint64_t*>(sq_ + (number & sq_mask_) * hw::kStaticWqe);
  wqe[0] = head(rdma.op == Rdma::Op::Write ? hw::wqe_type::kWrite : hw::wqe_type::kRead, hw::wqe_flags::kSignal,
                rdma.bytes != 0 ? 3 : 2);
  wqe[1] = rdma.bytes;  // length, reserved
  wqe[2] = rdma.remote;
  wqe[3] = rdma.rkey;  // remote_key, timestamp
  wqe[4] = rdma.va;
  wqe[5] = rdma.lkey | uint64_t{rdma.bytes} << 32;
  finish_send(number, rdma.bytes);
}

// The MSN table's entry, from which the NIC sends again, and the doorbell.
inline void BnxtRings::finish_send(uint64_t number, uint32_t bytes) {
  // As many packets as MTUs begun, and one of no bytes.
  const auto packets = static_cast<uint32_t>((uint64_t{bytes} + (uint64_t{1} << mtu_shift_) - 1) >> mtu_shift_);
  const uint32_t next = (psn_ + packets + (packets == 0)) & hw::kPsnMask;
  const uint64_t slot = number & sq_mask_;
  msn_[slot] = hw::msn_search(static_cast<uint32_t>(slot), next, psn_);
  psn_ = next;
  doorbell_.ring(after(sq_doorbell_, number, sq_mask_, sq_epoch_shift_));
}

void BnxtRings::receive(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) {
  const uint64_t slot = number & rq_mask_;
  auto* wqe = reinterpret_cast<uint64_t*>(rq_ + slot * hw::kStaticWqe);
  wqe[0] = head(hw::wqe_type::kReceive, 0, 3);
  wqe[1] = slot;  // wr_id: comes back in the completion
  wqe[2] = 0;
  wqe[3] = 0;
  wqe[4] = bytes != 0 ? va : 0;
  wqe[5] = bytes != 0 ? lkey | uint64_t{bytes} << 32 : 0;
  doorbell_.ring(after(rq_doorbell_, number, rq_mask_, rq_epoch_shift_));
}

// ---- Completions ----

void BnxtRings::start(Side side, Next& next) {
  next.phase.store(hw::kCqeToggle);  // in the first pass; it flips with each
  next.at.store(toggle(cq_[static_cast<int>(side)]));
}

// To the entry after the one at `at`.
inline void BnxtRings::advance(Cq& cq, Next& next, const uint8_t* at) const {
  at += kCqe;
  if (at == cq.end) [[unlikely]] {
    at = toggle(cq);
    ++cq.passes;
    next.phase.store(next.phase.own() ^ hw::kCqeToggle);
  }
  next.at.store(at);
}

void BnxtRings::ring(Side side, const Next& next) {
  Cq& cq = cq_[static_cast<int>(side)];
  cq.left = cq.batch;
  const auto index = static_cast<uint32_t>(next.at.own() - toggle(cq)) / kCqe;
  doorbell_.ring(hw::doorbell(cq.id, hw::doorbell_type::kCq, static_cast<uint32_t>(index), cq.passes));
}

template <Side side>
inline Polled BnxtRings::poll_written(Qp& qp, Completion& out) {
  Ring& ring = qp.ring(side);
  Cq& cq = cq_[static_cast<int>(side)];
  host::load_barrier();
  const uint8_t* at = ring.next.at.own();
  const uint8_t* cqe = at - offsetof(hw::CqBase, cqe_type_toggle);
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  // The completion with which the doorbell is due goes the other way too.
  if ((word & cq.simple_mask) != cq.simple || cq.left == 1) [[unlikely]]
    return qp.poll_any(side, out);
  uint32_t moved = ring.bytes[ring.taken.own() & ring.mask];
  uint32_t index;
  if constexpr (side == Side::Send) {
    uint16_t after;
    std::memcpy(&after, cqe + offsetof(hw::CqReq, sq_cons_idx), sizeof(after));
    index = (after - 1u) & static_cast<uint32_t>(sq_mask_);
  } else {
    uint32_t length;
    std::memcpy(&index, cqe + offsetof(hw::CqResRc, srq_or_rq_wr_id), sizeof(index));
    std::memcpy(&length, cqe + offsetof(hw::CqResRc, length), sizeof(length));
    if (length > moved) [[unlikely]]
      return qp.poll_any(side, out);
    index &= hw::kWrIdMask;
    moved = length;
  }
  if (!ring.is_next(index)) [[unlikely]]
    return qp.poll_any(side, out);
  --cq.left;
  advance(cq, ring.next, at);
  ring.take_next(moved, out);
  return Polled::Ok;
}

Polled BnxtRings::poll_written(Qp& qp, Side side, Completion& out) {
  return side == Side::Send ? poll_written<Side::Send>(qp, out) : poll_written<Side::Receive>(qp, out);
}

Found BnxtRings::absorb(Side side, Next& next) {
  Cq& cq = cq_[static_cast<int>(side)];
  const uint8_t* at = next.at.own();
  const uint8_t* cqe = at - offsetof(hw::CqBase, cqe_type_toggle);
  const uint8_t first = __atomic_load_n(at, __ATOMIC_ACQUIRE);
  Found found;
  if (((first ^ next.phase.own()) & hw::kCqeToggle) != 0) return found;
  host::load_barrier();

  const uint8_t kind = hw::cqe_kind(first);
  if (kind == hw::cqe_type::kReq && side == Side::Send) [[likely]] {
    hw::CqReq req;
    std::memcpy(&req, cqe, sizeof(req));
    found.index = req.sq_cons_idx;
    found.status = found.vendor = req.status;
    found.what = Found::What::Done;
    if (req.status != hw::req_status::kOk) [[unlikely]] {
      found.error = of_request(req.status);
      found.what = found.error == Error::Flushed ? Found::What::Flushed : Found::What::Failed;
    }
  } else if (kind == hw::cqe_type::kResRc && side == Side::Receive) [[likely]] {
    hw::CqResRc res;
    std::memcpy(&res, cqe, sizeof(res));
    found.index = res.srq_or_rq_wr_id & hw::kWrIdMask;
    found.status = found.vendor = res.status;
    found.bytes = res.length;
    found.immediate = res.imm_data_or_inv_r_key;
    found.has_immediate = (res.flags & hw::res_flags::kImmediate) != 0;
    found.what = Found::What::Received;
    if (res.status != hw::res_status::kOk) [[unlikely]] {
      found.error = of_response(res.status);
      found.what = found.error == Error::Flushed ? Found::What::Flushed : Found::What::Failed;
    } else if ((res.flags & (hw::res_flags::kSrq | hw::res_flags::kInvalidate)) != 0) [[unlikely]] {
      found.what = Found::What::Unknown;
      found.unknown = (res.flags & hw::res_flags::kSrq) != 0 ? "one of a shared receive queue"
                                                             : "a receive's of a message that invalidates a key";
    }
  } else if (kind == hw::cqe_type::kTerminal) {
    hw::CqTerminal terminal;
    std::memcpy(&terminal, cqe, sizeof(terminal));
    found.what = Found::What::Terminated;
    found.index = side == Side::Send ? terminal.sq_cons_idx : terminal.rq_cons_idx;
    // A receive completes by its own entry only.
    found.has_index = side == Side::Send && found.index != hw::kNoConsumerIndex;
  } else if (kind == hw::cqe_type::kNoOp) {
    found.what = Found::What::Skip;
  } else {
    static constexpr const char* kinds[16] = {"type 0x0 (requester)",
                                              "type 0x1 (responder, reliable connection)",
                                              "type 0x2 (responder, datagram)",
                                              "type 0x3 (responder, raw Ethernet)",
                                              "type 0x4 (responder, datagram with CFA)",
                                              "type 0x5",
                                              "type 0x6",
                                              "type 0x7",
                                              "type 0x8",
                                              "type 0x9",
                                              "type 0xa",
                                              "type 0xb",
                                              "type 0xc",
                                              "type 0xd",
                                              "type 0xe",
                                              "type 0xf (cut-off)"};
    found.what = Found::What::Unknown;
    found.unknown = kinds[kind & 0xf];
  }
  advance(cq, next, at);
  if (cq.left != 0) --cq.left;
  found.ring = cq.left == 0;
  return found;
}

}  // namespace userdma::driver
