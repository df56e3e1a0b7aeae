// ConnectX's completions: whether the NIC wrote one, and what it says.
#pragma once

#include <cstdint>
#include <cstring>

#include "driver/completion.h"
#include "host/big_endian.h"
#include "hw/mlx5.h"

namespace userdma::driver::mlx5 {

// A ring of `entries` completions, a power of two, is written again and again: in even rounds with the owner bit 0, in
// odd ones with 1. So the one at `at` is the NIC's for consumer count `count` if that bit is the count's round.
// What is loaded after this is what the NIC wrote before the owner bit.
inline bool owned(const uint8_t* at, uint64_t count, uint64_t entries) {
  const uint8_t op_own = __atomic_load_n(at + offsetof(hw::mlx5::Cqe, op_own), __ATOMIC_ACQUIRE);
  if (op_own >> hw::mlx5::kOpcodeShift == hw::mlx5::cqe_opcode::kInvalid) return false;
  return ((op_own & hw::mlx5::kOwner) != 0) == ((count & entries) != 0);
}

// As one that the NIC has not written.
inline void invalidate(uint8_t* at) {
  __atomic_store_n(at + offsetof(hw::mlx5::Cqe, op_own),
                   static_cast<uint8_t>(hw::mlx5::cqe_opcode::kInvalid << hw::mlx5::kOpcodeShift), __ATOMIC_RELEASE);
}

struct RawCompletion {
  uint32_t qp;
  uint16_t index;
  uint8_t opcode;
  uint32_t bytes;    // that a receive took
  uint8_t syndrome;  // of one that failed
  uint8_t vendor;
};

inline RawCompletion read(const uint8_t* at) {
  using host::big_endian;
  hw::mlx5::Cqe cqe;
  hw::mlx5::ErrorCqe error;
  std::memcpy(&cqe, at, sizeof(cqe));
  std::memcpy(&error, &cqe, sizeof(error));
  return {
      .qp = big_endian(cqe.sop_drop_qpn) & hw::mlx5::kQpnMask,
      .index = big_endian(cqe.wqe_counter),
      .opcode = static_cast<uint8_t>(cqe.op_own >> hw::mlx5::kOpcodeShift),
      .bytes = big_endian(cqe.byte_cnt),
      .syndrome = error.syndrome,
      .vendor = error.vendor_err_synd,
  };
}

inline Error error_of(uint8_t syndrome) {
  namespace s = hw::mlx5::syndrome;
  switch (syndrome) {
    case s::kLocalLength:
      return Error::LocalLength;
    case s::kLocalQpOperation:
      return Error::LocalQpOperation;
    case s::kLocalProtection:
      return Error::LocalProtection;
    case s::kFlushed:
      return Error::Flushed;
    case s::kBadResponse:
      return Error::BadResponse;
    case s::kLocalAccess:
      return Error::LocalAccess;
    case s::kRemoteInvalidRequest:
      return Error::RemoteInvalidRequest;
    case s::kRemoteAccess:
      return Error::RemoteAccess;
    case s::kRemoteOperation:
      return Error::RemoteOperation;
    case s::kRetryExceeded:
      return Error::RetryExceeded;
    case s::kRemoteAborted:
      return Error::RemoteAborted;
    default:
      return Error::Other;
  }
}

}  // namespace userdma::driver::mlx5
