// A ConnectX in software with one queue pair, whose driver is the test: entries, doorbells and completions byte by byte
// as the device's headers say (hw/mlx5.h and hw/mlx5_device.h, which a test compares with rdma-core's and the
// kernel's).
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hw/mlx5.h"
#include "hw/mlx5_device.h"
#include "soft/mlx5/soft_mlx5.h"

namespace mlx5_world {

using namespace userdma;  // NOLINT
namespace chip = hw::mlx5;
using soft::mlx5::MkeySpec;
using soft::mlx5::Pages;
using soft::mlx5::QueuePairSpec;
using soft::mlx5::SoftMlx5;
using soft::transport::Attributes;
using soft::transport::State;

inline uint16_t be(uint16_t value) { return __builtin_bswap16(value); }
inline uint32_t be(uint32_t value) { return __builtin_bswap32(value); }
inline uint64_t be(uint64_t value) { return __builtin_bswap64(value); }

// Memory as a list of pages.
struct Paged {
  host::Memory memory;
  Pages pages;

  Paged(SoftMlx5& nic, size_t bytes, unsigned shift = 12, uint64_t offset = 0) {
    memory = nic.alloc_dma(bytes + offset);
    pages.page_shift = shift;
    pages.offset = offset;
    for (const auto& run : memory.runs) {
      for (uint64_t at = 0; at < run.bytes; at += uint64_t{1} << shift) pages.pages.push_back(run.address + at);
    }
  }
  uint8_t* at(size_t offset) { return memory.data + pages.offset + offset; }
};

struct Shape {
  bool iommu = true;
  unsigned log_sq = 5;
  unsigned log_rq = 5;
  unsigned cqe_bytes = 64;
  uint64_t offset = 0;  // of the queues in their first pages
  std::optional<uint32_t> srqn;
  uint8_t type = chip::qp_type::kRc;
  uint64_t longest = 1u << 31;
  bool big_endian_atomics = false;
};

using Segment = std::array<uint8_t, 16>;

template <class T>
std::vector<Segment> segments(const T& value) {
  std::vector<Segment> out((sizeof value + 15) / 16);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::vector<Segment> operator+(std::vector<Segment> a, const std::vector<Segment>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline void fill(uint8_t* at, size_t n, uint8_t seed) {
  for (size_t i = 0; i < n; i++) at[i] = static_cast<uint8_t>(seed + i * 7 + i / 251);
}

// Its queue pair is connected to itself, or to that of another one.
struct World {
  explicit World(const Shape& shape = {}, World* other = nullptr)
      : shape(shape),
        mac(other ? 2 : 1),
        clock(other ? other->clock : std::make_shared<soft::VirtualClock>()),
        wire(other ? other->wire : soft::wire::Wire::make()),
        nic(options()),
        bar(nic.map(0)),
        eq(nic, eq_entries * 64),
        scq(nic, cq_entries * shape.cqe_bytes, 12, shape.offset),
        rcq(nic, cq_entries * shape.cqe_bytes, 12, shape.offset),
        queues(nic, rq_bytes() + (64u << shape.log_sq), 12, shape.offset),
        records(nic, 4096),
        data(nic, data_bytes) {
    nic.set_config(4, 2, 6);
    for (uint32_t i = 0; i < eq_entries; i++) eq.at(i * 64)[63] = 1;  // MLX5_EQE_OWNER_INIT_VAL
    for (Paged* cq : {&scq, &rcq}) {
      for (uint32_t i = 0; i < cq_entries; i++) cqe(*cq, i)[63] = 0xf1;  // an invalid opcode
    }
    soft::mlx5::EqSpec events{eq.pages, std::bit_width(eq_entries) - 1u, 1, {}};
    for (int type = 1; type < 0x20; type++) events.events.push_back(static_cast<uint8_t>(type));
    nic.eq_create(3, events);
    uint32_t id = send_cq;
    for (Paged* cq : {&scq, &rcq}) {
      soft::mlx5::CqSpec spec;
      spec.pages = cq->pages;
      spec.log_entries = std::bit_width(cq_entries) - 1u;
      spec.stride = shape.cqe_bytes;
      spec.eqn = 3;
      spec.record = record(id == send_cq ? 0 : 1);
      nic.cq_create(id++, spec);
    }
    qp.type = shape.type;
    qp.longest = shape.longest;
    qp.big_endian_atomics = shape.big_endian_atomics;
    qp.pd = pd;
    qp.pages = queues.pages;
    qp.record = record(2);
    if (!shape.srqn) qp.log_rq_entries = shape.log_rq;
    qp.log_rq_stride = 6;
    qp.log_sq_entries = shape.log_sq;
    qp.cqn_send = send_cq;
    qp.cqn_receive = receive_cq;
    if (shape.srqn) {
      make_srq();
      qp.srqn = shape.srqn;
    }
    nic.qp_create(qpn, qp);
    nic.mkey_create(key, mtt(data.pages.pages));
    nic.ingress(true);
    nic.gid_set(0, make_gid(mac));
    if (!other) {
      connect(mac);
      return;
    }
    Attributes reset;
    reset.state = State::Reset;
    other->nic.qp_modify(qpn, reset, Attributes::HasState);
    other->connect(mac);
    connect(other->mac);
  }

  SoftMlx5::Options options() const {
    SoftMlx5::Options o;
    o.name = "soft:test";
    o.wire = wire;
    o.clock = clock;
    o.mac = {2, 0, 0, 0, 9, mac};
    o.iommu = shape.iommu;
    o.seed = 3;
    return o;
  }

  static soft::mlx5::Gid make_gid(uint8_t number) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, number}, {2, 0, 0, 0, 9, number}};
  }

  MkeySpec mtt(std::vector<uint64_t> pages) const {
    MkeySpec spec;
    spec.pd = pd;
    spec.access = 0xf;
    spec.start = va;
    spec.bytes = data_bytes;
    spec.pages = std::move(pages);
    return spec;
  }

  void make_srq() {
    srq.emplace(nic, 64u << shape.log_rq);
    for (uint32_t i = 0; i < 1u << shape.log_rq; i++) {
      chip::NextSegment next{};
      next.next_wqe_index = be(static_cast<uint16_t>((i + 1) % (1u << shape.log_rq)));
      std::memcpy(srq->at(i * 64), &next, sizeof next);
    }
    soft::mlx5::SrqSpec spec;
    spec.pd = pd;
    spec.pages = srq->pages;
    spec.log_entries = shape.log_rq;
    spec.log_stride = 6;
    spec.record = record(3);
    nic.srq_create(*shape.srqn, spec);
  }

  void connect(uint8_t to, bool sends = true) {
    const soft::mlx5::Gid own = make_gid(mac), peer = make_gid(to);
    Attributes a;
    a.state = State::Init;
    a.access = 0xf;
    a.qkey = qkey;
    nic.qp_modify(qpn, a, Attributes::HasState | Attributes::HasAccess | Attributes::HasQkey);
    a.state = State::Rtr;
    a.dest_qp = qpn;
    a.mtu = 4096;
    a.rq_psn = psn;
    std::memcpy(a.dmac, peer.mac, 6);
    std::memcpy(a.smac, own.mac, 6);
    std::memcpy(a.sgid, own.gid, 16);
    std::memcpy(a.dgid, peer.gid, 16);
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    nic.qp_modify(qpn, a,
                  Attributes::HasState | Attributes::HasDestQp | Attributes::HasMtu | Attributes::HasRqPsn |
                      Attributes::HasDmac | Attributes::HasSmac | Attributes::HasSgid | Attributes::HasDgid |
                      Attributes::HasMaxDestRdAtomic | Attributes::HasMinRnrTimer);
    if (!sends) return;
    a.state = State::Rts;
    a.sq_psn = psn;
    a.timeout = 14;
    a.retry = 7;
    a.rnr_retry = rnr_retry;
    a.max_rd_atomic = 4;
    nic.qp_modify(qpn, a,
                  Attributes::HasState | Attributes::HasSqPsn | Attributes::HasTimeout | Attributes::HasRetry |
                      Attributes::HasRnrRetry | Attributes::HasMaxRdAtomic);
  }

  void state(State to) {
    Attributes a;
    a.state = to;
    nic.qp_modify(qpn, a, Attributes::HasState);
  }

  size_t rq_bytes() const { return shape.srqn ? 0 : 64u << shape.log_rq; }

  // Doorbell records are 64 bytes apart: of the completion queues, the queue pair, the shared receive queue.
  uint64_t record(unsigned which) const { return records.memory.runs[0].address + 64 * which; }
  void set_record(unsigned which, unsigned word, uint32_t value) {
    value = be(value);
    std::memcpy(records.at(64 * which + 4 * word), &value, 4);
  }

  // ---- Posting

  // Writes an entry with the segments given behind its control segment. The doorbell is not rung.
  void post(uint8_t opcode, const std::vector<Segment>& rest, uint8_t flags = chip::control::kCompletion,
            uint32_t immediate = 0) {
    chip::ControlSegment control{};
    control.opmod_idx_opcode = be(uint32_t{static_cast<uint16_t>(posted)} << 8 | opcode);
    control.qpn_ds = be(qpn << 8 | static_cast<uint32_t>(1 + rest.size()));
    control.fm_ce_se = flags;
    control.imm = be(immediate);
    const std::vector<Segment> all = segments(control) + rest;
    for (size_t i = 0; i < all.size(); i++) {
      const size_t at = (posted * 64 + i * 16) % (64u << shape.log_sq);
      std::memcpy(queues.at(rq_bytes() + at), all[i].data(), 16);
    }
    std::memcpy(&last, &control, sizeof last);
    posted += (all.size() + 3) / 4;
  }

  void kick() {
    set_record(2, 1, static_cast<uint16_t>(posted));
    ring();
  }
  void ring() { bar.write<uint64_t>(uar + 0x800, last); }

  static std::vector<Segment> data_segment(uint64_t address, uint32_t lkey, uint32_t bytes) {
    return segments(chip::DataSegment{be(bytes), be(lkey), be(address)});
  }
  std::vector<Segment> sge(size_t at, uint32_t n) const { return data_segment(va + at, key, n); }
  static std::vector<Segment> remote(uint64_t address, uint32_t rkey) {
    return segments(chip::RemoteSegment{be(address), be(rkey), 0});
  }
  static std::vector<Segment> inlined(const std::string& text) {
    std::vector<Segment> out((4 + text.size() + 15) / 16);
    const uint32_t count = be(static_cast<uint32_t>(text.size()) | 0x80000000);
    std::memcpy(out.data(), &count, 4);
    std::memcpy(out[0].data() + 4, text.data(), text.size());
    return out;
  }

  // A receive of up to four segments; fewer end with the key that is none.
  void receive(const std::vector<std::vector<Segment>>& list) {
    write_receive(queues.at(received % (1u << shape.log_rq) * 64), 4, list);
    set_record(2, 0, static_cast<uint16_t>(++received));
  }
  static void write_receive(uint8_t* at, size_t room, const std::vector<std::vector<Segment>>& list) {
    for (const auto& one : list) {
      std::memcpy(at, one[0].data(), 16);
      at += 16;
    }
    if (list.size() < room) std::memcpy(at, data_segment(0, 0x100, 0)[0].data(), 16);
  }

  void run() {
    while (nic.nic().advance()) {
    }
  }

  // ---- Completions and events

  uint8_t* cqe(Paged& cq, uint64_t index) { return cq.at(index % cq_entries * shape.cqe_bytes + shape.cqe_bytes - 64); }
  // The next completion of a queue, if it is written.
  template <class Entry>
  bool take(Paged& cq, uint64_t& consumed, unsigned which, Entry& out) {
    static_assert(sizeof out == 64);
    const uint8_t* at = cqe(cq, consumed);
    if (at[63] >> 4 == 0xf || (at[63] & 1) != (consumed / cq_entries & 1)) return false;
    std::memcpy(&out, at, 64);
    consumed++;
    set_record(which, 0, consumed & 0xffffff);
    return true;
  }
  template <class Entry>
  bool sent(Entry& out) {
    return take(scq, scq_consumed, 0, out);
  }
  template <class Entry>
  bool got(Entry& out) {
    return take(rcq, rcq_consumed, 1, out);
  }

  bool event(chip::Event& out) {
    const uint8_t* at = eq.at(eq_consumed % eq_entries * 64);
    if ((at[63] & 1) != (eq_consumed / eq_entries & 1)) return false;
    std::memcpy(&out, at, 64);
    eq_consumed++;
    bar.write<uint32_t>(uar + 0x40, be(3u << 24 | static_cast<uint32_t>(eq_consumed & 0xffffff)));
    return true;
  }
  void arm(uint32_t cq, uint32_t sequence, bool solicited, uint64_t consumed) {
    const uint32_t word = sequence << 28 | (solicited ? 1u << 24 : 0) | static_cast<uint32_t>(consumed & 0xffffff);
    bar.write<uint64_t>(uar + 0x20, be(word) | uint64_t{be(cq)} << 32);
  }

  uint8_t* bytes(size_t at) { return data.at(at); }

  static constexpr uint32_t qpn = 0x47;
  static constexpr uint32_t send_cq = 10, receive_cq = 11;
  static constexpr uint32_t pd = 3;
  static constexpr uint32_t cq_entries = 64;
  static constexpr uint32_t eq_entries = 128;
  static constexpr size_t data_bytes = 3 << 20;
  static constexpr uint64_t va = 0x7000'0000'0000;
  static constexpr uint32_t key = 5 << 8 | 0x42;
  static constexpr uint32_t psn = 0xfffffe;  // wraps soon
  static constexpr uint64_t uar = 9 * 4096;
  static constexpr uint32_t qkey = 0x1111'2222;

  const Shape shape;
  const uint8_t mac;
  uint8_t rnr_retry = 7;
  std::shared_ptr<soft::VirtualClock> clock;
  std::shared_ptr<soft::wire::Wire> wire;
  SoftMlx5 nic;
  host::Bar bar;
  Paged eq, scq, rcq, queues, records, data;
  std::optional<Paged> srq;
  QueuePairSpec qp;
  uint64_t posted = 0, received = 0, scq_consumed = 0, rcq_consumed = 0, eq_consumed = 0;
  uint64_t last = 0;  // the beginning of the last entry, as a doorbell has it
};

}  // namespace mlx5_world
