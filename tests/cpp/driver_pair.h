// A queue pair over plain memory, and the completions that its NIC would write, by hand from roce_hsi.h.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "driver/bnxt_events.h"
#include "driver/bnxt_rings.h"
#include "driver/qp.h"
#include "plain_function.h"

namespace userdma::test {

inline constexpr uint64_t kDoorbellOffset = 0x1000;

// Little-endian numbers at byte offsets, without any struct of ours.
inline void put(uint8_t* at, uint64_t value, unsigned width) {
  for (unsigned i = 0; i < width; ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}
inline uint64_t get(const uint8_t* at, unsigned width) {
  uint64_t value = 0;
  for (unsigned i = 0; i < width; ++i) value |= uint64_t{at[i]} << (8 * i);
  return value;
}

// A completion ring, as its NIC sees it.
struct DeviceCq {
  uint8_t* base = nullptr;
  uint32_t entries = 0;
  uint64_t producer = 0;

  // cq_base: the type in bits 1 to 4 of byte 24, the toggle in bit 0 (1 in the first pass), the status in byte 25.
  void write(uint8_t (&cqe)[32], unsigned type, unsigned status) {
    uint8_t* at = base + producer % entries * 32;
    unsigned toggle = (producer / entries & 1) == 0 ? 1 : 0;
    put(cqe + 25, status, 1);
    std::memcpy(at, cqe, 24);
    std::memcpy(at + 25, cqe + 25, 7);
    __atomic_store_n(at + 24, static_cast<uint8_t>(type << 1 | toggle), __ATOMIC_RELEASE);
    ++producer;
  }
  // cq_req: sq_cons_idx at 8.
  void sent(unsigned consumer, unsigned status = 0) {
    uint8_t cqe[32] = {};
    put(cqe + 8, consumer, 2);
    write(cqe, 0, status);
  }
  // cq_res_rc: length at 0, immediate data at 4, flags at 26, wr_id at 28.
  void received(unsigned slot, uint32_t length, unsigned status = 0, unsigned flags = 0, uint32_t immediate = 0) {
    uint8_t cqe[32] = {};
    put(cqe, length, 4);
    put(cqe + 4, immediate, 4);
    put(cqe + 26, flags, 2);
    put(cqe + 28, slot, 4);
    write(cqe, 1, status);
  }
  // cq_terminal: sq_cons_idx at 8, rq_cons_idx at 10.
  void terminal(unsigned sq, unsigned rq) {
    uint8_t cqe[32] = {};
    put(cqe + 8, sq, 2);
    put(cqe + 10, rq, 2);
    write(cqe, 0xe, 0);
  }
  void other(unsigned type) {
    uint8_t cqe[32] = {};
    write(cqe, type, 0);
  }
};

// The CREQ ring: V in bit 0 of byte 8, 1 in the first pass.
struct DeviceCreq {
  uint8_t* base = nullptr;
  uint32_t entries = 0;
  uint64_t producer = 0;

  void write(uint8_t (&entry)[16]) {
    uint8_t* at = base + producer % entries * 16;
    std::memcpy(at, entry, 8);
    std::memcpy(at + 9, entry + 9, 7);
    __atomic_store_n(at + 8, static_cast<uint8_t>((producer / entries & 1) == 0 ? 1 : 0), __ATOMIC_RELEASE);
    ++producer;
  }
  // creq_qp_event: type 0x38, cookie at 2, the event (an opcode) at 9.
  void answer(unsigned cookie, unsigned opcode) {
    uint8_t entry[16] = {0x38};
    put(entry + 2, cookie, 2);
    entry[9] = static_cast<uint8_t>(opcode);
    write(entry);
  }
  // creq_qp_error_notification: the requester's reason at 3, xid at 4, event 0xc0 at 9, the responder's reason at 11.
  void qp_error(uint32_t qp, unsigned requester, unsigned responder) {
    uint8_t entry[16] = {0x38};
    entry[3] = static_cast<uint8_t>(requester);
    put(entry + 4, qp, 4);
    entry[9] = 0xc0;
    entry[11] = static_cast<uint8_t>(responder);
    write(entry);
  }
  // creq_cq_error_notification: the reason at 2, xid at 4, event 0xc1 at 9.
  void cq_error(uint32_t cq, unsigned reason) {
    uint8_t entry[16] = {0x38};
    entry[2] = static_cast<uint8_t>(reason);
    put(entry + 4, cq, 4);
    entry[9] = 0xc1;
    write(entry);
  }
};

struct Pair {
  static constexpr uint32_t kSendCq = 11;
  static constexpr uint32_t kReceiveCq = 12;
  static constexpr uint32_t kCreq = 3;

  explicit Pair(uint32_t entries = 8, uint32_t cq_entries = 16, bool immediate = false, uint32_t qpn = 0x1c3,
                std::shared_ptr<PlainFunction> shared = nullptr, std::shared_ptr<driver::Domain> in = nullptr)
      : function(shared ? shared : std::make_shared<PlainFunction>()),
        domain(in ? in : std::make_shared<driver::Domain>(function)) {
    using driver::BnxtRings;
    host::Bar bar = function->map(2);
    doorbell = bar.base() + kDoorbellOffset;
    size_t table = entries * 128;
    host::Memory send = function->alloc_dma(table + entries * 8);
    host::Memory receive = function->alloc_dma(entries * 128);
    host::Memory creq = function->alloc_dma(16 * 16);
    sq = send.data;
    msn = send.data + table;
    rq = receive.data;
    host::Memory cqs[2];
    for (int i = 0; i < 2; ++i) {
      cqs[i] = function->alloc_dma(cq_entries * 32);
      cq[i] = {cqs[i].data, cq_entries};
    }
    device_creq = {creq.data, 16};
    events = std::make_shared<driver::BnxtEvents>(domain, creq.data, 16, kCreq, bar.doorbell(kDoorbellOffset));
    qp = std::make_unique<driver::Qp>(
        std::make_unique<BnxtRings>(domain, qpn, BnxtRings::Queue{send.data, send.size, entries},
                                    BnxtRings::Queue{receive.data, receive.size, entries},
                                    BnxtRings::Queue{cqs[0].data, cqs[0].size, cq_entries, kSendCq},
                                    BnxtRings::Queue{cqs[1].data, cqs[1].size, cq_entries, kReceiveCq},
                                    bar.doorbell(kDoorbellOffset), events),
        entries - 1, entries - 1, immediate);
    memory.resize(1 << 16);
    region.domain = domain;
    region.data = memory.data();
    region.va = 0x7000'0000'1000;
    region.bytes = memory.size();
    region.lkey = 0x1234;
  }

  uint64_t last_doorbell() const { return get(doorbell, 8); }

  // Polls until a look around must have happened, or something was found.
  driver::Polled poll(driver::Side side, driver::Completion& out) {
    for (int i = 0; i < 600; ++i)
      if (auto polled = qp->poll(side, out); polled != driver::Polled::None) return polled;
    return driver::Polled::None;
  }

  std::shared_ptr<PlainFunction> function;
  std::shared_ptr<driver::Domain> domain;
  std::shared_ptr<driver::BnxtEvents> events;
  std::unique_ptr<driver::Qp> qp;
  uint8_t* sq = nullptr;
  uint8_t* msn = nullptr;
  uint8_t* rq = nullptr;
  uint8_t* doorbell = nullptr;
  DeviceCq cq[2];
  DeviceCreq device_creq;
  std::vector<uint8_t> memory;
  driver::Region region;
};

}  // namespace userdma::test
