#include "soft/mlx5/steering.h"

#include <algorithm>
#include <cstring>

#include "soft/mlx5/bytes.h"

namespace userdma::soft::mlx5 {

void Steering::table_set(uint32_t id, const FlowTableSpec& spec) {
  Table table;
  table.miss = spec.miss;
  for (const FlowEntry& given : spec.entries) {
    Entry entry{{}, given.action, given.destinations, given.counters, given.tag};
    Words mask{}, value{};
    const auto put = [](const std::vector<uint8_t>& from, Words& to) {
      std::copy_n(from.begin(), std::min(from.size(), sizeof to), reinterpret_cast<uint8_t*>(to.data()));
    };
    put(given.mask, mask);
    put(given.value, value);
    for (size_t i = 0; i < mask.size(); i++) {
      if (mask[i]) entry.words.push_back({static_cast<uint16_t>(i), mask[i], value[i] & mask[i]});
    }
    table.entries.push_back(std::move(entry));
  }
  tables_[id] = std::move(table);
}

std::pair<uint64_t, uint64_t> Steering::counter(uint32_t id) const {
  const auto found = counters_.find(id);
  return found == counters_.end() ? std::pair<uint64_t, uint64_t>{}
                                  : std::pair{found->second.packets, found->second.bytes};
}

void Steering::clear() {
  tables_.clear();
  counters_.clear();
  root_.reset();
}

// What entries match: the outer headers. Of everything else a packet has zeros.
void Steering::describe(const uint8_t* frame, size_t bytes, const Layer& layer) {
  hw::HeaderMatch match{};
  std::memcpy(match.dmac_47_16, frame, 6);
  std::memcpy(match.smac_47_16, frame + 6, 6);
  uint16_t flags = 0;
  size_t at = 12;
  uint16_t type = load16(frame + at);
  if (type == ether::kVlan || type == ether::kServiceVlan) {
    flags |= type == ether::kVlan ? hw::kMatchTag : hw::kMatchServiceTag;
    if (bytes >= at + 4) match.first_prio = big(load16(frame + at + 2));
    while ((type == ether::kVlan || type == ether::kServiceVlan) && bytes >= at + 6) {
      at += 4;
      type = load16(frame + at);
    }
  }
  match.ethertype = big(type);
  if (layer.version) {
    const uint8_t* packet = frame + layer.l3;
    flags |= static_cast<uint16_t>(layer.version << hw::kMatchVersionShift);
    if (layer.fragment) flags |= hw::kMatchFragment;
    match.ip_protocol = layer.protocol;
    if (layer.version == 4) {
      match.ip_dscp = packet[1];
      match.ipv4_ihl = static_cast<uint8_t>(packet[0] << 4);
      match.ttl_hoplimit = packet[8];
      std::memcpy(match.src_ipv4_src_ipv6 + 12, packet + 12, 4);
      std::memcpy(match.dst_ipv4_dst_ipv6 + 12, packet + 16, 4);
    } else {
      match.ip_dscp = static_cast<uint8_t>(packet[0] << 4 | packet[1] >> 4);
      match.ttl_hoplimit = packet[7];
      std::memcpy(match.src_ipv4_src_ipv6, packet + 8, 16);
      std::memcpy(match.dst_ipv4_dst_ipv6, packet + 24, 16);
    }
    const uint8_t* l4 = frame + layer.l4;
    if (layer.tcp()) {
      flags |= static_cast<uint16_t>((l4[12] & 1) << 8 | l4[13]);
      match.tcp_sport = big(load16(l4));
      match.tcp_dport = big(load16(l4 + 2));
    } else if (layer.udp()) {
      match.udp_sport = big(load16(l4));
      match.udp_dport = big(load16(l4 + 2));
    }
  }
  match.cvlan_tag = big(flags);
  std::memcpy(packet_.data(), &match, sizeof match);
}

const std::vector<Steering::Target>& Steering::route(const uint8_t* frame, size_t bytes, const Layer& layer) {
  targets_.clear();
  if (!root_) return targets_;
  describe(frame, bytes, layer);
  walk(*root_, bytes, 0, 0);
  return targets_;
}

void Steering::walk(uint32_t id, size_t bytes, uint32_t tag, unsigned depth) {
  for (; depth < depth_limit; depth++) {
    const auto found = tables_.find(id);
    if (found == tables_.end()) return;
    const Table& table = found->second;
    const auto entry = std::find_if(table.entries.begin(), table.entries.end(), [&](const Entry& one) {
      return std::all_of(one.words.begin(), one.words.end(),
                         [&](const Word& word) { return (packet_[word.index] & word.mask) == word.value; });
    });
    if (entry == table.entries.end()) {
      if (!table.miss) return;
      id = *table.miss;
      continue;
    }
    for (const uint32_t counter : entry->counters) {
      Counter& counts = counters_[counter];
      counts.packets++;
      counts.bytes += bytes;
    }
    if (entry->action & hw::flow_action::kDrop) return;
    if (entry->tag) tag = entry->tag;
    for (const FlowDestination& to : entry->destinations) {
      if (targets_.size() >= target_limit) return;
      if (to.table) {
        walk(to.id, bytes, tag, depth + 1);
      } else {
        targets_.push_back({to.id, tag});
      }
    }
    return;
  }
}

}  // namespace userdma::soft::mlx5
