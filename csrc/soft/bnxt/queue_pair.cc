#include "soft/bnxt/queue_pair.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace userdma::soft::bnxt {

using transport::Arrival;
using transport::Op;
using transport::Receive;
using transport::Sge;
using transport::Status;
using transport::Work;

namespace {

constexpr uint32_t header_slots = 2;

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Receives are all of one size: what the pair's SGEs need, or a static WQE (ib_verbs.c, bnxt_re_setup_rwqe_size).
uint32_t receive_bytes(const QueuePairSpec& spec) {
  if (!spec.variable) return hw::kStaticWqe;
  return static_cast<uint32_t>(hw::kSlot) * (header_slots + std::max(1u, spec.rq_sges));
}

uint8_t requester_status(Status status) {
  switch (status) {
    case Status::Ok:
      return hw::req_status::kOk;
    case Status::BadResponse:
      return hw::req_status::kBadResponse;
    case Status::LocalLength:
      return hw::req_status::kLocalLength;
    case Status::LocalQpOperation:
      return hw::req_status::kLocalQpOperation;
    case Status::LocalProtection:
    case Status::LocalAccess:
      return hw::req_status::kLocalProtection;
    case Status::RemoteInvalidRequest:
      return hw::req_status::kRemoteInvalidRequest;
    case Status::RemoteAccess:
      return hw::req_status::kRemoteAccess;
    case Status::RemoteOperation:
      return hw::req_status::kRemoteOperation;
    case Status::RnrRetryExceeded:
      return hw::req_status::kRnrRetry;
    case Status::RetryExceeded:
      return hw::req_status::kTransportRetry;
    case Status::Flushed:
      return hw::req_status::kFlushed;
  }
  return hw::req_status::kLocalQpOperation;
}

uint8_t responder_status(Status status) {
  switch (status) {
    case Status::Ok:
      return hw::res_status::kOk;
    case Status::LocalAccess:
    case Status::RemoteAccess:
      return hw::res_status::kLocalAccess;
    case Status::LocalLength:
      return hw::res_status::kLocalLength;
    case Status::LocalProtection:
      return hw::res_status::kLocalProtection;
    case Status::RemoteInvalidRequest:
      return hw::res_status::kRemoteInvalidRequest;
    case Status::Flushed:
      return hw::res_status::kFlushed;
    default:
      return hw::res_status::kLocalQpOperation;
  }
}

}  // namespace

// The MSN table follows the ring's last byte (qplib_fp.c, bnxt_qplib_init_psn_ptr; rdma-core, que->pad): an entry for
// each WQE of the ring, rounded up to a power of two; half as many as slots with variable-size WQEs, which take two at
// least.
QueuePair::QueuePair(uint32_t id, const QueuePairSpec& spec, Dma& dma, transport::Engine& engine, Regions& regions,
                     std::shared_ptr<Cq> scq, std::shared_ptr<Cq> rcq, Events& events, DoorbellWord& rq_word)
    : id_(id),
      spec_(spec),
      engine_(engine),
      regions_(regions),
      scq_(std::move(scq)),
      rcq_(std::move(rcq)),
      events_(events),
      rq_word_(rq_word),
      sq_(dma, spec.sq,
          uint64_t{spec.sq_size} * (spec.variable ? hw::kSlot : hw::kStaticWqe) +
              (spec.msn_table ? sizeof(hw::MsnSearch) * std::bit_ceil(spec.sq_size) / (spec.variable ? 2 : 1) : 0)),
      msn_offset_(uint64_t{spec.sq_size} * (spec.variable ? hw::kSlot : hw::kStaticWqe)),
      msn_entries_(spec.msn_table ? std::max(1u, std::bit_ceil(spec.sq_size) / (spec.variable ? 2 : 1)) : 0),
      rq_(dma, spec.rq, uint64_t{spec.rq_size} * receive_bytes(spec)),
      rq_stride_(receive_bytes(spec)),
      wr_id_(spec.rq_size) {
  if (spec.variable) wqe_number_.resize(spec.sq_size);
  rq_word_.store(0, std::memory_order_relaxed);
}

void QueuePair::reset() {
  sq_produced_ = sq_consumed_ = rq_produced_ = rq_consumed_ = 0;
  sq_index_ = sq_done_ = wqe_count_ = rq_index_ = rq_done_ = 0;
  broken_ = scq_has_error_ = rcq_has_error_ = false;
  rq_word_.store(0, std::memory_order_relaxed);
}

bool QueuePair::sq_doorbell(uint32_t word) {
  const uint32_t distance = past(word, sq_produced_, spec_.sq_size, spec_.sq_size);
  if (distance == UINT32_MAX) return false;
  sq_produced_ += distance;
  return sq_pending();
}

// ---- Send ring
// --------------------------------------------------------------------------------------------------------

const uint8_t* QueuePair::wqe(uint32_t index, uint32_t available, uint32_t& slots, uint8_t* buffer, Status& status) {
  status = Status::LocalQpOperation;
  if (!spec_.variable) {
    slots = hw::kStaticWqe / hw::kSlot;
    return sq_.at(uint64_t{index} * hw::kStaticWqe);
  }
  const uint8_t* header = sq_.at(uint64_t{index} * hw::kSlot);
  if (!header || available < header_slots) return nullptr;
  // An atomic's header has no size: it is always followed by one SGE.
  const bool atomic = header[0] == hw::wqe_type::kCompareSwap || header[0] == hw::wqe_type::kFetchAdd;
  slots = atomic ? header_slots + 1 : header[2];
  if (slots < header_slots || slots > available || slots * hw::kSlot > wqe_limit) return nullptr;
  if (index + slots <= spec_.sq_size && sq_.flat()) return header;
  for (uint32_t i = 0; i < slots; i++) {
    const uint32_t slot = index + i < spec_.sq_size ? index + i : index + i - spec_.sq_size;
    const uint8_t* at = sq_.at(uint64_t{slot} * hw::kSlot);
    if (!at) return nullptr;
    std::memcpy(buffer + i * hw::kSlot, at, hw::kSlot);
  }
  return buffer;
}

bool QueuePair::parse(const uint8_t* wqe, uint32_t slots, Work& out, Status& status) const {
  const auto header = load<hw::RdmaHeader>(wqe);  // whose first fields are those of a send's too
  out.signaled = (header.flags & hw::wqe_flags::kSignal) || spec_.signal_all;
  out.fence = header.flags & hw::wqe_flags::kFence;
  out.solicited = header.flags & hw::wqe_flags::kSolicited;
  status = Status::LocalQpOperation;
  uint32_t used = header.wqe_size;
  switch (header.wqe_type) {
    case hw::wqe_type::kSend:
      out.op = Op::Send;
      break;
    case hw::wqe_type::kSendImmediate:
      out.op = Op::SendImmediate;
      break;
    case hw::wqe_type::kSendInvalidate:
      out.op = Op::SendInvalidate;
      break;
    case hw::wqe_type::kWrite:
      out.op = Op::Write;
      break;
    case hw::wqe_type::kWriteImmediate:
      out.op = Op::WriteImmediate;
      break;
    case hw::wqe_type::kRead:
      out.op = Op::Read;
      break;
    case hw::wqe_type::kCompareSwap:
    case hw::wqe_type::kFetchAdd: {
      const auto atomic = load<hw::AtomicHeader>(wqe);
      out.op = header.wqe_type == hw::wqe_type::kCompareSwap ? Op::CompareSwap : Op::FetchAdd;
      out.remote = atomic.remote_va;
      out.rkey = atomic.remote_key;
      out.swap_or_add = atomic.swap_data;
      out.compare = atomic.cmp_data;
      used = header_slots + 1;
      break;
    }
    default:
      // Local invalidation, fast registration and binding are for drivers that own other processes' memory.
      return false;
  }
  if (used < header_slots || used > slots) return false;
  const uint8_t* body = wqe + header_slots * hw::kSlot;
  out.inline_bytes = 0;
  out.sges = 0;
  if (out.op == Op::CompareSwap || out.op == Op::FetchAdd) {
    const auto sge = load<hw::Sge>(body);
    out.sge[0] = {sge.va_or_pa, sge.l_key, sge.size};
    out.sges = 1;
    out.length = 8;
    if (sge.size != 8) status = Status::LocalLength;
    return sge.size == 8;
  }
  out.immediate = header.imm_data;
  if (out.op == Op::Write || out.op == Op::WriteImmediate || out.op == Op::Read) {
    out.remote = header.remote_va;
    out.rkey = header.remote_key;
  }
  if (header.flags & hw::wqe_flags::kInline) {
    if (out.op == Op::Read || header.length > (slots - header_slots) * hw::kSlot || header.length > spec_.inline_max ||
        header.length > transport::max_inline) {
      return false;
    }
    out.inline_bytes = static_cast<uint16_t>(header.length);
    out.length = header.length;
    std::memcpy(out.data, body, header.length);
    return true;
  }
  const uint32_t sges = used - header_slots;
  if (sges > transport::max_sges || sges > spec_.sq_sges) return false;
  uint64_t length = 0;
  for (uint32_t i = 0; i < sges; i++) {
    const auto sge = load<hw::Sge>(body + i * hw::kSlot);
    if (!sge.size) continue;
    out.sge[out.sges++] = {sge.va_or_pa, sge.l_key, sge.size};
    length += sge.size;
  }
  out.length = length;
  if (length != header.length || length > uint64_t{1} << 31) {
    status = Status::LocalLength;
    return false;
  }
  return true;
}

QueuePair::Next QueuePair::next_work(Work& out, Status& status) {
  if (broken_) [[unlikely]] {
    status = Status::LocalQpOperation;
    out.handle = sq_index_;
    return Next::Bad;
  }
  if (sq_consumed_ == sq_produced_) return Next::None;
  out.handle = sq_index_;
  const auto available = static_cast<uint32_t>(sq_produced_ - sq_consumed_);
  uint8_t buffer[wqe_limit];
  uint32_t slots = 0;
  const uint8_t* at = wqe(sq_index_, available, slots, buffer, status);
  if (spec_.variable) {
    wqe_count_ = wqe_count_ + 1 == spec_.sq_size ? 0 : wqe_count_ + 1;
    wqe_number_[sq_index_] = static_cast<uint16_t>(wqe_count_);
  }
  if (!at) [[unlikely]] {
    sq_consumed_ = sq_produced_;  // where the next one begins is not known
    return Next::Bad;
  }
  const uint32_t step = spec_.variable ? slots : 1;
  sq_consumed_ += step;
  sq_index_ += step;
  if (sq_index_ >= spec_.sq_size) sq_index_ -= spec_.sq_size;
  return parse(at, slots, out, status) ? Next::Entry : Next::Bad;
}

bool QueuePair::work_again(uint32_t handle, uint32_t msn, uint32_t psn, Work& out) {
  uint32_t index = handle;
  if (msn_entries_) {
    uint64_t entry;
    if (!sq_.read(msn_offset_ + msn % msn_entries_ * sizeof entry, &entry, sizeof entry)) return false;
    if ((entry & hw::kPsnMask) != psn) return false;
    index = static_cast<uint32_t>(entry >> hw::kMsnStartIndexShift);
    if (index != (handle & 0xffff) || index >= spec_.sq_size) return false;
  }
  uint8_t buffer[wqe_limit];
  uint32_t slots = 0;
  Status status;
  const uint8_t* at = wqe(index, spec_.sq_size, slots, buffer, status);
  out.handle = handle;
  return at && parse(at, slots, out, status);
}

// ---- Receive ring
// -------------------------------------------------------------------------------------------------------

QueuePair::Next QueuePair::next_receive(Receive& out, Status& status) {
  if (broken_) [[unlikely]] {
    status = Status::LocalQpOperation;
    out.handle = rq_index_;
    return Next::Bad;
  }
  if (rq_consumed_ == rq_produced_) {
    if (!spec_.rq_size) return Next::None;
    const uint32_t distance =
        past(rq_word_.load(std::memory_order_acquire), rq_produced_, spec_.rq_size, spec_.rq_size);
    if (distance == UINT32_MAX || distance == 0) return Next::None;
    rq_produced_ += distance;
  }
  const uint32_t index = rq_index_;
  out.handle = index;
  rq_consumed_++;
  rq_index_ = index + 1 == spec_.rq_size ? 0 : index + 1;
  status = Status::LocalQpOperation;

  const uint64_t offset = uint64_t{index} * rq_stride_;
  uint8_t buffer[hw::kSlot * (header_slots + transport::max_sges)];
  const uint8_t* at;
  if (uint8_t* flat = rq_.flat()) [[likely]] {
    at = flat + offset;
  } else {
    if (!rq_.read(offset, buffer, rq_stride_)) return Next::Bad;
    at = buffer;
  }
  const auto header = load<hw::ReceiveHeader>(at);
  wr_id_[index] = header.wr_id[0] & hw::kWrIdMask;
  if (header.wqe_type != hw::wqe_type::kReceive) return Next::Bad;
  if (header.wqe_size < header_slots || header.wqe_size > rq_stride_ / hw::kSlot) return Next::Bad;
  const uint32_t sges = header.wqe_size - header_slots;
  uint64_t length = 0;
  uint8_t used = 0;
  for (uint32_t i = 0; i < sges; i++) {
    const auto sge = load<hw::Sge>(at + (header_slots + i) * hw::kSlot);
    if (!sge.size) continue;  // a receive of no SGEs has an empty one (qplib_fp.c, bnxt_qplib_post_recv)
    out.sge[used++] = {sge.va_or_pa, sge.l_key, sge.size};
    length += sge.size;
  }
  out.sges = used;
  out.length = length;
  return Next::Entry;
}

// ---- Completions
// ----------------------------------------------------------------------------------------------------------

bool QueuePair::post(Cq& cq, const void* first, uint64_t last, bool solicited, bool requester) {
  const bool before = cq.overflowed();
  if (cq.post(first, last, solicited)) [[likely]]
    return true;
  if (!before) events_.cq_error(cq, requester);
  if (!broken_) {
    broken_ = true;
    engine_.kick(id_);
  }
  return false;
}

// A successful entry's completion names the WQE after it, which completes all before; so does a failed one's with
// static WQEs, but with variable-size ones it names the failed WQE's first slot (qplib_fp.c,
// bnxt_qplib_cq_process_req).
void QueuePair::complete_work(uint32_t handle, bool signaled, Status status, uint64_t) {
  const uint32_t next = spec_.variable ? wqe_number_[handle] : handle + 1 == spec_.sq_size ? 0 : handle + 1;
  sq_done_ = next;
  if (status == Status::Ok && !signaled) return;
  if (status != Status::Ok) scq_has_error_ = true;
  hw::CqReq entry{};
  entry.qp_handle = spec_.handle;
  entry.sq_cons_idx = static_cast<uint16_t>(spec_.variable && status != Status::Ok ? handle : next);
  const uint64_t last = uint64_t{hw::cqe_type::kReq} << hw::kCqeTypeShift | uint64_t{requester_status(status)} << 8;
  post(*scq_, &entry, last, status != Status::Ok, true);
}

void QueuePair::complete_receive(uint32_t handle, const Arrival& arrival) {
  rq_done_ = handle + 1 == spec_.rq_size ? 0 : handle + 1;
  if (arrival.status != Status::Ok) rcq_has_error_ = true;
  hw::CqResRc entry{};
  entry.length = static_cast<uint32_t>(arrival.bytes);
  entry.imm_data_or_inv_r_key = arrival.immediate;
  entry.qp_handle = spec_.handle;
  const uint64_t flags = (arrival.has_immediate ? hw::res_flags::kImmediate : 0) |
                         (arrival.invalidated ? hw::res_flags::kInvalidate : 0) |
                         (arrival.write ? hw::res_flags::kRdmaWrite : 0);
  const uint64_t last = uint64_t{hw::cqe_type::kResRc} << hw::kCqeTypeShift |
                        uint64_t{responder_status(arrival.status)} << 8 | flags << 16 | uint64_t{wr_id_[handle]} << 32;
  post(*rcq_, &entry, last, arrival.solicited || arrival.status != Status::Ok, false);
}

// A terminal entry tells the reader of a completion queue that the pair failed where no other entry in that queue
// does. A driver flushes both rings at the first error entry it reads (qplib_fp.c, bnxt_qplib_add_flush_qp), so a
// queue that has one gets no terminal; and none is worth an overflow, for the event says the same.
void QueuePair::terminal() {
  const bool one = scq_ == rcq_;
  if (one) {
    if (!scq_has_error_ && !rcq_has_error_) terminal(*scq_, sq_consumer(), rq_consumer());
  } else {
    if (!scq_has_error_) terminal(*scq_, sq_consumer(), hw::kNoConsumerIndex);
    if (!rcq_has_error_) terminal(*rcq_, hw::kNoConsumerIndex, rq_consumer());
  }
  scq_has_error_ = rcq_has_error_ = true;
}

void QueuePair::terminal(Cq& cq, uint16_t sq, uint16_t rq) {
  if (cq.overflowed() || !cq.room()) return;
  hw::CqTerminal entry{};
  entry.qp_handle = spec_.handle;
  entry.sq_cons_idx = sq;
  entry.rq_cons_idx = rq;
  cq.post(&entry, uint64_t{hw::cqe_type::kTerminal} << hw::kCqeTypeShift, true);
}

void QueuePair::failed(bool requester, Status status) {
  terminal();
  events_.qp_error(*this, requester, status);
}

// Only keys of memory windows and of fast registration can be invalidated from afar, and there are none here.
bool QueuePair::invalidate(uint32_t) { return false; }

}  // namespace userdma::soft::bnxt
