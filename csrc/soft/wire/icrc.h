// CRC-32 as Ethernet and the invariant CRC of RoCEv2 use it (IBTA volume 1, 7.8.1; annex A17.3.3), by carry-less
// multiplication where the CPU has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace userdma::soft::wire {

// Of the bytes before and these: as zlib's crc32, whose value for no bytes is 0.
uint32_t crc32(uint32_t crc, const uint8_t* at, size_t bytes);

// The same of bytes that are copied on the way: they pass through the core once.
uint32_t crc32_copy(uint32_t crc, uint8_t* to, const uint8_t* from, size_t bytes);

// The ICRC of the headers of a packet, to be continued over what follows the BTH: `ip` is the IPv4 (20 bytes) or
// IPv6 header, and the UDP header and the BTH follow it. Its last value goes into the packet least significant byte
// first.
uint32_t icrc_headers(const uint8_t* ip, bool ipv6);

namespace detail {
// What the CPU need not have anything for, so that both can be tested.
uint32_t crc32_table(uint32_t crc, const uint8_t* at, size_t bytes);
bool crc32_folds();  // the CPU multiplies
}  // namespace detail

}  // namespace userdma::soft::wire
