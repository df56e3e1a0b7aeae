// A queue pair of the device: its rings, as the transport sees them, and its completions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "host/big_endian.h"
#include "soft/mlx5/mkey.h"
#include "soft/mlx5/queues.h"
#include "soft/mlx5/send_ring.h"
#include "soft/mlx5/shared_receive_queue.h"
#include "soft/ring.h"
#include "soft/transport/engine.h"
#include "soft/transport/types.h"

namespace userdma::soft::mlx5 {

struct QueuePairSpec {
  uint8_t type = hw::qp_type::kRc;
  uint32_t pd = 0;
  Pages pages;
  uint64_t record = 0;
  std::optional<unsigned> log_rq_entries;  // absent: none
  unsigned log_rq_stride = 4;
  std::optional<unsigned> log_sq_entries;  // of basic blocks; absent: none
  uint32_t cqn_send = 0;
  uint32_t cqn_receive = 0;
  std::optional<uint32_t> srqn;
  std::optional<uint32_t> user_index;  // what completions have in place of the SRQ's number
  std::optional<uint32_t> wire_qpn;    // by which peers know it, if it is another number
  std::optional<uint32_t> source_qpn;  // that its datagrams are of
  bool umr = false;                    // it may change keys of any protection domain
  uint64_t longest = 1u << 31;         // bytes of a message
  bool big_endian_atomics = false;     // results of atomics, in its memory
};

class QueuePair;

// What a queue pair tells the function about, and asks of it.
class Events : public SrqEvents {
 public:
  virtual void qp_event(const QueuePair& qp, uint8_t type) = 0;
  virtual void cq_overrun(const Cq& cq) = 0;
  // The pair has to go to the error state, where no entry is to blame.
  virtual void doom(const QueuePair& qp) = 0;
  // It is in the error state, and receives may still be posted.
  virtual void in_error(const QueuePair& qp) = 0;
  // It waits for memory that is not there: false if nobody is told.
  virtual bool page_fault(const QueuePair& qp, const transport::Absence& absence) = 0;
  // Nothing on its way may refer to this memory any more.
  virtual void recall(const uint8_t* at, uint64_t bytes) = 0;

 protected:
  ~Events() = default;
};

// The RoCE address table, by index.
struct Gid {
  uint8_t gid[16];
  uint8_t mac[6];
};
using Gids = std::unordered_map<uint32_t, Gid>;

// The parts of a function that its queue pairs share.
struct Shared {
  Dma& dma;
  Mkeys& keys;
  const Gids& gids;
  Events& events;
};

class QueuePair final : public transport::Rings {
 public:
  static constexpr unsigned log_entries_limit = SendRing::log_limit;
  static constexpr unsigned log_rq_stride_limit = 10;

  QueuePair(uint32_t id, const QueuePairSpec& spec, const Shared& shared, std::shared_ptr<Cq> send_cq,
            std::shared_ptr<Cq> receive_cq, std::shared_ptr<Srq> srq);

  uint32_t id() const { return id_; }
  uint32_t wire_id() const { return spec_.wire_qpn.value_or(id_); }
  const QueuePairSpec& spec() const { return spec_; }
  bool datagram() const { return spec_.type == hw::qp_type::kUd || spec_.type == hw::qp_type::kQp1; }
  uint16_t sq_counter() const { return static_cast<uint16_t>(sq_taken_); }
  uint16_t rq_counter() const { return static_cast<uint16_t>(rq_taken_); }
  bool uses(const Cq& cq) const { return send_cq_.get() == &cq || receive_cq_.get() == &cq; }

  // A send doorbell: true if there are entries now that the pair has not taken. Nothing in RESET.
  bool sq_doorbell();
  bool sq_pending() const { return sq_taken_ != sq_produced_; }

  void reset();                   // the pair goes to RESET: empty rings
  void start() { live_ = true; }  // it leaves RESET
  bool in_error() const { return error_; }
  // It is in the error state: what is posted completes as flushed, from now on too. True if anything was.
  bool flush();

  Next next_work(transport::Work& out, transport::Status& status) override;
  bool work_again(uint32_t handle, uint32_t msn, uint32_t psn, transport::Work& out) override;
  transport::Status perform(uint32_t handle) override;
  Next next_receive(transport::Receive& out, transport::Status& status) override;
  void complete_work(uint32_t handle, bool signaled, transport::Status status, uint64_t bytes) override;
  void complete_receive(uint32_t handle, const transport::Arrival& arrival) override;
  void failed(bool requester, transport::Status status) override;
  transport::Status reach(uint32_t key, uint64_t va, uint64_t bytes, uint8_t need, bool remote, transport::Spans& out,
                          uint64_t& covered) override {
    Mkey* found = keys_.find(key);
    if (!found || found->pd() != spec_.pd) [[unlikely]]
      return remote ? transport::Status::RemoteAccess : transport::Status::LocalProtection;
    return found->reach(keys_, id_, va, bytes, need, remote, out, covered);
  }
  bool absent(const transport::Absence& absence) override { return events_.page_fault(*this, absence); }
  uint64_t atomic_result(uint64_t original) const override {
    return spec_.big_endian_atomics ? host::big_endian(original) : original;
  }
  void established() override;
  bool invalidate(uint32_t rkey) override;

 private:
  uint32_t sq_size() const { return spec_.log_sq_entries ? 1u << *spec_.log_sq_entries : 0; }
  uint32_t rq_size() const { return spec_.log_rq_entries ? 1u << *spec_.log_rq_entries : 0; }

  bool parse(const SendRing::Entry& entry, transport::Work& out, transport::Status& status) const;
  bool parse_address(const uint8_t* segment, transport::Work& out) const;
  bool parse_data(const uint8_t* at, const uint8_t* end, transport::Work& out, transport::Status& status) const;
  transport::Status umr(const SendRing::Entry& entry);
  transport::Status local_invalidate(uint32_t key);
  bool rq_produce();  // false: the record is not there, or says what cannot be
  bool flush_send();
  bool flush_receive();
  void post_error(Cq& cq, uint8_t opcode, uint8_t wqe_opcode, uint16_t counter, Error error);
  void post(Cq& cq, hw::Cqe entry, bool solicited);
  uint32_t srqn_or_index() const { return spec_.user_index.value_or(srq_ ? srq_->id() : 0); }

  const uint32_t id_;
  const QueuePairSpec spec_;
  Dma& dma_;
  Mkeys& keys_;
  const Gids& gids_;
  Events& events_;
  const std::shared_ptr<Cq> send_cq_;
  const std::shared_ptr<Cq> receive_cq_;
  const std::shared_ptr<Srq> srq_;
  Record record_;
  bool live_ = false;
  bool error_ = false;

  // Counts of blocks since the reset.
  SendRing sq_;
  uint64_t sq_produced_ = 0;
  uint64_t sq_taken_ = 0;
  uint64_t sq_done_ = 0;
  struct Taken {
    uint16_t blocks;
    uint8_t opcode;
  };
  std::vector<Taken> taken_;  // by index of its first block

  // Counts of entries since the reset.
  Ring rq_;
  uint64_t rq_produced_ = 0;
  uint64_t rq_taken_ = 0;
  uint64_t rq_done_ = 0;
  std::optional<uint32_t> srq_taken_;  // a receive of the shared queue's that has not completed
};

}  // namespace userdma::soft::mlx5
