// What a NIC tells of beside completions: events of queue pairs, which their family takes from where the NIC writes
// them and hands to those pairs.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "driver/domain.h"

namespace userdma::driver {

// What a queue pair hears of its own.
class EventListener {
 public:
  virtual void event(const std::string& what) = 0;

 protected:
  ~EventListener() = default;
};

// Whoever comes across an event takes all that are there: every queue pair of the NIC, and the control calls.
class Events : public Member {
 public:
  explicit Events(std::shared_ptr<Domain> domain) : domain_(std::move(domain)) { domain_->add(this); }
  virtual ~Events() { domain_->remove(this); }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // Whether the NIC wrote an event that was not taken; peek() for a thread that only waits.
  bool pending() const { return !retired_ && written(); }
  bool peek() {
    if (!gate_.enter()) return false;
    const bool is = written();
    gate_.leave();
    return is;
  }
  virtual void service() = 0;  // takes every event that is there
  // The same for a pair whose entries were flushed just now: the event that says why may still be on its way.
  virtual void service_flush() { service(); }

  void listen_qp(uint32_t qp, EventListener* listener) { qps_[qp] = listener; }
  void listen_cq(uint32_t cq, EventListener* listener) { cqs_[cq] = listener; }
  void forget_qp(uint32_t qp) { qps_.erase(qp); }
  void forget_cq(uint32_t cq) { cqs_.erase(cq); }

  void machine_failed(const std::string&) override {}
  void retire(const std::string&) override { gate_.shut(), retired_ = true; }
  void drain() override { gate_.drain(); }
  bool retired() const { return retired_; }
  const std::shared_ptr<Domain>& domain() const { return domain_; }

 protected:
  virtual bool written() const = 0;  // beside a call that takes events

  // False: nobody listens.
  bool tell_qp(uint32_t qp, const std::string& what) const { return tell(qps_, qp, what); }
  bool tell_cq(uint32_t cq, const std::string& what) const { return tell(cqs_, cq, what); }

  // A NIC that writes without end must not fill the process's memory: the oldest goes.
  template <class T>
  static void keep(std::deque<T>& list, const T& event) {
    if (list.size() == kKept) list.pop_front();
    list.push_back(event);
  }

 private:
  using Listeners = std::unordered_map<uint32_t, EventListener*>;
  static constexpr size_t kKept = 4096;

  static bool tell(const Listeners& listeners, uint32_t id, const std::string& what) {
    const auto found = listeners.find(id);
    if (found == listeners.end()) return false;
    found->second->event(what);
    return true;
  }

  std::shared_ptr<Domain> domain_;
  Gate gate_;
  bool retired_ = false;
  Listeners qps_;
  Listeners cqs_;
};

}  // namespace userdma::driver
