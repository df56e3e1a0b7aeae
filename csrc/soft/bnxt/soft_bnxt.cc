#include "soft/bnxt/soft_bnxt.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include "hw/pci.h"
#include "soft/bnxt/ethernet.h"

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
    case Status::MemoryManagement:
      return hw::req_reason::kIllegalFastReg;
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
  char serial[13];
  std::snprintf(serial, sizeof serial, "%02X%02X%02X%02X%02X%02X", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
  id.vital_data = vital_product_data("userdma soft BCM57608", "soft-thor2", serial);
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

SoftBnxt::SoftBnxt(const Options& options)
    : SoftFunction(identity(options.mac), options), ethernet_(std::make_unique<Ethernet>(*this, options.mac)) {
  nic().ingress(false);
  std::lock_guard guard(nic().lock());
  nic().set_frames(ethernet_.get());
}

SoftBnxt::~SoftBnxt() {
  firmware_ = {};
  shut_down();
}

void SoftBnxt::release() {
  SoftFunction::release();
  if (const auto reset = std::exchange(firmware_, {}).reset) reset();
}

// ---- Registers
// --------------------------------------------------------------------------------------------------------

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
  if (!roce && kind < hw::doorbell_type::kNq) [[unlikely]]
    return ethernet_doorbell(kind, id, word, hw::doorbell_toggle(value));
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
    case hw::doorbell_type::kSrq:
      if (roce) srq_words_[id].store(word, std::memory_order_release);
      return;
    case hw::doorbell_type::kCq:
      if (roce) cq_words_[id].store(word, std::memory_order_release);
      return;
    case hw::doorbell_type::kCqArmSolicited:
    case hw::doorbell_type::kCqArmAll:
    case hw::doorbell_type::kCqArmEnable:
    case hw::doorbell_type::kCqCutOffAck:
    case hw::doorbell_type::kSrqArm:
    case hw::doorbell_type::kSrqArmEnable:
      if (roce && owned()) arming(kind, id, word, hw::doorbell_toggle(value));
      return;
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

void SoftBnxt::arming(uint8_t kind, uint32_t id, uint32_t word, uint32_t toggle) {
  std::lock_guard guard(nic().lock());
  if (kind == hw::doorbell_type::kSrqArm || kind == hw::doorbell_type::kSrqArmEnable) {
    const auto found = srqs_.find(id);
    if (found == srqs_.end()) return;
    if (kind == hw::doorbell_type::kSrqArmEnable) {
      found->second->enable(toggle);
    } else {
      found->second->arm(word & static_cast<uint32_t>(hw::kDoorbellIndexMask), toggle);
    }
    return;
  }
  const auto found = cqs_.find(id);
  if (found == cqs_.end()) return;
  if (kind == hw::doorbell_type::kCqCutOffAck) {
    found->second->cut_off(word, toggle);
  } else {
    found->second->arm(kind, word, toggle);
  }
}

// By the path of the Ethernet part: its rings have numbers of their own.
void SoftBnxt::ethernet_doorbell(uint8_t kind, uint32_t id, uint32_t word, uint32_t toggle) {
  switch (kind) {
    case hw::doorbell_type::kSq:
      nic().ring([&](transport::Engine&) { ethernet_->transmit_doorbell(id, word); });
      return;
    case hw::doorbell_type::kCq:
    case hw::doorbell_type::kCqArmAll:
      nic().ring([&](transport::Engine&) {
        ethernet_->completions_doorbell(id, word, kind == hw::doorbell_type::kCqArmAll, toggle);
      });
      return;
    case hw::doorbell_type::kSrq: {  // of receive and aggregation rings
      if (!owned()) return;
      std::lock_guard guard(nic().lock());
      ethernet_->receive_doorbell(id, word);
      return;
    }
    default:
      return;
  }
}

// ---- Memory
// -------------------------------------------------------------------------------------------------------------

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

void SoftBnxt::key_claim(uint32_t key, const KeyClaim& claim) {
  check_owned();
  std::lock_guard guard(nic().lock());
  if (!regions_.claim(key, claim)) throw std::invalid_argument(number("a key that is claimed or too large:", key));
}

void SoftBnxt::key_release(uint32_t key) {
  check_there(key);
  std::lock_guard guard(nic().lock());
  if (const Region* region = regions_.at_index(key)) {
    region->each_piece([this](const uint8_t* at, uint64_t bytes) { recall(at, bytes); });
  }
  if (!regions_.release(key)) throw UnknownId(number("nobody claimed key", key));
}

// Of the port, whose lock is held already.
void SoftBnxt::recall(const uint8_t* at, uint64_t bytes) { nic().port().recall(at, bytes); }

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

std::shared_ptr<Srq> SoftBnxt::known_srq(uint32_t id) const {
  const auto found = srqs_.find(id);
  if (found == srqs_.end()) throw UnknownId(number("no shared receive queue", id));
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

void SoftBnxt::nq_post(uint32_t id, const uint8_t entry[16]) {
  check_owned();
  std::lock_guard guard(nic().lock());
  known_nq(id)->post(entry);
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

bool SoftBnxt::cq_resize(uint32_t id, uint32_t entries, const PageTable& table) {
  check_owned();
  if (!entries || entries > hw::kDoorbellIndexMask / 2) throw std::invalid_argument(number("completion queue", id));
  std::lock_guard guard(nic().lock());
  return known_cq(id)->resize(table, entries);
}

void SoftBnxt::srq_create(uint32_t id, const SrqSpec& spec, std::optional<uint32_t> nq) {
  check_owned();
  if (id >= ids || !spec.entries || spec.entries > hw::kWrIdMask)
    throw std::invalid_argument(number("shared receive queue", id));
  std::lock_guard guard(nic().lock());
  if (srqs_.contains(id)) throw std::invalid_argument(number("there is a shared receive queue", id));
  srqs_[id] = std::make_shared<Srq>(nic().dma(), id, spec, nq ? known_nq(*nq) : nullptr, srq_words_[id]);
}

void SoftBnxt::srq_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  const auto srq = known_srq(id);
  // The table's and the one here: any other is a queue pair's.
  if (srq.use_count() > 2) throw std::invalid_argument(number("a queue pair uses shared receive queue", id));
  srqs_.erase(id);
}

uint32_t SoftBnxt::srq_limit(uint32_t id) {
  check_owned();
  std::lock_guard guard(nic().lock());
  return known_srq(id)->limit();
}

void SoftBnxt::ah_create(uint32_t id, const AddressVector& vector) {
  check_owned();
  std::lock_guard guard(nic().lock());
  if (id > hw::kAvidMask || !addresses_.emplace(id, vector).second) {
    throw std::invalid_argument(number("address vector", id));
  }
}

void SoftBnxt::ah_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  if (!addresses_.erase(id)) throw UnknownId(number("no address vector", id));
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
  const Shared shared{nic().dma(), nic().engine(), regions_, addresses_, static_cast<Events&>(*this)};
  auto made = std::make_unique<QueuePair>(id, spec, shared, known_cq(spec.scq), known_cq(spec.rcq),
                                          spec.srq ? known_srq(*spec.srq) : nullptr, rq_words_[id]);
  if (id >= qps_.size()) qps_.resize(id + 1);
  const transport::Service service =
      spec.type == hw::qp_type::kRc ? transport::Service::Connected : transport::Service::Datagram;
  if (!nic().engine().create(id, made.get(), service)) throw std::invalid_argument(number("queue pair", id));
  qps_[id] = std::move(made);
  qp_count_++;
}

void SoftBnxt::qp_modify(uint32_t id, const Attributes& attributes, uint32_t fields) {
  check_owned();
  {
    std::lock_guard guard(nic().lock());
    QueuePair& pair = known_qp(id);
    Attributes before;
    nic().engine().query(id, before);
    nic().engine().modify(id, attributes, fields);
    if (fields & Attributes::HasState) {
      if (attributes.state == State::Reset) pair.reset();
      if (attributes.state == State::Err && before.state != State::Err && before.state != State::Reset) {
        pair.terminal();
        // Nothing of it takes from a shared queue any more. An event without a reason says so (main.c,
        // bnxt_re_handle_qp_async_event: the last WQE was reached).
        if (pair.spec().srq) qp_event(pair, hw::req_reason::kNoError, hw::res_reason::kNoError);
      }
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
  qp_event(pair, requester ? requester_reason(status) : hw::req_reason::kNoError,
           requester ? hw::res_reason::kNoError : responder_reason(status));
}

void SoftBnxt::qp_event(const QueuePair& pair, uint8_t requester, uint8_t responder) {
  if (!creq_) return;
  hw::CreqQpError event{};
  event.type = hw::creq_type::kQpEvent;
  event.req_slow_path_state = event.res_slow_path_state = hw::qp_state::kErr;
  event.req_err_state_reason = requester;
  event.res_err_state_reason = responder;
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

void SoftBnxt::device_stop() {
  nic().ingress(false);
  for (size_t id = 0; id < qps_.size(); id++) {
    if (qps_[id]) nic().engine().destroy(static_cast<uint32_t>(id));
  }
  qps_.clear();
  qp_count_ = 0;
  srqs_.clear();
  addresses_.clear();
  cqs_.clear();
  creq_ = nullptr;
  ethernet_->clear();
  nqs_.clear();
  regions_.clear();
}

void SoftBnxt::device_start() {
  if (firmware_.reset) firmware_.reset();
}

SoftFunction::Counts SoftBnxt::counts() {
  if (!owned()) {
    return {{"qp", 0}, {"cq", 0}, {"mr", 0}, {"nq", 0}, {"srq", 0}, {"ah", 0}, {"dma_pages", 0}, {"arena_bytes", 0}};
  }
  const uint64_t bytes = arena().allocated();
  std::lock_guard guard(nic().lock());
  return {{"qp", qp_count_},
          {"cq", cqs_.size()},
          {"mr", regions_.size()},
          {"nq", nqs_.size()},
          {"srq", srqs_.size()},
          {"ah", addresses_.size()},
          {"dma_pages", nic().dma().pages()},
          {"arena_bytes", bytes}};
}

}  // namespace userdma::soft::bnxt
