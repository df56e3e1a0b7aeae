// The Ethernet part's data path: transmit, receive, aggregation and completion rings, virtual NICs (VNICs), filters and
// statistics contexts. The firmware makes and ends them.
//
// A packet leaves by a transmit ring, whose offloads (checksums, segmentation, VLAN tag) are done here; it comes in by
// the filters, which lead to a VNIC, and by the VNIC's hash to a receive ring and its completion ring. A packet that
// finds no buffer is dropped and counted.
//
// The NIC's lock is held in every call. An id that there is none of throws UnknownId, one that there is already
// std::invalid_argument.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hw/bnxt_ethernet.h"
#include "soft/bnxt/queues.h"
#include "soft/bnxt/ring.h"
#include "soft/ethernet_port.h"
#include "soft/frame.h"
#include "soft/nic.h"
#include "soft/soft_function.h"

namespace userdma::soft::bnxt {

// Where an Ethernet ring lies.
struct RingSpec {
  PageTable table;
  uint32_t entries = 0;
};

// A VNIC: which packets it takes beside those of its filters, and what becomes of them.
struct VnicSpec {
  // A receive ring and the completion ring that tells of its packets. No ring: packets are dropped.
  struct Rings {
    uint32_t receive = UINT32_MAX;
    uint32_t completions = UINT32_MAX;
  };

  Rings rings;  // where nothing says otherwise
  uint32_t mru = 0;
  bool strip_vlan = false;

  bool promiscuous = false;
  bool broadcast = false;
  bool all_multicast = false;
  std::vector<Mac> multicast;

  // Receive-side scaling: the hash picks one of `table`, if it is not empty and the packet is of a kind that `hash`
  // (VNIC_RSS_CFG's hash_type) has.
  std::vector<Rings> table;
  uint32_t hash = 0;
  std::array<uint8_t, toeplitz_key> key{};

  // Placement where the receive ring has an aggregation ring.
  uint32_t jumbo_threshold = 0;  // longer packets go on in aggregation buffers; 0: a buffer's size
  bool split_ipv4 = false;       // headers in the receive buffer, payload in aggregation buffers
  bool split_ipv6 = false;
  uint32_t split_threshold = 0;
};

// VNIC_RSS_CFG's hash_type.
namespace hash_type {
inline constexpr uint32_t kIpv4 = 0x01;
inline constexpr uint32_t kTcpIpv4 = 0x02;
inline constexpr uint32_t kUdpIpv4 = 0x04;
inline constexpr uint32_t kIpv6 = 0x08;
inline constexpr uint32_t kTcpIpv6 = 0x10;
inline constexpr uint32_t kUdpIpv6 = 0x20;
}  // namespace hash_type

// A completion ring of the Ethernet part: 16-byte entries with a valid bit, and a notification if it is armed.
class Completions {
 public:
  using Entry = std::array<uint8_t, hw::kEthernetEntry>;

  Completions(Dma& dma, uint32_t id, const RingSpec& spec, std::shared_ptr<Nq> nq, uint64_t handle);

  uint32_t id() const { return id_; }
  bool room(unsigned entries) const { return waiting_.empty() && produced_ - consumed_ + entries <= entries_; }
  // Writes entries, for which there is room.
  void post(const Entry* entries, unsigned count);
  // Writes one, or keeps it until there is room.
  void post_or_wait(const Entry& entry);
  // What its driver has read; armed or not. An arming doorbell with a toggle other than that of the last notification
  // is an old one.
  void doorbell(uint32_t word, bool arm, uint32_t toggle);

 private:
  static constexpr size_t waiting_limit = 1 << 12;

  void notify();

  const uint32_t id_;
  Ring ring_;
  const uint32_t entries_;
  const std::shared_ptr<Nq> nq_;
  const uint64_t handle_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  bool armed_ = false;
  uint8_t toggle_ = 0;
  std::deque<Entry> waiting_;
};

class Ethernet final : public Frames {
 public:
  Ethernet(SoftFunction& function, const Mac& mac) : function_(function), port_(function, mac) {}

  void completions_create(uint32_t id, const RingSpec& spec, std::shared_ptr<Nq> nq, uint64_t handle);
  void completions_destroy(uint32_t id);
  void completions_post(uint32_t id, const Completions::Entry& entry);
  void transmit_create(uint32_t id, const RingSpec& spec, uint32_t completions, std::optional<uint32_t> statistics);
  void transmit_destroy(uint32_t id);
  // `pad`: bytes left free before a packet. `aggregation_of`: it is the aggregation ring of that receive ring.
  void receive_create(uint32_t id, const RingSpec& spec, std::optional<uint32_t> statistics, uint32_t pad,
                      std::optional<uint32_t> aggregation_of);
  void receive_destroy(uint32_t id);

  void vnic_set(uint32_t id, VnicSpec spec);
  void vnic_remove(uint32_t id);
  void filter_set(uint64_t id, const Mac& mac, const Mac& mask, uint32_t vnic);
  void filter_remove(uint64_t id);
  // Counters go to `address` (0: nowhere) at most `period_ns` after they changed (0: only at the end).
  void statistics_create(uint32_t id, uint64_t address, uint64_t period_ns);
  // Has the context count the packets of the RoCE part; nothing: no context does.
  void statistics_of_roce(std::optional<uint32_t> id);
  void statistics_destroy(uint32_t id);
  void statistics_clear(uint32_t id);

  void tunnels(TunnelPorts ports) { tunnels_ = std::move(ports); }
  void link(bool up) { port_.link(up); }
  void clear();  // power-on

  struct Objects {
    size_t completions, transmit, receive, vnics, filters, statistics;
  };
  Objects objects() const {
    return {completions_.size(), transmit_.size(), receive_.size(), vnics_.size(), filters_.size(), statistics_.size()};
  }
  const PortCounts& sent() const { return port_.sent; }
  const PortCounts& received() const { return port_.received; }

  void transmit_doorbell(uint32_t id, uint32_t word);
  void receive_doorbell(uint32_t id, uint32_t word);
  void completions_doorbell(uint32_t id, uint32_t word, bool arm, uint32_t toggle);

  void packet(const wire::Header& header, const wire::Span* payload, size_t spans) override;
  bool run(uint64_t now) override;
  bool busy() const override { return work_; }
  uint64_t next_deadline() const override { return due_; }

 private:
  struct Statistics {
    uint64_t address = 0;
    uint64_t period = 0;
    uint64_t due = never;
    bool changed = false;
    hw::ContextStatistics counts{};
  };

  // A ring that the driver fills.
  struct Posted {
    Posted(Dma& dma, const RingSpec& spec)
        : ring(dma, spec.table, uint64_t{spec.entries} * hw::kEthernetEntry), entries(spec.entries) {}
    uint64_t waiting() const { return produced - consumed; }
    void doorbell(uint32_t word);
    // The descriptor `ahead` of the next one. False: its memory is not there.
    bool read(uint64_t ahead, void* into);

    Ring ring;
    const uint32_t entries;
    uint64_t produced = 0;
    uint64_t consumed = 0;
  };

  struct Transmit : Posted {
    using Posted::Posted;
    uint32_t id = 0;
    std::shared_ptr<Completions> completions;
    std::shared_ptr<Statistics> statistics;
    std::vector<uint8_t> packet;                // as the driver gave it
    std::deque<std::vector<uint8_t>> segments;  // frames of the packet, still to be sent
    bool owed = false;                          // a completion, once they are
    Completions::Entry completion{};
  };

  struct Receive : Posted {
    using Posted::Posted;
    std::shared_ptr<Statistics> statistics;
    uint32_t pad = 0;
    std::shared_ptr<Receive> aggregation;
    std::optional<uint32_t> of;  // it is the aggregation ring of that one
  };

  struct Filter {
    Mac mac;
    Mac mask;
    uint32_t vnic;
  };

  Dma& dma() { return function_.nic().dma(); }
  std::shared_ptr<Statistics> known_statistics(std::optional<uint32_t> id) const;

  // Transmit.
  bool transmit(Transmit& ring, unsigned& budget);
  void take_packet(Transmit& ring);
  uint32_t gather(Transmit& ring, const hw::TxBd& first, unsigned count, bool extended);
  void offload(Transmit& ring, const hw::TxBdExt& how);
  bool send(Transmit& ring, std::vector<uint8_t>& frame);

  // Receive.
  bool takes(uint32_t id, const VnicSpec& vnic, const uint8_t* frame, Cast cast) const;
  bool deliver(const VnicSpec& vnic, const uint8_t* frame, size_t bytes);
  const VnicSpec::Rings& steer(const VnicSpec& vnic, const uint8_t* frame, const Layer& layer, uint32_t& hash,
                               uint32_t& flags, uint32_t& misc) const;

  void count(Statistics* statistics, uint64_t hw::ContextStatistics::* counter, uint64_t by = 1);
  void flush(Statistics& statistics);
  bool roce_moved() const;  // since it was counted
  void count_roce(Statistics& statistics);

  SoftFunction& function_;
  EthernetPort port_;
  std::map<uint32_t, std::shared_ptr<Completions>> completions_;
  std::map<uint32_t, std::unique_ptr<Transmit>> transmit_;
  std::map<uint32_t, std::shared_ptr<Receive>> receive_;
  std::map<uint32_t, VnicSpec> vnics_;
  std::map<uint64_t, Filter> filters_;
  std::map<uint32_t, std::shared_ptr<Statistics>> statistics_;
  std::shared_ptr<Statistics> roce_;  // the one of the RoCE part
  transport::Stats roce_counted_;     // what it has counted of it
  TunnelPorts tunnels_;
  std::vector<uint8_t> stripped_;  // a frame whose tag was taken off
  bool work_ = false;              // a transmit ring may be able to go on
  bool counting_ = false;          // some statistics changed and have no time yet
  uint64_t due_ = never;           // the first statistics
};

}  // namespace userdma::soft::bnxt
