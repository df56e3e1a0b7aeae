// Binds the Ethernet part of the Thor2 in software, for its firmware: methods that begin with `ethernet_`.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "python/arguments.h"
#include "python/soft_function.h"
#include "soft/bnxt/ethernet.h"
#include "soft/bnxt/soft_bnxt.h"

namespace userdma::python {

inline soft::Mac mac_of(const py::handle& value, const char* what) {
  soft::Mac mac;
  std::memcpy(mac.data(), Bytes(py::reinterpret_borrow<py::buffer>(value)).exactly(mac.size(), what), mac.size());
  return mac;
}

inline soft::bnxt::VnicSpec vnic_spec(const py::dict& dict) {
  using Rings = soft::bnxt::VnicSpec::Rings;
  Fields fields(dict);
  soft::bnxt::VnicSpec spec;
  spec.rings.receive = fields.get<uint32_t>("receive", spec.rings.receive);
  spec.rings.completions = fields.get<uint32_t>("completions", spec.rings.completions);
  spec.mru = fields.get<uint32_t>("mru");
  spec.strip_vlan = fields.get<bool>("strip_vlan", false);
  spec.promiscuous = fields.get<bool>("promiscuous", false);
  spec.broadcast = fields.get<bool>("broadcast", false);
  spec.all_multicast = fields.get<bool>("all_multicast", false);
  if (fields.has("multicast")) {
    for (const py::handle& mac : py::list(dict["multicast"])) spec.multicast.push_back(mac_of(mac, "a MAC"));
  }
  if (fields.has("table")) {
    using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
    for (const auto& [receive, completions] : fields.number<Pairs>("table"))
      spec.table.push_back(Rings{receive, completions});
  }
  spec.hash = fields.get<uint32_t>("hash", 0);
  if (fields.has("key")) fields.copy("key", spec.key.data(), spec.key.size());
  spec.jumbo_threshold = fields.get<uint32_t>("jumbo_threshold", 0);
  spec.split_ipv4 = fields.get<bool>("split_ipv4", false);
  spec.split_ipv6 = fields.get<bool>("split_ipv6", false);
  spec.split_threshold = fields.get<uint32_t>("split_threshold", 0);
  fields.done();
  return spec;
}

template <class Class>
void bind_ethernet(Class& type) {
  using Self = typename Class::type;
  using soft::bnxt::Completions;
  using soft::bnxt::Ethernet;
  using soft::bnxt::RingSpec;
  using Number = uint32_t;

  type.def(
          "ethernet_completions_create",
          [](Self& self, Number id, uint64_t base, unsigned level, uint64_t page_size, uint32_t entries, Number nq,
             uint64_t handle) {
            const RingSpec spec{page_table(base, level, page_shift(page_size)), entries};
            unlocked([&] {
              self.ethernet([&](Ethernet& it) { it.completions_create(id, spec, self.known_nq(nq), handle); });
            });
          },
          py::arg("id"), py::arg("base"), py::arg("level"), py::arg("page_size"), py::arg("entries"), py::arg("nq"),
          py::arg("handle"))
      .def(
          "ethernet_completions_destroy",
          [](Self& self, Number id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.completions_destroy(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_completions_post",
          [](Self& self, Number id, const py::buffer& entry) {
            const Bytes bytes(entry);
            Completions::Entry copy;
            std::memcpy(copy.data(), bytes.exactly(copy.size(), "an entry"), copy.size());
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.completions_post(id, copy); }); });
          },
          py::arg("id"), py::arg("entry"))
      .def(
          "ethernet_transmit_create",
          [](Self& self, Number id, uint64_t base, unsigned level, uint64_t page_size, uint32_t entries,
             Number completions, std::optional<Number> statistics) {
            const RingSpec spec{page_table(base, level, page_shift(page_size)), entries};
            unlocked(
                [&] { self.ethernet([&](Ethernet& it) { it.transmit_create(id, spec, completions, statistics); }); });
          },
          py::arg("id"), py::arg("base"), py::arg("level"), py::arg("page_size"), py::arg("entries"),
          py::arg("completions"), py::arg("statistics"))
      .def(
          "ethernet_transmit_destroy",
          [](Self& self, Number id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.transmit_destroy(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_receive_create",
          [](Self& self, Number id, uint64_t base, unsigned level, uint64_t page_size, uint32_t entries,
             std::optional<Number> statistics, uint32_t pad, std::optional<Number> aggregation_of) {
            const RingSpec spec{page_table(base, level, page_shift(page_size)), entries};
            unlocked([&] {
              self.ethernet([&](Ethernet& it) { it.receive_create(id, spec, statistics, pad, aggregation_of); });
            });
          },
          py::arg("id"), py::arg("base"), py::arg("level"), py::arg("page_size"), py::arg("entries"),
          py::arg("statistics"), py::arg("pad") = 0, py::arg("aggregation_of") = py::none())
      .def(
          "ethernet_receive_destroy",
          [](Self& self, Number id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.receive_destroy(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_vnic",
          [](Self& self, Number id, const py::dict& fields) {
            auto spec = vnic_spec(fields);
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.vnic_set(id, std::move(spec)); }); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "ethernet_vnic_remove",
          [](Self& self, Number id) { unlocked([&] { self.ethernet([&](Ethernet& it) { it.vnic_remove(id); }); }); },
          py::arg("id"))
      .def(
          "ethernet_filter",
          [](Self& self, uint64_t id, const py::buffer& mac, const py::buffer& mask, Number vnic) {
            const auto address = mac_of(mac, "a MAC"), bits = mac_of(mask, "a mask");
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.filter_set(id, address, bits, vnic); }); });
          },
          py::arg("id"), py::arg("mac"), py::arg("mask"), py::arg("vnic"))
      .def(
          "ethernet_filter_remove",
          [](Self& self, uint64_t id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.filter_remove(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_statistics_create",
          [](Self& self, Number id, uint64_t address, uint64_t period_ns) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.statistics_create(id, address, period_ns); }); });
          },
          py::arg("id"), py::arg("address"), py::arg("period_ns"))
      .def(
          "ethernet_statistics_destroy",
          [](Self& self, Number id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.statistics_destroy(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_statistics_of_roce",
          [](Self& self, std::optional<Number> id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.statistics_of_roce(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_statistics_clear",
          [](Self& self, Number id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.statistics_clear(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_tunnels",
          [](Self& self, const std::set<uint16_t>& vxlan, const std::set<uint16_t>& geneve) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.tunnels({vxlan, geneve}); }); });
          },
          py::arg("vxlan"), py::arg("geneve"))
      .def(
          "ethernet_link",
          [](Self& self, bool up) { unlocked([&] { self.ethernet([&](Ethernet& it) { it.link(up); }); }); },
          py::arg("up"))
      .def("ethernet_port", [](Self& self) {
        const auto counts =
            unlocked([&] { return self.ethernet([&](Ethernet& it) { return std::pair(it.sent(), it.received()); }); });
        return py::make_tuple(port_counts(counts.first), port_counts(counts.second));
      });
}

}  // namespace userdma::python
