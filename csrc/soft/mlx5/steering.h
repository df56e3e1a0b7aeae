// Flow steering: tables of entries that match a received packet's headers, count it, and say where it goes on to.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hw/mlx5_ethernet.h"
#include "soft/frame.h"

namespace userdma::soft::mlx5 {

namespace hw = userdma::hw::mlx5;

struct FlowDestination {
  bool table = false;  // else a TIR
  uint32_t id = 0;
};

struct FlowEntry {
  std::vector<uint8_t> mask;  // of fte_match_param, from its beginning
  std::vector<uint8_t> value;
  uint32_t action = 0;  // hw::flow_action
  std::vector<FlowDestination> destinations;
  std::vector<uint32_t> counters;
  uint32_t tag = 0;
};

struct FlowTableSpec {
  std::optional<uint32_t> miss;
  std::vector<FlowEntry> entries;  // the first that matches counts
};

class Steering {
 public:
  void table_set(uint32_t id, const FlowTableSpec& spec);
  bool table_remove(uint32_t id) { return tables_.erase(id) != 0; }
  void root_set(std::optional<uint32_t> id) { root_ = id; }
  std::pair<uint64_t, uint64_t> counter(uint32_t id) const;
  void counter_clear(uint32_t id) { counters_.erase(id); }
  void clear();
  size_t tables() const { return tables_.size(); }

  struct Target {
    uint32_t tir;
    uint32_t tag;
  };
  // Where a frame goes to: perhaps to several, or to nobody.
  const std::vector<Target>& route(const uint8_t* frame, size_t bytes, const Layer& layer);

 private:
  static constexpr unsigned depth_limit = 64;  // of tables behind tables
  static constexpr size_t target_limit = 64;

  using Words = std::array<uint64_t, hw::kMatchBytes / 8>;
  struct Word {
    uint16_t index;
    uint64_t mask;
    uint64_t value;
  };
  struct Entry {
    std::vector<Word> words;  // those that anything is asked of
    uint32_t action;
    std::vector<FlowDestination> destinations;
    std::vector<uint32_t> counters;
    uint32_t tag;
  };
  struct Table {
    std::optional<uint32_t> miss;
    std::vector<Entry> entries;
  };
  struct Counter {
    uint64_t packets = 0;
    uint64_t bytes = 0;
  };

  void describe(const uint8_t* frame, size_t bytes, const Layer& layer);
  void walk(uint32_t table, size_t bytes, uint32_t tag, unsigned depth);

  std::unordered_map<uint32_t, Table> tables_;
  std::unordered_map<uint32_t, Counter> counters_;
  std::optional<uint32_t> root_;
  Words packet_{};
  std::vector<Target> targets_;
};

}  // namespace userdma::soft::mlx5
