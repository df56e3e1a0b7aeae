// A queue pair of the chip: its rings, as the transport sees them, and its completions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "soft/bnxt/queues.h"
#include "soft/bnxt/region.h"
#include "soft/bnxt/ring.h"
#include "soft/bnxt/shared_receive_queue.h"
#include "soft/transport/engine.h"
#include "soft/transport/types.h"

namespace userdma::soft::bnxt {

struct QueuePairSpec {
  uint8_t type = hw::qp_type::kRc;
  uint32_t scq = 0;
  uint32_t rcq = 0;
  std::optional<uint32_t> srq;  // receives come from there, and rq_size is 0
  uint32_t pd = 0;
  uint32_t sq_size = 0;  // WQEs; slots with variable-size ones
  uint32_t rq_size = 0;  // WQEs
  uint32_t sq_sges = 6;
  uint32_t rq_sges = 6;
  PageTable sq;
  PageTable rq;
  uint64_t handle = 0;
  bool variable = false;
  bool msn_table = true;
  bool signal_all = false;
  bool reserved_lkey = false;  // local memory by bus addresses, under kReservedLkey
  bool fast_register = false;  // entries may register, bind and invalidate
  uint32_t inline_max = hw::kInlineMax;
};

class QueuePair;

// What a queue pair tells the function's firmware about, and asks of it.
class Events {
 public:
  virtual void qp_error(const QueuePair& qp, bool requester, transport::Status status) = 0;
  virtual void cq_error(const Cq& cq, bool requester) = 0;
  // Nothing on its way may refer to this memory any more.
  virtual void recall(const uint8_t* at, uint64_t bytes) = 0;

 protected:
  ~Events() = default;
};

// Address vectors (CREATE_AH), by the number that a datagram's entry names.
struct AddressVector {
  uint32_t pd = 0;
  transport::Address address;
};
using AddressVectors = std::unordered_map<uint32_t, AddressVector>;

// The parts of a function that its queue pairs share.
struct Shared {
  Dma& dma;
  transport::Engine& engine;
  Regions& regions;
  const AddressVectors& addresses;
  Events& events;
};

class QueuePair final : public transport::Rings {
 public:
  QueuePair(uint32_t id, const QueuePairSpec& spec, const Shared& shared, std::shared_ptr<Cq> scq,
            std::shared_ptr<Cq> rcq, std::shared_ptr<Srq> srq, DoorbellWord& rq_word);

  uint32_t id() const { return id_; }
  const QueuePairSpec& spec() const { return spec_; }
  uint16_t sq_consumer() const { return static_cast<uint16_t>(sq_done_); }
  uint16_t rq_consumer() const { return static_cast<uint16_t>(rq_done_); }

  // A send doorbell: true if there are entries now that the pair has not taken.
  bool sq_doorbell(uint32_t word);
  bool sq_pending() const { return sq_consumed_ != sq_produced_; }

  void reset();     // the pair goes to RESET: empty rings
  void terminal();  // it goes to the error state with no entry to blame: its completion queues say so

  Next next_work(transport::Work& out, transport::Status& status) override;
  bool work_again(uint32_t handle, uint32_t msn, uint32_t psn, transport::Work& out) override;
  transport::Status perform(uint32_t handle) override;
  Next next_receive(transport::Receive& out, transport::Status& status) override;
  void complete_work(uint32_t handle, bool signaled, transport::Status status, uint64_t bytes) override;
  void complete_receive(uint32_t handle, const transport::Arrival& arrival) override;
  void failed(bool requester, transport::Status status) override;
  transport::Status reach(uint32_t key, uint64_t va, uint64_t bytes, uint8_t need, bool remote, transport::Spans& out,
                          uint64_t& covered) override {
    Region* region = regions_.find(key);
    if (!region || region->pd() != spec_.pd) [[unlikely]] {
      if (key == hw::kReservedLkey && spec_.reserved_lkey && !remote)
        return reserved_.reach(va, bytes, need, false, out, covered);
      return remote ? transport::Status::RemoteAccess : transport::Status::LocalProtection;
    }
    return region->reach(va, bytes, need, remote, out, covered);
  }
  bool invalidate(uint32_t rkey) override;

 private:
  static constexpr size_t wqe_limit = 32 + transport::max_inline;  // the longest variable-size WQE

  // The WQE at `index` (WQE or slot): a pointer to all of it, `slots` long if that is less than the limit. Null: a
  // fault, or a WQE that cannot be.
  const uint8_t* wqe(uint32_t index, uint32_t available, uint32_t& slots, uint8_t* buffer, transport::Status& status);
  bool parse(const uint8_t* wqe, uint32_t slots, transport::Work& out, transport::Status& status) const;
  bool parse_address(const uint8_t* wqe, transport::Work& out) const;
  bool datagram() const { return spec_.type != hw::qp_type::kRc; }
  transport::Status fast_register(const uint8_t* wqe);
  transport::Status bind(const uint8_t* wqe);
  bool post(Cq& cq, const void* first, uint64_t last, bool solicited, bool requester);
  void terminal(Cq& cq, uint16_t sq, uint16_t rq);

  const uint32_t id_;
  const QueuePairSpec spec_;
  Dma& dma_;
  transport::Engine& engine_;
  Regions& regions_;
  const AddressVectors& addresses_;
  Events& events_;
  const std::shared_ptr<Cq> scq_;
  const std::shared_ptr<Cq> rcq_;
  const std::shared_ptr<Srq> srq_;
  DoorbellWord& rq_word_;
  Region reserved_;  // all memory, by bus addresses

  Ring sq_;
  const uint64_t msn_offset_;  // where the MSN table begins, after the ring
  const uint32_t msn_entries_;
  uint64_t sq_produced_ = 0;  // entries or slots since the reset
  uint64_t sq_consumed_ = 0;
  uint32_t sq_index_ = 0;             // of sq_consumed_ in the ring
  uint32_t sq_done_ = 0;              // past the last completed WQE, as completions count: WQEs modulo the ring's size
  uint32_t sq_told_ = 0;              // of it, what completions have said
  std::vector<uint16_t> wqe_number_;  // variable-size WQEs: by first slot, past which count of WQEs this one is
  uint32_t wqe_count_ = 0;

  Ring rq_;
  const uint32_t rq_stride_;
  uint64_t rq_produced_ = 0;
  uint64_t rq_consumed_ = 0;
  uint32_t rq_index_ = 0;
  uint32_t rq_done_ = 0;
  std::vector<uint32_t> wr_id_;  // of the receives taken, by index

  bool broken_ = false;         // a completion was lost: the pair fails when it next looks
  bool scq_has_error_ = false;  // what failed is in the queue already
  bool rcq_has_error_ = false;
};

}  // namespace userdma::soft::bnxt
