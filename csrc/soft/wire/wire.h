// A wire joins soft NICs: packets go in at one port and come out at the port whose MAC they name.
//
// A packet is a header of parsed fields and a payload given by reference. Wires within a host carry the payload
// without building bytes; wires that want bytes (faults that corrupt, captures, networks) encode the packet as
// RoCEv2 with its ICRC (wire/codec.h) and decode it on the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace userdma::soft::wire {

// `bytes` of this process's memory.
struct Span {
  uint8_t* at;
  uint64_t bytes;
};

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
  uint8_t reserved[3] = {};
  uint32_t msn = 0;     // AETH
  uint32_t qkey = 0;    // DETH
  uint32_t src_qp = 0;  // DETH
  uint8_t sgid[16] = {};
  uint8_t dgid[16] = {};

  enum Flag : uint8_t { Solicited = 1, Migrated = 2, AckRequest = 4, Fecn = 8, Becn = 16 };
};
static_assert(sizeof(Header) == 128);

// Takes the packets of a port. The spans are valid during the call only.
class Sink {
 public:
  virtual void packet(const Header& header, const Span* payload, size_t spans) = 0;

 protected:
  ~Sink() = default;
};

class Port {
 public:
  virtual ~Port() = default;  // leaves the wire

  // Sends one packet to the port whose MAC is header.dmac (this port's own included); a MAC that nobody has loses
  // it silently, as a switch does. The wire either copies the payload before it returns or keeps references, which
  // recall() ends. False: no room now; nothing was sent, and the NIC tries again when it next advances.
  virtual bool send(const Header& header, const Span* payload, size_t spans) = 0;

  // Hands at most `budget` arrived packets to sink, in order; how many.
  virtual unsigned receive(Sink& sink, unsigned budget) = 0;

  // True if receive would find something: one load, no lock.
  virtual bool pending() const = 0;

  // The largest payload of one packet of a pair whose path MTU is `mtu`: a multiple of mtu, at least mtu. More
  // than mtu where the wire carries large packets, each standing for payload / mtu PSNs (as segmentation offload).
  virtual uint32_t largest(uint32_t mtu) const = 0;

  // Returns once no packet that this port sent still refers to memory in [begin, begin + bytes): such a packet is
  // taken back (it is lost, as any wire may lose one) or has been consumed.
  virtual void recall(const void* begin, size_t bytes) = 0;
};

// Runs a NIC that has nothing running it. See soft/nic.h.
class Sleeper {
 public:
  // Packets wait for this port and its owner asked to be woken (it set its port to sleep).
  virtual void wake() = 0;

 protected:
  ~Sleeper() = default;
};

}  // namespace userdma::soft::wire
