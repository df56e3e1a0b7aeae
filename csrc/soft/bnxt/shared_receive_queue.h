// A shared receive queue: receives that several queue pairs take from, and an event when few are left.
#pragma once

#include <cstdint>
#include <memory>

#include "soft/bnxt/queues.h"
#include "soft/bnxt/ring.h"
#include "soft/transport/types.h"

namespace userdma::soft::bnxt {

struct SrqSpec {
  uint32_t pd = 0;
  uint32_t entries = 0;
  PageTable table;
  uint64_t handle = 0;
};

class Srq {
 public:
  // Its WQEs are all of this size (qplib_fp.c, bnxt_re_get_rwqe_size of six SGEs; rdma-core, bnxt_re_get_srqe_sz).
  static constexpr uint32_t stride = hw::kStaticWqe;

  Srq(Dma& dma, uint32_t id, const SrqSpec& spec, std::shared_ptr<Nq> nq, DoorbellWord& word)
      : id_(id), spec_(spec), ring_(dma, spec.table, uint64_t{spec.entries} * stride), nq_(std::move(nq)), word_(word) {
    word_.store(0, std::memory_order_relaxed);
  }

  uint32_t id() const { return id_; }
  uint32_t pd() const { return spec_.pd; }
  // The number of receives below which an event is due; 0: none is (any more).
  uint32_t limit() const { return armed_ ? limit_ : 0; }

  // As transport::Rings::next_receive. The receive's handle is the WQE's wr_id.
  transport::Rings::Next next(transport::Receive& out, transport::Status& status);

  // Doorbells. An event's toggle must come back in what arms and what enables the next one, as with a completion queue.
  void arm(uint32_t limit, uint32_t toggle);
  void enable(uint32_t toggle);

 private:
  void produce();
  void look();  // whether the event is due

  const uint32_t id_;
  const SrqSpec spec_;
  Ring ring_;
  const std::shared_ptr<Nq> nq_;
  DoorbellWord& word_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  uint32_t limit_ = 0;
  uint8_t toggle_ = 0;
  bool armed_ = false;
  bool enabled_ = false;
};

// Reads a receive's WQE of `stride` bytes. Bad: it cannot be.
transport::Rings::Next read_receive(const uint8_t* wqe, uint32_t stride, transport::Receive& out, uint32_t& wr_id);

}  // namespace userdma::soft::bnxt
