#include "soft/mlx5/soft_mlx5.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "hw/pci.h"

namespace userdma::soft::mlx5 {

using transport::Attributes;
using transport::State;
using transport::Status;

namespace {

// What a ConnectX-6 Dx adapter shows (lspci): its MSI-X table and pending bits are in BAR 0. The BAR of the adapter is
// 32 MiB; this one has room for as many UARs as anybody wants here.
constexpr unsigned vectors = 64;
constexpr uint64_t register_bytes = 8 << 20;
constexpr uint32_t vector_table = 0x2000;
constexpr uint32_t vector_pending = 0x3000;

// How long a receive that was posted to a pair in error may wait before it is flushed: at first, and at last.
constexpr uint64_t look_first_ns = 500'000;
constexpr uint64_t look_last_ns = 32'000'000;
// How many such pairs one turn looks at.
constexpr size_t looks = 64;

std::string number(const char* what, uint32_t id) { return std::string(what) + " " + std::to_string(id); }

bool hits(uint64_t offset, unsigned width, uint64_t at) { return offset <= at && at < offset + width; }

void check_pages(const Pages& pages, uint64_t bytes, const char* what, uint32_t id) {
  if (pages.page_shift < Dma::page_shift || pages.page_shift > 40 || pages.offset >> pages.page_shift ||
      (pages.offset + bytes + (uint64_t{1} << pages.page_shift) - 1) >> pages.page_shift > pages.pages.size()) {
    throw std::invalid_argument(number(what, id) + ": its pages");
  }
}

}  // namespace

Identity SoftMlx5::identity(const std::array<uint8_t, 6>& mac) {
  Identity id;
  id.vendor = id.subsystem_vendor = userdma::hw::pci::kVendorMellanox;
  id.device = userdma::hw::pci::kDeviceConnectX6Dx;
  id.subsystem = 0x0016;  // of the MCX623106AN
  id.class_code = userdma::hw::pci::kClassEthernet;
  id.bar_bytes = {register_bytes, 0, 0, 0, 0, 0};
  id.vectors = vectors;
  id.vector_bar = 0;
  id.vector_table = vector_table;
  id.vector_pending = vector_pending;
  id.link_speed = 4;
  char serial[13];
  std::snprintf(serial, sizeof serial, "%02X%02X%02X%02X%02X%02X", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
  id.vital_data = vital_product_data("userdma soft ConnectX-6 Dx", "soft-connectx6dx", serial);
  id.gateway = true;
  // An EUI-64 of the MAC, as network adapters make theirs.
  for (const uint8_t byte : {mac[0], mac[1], mac[2], uint8_t{0xff}, uint8_t{0xfe}, mac[3], mac[4], mac[5]}) {
    id.serial = id.serial << 8 | byte;
  }
  return id;
}

SoftMlx5::SoftMlx5(const Options& options)
    : SoftFunction(identity(options.mac), options),
      virtual_clock_(nic().clock().is_virtual()),
      ethernet_(*this, options.mac, keys_, static_cast<EthernetEvents&>(*this)) {
  nic().ingress(false);
  std::lock_guard guard(nic().lock());
  nic().set_frames(&beside_);
}

SoftMlx5::~SoftMlx5() {
  firmware_ = {};
  shut_down();
}

void SoftMlx5::release() {
  SoftFunction::release();
  if (const auto reset = std::exchange(firmware_, {}).reset) reset();
}

// ---- Registers
// ---------------------------------------------------------------------------------------------------------------

void SoftMlx5::stored(int, uint64_t offset, uint64_t value, unsigned width) {
  if (offset >= uint64_t{first_uar} * hw::kUar) [[likely]]
    return uar_stored(offset, value, width);
  const auto call = [&](const std::function<void(uint32_t)>& firmware, uint64_t place) {
    if (!hits(offset, width, place) || !owned() || !firmware) return;
    // What was stored, not what is there by now, where it is no part of a wider store.
    auto word = static_cast<uint32_t>(value);
    if (width != sizeof word) std::memcpy(&word, registers(0) + place, sizeof word);
    firmware(big(word));
  };
  call(firmware_.interface, offsetof(hw::InitSegment, cmdq_addr_l_sz));
  call(firmware_.command, offsetof(hw::InitSegment, cmd_dbell));
}

// Send doorbells and BlueFlame are alike: what counts is the beginning of the entry that is written there, for the
// entries themselves are in memory.
void SoftMlx5::uar_stored(uint64_t offset, uint64_t value, unsigned width) {
  const uint64_t at = offset & (hw::kUar - 1);
  if (width == 4) {  // two 32-bit stores, the low address first, where a bus has no wider ones
    if (at == hw::kEqArm || at == hw::kEqTaken) return eq_doorbell(big(static_cast<uint32_t>(value)), at == hw::kEqArm);
    if (offset % 8 != 4) return;
    std::memcpy(&value, registers(0) + offset - 4, sizeof value);
  } else if (width != 8) {
    return;
  }
  const uint32_t first = big(static_cast<uint32_t>(value)), second = big(static_cast<uint32_t>(value >> 32));
  const uint64_t place = at & ~uint64_t{7};
  if (place >= hw::kBlueFlame) [[likely]] {
    if (place % (hw::kBlueFlameBytes / 2) == 0) send_doorbell(second >> hw::kQpnShift);
  } else if (place == hw::kCqDoorbell) {
    arm_doorbell(first, second & hw::kQpnMask);
  } else if (width == 8 && (place == hw::kEqArm || place == hw::kEqTaken)) {
    eq_doorbell(first, place == hw::kEqArm);
  }
}

void SoftMlx5::send_doorbell(uint32_t id) {
  nic().ring([&](transport::Engine& engine) {
    QueuePair* pair = qp(id);
    if (!pair) [[unlikely]]
      return ethernet_.send_doorbell(id);
    if (!pair->sq_doorbell()) return;
    if (pair->in_error()) [[unlikely]] {
      pair->flush();
    } else {
      engine.kick(pair->wire_id());
    }
  });
}

void SoftMlx5::arm_doorbell(uint32_t word, uint32_t id) {
  if (!owned()) return;
  std::lock_guard guard(nic().lock());
  const auto found = cqs_.find(id);
  if (found != cqs_.end()) found->second->arm(word);
}

void SoftMlx5::eq_doorbell(uint32_t word, bool arm) {
  if (!owned()) return;
  std::lock_guard guard(nic().lock());
  const auto found = eqs_.find(word >> 24);
  if (found != eqs_.end()) found->second->doorbell(word & 0xff'ffff, arm);
}

// The device's time, and the counter by which a driver sees that its firmware is alive.
void SoftMlx5::loading(int bar, uint64_t offset, unsigned width) {
  constexpr uint64_t timer = offsetof(hw::InitSegment, internal_timer_h);
  constexpr uint64_t health = offsetof(hw::InitSegment, health_counter);
  if (bar != 0 || offset + width <= timer || offset >= health + sizeof(uint32_t) || !owned()) return;
  const uint64_t now = nic().clock().now();
  std::lock_guard guard(nic().lock());
  if (failed()) return;
  if (offset < timer + sizeof now) {
    const uint64_t value = big(now);
    std::memcpy(registers(0) + timer, &value, sizeof value);
  } else if (hits(offset, width, health) && healthy_.load(std::memory_order_relaxed)) {
    const uint32_t value = big(static_cast<uint32_t>(now >> 23));  // some eight milliseconds
    std::memcpy(registers(0) + health, &value, sizeof value);
  }
}

// ---- Memory keys and addresses
// -------------------------------------------------------------------------------------------------------------------

void SoftMlx5::mkey_create(uint32_t key, MkeySpec spec) {
  check_owned();
  constexpr uint32_t most = 1 << 24;  // octwords
  if (spec.page_shift < Dma::page_shift || spec.page_shift > 40 || spec.octwords > most ||
      spec.pages.size() > 2 * uint64_t{most} || spec.parts.size() > most) {
    throw std::invalid_argument(number("memory key", key));
  }
  if (!spec.paged) {
    for (uint64_t& entry : spec.pages) entry |= hw::kPageRead | hw::kPageWrite;
  }
  std::lock_guard guard(nic().lock());
  if (!keys_.add(std::make_unique<Mkey>(nic().dma(), key, std::move(spec)))) {
    throw std::invalid_argument(number("a memory key whose index is taken or too large:", key));
  }
}

void SoftMlx5::mkey_destroy(uint32_t key) {
  check_there(key);
  std::vector<std::pair<const uint8_t*, size_t>> pieces;
  {
    std::lock_guard guard(nic().lock());
    const Mkey* found = keys_.at_index(key);
    if (!found) throw UnknownId(number("no memory key", key));
    found->each_piece(keys_, [&](const uint8_t* at, uint64_t bytes) { pieces.emplace_back(at, bytes); });
    keys_.remove(key);
  }
  for (const auto& [at, bytes] : pieces) nic().recall(at, bytes);
}

SoftMlx5::MkeyState SoftMlx5::mkey_query(uint32_t key) {
  check_owned();
  std::lock_guard guard(nic().lock());
  const Mkey* found = keys_.at_index(key);
  if (!found) throw UnknownId(number("no memory key", key));
  return {found->key(), found->spec()};
}

// Of the port, whose lock is held already.
void SoftMlx5::recall(const uint8_t* at, uint64_t bytes) { nic().port().recall(at, bytes); }

void SoftMlx5::gid_set(uint32_t index, const Gid& gid) {
  check_owned();
  if (index > hw::kAddressGidMask) throw std::invalid_argument(number("GID", index));
  std::lock_guard guard(nic().lock());
  gids_[index] = gid;
}

void SoftMlx5::gid_clear(uint32_t index) {
  check_there(index);
  std::lock_guard guard(nic().lock());
  gids_.erase(index);
}

void SoftMlx5::group_attach(const std::array<uint8_t, 16>& gid, uint32_t qpn) {
  check_owned();
  std::lock_guard guard(nic().lock());
  const QueuePair& pair = known_qp(qpn);
  if (!pair.datagram()) throw std::invalid_argument(number("no datagrams go to queue pair", qpn));
  nic().engine().attach(gid, pair.wire_id());
}

void SoftMlx5::group_detach(const std::array<uint8_t, 16>& gid, uint32_t qpn) {
  check_there(qpn);
  std::lock_guard guard(nic().lock());
  nic().engine().detach(gid, known_qp(qpn).wire_id());
}

// ---- Queues
// ------------------------------------------------------------------------------------------------------------------

template <class T>
const std::shared_ptr<T>& SoftMlx5::known(const std::unordered_map<uint32_t, std::shared_ptr<T>>& all, uint32_t id,
                                          const char* what) {
  const auto found = all.find(id);
  if (found == all.end()) throw UnknownId(number(what, id));
  return found->second;
}

QueuePair& SoftMlx5::known_qp(uint32_t id) const {
  QueuePair* pair = qp(id);
  if (!pair) throw UnknownId(number("no queue pair", id));
  return *pair;
}

void SoftMlx5::eq_create(uint32_t id, const EqSpec& spec) {
  check_owned();
  if (id > 0xff || spec.log_entries > 22 || spec.vector >= vectors)
    throw std::invalid_argument(number("event queue", id));
  check_pages(spec.pages, sizeof(hw::Event) << spec.log_entries, "event queue", id);
  std::lock_guard guard(nic().lock());
  if (eqs_.contains(id)) throw std::invalid_argument(number("there is an event queue", id));
  const auto made = eqs_[id] = std::make_shared<Eq>(*this, id, spec);
  for (const uint8_t type : spec.events) event_queues_[type] = made;
}

void SoftMlx5::eq_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  const auto eq = known(eqs_, id, "no event queue");
  for (auto& queue : event_queues_) {
    if (queue == eq) queue = nullptr;
  }
  eqs_.erase(id);
}

void SoftMlx5::eq_post(uint32_t id, uint8_t type, uint8_t subtype, const uint8_t data[28]) {
  check_owned();
  std::lock_guard guard(nic().lock());
  known(eqs_, id, "no event queue")->post(type, subtype, data);
}

bool SoftMlx5::event(uint8_t type, uint8_t subtype, const uint8_t data[28]) {
  check_owned();
  std::lock_guard guard(nic().lock());
  Eq* eq = eq_of(type);
  if (eq) eq->post(type, subtype, data);
  return eq != nullptr;
}

void SoftMlx5::cq_create(uint32_t id, const CqSpec& spec) {
  check_owned();
  if (id >= ids || spec.log_entries > 22 || (spec.stride != 64 && spec.stride != 128))
    throw std::invalid_argument(number("completion queue", id));
  check_pages(spec.pages, uint64_t{spec.stride} << spec.log_entries, "completion queue", id);
  std::lock_guard guard(nic().lock());
  if (cqs_.contains(id)) throw std::invalid_argument(number("there is a completion queue", id));
  cqs_[id] = std::make_shared<Cq>(nic(), id, spec, known(eqs_, spec.eqn, "no event queue"));
}

void SoftMlx5::cq_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  // The table's: any other is a queue pair's.
  if (known(cqs_, id, "no completion queue").use_count() > 1)
    throw std::invalid_argument(number("a queue pair uses completion queue", id));
  cqs_.erase(id);
}

bool SoftMlx5::cq_resize(uint32_t id, const CqSpec& spec) {
  check_owned();
  if (spec.log_entries > 22 || (spec.stride != 64 && spec.stride != 128))
    throw std::invalid_argument(number("completion queue", id));
  check_pages(spec.pages, uint64_t{spec.stride} << spec.log_entries, "completion queue", id);
  std::lock_guard guard(nic().lock());
  return known(cqs_, id, "no completion queue")->resize(spec);
}

SoftMlx5::CqState SoftMlx5::cq_query(uint32_t id) {
  check_owned();
  std::lock_guard guard(nic().lock());
  Cq& cq = *known(cqs_, id, "no completion queue");
  return {cq.produced(), cq.consumed(), cq.overrun()};
}

void SoftMlx5::post_raw_cqe(uint32_t id, const uint8_t entry[64]) {
  check_owned();
  std::lock_guard guard(nic().lock());
  hw::Cqe copy;
  std::memcpy(&copy, entry, sizeof copy);
  known(cqs_, id, "no completion queue")->post(copy, true);
}

void SoftMlx5::srq_create(uint32_t id, const SrqSpec& spec) {
  check_owned();
  if (id >= ids || spec.log_entries > QueuePair::log_entries_limit || spec.log_stride < 5 ||
      spec.log_stride > Srq::log_stride_limit) {
    throw std::invalid_argument(number("shared receive queue", id));
  }
  check_pages(spec.pages, uint64_t{1} << (spec.log_entries + spec.log_stride), "shared receive queue", id);
  std::lock_guard guard(nic().lock());
  if (srqs_.contains(id)) throw std::invalid_argument(number("there is a shared receive queue", id));
  srqs_[id] = std::make_shared<Srq>(nic().dma(), id, spec, static_cast<Events&>(*this));
}

void SoftMlx5::srq_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  if (known(srqs_, id, "no shared receive queue").use_count() > 1)
    throw std::invalid_argument(number("a queue pair uses shared receive queue", id));
  srqs_.erase(id);
}

void SoftMlx5::srq_arm(uint32_t id, uint32_t limit) {
  check_owned();
  std::lock_guard guard(nic().lock());
  known(srqs_, id, "no shared receive queue")->arm(limit);
}

uint32_t SoftMlx5::srq_limit(uint32_t id) {
  check_owned();
  std::lock_guard guard(nic().lock());
  return known(srqs_, id, "no shared receive queue")->limit();
}

// ---- Queue pairs
// --------------------------------------------------------------------------------------------------------------

void SoftMlx5::qp_create(uint32_t id, const QueuePairSpec& spec) {
  check_owned();
  const bool known_type = spec.type == hw::qp_type::kRc || spec.type == hw::qp_type::kUd ||
                          spec.type == hw::qp_type::kQp1 || spec.type == hw::qp_type::kRegUmr;
  if (id >= ids || !known_type || spec.log_sq_entries.value_or(0) > QueuePair::log_entries_limit ||
      spec.log_rq_entries.value_or(0) > QueuePair::log_entries_limit || spec.log_rq_stride < 4 ||
      spec.log_rq_stride > QueuePair::log_rq_stride_limit || (spec.srqn && spec.log_rq_entries)) {
    throw std::invalid_argument(number("queue pair", id));
  }
  const uint64_t receive = spec.log_rq_entries ? uint64_t{1} << (*spec.log_rq_entries + spec.log_rq_stride) : 0;
  const uint64_t send = spec.log_sq_entries ? uint64_t{hw::kSendBlock} << *spec.log_sq_entries : 0;
  check_pages(spec.pages, receive + send, "queue pair", id);
  std::lock_guard guard(nic().lock());
  if (qp(id) || ethernet_.has_sq(id)) throw std::invalid_argument(number("there is a queue pair", id));
  const Shared shared{nic().dma(), keys_, gids_, static_cast<Events&>(*this)};
  auto made = std::make_unique<QueuePair>(id, spec, shared, known(cqs_, spec.cqn_send, "no completion queue"),
                                          known(cqs_, spec.cqn_receive, "no completion queue"),
                                          spec.srqn ? known(srqs_, *spec.srqn, "no shared receive queue") : nullptr);
  if (id >= qps_.size()) qps_.resize(id + 1);
  const transport::Service service = made->datagram() ? transport::Service::Datagram : transport::Service::Connected;
  if (!nic().engine().create(made->wire_id(), made.get(), service, spec.source_qpn))
    throw std::invalid_argument(number("queue pair", id));
  qps_[id] = std::move(made);
  qp_count_++;
}

void SoftMlx5::qp_modify(uint32_t id, const Attributes& attributes, uint32_t fields) {
  check_owned();
  {
    std::lock_guard guard(nic().lock());
    QueuePair& pair = known_qp(id);
    transport::Engine& engine = nic().engine();
    Attributes before;
    engine.query(pair.wire_id(), before);
    engine.modify(pair.wire_id(), attributes, fields);
    if (fields & Attributes::HasState) {
      if (attributes.state == State::Reset) {
        pair.reset();
        for (PageFault& fault : page_faults_) fault.waits &= fault.qpn != id;
      } else {
        pair.start();
      }
      if (attributes.state == State::Err && before.state != State::Reset) pair.flush();
      if (attributes.state == State::Rts && pair.sq_pending()) engine.kick(pair.wire_id());
    }
  }
  nic().advance();
}

void SoftMlx5::qp_destroy(uint32_t id) {
  check_there(id);
  std::lock_guard guard(nic().lock());
  nic().engine().destroy(known_qp(id).wire_id());
  std::erase(in_error_, id);
  std::erase(doomed_, id);
  std::erase_if(page_faults_, [id](const PageFault& fault) { return fault.qpn == id; });
  qps_[id].reset();
  qp_count_--;
}

SoftMlx5::QueuePairState SoftMlx5::qp_query(uint32_t id) {
  check_owned();
  std::lock_guard guard(nic().lock());
  const QueuePair& pair = known_qp(id);
  QueuePairState state{};
  nic().engine().query(pair.wire_id(), state.attributes);
  state.sq_counter = pair.sq_counter();
  state.rq_counter = pair.rq_counter();
  return state;
}

void SoftMlx5::fail_qp(uint32_t id) {
  check_owned();
  std::lock_guard guard(nic().lock());
  catastrophic(known_qp(id));
}

// The event first: who finds an entry flushed finds the reason too.
void SoftMlx5::catastrophic(QueuePair& pair) {
  if (pair.in_error()) return;
  Attributes attributes;
  attributes.state = State::Err;
  nic().engine().modify(pair.wire_id(), attributes, Attributes::HasState);
  qp_event(pair, hw::event::kCatastrophic);
  pair.flush();
}

// ---- Page faults
// ------------------------------------------------------------------------------------------------------------------

// Those of entries have a token of their own. That of a peer's request has the number of the queue pair, which the
// driver gives back as both (mlx5_ib_page_fault_resume).
bool SoftMlx5::page_fault(const QueuePair& pair, const transport::Absence& absence) {
  using Of = transport::Absence::Of;
  Eq* eq = eq_of(hw::event::kPageFault);
  if (!eq) return false;
  const auto packet = static_cast<uint16_t>(std::min<uint64_t>(absence.packet, UINT16_MAX));
  uint8_t data[sizeof(hw::Event::data)];
  PageFault fault{0, pair.id(), pair.id(), pair.id(), absence.of, true};
  if (absence.of == Of::Write || absence.of == Of::Read || absence.of == Of::Atomic) {
    fault.type = static_cast<uint8_t>(hw::kFaultRequest | (absence.of == Of::Read ? 0 : hw::kFaultWrite));
    hw::RequestFaultEvent event{};
    event.r_key = big(absence.rkey);
    event.packet_length = big(packet);
    event.rdma_op_len = big(static_cast<uint32_t>(absence.left));
    event.rdma_va = big(absence.remote);
    event.pftype_token = big(uint32_t{fault.type} << hw::kFaultTypeShift | fault.token);
    std::memcpy(data, &event, sizeof data);
    eq->post(hw::event::kPageFault, hw::fault_kind::kRequest, data);
  } else {
    const bool shared = absence.of == Of::Receive && pair.spec().srqn;
    fault.type = absence.of == Of::Source    ? hw::fault::kSendOrWrite
                 : absence.of == Of::Landing ? hw::fault::kReadOrAtomic
                 : shared                    ? hw::fault::kSharedReceive
                                             : hw::fault::kReceive;
    if (shared) fault.queue = *pair.spec().srqn;
    fault.token = page_fault_token_ = (page_fault_token_ + 1) & hw::kQpnMask;
    hw::EntryFaultEvent event{};
    event.bytes_committed = big(static_cast<uint32_t>(absence.done));
    event.wqe_index = big(static_cast<uint16_t>(absence.handle));
    event.packet_length = big(packet);
    event.token = big(fault.token);
    event.pftype_wq = big(uint32_t{fault.type} << hw::kFaultTypeShift | fault.queue);
    std::memcpy(data, &event, sizeof data);
    eq->post(hw::event::kPageFault, hw::fault_kind::kEntry, data);
  }
  page_faults_.push_back(fault);
  return true;
}

SoftMlx5::Resumed SoftMlx5::page_fault_resume(uint8_t type, uint32_t token, uint32_t queue, bool error) {
  check_owned();
  {
    std::lock_guard guard(nic().lock());
    const auto found = std::find_if(page_faults_.begin(), page_faults_.end(),
                                    [&](const PageFault& fault) { return fault.type == type && fault.token == token; });
    if (found == page_faults_.end()) return Resumed::NoFault;
    if (found->queue != queue) return Resumed::AnotherQueue;
    const PageFault fault = *found;
    page_faults_.erase(found);
    if (fault.waits) nic().engine().resume(known_qp(fault.qpn).wire_id(), fault.of, !error);
  }
  nic().advance();
  return Resumed::Yes;
}

size_t SoftMlx5::page_faults() {
  check_owned();
  std::lock_guard guard(nic().lock());
  return page_faults_.size();
}

// ---- Ethernet
// ------------------------------------------------------------------------------------------------------------------

void SoftMlx5::sq_create(uint32_t id, const SendQueueSpec& spec) {
  check_owned();
  if (id >= ids || spec.log_entries > SendRing::log_limit) throw std::invalid_argument(number("send queue", id));
  check_pages(spec.pages, uint64_t{hw::kSendBlock} << spec.log_entries, "send queue", id);
  std::lock_guard guard(nic().lock());
  if (qp(id)) throw std::invalid_argument(number("send queue", id) + " has a queue pair's number");
  ethernet_.sq_create(id, spec, known(cqs_, spec.cqn, "no completion queue"));
}

void SoftMlx5::rq_create(uint32_t id, const ReceiveQueueSpec& spec) {
  check_owned();
  const unsigned least_stride = spec.linked ? 5 : 4;
  if (id >= ids || spec.log_entries > QueuePair::log_entries_limit || spec.log_stride < least_stride ||
      spec.log_stride > Ethernet::log_stride_limit) {
    throw std::invalid_argument(number("receive queue", id));
  }
  if (!spec.srqn) check_pages(spec.pages, uint64_t{1} << (spec.log_entries + spec.log_stride), "receive queue", id);
  std::lock_guard guard(nic().lock());
  ethernet_.rq_create(id, spec, known(cqs_, spec.cqn, "no completion queue"),
                      spec.srqn ? known(srqs_, *spec.srqn, "no shared receive queue") : nullptr);
}

// ---- Events, and the end
// ------------------------------------------------------------------------------------------------------------------

void SoftMlx5::qp_event(const QueuePair& pair, uint8_t type) {
  hw::QueueEvent event{};
  event.qp_srq_n = big(pair.id());
  if (Eq* eq = eq_of(type)) eq->post(type, event);
}

void SoftMlx5::srq_event(const Srq& srq, uint8_t type) {
  hw::QueueEvent event{};
  event.qp_srq_n = big(srq.id());
  if (Eq* eq = eq_of(type)) eq->post(type, event);
}

void SoftMlx5::cq_overrun(const Cq& cq) {
  hw::CqErrorEvent event{};
  event.cqn = big(cq.id());
  event.syndrome = hw::kCqOverrun;
  if (Eq* eq = eq_of(hw::event::kCqError)) eq->post(hw::event::kCqError, event);
}

void SoftMlx5::doom(const QueuePair& pair) {
  if (!pair.in_error()) doomed_.push_back(pair.id());
}

void SoftMlx5::in_error(const QueuePair& pair) {
  if (pair.spec().srqn || !pair.spec().log_rq_entries) return;
  if (std::find(in_error_.begin(), in_error_.end(), pair.id()) == in_error_.end()) in_error_.push_back(pair.id());
  look_after_ = look_first_ns;
  look_at_ = 0;
}

void SoftMlx5::queue_event(uint32_t id, uint8_t kind, uint8_t type) {
  hw::QueueEvent event{};
  event.type = kind;
  event.qp_srq_n = big(id);
  if (Eq* eq = eq_of(type)) eq->post(type, event);
}

bool SoftMlx5::run(uint64_t now) {
  bool did = ethernet_.run();
  while (!doomed_.empty()) {
    const uint32_t id = doomed_.back();
    doomed_.pop_back();
    if (QueuePair* pair = qp(id)) catastrophic(*pair);
    did = true;
  }
  if (in_error_.empty()) [[likely]]
    return did;
  bool flushed = false;
  for (size_t i = std::min(looks, in_error_.size()); i > 0; i--) {
    const uint32_t id = in_error_.front();
    in_error_.pop_front();
    QueuePair* pair = qp(id);
    if (!pair || !pair->in_error()) continue;  // it was reset
    in_error_.push_back(id);
    flushed |= pair->flush();
  }
  if (flushed) look_after_ = look_first_ns;
  if (flushed || now >= look_at_) {
    look_at_ = now + look_after_;
    look_after_ = std::min(2 * look_after_, look_last_ns);
  }
  return did || flushed;
}

// With a virtual clock nothing is posted while time passes: whoever posts then polls, and the NIC looks.
void SoftMlx5::device_stop() {
  nic().ingress(false);
  for (const auto& pair : qps_) {
    if (pair) nic().engine().destroy(pair->wire_id());
  }
  qps_.clear();
  qp_count_ = 0;
  page_faults_.clear();
  doomed_.clear();
  in_error_.clear();
  ethernet_.clear();
  srqs_.clear();
  cqs_.clear();
  event_queues_ = {};
  eqs_.clear();
  keys_.clear();
  gids_.clear();
  healthy_.store(true, std::memory_order_relaxed);
}

void SoftMlx5::device_start() {
  if (firmware_.reset) firmware_.reset();
}

SoftFunction::Counts SoftMlx5::counts() {
  if (!owned()) {
    return {{"qp", 0}, {"cq", 0},  {"mr", 0},         {"eq", 0},        {"srq", 0},        {"sq", 0},
            {"rq", 0}, {"tir", 0}, {"flow_table", 0}, {"dma_pages", 0}, {"arena_bytes", 0}};
  }
  const uint64_t bytes = arena().allocated();
  std::lock_guard guard(nic().lock());
  const Ethernet::Objects of_ethernet = ethernet_.objects();
  return {{"qp", qp_count_},
          {"cq", cqs_.size()},
          {"mr", keys_.size()},
          {"eq", eqs_.size()},
          {"srq", srqs_.size()},
          {"sq", of_ethernet.send},
          {"rq", of_ethernet.receive},
          {"tir", of_ethernet.tirs},
          {"flow_table", of_ethernet.tables},
          {"dma_pages", nic().dma().pages()},
          {"arena_bytes", bytes}};
}

}  // namespace userdma::soft::mlx5
