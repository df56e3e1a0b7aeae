// A wire joins soft NICs: packets go in at one port and come out at the port whose MAC they name.
//
// A packet is a header of parsed fields and a payload given by reference. Wires within a host carry the payload
// without building bytes; wires that want bytes (faults that corrupt, captures, networks) encode the packet as
// RoCEv2 with its ICRC (wire/codec.h) and decode it on the other side.
//
// A payload of at most max_copied bytes is always copied: it may lie where recall does not reach, such as in a WQE. So
// is one whose header asks for it.
//
// A wire carries Ethernet frames that are no RoCE packets too, as a switch does: one for many (a multicast, or a MAC
// that nobody on the wire has) goes to every other port.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "host/fork.h"

namespace userdma::soft {
class Arena;
}

namespace userdma::soft::wire {

inline constexpr uint32_t max_copied = 512;

// What lands in about a microsecond.
inline constexpr uint32_t small_payload = 8192;

// The largest payload that a wire within a host carries as one packet.
inline constexpr uint32_t max_packet = 1u << 20;

// A MAC as a number to look things up by. By loads alone: bytes that are put together in memory and loaded again as one
// word would wait for every store before them, and those are packets on their way to another core.
inline uint64_t mac_number(const uint8_t mac[6]) {
  uint32_t low;
  uint16_t high;
  std::memcpy(&low, mac, 4);
  std::memcpy(&high, mac + 4, 2);
  return low | uint64_t{high} << 32;
}

// `bytes` of this process's memory.
struct Span {
  uint8_t* at;
  uint64_t bytes;
};

// The opcode of a packet that is an Ethernet frame: its payload is the frame, from the destination MAC on and without
// FCS; of the header, `opcode`, `payload`, `copy` and `dmac` (the frame's) count, and a receiver looks at the frame for
// its addresses. IBTA volume 1, 9.2.1 leaves the number to manufacturers: no RoCE packet has it.
inline constexpr uint8_t frame_opcode = 0xff;
inline constexpr uint32_t min_frame = 14;  // its Ethernet header

// The headers of one RoCEv2 packet, parsed, in host byte order (IBTA volume 1, chapter 9; annex A17).
// Fields of extension headers that the opcode does not have are zero.
struct alignas(64) Header {
  // base transport header
  uint8_t opcode = 0;
  uint8_t flags = 0;  // Flag
  uint16_t pkey = 0xffff;
  uint32_t dest_qp = 0;
  uint32_t psn = 0;
  uint32_t psns = 1;     // PSNs the packet stands for: over 1 only for a large packet (Port::largest)
  uint32_t payload = 0;  // bytes of payload, without padding
  uint16_t udp_source = 0;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
  uint8_t dmac[6] = {};
  uint8_t smac[6] = {};
  uint32_t immediate = 0;    // ImmDt or IETH, as the number its 4 big-endian bytes make
  uint64_t va = 0;           // RETH, AtomicETH
  uint32_t rkey = 0;         // RETH, AtomicETH
  uint32_t dma_length = 0;   // RETH
  uint64_t swap_or_add = 0;  // AtomicETH; of an atomic acknowledgement: the original value
  uint64_t compare = 0;      // AtomicETH
  uint8_t syndrome = 0;      // AETH
  bool copy = false;         // not of the packet: the payload is the wire's to copy before send returns
  uint8_t reserved[2] = {};
  uint32_t msn = 0;     // AETH
  uint32_t qkey = 0;    // DETH
  uint32_t src_qp = 0;  // DETH
  uint8_t sgid[16] = {};
  uint8_t dgid[16] = {};

  enum Flag : uint8_t { Solicited = 1, Migrated = 2, AckRequest = 4, Fecn = 8, Becn = 16 };

  bool is_frame() const { return opcode == frame_opcode; }
  // Whether all ports get it where none has its MAC.
  bool for_many() const { return is_frame() || (dmac[0] & 1); }
};
static_assert(sizeof(Header) == 128);

// Takes the packets of a port. The spans are valid during the call only.
class Sink {
 public:
  virtual void packet(const Header& header, const Span* payload, size_t spans) = 0;

 protected:
  ~Sink() = default;
};

// The NIC of a port, as the wire knows it.
class Owner {
 public:
  // Does the NIC's work in the calling thread if nobody is doing it: without blocking. `brief`: only what is short.
  // True if anything was done.
  virtual bool step(bool brief) = 0;

 protected:
  ~Owner() = default;
};

// A word that a NIC's thread sleeps on, next to its port: rung by senders (of other processes too) if it is set.
//
// A sender publishes its packet and then loads the word, with no fence in between. So a packet can be published
// while its sender still sees the word of before; sleep_until looks again after a while, when both stores have long
// arrived.
class Bell {
 public:
  explicit Bell(std::atomic<uint32_t>& word, bool shared) : word_(word), shared_(shared) {}

  bool asleep() const { return word_.load(std::memory_order_relaxed) != 0; }
  // Says that the thread is about to sleep; then it looks once more for work, and calls wait or clears.
  void set() { word_.store(1, std::memory_order_seq_cst); }
  // True if the thread was asleep; it is woken.
  bool ring() { return asleep() && wake(); }
  // Sleeps while the word is set, at most `nanoseconds`; false when that passed.
  bool wait(uint64_t nanoseconds);
  void clear() { word_.store(0, std::memory_order_relaxed); }

 private:
  bool wake();

  std::atomic<uint32_t>& word_;
  const bool shared_;
};

// What a port counted.
struct Counts {
  uint64_t sent = 0;      // packets
  uint64_t received = 0;  // packets
  uint64_t dropped = 0;   // nobody has the MAC, or the peer died, or the wire had no memory
  uint64_t recalled = 0;  // taken back
  // Of a wire that impairs:
  uint64_t lost = 0;
  uint64_t duplicated = 0;
  uint64_t reordered = 0;
  uint64_t delayed = 0;
  uint64_t corrupted = 0;
  uint64_t icrc_errors = 0;
};

// A place on a wire. All calls but those marked otherwise come with the lock of the NIC that owns the port held.
class Port {
 public:
  virtual ~Port() = default;  // leaves the wire

  // Leaves the wire: nothing is sent or received any more, and nothing that was sent refers to memory. Idempotent.
  virtual void leave() {}

  // Sends one packet to the port whose MAC is header.dmac (this port's own included); a MAC that nobody has loses
  // it silently. A frame goes to every other port then, but those that have no room for it. The wire either copies the
  // payload before it returns or keeps references, which recall() ends. False: no room now; nothing was sent, and the
  // NIC tries again when it next advances.
  virtual bool send(const Header& header, const Span* payload, size_t spans) = 0;

  // Hands at most `budget` arrived packets to sink, in order, and none from the first on whose payload is over `most`;
  // how many.
  virtual unsigned receive(Sink& sink, unsigned budget, uint32_t most = UINT32_MAX) = 0;

  // True if receive would find something: few loads, no lock. Any thread, without the NIC's lock.
  virtual bool pending() const = 0;

  // The largest payload of one packet of a pair whose path MTU is `mtu`: a multiple of mtu, at least mtu. More
  // than mtu where the wire carries large packets, each standing for payload / mtu PSNs (as segmentation offload).
  virtual uint32_t largest(uint32_t mtu) const = 0;

  // No packet that this port sent is to refer to memory in [begin, begin + bytes): such a packet is taken back (it is
  // lost, as any wire may lose one) or has been consumed. False: a receiver is reading one right now; call again.
  virtual bool recall(const void* begin, size_t bytes) = 0;

  // True if the last send found no room: the NIC must look again, though nobody will tell it when.
  virtual bool blocked() const { return false; }

  // When the wire itself has something to do for this port in `receive` (a packet that it delays): by the clock it
  // was given; UINT64_MAX: never.
  virtual uint64_t next_deadline() const { return UINT64_MAX; }

  // Runs NICs of this process for which packets wait on this wire, in this thread; `brief`: for as long as it is
  // short. The NIC's lock is not held.
  enum class Helped : uint8_t { Nothing, Some, More };  // More: and there is more to do
  virtual Helped help(bool) { return Helped::Nothing; }

  // Where the NIC's thread sleeps; null: senders cannot wake it. Any thread, without the NIC's lock.
  virtual Bell* bell() { return nullptr; }

  // Counters of what happened on the way, for people.
  virtual Counts counts() const { return {}; }
};

// A wire. Any thread may call anything. In a forked child, nothing of its parent's: a call that would have to wait for
// its lock throws host::MachineError.
class Wire : public std::enable_shared_from_this<Wire>, public host::MadeHere {
 public:
  virtual ~Wire() = default;

  // A new port with this MAC. `owner`: the NIC, for Port::help; may be null. `arena`: the memory that packets may
  // refer to where the receiver is another process; it outlives the port; null: send copies every payload. The port
  // keeps the wire. Throws host::Error: the MAC is on the wire already, the wire is full or cannot be used.
  virtual std::unique_ptr<Port> attach(const uint8_t mac[6], Owner* owner, Arena* arena) = 0;

  // As `named` takes it.
  virtual std::string name() const = 0;

  // The wire of that name: "" is the default wire of this process; "shm:NAME" joins the processes of this machine
  // that name it; "dgram:LOCAL,REMOTE" leads to one peer, frames as datagrams of Unix sockets. Throws host::Error.
  static std::shared_ptr<Wire> named(const std::string& name);

  // Removes what wires between processes left of this user that nobody is on any more: their processes were killed.
  static void remove_abandoned();

  // `call` runs again and again while attach waits for another process; what it throws ends the wait. For the signals
  // of an interpreter.
  static void while_waiting(void (*call)());

  // A new wire within this process, which nobody else has.
  static std::shared_ptr<Wire> make();
};

}  // namespace userdma::soft::wire
