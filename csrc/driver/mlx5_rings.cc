#include "driver/mlx5_rings.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

namespace userdma::driver {

namespace hw = userdma::hw::mlx5;
using host::big_endian;

namespace {

constexpr size_t kCqe = sizeof(hw::Cqe);
// What a completion says that the NIC has not written, with the owner bit that its first pass does not write: so the
// bit alone tells, in that pass too.
constexpr uint8_t kNotWritten = hw::cqe_opcode::kInvalid << hw::kOpcodeShift | hw::kOwner;

void check(const char* what, const Mlx5Rings::Queue& queue, size_t entry) {
  // A completion names an entry by 16 bits.
  if (!std::has_single_bit(queue.entries) || queue.entries < 2 || queue.entries > 1u << 16)
    throw std::invalid_argument(std::string(what) + " of " + std::to_string(queue.entries) +
                                " entries: a power of two up to 65536 wanted");
  if (queue.bytes < queue.entries * entry)
    throw std::invalid_argument(std::string(what) + " of " + std::to_string(queue.entries) + " entries takes " +
                                std::to_string(queue.entries * entry) + " bytes, not " + std::to_string(queue.bytes));
}

// The last four bytes of the entry whose last one is at `at`: wqe_counter, signature, op_own. What is loaded after them
// is what the NIC wrote before. Loaded by the eight bytes at a time that a NIC in software stores last.
uint32_t last_word(const uint8_t* at) {
  return static_cast<uint32_t>(
      big_endian(__atomic_load_n(reinterpret_cast<const uint64_t*>(at - 7), __ATOMIC_ACQUIRE)));
}

const char* unknown_kind(uint8_t kind) {
  static constexpr const char* kinds[16] = {"opcode 0x0 (a send's)",
                                            "opcode 0x1 (of a write with immediate data)",
                                            "opcode 0x2 (a receive's)",
                                            "opcode 0x3 (of a message with immediate data)",
                                            "opcode 0x4 (of a message that invalidates a key)",
                                            "opcode 0x5 (a resized queue's)",
                                            "opcode 0x6",
                                            "opcode 0x7",
                                            "opcode 0x8",
                                            "opcode 0x9",
                                            "opcode 0xa",
                                            "opcode 0xb",
                                            "opcode 0xc (a signature error)",
                                            "opcode 0xd (a send's error)",
                                            "opcode 0xe (a receive's error)",
                                            "opcode 0xf"};
  return kinds[kind & 0xf];
}

}  // namespace

Mlx5Rings::Mlx5Rings(std::shared_ptr<Domain> domain, uint32_t qpn, const Queue& send, const Queue& receive,
                     uint32_t* records, const Cq& send_cq, const Cq& receive_cq, const host::Bar& bar, uint64_t uar,
                     uint64_t longest, std::shared_ptr<Events> events)
    : sq_(send.base), sq_mask_(send.entries - 1), rq_(receive.base), rq_mask_(receive.entries - 1), records_(records) {
  check("a send ring", send, kSendEntry);
  check("a receive ring", receive, kReceiveEntry);
  check("a send completion ring", send_cq, kCqe);
  check("a receive completion ring", receive_cq, kCqe);
  shared_ = send_cq.base == receive_cq.base;
  const uint64_t both = uint64_t{send.entries} + receive.entries;
  if (send_cq.entries < send.entries || receive_cq.entries < receive.entries || (shared_ && send_cq.entries < both))
    throw std::invalid_argument("a completion ring must have at least the entries of its ring");

  this->domain = std::move(domain);
  this->events = std::move(events);
  this->qpn = qpn;
  this->longest = longest;
  entries[0] = send.entries;
  entries[1] = receive.entries;
  for (unsigned i = 0; i < 2; ++i) doorbells_[i] = bar.doorbell(uar + hw::kBlueFlame + i * hw::kBlueFlameBytes / 2);
  const Cq* queues[2] = {&send_cq, &receive_cq};
  for (int i = 0; i < (shared_ ? 1 : 2); ++i) {
    Ring& cq = cq_[i];
    cq.base = queues[i]->base;
    cq.entries = queues[i]->entries;
    cq.end = op_own(cq) + cq.entries * kCqe;
    cq.id = queues[i]->id;
    cq.records = queues[i]->records;
    // The ring must hold a completion of every entry beside those that were taken and not told to the NIC; half of
    // the spare room leaves some for what completes no entry.
    cq.batch = std::max<uint64_t>(1, (cq.entries - (shared_ ? both : entries[i])) / 2);
    cq.left = cq.batch;
    for (uint32_t entry = 0; entry < cq.entries; ++entry)
      __atomic_store_n(cq.base + entry * kCqe + offsetof(hw::Cqe, op_own), kNotWritten, __ATOMIC_RELEASE);
  }
}

void Mlx5Rings::connect(uint32_t, uint32_t) {}  // the NIC itself counts packets

void Mlx5Rings::listen(EventListener* listener) {
  if (!events) return;
  events->listen_qp(qpn, listener);
  events->listen_cq(cq_[0].id, listener);
  if (!shared_) events->listen_cq(cq_[1].id, listener);
}

void Mlx5Rings::forget() {
  if (!events) return;
  events->forget_qp(qpn);
  events->forget_cq(cq_[0].id);
  if (!shared_) events->forget_cq(cq_[1].id);
}

// ---- Posts ----

void Mlx5Rings::send(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) {
  uint8_t* wqe = sq_ + (number & sq_mask_) * kSendEntry;
  const uint64_t control = mlx5::control(hw::opcode::kSend, 0, static_cast<uint16_t>(number), qpn, bytes != 0 ? 2 : 1);
  mlx5::put(wqe, control, mlx5::control_flags(hw::control::kCompletion));
  mlx5::put_data(wqe + 16, bytes, lkey, va);
  finish_send(number, control);
}

void Mlx5Rings::rdma(uint64_t number, const Rdma& rdma) {
  uint8_t* wqe = sq_ + (number & sq_mask_) * kSendEntry;
  const uint8_t opcode = rdma.op == Rdma::Op::Write ? hw::opcode::kWrite : hw::opcode::kRead;
  const uint64_t control = mlx5::control(opcode, 0, static_cast<uint16_t>(number), qpn, rdma.bytes != 0 ? 3 : 2);
  mlx5::put(wqe, control, mlx5::control_flags(hw::control::kCompletion));
  mlx5::put_remote(wqe + 16, rdma.remote, rdma.rkey);
  mlx5::put_data(wqe + 32, rdma.bytes, rdma.lkey, rdma.va);
  finish_send(number, control);
}

// The record says how many entries there are, the doorbell that it does.
inline void Mlx5Rings::finish_send(uint64_t number, uint64_t control) {
  mlx5::record(records_ + hw::record::kSend, static_cast<uint32_t>(number + 1) & hw::record::kCounterMask);
  doorbells_[number & 1].ring(control);
}

void Mlx5Rings::receive(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) {
  uint8_t* wqe = rq_ + (number & rq_mask_) * kReceiveEntry;
  if (bytes != 0) [[likely]]
    mlx5::put_data(wqe, bytes, lkey, va);
  else
    mlx5::put_end(wqe);
  mlx5::record(records_ + hw::record::kReceive, static_cast<uint32_t>(number + 1) & hw::record::kCounterMask);
}

// ---- Completions ----

void Mlx5Rings::start(Side side, Next& next) {
  next.phase.store(0);  // the owner bit of the first pass; it flips with each
  next.at.store(op_own(cq_[shared_ ? 0 : static_cast<int>(side)]));
  next_[static_cast<int>(side)] = &next;
  position_ = next;
}

// To the entry after the one at `at`.
inline void Mlx5Rings::advance(Ring& cq, Next& next, const uint8_t* at) const {
  at += kCqe;
  if (at == cq.end) [[unlikely]] {
    at = op_own(cq);
    cq.taken += cq.entries;
    next.phase.store(next.phase.own() ^ hw::kOwner);
  }
  next.at.store(at);
}

void Mlx5Rings::ring(Side side, const Next& next) {
  Ring& cq = cq_[shared_ ? 0 : static_cast<int>(side)];
  cq.left = cq.batch;
  const uint8_t* at = shared_ ? position_.at.own() : next.at.own();
  const uint64_t taken = cq.taken + static_cast<uint64_t>(at - op_own(cq)) / kCqe;
  mlx5::record(cq.records, static_cast<uint32_t>(taken) & hw::kArmCounterMask);
}

template <Side side>
inline Polled Mlx5Rings::poll_written(Qp& qp, Completion& out) {
  driver::Ring& ring = qp.ring(side);
  Ring& cq = cq_[static_cast<int>(side)];
  const uint8_t* at = ring.next.at.own();
  // wqe_counter, signature, op_own: the last four bytes of an entry. A plain success has its opcode, no format of its
  // own (bits 2 and 3), and the solicited bit or not.
  constexpr uint8_t opcode = side == Side::Send ? hw::cqe_opcode::kRequest : hw::cqe_opcode::kReceived;
  constexpr uint32_t plain = uint32_t{opcode} << hw::kOpcodeShift;
  const uint32_t word = last_word(at);
  host::load_barrier();
  // The completion with which the NIC is to hear of them goes the other way too.
  if ((word & 0xfc) != plain || cq.left == 1) [[unlikely]]
    return qp.poll_any(side, out);
  const uint64_t mask = side == Side::Send ? sq_mask_ : rq_mask_;
  uint32_t moved = ring.bytes[ring.taken.own() & ring.mask];
  if constexpr (side == Side::Receive) {
    uint32_t length;
    std::memcpy(&length, at - offsetof(hw::Cqe, op_own) + offsetof(hw::Cqe, byte_cnt), sizeof(length));
    length = big_endian(length);
    if (length > moved) [[unlikely]]
      return qp.poll_any(side, out);
    moved = length;
  }
  if (!ring.is_next((word >> 16) & mask)) [[unlikely]]
    return qp.poll_any(side, out);
  --cq.left;
  advance(cq, ring.next, at);
  ring.take_next(moved, out);
  return Polled::Ok;
}

Polled Mlx5Rings::poll_written(Qp& qp, Side side, Completion& out) {
  if (shared_) [[unlikely]]
    return qp.poll_any(side, out);
  return side == Side::Send ? poll_written<Side::Send>(qp, out) : poll_written<Side::Receive>(qp, out);
}

// What the entry at `cqe` says of the ring that it is of.
Found Mlx5Rings::found(Side side, const uint8_t* cqe) const {
  Found found;
  const mlx5::RawCompletion raw = mlx5::read(cqe);
  const uint64_t mask = side == Side::Send ? sq_mask_ : rq_mask_;
  // A send's is past the entry, a receive's the entry itself.
  found.index = static_cast<uint32_t>((raw.index + (side == Side::Send ? 1u : 0u)) & mask);
  found.bytes = raw.bytes;
  namespace opcode = hw::cqe_opcode;
  const bool known = side == Side::Send
                         ? raw.opcode == opcode::kRequest || raw.opcode == opcode::kRequestError
                         : raw.opcode == opcode::kReceived || raw.opcode == opcode::kReceivedImmediate ||
                               raw.opcode == opcode::kReceivedWriteImmediate || raw.opcode == opcode::kReceiveError;
  if (!known) {
    found.what = Found::What::Unknown;
    found.unknown = unknown_kind(raw.opcode);
  } else if (raw.opcode < opcode::kRequestError && (cqe[offsetof(hw::Cqe, op_own)] & hw::kFormatMask) != 0) {
    found.what = Found::What::Unknown;
    found.unknown = "one that has the message's bytes in it, or stands for several";
  } else if (raw.opcode == opcode::kRequest) {
    found.what = Found::What::Done;
  } else if (raw.opcode == opcode::kRequestError || raw.opcode == opcode::kReceiveError) {
    found.error = mlx5::error_of(raw.syndrome);
    found.status = raw.syndrome;
    found.vendor = raw.vendor;
    found.what = found.error == Error::Flushed ? Found::What::Flushed : Found::What::Failed;
  } else {
    found.what = Found::What::Received;
    found.has_immediate = raw.opcode != opcode::kReceived;
    uint32_t immediate;
    std::memcpy(&immediate, cqe + offsetof(hw::Cqe, imm_inval_pkey), sizeof(immediate));
    found.immediate = big_endian(immediate);
  }
  return found;
}

Found Mlx5Rings::absorb(Side side, Next& next) {
  if (shared_) [[unlikely]]
    return absorb_shared(side, next);
  Ring& cq = cq_[static_cast<int>(side)];
  const uint8_t* at = next.at.own();
  const auto first = static_cast<uint8_t>(last_word(at));
  if (((first ^ next.phase.own()) & hw::kOwner) != 0 || first >> hw::kOpcodeShift == hw::cqe_opcode::kInvalid)
    return {};
  host::load_barrier();
  Found found = this->found(side, at - offsetof(hw::Cqe, op_own));
  advance(cq, next, at);
  if (cq.left != 0) --cq.left;
  found.ring = cq.left == 0;
  return found;
}

// ---- A shared completion queue ----

// Whose an entry is. One of a kind that neither takes is for whoever comes across it.
Side Mlx5Rings::side_of(uint8_t opcode, Side otherwise) {
  namespace o = hw::cqe_opcode;
  switch (opcode) {
    case o::kRequest:
    case o::kRequestError:
      return Side::Send;
    case o::kReceived:
    case o::kReceivedImmediate:
    case o::kReceivedWriteImmediate:
    case o::kReceivedInvalidate:
    case o::kReceiveError:
      return Side::Receive;
    default:
      return otherwise;
  }
}

// Where a side looks: at the queue's next entry, unless something was put aside for it.
void Mlx5Rings::show(Next* next, const std::deque<Found>& aside) const {
  if (aside.empty()) {
    next->phase.store(position_.phase.own());
    next->at.store(position_.at.own());
  } else {
    next->close();
  }
}

Found Mlx5Rings::absorb_shared(Side side, Next& next) {
  Ring& cq = cq_[0];
  std::deque<Found>& mine = aside_[static_cast<int>(side)];
  Found out;
  if (!mine.empty()) {
    out = mine.front();
    mine.pop_front();
    show(&next, mine);
    return out;
  }
  for (;;) {
    const uint8_t* at = position_.at.own();
    const auto first = static_cast<uint8_t>(last_word(at));
    if (((first ^ position_.phase.own()) & hw::kOwner) != 0 || first >> hw::kOpcodeShift == hw::cqe_opcode::kInvalid)
      break;
    host::load_barrier();
    const Side whose = side_of(first >> hw::kOpcodeShift, side);
    Found found = this->found(whose, at - offsetof(hw::Cqe, op_own));
    advance(cq, position_, at);
    if (cq.left != 0) --cq.left;
    if (whose == side) {
      out = found;
      break;
    }
    std::deque<Found>& others = aside_[static_cast<int>(whose)];
    if (others.size() == entries[static_cast<int>(whose)]) {  // a NIC that writes without end
      out.what = Found::What::Unknown;
      out.unknown = "more of the other ring than that has entries";
      break;
    }
    others.push_back(found);
  }
  // Here, not by who takes one: the NIC is to hear of those too that were put aside.
  if (cq.left == 0) ring(side, next);
  for (int i = 0; i < 2; ++i)
    if (next_[i] != nullptr) show(next_[i], aside_[i]);
  return out;
}

}  // namespace userdma::driver
