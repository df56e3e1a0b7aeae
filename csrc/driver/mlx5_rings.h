// The rings of a ConnectX queue pair: entries of one 64-byte block, receives of one segment, doorbell records, 64-byte
// completions. Layouts: hw/mlx5.h.
#pragma once

#include <deque>

#include "driver/mlx5_completion.h"
#include "driver/mlx5_wqe.h"
#include "driver/qp.h"
#include "host/mmio.h"

namespace userdma::driver {

class Mlx5Rings final : public Rings {
 public:
  static constexpr size_t kReceiveEntry = hw::mlx5::kSegment;
  static constexpr size_t kSendEntry = hw::mlx5::kSendBlock;

  struct Queue {
    uint8_t* base = nullptr;
    size_t bytes = 0;      // of the memory at base
    uint32_t entries = 0;  // a power of two
  };
  struct Cq : Queue {
    uint32_t id = 0;
    uint32_t* records = nullptr;  // its two doorbell records
  };

  // `records`: the pair's two. `uar`: the place in `bar` of its user access region. `longest`: bytes of a message. The
  // completions are marked as not written here: the NIC must not complete anything before. A completion queue given
  // twice is shared: it holds the completions of both rings.
  // Throws std::invalid_argument for memory that is too small or entries that are no power of two.
  Mlx5Rings(std::shared_ptr<Domain> domain, uint32_t qpn, const Queue& send, const Queue& receive, uint32_t* records,
            const Cq& send_cq, const Cq& receive_cq, const host::Bar& bar, uint64_t uar, uint64_t longest,
            std::shared_ptr<Events> events = nullptr);

  void send(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) override;
  void rdma(uint64_t number, const Rdma& rdma) override;
  void receive(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) override;
  void start(Side side, Next& next) override;
  Found absorb(Side side, Next& next) override;
  Polled poll_written(Qp& qp, Side side, Completion& out) override;
  void ring(Side side, const Next& next) override;
  void connect(uint32_t psn, uint32_t mtu) override;
  void listen(EventListener* listener) override;
  void forget() override;

 private:
  struct alignas(64) Ring {
    uint64_t left = 1;   // completions until the NIC hears of them
    const uint8_t* end;  // past the last entry, as `op_own` counts
    uint64_t taken = 0;  // passes over the ring before this one, in entries
    uint8_t* base;
    uint32_t entries;
    uint32_t id;
    uint32_t* records;
    uint64_t batch = 1;  // completions between two updates of the record
  };

  // The last byte of the ring's first entry. `Next` always points to one.
  static const uint8_t* op_own(const Ring& cq) { return cq.base + offsetof(hw::mlx5::Cqe, op_own); }
  void advance(Ring& cq, Next& next, const uint8_t* at) const;
  template <Side side>
  Polled poll_written(Qp& qp, Completion& out);
  static Side side_of(uint8_t opcode, Side otherwise);
  Found found(Side side, const uint8_t* cqe) const;
  Found absorb_shared(Side side, Next& next);
  void show(Next* next, const std::deque<Found>& aside) const;
  void finish_send(uint64_t number, uint64_t control);

  uint8_t* sq_;
  uint64_t sq_mask_;
  uint8_t* rq_;
  uint64_t rq_mask_;
  uint32_t* records_;
  host::Doorbell doorbells_[2];  // the halves of a BlueFlame register, in turn
  Ring cq_[2];                   // a shared one is the first

  // Of a shared queue: where each side looks, and what the other one came across of it.
  bool shared_ = false;
  Next* next_[2] = {};
  Next position_;  // in the queue
  std::deque<Found> aside_[2];
};

}  // namespace userdma::driver
