// The Thor2 in software: its registers and data path. What its firmware does is somebody else's (Python's): it gets
// the commands that a driver writes, and makes and ends the objects below.
//
// Every call takes the NIC's lock itself. An id that there is none of throws UnknownId, anything else that cannot be
// std::invalid_argument; firmware checks before it calls.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "soft/bnxt/queue_pair.h"
#include "soft/bnxt/queues.h"
#include "soft/bnxt/region.h"
#include "soft/bnxt/shared_receive_queue.h"
#include "soft/soft_function.h"

namespace userdma::soft::bnxt {

// Calls of the firmware: in the thread that stored to the register, without the NIC's lock.
struct Firmware {
  std::function<void(const uint8_t* window, size_t bytes)> hwrm;  // the HWRM trigger: the request window
  std::function<void(uint32_t producer)> rcfw;                    // the RCFW trigger: the producer word
  std::function<void()> reset;                                    // power-on again, or the end
};

class Ethernet;

class SoftBnxt : public SoftFunction, private Events {
 public:
  static Identity identity(const std::array<uint8_t, 6>& mac);

  explicit SoftBnxt(const Options& options);
  ~SoftBnxt() override;

  void release() override;

  void set_firmware(Firmware firmware) { firmware_ = std::move(firmware); }

  void nq_create(uint32_t id, const PageTable& table, uint32_t entries, unsigned vector);
  void nq_destroy(uint32_t id);
  void nq_post(uint32_t id, const uint8_t entry[16]);
  void creq_set(std::optional<uint32_t> nq);
  void creq_post(const uint8_t entry[16]);

  void cq_create(uint32_t id, uint32_t entries, const PageTable& table, std::optional<uint32_t> nq, uint64_t handle);
  uint32_t cq_destroy(uint32_t id);                                       // how many notifications it sent
  bool cq_resize(uint32_t id, uint32_t entries, const PageTable& table);  // false: the ring is full
  void post_raw_cqe(uint32_t cq, const uint8_t entry[32]);

  void srq_create(uint32_t id, const SrqSpec& spec, std::optional<uint32_t> nq);
  void srq_destroy(uint32_t id);
  uint32_t srq_limit(uint32_t id);

  void ah_create(uint32_t id, const AddressVector& vector);
  void ah_destroy(uint32_t id);

  void qp_create(uint32_t id, const QueuePairSpec& spec);
  void qp_modify(uint32_t id, const transport::Attributes& attributes, uint32_t fields);
  void qp_destroy(uint32_t id);
  struct QueuePairState {
    transport::Attributes attributes;
    uint16_t sq_consumer;
    uint16_t rq_consumer;
  };
  QueuePairState qp_query(uint32_t id);
  // It fails by itself, and no entry did.
  void fail_qp(uint32_t id);

  void mr_register(uint32_t key, const RegionSpec& spec);
  void mr_deregister(uint32_t key);  // once it returns, nothing reaches the region's memory by this key
  // A key under which entries of queue pairs register or bind; released with what is under it.
  void key_claim(uint32_t key, const KeyClaim& claim);
  void key_release(uint32_t key);

  // The Ethernet part, with the lock held: `use(ethernet)`.
  template <class F>
  auto ethernet(F&& use) {
    check_owned();
    std::lock_guard guard(nic().lock());
    return use(*ethernet_);
  }
  // What its completion rings need.
  std::shared_ptr<Nq> known_nq(uint32_t id) const;  // the lock is held

  Counts counts() override;

 private:
  static constexpr uint32_t ids = 1 << 20;  // a doorbell's xid

  void stored(int bar, uint64_t offset, uint64_t value, unsigned width) override;
  void device_stop() override;
  void device_start() override;
  void qp_error(const QueuePair& qp, bool requester, transport::Status status) override;
  void cq_error(const Cq& cq, bool requester) override;
  void recall(const uint8_t* at, uint64_t bytes) override;

  void doorbell(uint64_t value);
  void qp_event(const QueuePair& qp, uint8_t requester, uint8_t responder);
  void ethernet_doorbell(uint8_t kind, uint32_t id, uint32_t word, uint32_t toggle);
  QueuePair* qp(uint32_t id) const { return id < qps_.size() ? qps_[id].get() : nullptr; }
  QueuePair& known_qp(uint32_t id) const;
  std::shared_ptr<Cq> known_cq(uint32_t id) const;
  std::shared_ptr<Srq> known_srq(uint32_t id) const;
  void arming(uint8_t kind, uint32_t id, uint32_t word, uint32_t toggle);

  // Words that a doorbell changes without the lock.
  class DoorbellWords {
   public:
    DoorbellWords();
    ~DoorbellWords();
    DoorbellWord& operator[](uint32_t id) { return words_[id]; }

   private:
    DoorbellWord* words_;
  };

  Firmware firmware_;
  DoorbellWords cq_words_;
  DoorbellWords rq_words_;
  DoorbellWords srq_words_;
  std::vector<std::unique_ptr<QueuePair>> qps_;  // by id
  size_t qp_count_ = 0;
  std::unordered_map<uint32_t, std::shared_ptr<Cq>> cqs_;
  std::unordered_map<uint32_t, std::shared_ptr<Nq>> nqs_;
  std::unordered_map<uint32_t, std::shared_ptr<Srq>> srqs_;
  AddressVectors addresses_;
  std::shared_ptr<Nq> creq_;
  Regions regions_;
  const std::unique_ptr<Ethernet> ethernet_;
};

}  // namespace userdma::soft::bnxt
