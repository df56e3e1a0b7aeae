#include "driver/qp.h"

#include <stdexcept>

#include "host/text.h"

namespace userdma::driver {

using host::hex;

namespace {

// Empty polls between two looks at what a poll does not read: the other ring, events. On a soft function every empty
// poll runs its idle hook.
constexpr uint32_t kLookAround = 64;
// Looks around between two of a real function's, whose check of the machine is a read of its configuration space.
constexpr uint32_t kMachine = 64;

std::string vendor(uint8_t status) { return " (vendor status " + hex(status) + ")"; }

}  // namespace

void Qp::check_sizes(const Rings& rings, uint32_t send, uint32_t receive) {
  const uint32_t wanted[2] = {send, receive};
  for (Side side : {Side::Send, Side::Receive}) {
    int i = static_cast<int>(side);
    uint32_t entries = rings.entries[i];
    if (wanted[i] == 0 || wanted[i] >= entries)
      throw std::invalid_argument(std::string("a ") + name(side) + " ring of " + std::to_string(entries) +
                                  " slots takes 1 to " + std::to_string(entries - 1) + " entries, not " +
                                  std::to_string(wanted[i]));
  }
}

Qp::Qp(std::unique_ptr<Rings> rings, uint32_t send, uint32_t receive, bool immediate)
    : rings_(std::move(rings)),
      domain_(rings_->domain.get()),
      longest_(rings_->longest),
      immediate_(immediate),
      reload_(rings_->domain->idle().run != nullptr ? 1 : kLookAround) {
  check_sizes(*rings_, send, receive);
  for (Side side : {Side::Send, Side::Receive}) {
    int i = static_cast<int>(side);
    Ring& ring = ring_[i];
    ring.capacity = side == Side::Send ? send : receive;
    ring.mask = rings_->entries[i] - 1;
    ring.bytes = std::make_unique<uint32_t[]>(rings_->entries[i]);
    ring.countdown = reload_;
    if (immediate && side == Side::Receive) ring.immediates = std::make_unique<uint64_t[]>(rings_->entries[i]);
    rings_->start(side, ring.next);
  }
  rings_->domain->add(this);
  rings_->listen(this);
  if (!domain_->failure().empty()) fail(domain_->failure(), Cause::Own);
}

Qp::~Qp() {
  rings_->forget();
  rings_->domain->remove(this);
}

// ---- Posts ----

namespace {
constexpr const char* kElsewhere = " is another NIC's: a queue pair takes regions of its own NIC";
}

std::string Qp::refusal(Side side, const Region& region, uint64_t at, uint64_t n, const char* whose) const {
  if (dead_) return "queue pair " + hex(rings_->qpn) + " is " + why_dead_;
  if (!connected_) return "queue pair " + hex(rings_->qpn) + " is not connected: connect() it first";
  if (region.domain.get() != domain_) return std::string(whose) + kElsewhere;
  if (region.retired) return std::string(whose) + " is " + region.why;
  if (!region.holds(at, n))
    return std::to_string(n) + " bytes at " + std::to_string(at) + " do not lie in " + whose + " of " +
           std::to_string(region.bytes) + " bytes";
  if (n > longest_)
    return std::to_string(n) + " bytes are more than a message takes: " + std::to_string(longest_) + " at most";
  const Ring& ring = ring_[static_cast<int>(side)];
  if (ring.full())
    return std::string("no room in the ") + name(side) + " ring: " + std::to_string(ring.outstanding()) + " of " +
           std::to_string(ring.capacity) + " entries are posted and their completions not taken";
  return {};
}

std::string Qp::refusal_far(const Region& region, uint64_t at, uint64_t n) const {
  if (region.domain.get() != domain_) return std::string("the source region") + kElsewhere;
  if (region.retired) return "the source region is " + region.why;
  if (!region.holds(at, n))
    return std::to_string(n) + " bytes at " + std::to_string(at) + " do not lie in the source region of " +
           std::to_string(region.bytes) + " bytes";
  if (!local_) return "the peer of queue pair " + hex(rings_->qpn) + " is not a queue pair of its own NIC";
  return {};
}

// A pair that failed takes entries as before; they complete as flushed, and the NIC never sees them.
bool Qp::post_failed(Side side, const Region& region, uint64_t at, uint64_t n) {
  if (cause_ == Cause::None || !refusal(side, region, at, n).empty()) return false;
  Ring& ring = ring_[static_cast<int>(side)];
  ring.posted.store(ring.posted.own() + 1);
  return true;
}

// ---- Completions ----

bool Qp::absorb(Side side) {
  Ring& ring = ring_[static_cast<int>(side)];
  if (ring.ended) return false;
  Found found = rings_->absorb(side, ring.next);
  if (found.what == Found::What::Nothing) return false;
  apply(side, found);
  // Last, as a soft function's doorbell may let others call in. A failed pair's NIC needs to know nothing more.
  if (found.ring && cause_ == Cause::None) rings_->ring(side, ring.next);
  return true;
}

void Qp::absorb_all(Side side) {
  // No more than one pass: a NIC that writes on and on must not hold this call.
  for (uint64_t i = 0; i <= 2 * ring_[static_cast<int>(side)].mask && absorb(side); ++i) {
  }
}

void Qp::apply(Side side, const Found& found) {
  Ring& ring = ring_[static_cast<int>(side)];
  uint64_t done = ring.done.own();
  const uint64_t posted = ring.posted.own();
  // How many entries of the send ring, of which `index` is the first not completed.
  uint64_t more = (found.index - done) & ring.mask;
  switch (found.what) {
    case Found::What::Nothing:
    case Found::What::Skip:
      return;

    case Found::What::Done:
      if (more > posted - done) [[unlikely]]
        return unknown(side, "a completion of entries that were not posted");
      ring.done.store(done + more);
      return;

    case Found::What::Received: {
      if (done == posted || found.index != (done & ring.mask)) [[unlikely]]
        return unknown(side, "a completion of another entry than the oldest");
      if (found.has_immediate && !immediate_) [[unlikely]]
        return unknown(side, "a receive's of a message with immediate data");
      uint64_t slot = done & ring.mask;
      if (found.bytes > ring.bytes[slot]) [[unlikely]]
        return unknown(
            side, "a receive's of " + std::to_string(found.bytes) + " bytes into " + std::to_string(ring.bytes[slot]));
      ring.bytes[slot] = found.bytes;
      if (ring.immediates) [[unlikely]]
        ring.immediates[slot] = found.has_immediate ? (uint64_t{1} << 32 | found.immediate) : 0;
      ring.done.store(done + 1);
      return;
    }

    case Found::What::Failed: {
      if (side == Side::Send) {
        if (more == 0 || more > posted - done) return unknown(side, "an error of an entry that was not posted");
        done += more - 1;
        ring.done.store(done);
      } else if (done == posted || found.index != (done & ring.mask)) {
        return unknown(side, "an error of another entry than the oldest");
      }
      ring.failed_at = done;
      ring.error = found.error;
      ring.status = found.status;
      ring.vendor = found.vendor;
      ring.ended = true;
      return fail(std::string(name(side)) + " entry " + std::to_string(done) + ": " + describe(found.error, side) +
                      vendor(found.vendor),
                  Cause::Own);
    }

    case Found::What::Flushed:
      if (side == Side::Send && more != 0 && more <= posted - done) ring.done.store(done + more - 1);
      ring.ended = true;
      return fail("the NIC flushed its entries", Cause::Flush);

    case Found::What::Terminated:
      // Of a ring without entries the NIC may give any index: only progress counts.
      if (found.has_index && more <= posted - done) ring.done.store(done + more);
      ring.ended = true;
      return fail("the NIC ended it with a terminal completion", Cause::Flush);

    case Found::What::Unknown:
      return unknown(side, found.unknown);
  }
}

void Qp::unknown(Side side, const std::string& what) {
  ring_[static_cast<int>(side)].ended = true;
  fail(std::string("its ") + name(side) + " completions hold one of a kind that the ring does not take: " + what,
       Cause::Own);
}

void Qp::fail(const std::string& why, Cause cause) {
  if (cause_ != Cause::None) {
    if (cause_ < cause) cause_ = cause, failure_ = why;
    return;
  }
  cause_ = cause;
  failure_ = why;
  open_ = false;
  // What the NIC completed before, on either ring: its results stay, and its reason may be the better one.
  if (!dead_) {
    for (Side side : {Side::Send, Side::Receive}) absorb_all(side);
  }
  for (Ring& ring : ring_) {
    ring.ended = true;
    ring.next.close();
  }
  failed_ = true;
  look_for_reason(&Events::service_flush);
}

// A flush says only that there was a failure: the NIC's event, which says why, may be there by now.
void Qp::look_for_reason(void (Events::*how)()) {
  if (cause_ == Cause::Flush && !dead_ && rings_->events) (rings_->events.get()->*how)();
}

Polled Qp::poll_any(Side side, Completion& out) {
  Ring& ring = ring_[static_cast<int>(side)];
  for (;;) {
    if (ring.taken.own() != ring.done.own()) return take(ring, out);
    if (failed_) return take_failed(ring, out);
    if (!absorb(side)) return Polled::None;
  }
}

Polled Qp::take(Ring& ring, Completion& out) {
  const uint64_t taken = ring.taken.own();
  out = Completion{.entry = taken, .bytes = ring.bytes[taken & ring.mask]};
  if (ring.immediates) {
    uint64_t immediate = ring.immediates[taken & ring.mask];
    out.immediate = static_cast<uint32_t>(immediate);
    out.has_immediate = immediate >> 32 != 0;
  }
  ring.taken.store(taken + 1);
  return Polled::Ok;
}

Polled Qp::take_failed(Ring& ring, Completion& out) {
  look_for_reason(&Events::service);
  uint64_t taken = ring.taken.own();
  if (taken == ring.posted.own()) return Polled::None;
  out = Completion{.entry = taken, .error = Error::Flushed};
  if (taken == ring.failed_at) {
    out.error = ring.error;
    out.status = ring.status;
    out.vendor = ring.vendor;
  }
  ring.taken.store(taken + 1);
  ring.done.store(taken + 1);
  return Polled::Failed;
}

bool Qp::look_around(Side side) {
  if (dead_) return false;
  Ring& ring = ring_[static_cast<int>(side)];
  ring.countdown = reload_;
  const host::Idle idle = domain_->idle();
  if (idle.run != nullptr) {
    left_ = idle.run(idle.self, brief_);
    if (dead_) return false;
    if (ring.next.written()) return true;
  }
  if (failed_) return true;
  if (ring_[static_cast<int>(other(side))].next.written()) absorb_all(other(side));
  if (rings_->events && rings_->events->pending()) rings_->events->service();
  if (idle.run != nullptr || --machine_countdown_ == 0) {
    machine_countdown_ = kMachine;
    rings_->domain->check();
  }
  return failed_ || ring.next.written();
}

Qp::Look Qp::ready(Side side, bool often) {
  if (!gate_.enter()) return Look::Retired;
  Ring& ring = ring_[static_cast<int>(side)];
  const uint64_t taken = ring.taken.load();
  bool is = taken != ring.done.load() || ring.next.written_beside() || taken == ring.posted.load();
  if (!is && !often) {
    is = ring_[static_cast<int>(other(side))].next.written_beside() || (rings_->events && rings_->events->peek()) ||
         rings_->domain->attention();
  }
  gate_.leave();
  return is ? Look::Poll : Look::Nothing;
}

std::string Qp::message(Side side, const Completion& completion) const {
  std::string text =
      "queue pair " + hex(rings_->qpn) + ", " + name(side) + " entry " + std::to_string(completion.entry) + ": ";
  if (completion.error == Error::None) return text + std::to_string(completion.bytes) + " bytes";
  const Ring& ring = ring_[static_cast<int>(side)];
  if (completion.error == Error::Flushed && completion.entry != ring.failed_at)
    return text + "flushed, as the queue pair had failed: " + failure_;
  return text + describe(completion.error, side) + vendor(completion.vendor);
}

// ---- Control ----

void Qp::connect(uint32_t psn, uint32_t mtu, bool local) {
  rings_->connect(psn, mtu);
  connected_ = true;
  local_ = local;
  open_ = !dead_ && !failed_;
}

void Qp::retire(const std::string& why) {
  if (dead_) return;
  dead_ = true;
  why_dead_ = why;
  open_ = false;
  gate_.shut();
  // The rings may be freed from here on: nothing may point into them.
  for (Ring& ring : ring_) {
    ring.ended = true;
    ring.next.close();
  }
  rings_->forget();
}

}  // namespace userdma::driver
