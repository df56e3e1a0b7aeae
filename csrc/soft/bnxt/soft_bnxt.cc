#include "soft/bnxt/soft_bnxt.h"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <new>

#include "hw/pci.h"

namespace userdma::soft::bnxt {

using transport::Attributes;
using transport::State;
using transport::Status;

namespace {

// What a Broadcom 57608 adapter shows (lspci). Its MSI-X table and pending bits fill BAR 4.
constexpr uint8_t revision = 0x11;
constexpr unsigned vectors = 74;
constexpr uint64_t register_bytes = 64 << 10;
constexpr uint64_t doorbell_bytes = 1 << 20;
constexpr uint64_t vector_bytes = 16 << 10;
constexpr size_t window_bytes = hw::kHwrmTrigger - hw::kHwrmWindow;

std::string number(const char* what, uint32_t id) { return std::string(what) + " " + std::to_string(id); }

uint8_t requester_reason(Status status) {
  switch (status) {
    case Status::RetryExceeded:
      return hw::req_reason::kTimeoutRetryLimit;
    case Status::RnrRetryExceeded:
      return hw::req_reason::kRnrTimeoutRetryLimit;
    case Status::RemoteInvalidRequest:
      return hw::req_reason::kNakArrival1;
    case Status::RemoteAccess:
      return hw::req_reason::kNakArrival2;
    case Status::RemoteOperation:
      return hw::req_reason::kNakArrival3;
    case Status::LocalProtection:
    case Status::LocalAccess:
      return hw::req_reason::kTxMemoryError;
    case Status::BadResponse:
      return hw::req_reason::kInvalidReadResp;
    case Status::LocalLength:
      return hw::req_reason::kReadRespLength;
    default:
      return hw::req_reason::kWqeFormatError;
  }
}

uint8_t responder_reason(Status status) {
  switch (status) {
    case Status::LocalLength:
      return hw::res_reason::kExceedsWqe;
    case Status::LocalAccess:
    case Status::RemoteAccess:
      return hw::res_reason::kRxNoPermission;
    case Status::LocalProtection:
      return hw::res_reason::kMemoryError;
    case Status::RemoteInvalidRequest:
      return hw::res_reason::kOpcodeError;
    default:
      return hw::res_reason::kWqeFormatError;
  }
}

}  // namespace

Identity SoftBnxt::identity(const std::array<uint8_t, 6>& mac) {
  Identity id;
  id.vendor = id.subsystem_vendor = userdma::hw::pci::kVendorBroadcom;
  id.device = id.subsystem = userdma::hw::pci::kDeviceThor2;
  id.revision = revision;
  id.class_code = userdma::hw::pci::kClassEthernet;
  id.bar_bytes = {register_bytes, 0, doorbell_bytes, 0, vector_bytes, 0};
  id.vectors = vectors;
  id.vector_bar = 4;
  id.vector_table = 0;
  id.vector_pending = vectors * userdma::hw::pci::msix::kEntrySize;
  // An EUI-64 of the MAC, as network adapters make theirs.
  for (const uint8_t byte : {mac[0], mac[1], mac[2], uint8_t{0xff}, uint8_t{0xfe}, mac[3], mac[4], mac[5]}) {
    id.serial = id.serial << 8 | byte;
  }
  return id;
}

SoftBnxt::DoorbellWords::DoorbellWords() {
  // Only the pages of ids in use are ever touched.
  void* at = mmap(nullptr, ids * sizeof(DoorbellWord), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  words_ = static_cast<DoorbellWord*>(at);
}

SoftBnxt::DoorbellWords::~DoorbellWords() { munmap(static_cast<void*>(words_), ids * sizeof(DoorbellWord)); }

SoftBnxt::SoftBnxt(const Options& options) : SoftFunction(identity(options.mac), options) { nic().ingress(false); }

SoftBnxt::~SoftBnxt() {
  firmware_ = {};
  shut_down();
}

void SoftBnxt::release() {
  SoftFunction::release();
  if (const auto reset = std::exchange(firmware_, {}).reset) reset();
}

void SoftBnxt::check_owned() {
  if (!owned()) throw host::MachineError(name() + " was released, or is the parent process's");
}

// What was here is gone with the NIC.
void SoftBnxt::check_there(uint32_t id) {
  if (!owned()) throw UnknownId(name() + " was released: it has no object " + std::to_string(id));
}

// ---- Registers
// --------------------------------------------------------------------------------------------------------

bool SoftBnxt::bar_load(int bar, uint64_t offset, void* into, size_t bytes) {
  const size_t size = bar_size(bar);
  if (offset > size || bytes > size - offset) return false;
  std::memcpy(into, registers(bar) + offset, bytes);
  return true;
}

bool SoftBnxt::bar_store(int bar, uint64_t offset, const void* from, size_t bytes) {
  const size_t size = bar_size(bar);
  if (offset > size || bytes > size - offset) return false;
  check_owned();
  std::lock_guard guard(nic().lock());
  if (!failed()) std::memcpy(registers(bar) + offset, from, bytes);
  return true;
}

void SoftBnxt::stored(int bar, uint64_t offset, uint64_t value, unsigned width) {
  if (bar == hw::kDoorbellBar) [[likely]] {
    if (width == 8) [[likely]] {
      doorbell(value);
    } else if (width == 4 && offset % 8 == 4) {
      // Two 32-bit stores, the low word first.
      uint64_t whole;
      std::memcpy(&whole, registers(bar) + offset - 4, sizeof whole);
      doorbell(whole);
    }
    return;
  }
  if (bar != hw::kRegisterBar || !owned()) return;
  const auto hits = [&](uint64_t at) { return offset <= at && at < offset + width; };
  if (hits(hw::kHwrmTrigger) && firmware_.hwrm) {
    uint8_t window[window_bytes];
    std::memcpy(window, registers(bar) + hw::kHwrmWindow, sizeof window);
    firmware_.hwrm(window, sizeof window);
  } else if (hits(hw::kRcfwTrigger) && firmware_.rcfw) {
    uint32_t producer;
    std::memcpy(&producer, registers(bar) + hw::kRcfwProducer, sizeof producer);
    firmware_.rcfw(producer);
  }
}

void SoftBnxt::doorbell(uint64_t value) {
  if (!(value & hw::kDoorbellValid)) return;
  const uint32_t id = hw::doorbell_xid(value);
  const auto word = static_cast<uint32_t>(value) & static_cast<uint32_t>(hw::kDoorbellIndexMask | hw::kDoorbellEpoch);
  const uint8_t kind = hw::doorbell_kind(value);
  const bool roce = (value & hw::kDoorbellPathMask) == hw::kDoorbellPathRoce;
  switch (kind) {
    case hw::doorbell_type::kSq:
      if (!roce) return;
      nic().ring([&](transport::Engine& engine) {
        QueuePair* pair = qp(id);
        if (pair && pair->sq_doorbell(word)) engine.kick(id);
      });
      return;
    // What a consumer has read and a receiver has posted matters when the NIC next looks: no lock.
    case hw::doorbell_type::kRq:
      if (roce) rq_words_[id].store(word, std::memory_order_release);
      return;
    case hw::doorbell_type::kCq:
      if (roce) cq_words_[id].store(word, std::memory_order_release);
      return;
    case hw::doorbell_type::kCqArmSolicited:
    case hw::doorbell_type::kCqArmAll:
    case hw::doorbell_type::kCqArmEnable: {
      if (!roce || !owned()) return;
      std::lock_guard guard(nic().lock());
      if (const auto found = cqs_.find(id); found != cqs_.end()) {
        found->second->arm(kind, word, hw::doorbell_toggle(value));
      }
      return;
    }
    case hw::doorbell_type::kNq:
    case hw::doorbell_type::kNqArm:
    case hw::doorbell_type::kNqMask: {  // by either path: notification queues are the Ethernet driver's too
      if (!owned()) return;
      std::lock_guard guard(nic().lock());
      const auto found = nqs_.find(id);
      if (found == nqs_.end()) return;
      if (kind == hw::doorbell_type::kNqMask) {
        found->second->mask();
      } else {
        found->second->doorbell(word, kind == hw::doorbell_type::kNqArm);
      }
      return;
    }
    default:
      return;
  }
}

// ---- Memory
// -------------------------------------------------------------------------------------------------------------

bool SoftBnxt::dma_read(uint64_t bus, void* into, size_t bytes) {
  if (!owned()) return false;
  std::lock_guard guard(nic().lock());
  return nic().dma().read(bus, into, bytes);
}

bool SoftBnxt::dma_write(uint64_t bus, const void* from, size_t bytes) {
  if (!owned()) return false;
  std::lock_guard guard(nic().lock());
  return nic().dma().write(bus, from, bytes);
}

void SoftBnxt::mr_register(uint32_t key, const RegionSpec& spec) {
  check_owned();
  std::lock_guard guard(nic().lock());
  if (!regions_.add(std::make_unique<Region>(nic().dma(), key, spec))) {
    throw std::invalid_argument("a key whose index is taken or too large: " + std::to_string(key));
  }
}

void SoftBnxt::mr_deregister(uint32_t key) {
  check_there(key);
  std::vector<std::pair<const uint8_t*, size_t>> pieces;
  {
    std::lock_guard guard(nic().lock());
    const Region* region = regions_.find(key);
    if (!region) throw UnknownId(number("no region has key", key));
    region->each_piece([&](const uint8_t* at, uint64_t bytes) { pieces.emplace_back(at, bytes); });
    regions_.remove(key);
  }
  for (const auto& [at, bytes] : pieces) nic().recall(at, bytes);
}

// ---- Queues
// -------------------------------------------------------------------------------------------------------------

std::shared_ptr<Nq> SoftBnxt::known_nq(uint32_t id) const {
  const auto found = nqs_.find(id);
  if (found == nqs_.end()) throw UnknownId(number("no notification queue", id));
  return found->second;
}

std::shared_ptr<Cq> SoftBnxt::known_cq(uint32_t id) const {
  const auto found = cqs_.find(id);
  if (found == cqs_.end()) throw UnknownId(number("no completion queue", id));
  return found->second;
}

QueuePair& SoftBnxt::known_qp(uint32_t id) const {
  QueuePair* pair = qp(id);
  if (!pair) throw UnknownId(number("no queue pair", id));
  return *pair;
}

void SoftBnxt::nq_create(uint32_t id, const PageTable& table, uint32_t entries, unsigned vector) {
  check_owned();
  if (id >= ids || !entries || entries > hw::kDoorbellIndexMask)
    throw std::invalid_argument(number("notification queue", id));
  std::lock_guard guard(nic().lock());
  if (nqs_.contains(id)) throw std::invalid_argument(number("there is a notification queue", id));
  nqs_[id] = std::make_shared<Nq>(*this, id, table, entries, vector);
}

void SoftBnxt::nq_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  if (known_nq(id) == creq_) creq_ = nullptr;
  nqs_.erase(id);
}

void SoftBnxt::creq_set(std::optional<uint32_t> nq) {
  check_owned();
  std::lock_guard guard(nic().lock());
  creq_ = nq ? known_nq(*nq) : nullptr;
}

void SoftBnxt::creq_post(const uint8_t entry[16]) {
  check_owned();
  std::lock_guard guard(nic().lock());
  if (creq_) creq_->post(entry);
}

void SoftBnxt::cq_create(uint32_t id, uint32_t entries, const PageTable& table, std::optional<uint32_t> nq,
                         uint64_t handle) {
  check_owned();
  if (id >= ids || !entries || entries > hw::kDoorbellIndexMask / 2)
    throw std::invalid_argument(number("completion queue", id));
  std::lock_guard guard(nic().lock());
  if (cqs_.contains(id)) throw std::invalid_argument(number("there is a completion queue", id));
  cqs_[id] = std::make_shared<Cq>(nic().dma(), id, table, entries, nq ? known_nq(*nq) : nullptr, handle, cq_words_[id]);
}

uint32_t SoftBnxt::cq_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  const auto cq = known_cq(id);
  // The table's and the one here: any other is a queue pair's.
  if (cq.use_count() > 2) throw std::invalid_argument(number("a queue pair uses completion queue", id));
  cqs_.erase(id);
  return cq->notifications();
}

void SoftBnxt::post_raw_cqe(uint32_t cq, const uint8_t entry[32]) {
  check_owned();
  std::lock_guard guard(nic().lock());
  uint64_t last;
  std::memcpy(&last, entry + 24, sizeof last);
  known_cq(cq)->post(entry, last & ~uint64_t{hw::kCqeToggle}, true);
}

void SoftBnxt::qp_create(uint32_t id, const QueuePairSpec& spec) {
  check_owned();
  const uint32_t most = spec.variable ? 1 << 16 : static_cast<uint32_t>(hw::kDoorbellIndexMask) / 2;
  if (id >= ids || !spec.sq_size || spec.sq_size > most || spec.rq_size > hw::kWrIdMask ||
      spec.sq_sges > transport::max_sges || spec.rq_sges > transport::max_sges) {
    throw std::invalid_argument(number("queue pair", id));
  }
  std::lock_guard guard(nic().lock());
  if (qp(id)) throw std::invalid_argument(number("there is a queue pair", id));
  auto made = std::make_unique<QueuePair>(id, spec, nic().dma(), nic().engine(), regions_, known_cq(spec.scq),
                                          known_cq(spec.rcq), static_cast<Events&>(*this), rq_words_[id]);
  if (id >= qps_.size()) qps_.resize(id + 1);
  // A pair of another type than RC has rings that nobody serves.
  if (spec.type == hw::qp_type::kRc && !nic().engine().create(id, made.get())) {
    throw std::invalid_argument(number("queue pair", id));
  }
  qps_[id] = std::move(made);
  qp_count_++;
}

void SoftBnxt::qp_modify(uint32_t id, const Attributes& attributes, uint32_t fields) {
  check_owned();
  {
    std::lock_guard guard(nic().lock());
    QueuePair& pair = known_qp(id);
    if (pair.spec().type != hw::qp_type::kRc) return;
    Attributes before;
    nic().engine().query(id, before);
    nic().engine().modify(id, attributes, fields);
    if (fields & Attributes::HasState) {
      if (attributes.state == State::Reset) pair.reset();
      if (attributes.state == State::Err && before.state != State::Err && before.state != State::Reset) pair.terminal();
      if (attributes.state == State::Rts && pair.sq_pending()) nic().engine().kick(id);
    }
  }
  nic().advance();
}

void SoftBnxt::qp_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  known_qp(id);
  nic().engine().destroy(id);
  qps_[id].reset();
  qp_count_--;
}

SoftBnxt::QueuePairState SoftBnxt::qp_query(uint32_t id) {
  check_owned();
  std::lock_guard guard(nic().lock());
  const QueuePair& pair = known_qp(id);
  QueuePairState state{};
  nic().engine().query(id, state.attributes);
  state.sq_consumer = pair.sq_consumer();
  state.rq_consumer = pair.rq_consumer();
  return state;
}

void SoftBnxt::fail_qp(uint32_t id) {
  check_owned();
  std::lock_guard guard(nic().lock());
  QueuePair& pair = known_qp(id);
  Attributes attributes;
  attributes.state = State::Err;
  nic().engine().modify(id, attributes, Attributes::HasState);
  pair.failed(true, Status::LocalQpOperation);
}

// ---- Events, and the end
// --------------------------------------------------------------------------------------------------

void SoftBnxt::qp_error(const QueuePair& pair, bool requester, Status status) {
  if (!creq_) return;
  hw::CreqQpError event{};
  event.type = hw::creq_type::kQpEvent;
  event.req_slow_path_state = event.res_slow_path_state = hw::qp_state::kErr;
  if (requester) {
    event.req_err_state_reason = requester_reason(status);
  } else {
    event.res_err_state_reason = responder_reason(status);
  }
  event.xid = pair.id();
  event.event = hw::creq_event::kQpError;
  event.sq_cons_idx = pair.sq_consumer();
  event.rq_cons_idx = pair.rq_consumer();
  creq_->post(reinterpret_cast<const uint8_t*>(&event));
}

// The same place as a queue pair's event, with the reason where that has its requester's state (roce_hsi.h
// creq_cq_error_notification): overflow of a queue that a requester (2) or a responder (5) writes.
void SoftBnxt::cq_error(const Cq& cq, bool requester) {
  if (!creq_) return;
  hw::CreqQpError event{};
  event.type = hw::creq_type::kQpEvent;
  event.req_slow_path_state = requester ? 2 : 5;
  event.xid = cq.id();
  event.event = hw::creq_event::kCqError;
  creq_->post(reinterpret_cast<const uint8_t*>(&event));
}

void SoftBnxt::ingress(bool open) { nic().ingress(open); }

void SoftBnxt::device_stop() {
  nic().ingress(false);
  for (size_t id = 0; id < qps_.size(); id++) {
    if (qps_[id]) nic().engine().destroy(static_cast<uint32_t>(id));
  }
  qps_.clear();
  qp_count_ = 0;
  cqs_.clear();
  creq_ = nullptr;
  nqs_.clear();
  regions_.clear();
}

void SoftBnxt::device_start() {
  if (firmware_.reset) firmware_.reset();
}

std::vector<std::pair<std::string, uint64_t>> SoftBnxt::counts() {
  if (!owned()) return {{"qp", 0}, {"cq", 0}, {"mr", 0}, {"nq", 0}, {"dma_pages", 0}, {"arena_bytes", 0}};
  const uint64_t bytes = arena().allocated();
  std::lock_guard guard(nic().lock());
  return {{"qp", qp_count_},
          {"cq", cqs_.size()},
          {"mr", regions_.size()},
          {"nq", nqs_.size()},
          {"dma_pages", nic().dma().pages()},
          {"arena_bytes", bytes}};
}

std::vector<std::pair<std::string, uint64_t>> SoftBnxt::stats() {
  check_owned();
  std::lock_guard guard(nic().lock());
  const transport::Stats& s = nic().engine().stats();
  const wire::Counts w = nic().port().counts();
  uint64_t dropped = 0;
  for (const uint64_t n : s.dropped) dropped += n;
  return {{"packets_sent", s.packets_sent},
          {"packets_received", s.packets_received},
          {"bytes_sent", s.bytes_sent},
          {"bytes_received", s.bytes_received},
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

}  // namespace userdma::soft::bnxt
