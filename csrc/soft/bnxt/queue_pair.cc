#include "soft/bnxt/queue_pair.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

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
  return static_cast<uint32_t>(hw::kSlot) * (header_slots + spec.rq_sges);
}

// Entries that send nothing: a header alone, which says no size.
bool local(uint8_t type) {
  return type == hw::wqe_type::kLocalInvalidate || type == hw::wqe_type::kFastRegister || type == hw::wqe_type::kBind;
}

uint64_t load40(const uint8_t at[5]) {
  uint64_t value = 0;
  std::memcpy(&value, at, 5);
  return value;
}

RegionSpec all_memory() {
  RegionSpec spec;
  spec.bytes = uint64_t{1} << Dma::address_bits;
  spec.access = hw::mr_access::kLocalWrite;
  spec.physical = true;
  return spec;
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
    case Status::MemoryManagement:
      return hw::req_status::kMemoryManagement;
    case Status::Flushed:
      return hw::req_status::kFlushed;
    case Status::Absent:  // no entry ends so
      break;
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
    case Status::MemoryManagement:
      return hw::res_status::kMemoryManagement;
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
QueuePair::QueuePair(uint32_t id, const QueuePairSpec& spec, const Shared& shared, std::shared_ptr<Cq> scq,
                     std::shared_ptr<Cq> rcq, std::shared_ptr<Srq> srq, DoorbellWord& rq_word)
    : id_(id),
      spec_(spec),
      dma_(shared.dma),
      engine_(shared.engine),
      regions_(shared.regions),
      addresses_(shared.addresses),
      events_(shared.events),
      scq_(std::move(scq)),
      rcq_(std::move(rcq)),
      srq_(std::move(srq)),
      rq_word_(rq_word),
      reserved_(dma_, hw::kReservedLkey, all_memory()),
      sq_(dma_, spec.sq,
          uint64_t{spec.sq_size} * (spec.variable ? hw::kSlot : hw::kStaticWqe) +
              (spec.msn_table ? sizeof(hw::MsnSearch) * std::bit_ceil(spec.sq_size) / (spec.variable ? 2 : 1) : 0)),
      msn_offset_(uint64_t{spec.sq_size} * (spec.variable ? hw::kSlot : hw::kStaticWqe)),
      msn_entries_(spec.msn_table ? std::max(1u, std::bit_ceil(spec.sq_size) / (spec.variable ? 2 : 1)) : 0),
      rq_(dma_, spec.rq, uint64_t{spec.rq_size} * receive_bytes(spec)),
      rq_stride_(receive_bytes(spec)),
      wr_id_(spec.rq_size) {
  if (spec.variable) wqe_number_.resize(spec.sq_size);
  rq_word_.store(0, std::memory_order_relaxed);
}

void QueuePair::reset() {
  sq_produced_ = sq_consumed_ = rq_produced_ = rq_consumed_ = 0;
  sq_index_ = sq_done_ = sq_told_ = wqe_count_ = rq_index_ = rq_done_ = 0;
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
  slots = atomic ? header_slots + 1 : local(header[0]) ? header_slots : header[2];
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
  // Drivers ask for the fence of verbs by either flag.
  out.fence = header.flags & (hw::wqe_flags::kFence | hw::wqe_flags::kUcFence);
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
    case hw::wqe_type::kLocalInvalidate:
    case hw::wqe_type::kFastRegister:
    case hw::wqe_type::kBind:
      out.op = Op::Local;
      out.length = 0;
      out.inline_bytes = 0;
      out.sges = 0;
      return spec_.fast_register;
    default:
      return false;
  }
  if (datagram() && !parse_address(wqe, out)) return false;
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

// Where a datagram goes.
bool QueuePair::parse_address(const uint8_t* wqe, Work& out) const {
  if (out.op != Op::Send && out.op != Op::SendImmediate) return false;
  const auto header = load<hw::SendHeader>(wqe);
  const auto found = addresses_.find(header.avid & hw::kAvidMask);
  if (found == addresses_.end() || found->second.pd != spec_.pd) return false;
  out.qkey = header.q_key;
  out.dest_qp = header.dst_qp & hw::kDestinationQpMask;
  out.address = found->second.address;
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

// ---- Entries that send nothing
// ------------------------------------------------------------------------------------------------------------------

Status QueuePair::perform(uint32_t handle) {
  uint8_t buffer[wqe_limit];
  uint32_t slots = 0;
  Status status;
  const uint8_t* at = wqe(handle, spec_.sq_size, slots, buffer, status);
  if (!at) return status;
  switch (at[0]) {
    case hw::wqe_type::kLocalInvalidate:
      return invalidate(load<hw::LocalInvalidateHeader>(at).inv_l_key) ? Status::Ok : Status::MemoryManagement;
    case hw::wqe_type::kFastRegister:
      return fast_register(at);
    case hw::wqe_type::kBind:
      return bind(at);
    default:
      return Status::LocalQpOperation;  // the entry has changed since
  }
}

// IBTA 10.6.3.4: the key is one for fast registration, of the pair's domain, and no region is under it.
Status QueuePair::fast_register(const uint8_t* wqe) {
  const auto header = load<hw::FastRegisterHeader>(wqe);
  const KeyClaim* claim = regions_.claimed(header.l_key);
  if (!claim || claim->kind != KeyClaim::Kind::FastRegister || claim->pd != spec_.pd) return Status::MemoryManagement;
  if (regions_.at_index(header.l_key)) return Status::MemoryManagement;
  RegionSpec spec;
  spec.pd = spec_.pd;
  spec.va = header.zero_based_page_size_log & hw::kFastRegisterZeroBased ? 0 : header.va;
  spec.bytes = load40(header.length);
  spec.access = header.access_cntl;
  spec.table.base = header.pblptr;
  spec.table.level = header.numlevels_pbl_page_size_log >> hw::kFastRegisterLevelsShift;
  spec.table.page_shift = hw::kFastRegisterPageBase + (header.zero_based_page_size_log & hw::kFastRegisterPageMask);
  spec.table.table_shift =
      hw::kFastRegisterPageBase + (header.numlevels_pbl_page_size_log & hw::kFastRegisterPblPageMask);
  if (spec.table.level > 2 || !spec.bytes || spec.bytes > UINT64_MAX - spec.va || spec.table.page_shift > 40 ||
      spec.table.table_shift > 40) {
    return Status::MemoryManagement;
  }
  auto region = std::make_unique<Region>(dma_, header.l_key, spec);
  if (!region->complete() || !regions_.add(std::move(region))) return Status::MemoryManagement;
  return Status::Ok;
}

// IBTA 10.6.7: a window shows a part of a region that lets it, under a new key; a window of nothing shows nothing.
Status QueuePair::bind(const uint8_t* wqe) {
  const auto header = load<hw::BindHeader>(wqe);
  const KeyClaim* claim = regions_.claimed(header.l_key);
  const bool second = header.mw_type_zero_based & hw::kBindType2;
  if (!claim || claim->pd != spec_.pd || claim->kind != (second ? KeyClaim::Kind::Window2 : KeyClaim::Kind::Window1)) {
    return Status::MemoryManagement;
  }
  if (const Region* bound = regions_.at_index(header.l_key)) {
    if (second) return Status::MemoryManagement;  // it must be invalidated first
    regions_.remove(bound->key());
  }
  RegionSpec spec;
  spec.pd = spec_.pd;
  spec.bytes = load40(header.length);
  if (!spec.bytes) return Status::Ok;
  const Region* parent = regions_.find(header.parent_l_key);
  if (!parent || parent->pd() != spec_.pd || parent->parent()) return Status::MemoryManagement;
  const RegionSpec& whole = parent->spec();
  const uint64_t at = header.va - whole.va;
  constexpr uint8_t writes = hw::mr_access::kRemoteWrite | hw::mr_access::kRemoteAtomic;
  if (!(whole.access & hw::mr_access::kWindowBind) || header.va < whole.va || at > whole.bytes ||
      spec.bytes > whole.bytes - at || (header.access_cntl & writes && !(whole.access & hw::mr_access::kLocalWrite))) {
    return Status::MemoryManagement;
  }
  spec.va = header.mw_type_zero_based & hw::kBindZeroBased ? 0 : header.va;
  spec.access = header.access_cntl;
  auto window = std::make_unique<Region>(dma_, header.l_key, spec, *parent, at);
  return regions_.add(std::move(window)) ? Status::Ok : Status::MemoryManagement;
}

// Keys of fast registration and windows of type 2 can be invalidated (IBTA 10.6.3.6), here and by a peer's send.
bool QueuePair::invalidate(uint32_t key) {
  Region* region = regions_.find(key);
  const KeyClaim* claim = regions_.claimed(key);
  if (!region || !claim || claim->pd != spec_.pd || claim->kind == KeyClaim::Kind::Window1) return false;
  region->each_piece([this](const uint8_t* at, uint64_t bytes) { events_.recall(at, bytes); });
  regions_.remove(key);
  return true;
}

// ---- Receive ring
// -------------------------------------------------------------------------------------------------------

QueuePair::Next QueuePair::next_receive(Receive& out, Status& status) {
  if (broken_) [[unlikely]] {
    status = Status::LocalQpOperation;
    out.handle = rq_index_;
    return Next::Bad;
  }
  if (srq_) return srq_->next(out, status);
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
  return read_receive(at, rq_stride_, out, wr_id_[index]);
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
// bnxt_qplib_cq_process_req). Entries before a failed one that ended without a completion are told of first: a
// program's library takes the failed one's for the oldest that it has not heard of (rdma-core, bnxt_re_poll_err_scqe).
void QueuePair::complete_work(uint32_t handle, bool signaled, Status status, uint64_t) {
  const uint32_t next = spec_.variable ? wqe_number_[handle] : handle + 1 == spec_.sq_size ? 0 : handle + 1;
  const uint32_t before = std::exchange(sq_done_, next);
  if (status == Status::Ok && !signaled) return;
  hw::CqReq entry{};
  entry.qp_handle = spec_.handle;
  uint64_t last = uint64_t{hw::cqe_type::kReq} << hw::kCqeTypeShift;
  if (status != Status::Ok) {
    scq_has_error_ = true;
    if (sq_told_ != before) {
      entry.sq_cons_idx = static_cast<uint16_t>(before);
      if (!post(*scq_, &entry, last, false, true)) return;
    }
    last |= uint64_t{requester_status(status)} << 8;
  }
  sq_told_ = next;
  entry.sq_cons_idx = static_cast<uint16_t>(spec_.variable && status != Status::Ok ? handle : next);
  post(*scq_, &entry, last, status != Status::Ok, true);
}

void QueuePair::complete_receive(uint32_t handle, const Arrival& arrival) {
  uint32_t wr_id = handle;
  if (!srq_) {
    rq_done_ = handle + 1 == spec_.rq_size ? 0 : handle + 1;
    wr_id = wr_id_[handle];
  }
  if (arrival.status != Status::Ok) rcq_has_error_ = true;
  uint64_t flags = (srq_ ? hw::res_flags::kSrq : 0) | (arrival.has_immediate ? hw::res_flags::kImmediate : 0);
  uint64_t last = uint64_t{responder_status(arrival.status)} << 8 | uint64_t{wr_id} << 32;
  const bool solicited = arrival.solicited || arrival.status != Status::Ok;
  if (arrival.datagram) {
    constexpr uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const wire::Header& h = *arrival.datagram;
    hw::CqResUd entry{};
    entry.length = static_cast<uint16_t>(arrival.bytes);
    entry.imm_data = arrival.immediate;
    entry.qp_handle = spec_.handle;
    std::memcpy(entry.src_mac, h.smac, sizeof entry.src_mac);
    entry.src_qp_low = static_cast<uint16_t>(h.src_qp);
    flags |= std::memcmp(h.sgid, mapped, sizeof mapped) == 0 ? hw::kUdIpVersion4 : hw::kUdIpVersion6;
    last |= uint64_t{hw::cqe_type::kResUd} << hw::kCqeTypeShift | flags << 16 |
            uint64_t{h.src_qp >> 16} << (32 + hw::kUdSourceQpHighShift);
    post(*rcq_, &entry, last, solicited, false);
    return;
  }
  hw::CqResRc entry{};
  entry.length = static_cast<uint32_t>(arrival.bytes);
  entry.imm_data_or_inv_r_key = arrival.immediate;
  entry.qp_handle = spec_.handle;
  flags |= (arrival.invalidated ? hw::res_flags::kInvalidate : 0) | (arrival.write ? hw::res_flags::kRdmaWrite : 0);
  last |= uint64_t{hw::cqe_type::kResRc} << hw::kCqeTypeShift | flags << 16;
  post(*rcq_, &entry, last, solicited, false);
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

// The event first: who finds a terminal entry finds the reason too.
void QueuePair::failed(bool requester, Status status) {
  events_.qp_error(*this, requester, status);
  terminal();
}

}  // namespace userdma::soft::bnxt
