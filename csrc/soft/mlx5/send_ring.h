// The entries of a send ring, of queue pairs and of Ethernet's send queues: in basic blocks of 64 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "hw/mlx5.h"
#include "soft/mlx5/bytes.h"
#include "soft/mlx5/queues.h"
#include "soft/ring.h"

namespace userdma::soft::mlx5 {

class SendRing {
 public:
  static constexpr unsigned log_limit = 15;  // of blocks: the counters have 16 bits
  static constexpr unsigned block = hw::kSendBlock;
  static constexpr unsigned most_segments = hw::kMostSegments;
  static constexpr unsigned most_blocks = (most_segments * hw::kSegment + block - 1) / block;

  struct Entry {
    const uint8_t* at = nullptr;  // all of it; null: a fault, or an entry that cannot be
    unsigned segments = 0;        // of 16 bytes
    unsigned bytes() const { return segments * static_cast<unsigned>(hw::kSegment); }
    unsigned blocks() const { return (bytes() + block - 1) / block; }
    uint8_t opcode() const {
      return at ? static_cast<uint8_t>(big(load<hw::ControlSegment>(at).opmod_idx_opcode) & 0xff) : hw::opcode::kNop;
    }
  };
  struct Buffer {
    uint8_t bytes[most_blocks * block];
  };

  // `begin`: of the ring, past the pages' own offset.
  SendRing(Dma& dma, const Pages& pages, uint64_t begin, uint32_t blocks)
      : blocks_(blocks), ring_(dma, pages.pages, pages.page_shift, pages.offset + begin, uint64_t{blocks} * block) {}

  uint32_t blocks() const { return blocks_; }

  // The entry that begins at this count of blocks, of `available` at most. It is copied to `buffer` where it does not
  // lie together.
  Entry entry(uint64_t count, uint32_t available, Buffer& buffer) {
    const uint32_t mask = blocks_ - 1;
    const uint32_t index = static_cast<uint32_t>(count) & mask;
    Entry out;
    const uint8_t* at = ring_.at(uint64_t{index} * block);
    if (!at) return out;
    out.segments = big(load<hw::ControlSegment>(at).qpn_ds) & hw::kSegmentsMask;
    const uint32_t blocks = out.blocks();
    if (!out.segments || blocks > available) return out;
    if (blocks == 1 || (index + blocks <= blocks_ && ring_.flat())) [[likely]] {
      out.at = at;
      return out;
    }
    for (uint32_t i = 0; i < blocks; i++) {
      const uint8_t* one = ring_.at(uint64_t{(index + i) & mask} * block);
      if (!one) return out;
      std::memcpy(buffer.bytes + i * block, one, block);
    }
    out.at = buffer.bytes;
    return out;
  }

 private:
  const uint32_t blocks_;
  Ring ring_;
};

}  // namespace userdma::soft::mlx5
