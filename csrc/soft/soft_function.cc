#include "soft/soft_function.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "host/text.h"
#include "hw/pci.h"
#include "soft/event_fd.h"

namespace userdma::soft {

using host::hex;

namespace pci = hw::pci;

namespace {

// IOVAs begin well past zero and end below where a process maps memory, so that neither a null nor a process address
// is ever one. They are used again only after all others were, so that an address that is stale faults.
constexpr uint64_t first_iova = 0x4000'0000;
constexpr uint64_t iova_limit = 0x1000'0000'0000;
constexpr uint64_t huge_page = 2 << 20;

}  // namespace

SoftFunction::SoftFunction(const Identity& identity, const Options& options)
    : identity_(identity),
      options_(options),
      config_(identity),
      interrupts_(identity.vectors, -1),
      host_masked_(identity.vectors),
      arena_(std::make_shared<Arena>(options.memory)),
      segments_(std::make_unique<PinnedSegments>(*arena_)),
      iova_bytes_(options.iovas ? options.iovas : iova_limit - first_iova),
      iova_({{first_iova, iova_bytes_}}, Arena::page()),
      next_iova_(first_iova),
      random_(options.seed) {
  Nic::Options nic;
  std::copy(options.mac.begin(), options.mac.end(), nic.mac);
  nic.thread = options.thread;
  try {
    place_bars();
    config_.write(pci::kCommand, 2, pci::command::kMemory);
    reset_vectors();
    nic_ = std::make_unique<Nic>(options_.wire, options_.clock, arena_.get(), nic);
    {
      std::lock_guard guard(nic_->lock());
      apply_config();
    }
    if (!options_.iommu) reach_ = std::make_unique<Reach>(*this);
  } catch (...) {
    nic_.reset();  // before its memory
    drop_bars(true);
    throw;
  }
}

// As the machine's firmware leaves it: BARs placed, memory space on, bus mastering off.
void SoftFunction::place_bars() {
  for (unsigned i = 0; i < pci::kBars; i += 2) {
    const size_t bytes = identity_.bar_bytes[i];
    if (!bytes) continue;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw host::MemoryError("the BARs of " + options_.name + ": " + std::strerror(errno));
    bars_[i] = {static_cast<uint8_t*>(at), bytes};
    bar_placed_[i] = Machine::instance().place(bytes, bytes);
    config_.set_bar(static_cast<int>(i), bar_placed_[i]);
  }
}

void SoftFunction::drop_bars(bool owned) {
  for (size_t i = 0; i < bars_.size(); i++) {
    if (!bars_[i].memory) continue;
    munmap(bars_[i].memory, bars_[i].bytes);
    if (owned && bar_placed_[i]) Machine::instance().give_back(bar_placed_[i], bars_[i].bytes);
  }
}

SoftFunction::~SoftFunction() {
  reach_.reset();  // of one whose making failed
  const bool owned = nic_->owned();
  if (!owned) nic_.release();
  drop_bars(owned);
}

void SoftFunction::shut_down() { SoftFunction::release(); }

// ---- Configuration space --------------------------------------------------------------------------------------------

uint32_t SoftFunction::config(unsigned offset, unsigned width) const {
  if (failed_ || gone_ || !nic_->owned()) return ~0u >> (32 - 8 * width);
  std::lock_guard guard(nic_->lock());
  return config_.read(offset, width);
}

void SoftFunction::set_config(unsigned offset, unsigned width, uint32_t value) {
  if (failed_ || gone_ || !nic_->owned()) return;
  bool resets;
  {
    std::lock_guard guard(nic_->lock());
    resets = config_.write(offset, width, value);
    apply_config();
  }
  if (resets) restart(false);
}

void SoftFunction::apply_config() {
  nic_->dma().set_enabled(config_.bus_master() && config_.powered() && !failed_);
  show(config_.memory_enabled() && config_.powered() && !failed_);
  vectors_stored();
}

// ---- BARs -----------------------------------------------------------------------------------------------------------

uint64_t SoftFunction::bar_address(int index) const {
  if (index < 0 || index >= static_cast<int>(pci::kBars) || gone_ || !nic_->owned()) return 0;
  return bar_placed_[static_cast<unsigned>(index)];
}

size_t SoftFunction::bar_size(int index) const {
  if (index < 0 || index >= static_cast<int>(pci::kBars)) return 0;
  return bars_[static_cast<unsigned>(index)].bytes;
}

host::Bar SoftFunction::map(int index) {
  if (!bar_size(index)) throw host::MachineError(options_.name + " has no BAR " + std::to_string(index));
  if (gone_) throw host::MachineError(options_.name + " was released");
  const BarMemory& bar = bars_[static_cast<unsigned>(index)];
  return host::Bar(index, bar.memory, bar.bytes, host::Hooks{&stored_hook, &loading_hook, this});
}

void SoftFunction::stored_hook(void* self, int bar, uint64_t offset, uint64_t value, unsigned width) {
  auto& function = *static_cast<SoftFunction*>(self);
  if (!function.visible_.load(std::memory_order_acquire)) [[unlikely]] {
    std::memset(function.bars_[static_cast<unsigned>(bar)].memory + offset, 0xff, width);
    return;
  }
  const Identity& identity = function.identity_;
  // The table may share its BAR with doorbells.
  if (bar == identity.vector_bar && offset - identity.vector_table < identity.vectors * pci::msix::kEntrySize)
      [[unlikely]] {
    if (!function.nic_->owned()) return;
    std::lock_guard guard(function.nic_->lock());
    function.vectors_stored();
  }
  function.stored(bar, offset, value, width);
}

void SoftFunction::loading_hook(void* self, int bar, uint64_t offset, unsigned width) {
  auto& function = *static_cast<SoftFunction*>(self);
  if (function.visible_.load(std::memory_order_acquire)) function.loading(bar, offset, width);
}

void SoftFunction::show(bool visible) {
  if (visible == visible_.load(std::memory_order_relaxed)) return;
  if (!visible) visible_.store(false, std::memory_order_release);
  std::lock_guard guard(showing_);
  for (unsigned i = 0; i < pci::kBars; i += 2) {
    BarMemory& bar = bars_[i];
    if (!bar.memory) continue;
    if (visible) {
      std::memcpy(bar.memory, hidden_[i].data(), bar.bytes);
      hidden_[i] = {};
    } else {
      // Nothing comes back to one that left the bus or was released.
      if (!failed_ && !gone_) hidden_[i].assign(bar.memory, bar.memory + bar.bytes);
      std::memset(bar.memory, 0xff, bar.bytes);
    }
  }
  if (visible) visible_.store(true, std::memory_order_release);
}

bool SoftFunction::bar_read(int bar, uint64_t offset, void* into, size_t bytes) {
  const size_t size = bar_size(bar);
  if (offset > size || bytes > size - offset) return false;
  if (bytes <= 8) loading_hook(this, bar, offset, static_cast<unsigned>(bytes));
  std::lock_guard guard(showing_);
  std::memcpy(into, registers(bar) + offset, bytes);
  return true;
}

bool SoftFunction::bar_write(int bar, uint64_t offset, const void* from, size_t bytes) {
  const size_t size = bar_size(bar);
  if (offset > size || bytes > size - offset) return false;
  const auto* at = static_cast<const uint8_t*>(from);
  while (bytes) {
    // The widest naturally aligned store, as a bus splits it.
    unsigned width = 8;
    while (width > bytes || offset % width) width /= 2;
    uint64_t value = 0;
    std::memcpy(&value, at, width);
    {
      std::lock_guard guard(showing_);
      std::memcpy(registers(bar) + offset, at, width);
    }
    stored_hook(this, bar, offset, value, width);
    at += width;
    offset += width;
    bytes -= width;
  }
  return true;
}

// ---- Interrupts ---------------------------------------------------------------------------------------------------

uint32_t* SoftFunction::vector_entry(unsigned vector) {
  return reinterpret_cast<uint32_t*>(registers(identity_.vector_bar) + identity_.vector_table +
                                     vector * pci::msix::kEntrySize);
}

uint32_t* SoftFunction::pending_word(unsigned vector) {
  return reinterpret_cast<uint32_t*>(registers(identity_.vector_bar) + identity_.vector_pending) + vector / 32;
}

void SoftFunction::reset_vectors() {
  for (unsigned i = 0; i < identity_.vectors; i++) {
    uint32_t* entry = vector_entry(i);
    std::memset(entry, 0, pci::msix::kEntrySize);
    entry[pci::msix::kEntryControl / 4] = pci::msix::kEntryMasked;
    *pending_word(i) = 0;
  }
}

void SoftFunction::open_vector(unsigned vector) {
  uint32_t* entry = vector_entry(vector);
  entry[pci::msix::kEntryAddressLow / 4] = 0xfee0'0000;  // x86's interrupt window
  entry[pci::msix::kEntryAddressHigh / 4] = 0;
  entry[pci::msix::kEntryData / 4] = 0x20 + vector;
  entry[pci::msix::kEntryControl / 4] = 0;
  config_.enable_vectors(true);
  vectors_stored();
}

int SoftFunction::interrupt(unsigned vector) {
  if (vector >= identity_.vectors) {
    throw host::MachineError(options_.name + " has " + std::to_string(identity_.vectors) +
                             " interrupt vectors: none is " + std::to_string(vector));
  }
  if (gone_ || !nic_->owned()) throw host::MachineError(options_.name + " was released");
  std::lock_guard guard(nic_->lock());
  int& fd = interrupts_[vector];
  if (fd < 0) {
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) throw host::MachineError(std::string("an eventfd for an interrupt: ") + std::strerror(errno));
    if (visible_) open_vector(vector);
  }
  return fd;
}

void SoftFunction::connect_interrupt(unsigned vector, int own) {
  if (vector >= identity_.vectors || gone_ || !nic_->owned()) {
    if (own >= 0) close(own);
    return;
  }
  std::lock_guard guard(nic_->lock());
  if (const int before = std::exchange(interrupts_[vector], own); before >= 0) close(before);
  if (own < 0) *pending_word(vector) &= ~(1u << vector % 32);
  vectors_stored();
}

void SoftFunction::host_keeps_vectors(bool on) {
  if (gone_ || !nic_->owned()) return;
  std::lock_guard guard(nic_->lock());
  host_vectors_ = on;
  host_masked_.assign(identity_.vectors, false);
}

void SoftFunction::host_takes_atomics(bool on) {
  if (gone_ || !nic_->owned()) return;
  std::lock_guard guard(nic_->lock());
  config_.enable_atomics(on);
}

void SoftFunction::mask_interrupt(unsigned vector, bool masked) {
  if (vector >= identity_.vectors || gone_ || !nic_->owned()) return;
  std::lock_guard guard(nic_->lock());
  host_masked_[vector] = masked;
  vectors_stored();
}

void SoftFunction::trigger_interrupt(unsigned vector) {
  if (vector >= identity_.vectors || gone_ || !nic_->owned()) return;
  std::lock_guard guard(nic_->lock());
  signal(vector);
}

bool SoftFunction::vectors_on() const {
  if (!config_.bus_master()) return false;
  if (!host_vectors_) return config_.vectors_enabled();
  return std::any_of(interrupts_.begin(), interrupts_.end(), [](int fd) { return fd >= 0; });
}

bool SoftFunction::vector_open(unsigned vector) {
  if (host_vectors_) return interrupts_[vector] >= 0 && !host_masked_[vector];
  return visible_ && !config_.vectors_masked() &&
         !(vector_entry(vector)[pci::msix::kEntryControl / 4] & pci::msix::kEntryMasked);
}

void SoftFunction::raise(unsigned vector) {
  if (vector >= identity_.vectors || failed_ || !vectors_on()) return;
  if (vector_open(vector)) {
    signal(vector);
  } else {
    *pending_word(vector) |= 1u << vector % 32;
  }
}

void SoftFunction::vectors_stored() {
  if (!visible_ || !vectors_on()) return;
  for (unsigned i = 0; i < identity_.vectors; i += 32) {
    for (uint32_t pending = *pending_word(i); pending; pending &= pending - 1) {
      const unsigned vector = i + static_cast<unsigned>(std::countr_zero(pending));
      if (vector >= identity_.vectors) break;
      if (!vector_open(vector)) continue;
      *pending_word(vector) &= ~(1u << vector % 32);
      signal(vector);
    }
  }
}

void SoftFunction::signal(unsigned vector) {
  if (interrupts_[vector] >= 0) signal_event(interrupts_[vector]);
}

// ---- Reset, and leaving ---------------------------------------------------------------------------------------------

void SoftFunction::reset() { restart(true); }

void SoftFunction::restart(bool keep_config) {
  if (failed_ || gone_ || !nic_->owned()) return;
  {
    std::lock_guard guard(nic_->lock());
    device_stop();
    // What the host set up for its interrupts it sets up again after a reset that it asked for.
    const bool vectors = config_.vectors_enabled();
    config_.reset(keep_config);
    show(true);
    for (BarMemory& bar : bars_) {
      if (bar.memory) madvise(bar.memory, bar.bytes, MADV_DONTNEED);  // private and anonymous: zeros
    }
    reset_vectors();
    if (keep_config && vectors && !host_vectors_) {
      for (unsigned i = 0; i < identity_.vectors; i++) {
        if (interrupts_[i] >= 0) open_vector(i);
      }
    }
    apply_config();
  }
  nic_->recall(nullptr, SIZE_MAX);
  device_start();
}

void SoftFunction::vanish() {
  if (failed_ || gone_ || !nic_->owned()) return;
  {
    std::lock_guard guard(nic_->lock());
    failed_.store(true, std::memory_order_release);
    device_stop();
    apply_config();
  }
  nic_->stop();
}

void SoftFunction::release() {
  if (gone_.exchange(true)) return;
  if (!nic_->owned()) {
    // The parent's: its memory, threads and place on the wire stay as they are, here too.
    new std::map<uint64_t, Held>(std::move(held_));
    new std::map<uintptr_t, Placed>(std::move(placed_));
    new std::shared_ptr<Arena>(arena_);
    segments_.release();
    return;
  }
  {
    std::lock_guard guard(nic_->lock());
    device_stop();
    nic_->dma().set_enabled(false);
    show(false);
  }
  nic_->recall(nullptr, SIZE_MAX);
  nic_->stop();
  reach_.reset();
  std::map<uint64_t, Held> held;
  {
    std::lock_guard guard(held_mutex_);
    held.swap(held_);
  }
  for (auto& [handle, one] : held) drop(one);
  segments_.reset();
  std::lock_guard guard(nic_->lock());
  for (int& fd : interrupts_) {
    if (const int open = std::exchange(fd, -1); open >= 0) close(open);
  }
}

// ---- Memory
// -----------------------------------------------------------------------------------------------------------

uint64_t SoftFunction::random() {  // splitmix64
  uint64_t z = random_ += 0x9e37'79b9'7f4a'7c15;
  z = (z ^ z >> 30) * 0xbf58'476d'1ce4'e5b9;
  z = (z ^ z >> 27) * 0x94d0'49bb'1331'11eb;
  return z ^ z >> 31;
}

// Aligned as a driver of an IOMMU would: so that big pages serve big memory. A hole of a page follows each: a device
// that runs past the end faults.
uint64_t SoftFunction::place_iova(uint64_t bytes) {
  const uint64_t alignment = std::clamp<uint64_t>(std::bit_floor(bytes), page(), huge_page);
  const auto at = iova_.take(bytes + page(), alignment, next_iova_);
  if (!at) {
    throw host::MemoryError(options_.name + " has no IOVAs left for " + std::to_string(bytes) + " bytes together: " +
                            std::to_string(iova_.available()) + " of " + std::to_string(iova_bytes_) +
                            " are free; deregister regions, unpin or free other memory of it first");
  }
  next_iova_ = *at + bytes + page();
  return *at;
}

void SoftFunction::give_iova(uint64_t at, uint64_t bytes) { iova_.give(at, bytes + page()); }

// As a machine that has run for a while gives it: huge pages where they fit, smaller pieces elsewhere, mostly apart
// from each other.
std::vector<host::Run> SoftFunction::place_physical(uint64_t bytes) {
  std::vector<host::Run> runs;
  while (bytes) {
    uint64_t piece = std::min<uint64_t>(std::bit_floor(bytes), huge_page);
    if (piece > page() && random() % 4 == 0) piece = std::max<uint64_t>(page(), piece >> (1 + random() % 4));
    const uint64_t apart = random() % 4 == 0 ? 0 : page() * (1 + random() % 16);
    uint64_t at;
    try {
      at = Machine::instance().place(piece, piece, apart);
    } catch (const host::MemoryError&) {
      for (const host::Run& run : runs) Machine::instance().give_back(run.address, run.bytes);
      throw;
    }
    if (!runs.empty() && runs.back().address + runs.back().bytes == at) {
      runs.back().bytes += piece;
    } else {
      runs.push_back({at, piece});
    }
    bytes -= piece;
  }
  return runs;
}

void SoftFunction::begin_serving() {
  if (gone_ || !nic_->owned()) throw host::MachineError(options_.name + " was released");
  std::lock_guard guard(held_mutex_);
  if (served_) throw host::MachineError(options_.name + " is served already");
  if (!held_.empty()) throw host::MachineError(options_.name + " is in use: this process has memory mapped for it");
  served_.store(true, std::memory_order_release);
}

void SoftFunction::check_memory() {
  if (served_) {
    throw host::MachineError(options_.name +
                             " is served over vfio-user: its memory is the client's, not this process's");
  }
}

host::Memory SoftFunction::alloc_dma(size_t bytes) {
  if (gone_ || !nic_->owned()) throw host::MachineError(options_.name + " was released");
  if (bytes == 0 || bytes > SIZE_MAX / 2) throw host::MemoryError("DMA memory of " + std::to_string(bytes) + " bytes");
  Held held;
  auto allocation = Allocation::make(arena_, bytes);
  host::Memory memory;
  memory.data = allocation->data();
  memory.size = held.bytes = allocation->size();
  std::lock_guard guard(held_mutex_);
  check_memory();
  if (options_.iommu) {
    held.iova = place_iova(held.bytes);
    memory.runs = {{held.iova, held.bytes}};
    held.allocation = std::move(allocation);
  } else {
    memory.runs = place_physical(held.bytes);
    held.placed = reinterpret_cast<uintptr_t>(memory.data) + memory.size;
    placed_[held.placed] = {std::move(allocation), memory.runs, 1};
  }
  {
    std::lock_guard locked(nic_->lock());
    uint8_t* at = memory.data;
    for (const host::Run& run : memory.runs) {
      nic_->dma().map(run.address, at, run.bytes);
      at += run.bytes;
    }
  }
  memory.handle = next_handle_++;
  held_[memory.handle] = std::move(held);
  return memory;
}

void SoftFunction::free_dma(const host::Memory& memory) {
  if (gone_ || !nic_->owned()) return;
  Held held;
  {
    std::lock_guard guard(held_mutex_);
    const auto found = held_.find(memory.handle);
    if (found == held_.end()) return;
    held = std::move(found->second);
    held_.erase(found);
  }
  drop(held);
}

void SoftFunction::unpin(const host::Memory& memory) { free_dma(memory); }

void SoftFunction::drop(Held& held) {
  if (held.placed) {
    unplace(held.placed);
    return;
  }
  {
    std::lock_guard locked(nic_->lock());
    nic_->dma().unmap(held.iova, held.bytes);
  }
  if (held.pinned) {
    for (const Pinned::Piece& piece : held.pinned->pieces()) nic_->recall(piece.at, piece.bytes);
    std::lock_guard guard(held_mutex_);
    pinned_bytes_ -= held.bytes;
    segments_->remove(*held.pinned);
    give_iova(held.iova, held.bytes);
  } else {
    nic_->recall(held.allocation->data(), held.allocation->size());
    std::lock_guard guard(held_mutex_);
    give_iova(held.iova, held.bytes);
  }
}

void SoftFunction::unplace(uintptr_t end) {
  Placed placed;
  {
    std::lock_guard guard(held_mutex_);
    const auto found = placed_.find(end);
    if (found == placed_.end() || --found->second.holders) return;
    placed = std::move(found->second);
    placed_.erase(found);
  }
  {
    std::lock_guard locked(nic_->lock());
    for (const host::Run& run : placed.runs) nic_->dma().unmap(run.address, run.bytes);
  }
  nic_->recall(placed.allocation->data(), placed.allocation->size());
  for (const host::Run& run : placed.runs) Machine::instance().give_back(run.address, run.bytes);
}

host::Memory SoftFunction::pin(void* address, size_t bytes) {
  if (gone_ || !nic_->owned()) throw host::MachineError(options_.name + " was released");
  const auto at = reinterpret_cast<uintptr_t>(address);
  const size_t mask = page() - 1;
  if (at & mask) throw host::MemoryError("the memory at " + hex(at) + " cannot be pinned: it is not on a page");
  if (bytes == 0 || bytes > SIZE_MAX - mask || ((bytes + mask) & ~mask) > UINTPTR_MAX - at) {
    throw host::MemoryError("no memory of " + std::to_string(bytes) + " bytes is at " + hex(at));
  }
  const size_t whole = (bytes + mask) & ~mask;
  if (!options_.iommu) return pin_physical(address, bytes, whole);
  std::lock_guard guard(held_mutex_);
  check_memory();
  if (options_.pin_limit && (pinned_bytes_ > options_.pin_limit || whole > options_.pin_limit - pinned_bytes_)) {
    throw host::MemoryError("pinning " + std::to_string(whole) + " bytes for " + options_.name +
                            " is over the limit: " + std::to_string(pinned_bytes_) +
                            " bytes are pinned, and the limit is " + std::to_string(options_.pin_limit) + " bytes");
  }
  Held held;
  held.pinned = Pinned::take(address, whole);
  held.bytes = whole;
  held.iova = place_iova(whole);
  segments_->add(*held.pinned);
  pinned_bytes_ += whole;
  {
    std::lock_guard locked(nic_->lock());
    uint64_t bus = held.iova;
    for (const Pinned::Piece& piece : held.pinned->pieces()) {
      nic_->dma().map(bus, piece.at, piece.bytes);
      bus += piece.bytes;
    }
  }
  host::Memory memory{static_cast<uint8_t*>(address), bytes, {{held.iova, bytes}}, next_handle_++};
  held_[memory.handle] = std::move(held);
  return memory;
}

// Only memory that alloc_dma gave: other pages of the process go back to the system when it dies, while the device
// may still write them.
host::Memory SoftFunction::pin_physical(void* address, size_t bytes, size_t whole) {
  std::lock_guard guard(held_mutex_);
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto found = placed_.upper_bound(at);
  if (found == placed_.end() || reinterpret_cast<uintptr_t>(found->second.allocation->data()) > at ||
      whole > found->first - at) {
    throw host::MemoryError(
        "the memory at " + hex(at) + " cannot be pinned: " + options_.name +
        " is not behind an IOMMU and takes only memory that alloc_dma gave (other memory goes back to the system when "
        "the process dies, while the device may still write it)");
  }
  Placed& placed = found->second;
  host::Memory memory{static_cast<uint8_t*>(address), bytes, {}, next_handle_++};
  uint64_t skip = at - reinterpret_cast<uintptr_t>(placed.allocation->data());
  uint64_t left = bytes;
  for (const host::Run& run : placed.runs) {
    if (skip >= run.bytes) {
      skip -= run.bytes;
      continue;
    }
    const uint64_t n = std::min<uint64_t>(left, run.bytes - skip);
    if (n) memory.runs.push_back({run.address + skip, n});
    skip = 0;
    left -= n;
  }
  placed.holders++;
  Held held;
  held.placed = found->first;
  held_[memory.handle] = std::move(held);
  return memory;
}

void SoftFunction::map_memory(uint64_t bus, uint8_t* at, uint64_t bytes, Dma::Access access) {
  if (gone_ || !nic_->owned()) return;
  std::lock_guard locked(nic_->lock());
  nic_->dma().map(bus, at, bytes, access);
}

void SoftFunction::map_memory(uint64_t bus, Dma::Remote& remote, uint64_t bytes, Dma::Access access) {
  if (gone_ || !nic_->owned()) return;
  std::lock_guard locked(nic_->lock());
  nic_->dma().map_remote(bus, remote, bytes, access);
}

void SoftFunction::unmap_memory(uint64_t bus, uint8_t* at, uint64_t bytes) {
  if (!nic_->owned()) return;
  {
    std::lock_guard locked(nic_->lock());
    nic_->dma().unmap(bus, bytes);
  }
  if (at) nic_->recall(at, bytes);
}

size_t SoftFunction::dma_nodes() {
  if (gone_ || !nic_->owned()) return 0;
  std::lock_guard locked(nic_->lock());
  return nic_->dma().nodes();
}

uint64_t SoftFunction::dma_pages() {
  if (gone_ || !nic_->owned()) return 0;
  std::lock_guard locked(nic_->lock());
  return nic_->dma().pages();
}

// ---- What every family's firmware has of it
// ---------------------------------------------------------------------------

void SoftFunction::check_owned() const {
  if (!owned()) throw host::MachineError(name() + " was released, or is the parent process's");
}

void SoftFunction::check_there(uint32_t id) const {
  if (!owned()) throw UnknownId(name() + " was released: it has no object " + std::to_string(id));
}

bool SoftFunction::bar_load(int bar, uint64_t offset, void* into, size_t bytes) {
  const size_t size = bar_size(bar);
  if (offset > size || bytes > size - offset) return false;
  if (!nic_->owned()) check_owned();
  std::lock_guard guard(showing_);
  std::memcpy(into, own_registers(bar) + offset, bytes);
  return true;
}

uint8_t* SoftFunction::own_registers(int bar) {
  std::vector<uint8_t>& hidden = hidden_[static_cast<unsigned>(bar)];
  return hidden.empty() ? registers(bar) : hidden.data();
}

bool SoftFunction::bar_store(int bar, uint64_t offset, const void* from, size_t bytes) {
  const size_t size = bar_size(bar);
  if (offset > size || bytes > size - offset) return false;
  check_owned();
  std::lock_guard guard(nic().lock());
  std::lock_guard showing(showing_);
  if (!failed()) std::memcpy(own_registers(bar) + offset, from, bytes);
  return true;
}

bool SoftFunction::dma_read(uint64_t bus, void* into, size_t bytes) {
  if (!owned()) return false;
  std::lock_guard guard(nic().lock());
  return nic().dma().read(bus, into, bytes);
}

bool SoftFunction::dma_write(uint64_t bus, const void* from, size_t bytes) {
  if (!owned()) return false;
  std::lock_guard guard(nic().lock());
  return nic().dma().write(bus, from, bytes);
}

bool SoftFunction::dma_publish(uint64_t bus, const void* from, size_t bytes) {
  if (!owned()) return false;
  if (bytes == 0) return true;
  std::lock_guard guard(nic().lock());
  Dma& dma = nic().dma();
  const size_t most = bytes - 1;
  if (most != 0 && !dma.write(bus, from, most)) return false;
  std::atomic_thread_fence(std::memory_order_release);
  return dma.write(bus + most, static_cast<const uint8_t*>(from) + most, 1);
}

SoftFunction::Counts SoftFunction::stats() {
  check_owned();
  std::lock_guard guard(nic().lock());
  using Kind = hw::roce::Kind;
  const transport::Stats& s = nic().engine().stats();
  const wire::Counts w = nic().port().counts();
  uint64_t dropped = 0;
  for (const uint64_t n : s.dropped) dropped += n;
  return {{"packets_sent", s.packets_sent},
          {"packets_received", s.packets_received},
          {"bytes_sent", s.bytes_sent},
          {"bytes_received", s.bytes_received},
          {"mtu_packets_sent", s.sent.all()},  // a large packet counts as those of an MTU that it stands for
          {"mtu_packets_received", s.received.all()},
          {"sends_sent", s.sent[Kind::Send]},  // and so do these
          {"writes_sent", s.sent[Kind::Write]},
          {"read_requests_sent", s.sent[Kind::ReadRequest]},
          {"read_responses_sent", s.sent[Kind::ReadResponse]},
          {"atomics_sent", s.sent[Kind::Atomic]},
          {"sends_received", s.received[Kind::Send]},
          {"writes_received", s.received[Kind::Write]},
          {"read_requests_received", s.received[Kind::ReadRequest]},
          {"read_responses_received", s.received[Kind::ReadResponse]},
          {"atomics_received", s.received[Kind::Atomic]},
          {"retransmits", s.retransmits},
          {"timeouts", s.timeouts},
          {"retries_exceeded", s.retries_exceeded},
          {"rnr_naks_sent", s.rnr_naks_sent},
          {"rnr_naks_received", s.rnr_naks_received},
          {"sequence_naks_sent", s.sequence_naks_sent},
          {"sequence_naks_received", s.sequence_naks_received},
          {"naks_sent", s.naks_sent},
          {"naks_received", s.naks_received},
          {"implied_naks", s.implied_naks},
          {"duplicates", s.duplicates},
          {"dropped", dropped},
          {"dropped_sequence", s.dropped[static_cast<size_t>(transport::Drop::Sequence)]},
          {"dropped_no_receive", s.dropped[static_cast<size_t>(transport::Drop::NoReceive)]},
          {"wire_sent", w.sent},
          {"wire_received", w.received},
          {"wire_dropped", w.dropped},
          {"wire_recalled", w.recalled},
          {"wire_lost", w.lost},
          {"wire_duplicated", w.duplicated},
          {"wire_reordered", w.reordered},
          {"wire_delayed", w.delayed},
          {"wire_corrupted", w.corrupted},
          {"icrc_errors", w.icrc_errors},
          {"dma_faults", nic().dma().faults()},
          {"dma_fault_address", nic().dma().last_fault().address}};
}

}  // namespace userdma::soft
