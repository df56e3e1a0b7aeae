#include "driver/mlx5_wqe.h"

#include <stdexcept>
#include <string>

namespace userdma::driver::mlx5 {

namespace {

namespace hw = hw::mlx5;

void check_room(size_t bytes, size_t room, const char* what) {
  if (bytes > room)
    throw std::invalid_argument(std::string(what) + " takes " + std::to_string(bytes) + " bytes, not the " +
                                std::to_string(room) + " that are there");
}

}  // namespace

unsigned write_request(uint8_t* at, size_t room, const Request& request) {
  const size_t inlined = request.inlined.size();
  size_t segments = 1 + (request.remote ? 1 : 0) + (request.atomic ? 1 : 0);
  if (inlined != 0)
    segments += (sizeof(hw::InlineSegment) + inlined + hw::kSegment - 1) / hw::kSegment;
  else
    for (const Sge& sge : request.data) segments += sge.bytes != 0;
  if (segments > hw::kMostSegments)
    throw std::invalid_argument("an entry has at most " + std::to_string(hw::kMostSegments) +
                                " segments of 16 bytes, not " + std::to_string(segments));
  const size_t blocks = (segments * hw::kSegment + hw::kSendBlock - 1) / hw::kSendBlock;
  check_room(blocks * hw::kSendBlock, room, "the entry");

  put(at, control(request.opcode, 0, request.index, request.qpn, static_cast<unsigned>(segments)),
      control_flags(request.flags, request.immediate));
  at += hw::kSegment;
  if (request.remote) {
    put_remote(at, request.address, request.rkey);
    at += hw::kSegment;
  }
  if (request.atomic) {
    put_atomic(at, request.swap_or_add, request.compare);
    at += hw::kSegment;
  }
  if (inlined != 0) {
    const uint32_t head = big_endian(static_cast<uint32_t>(inlined) | hw::kInline);
    std::memcpy(at, &head, sizeof(head));
    std::memcpy(at + sizeof(head), request.inlined.data(), inlined);
    const size_t used = sizeof(head) + inlined;
    std::memset(at + used, 0, (hw::kSegment - used % hw::kSegment) % hw::kSegment);
    return static_cast<unsigned>(segments);
  }
  for (const Sge& sge : request.data) {
    if (sge.bytes == 0) continue;
    put_data(at, sge.bytes, sge.key, sge.address);
    at += hw::kSegment;
  }
  return static_cast<unsigned>(segments);
}

void write_receive(uint8_t* at, size_t room, unsigned segments, std::span<const Sge> data) {
  check_room(size_t{segments} * hw::kSegment, room, "the entry");
  size_t used = 0;
  for (const Sge& sge : data) used += sge.bytes != 0;
  if (used > segments)
    throw std::invalid_argument(std::to_string(used) + " pieces of memory do not fit in an entry of " +
                                std::to_string(segments) + " segments");
  for (const Sge& sge : data) {
    if (sge.bytes == 0) continue;
    put_data(at, sge.bytes, sge.key, sge.address);
    at += hw::kSegment;
  }
  if (used < segments) put_end(at);
}

}  // namespace userdma::driver::mlx5
