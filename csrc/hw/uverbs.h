// What the kernel's uverbs files say that its user headers do not: include/rdma/ib_verbs.h.
#pragma once

#include <cstdint>

namespace userdma::hw::uverbs {

// Asynchronous events.
namespace event {                               // IB_EVENT_*
inline constexpr uint32_t kCqError = 0;         // *CQ_ERR
inline constexpr uint32_t kQpFatal = 1;         // *QP_FATAL
inline constexpr uint32_t kQpRequestError = 2;  // *QP_REQ_ERR
inline constexpr uint32_t kQpAccessError = 3;   // *QP_ACCESS_ERR
inline constexpr uint32_t kDeviceFatal = 8;     // *DEVICE_FATAL
}  // namespace event

}  // namespace userdma::hw::uverbs
