// The Ethernet part's data path: send queues, receive queues, and the TIRs by which packets come to them. The firmware
// makes and ends them.
//
// A packet leaves by a send queue, whose offloads (checksums, segmentation, VLAN tag) are done here; it comes in by the
// flow tables, which lead to a TIR, and by the TIR's hash to a receive queue. A packet that finds no receive is dropped
// and counted.
//
// What is sent to a group also comes back, with the local loopback of the port, but never to the transport domain that
// sent it. What is sent to the port's own MAC comes back by the wire.
//
// The NIC's lock is held in every call. An id that there is none of throws UnknownId, one that there is already
// std::invalid_argument.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "hw/mlx5_ethernet.h"
#include "soft/ethernet_port.h"
#include "soft/mlx5/mkey.h"
#include "soft/mlx5/queues.h"
#include "soft/mlx5/send_ring.h"
#include "soft/mlx5/shared_receive_queue.h"
#include "soft/mlx5/steering.h"
#include "soft/nic.h"

namespace userdma::soft::mlx5 {

struct SendQueueSpec {
  uint32_t pd = 0;
  uint32_t transport_domain = 0;
  Pages pages;
  unsigned log_entries = 0;  // of blocks
  uint64_t record = 0;
  uint32_t cqn = 0;
  uint32_t user_index = 0;
};

struct ReceiveQueueSpec {
  uint32_t pd = 0;
  Pages pages;
  unsigned log_entries = 0;
  unsigned log_stride = 4;
  uint64_t record = 0;
  bool linked = false;           // its entries are a list, as a shared receive queue's
  std::optional<uint32_t> srqn;  // it takes from there, and has no memory of its own
  uint32_t cqn = 0;
  uint32_t user_index = 0;
  bool strip_vlan = false;
};

struct TirSpec {
  std::vector<uint32_t> rqns;
  unsigned hash_function = hw::hash_function::kNone;
  std::array<uint8_t, toeplitz_key> key{};
  uint32_t fields = 0;  // hw::hash_field
  uint32_t transport_domain = 0;
};

// Whom the Ethernet part tells of its events.
class EthernetEvents : public SrqEvents {
 public:
  virtual void queue_event(uint32_t id, uint8_t kind, uint8_t type) = 0;
  virtual void cq_overrun(const Cq& cq) = 0;

 protected:
  ~EthernetEvents() = default;
};

class Ethernet {
 public:
  static constexpr unsigned log_stride_limit = Srq::log_stride_limit;

  Ethernet(SoftFunction& function, const Mac& mac, const Mkeys& keys, EthernetEvents& events)
      : function_(function), keys_(keys), events_(events), port_(function, mac) {}

  void sq_create(uint32_t id, const SendQueueSpec& spec, std::shared_ptr<Cq> cq);
  void sq_modify(uint32_t id, unsigned state);
  void sq_destroy(uint32_t id);
  bool has_sq(uint32_t id) const { return send_.contains(id); }
  void rq_create(uint32_t id, const ReceiveQueueSpec& spec, std::shared_ptr<Cq> cq, std::shared_ptr<Srq> srq);
  void rq_modify(uint32_t id, std::optional<unsigned> state, std::optional<bool> strip_vlan);
  void rq_destroy(uint32_t id);
  void tir_set(uint32_t id, TirSpec spec);
  void tir_remove(uint32_t id);

  Steering& steering() { return steering_; }
  void link(bool up) { port_.link(up); }
  void loopback(bool groups) { loopback_ = groups; }
  const PortCounts& sent() const { return port_.sent; }
  const PortCounts& received() const { return port_.received; }
  uint64_t lost() const { return lost_; }
  void clear();  // power-on

  struct Objects {
    size_t send, receive, tirs, tables;
  };
  Objects objects() const { return {send_.size(), receive_.size(), tirs_.size(), steering_.tables()}; }

  void send_doorbell(uint32_t id);
  void packet(const wire::Span* payload, size_t spans);
  bool run();
  bool busy() const { return work_; }

 private:
  struct SendQueue {
    SendQueue(Dma& dma, const SendQueueSpec& spec, std::shared_ptr<Cq> cq)
        : spec(spec), ring(dma, spec.pages, 0, 1u << spec.log_entries), record(dma, spec.record), cq(std::move(cq)) {}

    const SendQueueSpec spec;
    uint32_t id = 0;
    SendRing ring;
    Record record;
    const std::shared_ptr<Cq> cq;
    unsigned state = hw::queue_state::kReset;
    uint64_t produced = 0;  // blocks
    uint64_t consumed = 0;
    std::vector<uint8_t> packet;                // as the driver gave it
    std::deque<std::vector<uint8_t>> segments;  // frames of it, still to be sent
    std::optional<hw::Cqe> owed;                // once they are
  };

  struct ReceiveQueue {
    ReceiveQueue(Dma& dma, const ReceiveQueueSpec& spec, std::shared_ptr<Cq> cq, std::shared_ptr<Srq> srq)
        : spec(spec),
          ring(dma, spec.pages.pages, spec.pages.page_shift, spec.pages.offset,
               srq ? 0 : uint64_t{1} << (spec.log_entries + spec.log_stride)),
          record(dma, spec.record),
          cq(std::move(cq)),
          srq(std::move(srq)) {}

    const ReceiveQueueSpec spec;
    uint32_t id = 0;
    Ring ring;
    Record record;
    const std::shared_ptr<Cq> cq;
    std::shared_ptr<Srq> srq;  // its own, if it is a list
    unsigned state = hw::queue_state::kReset;
    bool strip_vlan = false;
    uint64_t produced = 0;
    uint64_t consumed = 0;
  };

  Dma& dma() { return function_.nic().dma(); }
  void check_cq(Cq& cq, bool posted);

  // Send.
  bool transmit(SendQueue& queue, unsigned& budget);
  void take_packet(SendQueue& queue);
  std::optional<Error> gather(SendQueue& queue, const SendRing::Entry& entry);
  std::optional<Error> gather_data(SendQueue& queue, const uint8_t* at, const uint8_t* end);
  void fail(SendQueue& queue);
  void flush(SendQueue& queue);

  // Receive.
  // By the flow tables to TIRs; `from`: of this NIC. False: nobody took it.
  bool steer(const uint8_t* frame, size_t bytes, const SendQueue* from);
  bool deliver(const Steering::Target& target, const uint8_t* frame, size_t bytes, const Layer& layer,
               const SendQueue* from);
  uint32_t hash(const TirSpec& tir, const uint8_t* frame, const Layer& layer, uint8_t& kind) const;
  // Takes the next receive. False: there is none.
  bool take(ReceiveQueue& queue, transport::Receive& out);
  bool scatter(const ReceiveQueue& queue, const transport::Receive& receive, const uint8_t* from, size_t bytes);

  SoftFunction& function_;
  const Mkeys& keys_;
  EthernetEvents& events_;
  EthernetPort port_;
  Steering steering_;
  std::map<uint32_t, std::unique_ptr<SendQueue>> send_;
  std::unordered_map<uint32_t, std::unique_ptr<ReceiveQueue>> receive_;
  std::unordered_map<uint32_t, TirSpec> tirs_;
  bool loopback_ = false;
  std::vector<uint8_t> stripped_;  // a frame whose tag was taken off
  uint64_t lost_ = 0;
  bool work_ = false;  // a send queue may be able to go on
};

}  // namespace userdma::soft::mlx5
