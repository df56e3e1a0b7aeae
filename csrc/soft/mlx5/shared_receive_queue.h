// A shared receive queue: receives that several queue pairs take from, and an event when few are left.
#pragma once

#include <cstdint>

#include "soft/mlx5/queues.h"
#include "soft/ring.h"
#include "soft/transport/types.h"

namespace userdma::soft::mlx5 {

struct SrqSpec {
  uint32_t pd = 0;
  Pages pages;
  unsigned log_entries = 0;
  unsigned log_stride = 5;
  uint64_t record = 0;
  uint32_t limit = 0;
};

class Srq;

// Whom a shared receive queue tells of its events.
class SrqEvents {
 public:
  virtual void srq_event(const Srq& srq, uint8_t type) = 0;

 protected:
  ~SrqEvents() = default;
};

class Srq {
 public:
  static constexpr unsigned log_stride_limit = 10;

  Srq(Dma& dma, uint32_t id, const SrqSpec& spec, SrqEvents& events)
      : id_(id),
        spec_(spec),
        ring_(dma, spec.pages.pages, spec.pages.page_shift, spec.pages.offset,
              uint64_t{1} << (spec.log_entries + spec.log_stride)),
        record_(dma, spec.record),
        events_(events),
        limit_(spec.limit) {}

  uint32_t id() const { return id_; }
  uint32_t pd() const { return spec_.pd; }
  // The number of receives below which an event is due; 0: none is (any more).
  uint32_t limit() const { return limit_; }
  void arm(uint32_t limit) {
    limit_ = limit;
    look();
  }

  // As transport::Rings::next_receive. The receive's handle is its entry's index.
  transport::Rings::Next next(transport::Receive& out, transport::Status& status);

 private:
  // False: the record is not there, or says what cannot be.
  bool produce();
  void look();  // whether the event is due
  void fail();

  const uint32_t id_;
  const SrqSpec spec_;
  Ring ring_;
  Record record_;
  SrqEvents& events_;
  uint32_t produced_ = 0;
  uint32_t consumed_ = 0;
  uint32_t head_ = 0;  // the index of the next entry
  uint32_t limit_;
  bool broken_ = false;
};

// Reads the data segments of a receive, up to `most` of them.
void read_receive(const uint8_t* segments, unsigned most, transport::Receive& out);

}  // namespace userdma::soft::mlx5
