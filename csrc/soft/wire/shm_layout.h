// What processes share through the file of a wire in shared memory.
//
// A file header, a record for each port, a record for each ring, the rings, and for each port room for payloads that
// a peer cannot read where they lie. The file is sparse: what is not used takes no memory.
//
// A ring carries packets from one port to another. A port that sends to another for the first time takes a ring that
// nobody uses, zeroes it and names it in the receiver's record; so a ring has one life, with one sender and one
// receiver, and what a dead process left in one is never read. The records change under the file's lock (fcntl,
// which the kernel releases when its holder dies); rings are read and written without it.
//
// A ring is lines of 64 bytes. A packet takes lines that follow one another, of which the first begins with its
// `first` word, zero until the packet is complete. Before it sets that word, the words of the lines behind the packet
// are zero (the sender zeroes some ahead), and so the reader, which takes packets in order, never sees what is left
// from an earlier round.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace userdma::soft::wire::shm {

inline constexpr uint64_t magic = 0x6572697761'6d6475;  // "udmawire"
inline constexpr uint32_t version = 2;

inline constexpr unsigned max_ports = 64;
inline constexpr unsigned max_rings = 1024;
inline constexpr unsigned ring_lines = 2048;
inline constexpr size_t line_bytes = 64;
inline constexpr size_t bounce_bytes = size_t{4} << 20;  // of a port

struct Line {
  std::atomic<uint64_t> first;
  uint8_t rest[line_bytes - 8];
};
static_assert(sizeof(Line) == line_bytes);

// A port's life is the number it got when it attached, never zero and never used twice in a file; zero: no port.
using Life = uint64_t;

struct PortRecord {
  // Senders look at this line with each packet; it hardly ever changes.
  alignas(64) std::atomic<Life> life;
  std::atomic<uint32_t> bell;
  uint32_t pid;
  int32_t file;  // the file's descriptor in that process: by it a peer sees whether it may open descriptors there
  uint8_t mac[6];
  // The receiver looks at this one.
  alignas(64) std::atomic<uint32_t> changes;  // of `from`
  std::atomic<uint32_t> from[max_ports];      // by the sending port: its ring's index plus one, or zero
};

struct RingRecord {
  Life sender;  // zero: nobody ever used it
  Life receiver;
  uint16_t sender_port;
  uint16_t receiver_port;
  std::atomic<uint32_t> flags;  // RingFlag
};

enum RingFlag : uint32_t {
  Left = 1,     // the sender does not use it any more
  Adopted = 2,  // the receiver reads it
  Refused = 4,  // the receiver cannot read the sender's memory
};

struct alignas(4096) Ring {
  // The reader's: lines that it is done with. It says so seldom, or after a packet that referred to memory.
  std::atomic<uint32_t> consumed;
  alignas(64) Line line[ring_lines];
};

struct alignas(64) Bounce {
  uint8_t at[bounce_bytes];
};

struct FileHeader {
  std::atomic<uint64_t> magic;  // written last
  uint32_t version;
  uint32_t bytes;  // of File, in MiB: a layout check
  Life next_life;
  alignas(64) PortRecord port[max_ports];
  RingRecord ring[max_rings];
};

struct alignas(4096) File {
  FileHeader header;
  alignas(4096) Ring ring[max_rings];
  alignas(4096) Bounce bounce[max_ports];
};

enum class Kind : uint8_t {
  Inline,     // the payload comes last
  Reference,  // a Claim comes behind Core, and References last
  Skip,       // no packet: go on at the ring's beginning
};

// The first words of a packet in a ring. What is in `extras` follows in the order of the bits, then the payload or
// the references.
struct First {    // of the `first` word, from its low byte
  uint8_t lines;  // that the packet takes; not zero
  Kind kind;
  uint16_t extras;
  uint8_t opcode;
  uint8_t flags;
  uint8_t hop_limit;
  uint8_t traffic_class;
};
static_assert(sizeof(First) == 8);

enum Extra : uint16_t {
  Addresses = 1,   // smac, sgid, dgid: else those of the packet before
  Immediate = 2,   // immediate
  Remote = 4,      // va, rkey, dma_length
  Atomic = 8,      // swap_or_add, compare
  Answer = 16,     // msn, syndrome
  Datagram = 32,   // qkey, src_qp
  Psns = 64,       // psns; else 1
  Reserved = 128,  // reserved
};

struct Core {
  uint32_t dest_qp;
  uint32_t psn;
  uint32_t payload;
  uint16_t udp_source;
  uint16_t pkey;
};
static_assert(sizeof(Core) == 16);

// Who has what a packet refers to. Right behind Core.
struct Claim {
  enum State : uint32_t { Published, Claimed, Recalled };
  std::atomic<uint32_t> state;
  uint32_t references;
};

// Memory of the sending process.
struct Reference {
  uint64_t offset;  // in the file
  uint32_t bytes;
  uint32_t segment;  // 0: this file; else its name in the sending process
  int32_t fd;        // of that segment, in the sending process
  uint32_t unused;
  uint64_t device;
  uint64_t inode;
};
static_assert(sizeof(Reference) == 40);

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace userdma::soft::wire::shm
