// A port of a wire in shared memory. See shm_layout.h for what lies where, shm_file.h for who has what.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <thread>
#include <unordered_map>
#include <vector>

#include "host/function.h"
#include "soft/futex.h"
#include "soft/memory.h"
#include "soft/wire/registry.h"
#include "soft/wire/shm_file.h"
#include "soft/wire/wire.h"

namespace userdma::soft::wire {
namespace {

using namespace shm;  // NOLINT

// Payloads up to this are copied into the ring if the receiver cannot read them in place.
constexpr uint32_t max_inline = 8192;
constexpr unsigned max_references = 32;
constexpr uint32_t max_mappings = 256;                      // of one peer's segments
constexpr auto look_after = std::chrono::milliseconds(10);  // whether a peer that does not take its packets lives
constexpr auto leave_within = std::chrono::seconds(1);      // how long a port that leaves waits for readers

// A sender zeroes first words so many lines ahead, and a reader asks for a line so long before it looks at it, that
// neither waits for the other's cache at a line that says only that no packet is there.
constexpr uint32_t zero_ahead = 32;
constexpr uint32_t zero_at_once = 16;
constexpr uint32_t look_ahead = 2;

constexpr size_t fixed_bytes = sizeof(First) + sizeof(Core);
constexpr size_t extras_bytes = 6 + 32 + 4 + 16 + 16 + 8 + 8 + 4 + 4;  // all of Extra

// memcpy of few bytes without a call.
inline void copy_few(uint8_t* to, const uint8_t* from, size_t bytes) {
  if (bytes == 8) {
    std::memcpy(to, from, 8);
  } else if (bytes <= 16) {
    if (bytes >= 8) {
      uint64_t head, tail;
      std::memcpy(&head, from, 8);
      std::memcpy(&tail, from + bytes - 8, 8);
      std::memcpy(to, &head, 8);
      std::memcpy(to + bytes - 8, &tail, 8);
    } else {
      for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
    }
  } else {
    std::memcpy(to, from, bytes);
  }
}

unsigned lines_for(size_t bytes) { return static_cast<unsigned>((bytes + line_bytes - 1) / line_bytes); }

// Appends to a packet in a ring.
struct Writer {
  uint8_t* at;
  template <class T>
  void put(const T& value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  }
  void put(const void* from, size_t bytes) {
    std::memcpy(at, from, bytes);
    at += bytes;
  }
};

// Reads one, within `end`.
struct Reader {
  const uint8_t* at;
  const uint8_t* end;
  bool ok = true;
  template <class T>
  void get(T& value) {
    get(&value, sizeof value);
  }
  void get(void* into, size_t bytes) {
    if (static_cast<size_t>(end - at) < bytes) {
      ok = false;
      return;
    }
    std::memcpy(into, at, bytes);
    at += bytes;
  }
};

// The other processes' segments of one peer that this process has mapped.
class Mappings {
 public:
  ~Mappings() { clear(); }
  Mappings() = default;
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  enum class Failure { None, Gone, Refused };

  // The memory that `reference` names, or null.
  const uint8_t* reach(uint32_t pid, const Reference& reference, Failure& failure) {
    const Mapping* mapping = last_id_ == reference.segment ? last_ : nullptr;
    if (!mapping) {
      auto found = by_id_.find(reference.segment);
      if (found == by_id_.end()) {
        Mapping opened = open(pid, reference, failure);
        if (!opened.base) return nullptr;
        found = by_id_.emplace(reference.segment, opened).first;
      }
      mapping = last_ = &found->second;
      last_id_ = reference.segment;
    }
    if (reference.offset > mapping->size || reference.bytes > mapping->size - reference.offset) {
      failure = Failure::Gone;
      return nullptr;
    }
    return mapping->base + reference.offset;
  }

  // Room for `more`, so that none that a packet needs goes while it is read.
  void reserve(uint32_t more) {
    if (by_id_.size() + more > max_mappings) clear();
  }

  void clear() {
    for (auto& [id, mapping] : by_id_) ::munmap(mapping.base, mapping.size);
    by_id_.clear();
    last_ = nullptr;
    last_id_ = 0;
  }

 private:
  struct Mapping {
    uint8_t* base = nullptr;
    size_t size = 0;
  };

  static Mapping open(uint32_t pid, const Reference& reference, Failure& failure) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%u/fd/%d", pid, reference.fd);
    int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
      const bool full = errno == EMFILE || errno == ENFILE;
      if (static std::atomic<bool> told{false}; full && !told.exchange(true))
        std::fprintf(stderr,
                     "userdma: no file descriptor is left for a peer's memory (%s): its payloads are copied, which is "
                     "slower; raise `ulimit -n`\n",
                     std::strerror(errno));
      failure = full || errno == EACCES || errno == EPERM ? Failure::Refused : Failure::Gone;
      return {};
    }
    // The descriptor may have become another file's, and a file that can shrink would end this process by SIGBUS.
    Mapping mapping;
    struct stat status{};
    int seals = ::fcntl(fd, F_GET_SEALS);
    if (::fstat(fd, &status) != 0 || status.st_dev != reference.device || status.st_ino != reference.inode) {
      failure = Failure::Gone;
    } else if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
      failure = Failure::Refused;
    } else {
      auto size = static_cast<size_t>(status.st_size);
      void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
      if (at == MAP_FAILED)
        failure = Failure::Refused;
      else
        mapping = {static_cast<uint8_t*>(at), size};
    }
    ::close(fd);
    return mapping;
  }

  std::unordered_map<uint32_t, Mapping> by_id_;
  uint32_t last_id_ = 0;
  const Mapping* last_ = nullptr;
};

// A packet of this port that refers to memory and may not have been consumed.
struct Referring {
  uint32_t end;  // the ring's position behind it
  Claim* claim;
  unsigned spans;
  Span span[max_references];
};

// What a packet before had for smac, sgid and dgid.
struct LastAddresses {
  uint64_t gids[4] = {};
  uint64_t smac = ~uint64_t{0};  // none yet

  bool same(const Header& header) const {
    static_assert(offsetof(Header, dgid) == offsetof(Header, sgid) + 16);
    uint64_t now[4];
    std::memcpy(now, header.sgid, 16);
    std::memcpy(now + 2, header.dgid, 16);
    return ((now[0] ^ gids[0]) | (now[1] ^ gids[1]) | (now[2] ^ gids[2]) | (now[3] ^ gids[3]) |
            (mac_number(header.smac) ^ smac)) == 0;
  }
  void set(const Header& header) {
    std::memcpy(gids, header.sgid, 16);
    std::memcpy(gids + 2, header.dgid, 16);
    smac = mac_number(header.smac);
  }
};

// A ring that this port fills.
struct Out {
  Life life;  // the receiver's
  unsigned port;
  unsigned index;
  PortRecord* peer;
  RingRecord* record;
  Ring* ring;
  uint32_t head = 0;      // lines written
  uint32_t zeroed = 0;    // lines whose first words are zero, from head on: a ring begins with zeros
  uint32_t consumed = 0;  // as last seen
  LastAddresses addresses;
  std::deque<Referring> referring;
  std::chrono::steady_clock::time_point looked{};

  bool done(uint32_t end) {
    if (static_cast<int32_t>(consumed - end) >= 0) return true;
    consumed = ring->consumed.load(std::memory_order_acquire);
    return static_cast<int32_t>(consumed - end) >= 0;
  }
};

// A ring that this port empties.
struct In {
  Ring* ring;  // null: the sender did not keep to the layout
  RingRecord* record;
  const PortRecord* peer;
  Life life;  // the sender's
  uint32_t pid;
  uint32_t position = 0;  // lines read
  uint32_t last = 0;      // its position when the sender was seen to have left: nothing is behind it by a whole ring
  bool left = false;
  uint32_t published = 0;  // what the sender was told
  Header before;           // addresses of the packet before
  Mappings mappings;
};

class ShmPort final : public Port {
 public:
  ShmPort(std::shared_ptr<Wire> wire, Shared::Joined joined, const uint8_t mac[6], Arena* arena)
      : wire_(std::move(wire)),
        shared_(std::move(joined.shared)),
        file_(shared_->file()),
        index_(joined.port),
        life_(joined.life),
        record_(file_.header.port[index_]),
        arena_(arena),
        bell_(record_.bell, true) {
    std::memcpy(mac_, mac, 6);
    seen_.store(record_.changes.load(std::memory_order_acquire) - 1, std::memory_order_relaxed);
  }
  ~ShmPort() override { leave(); }

  void leave() override;
  bool send(const Header& header, const Span* payload, size_t spans) override;
  unsigned receive(Sink& sink, unsigned budget, uint32_t most) override;
  bool pending() const override;
  uint32_t largest(uint32_t mtu) const override { return max_packet / mtu * mtu; }
  bool recall(const void* begin, size_t bytes) override;
  bool blocked() const override { return blocked_; }
  Bell* bell() override { return &bell_; }
  Counts counts() const override { return counts_; }

 private:
  struct BounceUse {  // payload in this port's bounce memory, oldest first
    Life life;
    unsigned port;
    uint32_t end;
    uint32_t bytes;
  };

  Out* find(const uint8_t mac[6]);
  bool flood(const Header& header, const Span* payload, size_t spans);
  bool refer(const Span* payload, size_t spans, Reference* references, size_t& count);
  uint8_t* bounce(uint32_t bytes, uint32_t& taken);
  void free_bounces();
  bool send_inline(Out& out, const Header& header, const Span* payload, size_t spans);
  bool send_big(Out& out, const Header& header, const Span* payload, size_t spans);
  static int place(Out& out, size_t bytes);
  static Writer start(Out& out, int at, const Header& header);
  static uint16_t put_extras(Out& out, const Header& header, Writer& writer);
  void publish(Out& out, int at, const Writer& writer, Kind kind, uint16_t extras, const Header& header);
  static bool room(Out& out, unsigned lines);
  static void zero(Out& out, uint32_t end);
  bool full(Out& out);
  void forget(Out& out);
  bool lose() {
    blocked_ = false;
    ++counts_.dropped;
    return true;
  }
  bool adopt();
  // Bounds what is still read of a sender that has left, whatever it wrote.
  static void note_left(In& in) {
    if (in.left || in.peer->life.load(std::memory_order_acquire) == in.life) return;
    in.left = true;
    in.last = in.position + ring_lines;
  }
  unsigned empty(unsigned slot, Sink& sink, unsigned budget, uint32_t most);
  void consume(In& in, uint32_t lines, bool tell);
  void tell(const std::string& why);

  const std::shared_ptr<Wire> wire_;
  const std::shared_ptr<Shared> shared_;
  File& file_;
  const unsigned index_;
  const Life life_;
  PortRecord& record_;
  Arena* const arena_;
  Bell bell_;
  uint8_t mac_[6];
  std::atomic<bool> left_{false};
  bool blocked_ = false;
  Counts counts_;

  // Sending.
  struct Known {
    uint64_t mac = ~uint64_t{0};
    Out* out = nullptr;
  };
  std::array<Known, 16> known_;
  std::array<std::unique_ptr<Out>, max_ports> outs_;
  bool bounce_ready_ = false;
  uint64_t bounce_head_ = 0, bounce_tail_ = 0;
  std::deque<BounceUse> bounces_;

  // Receiving. What pending() reads is atomic.
  std::atomic<uint32_t> seen_;  // of record_.changes
  uint32_t adopted_[max_ports] = {};
  std::array<std::unique_ptr<In>, max_ports> ins_;
  std::atomic<unsigned> count_{0};  // of ins_, without gaps
  std::array<std::atomic<const std::atomic<uint64_t>*>, max_ports> next_{};
  unsigned turn_ = 0;
};

class ShmWire final : public Wire {
 public:
  explicit ShmWire(std::string name) : name_(std::move(name)) {}
  std::unique_ptr<Port> attach(const uint8_t mac[6], Owner*, Arena* arena) override {
    return std::make_unique<ShmPort>(shared_from_this(), Shared::join(name_, mac), mac, arena);
  }
  std::string name() const override { return "shm:" + name_; }

 private:
  const std::string name_;
};

void ShmPort::leave() {
  if (left_.exchange(true)) return;
  // A receiver that is stopped in the middle of a packet may find other bytes there later, as it has this process's
  // memory mapped: it is not waited for without end.
  const auto until = std::chrono::steady_clock::now() + leave_within;
  while (!recall(nullptr, SIZE_MAX) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  shared_->leave(index_);
  for (auto& out : outs_) out.reset();
  for (auto& known : known_) known = {};
  count_.store(0, std::memory_order_relaxed);
  for (auto& in : ins_) in.reset();
}

void ShmPort::tell(const std::string& why) {
  if (!why.empty()) std::fprintf(stderr, "userdma: %s\n", why.c_str());
}

// ---- sending

Out* ShmPort::find(const uint8_t mac[6]) {
  uint64_t key = mac_number(mac);
  Known& known = known_[(key ^ key >> 24 ^ key >> 40) % known_.size()];
  if (known.mac == key && known.out->peer->life.load(std::memory_order_relaxed) == known.out->life) [[likely]]
    return known.out;
  int port = shared_->find(mac);
  if (port < 0) return nullptr;
  auto place = static_cast<unsigned>(port);
  PortRecord& peer = file_.header.port[place];
  Life life = peer.life.load(std::memory_order_acquire);
  if (!life) return nullptr;
  if (outs_[place] && outs_[place]->life != life) forget(*outs_[place]);
  if (!outs_[place]) {
    std::string why;
    int ring = shared_->open_ring(index_, place, life, why);
    tell(why);
    if (ring < 0) return nullptr;
    auto index = static_cast<unsigned>(ring);
    outs_[place] = std::make_unique<Out>();
    Out& out = *outs_[place];
    out.life = life;
    out.port = place;
    out.index = index;
    out.peer = &peer;
    out.record = &file_.header.ring[index];
    out.ring = &file_.ring[index];
  }
  known = {key, outs_[place].get()};
  return known.out;
}

void ShmPort::forget(Out& out) {
  for (auto& known : known_)
    if (known.out == &out) known = {};
  shared_->leave_ring(out.index);
  outs_[out.port].reset();
}

// Room for `lines` more, and for the zeroed words ahead of them.
bool ShmPort::room(Out& out, unsigned lines) {
  lines += zero_ahead + zero_at_once;
  if (ring_lines - (out.head - out.consumed) > lines) [[likely]]
    return true;
  out.consumed = out.ring->consumed.load(std::memory_order_acquire);
  return ring_lines - (out.head - out.consumed) > lines;
}

// The words behind `end` lines are zero before the packet that ends there is seen.
inline void ShmPort::zero(Out& out, uint32_t end) {
  if (static_cast<int32_t>(out.zeroed - end) >= static_cast<int32_t>(zero_ahead)) [[likely]]
    return;
  if (static_cast<int32_t>(out.zeroed - end) < 0) out.zeroed = end;
  const uint32_t to = end + zero_ahead + zero_at_once;
  for (; out.zeroed != to; ++out.zeroed)
    out.ring->line[out.zeroed % ring_lines].first.store(0, std::memory_order_relaxed);
}

// A send found no room. True: and there will be none, the peer is dead.
bool ShmPort::full(Out& out) {
  blocked_ = true;
  auto now = std::chrono::steady_clock::now();
  if (now - out.looked < look_after) return false;
  out.looked = now;
  if (shared_->alive(out.port, out.life)) return false;
  forget(out);
  return true;
}

// False: the payload does not lie in memory that a peer can open.
bool ShmPort::refer(const Span* payload, size_t spans, Reference* references, size_t& count) {
  if (!arena_ || spans > max_references) return false;
  count = 0;
  for (size_t i = 0; i < spans; ++i) {
    if (!payload[i].bytes) continue;
    const Segment* segment = arena_->find(payload[i].at);
    if (!segment) return false;
    auto offset = static_cast<uint64_t>(payload[i].at - segment->base);
    if (payload[i].bytes > segment->size - offset || payload[i].bytes > UINT32_MAX) return false;
    references[count++] = {segment->offset + offset,
                           static_cast<uint32_t>(payload[i].bytes),
                           segment->id,
                           segment->fd,
                           0,
                           segment->device,
                           segment->inode};
  }
  return true;
}

void ShmPort::free_bounces() {
  while (!bounces_.empty()) {
    const BounceUse& use = bounces_.front();
    Out* out = outs_[use.port].get();
    if (out && out->life == use.life && out->peer->life.load(std::memory_order_relaxed) == use.life &&
        !out->done(use.end))
      return;
    bounce_tail_ += use.bytes;
    bounces_.pop_front();
  }
}

// Memory for `bytes` of payload that follow one another; null: none now. `taken`: with what was skipped at the end.
uint8_t* ShmPort::bounce(uint32_t bytes, uint32_t& taken) {
  free_bounces();
  uint32_t size = (bytes + 63) & ~63u;
  uint64_t at = bounce_head_ % bounce_bytes;
  uint32_t skip = at + size > bounce_bytes ? static_cast<uint32_t>(bounce_bytes - at) : 0;
  if (bounce_head_ + skip + size - bounce_tail_ > bounce_bytes) return nullptr;
  taken = skip + size;
  return file_.bounce[index_].at + (skip ? 0 : at);
}

bool ShmPort::send(const Header& header, const Span* payload, size_t spans) {
  if (left_.load(std::memory_order_relaxed)) [[unlikely]]
    return true;
  Out* out = find(header.dmac);
  if (!out) [[unlikely]]
    return header.for_many() ? flood(header, payload, spans) : lose();
  if (header.payload > max_copied) return send_big(*out, header, payload, spans);
  return send_inline(*out, header, payload, spans);
}

// To every other port.
bool ShmPort::flood(const Header& header, const Span* payload, size_t spans) {
  for (unsigned port = 0; port < max_ports; ++port) {
    const PortRecord& peer = file_.header.port[port];
    if (port == index_ || !peer.life.load(std::memory_order_acquire)) continue;
    uint8_t mac[6];
    std::memcpy(mac, peer.mac, 6);
    Out* out = find(mac);
    const bool sent = out && (header.payload > max_copied ? send_big(*out, header, payload, spans)
                                                          : send_inline(*out, header, payload, spans));
    if (!sent) ++counts_.dropped;
  }
  blocked_ = false;
  return true;
}

inline bool ShmPort::send_inline(Out& out, const Header& header, const Span* payload, size_t spans) {
  const int at = place(out, fixed_bytes + extras_bytes + header.payload);
  if (at < 0) [[unlikely]]
    return full(out) && lose();
  Writer writer = start(out, at, header);
  const uint16_t extras = put_extras(out, header, writer);
  for (size_t i = 0; i < spans; ++i) {
    copy_few(writer.at, payload[i].at, payload[i].bytes);
    writer.at += payload[i].bytes;
  }
  publish(out, at, writer, Kind::Inline, extras, header);
  return true;
}

// A payload that is read where it lies, if the receiver can; else in this port's bounce memory or in the ring.
bool ShmPort::send_big(Out& out, const Header& header, const Span* payload, size_t spans) {
  Reference references[max_references];
  size_t count = 0;
  uint8_t* bounced = nullptr;
  uint32_t bounce_taken = 0;
  const bool readable = !(out.record->flags.load(std::memory_order_relaxed) & Refused);
  if (!readable || header.copy || !refer(payload, spans, references, count)) {
    if (header.payload <= max_inline) return send_inline(out, header, payload, spans);
    if (header.payload > max_packet) return lose();
    if (!bounce_ready_) {
      std::string why;
      bounce_ready_ = shared_->reserve_bounce(index_, why);
      tell(why);
      if (!bounce_ready_) return lose();
    }
    bounced = bounce(header.payload, bounce_taken);
    if (!bounced) return full(out) && lose();
    auto offset = static_cast<uint64_t>(bounced - reinterpret_cast<uint8_t*>(&file_));
    references[0] = {offset, header.payload, 0, -1, 0, 0, 0};
    count = 1;
  }

  const int at = place(out, fixed_bytes + sizeof(Claim) + extras_bytes + count * sizeof(Reference));
  if (at < 0) return full(out) && lose();
  Writer writer = start(out, at, header);
  auto* claim = reinterpret_cast<Claim*>(writer.at);
  claim->state.store(Claim::Published, std::memory_order_relaxed);
  claim->references = static_cast<uint32_t>(count);
  writer.at += sizeof(Claim);
  const uint16_t extras = put_extras(out, header, writer);
  writer.put(references, count * sizeof(Reference));

  Referring& referring = out.referring.emplace_back();
  referring.claim = claim;
  referring.spans = 0;
  if (bounced) {
    for (size_t i = 0; i < spans; ++i) {
      if (payload[i].bytes) std::memcpy(bounced, payload[i].at, payload[i].bytes);
      bounced += payload[i].bytes;
    }
  } else {
    for (size_t i = 0; i < spans; ++i) referring.span[referring.spans++] = payload[i];
  }
  publish(out, at, writer, Kind::Reference, extras, header);
  referring.end = out.head;
  if (referring.spans == 0) {
    bounces_.push_back({out.life, out.port, out.head, bounce_taken});
    bounce_head_ += bounce_taken;
  }
  while (!out.referring.empty() && out.done(out.referring.front().end)) out.referring.pop_front();
  return true;
}

// The line where a packet of at most `bytes` begins; -1: no room.
inline int ShmPort::place(Out& out, size_t bytes) {
  const unsigned most = lines_for(bytes);
  const unsigned at = out.head % ring_lines;
  if (at + most <= ring_lines) [[likely]]
    return room(out, most) ? static_cast<int>(at) : -1;
  // It would cross the ring's end: it goes to the beginning.
  if (!room(out, most + ring_lines - at)) return -1;
  zero(out, out.head + (ring_lines - at));
  First first{1, Kind::Skip, 0, 0, 0, 0, 0};
  out.ring->line[at].first.store(std::bit_cast<uint64_t>(first), std::memory_order_release);
  out.head += ring_lines - at;
  return 0;
}

inline Writer ShmPort::start(Out& out, int at, const Header& header) {
  Writer writer{reinterpret_cast<uint8_t*>(&out.ring->line[at]) + sizeof(First)};
  writer.put(Core{header.dest_qp, header.psn, header.payload, header.udp_source, header.pkey});
  return writer;
}

inline uint16_t ShmPort::put_extras(Out& out, const Header& header, Writer& writer) {
  uint16_t extras = 0;
  if (!out.addresses.same(header)) [[unlikely]] {
    extras |= shm::Addresses;
    out.addresses.set(header);
    writer.put(header.smac);
    writer.put(header.sgid);
    writer.put(header.dgid);
  }
  if (header.immediate) {
    extras |= Immediate;
    writer.put(header.immediate);
  }
  if (header.va | header.rkey | header.dma_length) {
    extras |= Remote;
    writer.put(header.va);
    writer.put(header.rkey);
    writer.put(header.dma_length);
  }
  if (header.swap_or_add | header.compare) {
    extras |= Atomic;
    writer.put(header.swap_or_add);
    writer.put(header.compare);
  }
  if (header.msn | header.syndrome) {
    extras |= Answer;
    writer.put(header.msn);
    writer.put(uint32_t{header.syndrome});
  }
  if (header.qkey | header.src_qp) {
    extras |= Datagram;
    writer.put(header.qkey);
    writer.put(header.src_qp);
  }
  if (header.psns != 1) {
    extras |= Psns;
    writer.put(header.psns);
  }
  if (header.reserved[0] | header.reserved[1]) {
    extras |= Reserved;
    writer.put(header.reserved);
    writer.put(uint16_t{0});
  }
  return extras;
}

// A First, by shifts: see mac_number().
inline uint64_t first_word(unsigned lines, Kind kind, uint16_t extras, const Header& header) {
  static_assert(std::endian::native == std::endian::little);
  return lines | uint64_t{static_cast<uint8_t>(kind)} << 8 | uint64_t{extras} << 16 | uint64_t{header.opcode} << 32 |
         uint64_t{header.flags} << 40 | uint64_t{header.hop_limit} << 48 | uint64_t{header.traffic_class} << 56;
}

// The packet is complete, and seen from here on.
inline void ShmPort::publish(Out& out, int at, const Writer& writer, Kind kind, uint16_t extras, const Header& header) {
  Line* line = &out.ring->line[at];
  const unsigned lines = lines_for(static_cast<size_t>(writer.at - reinterpret_cast<uint8_t*>(line)));
  out.head += lines;
  zero(out, out.head);
  line->first.store(first_word(lines, kind, extras, header), std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order: the bell is looked at last
  // The line of the packet after the next comes to this core before it is needed.
  __builtin_prefetch(&out.ring->line[(out.head + 1) % ring_lines], 1);
  if (out.peer->bell.load(std::memory_order_relaxed)) [[unlikely]]
    Bell(out.peer->bell, true).ring();
  blocked_ = false;
  ++counts_.sent;
}

bool ShmPort::recall(const void* begin, size_t bytes) {
  auto* from = static_cast<const uint8_t*>(begin);
  auto* to = bytes == SIZE_MAX ? reinterpret_cast<const uint8_t*>(UINTPTR_MAX) : from + bytes;
  bool free = true;
  for (auto& out : outs_) {
    if (!out) continue;
    while (!out->referring.empty() && out->done(out->referring.front().end)) out->referring.pop_front();
    for (Referring& referring : out->referring) {
      bool touches = std::any_of(referring.span, referring.span + referring.spans,
                                 [&](const Span& span) { return span.at < to && span.at + span.bytes > from; });
      // What lies in bounce memory goes too when this port leaves.
      if (!touches && !(bytes == SIZE_MAX && referring.spans == 0)) continue;
      uint32_t state = Claim::Published;
      if (referring.claim->state.compare_exchange_strong(state, Claim::Recalled, std::memory_order_acq_rel)) {
        ++counts_.recalled;
        continue;
      }
      if (state != Claim::Claimed || out->done(referring.end)) continue;
      // The receiver is copying. It cannot stop but by dying.
      auto now = std::chrono::steady_clock::now();
      if (now - out->looked >= look_after) {
        out->looked = now;
        if (!shared_->alive(out->port, out->life)) continue;
      }
      free = false;
    }
  }
  return free;
}

// ---- receiving

#if defined(__SANITIZE_THREAD__)
// Another thread's look may come late, at a line that has been read and is being written again. It tells nothing then,
// and does no harm.
__attribute__((no_sanitize("thread")))
#endif
bool ShmPort::pending() const {
  if (record_.changes.load(std::memory_order_relaxed) != seen_.load(std::memory_order_relaxed)) [[unlikely]]
    return !left_.load(std::memory_order_relaxed);
  for (unsigned i = 0, count = count_.load(std::memory_order_relaxed); i < count; ++i) {
    const std::atomic<uint64_t>* next = next_[i].load(std::memory_order_relaxed);
    if (next && __atomic_load_n(reinterpret_cast<const uint64_t*>(next), __ATOMIC_ACQUIRE)) return true;
  }
  return false;
}

// Other senders came or went: what the rings held has been read.
bool ShmPort::adopt() {
  uint32_t before[max_ports];
  std::memcpy(before, adopted_, sizeof before);
  bool again = shared_->adopt(index_, life_, adopted_);
  unsigned count = count_.load(std::memory_order_relaxed);
  for (unsigned sender = 0; sender < max_ports; ++sender) {
    if (before[sender] == adopted_[sender]) continue;
    if (before[sender]) {
      RingRecord* record = &file_.header.ring[before[sender] - 1];
      unsigned slot = 0;
      while (slot < count && ins_[slot]->record != record) ++slot;
      if (slot < count) {
        --count;
        std::swap(ins_[slot], ins_[count]);
        next_[slot].store(next_[count].load(std::memory_order_relaxed), std::memory_order_relaxed);
        ins_[count].reset();
        count_.store(count, std::memory_order_relaxed);
      }
    }
    if (adopted_[sender]) {
      const PortRecord& peer = file_.header.port[sender];
      auto in = std::make_unique<In>();
      in->ring = &file_.ring[adopted_[sender] - 1];
      in->record = &file_.header.ring[adopted_[sender] - 1];
      in->peer = &peer;
      in->life = in->record->sender;
      in->pid = peer.pid;
      in->before.psns = 1;
      std::memcpy(in->before.dmac, mac_, 6);
      // Whether this process may open that one's descriptors at all: the wire's own file is one that both know.
      char path[64];
      struct stat there{}, here{};
      std::snprintf(path, sizeof path, "/proc/%u/fd/%d", peer.pid, peer.file);
      if (::stat(path, &there) != 0 || ::fstat(record_.file, &here) != 0 || there.st_ino != here.st_ino ||
          there.st_dev != here.st_dev)
        in->record->flags.fetch_or(Refused, std::memory_order_relaxed);
      next_[count].store(&in->ring->line[0].first, std::memory_order_relaxed);
      ins_[count] = std::move(in);
      count_.store(++count, std::memory_order_release);
    }
  }
  return again;
}

unsigned ShmPort::receive(Sink& sink, unsigned budget, uint32_t most) {
  if (left_.load(std::memory_order_relaxed)) [[unlikely]]
    return 0;
  uint32_t changes = record_.changes.load(std::memory_order_acquire);
  unsigned taken = 0;
  unsigned count = count_.load(std::memory_order_relaxed);
  if (changes != seen_.load(std::memory_order_relaxed)) [[unlikely]]
    for (unsigned slot = 0; slot < count; ++slot) note_left(*ins_[slot]);
  for (unsigned i = 0; i < count && taken < budget; ++i) {
    unsigned slot = count == 1 ? 0 : (turn_ + i) % count;
    taken += empty(slot, sink, budget - taken, most);
  }
  ++turn_;
  // A sender that left has left its packets behind: they are read before its ring is given back.
  if (changes != seen_.load(std::memory_order_relaxed) && taken < budget) [[unlikely]] {
    seen_.store(adopt() ? changes - 1 : changes, std::memory_order_relaxed);
    count = count_.load(std::memory_order_relaxed);
    for (unsigned slot = 0; slot < count && taken < budget; ++slot) {
      note_left(*ins_[slot]);
      taken += empty(slot, sink, budget - taken, most);
    }
  }
  return taken;
}

void ShmPort::consume(In& in, uint32_t lines, bool tell) {
  in.position += lines;
  if (tell || in.position - in.published >= ring_lines / 8) {
    in.ring->consumed.store(in.position, std::memory_order_release);
    in.published = in.position;
  }
}

unsigned ShmPort::empty(unsigned slot, Sink& sink, unsigned budget, uint32_t most) {
  In& in = *ins_[slot];
  if (!in.ring) [[unlikely]]
    return 0;
  unsigned taken = 0;
  while (taken < budget) {
    unsigned at = in.position % ring_lines;
    Line* line = &in.ring->line[at];
    uint64_t word = line->first.load(std::memory_order_acquire);
    if (!word || (in.left && static_cast<int32_t>(in.position - in.last) >= 0)) break;
    First first = std::bit_cast<First>(word);
    uint32_t lines = first.kind == Kind::Skip ? ring_lines - at : first.lines;
    auto* base = reinterpret_cast<uint8_t*>(line);
    bool refers = false;
    bool sound = lines > 0 && at + lines <= ring_lines;
    if (sound && first.kind != Kind::Skip) {
      Reader reader{base + sizeof(First), base + lines * line_bytes};
      Core core{};
      reader.get(core);
      if (core.payload > most) break;
      Claim* claim = nullptr;
      uint32_t count = 0;
      if (first.kind == Kind::Reference) {
        claim = reinterpret_cast<Claim*>(base + fixed_bytes);
        reader.at += sizeof(Claim);
        count = claim->references;
        refers = true;
      }
      Header header = in.before;
      header.opcode = first.opcode;
      header.flags = first.flags;
      header.hop_limit = first.hop_limit;
      header.traffic_class = first.traffic_class;
      header.dest_qp = core.dest_qp;
      header.psn = core.psn;
      header.payload = core.payload;
      header.udp_source = core.udp_source;
      header.pkey = core.pkey;
      const uint16_t extras = first.extras;
      if (extras & Addresses) [[unlikely]] {
        reader.get(header.smac);
        reader.get(header.sgid);
        reader.get(header.dgid);
        std::memcpy(in.before.smac, header.smac, 6);
        std::memcpy(in.before.sgid, header.sgid, 16);
        std::memcpy(in.before.dgid, header.dgid, 16);
      }
      if (extras & Immediate) reader.get(header.immediate);
      if (extras & Remote) {
        reader.get(header.va);
        reader.get(header.rkey);
        reader.get(header.dma_length);
      }
      if (extras & Atomic) {
        reader.get(header.swap_or_add);
        reader.get(header.compare);
      }
      if (extras & Answer) {
        uint32_t syndrome = 0;
        reader.get(header.msn);
        reader.get(syndrome);
        header.syndrome = static_cast<uint8_t>(syndrome);
      }
      if (extras & Datagram) {
        reader.get(header.qkey);
        reader.get(header.src_qp);
      }
      if (extras & Psns) reader.get(header.psns);
      if (extras & Reserved) {
        uint16_t zero;
        reader.get(header.reserved);
        reader.get(zero);
      }
      if (first.kind == Kind::Inline) {
        Span span{const_cast<uint8_t*>(reader.at), header.payload};
        sound = reader.ok && header.payload <= static_cast<size_t>(reader.end - reader.at);
        if (sound) {
          sink.packet(header, &span, header.payload ? 1 : 0);
          ++taken;
          ++counts_.received;
        }
      } else {
        Reference references[max_references];
        Span span[max_references];
        uint64_t bytes = 0;
        sound = first.kind == Kind::Reference && reader.ok && count > 0 && count <= max_references;
        if (sound) reader.get(references, count * sizeof(Reference));
        for (uint32_t i = 0; sound && i < count; ++i) bytes += references[i].bytes;
        sound = sound && reader.ok && bytes == header.payload;
        uint32_t state = Claim::Published;
        if (sound && claim->state.compare_exchange_strong(state, Claim::Claimed, std::memory_order_acq_rel)) {
          bool reached = true;
          in.mappings.reserve(count);
          for (uint32_t i = 0; reached && i < count; ++i) {
            const Reference& reference = references[i];
            const uint8_t* memory = nullptr;
            if (reference.segment == 0) {
              if (reference.offset >= offsetof(File, bounce) && reference.offset <= sizeof(File) &&
                  reference.bytes <= sizeof(File) - reference.offset)
                memory = reinterpret_cast<uint8_t*>(&file_) + reference.offset;
            } else {
              auto failure = Mappings::Failure::None;
              memory = in.mappings.reach(in.pid, reference, failure);
              if (failure == Mappings::Failure::Refused) in.record->flags.fetch_or(Refused, std::memory_order_relaxed);
            }
            reached = memory != nullptr;
            span[i] = {const_cast<uint8_t*>(memory), reference.bytes};
          }
          if (reached) {
            sink.packet(header, span, count);
            ++counts_.received;
          } else {
            ++counts_.dropped;
          }
          ++taken;
        }
      }
    }
    if (!sound) [[unlikely]] {
      // Only a process that does not keep to the layout writes this. Nothing more is read from it.
      static const std::atomic<uint64_t> nothing{0};
      next_[slot].store(&nothing, std::memory_order_relaxed);
      in.ring = nullptr;
      ++counts_.dropped;
      break;
    }
    consume(in, lines, refers);
    __builtin_prefetch(&in.ring->line[(in.position + look_ahead) % ring_lines]);
    next_[slot].store(&in.ring->line[in.position % ring_lines].first, std::memory_order_relaxed);
  }
  return taken;
}

}  // namespace

std::shared_ptr<Wire> make_shm(const std::string& name) {
  bool good = !name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (!good)
    throw host::Error("no wire can be named \"shm:" + name + "\": 1 to 100 letters, digits, \"-\", \"_\" and \".\"");
  return std::make_shared<ShmWire>(name);
}

}  // namespace userdma::soft::wire
