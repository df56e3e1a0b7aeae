// All queue pairs of one soft NIC: who has something to do, whose timer is due, whose packet arrived. What a pair of a
// reliable connection does is in requester.cc and responder.cc, what one of datagrams does in datagrams.h.
//
// Nothing here blocks, allocates per packet or reads a clock; the same calls give the same packets. Not thread-safe:
// every call comes with the NIC's lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "soft/clock.h"
#include "soft/transport/datagrams.h"
#include "soft/transport/stats.h"
#include "soft/transport/timers.h"
#include "soft/transport/types.h"
#include "soft/wire/wire.h"

namespace userdma::soft::transport {

struct Pair;
struct Record;
struct Response;

// What a pair's packets are.
enum class Service : uint8_t { Connected, Datagram };

class Engine final : public wire::Sink {
 public:
  explicit Engine(wire::Port& port);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A pair in RESET. `rings` outlives it. `source`: the number that its datagrams say they are of, if it is another.
  // False: the number has one already or has more than 24 bits.
  bool create(uint32_t qpn, Rings* rings, Service service = Service::Connected,
              std::optional<uint32_t> source = std::nullopt);

  // A pair of datagrams becomes, or is no longer, one of a multicast group.
  void attach(const Datagrams::Gid& group, uint32_t qpn) { datagrams_.attach(group, qpn); }
  void detach(const Datagrams::Gid& group, uint32_t qpn) { datagrams_.detach(group, qpn); }
  bool groups() const { return datagrams_.groups(); }

  // Applies the attributes that `fields` (Attributes::Field) names, the state last. RESET forgets all that is in
  // flight, ERR stops the pair (without Rings::failed). That the transition is legal is the caller's to check; any
  // is safe. False: no such pair.
  bool modify(uint32_t qpn, const Attributes& attributes, uint32_t fields);

  bool query(uint32_t qpn, Attributes& out) const;

  // Forgets the pair: no call to its Rings from here on. False: no such pair.
  bool destroy(uint32_t qpn);

  // The memory that Rings::absent told of has come (`there`), or will not: what waits for it goes on, or fails. Nothing
  // happens where nothing waits any more.
  void resume(uint32_t qpn, Absence::Of of, bool there);

  // Entries were posted to the pair's send ring: run() looks.
  void kick(uint32_t qpn);

  // A packet arrived. Its payload is landed before this returns; what has to be answered goes out in run().
  void packet(const wire::Header& header, const Span* payload, size_t spans) override;

  // Where Ethernet frames go that arrive; null: they are dropped.
  void set_frames(wire::Sink* frames) { frames_ = frames; }

  // Sends what can be sent: answers, new and repeated requests; serves timers due at `now` (nanoseconds, not going
  // back). At most about `budget` packets. True if anything was done.
  bool run(uint64_t now, unsigned budget = 1024);

  // Pairs have something to send that run() has not sent yet (its budget was spent or the port has no room).
  bool busy() const { return ready_head_ != nullptr || datagrams_.busy(); }

  // When the earliest timer is due; `never` without one. Tidies the timers: call it before sleeping, not per packet.
  uint64_t next_deadline();

  size_t pairs() const { return pairs_ + datagrams_.pairs(); }
  const Stats& stats() const { return stats_; }

 private:
  static constexpr unsigned leaf_bits = 10;  // two levels: dense numbers cost a page, sparse ones not 2^24 pointers
  static constexpr size_t leaf_entries = size_t{1} << leaf_bits;
  struct Leaf {
    std::unique_ptr<Pair> at[leaf_entries];
  };

  enum class Sent : uint8_t { Yes, NoRoom, Wait, Failed };  // Wait: for something that an arriving packet ends

  void arrived(const wire::Header& header);
  Pair* find(uint32_t qpn) const {
    const size_t leaf = qpn >> leaf_bits;
    if (leaf >= leaves_.size() || !leaves_[leaf]) [[unlikely]]
      return nullptr;
    return leaves_[leaf]->at[qpn & (leaf_entries - 1)].get();
  }
  void drop(Drop why) { stats_.dropped[static_cast<size_t>(why)]++; }
  void activate(Pair& p);
  void forget_ready(Pair& p);
  void reset(Pair& p);
  void stop(Pair& p);
  bool work(Pair& p, uint64_t now, unsigned& budget, bool& did);
  void start_timer(Pair& p, uint64_t now);
  void expire(Pair& p, uint64_t now);
  bool transmit(Pair& p, uint32_t psns, const Span* payload, size_t spans, uint64_t bytes);

  // requester.cc
  bool request(Pair& p, unsigned& budget, bool& did);  // false: the port has no room, or the budget is spent
  bool fetch(Pair& p);
  const Work* load(Pair& p, uint32_t position);
  Sent send_record(Pair& p);
  Sent send_data(Pair& p, Record& r, const Work& w, uint64_t offset);
  Sent send_read(Pair& p, Record& r, const Work& w, uint64_t offset);
  Sent send_atomic(Pair& p, Record& r, const Work& w);
  Sent perform(Pair& p, Record& r);
  void sent(Pair& p, uint32_t psns);
  Status gather(Pair& p, const Work& w, uint64_t offset, uint64_t& bytes, const Span*& spans, size_t& count);
  void response(Pair& p, const wire::Header& h, const Span* payload, size_t spans);
  void read_response(Pair& p, const wire::Header& h, const Span* payload, size_t spans);
  void atomic_response(Pair& p, const wire::Header& h);
  void nak(Pair& p, const wire::Header& h);
  bool acknowledge(Pair& p, uint32_t end);
  void landed(Pair& p, uint32_t psns, bool request_done);
  Status land(Pair& p, const Record& r, uint64_t offset, uint64_t bytes, const Span* payload, size_t spans);
  void complete_head(Pair& p);
  bool settle(Pair& p, uint32_t before);
  void retry(Pair& p, bool timeout);
  void go_back(Pair& p);
  void fail_requester(Pair& p, Status status);
  bool await(Pair& p, uint32_t position, const Absence& absence);  // false: it is refused
  void landing_failed(Pair& p, const Record& r, uint64_t offset, uint64_t bytes, Status status);
  void resume_requester(Pair& p, bool there);

  // responder.cc
  void request_arrived(Pair& p, const wire::Header& h, const Span* payload, size_t spans);
  void duplicate(Pair& p, const wire::Header& h);
  void duplicate_read(Pair& p, const wire::Header& h);
  void send_arrived(Pair& p, const wire::Header& h, const Span* payload, size_t spans);
  void write_arrived(Pair& p, const wire::Header& h, const Span* payload, size_t spans);
  void read_arrived(Pair& p, const wire::Header& h);
  void atomic_arrived(Pair& p, const wire::Header& h);
  void accepted(Pair& p, const wire::Header& h, bool last);
  bool take_receive(Pair& p);
  void refuse(Pair& p, uint8_t syndrome, Status status);
  void absent(Pair& p, const Absence& absence);
  void hold(Pair& p);
  void refuse_absent(Pair& p, bool receive);
  void resume_responder(Pair& p, bool there);
  void resume_response(Pair& p, bool there);
  void refuse_response(Pair& p, const Response& r);
  bool respond(Pair& p, unsigned& budget, bool& did);  // false: the port has no room, or the budget is spent
  Sent respond_read(Pair& p, Response& r);

  wire::Port& port_;
  wire::Sink* frames_ = nullptr;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  size_t pairs_ = 0;
  Pair* ready_head_ = nullptr;
  Pair* ready_tail_ = nullptr;
  Timers timers_;
  Stats stats_;
  Datagrams datagrams_;

  // The entry last read, kept while its packets go out. Big: one for all pairs.
  std::unique_ptr<Work> work_;
  const Pair* work_pair_ = nullptr;
  uint32_t work_position_ = 0;
  Spans spans_;
  std::vector<Span> gathered_;
};

}  // namespace userdma::soft::transport
