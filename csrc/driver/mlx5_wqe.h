// ConnectX's work queue entries, doorbell records and doorbells: what a driver writes. Layouts: hw/mlx5.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "host/big_endian.h"
#include "host/mmio.h"
#include "hw/mlx5.h"
#include "hw/mlx5_device.h"

namespace userdma::driver::mlx5 {

using host::big_endian;

// Two numbers of 32 bits, in this order, as the eight bytes that an entry has of them.
constexpr uint64_t words(uint32_t first, uint32_t second) { return big_endian(uint64_t{first} << 32 | second); }

// The first eight bytes of an entry of the send ring, which are what a doorbell says too. `index`: of its first block,
// counted since the ring was empty; `segments`: its size in units of 16 bytes, this segment included.
constexpr uint64_t control(uint8_t opcode, uint8_t modifier, uint16_t index, uint32_t qpn, unsigned segments) {
  namespace hw = hw::mlx5;
  return words(uint32_t{modifier} << hw::kModifierShift | uint32_t{index} << hw::kIndexShift | opcode,
               qpn << hw::kQpnShift | segments);
}

// The next eight: flags (hw::mlx5::control), and immediate data or the key to invalidate. No signature.
constexpr uint64_t control_flags(uint8_t flags, uint32_t immediate = 0) { return words(flags, immediate); }

inline void put(uint8_t* at, uint64_t first, uint64_t second) {
  std::memcpy(at, &first, sizeof(first));
  std::memcpy(at + sizeof(first), &second, sizeof(second));
}

// `bytes` of local memory, 1 to 2^31. As 31 bits, which 0 of means 2^31: a message of none has no segment.
inline void put_data(uint8_t* at, uint32_t bytes, uint32_t lkey, uint64_t va) {
  put(at, words(bytes & ~hw::mlx5::kInline, lkey), big_endian(va));
}

// Ends the segments of a receive that has room for more.
inline void put_end(uint8_t* at) { put(at, words(0, hw::mlx5::kInvalidKey), 0); }

inline void put_remote(uint8_t* at, uint64_t remote, uint32_t rkey) { put(at, big_endian(remote), words(rkey, 0)); }

inline void put_atomic(uint8_t* at, uint64_t swap_or_add, uint64_t compare) {
  put(at, big_endian(swap_or_add), big_endian(compare));
}

// ---- Entries of any kind ----

struct Sge {
  uint32_t key = 0;
  uint64_t address = 0;
  uint32_t bytes = 0;
};

// An entry of the send ring. Its parts follow each other in this order, those that its opcode has.
struct Request {
  uint8_t opcode = 0;
  uint8_t flags = 0;  // hw::mlx5::control
  uint16_t index = 0;
  uint32_t qpn = 0;
  uint32_t immediate = 0;  // immediate data, or the key to invalidate
  bool remote = false;
  uint64_t address = 0;
  uint32_t rkey = 0;
  bool atomic = false;
  uint64_t swap_or_add = 0;
  uint64_t compare = 0;
  std::span<const Sge> data;
  std::span<const uint8_t> inlined;  // instead of `data`, if it is not empty
};

// Writes it at `at`, where there are `room` bytes, and returns its segments of 16 bytes. The last one's rest is zeroed,
// and the last block's is left as it is. Throws std::invalid_argument: more segments than an entry can have, or no room
// for its blocks of 64 bytes.
unsigned write_request(uint8_t* at, size_t room, const Request& request);

// Writes an entry of a receive ring that has `segments` segments; what is beyond the data is ended. Throws
// std::invalid_argument: more data than segments, or no room.
void write_receive(uint8_t* at, size_t room, unsigned segments, std::span<const Sge> data);

// ---- Records and doorbells ----

// A counter in a doorbell record: the NIC reads it at the next doorbell, or when it wants a receive. What was stored
// before is there for it by then.
inline void record(uint32_t* at, uint32_t value) {
  host::store_barrier();                                      // for the device, which reads the entries by DMA
  __atomic_store_n(at, big_endian(value), __ATOMIC_RELEASE);  // and for one in software, which is another thread
}

// The arm word of a completion queue, for its second record; its doorbell says it and the queue's number.
constexpr uint32_t arm_word(uint32_t sequence, bool solicited, uint32_t consumer) {
  namespace hw = hw::mlx5;
  return (sequence & hw::kArmSequenceMask) << hw::kArmSequenceShift | (solicited ? hw::kArmSolicited : hw::kArmNext) |
         (consumer & hw::kArmCounterMask);
}

}  // namespace userdma::driver::mlx5
