// The rings of a bnxt queue pair: static 128-byte WQEs, the MSN table, doorbells, 32-byte CQEs. Layouts: hw/bnxt.h.
#pragma once

#include "driver/qp.h"
#include "host/mmio.h"
#include "hw/bnxt.h"

namespace userdma::driver {

class BnxtRings final : public Rings {
 public:
  struct Queue {
    uint8_t* base = nullptr;
    size_t bytes = 0;      // of the memory at base
    uint32_t entries = 0;  // a power of two
    uint32_t id = 0;       // of a completion queue
  };

  // The MSN table follows the send ring's last entry. `doorbell` is the function's doorbell register.
  // Throws std::invalid_argument for memory that is too small or entries that are no power of two.
  BnxtRings(std::shared_ptr<Domain> domain, uint32_t qpn, const Queue& send, const Queue& receive, const Queue& send_cq,
            const Queue& receive_cq, host::Doorbell doorbell, std::shared_ptr<Events> events = nullptr);

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
  struct alignas(64) Cq {
    uint64_t left = 1;         // completions until the next doorbell
    const uint8_t* end;        // past the last entry, as `toggle` counts
    uint32_t simple_mask = 0;  // of an entry's 32 bits from the toggle on: what they are in a plain success,
    uint32_t simple = 0;       // but for the toggle
    uint32_t passes = 0;
    uint8_t* base;
    uint32_t entries;
    uint32_t id;
    uint64_t batch = 1;  // completions between two doorbells
  };

  // The toggle byte of the ring's first entry. `Next` always points to one.
  static const uint8_t* toggle(const Cq& cq) { return cq.base + offsetof(hw::bnxt::CqBase, cqe_type_toggle); }
  void advance(Cq& cq, Next& next, const uint8_t* at) const;
  template <Side side>
  Polled poll_written(Qp& qp, Completion& out);
  void finish_send(uint64_t number, uint32_t bytes);

  // What a doorbell of the send or receive ring says after entry `number`.
  static uint64_t after(uint64_t doorbell, uint64_t number, uint64_t mask, unsigned epoch_shift) {
    ++number;
    return doorbell | (number & mask) | (number << epoch_shift & hw::bnxt::kDoorbellEpoch);
  }

  uint8_t* sq_;
  uint64_t* msn_;
  uint64_t sq_mask_;
  uint64_t sq_doorbell_;     // with index and epoch 0
  unsigned sq_epoch_shift_;  // from the bit of a number that flips at each wrap to the doorbell's epoch
  unsigned mtu_shift_ = 0;
  uint32_t psn_ = 0;
  unsigned rq_epoch_shift_;
  uint8_t* rq_;
  uint64_t rq_mask_;
  uint64_t rq_doorbell_;
  Cq cq_[2];
  host::Doorbell doorbell_;
};

}  // namespace userdma::driver
