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

#include "hw/pci.h"

namespace userdma::soft {

namespace pci = hw::pci;

namespace {

// IOVAs begin well past zero and end below where a process maps memory, so that neither a null nor a process address
// is ever one. They are not used twice: an address that is stale faults.
constexpr uint64_t first_iova = 0x4000'0000;
constexpr uint64_t iova_limit = 0x1000'0000'0000;
constexpr uint64_t huge_page = 2 << 20;

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

SoftFunction::SoftFunction(const Identity& identity, const Options& options)
    : identity_(identity),
      options_(options),
      config_(identity),
      interrupts_(identity.vectors, -1),
      arena_(std::make_shared<Arena>(options.memory)),
      segments_(std::make_unique<PinnedSegments>(*arena_)),
      next_iova_(first_iova),
      random_(options.seed) {
  Nic::Options nic;
  std::copy(options.mac.begin(), options.mac.end(), nic.mac);
  nic.thread = options.thread;
  for (unsigned i = 0; i < pci::kBars; i += 2) {
    const size_t bytes = identity_.bar_bytes[i];
    if (!bytes) continue;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw host::MemoryError("the BARs of " + options_.name + ": " + std::strerror(errno));
    bars_[i] = {static_cast<uint8_t*>(at), bytes};
    // As the machine's firmware leaves it: BARs placed, memory space on, bus mastering off.
    bar_placed_[i] = Machine::instance().place(bytes, bytes);
    config_.set_bar(static_cast<int>(i), bar_placed_[i]);
  }
  config_.write(pci::kCommand, 2, pci::command::kMemory);
  reset_vectors();
  nic_ = std::make_unique<Nic>(options_.wire, options_.clock, arena_.get(), nic);
  {
    std::lock_guard guard(nic_->lock());
    apply_config();
  }
  if (!options_.iommu) Machine::instance().attach(*this);
}

SoftFunction::~SoftFunction() {
  if (!nic_->owned()) nic_.release();
  for (BarMemory& bar : bars_) {
    if (bar.memory) munmap(bar.memory, bar.bytes);
  }
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
  if (bar == function.identity_.vector_bar) [[unlikely]] {
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
  for (unsigned i = 0; i < pci::kBars; i += 2) {
    BarMemory& bar = bars_[i];
    if (!bar.memory) continue;
    if (visible) {
      std::memcpy(bar.memory, hidden_[i].data(), bar.bytes);
      hidden_[i] = {};
    } else {
      hidden_[i].assign(bar.memory, bar.memory + bar.bytes);
      std::memset(bar.memory, 0xff, bar.bytes);
    }
  }
  if (visible) visible_.store(true, std::memory_order_release);
}

bool SoftFunction::bar_read(int bar, uint64_t offset, void* into, size_t bytes) {
  const size_t size = bar_size(bar);
  if (offset > size || bytes > size - offset) return false;
  if (bytes <= 8) loading_hook(this, bar, offset, static_cast<unsigned>(bytes));
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
    std::memcpy(registers(bar) + offset, at, width);
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

void SoftFunction::connect_interrupt(unsigned vector, int fd) {
  if (vector >= identity_.vectors || gone_ || !nic_->owned()) return;
  const int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  std::lock_guard guard(nic_->lock());
  if (const int before = std::exchange(interrupts_[vector], own); before >= 0) close(before);
}

void SoftFunction::raise(unsigned vector) {
  if (vector >= identity_.vectors || failed_ || !config_.vectors_enabled() || !config_.bus_master()) return;
  const bool masked = vector_entry(vector)[pci::msix::kEntryControl / 4] & pci::msix::kEntryMasked;
  if (masked || config_.vectors_masked() || !visible_) {
    *pending_word(vector) |= 1u << vector % 32;
  } else {
    signal(vector);
  }
}

void SoftFunction::vectors_stored() {
  if (!config_.vectors_enabled() || config_.vectors_masked() || !config_.bus_master() || !visible_) return;
  for (unsigned i = 0; i < identity_.vectors; i += 32) {
    for (uint32_t pending = *pending_word(i); pending; pending &= pending - 1) {
      const unsigned vector = i + static_cast<unsigned>(std::countr_zero(pending));
      if (vector >= identity_.vectors) break;
      if (vector_entry(vector)[pci::msix::kEntryControl / 4] & pci::msix::kEntryMasked) continue;
      *pending_word(vector) &= ~(1u << vector % 32);
      signal(vector);
    }
  }
}

void SoftFunction::signal(unsigned vector) {
  const uint64_t one = 1;
  if (interrupts_[vector] >= 0 && write(interrupts_[vector], &one, sizeof one) < 0) {
    // Full: its reader has 2^64 - 2 of them to take already.
  }
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
    if (keep_config && vectors) {
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
  if (!options_.iommu) Machine::instance().detach(*this);
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

// Aligned as a driver of an IOMMU would: so that big pages serve big memory.
uint64_t SoftFunction::place_iova(uint64_t bytes) {
  const uint64_t alignment = std::clamp<uint64_t>(std::bit_floor(bytes), page(), huge_page);
  const uint64_t at = (next_iova_ + alignment - 1) & ~(alignment - 1);
  if (bytes > iova_limit - at)
    throw host::MemoryError(options_.name + " has no IOVAs left for " + std::to_string(bytes) + " bytes");
  next_iova_ = at + bytes + page();  // a hole after each: a device that runs past the end faults
  return at;
}

// As a machine that has run for a while gives it: huge pages where they fit, smaller pieces elsewhere, mostly apart
// from each other.
std::vector<host::Run> SoftFunction::place_physical(uint64_t bytes) {
  std::vector<host::Run> runs;
  while (bytes) {
    uint64_t piece = std::min<uint64_t>(std::bit_floor(bytes), huge_page);
    if (piece > page() && random() % 4 == 0) piece = std::max<uint64_t>(page(), piece >> (1 + random() % 4));
    const uint64_t apart = random() % 4 == 0 ? 0 : page() * (1 + random() % 16);
    const uint64_t at = Machine::instance().place(piece + apart, piece);
    if (!runs.empty() && runs.back().address + runs.back().bytes == at) {
      runs.back().bytes += piece;
    } else {
      runs.push_back({at, piece});
    }
    bytes -= piece;
  }
  return runs;
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
  } else {
    nic_->recall(held.allocation->data(), held.allocation->size());
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

void SoftFunction::device_memory(uint64_t bus, uint8_t* at, uint64_t bytes) {
  if (gone_ || !nic_->owned()) return;
  std::lock_guard locked(nic_->lock());
  nic_->dma().map(bus, at, bytes);
}

void SoftFunction::device_memory_gone(uint64_t bus, uint8_t* at, uint64_t bytes) {
  if (!nic_->owned()) return;
  {
    std::lock_guard locked(nic_->lock());
    nic_->dma().unmap(bus, bytes);
  }
  nic_->recall(at, bytes);
}

uint64_t SoftFunction::dma_pages() {
  if (gone_ || !nic_->owned()) return 0;
  std::lock_guard locked(nic_->lock());
  return nic_->dma().pages();
}

}  // namespace userdma::soft
