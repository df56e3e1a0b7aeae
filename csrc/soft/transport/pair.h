// The state of one queue pair, as the requester and the responder share it. Internal to the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/roce.h"
#include "soft/transport/psn.h"
#include "soft/transport/timers.h"
#include "soft/transport/types.h"
#include "soft/wire/wire.h"

namespace userdma::soft::transport {

// An entry of the send ring that has been fetched and has not completed. Whatever else of the entry is needed again
// is fetched again.
struct Record {
  uint32_t handle;
  uint32_t psn;   // its first
  uint32_t psns;  // how many it takes; 0: a local one, or one that cannot be sent at all
  Op op;
  bool signaled;
  bool fence;
  Status status;    // not Ok: it fails once the entries before it have completed
  uint8_t sges;     // 1: `sge` is its only one
  uint32_t msn;     // entries with packets before it, since the pair left RESET
  uint64_t length;  // of the message
  Sge sge;

  bool reads() const { return op == Op::Read || op == Op::FetchAdd || op == Op::CompareSwap; }
};

// The records of a pair by their position, which counts entries: a ring that grows to what was ever in flight.
class Records {
 public:
  Record& operator[](uint32_t position) { return ring_[position & (ring_.size() - 1)]; }
  // Room for the record at `tail`, of a queue that begins at `head`.
  void reserve(uint32_t head, uint32_t tail) {
    if (tail - head < ring_.size()) [[likely]]
      return;
    std::vector<Record> bigger(ring_.empty() ? 4 : 2 * ring_.size());
    for (uint32_t i = head; i != tail; i++) bigger[i & (bigger.size() - 1)] = (*this)[i];
    ring_ = std::move(bigger);
  }

 private:
  std::vector<Record> ring_;  // a power of two
};

// A response that the responder owes: the data of a read or the result of an atomic.
struct Response {
  bool atomic;
  bool started;    // its FIRST packet went out
  bool again;      // to a duplicate of a request
  uint32_t psn;    // next to send
  uint32_t first;  // PSN at `va`
  uint32_t end;    // past its last
  uint32_t rkey;
  uint64_t va;
  uint64_t length;  // from `va`
  uint64_t value;   // of an atomic: what was there
};

// The result of an atomic, kept to answer a duplicate of it (IBTA 9.7.4.3.3).
struct Result {
  uint32_t psn;
  uint64_t value;
};

// Laid out by what is used together: with thousands of pairs each cache line of it is a miss.
struct alignas(64) Pair : Timer {
  // What the requester waits for: the timer, but for memory (the entry at `absent`).
  enum class Waits : uint8_t { Nothing, Ack, Rnr, Memory };
  // The answer that goes out once all responses have; a later one replaces an earlier one, which it implies.
  enum class Answer : uint8_t { None, Ack, Sequence, Rnr, Refusal };
  enum class Message : uint8_t { None, Send, Write };

  // Who has something to do; what every packet needs.
  Pair* next = nullptr;
  Pair* previous = nullptr;
  Rings* rings = nullptr;
  uint32_t qpn = 0;
  State state = State::Reset;
  bool ready = false;
  bool posted = false;      // the send ring may hold an entry that has not been fetched
  bool restart = false;     // the timer starts anew when the time is known
  bool recovering = false;  // went back because of a NAK, with no progress since
  bool refused = false;     // in ERR by a refusal, whose NAK still has to go out
  bool heard = false;       // a packet arrived since it left RESET
  Waits waits = Waits::Nothing;
  Answer answer = Answer::None;

  // Requester. Entries [head, tail) are in flight; `cursor` is the one to send next, from PSN `next_psn` on. Positions
  // count entries from 0.
  alignas(64) uint32_t head = 0;
  uint32_t tail = 0;
  uint32_t cursor = 0;
  uint32_t una = 0;                // the oldest PSN without an answer
  uint32_t next_psn = 0;           // of the next packet
  uint32_t max_psn = 0;            // past the last PSN ever sent
  uint32_t window = 0;             // PSNs of sends and writes that may be outstanding
  uint32_t since_request = 0;      // PSNs sent since one that asks for an acknowledgement
  uint32_t reads_outstanding = 0;  // read and atomic requests in [una, next_psn)
  uint32_t read_psns = 0;          // PSNs of their responses that are still to come
  uint32_t window_max = 0;
  uint32_t window_min = 0;
  uint32_t largest = 1024;  // payload of one packet
  uint8_t mtu_shift = 10;
  uint8_t retries_left = 0;
  uint8_t rnr_left = 0;
  uint8_t retry = 0;
  uint8_t rnr_retry = 0;
  uint8_t max_rd_atomic = 0;
  Records records;
  uint64_t ack_timeout = 0;  // nanoseconds; 0: no timer
  uint64_t rnr_wait = 0;     // nanoseconds
  uint32_t messages = 0;     // entries with packets that were fetched
  uint32_t absent = 0;       // position of the entry whose memory is waited for

  // Responder.
  alignas(64) uint32_t expected_psn = 0;
  uint32_t msn = 0;                 // messages completed
  uint32_t owed = 0;                // responses not sent yet
  uint32_t owed_again = 0;          // of them, to duplicates: they do not count against the peer
  Message message = Message::None;  // the message whose middle the next packet must be
  bool nak_sent = false;            // asked for expected_psn: later packets are dropped until it arrives
  bool receiving = false;           // `receive` is in use
  bool holds = false;               // memory of the request at expected_psn is waited for
  bool holds_receive = false;       // it is the receive's
  bool holds_response = false;      // memory of the oldest response is waited for
  uint8_t access = 0;
  uint64_t received = 0;
  uint64_t write_va = 0;
  uint64_t write_left = 0;
  uint64_t write_length = 0;
  uint32_t write_key = 0;
  uint32_t refusal_psn = 0;
  uint8_t refusal = 0;  // its syndrome
  uint8_t min_rnr_timer = 0;
  uint8_t max_dest_rd_atomic = 0;

  alignas(64) Receive receive;

  // What every packet of the pair starts from; the transport fields are set for each.
  wire::Header header;

  size_t response_head = 0;
  std::vector<Response> responses;  // from response_head on, by PSN
  std::vector<Result> results;
  size_t result_next = 0;
  Attributes attributes;

  uint32_t mtu() const { return 1u << mtu_shift; }
  void forget_responses() {
    responses.clear();
    response_head = 0;
    owed = owed_again = 0;
  }
  void pop_response() {
    owed--;
    owed_again -= responses[response_head].again;
    if (++response_head == responses.size()) {
      responses.clear();
      response_head = 0;
    } else if (response_head >= 32) {  // there may always be one: the vector must not grow for ever
      responses.erase(responses.begin(), responses.begin() + static_cast<std::ptrdiff_t>(response_head));
      response_head = 0;
    }
  }
  bool owes() const { return owed != 0; }
  uint32_t outstanding() const { return psn_sub(max_psn, una); }
};

// PSNs that a payload takes (IBTA 9.7.2: a message of nothing takes one).
inline uint32_t psns_of(uint64_t bytes, unsigned mtu_shift) {
  const uint64_t mtu = uint64_t{1} << mtu_shift;
  if (bytes <= mtu) [[likely]]
    return 1;
  return static_cast<uint32_t>((bytes + mtu - 1) >> mtu_shift);
}

// Begins a packet: all transport fields set, those of extension headers to zero.
inline wire::Header& begin_packet(Pair& p, uint8_t opcode, uint8_t flags, uint32_t psn) {
  wire::Header& h = p.header;
  h.opcode = opcode;
  h.flags = flags;
  h.psn = psn;
  h.psns = 1;
  h.payload = 0;
  h.immediate = 0;
  h.va = 0;
  h.rkey = 0;
  h.dma_length = 0;
  h.swap_or_add = 0;
  h.compare = 0;
  h.syndrome = 0;
  h.msn = 0;
  return h;
}

// Copies `bytes` of payload to [va, va + bytes) under `key`, starting `from` bytes into the payload.
Status copy_in(Rings& rings, uint32_t key, uint64_t va, uint64_t bytes, uint8_t need, bool remote, const Span* payload,
               size_t spans, uint64_t from);

// The same to the bytes from `offset` on of the message that `sge` describes.
Status scatter(Rings& rings, const Sge* sge, unsigned sges, uint64_t offset, uint64_t bytes, const Span* payload,
               size_t spans);

}  // namespace userdma::soft::transport
