// What the transport and a NIC family say to each other: work, receives, statuses, memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "soft/wire/wire.h"

// Terms: an entry is a work queue entry; a pair is a queue pair, of a reliable connection or of datagrams; numbers are
// in host byte order.
namespace userdma::soft::transport {

using wire::Span;

enum class Op : uint8_t {
  Send,
  SendImmediate,
  SendInvalidate,
  Write,
  WriteImmediate,
  Read,
  FetchAdd,
  CompareSwap,
  Local,  // of this NIC alone, without a packet: Rings::perform does it (a region registered, a key invalidated)
};

// How an entry ended. The families map it to their own completion statuses.
enum class Status : uint8_t {
  Ok,
  LocalLength,           // a message is longer than its receive, or an entry's lengths disagree
  LocalQpOperation,      // the entry is malformed for its queue pair
  LocalProtection,       // local memory is outside its region, or its key is not valid
  BadResponse,           // the responder sent what the request cannot have
  LocalAccess,           // the peer's request violated this side's access rights
  RemoteInvalidRequest,  // NAK: invalid request
  RemoteAccess,          // NAK: remote access error
  RemoteOperation,       // NAK: remote operational error
  RetryExceeded,         // no acknowledgement within the retries
  RnrRetryExceeded,      // receiver not ready within the RNR retries
  MemoryManagement,      // a registration, binding or invalidation that cannot be
  Flushed,               // the pair failed before the entry ran
  Absent,                // of memory only (Rings::reach), never how an entry ends: it is not there yet
};

enum Access : uint8_t { LocalWrite = 1, RemoteWrite = 2, RemoteRead = 4, RemoteAtomic = 8 };

struct Sge {
  uint64_t va;
  uint32_t key;
  uint32_t bytes;
};

// Where a datagram goes, and as whose.
struct Address {
  uint8_t dmac[6] = {};
  uint8_t smac[6] = {};
  uint8_t sgid[16] = {};
  uint8_t dgid[16] = {};
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
};

inline constexpr unsigned max_sges = 32;
inline constexpr unsigned max_inline = 1024;

// One entry of a send ring, parsed. `handle` is the family's own name for it (its ring index): the transport gives
// it back to complete the entry or to read it again. Whoever fills one sets every field that its `op` has and none
// of the others: neither the arrays nor the struct are cleared.
struct Work {
  Op op;
  bool signaled;
  bool fence;
  bool solicited;
  uint8_t sges;           // entries of sge; 0 with inline_bytes or with no bytes at all
  uint16_t inline_bytes;  // the message is in `data`
  uint32_t handle;
  uint32_t immediate;  // immediate data or the key to invalidate
  uint32_t rkey;
  uint64_t length;  // bytes of the message (8 for an atomic)
  uint64_t remote;  // remote virtual address
  uint64_t swap_or_add;
  uint64_t compare;
  uint32_t qkey;  // of a datagram, as are the next two
  uint32_t dest_qp;
  Address address;
  Sge sge[max_sges];
  uint8_t data[max_inline];
};

// One entry of a receive ring, parsed.
struct Receive {
  uint32_t handle;
  uint8_t sges;
  uint64_t length;  // the room its entries give together
  Sge sge[max_sges];
};

// How a receive ended.
struct Arrival {
  Status status;
  uint64_t bytes;
  uint32_t immediate;
  bool has_immediate;
  bool invalidated;
  bool write;  // a write with immediate: the bytes went to the address it named
  bool solicited;
  const wire::Header* datagram = nullptr;  // the headers of a datagram
};

// Up to `max` spans of process memory that hold a range of a region.
struct Spans {
  static constexpr unsigned max = 64;
  unsigned count = 0;
  Span span[max];
};

// Memory that was wanted and is not there yet, and who wanted it. He waits until Engine::resume.
struct Absence {
  enum class Of : uint8_t {
    Source,   // of the message that an entry sends
    Landing,  // where the answer to an entry goes
    Receive,
    Write,  // of a peer's request, as are the next two
    Read,
    Atomic,
  };
  Of of;
  bool read = false;    // Landing: of a read, or else of an atomic
  uint32_t handle = 0;  // of the entry or the receive
  uint64_t done = 0;    // bytes of the message before what is wanted
  uint64_t packet = 0;  // bytes that are wanted now, at least one of which is not there
  uint32_t rkey = 0;    // of a peer's request: where, and how much of it is left
  uint64_t remote = 0;
  uint64_t left = 0;
};

// States of a pair (IBTA volume 1, 10.3.1), by the numbers that bnxt gives them.
enum class State : uint8_t { Reset = 0, Init = 1, Rtr = 2, Rts = 3, Sqd = 4, Sqe = 5, Err = 6 };

// What a pair is configured with.
struct Attributes {
  State state = State::Reset;
  uint8_t access = 0;  // Access: what its peer may do: RemoteWrite, RemoteRead, RemoteAtomic
  uint16_t pkey = 0xffff;
  uint32_t dest_qp = 0;
  uint32_t mtu = 1024;  // path MTU in bytes: 256, 512, 1024, 2048 or 4096
  uint8_t dmac[6] = {};
  uint8_t smac[6] = {};
  uint8_t sgid[16] = {};
  uint8_t dgid[16] = {};
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
  uint8_t timeout = 0;             // local ACK timeout code: 4.096 us * 2^timeout; 0: no timer
  uint8_t retry = 0;               // 0..7: timeouts and sequence NAKs in a row without progress that are retried
  uint8_t rnr_retry = 0;           // 0..6; 7: without end
  uint8_t min_rnr_timer = 0;       // 0..31: the timer code of the RNR NAKs that this pair sends
  uint8_t max_rd_atomic = 1;       // reads and atomics that its requester has outstanding
  uint8_t max_dest_rd_atomic = 1;  // those that its responder keeps
  uint32_t rq_psn = 0;             // the first PSN it expects; of a query: the next one
  uint32_t sq_psn = 0;             // the first PSN it sends; of a query: the next one
  uint32_t qkey = 0;               // of datagrams
  uint16_t udp_source = 0;         // the UDP source port; 0: the transport chooses one

  // Which of them a modify gives.
  enum Field : uint32_t {
    HasState = 1 << 0,
    HasAccess = 1 << 1,
    HasPkey = 1 << 2,
    HasDestQp = 1 << 3,
    HasMtu = 1 << 4,
    HasDmac = 1 << 5,
    HasSmac = 1 << 6,
    HasSgid = 1 << 7,
    HasDgid = 1 << 8,
    HasHopLimit = 1 << 9,
    HasTrafficClass = 1 << 10,
    HasTimeout = 1 << 11,
    HasRetry = 1 << 12,
    HasRnrRetry = 1 << 13,
    HasMinRnrTimer = 1 << 14,
    HasMaxRdAtomic = 1 << 15,
    HasMaxDestRdAtomic = 1 << 16,
    HasRqPsn = 1 << 17,
    HasSqPsn = 1 << 18,
    HasQkey = 1 << 19,
    HasUdpSource = 1 << 20,
  };
};

// What a NIC family gives the transport for each queue pair. All calls come with the NIC's lock held; of the engine's
// calls, they may make only kick.
class Rings {
 public:
  enum class Next : uint8_t { None, Entry, Bad };

  // The next entry of the send ring, past which the ring's consumer moves. Bad: the entry cannot be parsed or
  // reached; `status` says why, and `out.handle` names it. It fails when the entries before it have completed.
  virtual Next next_work(Work& out, Status& status) = 0;

  // The entry `handle` again, to send it again or to land its response: found as the hardware finds it (bnxt: by
  // the MSN table, whose entry must hold `psn`, the message's first). `msn` counts the entries with packets since the
  // pair left RESET, from 0. False: what is found is not that entry; it then fails with LocalQpOperation.
  virtual bool work_again(uint32_t handle, uint32_t msn, uint32_t psn, Work& out) = 0;

  // Does what the Op::Local entry `handle` asks for, once all entries before it have completed.
  virtual Status perform(uint32_t) { return Status::LocalQpOperation; }

  virtual Next next_receive(Receive& out, Status& status) = 0;

  // An entry ended. Entries of a ring complete in order; an unsigned Ok is reported too (the family decides what
  // it writes).
  virtual void complete_work(uint32_t handle, bool signaled, Status status, uint64_t bytes) = 0;
  virtual void complete_receive(uint32_t handle, const Arrival& arrival) = 0;

  // The pair went to the error state by itself: after the completion that says why, if an entry has one. Called
  // once until the pair is reset; entries that were in flight are not completed.
  // `requester`: the send side failed (else the responder).
  virtual void failed(bool requester, Status status) = 0;

  // The process memory of [va, va + bytes) under `key`: the part from the beginning that fits in `out`, how many
  // bytes of it in `covered`. `need`: the rights the access needs (0: a local read). `remote`: the key came off the
  // wire. Ok, LocalProtection (local) or RemoteAccess (remote); Absent if its first byte may be reached, but not yet.
  virtual Status reach(uint32_t key, uint64_t va, uint64_t bytes, uint8_t need, bool remote, Spans& out,
                       uint64_t& covered) = 0;

  // Memory that the pair needs is absent. True: somebody fetches it, and Engine::resume will be called. False: nobody
  // does, and it is refused.
  virtual bool absent(const Absence&) { return false; }

  // What lands of the result of an atomic, which was `original` in the peer's memory.
  virtual uint64_t atomic_result(uint64_t original) const { return original; }

  // The pair's first packet since it left RESET arrived while the pair was in RTR (IBTA 11.6.3.2).
  virtual void established() {}

  // A send with invalidate arrived: false if the key cannot be invalidated.
  virtual bool invalidate(uint32_t rkey) = 0;

 protected:
  ~Rings() = default;
};

}  // namespace userdma::soft::transport
