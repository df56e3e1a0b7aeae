#include "soft/mlx5/queue_pair.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace userdma::soft::mlx5 {

using transport::Arrival;
using transport::Op;
using transport::Receive;
using transport::Status;
using transport::Work;

namespace {

Error requester_error(Status status) {
  namespace s = hw::syndrome;
  switch (status) {
    case Status::BadResponse:
      return {s::kBadResponse, s::kBadResponse};
    case Status::LocalLength:
      return {s::kLocalLength, s::kLocalLength};
    case Status::LocalProtection:
    case Status::LocalAccess:
      return no_send_memory;
    case Status::RemoteInvalidRequest:
      return {s::kRemoteInvalidRequest, 0x8a};
    case Status::RemoteAccess:
      return {s::kRemoteAccess, 0x88};
    case Status::RemoteOperation:
      return {s::kRemoteOperation, 0x89};
    case Status::RnrRetryExceeded:
      return {s::kRnrRetryExceeded, 0x87};
    case Status::RetryExceeded:
      return {s::kRetryExceeded, 0x81};
    case Status::MemoryManagement:
      return {s::kWindowBind, s::kWindowBind};
    case Status::Flushed:
      return flushed_send;
    default:
      return bad_entry;
  }
}

Error responder_error(Status status) {
  namespace s = hw::syndrome;
  switch (status) {
    case Status::LocalLength:
      return {s::kLocalLength, s::kLocalLength};
    case Status::LocalProtection:
      return no_receive_memory;
    case Status::LocalAccess:
    case Status::RemoteAccess:
      return {s::kLocalAccess, s::kLocalAccess};
    case Status::RemoteInvalidRequest:
      return {s::kRemoteInvalidRequest, s::kRemoteInvalidRequest};
    case Status::Flushed:
      return flushed_receive;
    default:
      return {s::kLocalQpOperation, s::kLocalQpOperation};
  }
}

// The receive ring begins the queue pair's memory, the send ring follows it (mlx5_ib, set_user_buf_size).
uint64_t receive_bytes(const QueuePairSpec& spec) {
  return spec.log_rq_entries ? uint64_t{1} << (*spec.log_rq_entries + spec.log_rq_stride) : 0;
}

}  // namespace

QueuePair::QueuePair(uint32_t id, const QueuePairSpec& spec, const Shared& shared, std::shared_ptr<Cq> send_cq,
                     std::shared_ptr<Cq> receive_cq, std::shared_ptr<Srq> srq)
    : id_(id),
      spec_(spec),
      dma_(shared.dma),
      keys_(shared.keys),
      gids_(shared.gids),
      events_(shared.events),
      send_cq_(std::move(send_cq)),
      receive_cq_(std::move(receive_cq)),
      srq_(std::move(srq)),
      record_(dma_, spec.record),
      sq_(dma_, spec.pages, receive_bytes(spec), sq_size()),
      taken_(sq_size()),
      rq_(dma_, spec.pages.pages, spec.pages.page_shift, spec.pages.offset, receive_bytes(spec)) {}

void QueuePair::reset() {
  sq_produced_ = sq_taken_ = sq_done_ = rq_produced_ = rq_taken_ = rq_done_ = 0;
  srq_taken_.reset();
  error_ = live_ = false;
}

// ---- Send ring
// ------------------------------------------------------------------------------------------------------------

bool QueuePair::sq_doorbell() {
  if (!live_) return false;
  uint32_t word;
  const bool there = record_.load(hw::record::kSend, word);
  const uint32_t distance = there ? (word - static_cast<uint32_t>(sq_produced_)) & hw::record::kCounterMask : 0;
  if (!there || distance > sq_size() - (sq_produced_ - sq_done_)) [[unlikely]] {
    events_.doom(*this);
    return false;
  }
  sq_produced_ += distance;
  return sq_pending();
}

bool QueuePair::parse(const SendRing::Entry& entry, Work& out, Status& status) const {
  const auto control = load<hw::ControlSegment>(entry.at);
  const uint8_t* const end = entry.at + entry.bytes();
  const uint8_t* at = entry.at + sizeof control;
  out.signaled = control.fm_ce_se & hw::control::kCompletion;
  out.solicited = control.fm_ce_se & hw::control::kSolicited;
  const uint8_t fence = control.fm_ce_se & hw::control::kFenceMask;
  out.fence = fence == hw::fence::kFence || fence == hw::fence::kStrong || fence == hw::fence::kSmallAndFence;
  status = Status::LocalQpOperation;
  switch (entry.opcode()) {
    case hw::opcode::kSend:
      out.op = Op::Send;
      break;
    case hw::opcode::kSendImmediate:
      out.op = Op::SendImmediate;
      break;
    case hw::opcode::kSendInvalidate:
      out.op = Op::SendInvalidate;
      break;
    case hw::opcode::kWrite:
      out.op = Op::Write;
      break;
    case hw::opcode::kWriteImmediate:
      out.op = Op::WriteImmediate;
      break;
    case hw::opcode::kRead:
      out.op = Op::Read;
      break;
    case hw::opcode::kCompareSwap:
      out.op = Op::CompareSwap;
      break;
    case hw::opcode::kFetchAdd:
      out.op = Op::FetchAdd;
      break;
    case hw::opcode::kUmr:
    case hw::opcode::kLocalInvalidate:
    case hw::opcode::kNop:
      out.op = Op::Local;
      out.length = 0;
      out.inline_bytes = 0;
      out.sges = 0;
      return !datagram();
    default:
      return false;
  }
  out.immediate = big(control.imm);
  if (spec_.type == hw::qp_type::kRegUmr) return false;
  if (datagram()) {
    if (end - at < static_cast<int>(sizeof(hw::AddressVector)) || !parse_address(at, out)) return false;
    at += sizeof(hw::AddressVector);
  }
  if (out.op >= Op::Write) {
    if (end - at < static_cast<int>(sizeof(hw::RemoteSegment))) return false;
    const auto remote = load<hw::RemoteSegment>(at);
    out.remote = big(remote.raddr);
    out.rkey = big(remote.rkey);
    at += sizeof remote;
  }
  if (out.op == Op::CompareSwap || out.op == Op::FetchAdd) {
    if (end - at < static_cast<int>(sizeof(hw::AtomicSegment) + sizeof(hw::DataSegment))) return false;
    const auto atomic = load<hw::AtomicSegment>(at);
    out.swap_or_add = big(atomic.swap_add);
    out.compare = big(atomic.compare);
    at += sizeof atomic;
    if (!parse_data(at, end, out, status)) return false;
    if (out.sges != 1 || out.length != 8) status = Status::LocalLength;
    return out.sges == 1 && out.length == 8;
  }
  return parse_data(at, end, out, status);
}

// Segments of pointers, or of inline data.
bool QueuePair::parse_data(const uint8_t* at, const uint8_t* end, Work& out, Status& status) const {
  out.inline_bytes = 0;
  out.sges = 0;
  out.length = 0;
  while (at < end) {
    const auto segment = load<hw::DataSegment>(at);
    const uint32_t count = big(segment.byte_count);
    if (count & hw::kInline) {
      const uint32_t bytes = count & hw::kInlineBytesMask;
      const uint8_t* from = at + sizeof(hw::InlineSegment);
      if (out.op == Op::Read || out.op == Op::CompareSwap || out.op == Op::FetchAdd || out.sges ||
          bytes > static_cast<size_t>(end - from) || out.inline_bytes + bytes > transport::max_inline) {
        return false;
      }
      std::memcpy(out.data + out.inline_bytes, from, bytes);
      out.inline_bytes = static_cast<uint16_t>(out.inline_bytes + bytes);
      out.length += bytes;
      at += (sizeof(hw::InlineSegment) + bytes + hw::kSegment - 1) / hw::kSegment * hw::kSegment;
      continue;
    }
    if (out.inline_bytes || out.sges == transport::max_sges) return false;
    const uint32_t bytes = count ? count : 1u << 31;  // mlx5_ib writes no segment of nothing
    out.sge[out.sges++] = {big(segment.addr), big(segment.lkey), bytes};
    out.length += bytes;
    at += sizeof segment;
  }
  if (out.length > spec_.longest) {
    status = Status::LocalLength;
    return false;
  }
  return true;
}

// Where a datagram goes.
bool QueuePair::parse_address(const uint8_t* segment, Work& out) const {
  if (out.op != Op::Send && out.op != Op::SendImmediate) return false;
  const auto vector = load<hw::AddressVector>(segment);
  const uint32_t destination = big(vector.dqp_dct), route = big(vector.grh_gid_fl);
  // A GRH is always there on Ethernet: drivers of RoCE leave its bit out (rdma-core's mlx5_create_ah).
  if (!(destination & hw::kExtendedAddress)) return false;
  const auto found = gids_.find(route >> hw::kAddressGidShift & hw::kAddressGidMask);
  if (found == gids_.end()) return false;
  out.qkey = big(load<uint32_t>(segment));  // the first half of `key`
  out.dest_qp = destination & hw::kQpnMask;
  transport::Address& address = out.address;
  std::memcpy(address.dmac, vector.rmac, sizeof address.dmac);
  std::memcpy(address.smac, found->second.mac, sizeof address.smac);
  std::memcpy(address.sgid, found->second.gid, sizeof address.sgid);
  std::memcpy(address.dgid, vector.rgid, sizeof address.dgid);
  address.hop_limit = vector.hop_limit;
  address.traffic_class = vector.tclass;
  return true;
}

QueuePair::Next QueuePair::next_work(Work& out, Status& status) {
  if (sq_taken_ == sq_produced_ || error_) return Next::None;
  const auto available = static_cast<uint32_t>(sq_produced_ - sq_taken_);
  out.handle = static_cast<uint16_t>(sq_taken_);
  Taken& taken = taken_[sq_taken_ & (sq_size() - 1)];
  SendRing::Buffer buffer;
  const SendRing::Entry entry = sq_.entry(sq_taken_, available, buffer);
  if (!entry.at) [[unlikely]] {
    taken = {static_cast<uint16_t>(available), hw::opcode::kNop};  // where the next one begins is not known
    sq_taken_ = sq_produced_;
    status = Status::LocalQpOperation;
    return Next::Bad;
  }
  taken = {static_cast<uint16_t>(entry.blocks()), entry.opcode()};
  sq_taken_ += entry.blocks();
  return parse(entry, out, status) ? Next::Entry : Next::Bad;
}

bool QueuePair::work_again(uint32_t handle, uint32_t, uint32_t, Work& out) {
  SendRing::Buffer buffer;
  Status status;
  const SendRing::Entry entry = sq_.entry(handle, taken_[handle & (sq_size() - 1)].blocks, buffer);
  out.handle = handle;
  return entry.at && parse(entry, out, status);
}

// ---- Entries that send nothing
// ------------------------------------------------------------------------------------------------------------------

Status QueuePair::perform(uint32_t handle) {
  SendRing::Buffer buffer;
  const SendRing::Entry entry = sq_.entry(handle, taken_[handle & (sq_size() - 1)].blocks, buffer);
  if (!entry.at) return Status::LocalQpOperation;
  switch (entry.opcode()) {
    case hw::opcode::kNop:
      return Status::Ok;
    case hw::opcode::kLocalInvalidate:
      return local_invalidate(big(load<hw::ControlSegment>(entry.at).imm));
    case hw::opcode::kUmr:
      return umr(entry);
    default:
      return Status::LocalQpOperation;  // the entry has changed since
  }
}

Status QueuePair::local_invalidate(uint32_t key) {
  Mkey* found = keys_.find(key);
  if (!found || !found->spec().update || found->pd() != spec_.pd) return Status::MemoryManagement;
  found->each_piece(keys_, [this](const uint8_t* at, uint64_t bytes) { events_.recall(at, bytes); });
  found->invalidate();
  return Status::Ok;
}

// The key in the control segment, what of it changes, what it becomes, and its list: behind it, or where a data segment
// says.
Status QueuePair::umr(const SendRing::Entry& entry) {
  constexpr unsigned head = sizeof(hw::ControlSegment) + sizeof(hw::UmrSegment) + sizeof(hw::KeySegment);
  const unsigned bytes = entry.bytes();
  const uint8_t* wqe = entry.at;
  if (bytes < head) return Status::LocalQpOperation;
  const uint32_t key = big(load<hw::ControlSegment>(wqe).imm);
  const auto update = load<hw::UmrSegment>(wqe + sizeof(hw::ControlSegment));
  const auto to = load<hw::KeySegment>(wqe + sizeof(hw::ControlSegment) + sizeof update);
  Mkey* found = keys_.at_index(key);
  if (!found || (found->pd() != spec_.pd && !spec_.umr)) return Status::MemoryManagement;
  if (!spec_.umr && big(update.mkey_mask) & hw::update_mask::kPd) return Status::MemoryManagement;

  uint32_t octwords = big(update.klm_octowords);
  const uint8_t* list = wqe + head;
  std::vector<uint8_t> fetched;
  if (update.flags & hw::update_flag::kInline) {
    octwords = std::min(octwords, (bytes - head) / hw::kSegment);
  } else if (octwords) {
    if (bytes < head + sizeof(hw::DataSegment)) return Status::LocalQpOperation;
    const auto data = load<hw::DataSegment>(list);
    const uint64_t n = uint64_t{octwords} * hw::kSegment;
    if (big(data.byte_count) < n) return Status::LocalLength;
    fetched.reserve(n);
    transport::Spans spans;
    while (fetched.size() < n) {
      uint64_t covered = 0;
      const Status status =
          reach(big(data.lkey), big(data.addr) + fetched.size(), n - fetched.size(), 0, false, spans, covered);
      if (status != Status::Ok) return status == Status::Absent ? Status::LocalProtection : status;
      if (!covered) return Status::LocalProtection;
      for (unsigned i = 0; i < spans.count; i++)
        fetched.insert(fetched.end(), spans.span[i].at, spans.span[i].at + spans.span[i].bytes);
    }
    list = fetched.data();
  }
  // Whatever changes, what is on its way goes by what was.
  found->each_piece(keys_, [this](const uint8_t* at, uint64_t n) { events_.recall(at, n); });
  return found->update(update, to, key, id_, list, octwords);
}

// A peer's send with invalidate (IBTA 10.6.5.1).
bool QueuePair::invalidate(uint32_t key) {
  Mkey* found = keys_.find(key);
  if (!found || !found->spec().update || !found->spec().remote_invalidate || found->spec().free ||
      found->pd() != spec_.pd) {
    return false;
  }
  found->each_piece(keys_, [this](const uint8_t* at, uint64_t bytes) { events_.recall(at, bytes); });
  found->invalidate();
  return true;
}

// ---- Receive ring
// ------------------------------------------------------------------------------------------------------------

bool QueuePair::rq_produce() {
  uint32_t word;
  if (!record_.load(hw::record::kReceive, word)) return false;
  const uint32_t distance = (word - static_cast<uint32_t>(rq_produced_)) & hw::record::kCounterMask;
  if (distance > rq_size() - (rq_produced_ - rq_done_)) return false;
  rq_produced_ += distance;
  return true;
}

QueuePair::Next QueuePair::next_receive(Receive& out, Status& status) {
  if (srq_) {
    const Next next = srq_->next(out, status);
    if (next == Next::Entry) srq_taken_ = out.handle;
    return next;
  }
  if (rq_taken_ == rq_produced_) {
    if (!rq_size()) return Next::None;
    if (!rq_produce()) [[unlikely]] {
      events_.doom(*this);
      return Next::None;
    }
    if (rq_taken_ == rq_produced_) return Next::None;
  }
  const uint32_t stride = 1u << spec_.log_rq_stride;
  const uint64_t offset = (rq_taken_ & (rq_size() - 1)) << spec_.log_rq_stride;
  out.handle = static_cast<uint16_t>(rq_taken_);
  rq_taken_++;
  status = Status::LocalQpOperation;
  uint8_t buffer[1u << log_rq_stride_limit];
  const uint8_t* at = rq_.flat();
  if (at) [[likely]] {
    at += offset;
  } else {
    if (!rq_.read(offset, buffer, stride)) return Next::Bad;
    at = buffer;
  }
  read_receive(at, stride / hw::kSegment, out);
  return Next::Entry;
}

// ---- Completions
// ----------------------------------------------------------------------------------------------------------------

void QueuePair::post(Cq& cq, hw::Cqe entry, bool solicited) {
  const bool before = cq.overrun();
  if (cq.post(entry, solicited)) [[likely]]
    return;
  if (!before) events_.cq_overrun(cq);
  events_.doom(*this);
}

void QueuePair::post_error(Cq& cq, uint8_t opcode, uint8_t wqe_opcode, uint16_t counter, Error error) {
  post(cq, mlx5::failed(opcode, wqe_opcode, id_, counter, srqn_or_index(), error), true);
}

void QueuePair::complete_work(uint32_t handle, bool signaled, Status status, uint64_t bytes) {
  const Taken& taken = taken_[handle & (sq_size() - 1)];
  sq_done_ += taken.blocks;
  if (status != Status::Ok) [[unlikely]]
    return post_error(*send_cq_, hw::cqe_opcode::kRequestError, taken.opcode, static_cast<uint16_t>(handle),
                      requester_error(status));
  if (!signaled) return;
  post(*send_cq_, completed(hw::cqe_opcode::kRequest, taken.opcode, id_, handle, spec_.user_index.value_or(0), bytes),
       false);
}

void QueuePair::complete_receive(uint32_t handle, const Arrival& arrival) {
  if (srq_) {
    srq_taken_.reset();
  } else {
    rq_done_++;
  }
  if (arrival.status != Status::Ok) [[unlikely]]
    return post_error(*receive_cq_, hw::cqe_opcode::kReceiveError, 0, static_cast<uint16_t>(handle),
                      responder_error(arrival.status));
  namespace op = hw::cqe_opcode;
  const uint8_t opcode = arrival.write           ? op::kReceivedWriteImmediate
                         : arrival.has_immediate ? op::kReceivedImmediate
                         : arrival.invalidated   ? op::kReceivedInvalidate
                                                 : op::kReceived;
  hw::Cqe entry = completed(opcode, 0, id_, handle, srqn_or_index(), arrival.bytes);
  if (arrival.solicited) entry.op_own |= hw::kSolicitedEntry;
  if (arrival.datagram) {
    constexpr uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const wire::Header& h = *arrival.datagram;
    const bool ipv4 = std::memcmp(h.sgid, mapped, sizeof mapped) == 0;
    entry.flags_rqpn =
        big(hw::kGrhInBuffer | (ipv4 ? hw::roce_header::kIpv4 : hw::roce_header::kIpv6) << hw::kRoceHeaderShift |
            (h.src_qp & hw::kQpnMask));
    entry.imm_inval_pkey = big(uint32_t{h.pkey});
  }
  if (arrival.has_immediate || arrival.invalidated) entry.imm_inval_pkey = big(arrival.immediate);
  post(*receive_cq_, entry, arrival.solicited);
}

// What a peer did wrong with no receive to blame is an event (IBTA 11.6.3.2); what an entry did is in its completion.
void QueuePair::failed(bool requester, Status status) {
  if (!requester) {
    if (status == Status::LocalAccess || status == Status::RemoteAccess) events_.qp_event(*this, hw::event::kAccess);
    if (status == Status::RemoteInvalidRequest) events_.qp_event(*this, hw::event::kInvalidRequest);
  }
  flush();
}

void QueuePair::established() { events_.qp_event(*this, hw::event::kEstablished); }

// ---- The error state
// ---------------------------------------------------------------------------------------------------------------

bool QueuePair::flush() {
  if (!error_) {
    error_ = true;
    if (srq_) {
      if (const auto taken = std::exchange(srq_taken_, std::nullopt))
        post_error(*receive_cq_, hw::cqe_opcode::kReceiveError, 0, static_cast<uint16_t>(*taken), flushed_receive);
      events_.qp_event(*this, hw::event::kSrqLast);
    }
    events_.in_error(*this);
  }
  const bool sent = flush_send();
  return flush_receive() || sent;
}

// Each entry completes for itself, also one that asks for no completion.
bool QueuePair::flush_send() {
  if (sq_done_ == sq_produced_) return false;
  while (sq_done_ != sq_produced_) {
    const auto left = static_cast<uint32_t>(sq_produced_ - sq_done_);
    SendRing::Buffer buffer;
    const SendRing::Entry entry = sq_.entry(sq_done_, left, buffer);
    const auto counter = static_cast<uint16_t>(sq_done_);
    sq_done_ += entry.at ? entry.blocks() : left;
    if (!send_cq_->overrun())
      post_error(*send_cq_, hw::cqe_opcode::kRequestError, entry.opcode(), counter, flushed_send);
  }
  sq_taken_ = sq_done_;
  return true;
}

bool QueuePair::flush_receive() {
  if (srq_ || !rq_size()) return false;
  rq_produce();
  if (rq_done_ == rq_produced_) return false;
  while (rq_done_ != rq_produced_) {
    const auto counter = static_cast<uint16_t>(rq_done_++);
    if (!receive_cq_->overrun()) post_error(*receive_cq_, hw::cqe_opcode::kReceiveError, 0, counter, flushed_receive);
  }
  rq_taken_ = rq_done_;
  return true;
}

}  // namespace userdma::soft::mlx5
