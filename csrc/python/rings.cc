// Binds what each family of csrc/driver has of its own: its event ring, and the rings of a queue pair.
#include "python/rings.h"

#include <pybind11/pybind11.h>

#include <bit>

#include "driver/bnxt_events.h"
#include "driver/bnxt_rings.h"
#include "driver/mlx5_events.h"
#include "driver/mlx5_health.h"
#include "driver/mlx5_rings.h"
#include "driver/uverbs_events.h"
#include "python/gil.h"

namespace userdma::python {

namespace {

using driver::BnxtEvents;
using driver::BnxtRings;
using driver::Domain;
using driver::Events;
using driver::Mlx5Events;
using driver::Mlx5Rings;
using driver::UverbsEvents;

template <class Entry>
py::bytes bytes_of(const Entry& entry) {
  return {reinterpret_cast<const char*>(entry.data()), entry.size()};
}

template <class Entries>
py::list list_of(const Entries& entries) {
  py::list list;
  for (const auto& entry : entries) list.append(bytes_of(entry));
  return list;
}

void close(Events& self) {
  self.retire({});
  Unlocked unlocked;
  self.drain();
}

void check_event_ring(const Domain& domain, const HeldMemory& memory, uint32_t entries, size_t entry) {
  check_open(domain);
  if (!std::has_single_bit(entries))
    value_error("a ring of " + std::to_string(entries) + " entries: a power of two wanted");
  memory.check();
  if (memory.memory.size < uint64_t{entries} * entry)
    value_error("the event ring takes " + std::to_string(uint64_t{entries} * entry) + " bytes, not " +
                std::to_string(memory.memory.size));
}

// That the registers from `offset` on are in the BAR; `what` names them.
void check_registers(const HeldBar& bar, uint64_t offset, uint64_t bytes, const char* what) {
  if (offset % 8 != 0 || bar.bar.size() < bytes || offset > bar.bar.size() - bytes)
    value_error("BAR " + std::to_string(bar.bar.index()) + " of " + std::to_string(bar.bar.size()) + " bytes has no " +
                what + " at " + std::to_string(offset));
}

host::Doorbell doorbell_at(const HeldBar& bar, uint64_t offset) {
  check_registers(bar, offset, 8, "doorbell");
  return bar.bar.doorbell(offset);
}

// ---- bnxt ----

struct HeldBnxtRings : HeldRings {};

BnxtRings::Queue queue(const HeldMemory& memory, uint32_t entries, uint32_t id = 0) {
  memory.check();
  return {memory.memory.data, memory.memory.size, entries, id};
}

void bind_bnxt_rings(py::module_& m) {
  py::class_<BnxtEvents, Events, std::shared_ptr<BnxtEvents>>(
      m, "BnxtEvents", "The CREQ of a bnxt: answers of the RoCE command channel, and events of queue pairs.")
      .def(py::init([](const std::shared_ptr<Domain>& domain, const HeldMemory& memory, uint32_t entries, uint32_t ring,
                       const HeldBar& bar, uint64_t doorbell) {
             check_event_ring(*domain, memory, entries, hw::bnxt::kNqe);
             return std::make_shared<BnxtEvents>(domain, memory.memory.data, entries, ring, doorbell_at(bar, doorbell));
           }),
           py::arg("domain").none(false), py::arg("memory"), py::arg("entries"), py::kw_only(), py::arg("ring"),
           py::arg("bar"), py::arg("doorbell"))
      .def("arm", &BnxtEvents::arm)
      .def("poll",
           [](BnxtEvents& self) -> py::object {
             auto entry = self.answer();
             if (!entry) return py::none();
             return bytes_of(*entry);
           })
      .def("events", [](BnxtEvents& self) { return list_of(self.take_events()); })
      .def_property_readonly("consumer", &BnxtEvents::consumer);

  py::class_<HeldBnxtRings, HeldRings>(m, "BnxtRings", "The rings of one queue pair of a bnxt.")
      .def(py::init([](const std::shared_ptr<Domain>& domain, uint32_t qpn, const HeldMemory& send,
                       uint32_t send_entries, const HeldMemory& receive, uint32_t receive_entries,
                       const HeldMemory& send_cq, uint32_t send_cq_entries, uint32_t send_cq_id,
                       const HeldMemory& receive_cq, uint32_t receive_cq_entries, uint32_t receive_cq_id,
                       const HeldBar& bar, uint64_t doorbell, std::shared_ptr<BnxtEvents> events) {
             check_open(*domain);
             auto held = std::make_unique<HeldBnxtRings>();
             held->rings = std::make_unique<BnxtRings>(
                 domain, qpn, queue(send, send_entries), queue(receive, receive_entries),
                 queue(send_cq, send_cq_entries, send_cq_id), queue(receive_cq, receive_cq_entries, receive_cq_id),
                 doorbell_at(bar, doorbell), std::move(events));
             return held;
           }),
           py::arg("domain").none(false), py::kw_only(), py::arg("qpn"), py::arg("send"), py::arg("send_entries"),
           py::arg("receive"), py::arg("receive_entries"), py::arg("send_cq"), py::arg("send_cq_entries"),
           py::arg("send_cq_id"), py::arg("receive_cq"), py::arg("receive_cq_entries"), py::arg("receive_cq_id"),
           py::arg("bar"), py::arg("doorbell"), py::arg("events") = py::none());
}

// ---- mlx5 ----

struct HeldMlx5Rings : HeldRings {};

// What `memory` holds from `at` on.
Mlx5Rings::Queue queue_at(const HeldMemory& memory, uint64_t at, uint32_t entries) {
  memory.check();
  if (at % 64 != 0 || at > memory.memory.size)
    value_error("a ring at byte " + std::to_string(at) + " of " + std::to_string(memory.memory.size));
  return {memory.memory.data + at, memory.memory.size - at, entries};
}

uint32_t* records_at(const HeldMemory& memory, uint64_t at) {
  memory.check();
  if (at % 8 != 0 || memory.memory.size < 8 || at > memory.memory.size - 8)
    value_error("doorbell records at byte " + std::to_string(at) + " of " + std::to_string(memory.memory.size));
  return reinterpret_cast<uint32_t*>(memory.memory.data + at);
}

Mlx5Rings::Cq completions(const HeldMemory& memory, uint32_t entries, uint32_t id, uint32_t* records) {
  return {{queue_at(memory, 0, entries)}, id, records};
}

void bind_mlx5_rings(py::module_& m) {
  py::class_<Mlx5Events, Events, std::shared_ptr<Mlx5Events>>(m, "Mlx5Events",
                                                              "The asynchronous event queue of a ConnectX.")
      .def(py::init([](const std::shared_ptr<Domain>& domain, const HeldMemory& memory, uint32_t entries, uint32_t eqn,
                       const HeldBar& bar, uint64_t uar) {
             check_event_ring(*domain, memory, entries, sizeof(hw::mlx5::Event));
             check_registers(bar, uar, hw::mlx5::kUar, "user access region");
             return std::make_shared<Mlx5Events>(domain, memory.memory.data, entries, eqn, bar.bar, uar);
           }),
           py::arg("domain").none(false), py::arg("memory"), py::arg("entries"), py::kw_only(), py::arg("eqn"),
           py::arg("bar"), py::arg("uar"))
      .def("events", [](Mlx5Events& self) { return list_of(self.take()); })
      .def_property_readonly("consumer", &Mlx5Events::consumer);

  m.def(
      "mlx5_watch",
      [](Domain& domain, const HeldBar& bar) {
        check_open(domain);
        check_registers(bar, 0, sizeof(hw::mlx5::InitSegment), "initialization segment");
        domain.watch([bar = bar.bar, name = domain.function()->name()] { return driver::mlx5::ails(bar, name); });
      },
      py::arg("domain").none(false), py::arg("bar"));

  py::class_<HeldMlx5Rings, HeldRings>(m, "Mlx5Rings", "The rings of one queue pair of a ConnectX.")
      .def(py::init([](const std::shared_ptr<Domain>& domain, uint32_t qpn, const HeldMemory& memory, uint64_t send,
                       uint32_t send_entries, uint64_t receive, uint32_t receive_entries, uint64_t records,
                       const HeldMemory& send_cq, uint32_t send_cq_entries, uint32_t send_cq_id,
                       uint64_t send_cq_records, const HeldMemory& receive_cq, uint32_t receive_cq_entries,
                       uint32_t receive_cq_id, uint64_t receive_cq_records, const HeldBar& bar, uint64_t uar,
                       uint64_t longest, std::shared_ptr<Events> events) {
             check_open(*domain);
             check_registers(bar, uar, hw::mlx5::kUar, "user access region");
             auto held = std::make_unique<HeldMlx5Rings>();
             held->rings = std::make_unique<Mlx5Rings>(
                 domain, qpn, queue_at(memory, send, send_entries), queue_at(memory, receive, receive_entries),
                 records_at(memory, records),
                 completions(send_cq, send_cq_entries, send_cq_id, records_at(memory, send_cq_records)),
                 completions(receive_cq, receive_cq_entries, receive_cq_id, records_at(memory, receive_cq_records)),
                 bar.bar, uar, longest, std::move(events));
             return held;
           }),
           py::arg("domain").none(false), py::kw_only(), py::arg("qpn"), py::arg("memory"), py::arg("send"),
           py::arg("send_entries"), py::arg("receive"), py::arg("receive_entries"), py::arg("records"),
           py::arg("send_cq"), py::arg("send_cq_entries"), py::arg("send_cq_id"), py::arg("send_cq_records"),
           py::arg("receive_cq"), py::arg("receive_cq_entries"), py::arg("receive_cq_id"),
           py::arg("receive_cq_records"), py::arg("bar"), py::arg("uar"), py::arg("longest"),
           py::arg("events") = py::none());
}

// ---- NICs that are the kernel's ----

void bind_uverbs_events(py::module_& m) {
  using Kind = UverbsEvents::Kind;
  py::class_<UverbsEvents, Events, std::shared_ptr<UverbsEvents>>(
      m, "UverbsEvents", "What the kernel's driver tells of the queue pairs of a NIC of its own.")
      .def(py::init([](const std::shared_ptr<Domain>& domain, const std::shared_ptr<host::Uverbs>& device) {
             check_open(*domain);
             return std::make_shared<UverbsEvents>(domain, device);
           }),
           py::arg("domain").none(false), py::arg("device").none(false))
      .def(
          "name_qp", [](UverbsEvents& self, uint64_t element, uint32_t qp) { self.name(element, Kind::QueuePair, qp); },
          py::arg("element"), py::arg("qp"))
      .def(
          "name_cq",
          [](UverbsEvents& self, uint64_t element, uint32_t cq) { self.name(element, Kind::CompletionQueue, cq); },
          py::arg("element"), py::arg("cq"))
      .def("forget", &UverbsEvents::forget, py::arg("element"))
      .def("service", &UverbsEvents::service);
}

}  // namespace

void bind_rings(py::module_& m) {
  py::class_<Events, std::shared_ptr<Events>>(m, "Events", "What a NIC tells of beside completions.")
      .def("close", close);
  py::class_<HeldRings>(m, "Rings", "The rings of one queue pair, as its family has them.");
  bind_bnxt_rings(m);
  bind_mlx5_rings(m);
  bind_uverbs_events(m);
}

}  // namespace userdma::python
