// All reliable-connected queue pairs of one soft NIC: who has something to do, whose timer is due, whose packet
// arrived. What a pair does is in requester.cc and responder.cc.
//
// Nothing here blocks, allocates per packet or reads a clock; the same calls give the same packets. Not thread-safe:
// every call comes with the NIC's lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "soft/clock.h"
#include "soft/transport/timers.h"
#include "soft/transport/types.h"
#include "soft/wire/wire.h"

namespace userdma::soft::transport {

struct Pair;
struct Record;
struct Response;

// Why a packet that arrived was dropped without an answer.
enum class Drop : uint8_t {
  UnknownQp,
  State,      // the pair is not (or no longer) ready for it
  Transport,  // not of a reliable connection
  Pkey,
  Address,   // not from the pair's peer
  Sequence,  // past the expected PSN, which a NAK has asked for already
  Stale,     // an answer to what is not outstanding, or a duplicate of what is not kept
  Count,
};

struct Stats {
  uint64_t packets_sent = 0;
  uint64_t packets_received = 0;
  uint64_t bytes_sent = 0;  // of payload
  uint64_t bytes_received = 0;
  uint64_t retransmits = 0;  // packets sent again
  uint64_t timeouts = 0;     // ACK timers that expired
  uint64_t retries_exceeded = 0;
  uint64_t rnr_naks_sent = 0;
  uint64_t rnr_naks_received = 0;
  uint64_t sequence_naks_sent = 0;
  uint64_t sequence_naks_received = 0;
  uint64_t naks_sent = 0;  // of errors that end the pair
  uint64_t naks_received = 0;
  uint64_t implied_naks = 0;  // an answer showed that an earlier response was lost
  uint64_t duplicates = 0;    // requests that arrived again
  uint64_t dropped[static_cast<size_t>(Drop::Count)] = {};
};

class Engine final : public wire::Sink {
 public:
  explicit Engine(wire::Port& port);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A pair in RESET. `rings` outlives it. False: the number has one already or has more than 24 bits.
  bool create(uint32_t qpn, Rings* rings);

  // Applies the attributes that `fields` (Attributes::Field) names, the state last. RESET forgets all that is in
  // flight, ERR stops the pair (without Rings::failed). That the transition is legal is the caller's to check; any
  // is safe. False: no such pair.
  bool modify(uint32_t qpn, const Attributes& attributes, uint32_t fields);

  bool query(uint32_t qpn, Attributes& out) const;

  // Forgets the pair: no call to its Rings from here on. False: no such pair.
  bool destroy(uint32_t qpn);

  // Entries were posted to the pair's send ring: run() looks.
  void kick(uint32_t qpn);

  // A packet arrived. Its payload is landed before this returns; what has to be answered goes out in run().
  void packet(const wire::Header& header, const Span* payload, size_t spans) override;

  // Sends what can be sent: answers, new and repeated requests; serves timers due at `now` (nanoseconds, not going
  // back). At most about `budget` packets. True if anything was done.
  bool run(uint64_t now, unsigned budget = 1024);

  // Pairs have something to send that run() has not sent yet (its budget was spent or the port has no room).
  bool busy() const { return ready_head_ != nullptr; }

  // When the earliest timer is due; `never` without one. Tidies the timers: call it before sleeping, not per packet.
  uint64_t next_deadline();

  size_t pairs() const { return pairs_; }
  const Stats& stats() const { return stats_; }

 private:
  static constexpr unsigned leaf_bits = 10;  // two levels: dense numbers cost a page, sparse ones not 2^24 pointers
  static constexpr size_t leaf_entries = size_t{1} << leaf_bits;
  struct Leaf {
    std::unique_ptr<Pair> at[leaf_entries];
  };

  enum class Sent : uint8_t { Yes, NoRoom, Wait, Failed };  // Wait: for something that an arriving packet ends

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
  bool respond(Pair& p, unsigned& budget, bool& did);  // false: the port has no room, or the budget is spent
  Sent respond_read(Pair& p, Response& r);

  wire::Port& port_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  size_t pairs_ = 0;
  Pair* ready_head_ = nullptr;
  Pair* ready_tail_ = nullptr;
  Timers timers_;
  Stats stats_;

  // The entry last read, kept while its packets go out. Big: one for all pairs.
  std::unique_ptr<Work> work_;
  const Pair* work_pair_ = nullptr;
  uint32_t work_position_ = 0;
  Spans spans_;
  std::vector<Span> gathered_;
};

}  // namespace userdma::soft::transport
