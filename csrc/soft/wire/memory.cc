#include "soft/wire/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "host/function.h"
#include "soft/futex.h"
#include "soft/lock.h"

namespace userdma::soft::wire {
namespace {

constexpr unsigned slots = 512;  // of an inbox; a power of two

}  // namespace

// A packet in an inbox. Senders fill it under the inbox's lock; its reader takes it by its state alone.
struct Slot {
  enum State : uint32_t { Empty, Full, Claimed, Recalled };

  std::atomic<uint32_t> state{Empty};
  bool copied = true;  // the payload is in `bytes`
  const MemoryPort* sender = nullptr;
  uint64_t ticket = 0;  // counts the packets of the inbox
  Header header;
  std::vector<uint8_t> bytes;
  std::vector<Span> spans;
};

struct Inbox {
  explicit Inbox(unsigned index_) : index(index_), ring(new Slot[slots]) {}

  const unsigned index;
  std::atomic<uint64_t> mac{~uint64_t{0}};  // no MAC: nobody has the inbox
  const std::unique_ptr<Slot[]> ring;

  // The reader's.
  alignas(64) std::atomic<unsigned> tail{0};
  std::atomic<uint32_t> asleep{0};
  Bell bell{asleep, false};

  // The senders'.
  alignas(64) Lock lock;
  unsigned head = 0;
  uint64_t tickets = 0;

  // Who runs the NIC in another thread than its own; the port leaves when nobody does.
  std::atomic<uint32_t> visitors{0};
  std::atomic<Owner*> owner{nullptr};

  bool visit(bool brief) {
    visitors.fetch_add(1, std::memory_order_seq_cst);
    Owner* nic = owner.load(std::memory_order_seq_cst);
    bool did = nic && nic->step(brief);
    visitors.fetch_sub(1, std::memory_order_release);
    return did;
  }
};

class MemoryPort final : public Port {
 public:
  MemoryPort(std::shared_ptr<MemoryWire> wire, Inbox* inbox, bool copy)
      : wire_(std::move(wire)), inbox_(inbox), copy_(copy), mac_(inbox->mac.load()) {}
  ~MemoryPort() override;

  void leave() override;
  bool send(const Header& header, const Span* payload, size_t spans) override;
  unsigned receive(Sink& sink, unsigned budget, uint32_t most) override;
  bool pending() const override {
    return inbox_->ring[inbox_->tail.load(std::memory_order_relaxed)].state.load(std::memory_order_acquire) !=
               Slot::Empty &&
           !left_.load(std::memory_order_relaxed);
  }
  uint32_t largest(uint32_t mtu) const override { return max_packet / mtu * mtu; }
  bool recall(const void* begin, size_t bytes) override;
  bool blocked() const override { return blocked_; }
  Helped help(bool brief) override;
  Bell* bell() override { return &inbox_->bell; }
  Counts counts() const override { return counts_; }

 private:
  enum class Put : uint8_t { Done, Gone, Full };

  Inbox* find(uint64_t mac);
  Put put(Inbox& inbox, uint64_t mac, const Header& header, const Span* payload, size_t spans);
  bool flood(const Header& header, const Span* payload, size_t spans);
  // What an inbox still holds of this port.
  struct Left {
    bool references = false;  // to other memory
    bool claimed = false;     // to this, and it is being read
  };
  Left recall_from(Inbox& inbox, const uint8_t* begin, const uint8_t* end);

  const std::shared_ptr<MemoryWire> wire_;
  Inbox* const inbox_;
  const bool copy_;
  const uint64_t mac_;
  std::atomic<bool> left_{false};
  bool blocked_ = false;
  Counts counts_;
  std::vector<Inbox*> referring_;  // inboxes that may hold references of this port

  struct Known {
    uint64_t mac = ~uint64_t{0};
    Inbox* inbox = nullptr;
  };
  std::array<Known, 16> known_;
};

std::shared_ptr<Wire> Wire::make() {
  static std::atomic<unsigned> count{0};
  return std::make_shared<MemoryWire>("memory#" + std::to_string(count.fetch_add(1)));
}

MemoryWire::~MemoryWire() {
  for (auto& inbox : inboxes_) delete inbox.load(std::memory_order_relaxed);
}

std::unique_ptr<Port> MemoryWire::attach(const uint8_t mac[6], Owner* owner, Arena* arena) {
  std::lock_guard guard(mutex_);
  uint64_t key = mac_number(mac);
  if (by_mac_.count(key)) {
    char text[18];
    std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
    throw host::Error(std::string("the MAC ") + text + " is on the wire already: give the NIC another one");
  }
  Inbox* inbox;
  if (!unused_.empty()) {
    inbox = inboxes_[unused_.back()].load(std::memory_order_relaxed);
    unused_.pop_back();
  } else {
    unsigned index = count_.load(std::memory_order_relaxed);
    if (index == max_ports) throw host::Error("the wire is full: " + std::to_string(max_ports) + " NICs are on it");
    inbox = new Inbox(index);
    inboxes_[index].store(inbox, std::memory_order_release);
    count_.store(index + 1, std::memory_order_release);
  }
  by_mac_[key] = inbox;
  inbox->owner.store(owner, std::memory_order_seq_cst);
  inbox->mac.store(key, std::memory_order_release);
  return std::make_unique<MemoryPort>(std::static_pointer_cast<MemoryWire>(shared_from_this()), inbox, !arena);
}

Inbox* MemoryWire::find(uint64_t mac) {
  std::lock_guard guard(mutex_);
  auto found = by_mac_.find(mac);
  return found == by_mac_.end() ? nullptr : found->second;
}

MemoryPort::~MemoryPort() { leave(); }

void MemoryPort::leave() {
  if (left_.exchange(true)) return;
  {
    std::lock_guard guard(wire_->mutex_);
    wire_->by_mac_.erase(mac_);
  }
  inbox_->owner.store(nullptr, std::memory_order_seq_cst);
  while (inbox_->visitors.load(std::memory_order_seq_cst)) std::this_thread::yield();
  {
    // What waits here is lost. A sender that found the inbox before sees under its lock that it is nobody's.
    std::lock_guard guard(inbox_->lock);
    inbox_->mac.store(~uint64_t{0}, std::memory_order_release);
    for (unsigned i = 0; i < slots; ++i) inbox_->ring[i].state.store(Slot::Empty, std::memory_order_release);
    inbox_->tail.store(inbox_->head, std::memory_order_relaxed);
  }
  wire_->hot_[inbox_->index / 64].fetch_and(~(uint64_t{1} << inbox_->index % 64));
  while (!recall(nullptr, SIZE_MAX)) std::this_thread::yield();  // threads of this process: they go on
  std::lock_guard guard(wire_->mutex_);
  wire_->unused_.push_back(inbox_->index);
}

Inbox* MemoryPort::find(uint64_t mac) {
  Known& known = known_[(mac ^ mac >> 24 ^ mac >> 40) % known_.size()];
  if (known.mac == mac && known.inbox->mac.load(std::memory_order_relaxed) == mac) [[likely]]
    return known.inbox;
  Inbox* inbox = wire_->find(mac);
  if (inbox) known = {mac, inbox};
  return inbox;
}

bool MemoryPort::send(const Header& header, const Span* payload, size_t spans) {
  if (left_.load(std::memory_order_relaxed)) [[unlikely]]
    return true;
  uint64_t mac = mac_number(header.dmac);
  Inbox* inbox = find(mac);
  if (!inbox) [[unlikely]] {
    blocked_ = false;
    if (header.for_many()) return flood(header, payload, spans);
    ++counts_.dropped;
    return true;
  }
  const Put done = put(*inbox, mac, header, payload, spans);
  blocked_ = done == Put::Full;
  if (done == Put::Gone) ++counts_.dropped;
  return done != Put::Full;
}

// To every other port.
bool MemoryPort::flood(const Header& header, const Span* payload, size_t spans) {
  const unsigned count = wire_->count_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    Inbox* inbox = wire_->inboxes_[i].load(std::memory_order_acquire);
    const uint64_t mac = inbox->mac.load(std::memory_order_acquire);
    if (inbox == inbox_ || mac == ~uint64_t{0}) continue;
    if (put(*inbox, mac, header, payload, spans) != Put::Done) ++counts_.dropped;
  }
  return true;
}

inline MemoryPort::Put MemoryPort::put(Inbox& inbox, uint64_t mac, const Header& header, const Span* payload,
                                       size_t spans) {
  {
    std::lock_guard guard(inbox.lock);
    if (inbox.mac.load(std::memory_order_relaxed) != mac) return Put::Gone;
    Slot& slot = inbox.ring[inbox.head];
    if (slot.state.load(std::memory_order_acquire) != Slot::Empty) return Put::Full;
    slot.header = header;
    slot.sender = this;
    slot.ticket = ++inbox.tickets;
    slot.copied = copy_ || header.copy || header.payload <= max_copied;
    if (slot.copied) {
      slot.bytes.resize(header.payload);
      uint8_t* to = slot.bytes.data();
      for (size_t i = 0; i < spans; ++i) {
        if (payload[i].bytes) std::memcpy(to, payload[i].at, payload[i].bytes);
        to += payload[i].bytes;
      }
    } else {
      slot.spans.assign(payload, payload + spans);
      if (std::find(referring_.begin(), referring_.end(), &inbox) == referring_.end()) referring_.push_back(&inbox);
    }
    slot.state.store(Slot::Full, std::memory_order_release);
    inbox.head = (inbox.head + 1) % slots;
  }
  ++counts_.sent;
  // Ordered with the reader's clearing: either it sees the packet after it cleared the bit, or the bit stays set.
  wire_->hot_[inbox.index / 64].fetch_or(uint64_t{1} << inbox.index % 64, std::memory_order_seq_cst);
  return Put::Done;
}

unsigned MemoryPort::receive(Sink& sink, unsigned budget, uint32_t most) {
  if (left_.load(std::memory_order_relaxed)) [[unlikely]]
    return 0;
  auto& hot = wire_->hot_[inbox_->index / 64];
  const uint64_t bit = uint64_t{1} << inbox_->index % 64;
  if (hot.load(std::memory_order_relaxed) & bit) hot.fetch_and(~bit, std::memory_order_seq_cst);
  unsigned taken = 0;
  while (taken < budget) {
    unsigned tail = inbox_->tail.load(std::memory_order_relaxed);
    Slot& slot = inbox_->ring[tail];
    uint32_t state = slot.state.load(std::memory_order_acquire);
    if (state == Slot::Empty) return taken;
    if (slot.header.payload > most) break;
    if (state == Slot::Full &&
        (slot.copied || slot.state.compare_exchange_strong(state, Slot::Claimed, std::memory_order_acquire))) {
      if (slot.copied) {
        Span span{slot.bytes.data(), slot.bytes.size()};
        sink.packet(slot.header, &span, span.bytes ? 1 : 0);
      } else {
        sink.packet(slot.header, slot.spans.data(), slot.spans.size());
      }
      ++counts_.received;
      ++taken;
    }
    inbox_->tail.store((tail + 1) % slots, std::memory_order_relaxed);
    slot.state.store(Slot::Empty, std::memory_order_release);
  }
  if (pending()) hot.fetch_or(bit, std::memory_order_seq_cst);
  return taken;
}

bool MemoryPort::recall(const void* begin, size_t bytes) {
  auto* from = static_cast<const uint8_t*>(begin);
  const uint8_t* to = bytes == SIZE_MAX ? reinterpret_cast<const uint8_t*>(UINTPTR_MAX) : from + bytes;
  bool free = true;
  std::erase_if(referring_, [&](Inbox* inbox) {
    const Left left = recall_from(*inbox, from, to);
    free = free && !left.claimed;
    return !left.references && !left.claimed;
  });
  return free;
}

MemoryPort::Left MemoryPort::recall_from(Inbox& inbox, const uint8_t* begin, const uint8_t* end) {
  Left left;
  // Senders are kept out, so a slot only moves from full to claimed to empty meanwhile.
  std::lock_guard guard(inbox.lock);
  for (unsigned i = 0; i < slots; ++i) {
    Slot& slot = inbox.ring[i];
    uint32_t state = slot.state.load(std::memory_order_acquire);
    if ((state != Slot::Full && state != Slot::Claimed) || slot.sender != this || slot.copied) continue;
    bool touches = std::any_of(slot.spans.begin(), slot.spans.end(),
                               [&](const Span& span) { return span.at < end && span.at + span.bytes > begin; });
    if (!touches)
      left.references = true;
    else if (state == Slot::Full &&
             slot.state.compare_exchange_strong(state, Slot::Recalled, std::memory_order_acq_rel))
      ++counts_.recalled;
    else if (state == Slot::Claimed)
      left.claimed = true;
  }
  return left;
}

Port::Helped MemoryPort::help(bool brief) {
  auto helped = Helped::Nothing;
  const unsigned own = inbox_->index;
  for (unsigned round = 0;; ++round) {
    bool did = false, left = false;
    unsigned count = wire_->count_.load(std::memory_order_acquire);
    for (unsigned word = 0; word * 64 < count; ++word) {
      uint64_t bits = wire_->hot_[word].load(std::memory_order_seq_cst);
      if (word == own / 64) bits &= ~(uint64_t{1} << own % 64);
      for (; bits; bits &= bits - 1) {
        Inbox* inbox =
            wire_->inboxes_[word * 64 + static_cast<unsigned>(__builtin_ctzll(bits))].load(std::memory_order_acquire);
        if (round < (brief ? 2 : 16) && inbox->visit(brief)) {
          did = true;
        } else {
          inbox->bell.ring();  // its lock is taken, or it goes on for long: its own thread shall
          left = true;
        }
      }
    }
    if (!did) return left && brief ? Helped::More : helped;
    helped = Helped::Some;
  }
}

}  // namespace userdma::soft::wire
