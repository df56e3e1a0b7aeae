// What the transport and a NIC family say to each other: work, receives, statuses, memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "soft/wire/wire.h"

namespace userdma::soft::transport {

using wire::Span;

enum class Op : uint8_t { Send, SendImmediate, SendInvalidate, Write, WriteImmediate, Read, FetchAdd, CompareSwap };

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
  Flushed,               // the pair failed before the entry ran
};

enum Access : uint8_t { LocalWrite = 1, RemoteWrite = 2, RemoteRead = 4, RemoteAtomic = 8 };

struct Sge {
  uint64_t va;
  uint32_t key;
  uint32_t bytes;
};

inline constexpr unsigned max_sges = 32;
inline constexpr unsigned max_inline = 512;

// One entry of a send ring, parsed. `handle` is the family's own name for it (its ring index): the transport gives
// it back to complete the entry or to read it again.
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
};

// Up to `max` spans of process memory that hold a range of a region.
struct Spans {
  static constexpr unsigned max = 64;
  unsigned count = 0;
  Span span[max];
};

// What a NIC family gives the transport for each queue pair. All calls come with the NIC's lock held.
class Rings {
 public:
  enum class Next : uint8_t { None, Entry, Bad };

  // The next entry of the send ring, past which the ring's consumer moves. Bad: the entry cannot be parsed or
  // reached; `status` says why, and `out.handle` names it.
  virtual Next next_work(Work& out, Status& status) = 0;

  // The entry `handle` again, to send it again or to land its response: found as the hardware finds it (bnxt: by
  // the MSN table, whose entry must hold `psn`, the message's first). False: what is found is not that entry.
  virtual bool work_again(uint32_t handle, uint32_t msn, uint32_t psn, Work& out) = 0;

  virtual Next next_receive(Receive& out, Status& status) = 0;

  // An entry ended. Entries of a ring complete in order; an unsigned Ok is reported too (the family decides what
  // it writes).
  virtual void complete_work(uint32_t handle, bool signaled, Status status, uint64_t bytes) = 0;
  virtual void complete_receive(uint32_t handle, const Arrival& arrival) = 0;

  // The pair went to the error state by itself: after the completion that says why, if an entry has one.
  // `requester`: the send side failed (else the responder).
  virtual void failed(bool requester, Status status) = 0;

  // The process memory of [va, va + bytes) under `key`: the part from the beginning that fits in `out`, how many
  // bytes of it in `covered`. `need`: the rights the access needs (0: a local read). `remote`: the key came off the
  // wire. Ok, LocalProtection (local) or RemoteAccess (remote).
  virtual Status reach(uint32_t key, uint64_t va, uint64_t bytes, uint8_t need, bool remote, Spans& out,
                       uint64_t& covered) = 0;

  // A send with invalidate arrived: false if the key cannot be invalidated.
  virtual bool invalidate(uint32_t rkey) = 0;

 protected:
  ~Rings() = default;
};

}  // namespace userdma::soft::transport
