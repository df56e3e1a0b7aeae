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

  // The MSN table follows the send ring from the next page boundary. `doorbell` is the function's doorbell register.
  // Throws std::invalid_argument for memory that is too small or entries that are no power of two.
  BnxtRings(std::shared_ptr<Domain> domain, uint32_t qpn, const Queue& send, const Queue& receive, const Queue& send_cq,
            const Queue& receive_cq, host::Doorbell doorbell, std::shared_ptr<EventRing> events = nullptr);

  void send(uint64_t number, const Work& work) override;
  void receive(uint64_t number, uint64_t va, uint32_t lkey, uint32_t bytes) override;
  void start(Side side, Next& next) override;
  Found absorb(Side side, Next& next) override;
  void ring(Side side) override;
  void connect(uint32_t psn, uint32_t mtu) override;
  void listen(EventListener* listener) override;
  void forget() override;

 private:
  struct Cq {
    uint8_t* base;
    uint64_t mask;
    unsigned shift;  // log2 of its entries
    uint32_t id;
    uint64_t consumer = 0;
    uint64_t rung = 0;   // the consumer that the NIC knows
    uint64_t batch = 1;  // completions between two doorbells
  };

  void point(const Cq& cq, Next& next) const;

  uint8_t* sq_;
  uint64_t* msn_;
  uint8_t* rq_;
  unsigned sq_shift_;
  unsigned rq_shift_;
  Cq cq_[2];
  host::Doorbell doorbell_;
  uint32_t psn_ = 0;
  unsigned mtu_shift_ = 0;
};

}  // namespace userdma::driver
