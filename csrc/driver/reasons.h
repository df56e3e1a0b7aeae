// What a NIC's event says of its pair's failure, where the families say the same.
#pragma once

namespace userdma::driver::reason {

inline constexpr const char* kFailure = "the NIC reported its failure";
inline constexpr const char* kRequester = ", of its own requests: ";
inline constexpr const char* kResponder = ", of its peer's requests: ";
inline constexpr const char* kNotTaken =
    "a request that this queue pair does not take (connect(..., remote=...) here allows RDMA; the mtu must be the same "
    "at both ends)";
inline constexpr const char* kNoRights =
    "memory outside a region, or without the rights for it (remote=... of the region)";

}  // namespace userdma::driver::reason
