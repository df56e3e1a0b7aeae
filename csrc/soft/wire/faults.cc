#include "soft/wire/faults.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <stdexcept>
#include <utility>

#include "soft/wire/codec.h"
#include "soft/wire/random.h"

namespace userdma::soft::wire {
namespace {

constexpr size_t max_held = 1024;   // packets of a port that wait; then it refuses more
constexpr uint32_t max_mtu = 4096;  // of RoCE
constexpr unsigned max_flips = 4;

}  // namespace

class FaultyPort final : public Port {
 public:
  // `number`: how many ports its wire had before.
  FaultyPort(std::shared_ptr<FaultyWire> wire, std::unique_ptr<Port> inner, uint64_t number)
      : wire_(std::move(wire)),
        inner_(std::move(inner)),
        random_(wire_->faults_.seed ^ (number + 1) * 0x9e3779b97f4a7c15) {}

  void leave() override {
    inner_->leave();
    waiting_.clear();
    overtaken_.clear();
    due_.store(never, std::memory_order_relaxed);
  }
  bool send(const Header& header, const Span* payload, size_t spans) override;
  unsigned receive(Sink& sink, unsigned budget, uint32_t most) override {
    flush();
    return inner_->receive(sink, budget, most);
  }
  bool pending() const override {
    if (inner_->pending()) return true;
    uint64_t due = due_.load(std::memory_order_relaxed);
    return due != never && !stuck_.load(std::memory_order_relaxed) && due <= wire_->clock_->now();
  }
  uint32_t largest(uint32_t mtu) const override { return mtu; }
  // What waits here is a copy, and the wire below copies too.
  bool recall(const void*, size_t) override { return true; }
  bool blocked() const override { return full_ || inner_->blocked(); }
  uint64_t next_deadline() const override {
    return stuck_.load(std::memory_order_relaxed) ? never : due_.load(std::memory_order_relaxed);
  }
  Helped help(bool brief) override { return inner_->help(brief); }
  Bell* bell() override { return inner_->bell(); }
  Counts counts() const override {
    Counts counts = inner_->counts();
    counts.lost += own_.lost;
    counts.duplicated += own_.duplicated;
    counts.reordered += own_.reordered;
    counts.delayed += own_.delayed;
    counts.corrupted += own_.corrupted;
    counts.icrc_errors += own_.icrc_errors;
    return counts;
  }

 private:
  struct Held {
    Header header;
    std::vector<uint8_t> payload;
    bool captured;      // was shown already: as the corrupted frame it was
    unsigned overtake;  // packets that shall overtake it
    uint64_t due;       // and until when it waits for them
  };

  void one(const Header& header, const Span* payload, size_t spans);
  void flip(uint8_t* frame, size_t bytes, uint64_t draw);
  bool pass(const Header& header, const Span* payload, size_t spans, bool captured);
  void wait(Held&& held, uint64_t due);
  void flush();
  void update_due();

  const std::shared_ptr<FaultyWire> wire_;
  const std::unique_ptr<Port> inner_;
  Random random_;
  Counts own_;
  std::map<std::pair<uint64_t, uint64_t>, Held> waiting_;  // by when it is due, and then by the order of sending
  std::list<Held> overtaken_;
  uint64_t order_ = 0;
  bool full_ = false;
  std::atomic<uint64_t> due_{never};
  std::atomic<bool> stuck_{false};  // something is due, and the wire below has no room
};

FaultyWire::FaultyWire(std::shared_ptr<Wire> inner, const Faults& faults, std::shared_ptr<Clock> clock)
    : inner_(std::move(inner)), faults_(faults), clock_(std::move(clock)) {
  const std::pair<const char*, double> probabilities[] = {{"loss", faults.loss},
                                                          {"duplicate", faults.duplicate},
                                                          {"reorder", faults.reorder},
                                                          {"corrupt", faults.corrupt},
                                                          {"delay", faults.delay}};
  for (const auto& [name, p] : probabilities)
    if (!(p >= 0 && p <= 1))
      throw std::invalid_argument(std::string(name) + " must be a probability from 0 to 1, not " + std::to_string(p));
  if (faults.reorder_depth == 0) throw std::invalid_argument("reorder_depth is 0");
  if (!inner_ || !clock_) throw std::invalid_argument("a wire with faults needs a wire and a clock");
}

std::unique_ptr<Port> FaultyWire::attach(const uint8_t mac[6], Owner* owner, Arena*) {
  auto self = std::static_pointer_cast<FaultyWire>(shared_from_this());
  auto inner = inner_->attach(mac, owner, nullptr);
  return std::make_unique<FaultyPort>(std::move(self), std::move(inner), attached_.fetch_add(1));
}

void FaultyWire::capture(size_t limit) {
  check_made_here("the wire " + name());
  std::lock_guard guard(mutex_);
  limit_ = limit;
  capturing_.store(limit != 0, std::memory_order_relaxed);
}

std::vector<std::vector<uint8_t>> FaultyWire::take() {
  check_made_here("the wire " + name());
  std::lock_guard guard(mutex_);
  return std::exchange(frames_, {});
}

void FaultyWire::keep(const uint8_t* frame, size_t bytes) {
  std::lock_guard guard(mutex_);
  if (frames_.size() < limit_) frames_.emplace_back(frame, frame + bytes);
}

bool FaultyPort::send(const Header& header, const Span* payload, size_t spans) {
  flush();
  if (waiting_.size() + overtaken_.size() >= max_held) {
    full_ = true;
    return false;
  }
  full_ = false;
  const Faults& faults = wire_->faults_;
  const bool lost = random_.chance(faults.loss);
  const bool twice = random_.chance(faults.duplicate);
  if (lost) {
    ++own_.lost;
  } else {
    one(header, payload, spans);
    if (twice) {
      ++own_.duplicated;
      one(header, payload, spans);
    }
  }
  // This packet has overtaken those before it.
  uint64_t now = wire_->clock_->now();
  for (auto held = overtaken_.begin(); held != overtaken_.end();) {
    auto next = std::next(held);
    // A packet that was put here by this very call has still all of them to come.
    if (held->overtake-- == 0 || held->due <= now) {
      wait(std::move(*held), now);
      overtaken_.erase(held);
    }
    held = next;
  }
  flush();
  return true;
}

void FaultyPort::flip(uint8_t* frame, size_t bytes, uint64_t draw) {
  for (unsigned flips = 1 + static_cast<unsigned>(draw % max_flips); flips; --flips) {
    uint64_t bit = random_.below(bytes * 8);
    frame[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
}

// One copy of a packet, on its way.
void FaultyPort::one(const Header& header, const Span* payload, size_t spans) {
  const Faults& faults = wire_->faults_;
  const bool corrupt = random_.chance(faults.corrupt);
  const bool reorder = random_.chance(faults.reorder);
  const bool delay = random_.chance(faults.delay);
  const uint64_t draw = random_.next();

  const Header* now_header = &header;
  Header changed;
  Span changed_payload;
  uint8_t frame[max_overhead + max_mtu];
  bool captured = false;
  std::vector<uint8_t> changed_frame;
  if (corrupt && header.is_frame()) {
    ++own_.corrupted;
    for (size_t i = 0; i < spans; ++i)
      changed_frame.insert(changed_frame.end(), payload[i].at, payload[i].at + payload[i].bytes);
    flip(changed_frame.data(), changed_frame.size(), draw);
    changed = header;
    std::memcpy(changed.dmac, changed_frame.data(), 6);
    changed_payload = {changed_frame.data(), changed_frame.size()};
    now_header = &changed;
    payload = &changed_payload;
    spans = 1;
  } else if (corrupt) {
    ++own_.corrupted;
    size_t bytes = encode(header, payload, spans, frame, sizeof frame);
    if (!bytes) return;
    flip(frame, bytes, draw);
    if (wire_->capturing_.load(std::memory_order_relaxed)) wire_->keep(frame, bytes);
    Malformed malformed = decode(frame, bytes, changed, changed_payload);
    if (malformed != Malformed::No) {
      own_.icrc_errors += malformed == Malformed::Icrc;
      return;
    }
    // The bits were of a field that the ICRC leaves out, as routers change it.
    captured = true;
    now_header = &changed;
    payload = &changed_payload;
    spans = 1;
  }

  if (!reorder && !delay && waiting_.empty() && pass(*now_header, payload, spans, captured)) return;
  uint64_t now = wire_->clock_->now();
  Held held{*now_header, {}, captured, 0, 0};
  for (size_t i = 0; i < spans; ++i)
    held.payload.insert(held.payload.end(), payload[i].at, payload[i].at + payload[i].bytes);
  if (delay) {
    ++own_.delayed;
    wait(std::move(held), now + 1 + (draw >> 8) % std::max<uint64_t>(faults.delay_ns, 1));
  } else if (reorder) {
    ++own_.reordered;
    held.overtake = 1 + static_cast<unsigned>((draw >> 4) % faults.reorder_depth);
    held.due = now + faults.delay_ns;
    overtaken_.push_back(std::move(held));
    update_due();
  } else {
    wait(std::move(held), now);
  }
}

bool FaultyPort::pass(const Header& header, const Span* payload, size_t spans, bool captured) {
  if (!inner_->send(header, payload, spans)) return false;
  if (!captured && wire_->capturing_.load(std::memory_order_relaxed)) {
    if (header.is_frame()) {
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i < spans; ++i) bytes.insert(bytes.end(), payload[i].at, payload[i].at + payload[i].bytes);
      wire_->keep(bytes.data(), bytes.size());
      return true;
    }
    uint8_t frame[max_overhead + max_mtu];
    size_t bytes = encode(header, payload, spans, frame, sizeof frame);
    if (bytes) wire_->keep(frame, bytes);
  }
  return true;
}

void FaultyPort::wait(Held&& held, uint64_t due) {
  waiting_.emplace(std::pair{due, order_++}, std::move(held));
  update_due();
}

// Sends what is due.
void FaultyPort::flush() {
  if (due_.load(std::memory_order_relaxed) == never) return;
  uint64_t now = wire_->clock_->now();
  for (auto held = overtaken_.begin(); held != overtaken_.end();) {
    auto next = std::next(held);
    if (held->due <= now) {
      wait(std::move(*held), now);
      overtaken_.erase(held);
    }
    held = next;
  }
  stuck_.store(false, std::memory_order_relaxed);
  while (!waiting_.empty() && waiting_.begin()->first.first <= now) {
    Held& held = waiting_.begin()->second;
    Span span{held.payload.data(), held.payload.size()};
    if (!pass(held.header, &span, span.bytes ? 1 : 0, held.captured)) {
      stuck_.store(true, std::memory_order_relaxed);
      break;
    }
    waiting_.erase(waiting_.begin());
  }
  update_due();
}

void FaultyPort::update_due() {
  uint64_t due = waiting_.empty() ? never : waiting_.begin()->first.first;
  for (const Held& held : overtaken_) due = std::min(due, held.due);
  due_.store(due, std::memory_order_relaxed);
}

}  // namespace userdma::soft::wire
