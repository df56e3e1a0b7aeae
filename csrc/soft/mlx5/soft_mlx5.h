// The ConnectX-6 Dx in software: its registers and data path. What its firmware does is somebody else's (Python's): it
// is told that a driver rang for its command queue, and makes and ends the objects below.
//
// Every call takes the NIC's lock itself. An id that there is none of throws UnknownId, anything else that cannot be
// std::invalid_argument; firmware checks before it calls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "soft/mlx5/ethernet.h"
#include "soft/mlx5/mkey.h"
#include "soft/mlx5/queue_pair.h"
#include "soft/mlx5/queues.h"
#include "soft/mlx5/shared_receive_queue.h"
#include "soft/soft_function.h"

namespace userdma::soft::mlx5 {

// Calls of the firmware: in the thread that stored to the register, without the NIC's lock.
struct Firmware {
  std::function<void(uint32_t entries)> command;  // the command queue's doorbell: a bit for each entry
  std::function<void()> reset;                    // power-on again, or the end
  std::function<void(uint32_t word)> interface;   // cmdq_addr_l_sz: where the command queue is, and nic_interface
};

class SoftMlx5 : public SoftFunction, private Events, private EthernetEvents {
 public:
  // The first UAR that a driver can be given: before it are the initialization segment and the MSI-X table.
  static constexpr uint32_t first_uar = 8;

  static Identity identity(const std::array<uint8_t, 6>& mac);

  explicit SoftMlx5(const Options& options);
  ~SoftMlx5() override;

  void release() override;

  void set_firmware(Firmware firmware) { firmware_ = std::move(firmware); }
  // Whether the health counter counts, which a driver watches.
  void set_healthy(bool healthy) { healthy_.store(healthy, std::memory_order_relaxed); }

  void eq_create(uint32_t id, const EqSpec& spec);
  void eq_destroy(uint32_t id);
  void eq_post(uint32_t id, uint8_t type, uint8_t subtype, const uint8_t data[28]);
  bool event(uint8_t type, uint8_t subtype, const uint8_t data[28]);  // false: no queue gets events of this type

  void cq_create(uint32_t id, const CqSpec& spec);
  void cq_destroy(uint32_t id);
  bool cq_resize(uint32_t id, const CqSpec& spec);  // false: there is no room for what it holds
  struct CqState {
    uint64_t producer;
    uint64_t consumer;
    bool overrun;
  };
  CqState cq_query(uint32_t id);
  void post_raw_cqe(uint32_t id, const uint8_t entry[64]);

  void srq_create(uint32_t id, const SrqSpec& spec);
  void srq_destroy(uint32_t id);
  void srq_arm(uint32_t id, uint32_t limit);
  uint32_t srq_limit(uint32_t id);

  void qp_create(uint32_t id, const QueuePairSpec& spec);
  void qp_modify(uint32_t id, const transport::Attributes& attributes, uint32_t fields);
  void qp_destroy(uint32_t id);
  struct QueuePairState {
    transport::Attributes attributes;
    uint16_t sq_counter;
    uint16_t rq_counter;
  };
  QueuePairState qp_query(uint32_t id);
  // What a driver says of the page fault of an event (mlx5_ib, odp.c): it is resolved, or an `error`. A pair that was
  // reset since does not mind.
  enum class Resumed : uint8_t { Yes, NoFault, AnotherQueue };
  Resumed page_fault_resume(uint8_t type, uint32_t token, uint32_t queue, bool error);
  size_t page_faults();  // that were not resumed
  // It fails by itself, and no entry did.
  void fail_qp(uint32_t id);

  void mkey_create(uint32_t key, MkeySpec spec);
  void mkey_destroy(uint32_t key);  // once it returns, nothing reaches memory by it; its low byte does not matter
  struct MkeyState {
    uint32_t key;
    MkeySpec spec;
  };
  MkeyState mkey_query(uint32_t key);

  void gid_set(uint32_t index, const Gid& gid);
  void gid_clear(uint32_t index);
  // Multicast groups of datagram pairs.
  void group_attach(const std::array<uint8_t, 16>& gid, uint32_t qpn);
  void group_detach(const std::array<uint8_t, 16>& gid, uint32_t qpn);

  // Ethernet: `use(ethernet)` runs with the lock held.
  template <class F>
  auto ethernet(F&& use) {
    check_owned();
    std::lock_guard guard(nic().lock());
    return use(ethernet_);
  }
  void sq_create(uint32_t id, const SendQueueSpec& spec);
  void rq_create(uint32_t id, const ReceiveQueueSpec& spec);

  Counts counts() override;

 private:
  static constexpr uint32_t ids = 1 << 20;

  // SoftFunction.
  void stored(int bar, uint64_t offset, uint64_t value, unsigned width) override;
  void loading(int bar, uint64_t offset, unsigned width) override;
  void device_stop() override;
  void device_start() override;
  // Events, and those of Ethernet.
  void qp_event(const QueuePair& qp, uint8_t type) override;
  void srq_event(const Srq& srq, uint8_t type) override;
  void cq_overrun(const Cq& cq) override;
  void queue_event(uint32_t id, uint8_t kind, uint8_t type) override;
  void doom(const QueuePair& qp) override;
  bool page_fault(const QueuePair& qp, const transport::Absence& absence) override;
  void in_error(const QueuePair& qp) override;
  void recall(const uint8_t* at, uint64_t bytes) override;
  // What is done beside the transport. An object of its own: the NIC's thread may run it while what is derived from
  // this class is still being made.
  class Beside final : public Frames {
   public:
    explicit Beside(SoftMlx5& self) : self_(self) {}
    void packet(const wire::Header&, const wire::Span* payload, size_t spans) override {
      self_.ethernet_.packet(payload, spans);
    }
    bool run(uint64_t now) override { return self_.run(now); }
    bool busy() const override { return !self_.doomed_.empty() || self_.ethernet_.busy(); }
    uint64_t next_deadline() const override {
      return self_.in_error_.empty() || self_.virtual_clock_ ? never : self_.look_at_;
    }

   private:
    SoftMlx5& self_;
  };
  bool run(uint64_t now);

  void uar_stored(uint64_t offset, uint64_t value, unsigned width);
  void send_doorbell(uint32_t id);
  void arm_doorbell(uint32_t word, uint32_t id);
  void eq_doorbell(uint32_t word, bool arm);
  void catastrophic(QueuePair& qp);
  QueuePair* qp(uint32_t id) const { return id < qps_.size() ? qps_[id].get() : nullptr; }
  QueuePair& known_qp(uint32_t id) const;
  template <class T>
  static const std::shared_ptr<T>& known(const std::unordered_map<uint32_t, std::shared_ptr<T>>& all, uint32_t id,
                                         const char* what);
  Eq* eq_of(uint8_t type) const { return event_queues_[type].get(); }

  const bool virtual_clock_;
  Firmware firmware_;
  std::atomic<bool> healthy_{true};
  std::vector<std::unique_ptr<QueuePair>> qps_;  // by id
  size_t qp_count_ = 0;
  std::unordered_map<uint32_t, std::shared_ptr<Eq>> eqs_;
  std::array<std::shared_ptr<Eq>, 256> event_queues_;  // by the type of event
  std::unordered_map<uint32_t, std::shared_ptr<Cq>> cqs_;
  std::unordered_map<uint32_t, std::shared_ptr<Srq>> srqs_;
  Mkeys keys_;
  Gids gids_;
  struct PageFault {
    uint8_t type;
    uint32_t token;
    uint32_t queue;  // whose entry it is: a queue pair's, or a shared receive queue's
    uint32_t qpn;
    transport::Absence::Of of;
    bool waits;  // the pair was not reset since
  };
  std::vector<PageFault> page_faults_;
  uint32_t page_fault_token_ = 0;  // the last one, of those of entries
  std::vector<uint32_t> doomed_;   // pairs that must fail
  // Pairs in error, whose receive rings a driver may still post to without a doorbell: they are looked at now and then.
  std::deque<uint32_t> in_error_;
  uint64_t look_at_ = never;
  uint64_t look_after_ = 0;
  Ethernet ethernet_;
  Beside beside_{*this};
};

}  // namespace userdma::soft::mlx5
