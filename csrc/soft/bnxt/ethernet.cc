#include "soft/bnxt/ethernet.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

namespace userdma::soft::bnxt {

namespace {

constexpr size_t longest_packet = 256 << 10;  // of a packet that is to be cut into segments
constexpr unsigned packets_per_turn = 256;
constexpr uint32_t max_entries = 1 << 17;

std::string number(const char* what, uint64_t id) { return std::string(what) + " " + std::to_string(id); }

template <class Map>
auto& known(Map& map, typename Map::key_type id, const char* what) {
  const auto found = map.find(id);
  if (found == map.end()) throw UnknownId(number(what, id));
  return found->second;
}

template <class Map>
void check_new(const Map& map, typename Map::key_type id, const char* what) {
  if (map.contains(id)) throw std::invalid_argument(number(what, id) + " is there already");
}

void check_ring(const RingSpec& spec, const char* what, uint64_t id) {
  if (!spec.entries || spec.entries > max_entries)
    throw std::invalid_argument(number(what, id) + " of " + std::to_string(spec.entries) + " entries");
}

template <class T>
Completions::Entry entry_of(const T& value) {
  static_assert(sizeof value == hw::kEthernetEntry);
  Completions::Entry entry;
  std::memcpy(entry.data(), &value, sizeof value);
  return entry;
}

}  // namespace

// ---- Completion rings ---------------------------------------------------------------------------------------------

Completions::Completions(Dma& dma, uint32_t id, const RingSpec& spec, std::shared_ptr<Nq> nq, uint64_t handle)
    : id_(id),
      ring_(dma, spec.table, uint64_t{spec.entries} * hw::kEthernetEntry),
      entries_(spec.entries),
      nq_(std::move(nq)),
      handle_(handle) {}

void Completions::post(const Entry* entries, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    uint8_t* at = ring_.at(produced_ % entries_ * hw::kEthernetEntry);
    if (at) {
      const bool valid = produced_ / entries_ % 2 == 0;
      uint64_t end;
      std::memcpy(at, entries[i].data(), 8);
      std::memcpy(&end, entries[i].data() + 8, 8);
      end = (end & ~uint64_t{hw::kCompletionValid}) | (valid ? hw::kCompletionValid : 0);
      std::atomic_ref(*reinterpret_cast<uint64_t*>(at + 8)).store(end, std::memory_order_release);
    }
    produced_++;
  }
  if (armed_) notify();
}

void Completions::post_or_wait(const Entry& entry) {
  if (room(1)) {
    post(&entry, 1);
  } else if (waiting_.size() < waiting_limit) {
    waiting_.push_back(entry);
  }
}

void Completions::doorbell(uint32_t word, bool arm, uint32_t toggle) {
  const uint32_t distance = past(word, consumed_, entries_, produced_ - consumed_);
  if (distance == UINT32_MAX) return;
  consumed_ += distance;
  if (arm && toggle == toggle_) armed_ = true;
  while (!waiting_.empty() && produced_ - consumed_ < entries_) {
    post(&waiting_.front(), 1);
    waiting_.pop_front();
  }
  if (armed_ && produced_ != consumed_) notify();
}

void Completions::notify() {
  armed_ = false;
  toggle_ = (toggle_ + 1) & 3;
  hw::NqCqNotification entry{};
  entry.type = static_cast<uint16_t>(hw::nqe_type::kCqNotification | toggle_ << hw::kNqeToggleShift);
  entry.cq_handle_low = static_cast<uint32_t>(handle_);
  entry.cq_handle_high = static_cast<uint32_t>(handle_ >> 32);
  nq_->post(reinterpret_cast<const uint8_t*>(&entry));
}

// ---- Objects ------------------------------------------------------------------------------------------------------

void Ethernet::Posted::doorbell(uint32_t word) {
  const uint32_t distance = past(word, produced, entries, entries - waiting());
  if (distance != UINT32_MAX) produced += distance;
}

bool Ethernet::Posted::read(uint64_t ahead, void* into) {
  const uint8_t* at = ring.at((consumed + ahead) % entries * hw::kEthernetEntry);
  if (!at) return false;
  std::memcpy(into, at, hw::kEthernetEntry);
  return true;
}

void Ethernet::completions_create(uint32_t id, const RingSpec& spec, std::shared_ptr<Nq> nq, uint64_t handle) {
  check_new(completions_, id, "completion ring");
  check_ring(spec, "completion ring", id);
  completions_[id] = std::make_shared<Completions>(dma(), id, spec, std::move(nq), handle);
}

void Ethernet::completions_destroy(uint32_t id) {
  known(completions_, id, "no completion ring");
  completions_.erase(id);
}

void Ethernet::completions_post(uint32_t id, const Completions::Entry& entry) {
  known(completions_, id, "no completion ring")->post_or_wait(entry);
}

void Ethernet::transmit_create(uint32_t id, const RingSpec& spec, uint32_t completions,
                               std::optional<uint32_t> statistics) {
  check_new(transmit_, id, "transmit ring");
  check_ring(spec, "transmit ring", id);
  auto ring = std::make_unique<Transmit>(dma(), spec);
  ring->id = id;
  ring->completions = known(completions_, completions, "no completion ring");
  ring->statistics = known_statistics(statistics);
  transmit_[id] = std::move(ring);
}

void Ethernet::transmit_destroy(uint32_t id) {
  known(transmit_, id, "no transmit ring");
  transmit_.erase(id);
}

void Ethernet::receive_create(uint32_t id, const RingSpec& spec, std::optional<uint32_t> statistics, uint32_t pad,
                              std::optional<uint32_t> aggregation_of) {
  check_new(receive_, id, "receive ring");
  check_ring(spec, "receive ring", id);
  auto ring = std::make_shared<Receive>(dma(), spec);
  ring->statistics = known_statistics(statistics);
  ring->pad = pad;
  ring->of = aggregation_of;
  if (aggregation_of) known(receive_, *aggregation_of, "no receive ring")->aggregation = ring;
  receive_[id] = std::move(ring);
}

void Ethernet::receive_destroy(uint32_t id) {
  const auto ring = known(receive_, id, "no receive ring");
  receive_.erase(id);
  if (!ring->of) return;
  if (const auto found = receive_.find(*ring->of); found != receive_.end() && found->second->aggregation == ring)
    found->second->aggregation = nullptr;
}

void Ethernet::vnic_set(uint32_t id, VnicSpec spec) { vnics_[id] = std::move(spec); }

void Ethernet::vnic_remove(uint32_t id) {
  known(vnics_, id, "no VNIC");
  vnics_.erase(id);
}

void Ethernet::filter_set(uint64_t id, const Mac& mac, const Mac& mask, uint32_t vnic) {
  filters_[id] = {mac, mask, vnic};
}

void Ethernet::filter_remove(uint64_t id) {
  known(filters_, id, "no filter");
  filters_.erase(id);
}

void Ethernet::statistics_create(uint32_t id, uint64_t address, uint64_t period_ns) {
  check_new(statistics_, id, "statistics context");
  auto made = std::make_shared<Statistics>();
  made->address = address;
  made->period = period_ns;
  statistics_[id] = std::move(made);
}

void Ethernet::statistics_destroy(uint32_t id) {
  const auto gone = known(statistics_, id, "no statistics context");
  flush(*gone);
  gone->address = 0;
  if (gone == roce_) roce_.reset();
  statistics_.erase(id);
}

void Ethernet::statistics_clear(uint32_t id) {
  Statistics& statistics = *known(statistics_, id, "no statistics context");
  count_roce(statistics);
  statistics.counts = {};
  statistics.changed = true;
  flush(statistics);
}

void Ethernet::statistics_of_roce(std::optional<uint32_t> id) {
  const auto next = known_statistics(id);
  if (roce_) count_roce(*roce_);
  roce_ = next;
  roce_counted_ = function_.nic().engine().stats();
}

std::shared_ptr<Ethernet::Statistics> Ethernet::known_statistics(std::optional<uint32_t> id) const {
  if (!id) return nullptr;
  return known(statistics_, *id, "no statistics context");
}

void Ethernet::clear() {
  transmit_.clear();
  receive_.clear();
  completions_.clear();
  vnics_.clear();
  filters_.clear();
  statistics_.clear();
  roce_.reset();
  tunnels_ = {};
  port_.clear();
  work_ = counting_ = false;
  due_ = never;
}

// ---- Doorbells ------------------------------------------------------------------------------------------------------

void Ethernet::transmit_doorbell(uint32_t id, uint32_t word) {
  const auto found = transmit_.find(id);
  if (found == transmit_.end()) return;
  found->second->doorbell(word);
  work_ = true;
}

void Ethernet::receive_doorbell(uint32_t id, uint32_t word) {
  if (const auto found = receive_.find(id); found != receive_.end()) found->second->doorbell(word);
}

void Ethernet::completions_doorbell(uint32_t id, uint32_t word, bool arm, uint32_t toggle) {
  const auto found = completions_.find(id);
  if (found == completions_.end()) return;
  found->second->doorbell(word, arm, toggle);
  work_ = true;  // a transmit ring may have waited for room there
}

// ---- Statistics -----------------------------------------------------------------------------------------------------

void Ethernet::count(Statistics* statistics, uint64_t hw::ContextStatistics::* counter, uint64_t by) {
  if (!statistics) return;
  statistics->counts.*counter += by;
  if (statistics->changed) return;
  statistics->changed = counting_ = true;
}

bool Ethernet::roce_moved() const {
  const transport::Stats& now = function_.nic().engine().stats();
  return now.packets_sent != roce_counted_.packets_sent || now.packets_received != roce_counted_.packets_received;
}

// What the transport has counted since it was last asked.
void Ethernet::count_roce(Statistics& statistics) {
  if (&statistics != roce_.get()) return;
  statistics.changed |= roce_moved();
  const transport::Stats& now = function_.nic().engine().stats();
  statistics.counts.tx_ucast_pkts += now.sent.all() - roce_counted_.sent.all();
  statistics.counts.tx_ucast_bytes += now.bytes_sent - roce_counted_.bytes_sent;
  statistics.counts.rx_ucast_pkts += now.received.all() - roce_counted_.received.all();
  statistics.counts.rx_ucast_bytes += now.bytes_received - roce_counted_.bytes_received;
  roce_counted_ = now;
}

void Ethernet::flush(Statistics& statistics) {
  count_roce(statistics);
  if (statistics.changed && statistics.address)
    dma().write(statistics.address, &statistics.counts, sizeof statistics.counts);
  statistics.changed = false;
  statistics.due = never;
}

// ---- Transmit -------------------------------------------------------------------------------------------------------

bool Ethernet::run(uint64_t now) {
  bool did = false;
  if (work_) {
    unsigned budget = packets_per_turn;
    work_ = false;
    for (auto& [id, ring] : transmit_) did |= transmit(*ring, budget);
    if (!budget) work_ = true;
  }
  // On a virtual clock they are written when the context ends: time would jump to them once nobody has anything to do.
  if (roce_ && !roce_->changed && !function_.nic().clock().is_virtual()) {
    roce_->changed = roce_moved();
    counting_ |= roce_->changed;
  }
  if (counting_ || now >= due_) {
    counting_ = false;
    due_ = never;
    for (auto& [id, statistics] : statistics_) {
      if (!statistics->changed || !statistics->period) continue;
      if (statistics->due == never) statistics->due = now + statistics->period;
      if (now >= statistics->due) {
        flush(*statistics);
        did = true;
      }
      due_ = std::min(due_, statistics->due);
    }
  }
  return did;
}

// Sends what it can of a ring. It goes on when its doorbell, its completion ring's or the wire lets it.
bool Ethernet::transmit(Transmit& ring, unsigned& budget) {
  bool did = false;
  while (budget) {
    if (!ring.segments.empty()) {
      if (!send(ring, ring.segments.front())) {
        work_ = true;  // the NIC looks again: wire::Port::blocked
        return did;
      }
      ring.segments.pop_front();
      budget--;
      did = true;
      continue;
    }
    if (ring.owed) {
      if (!ring.completions->room(1)) return did;
      ring.completions->post(&ring.completion, 1);
      ring.owed = false;
      did = true;
    }
    if (!ring.waiting() || !ring.completions->room(1)) return did;
    hw::TxBd first;
    if (ring.read(0, &first)) {
      const unsigned count = (first.tx_bd_len_flags_type & hw::tx_bd::kCountMask) >> hw::tx_bd::kCountShift;
      if ((count ? count : hw::tx_bd::kMostBds) > ring.waiting()) return did;  // it is not all there
    }
    take_packet(ring);
    budget--;
    did = true;
  }
  return did;
}

// The next packet of a ring, off it and cut into the frames that are to be sent.
void Ethernet::take_packet(Transmit& ring) {
  hw::TxBd first{};
  hw::TxBdExt how{};
  const bool there = ring.read(0, &first);
  const uint32_t flags = first.tx_bd_len_flags_type;
  const uint32_t type = flags & hw::tx_bd::kTypeMask;
  const bool extended = type == hw::tx_bd::kLong;
  unsigned count = (flags & hw::tx_bd::kCountMask) >> hw::tx_bd::kCountShift;
  if (!count) count = hw::tx_bd::kMostBds;
  if (!there) count = 1;

  uint32_t error = 0;
  ring.packet.clear();
  if (!there) {
    error = hw::tx_completion::kDmaError;
  } else if ((!extended && type != hw::tx_bd::kShort) || (extended && count < 2)) {
    error = hw::tx_completion::kBadFormat;
  } else if (extended && !ring.read(1, &how)) {
    error = hw::tx_completion::kDmaError;
  } else {
    error = gather(ring, first, count, extended);
  }
  ring.consumed += count;

  if (!error) offload(ring, how);
  if (error) {
    port_.sent.errors++;
    this->count(ring.statistics.get(), &hw::ContextStatistics::tx_error_pkts);
  }
  if (error || !(flags & hw::tx_bd::kNoCompletion)) {
    hw::TxCompletion completion{};
    completion.tx_cmp_flags_type = hw::completion_type::kTx | (error ? hw::tx_completion::kError : 0);
    completion.tx_cmp_opaque = first.tx_bd_opaque;
    completion.tx_cmp_errors_v = error;
    completion.sq_cons_idx = static_cast<uint32_t>(ring.consumed % ring.entries) & hw::tx_completion::kConsumerMask;
    ring.completion = entry_of(completion);
    ring.owed = true;
  }
}

// The packet's bytes. An error's bits, or 0.
uint32_t Ethernet::gather(Transmit& ring, const hw::TxBd& first, unsigned count, bool extended) {
  for (unsigned i = 0; i < count; i++) {
    if (extended && i == 1) continue;
    hw::TxBd bd = first;
    if (i && !ring.read(i, &bd)) return hw::tx_completion::kDmaError;
    const size_t bytes = bd.tx_bd_len_flags_type >> hw::tx_bd::kLengthShift;
    const size_t before = ring.packet.size();
    if (before + bytes > longest_packet) return hw::tx_completion::kExcessiveLength;
    ring.packet.resize(before + bytes);
    if (!dma().read(bd.tx_bd_haddr, ring.packet.data() + before, bytes)) return hw::tx_completion::kDmaError;
  }
  return ring.packet.size() < ether::kHeader ? hw::tx_completion::kZeroLength : 0;
}

// What the extended descriptor asks for.
void Ethernet::offload(Transmit& ring, const hw::TxBdExt& how) {
  std::vector<uint8_t>& packet = ring.packet;
  const uint32_t flags = how.tx_bd_hsize_lflags;
  size_t header = size_t{2} * ((flags & hw::tx_bd_ext::kHeaderMask) >> hw::tx_bd_ext::kHeaderShift);
  if ((how.tx_bd_cfa_meta & hw::tx_bd_ext::kKeyMask) == hw::tx_bd_ext::kKeyVlan) {
    const uint32_t kind = (how.tx_bd_cfa_meta & hw::tx_bd_ext::kTpidMask) >> hw::tx_bd_ext::kTpidShift;
    uint8_t tag[ether::kTag];
    store16(tag, kind == 0 ? ether::kServiceVlan : ether::kVlan);
    store16(tag + 2, static_cast<uint16_t>(how.tx_bd_cfa_meta & hw::tx_bd_ext::kVlanMask));
    packet.insert(packet.begin() + 12, tag, tag + sizeof tag);
    header += ether::kTag;
  }
  if (flags & hw::tx_bd_ext::kSegment) {
    if (segment(packet, header, how.tx_bd_mss & hw::tx_bd_ext::kMssMask, tunnels_, ring.segments)) return;
    port_.sent.errors++;
    return count(ring.statistics.get(), &hw::ContextStatistics::tx_error_pkts);
  }
  if (flags & (hw::tx_bd_ext::kL4Checksum | hw::tx_bd_ext::kIpChecksum)) {
    const Layers layers = parse(packet.data(), packet.size(), packet.size(), tunnels_);
    const Layer& layer = layers.innermost();
    if (flags & hw::tx_bd_ext::kIpChecksum) set_ip_checksum(packet.data(), layer);
    if (flags & hw::tx_bd_ext::kL4Checksum && layer.payload) set_l4_checksum(packet.data(), layer);
  }
  ring.segments.push_back(std::move(packet));
  packet = {};
}

// False: the wire has no room now.
bool Ethernet::send(Transmit& ring, std::vector<uint8_t>& frame) {
  Statistics* statistics = ring.statistics.get();
  switch (port_.send(frame)) {
    case EthernetPort::Sent::NoRoom:
      return false;
    case EthernetPort::Sent::TooLong:
      count(statistics, &hw::ContextStatistics::tx_error_pkts);
      return true;
    case EthernetPort::Sent::NoLink:
      count(statistics, &hw::ContextStatistics::tx_discard_pkts);
      return true;
    case EthernetPort::Sent::Yes:
      break;
  }
  switch (cast(frame.data())) {
    case Cast::Unicast:
      count(statistics, &hw::ContextStatistics::tx_ucast_pkts);
      count(statistics, &hw::ContextStatistics::tx_ucast_bytes, frame.size());
      break;
    case Cast::Multicast:
      count(statistics, &hw::ContextStatistics::tx_mcast_pkts);
      count(statistics, &hw::ContextStatistics::tx_mcast_bytes, frame.size());
      break;
    case Cast::Broadcast:
      count(statistics, &hw::ContextStatistics::tx_bcast_pkts);
      count(statistics, &hw::ContextStatistics::tx_bcast_bytes, frame.size());
  }
  return true;
}

// ---- Receive --------------------------------------------------------------------------------------------------------

void Ethernet::packet(const wire::Header&, const wire::Span* payload, size_t spans) {
  const EthernetPort::Frame frame = port_.arrived(payload, spans);
  if (!frame.at) return;
  const Cast kind = cast(frame.at);
  bool taken = false;
  for (const auto& [id, vnic] : vnics_) {
    if (takes(id, vnic, frame.at, kind)) taken |= deliver(vnic, frame.at, frame.bytes);
  }
  if (!taken) port_.received.discards++;
}

bool Ethernet::takes(uint32_t id, const VnicSpec& vnic, const uint8_t* frame, Cast kind) const {
  if (vnic.promiscuous || (kind == Cast::Broadcast && vnic.broadcast) ||
      (kind == Cast::Multicast && vnic.all_multicast)) {
    return true;
  }
  Mac to;
  std::memcpy(to.data(), frame, to.size());
  if (kind == Cast::Multicast && std::find(vnic.multicast.begin(), vnic.multicast.end(), to) != vnic.multicast.end())
    return true;
  return std::any_of(filters_.begin(), filters_.end(), [&](const auto& each) {
    const Filter& filter = each.second;
    if (filter.vnic != id) return false;
    for (size_t i = 0; i < to.size(); i++) {
      if ((to[i] ^ filter.mac[i]) & filter.mask[i]) return false;
    }
    return true;
  });
}

// Which rings a packet goes to, by its hash if the VNIC wants one.
const VnicSpec::Rings& Ethernet::steer(const VnicSpec& vnic, const uint8_t* frame, const Layer& layer, uint32_t& hash,
                                       uint32_t& flags, uint32_t& misc) const {
  if (vnic.table.empty() || !layer.version) return vnic.rings;
  const bool v4 = layer.version == 4;
  const uint32_t of4 = layer.tcp()   ? (v4 ? hash_type::kTcpIpv4 : hash_type::kTcpIpv6)
                       : layer.udp() ? (v4 ? hash_type::kUdpIpv4 : hash_type::kUdpIpv6)
                                     : 0;
  const bool ports = (vnic.hash & of4) != 0;
  if (!ports && !(vnic.hash & (v4 ? hash_type::kIpv4 : hash_type::kIpv6))) return vnic.rings;
  hash = toeplitz(vnic.key.data(), frame, layer, ports);
  flags |= hw::rx_completion::kHashValid;
  misc |= (ports ? hw::rx_completion::kHashOf4 : hw::rx_completion::kHashOf2) << hw::rx_completion::kHashKindShift;
  return vnic.table[hash % vnic.table.size()];
}

// Into the buffers of a receive ring. False: dropped.
bool Ethernet::deliver(const VnicSpec& vnic, const uint8_t* frame, size_t bytes) {
  namespace rx = hw::rx_completion;
  uint32_t flags = hw::completion_type::kRxV3;
  uint32_t misc = 0;
  uint32_t checked = 0;
  uint32_t errors = 0;
  uint32_t hash = 0;

  // The hash and the checksums do not care for a tag.
  const Layers layers = parse(frame, bytes, bytes);
  const Layer& layer = layers.outer;
  const VnicSpec::Rings rings = steer(vnic, frame, layer, hash, flags, misc);
  const auto ring_found = receive_.find(rings.receive);
  const auto completions_found = completions_.find(rings.completions);
  if (ring_found == receive_.end() || completions_found == completions_.end()) return false;
  Receive& ring = *ring_found->second;
  Completions& completions = *completions_found->second;
  Statistics* statistics = ring.statistics.get();
  if (bytes > vnic.mru) {
    port_.received.errors++;
    count(statistics, &hw::ContextStatistics::rx_error_pkts);
    return true;
  }

  if (layer.version) {
    flags |= layer.tcp() ? rx::kKindTcp : layer.udp() ? rx::kKindUdp : rx::kKindIp;
    checked |= rx::kIpChecked;
    if (!ip_checksum_good(frame, layer)) errors |= rx::kIpChecksumError;
    const bool unsummed = layer.udp() && load16(frame + layer.l4 + 6) == 0;
    if (layer.payload && !unsummed) {
      checked |= rx::kL4Checked;
      if (!l4_checksum_good(frame, layer)) errors |= rx::kL4ChecksumError;
    }
  }

  size_t head = layer.payload;  // of headers, in the buffer
  uint32_t tag = 0;
  const uint16_t type = load16(frame + 12);
  const bool tagged = bytes >= ether::kHeader + ether::kTag && (type == ether::kVlan || type == ether::kServiceVlan);
  const Cast kind = cast(frame);
  const size_t on_wire = bytes;
  if (vnic.strip_vlan && tagged) {
    tag = load16(frame + 14);
    misc |= rx::kVlanValid | (type == ether::kVlan ? rx::kVlan8021q : rx::kVlan8021ad);
    stripped_.assign(frame, frame + 12);
    stripped_.insert(stripped_.end(), frame + 16, frame + bytes);
    frame = stripped_.data();
    bytes = stripped_.size();
    if (head) head -= ether::kTag;
  }

  // Where its bytes go: the receive buffer, and the aggregation buffers for what is past `first`.
  hw::RxBd bd{};
  const auto drop = [&] {
    count(statistics, &hw::ContextStatistics::rx_discard_pkts);
    return false;
  };
  if (!ring.waiting() || !ring.read(0, &bd)) return drop();
  const size_t room = bd.rx_bd_len_flags_type >> hw::rx_bd::kLengthShift;
  const size_t pad = std::min<size_t>(ring.pad, room);
  size_t first = std::min(bytes, room - pad);
  if (Receive* aggregation = ring.aggregation.get()) {
    const bool split = head && bytes > vnic.split_threshold && head <= room - pad && head < bytes &&
                       (layer.version == 4 ? vnic.split_ipv4 : vnic.split_ipv6);
    if (split) {
      first = head;
      flags |= rx::kSplit;
    } else if (vnic.jumbo_threshold && bytes > vnic.jumbo_threshold) {
      first = std::min<size_t>(first, vnic.jumbo_threshold);
    }
    if (!split && first < bytes) flags |= rx::kJumbo;
    // All of its buffers must be there before one is taken.
    size_t left = bytes - first;
    unsigned needed = 0;
    while (left && needed < rx::kMostBuffers && needed < aggregation->waiting()) {
      hw::RxBd more{};
      if (!aggregation->read(needed, &more)) return drop();
      left -= std::min<size_t>(left, more.rx_bd_len_flags_type >> hw::rx_bd::kLengthShift);
      needed++;
    }
    if (left) return drop();
    misc |= needed << rx::kBuffersShift;
  } else if (first < bytes) {
    errors |= rx::kDidNotFit;
  }
  const unsigned buffers = (misc >> rx::kBuffersShift) & rx::kMostBuffers;
  if (!completions.room(2 + buffers)) return drop();

  if (!dma().write(bd.rx_bd_haddr + pad, frame, first)) errors = (errors & ~rx::kBadFormat) | rx::kBadFormat;
  ring.consumed++;
  std::array<Completions::Entry, 2 + rx::kMostBuffers> entries;
  size_t at = first;
  for (unsigned i = 0; i < buffers; i++) {
    hw::RxBd more{};
    ring.aggregation->read(0, &more);
    ring.aggregation->consumed++;
    const size_t n = std::min<size_t>(bytes - at, more.rx_bd_len_flags_type >> hw::rx_bd::kLengthShift);
    if (!dma().write(more.rx_bd_haddr, frame + at, n)) errors |= rx::kBadFormat;
    at += n;
    hw::RxAggregate aggregate{};
    aggregate.rx_agg_cmp_len_flags_type =
        hw::completion_type::kRxAggregate | static_cast<uint32_t>(n << rx::kLengthShift);
    aggregate.rx_agg_cmp_opaque = more.rx_bd_opaque;
    entries[2 + i] = entry_of(aggregate);
  }
  if (errors) flags |= rx::kError;
  hw::RxCompletion completion{};
  completion.rx_cmp_len_flags_type = flags | static_cast<uint32_t>(first << rx::kLengthShift);
  completion.rx_cmp_opaque = bd.rx_bd_opaque;
  completion.rx_cmp_misc_v1 = misc;
  completion.rx_cmp_rss_hash = hash;
  hw::RxCompletionExt extension{};
  extension.rx_cmp_flags2 = checked;
  extension.rx_cmp_cfa_code_errors_v2 = errors | tag << rx::kVlanTagShift;
  entries[0] = entry_of(completion);
  entries[1] = entry_of(extension);
  completions.post(entries.data(), 2 + buffers);

  switch (kind) {
    case Cast::Unicast:
      count(statistics, &hw::ContextStatistics::rx_ucast_pkts);
      count(statistics, &hw::ContextStatistics::rx_ucast_bytes, on_wire);
      break;
    case Cast::Multicast:
      count(statistics, &hw::ContextStatistics::rx_mcast_pkts);
      count(statistics, &hw::ContextStatistics::rx_mcast_bytes, on_wire);
      break;
    case Cast::Broadcast:
      count(statistics, &hw::ContextStatistics::rx_bcast_pkts);
      count(statistics, &hw::ContextStatistics::rx_bcast_bytes, on_wire);
  }
  return true;
}

}  // namespace userdma::soft::bnxt
