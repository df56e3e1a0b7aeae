// The translation table of a soft function: what an IOMMU, or the machine's physical memory, is to a real one.
//
// A radix tree, whose entries stand for 4 KiB, 4 MiB or 4 GiB, so that a translation costs the same however
// many mappings there are, and a big one needs few entries.
//
// Not thread-safe: the NIC's lock is held.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "soft/wire/wire.h"

namespace userdma::soft {

class Dma {
 public:
  static constexpr unsigned page_shift = 12;
  static constexpr uint64_t page = 1u << page_shift;
  static constexpr unsigned address_bits = 52;

  struct Fault {
    uint64_t address = 0;
    bool write = false;
  };

  // What the device may do to a mapping.
  enum Access : uint8_t { None = 0, Read = 1, Write = 2, ReadWrite = 3 };

  // Memory that this process cannot map: it is had by asking, and only `read` and `write` below do.
  class Remote {
   public:
    virtual bool read(uint64_t bus, void* into, uint64_t bytes) = 0;
    virtual bool write(uint64_t bus, const void* from, uint64_t bytes) = 0;

   protected:
    ~Remote() = default;
  };

  Dma();
  ~Dma();
  Dma(const Dma&) = delete;
  Dma& operator=(const Dma&) = delete;

  // The `bytes` (rounded up to pages) at bus address `bus` are those at `at`. Both start on a page, and nothing is
  // mapped there yet: otherwise throws std::invalid_argument.
  void map(uint64_t bus, void* at, uint64_t bytes, Access access = ReadWrite);
  // The same for memory that is elsewhere. `remote` outlives the mapping.
  void map_remote(uint64_t bus, Remote& remote, uint64_t bytes, Access access);

  // Ends the mappings in [bus, bus + bytes). A mapping that lies there only in part: throws std::invalid_argument,
  // and nothing changes. Cached translations are over (generation). The wire must then recall the memory.
  void unmap(uint64_t bus, uint64_t bytes);

  // The memory at `bus`: as much of `bytes` as lies together in the process, from the first one on. {nullptr, 0}
  // is a fault, which is counted.
  wire::Span translate(uint64_t bus, uint64_t bytes, bool write = false) {
    const Extent* extent = last_;
    if (bus - extent->bus >= extent->bytes) [[unlikely]] {
      extent = look_up(bus, write);
      if (!extent || !extent->at) [[unlikely]] {
        fault(bus, write);
        return {nullptr, 0};
      }
    }
    uint64_t offset = bus - extent->bus;
    uint64_t left = extent->bytes - offset;
    return {extent->at + offset, bytes < left ? bytes : left};
  }

  // What may be done to the memory at `bus`, as far as it lies together: as translate, without a fault.
  struct Piece {
    uint8_t* at;  // null: there is none in the process
    uint64_t bytes;
    Access access;
  };
  Piece look(uint64_t bus, uint64_t bytes) const;

  // Copies across mappings, also to and from memory that is elsewhere. False: a fault, after the bytes before it were
  // copied.
  bool read(uint64_t bus, void* into, uint64_t bytes);
  bool write(uint64_t bus, const void* from, uint64_t bytes);

  // Off (the function may not master the bus): everything is a fault, and mappings stay.
  void set_enabled(bool on) {
    if (on == enabled_) return;
    enabled_ = on;
    last_ = &nothing_;
    all_ended_ = ++generation_;
  }

  // Changes with every unmap: a translation kept elsewhere is good while this is what it was, and after that if
  // `held` says so.
  uint64_t generation() const { return generation_; }

  // Whether no mapping within [bus, bus + bytes) has ended since that generation. It may say no where one has ended
  // near by, or where the stretch is very long.
  bool held(uint64_t generation, uint64_t bus, uint64_t bytes) const;

  uint64_t pages() const { return pages_; }  // mapped, of 4 KiB
  size_t nodes() const { return nodes_; }    // of the tree, below its top
  uint64_t faults() const { return faults_; }
  const Fault& last_fault() const { return last_fault_; }

 private:
  // A mapping; `bus` and `bytes` whole pages.
  struct Extent {
    uint64_t bus;
    uint8_t* at;  // null: `remote` has it
    uint64_t bytes;
    Access access;
    Remote* remote;
  };

  // An entry is empty, an extent (bit 0 set) or, above the last level, a node.
  using Entry = uintptr_t;
  static constexpr unsigned level_bits = 10;
  static constexpr unsigned fanout = 1u << level_bits;
  static constexpr unsigned levels = 4;  // the top one's entries stand for 4 TiB and are never extents
  struct Node {
    std::array<Entry, fanout> entry{};
    unsigned used = 0;
  };

  static unsigned shift_of(unsigned level) { return page_shift + level * level_bits; }
  const Extent* find(uint64_t bus) const;
  // The mapping there, if it allows the access. What allows any is remembered for the next translation.
  const Extent* look_up(uint64_t bus, bool write);
  void map(const Extent& extent);
  template <class Local, class Elsewhere>
  bool each_piece(uint64_t bus, uint64_t bytes, bool write, Local&& local, Elsewhere&& elsewhere);
  void fault(uint64_t bus, bool write);
  void place(Node& node, unsigned level, uint64_t from, uint64_t to, Extent* extent);
  void clear(Node& node, unsigned level, uint64_t from, uint64_t to);
  static bool empty(const Node& node, unsigned level, uint64_t from, uint64_t to);
  void destroy(Node& node, unsigned level, const Extent*& last);

  static constexpr Extent nothing_{0, nullptr, 0, ReadWrite, nullptr};
  const Extent* last_ = &nothing_;
  bool enabled_ = true;
  std::unique_ptr<Node> top_;
  // When something ended last, by granule (modulo their number): few pages that come and go, as a virtual IOMMU's do,
  // leave what is kept of others good.
  static constexpr unsigned granule_shift = 21;
  static constexpr uint64_t granules = 4096;
  uint64_t generation_ = 1;
  uint64_t all_ended_ = 0;
  std::array<uint64_t, granules> ended_{};
  uint64_t pages_ = 0;
  size_t nodes_ = 0;
  uint64_t faults_ = 0;
  Fault last_fault_;
};

}  // namespace userdma::soft
