// A PCI function made of software: configuration space, BARs with hooks, message-signalled interrupts, and memory
// that its device reaches through its own translation table only. A NIC family derives its device from it.
//
// Threads: any thread may call anything. The device's side (what a family overrides) says for each call whether the
// NIC's lock is held. In a forked child the function is the parent's, and every call leaves it alone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "host/function.h"
#include "host/iova.h"
#include "soft/allocation.h"
#include "soft/clock.h"
#include "soft/config_space.h"
#include "soft/machine.h"
#include "soft/nic.h"
#include "soft/pin.h"
#include "soft/wire/wire.h"

namespace userdma::soft {

// There is no object of that number.
struct UnknownId : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class SoftFunction : public host::Function {
 public:
  struct Options {
    std::string name;
    std::shared_ptr<wire::Wire> wire;
    std::shared_ptr<Clock> clock;
    std::array<uint8_t, 6> mac{};
    bool iommu = true;
    uint64_t seed = 0;       // of the layout of physical memory
    uint64_t memory = 0;     // the most bytes of alloc_dma; 0: no limit
    uint64_t pin_limit = 0;  // the most bytes pinned; 0: no limit
    uint64_t iovas = 0;      // bytes of I/O virtual addresses that its IOMMU translates; 0: 16 TiB
    bool thread = true;
  };

  SoftFunction(const Identity& identity, const Options& options);
  ~SoftFunction() override;

  std::string name() const override { return options_.name; }
  size_t page() const override { return Arena::page(); }
  host::Addressing addressing() const override {
    return options_.iommu ? host::Addressing::Iova : host::Addressing::Physical;
  }
  uint32_t config(unsigned offset, unsigned width) const override;
  void set_config(unsigned offset, unsigned width, uint32_t value) override;
  uint64_t bar_address(int index) const override;
  size_t bar_size(int index) const override;
  host::Bar map(int index) override;
  int interrupt(unsigned vector) override;
  void reset() override;
  host::Memory alloc_dma(size_t bytes) override;
  void free_dma(const host::Memory& memory) override;
  host::Memory pin(void* address, size_t bytes) override;
  void unpin(const host::Memory& memory) override;
  bool failed() const override { return failed_.load(std::memory_order_acquire); }
  void release() override;
  host::Idle idle() override { return nic_->idle(); }

  // ---- The bus as somebody else serves it (a virtual machine): accesses as offset and bytes, hooks included --------

  // From here on this process allocates and pins no memory for the function: its bus addresses are the host's to give
  // out. Throws host::Error: the function is in use, or served already.
  void begin_serving();
  void end_serving() { served_.store(false, std::memory_order_release); }

  // False: not within the BAR.
  bool bar_read(int bar, uint64_t offset, void* into, size_t bytes);
  bool bar_write(int bar, uint64_t offset, const void* from, size_t bytes);

  unsigned vector_count() const { return identity_.vectors; }
  // Whether the host keeps the table of vectors, as VFIO does for a guest: what follows then decides what becomes of
  // an interrupt, and the function's own table and enable bit, which nobody writes, mean nothing.
  void host_keeps_vectors(bool on);
  // Whether the host executes AtomicOps, and has let the function request them. A guest that sees no root port above
  // the function takes that for the host's word (Linux, pci_enable_atomic_ops_to_root).
  void host_takes_atomics(bool on);
  // Signals `own`, an eventfd that is the function's from now on, for the vector instead of the one before; -1
  // disconnects it.
  void connect_interrupt(unsigned vector, int own);
  void mask_interrupt(unsigned vector, bool masked);
  void trigger_interrupt(unsigned vector);  // signals it, whatever its masks

  // Memory of the host's at these bus addresses, until it is unmapped. Throws std::invalid_argument as Dma::map.
  void map_memory(uint64_t bus, uint8_t* at, uint64_t bytes, Dma::Access access);
  void map_memory(uint64_t bus, Dma::Remote& remote, uint64_t bytes, Dma::Access access);
  // Ends what was mapped in whole within the bus addresses. Once it returns nothing refers to the memory, which is
  // `at` in this process if it was mapped here.
  void unmap_memory(uint64_t bus, uint8_t* at, uint64_t bytes);
  // As at power-on, configuration space included; what is mapped stays.
  void power_cycle() { restart(false); }

  // ---- Faults and what tests look at --------------------------------------------------------------------------------

  // The function leaves the bus: every read is all ones, DMA and packets stop. Nothing brings it back.
  void vanish();

  Nic& nic() { return *nic_; }
  Arena& arena() { return *arena_; }
  size_t dma_nodes();    // what the translation table takes, in nodes of 8 KiB
  uint64_t dma_pages();  // mapped, of 4 KiB

  // ---- The firmware's side
  // -------------------------------------------------------------------------------------------

  // Registers and memory, without hooks. False: a fault, or not within the BAR.
  bool bar_load(int bar, uint64_t offset, void* into, size_t bytes);
  bool bar_store(int bar, uint64_t offset, const void* from, size_t bytes);
  bool dma_read(uint64_t bus, void* into, size_t bytes);
  bool dma_write(uint64_t bus, const void* from, size_t bytes);
  // The same, but that the last byte is there only once all others are, and right after them: a host looks at it.
  bool dma_publish(uint64_t bus, const void* from, size_t bytes);

  void ingress(bool open) { nic_->ingress(open); }  // whether its RoCE takes packets

  using Counts = std::vector<std::pair<std::string, uint64_t>>;
  virtual Counts counts() { return {}; }  // of its objects
  Counts stats();

  // ---- The device's side
  // ----------------------------------------------------------------------------------------------

  // The memory of a BAR, without hooks. Null: no such BAR.
  uint8_t* registers(int bar) { return bars_[static_cast<unsigned>(bar)].memory; }
  // The same for the device itself, which has its registers whether or not they answer a host. Under showing_.
  uint8_t* own_registers(int bar);
  // Signals a vector, as the MSI-X table allows. The lock is held.
  void raise(unsigned vector);
  const ConfigSpace& config_space() const { return config_; }  // the lock is held
  // False once released, or in a forked child: there is no NIC to work with.
  bool owned() const { return !gone_.load(std::memory_order_acquire) && nic_->owned(); }

 protected:
  // A driver stored to a register, or is about to load one. The lock is not held.
  virtual void stored(int bar, uint64_t offset, uint64_t value, unsigned width) = 0;
  virtual void loading(int, uint64_t, unsigned) {}
  // Everything the device knows is gone: queues, keys, what its firmware was told. The lock is held.
  virtual void device_stop() = 0;
  // It starts from power-on, after device_stop. The lock is not held.
  virtual void device_start() {}

  // What a call of the firmware's needs: throws host::MachineError, or UnknownId where it is about an object, which is
  // gone with the NIC.
  void check_owned() const;
  void check_there(uint32_t id) const;

  // A derived class calls it first in its destructor, while its overrides are still there.
  void shut_down();

 private:
  struct BarMemory {
    uint8_t* memory = nullptr;
    size_t bytes = 0;
  };
  // Memory of an allocation as a function without an IOMMU sees it, for as long as somebody holds it.
  struct Placed {
    std::shared_ptr<Allocation> allocation;
    std::vector<host::Run> runs;
    unsigned holders = 0;
  };
  // What the machine knows of a function without an IOMMU: an object of its own, for the machine calls it while classes
  // that derive from the function are still being made.
  class Reach final : public Machine::Reacher {
   public:
    explicit Reach(SoftFunction& function) : function_(function) { Machine::instance().attach(*this); }
    ~Reach() { Machine::instance().detach(*this); }
    Reach(const Reach&) = delete;
    Reach& operator=(const Reach&) = delete;
    void device_memory(uint64_t bus, uint8_t* at, uint64_t bytes) override {
      function_.map_memory(bus, at, bytes, Dma::ReadWrite);
    }
    void device_memory_gone(uint64_t bus, uint8_t* at, uint64_t bytes) override {
      function_.unmap_memory(bus, at, bytes);
    }

   private:
    SoftFunction& function_;
  };
  // What alloc_dma or pin gave.
  struct Held {
    std::shared_ptr<Allocation> allocation;  // alloc_dma's, with an IOMMU
    std::unique_ptr<Pinned> pinned;          // pin's, with an IOMMU
    uintptr_t placed = 0;                    // without one: the end of the allocation
    uint64_t iova = 0;
    uint64_t bytes = 0;  // whole pages
  };

  static void stored_hook(void* self, int bar, uint64_t offset, uint64_t value, unsigned width);
  static void loading_hook(void* self, int bar, uint64_t offset, unsigned width);

  void restart(bool keep_config);
  void place_bars();
  void drop_bars(bool owned);
  void apply_config();                // locked: what a changed register means
  void show(bool visible);            // locked: whether BARs answer
  void vectors_stored();              // locked: the MSI-X table or its controls changed
  void reset_vectors();               // locked
  bool vectors_on() const;            // locked: whether interrupts are sent at all
  bool vector_open(unsigned vector);  // locked: whether this one is, or stays pending
  void open_vector(unsigned vector);  // locked: as the host's interrupt controller sets a vector up
  uint32_t* vector_entry(unsigned vector);
  uint32_t* pending_word(unsigned vector);
  void signal(unsigned vector);

  void check_memory();  // that it may be allocated and pinned here
  uint64_t place_iova(uint64_t bytes);
  void give_iova(uint64_t at, uint64_t bytes);
  std::vector<host::Run> place_physical(uint64_t bytes);
  uint64_t random();
  void drop(Held& held);  // the lock is not held
  void unplace(uintptr_t end);
  host::Memory pin_physical(void* address, size_t bytes, size_t whole);

  const Identity identity_;
  const Options options_;
  ConfigSpace config_;
  std::array<BarMemory, 6> bars_;
  std::mutex showing_;  // of their bytes: a host's access, and show(); nothing waits for anything under it
  std::array<std::vector<uint8_t>, 6> hidden_;  // what the BARs hold while they do not answer
  std::array<uint64_t, 6> bar_placed_{};        // where the machine's firmware put them
  std::vector<int> interrupts_;                 // by vector; -1: not connected
  bool host_vectors_ = false;                   // locked, as the next
  std::vector<bool> host_masked_;               // by vector
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<PinnedSegments> segments_;
  std::unique_ptr<Nic> nic_;
  std::unique_ptr<Reach> reach_;  // null: with an IOMMU

  std::mutex held_mutex_;  // what follows; never taken with the NIC's lock held
  std::map<uint64_t, Held> held_;
  std::map<uintptr_t, Placed> placed_;  // by the end of the allocation
  uint64_t next_handle_ = 1;
  const uint64_t iova_bytes_;
  host::IovaAllocator iova_;
  uint64_t next_iova_;  // where the last one ended
  uint64_t pinned_bytes_ = 0;
  uint64_t random_;

  std::atomic<bool> visible_{true};
  std::atomic<bool> failed_{false};
  std::atomic<bool> served_{false};  // see begin_serving; changes with held_mutex_ held
  std::atomic<bool> gone_{false};    // released
};

}  // namespace userdma::soft
