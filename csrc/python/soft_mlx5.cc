// Binds csrc/soft/mlx5: the ConnectX in software for its firmware in Python.
#include "soft/mlx5/soft_mlx5.h"

#include <pybind11/stl.h>

#include "python/soft_function.h"

namespace userdma::python {

namespace {

using soft::mlx5::CqSpec;
using soft::mlx5::EqSpec;
using soft::mlx5::Ethernet;
using soft::mlx5::FlowEntry;
using soft::mlx5::FlowTableSpec;
using soft::mlx5::Gid;
using soft::mlx5::MkeySpec;
using soft::mlx5::Pages;
using soft::mlx5::QueuePairSpec;
using soft::mlx5::ReceiveQueueSpec;
using soft::mlx5::SendQueueSpec;
using soft::mlx5::SoftMlx5;
using soft::mlx5::SrqSpec;
using soft::mlx5::TirSpec;
using soft::transport::Attributes;

using PythonMlx5 = WithFirmware<SoftMlx5, 3>;
using Number = uint32_t;

constexpr size_t event_bytes = 28;
constexpr size_t completion_bytes = 64;

Pages pages(Fields& fields) {
  Pages out;
  out.pages = fields.get<std::vector<uint64_t>>("pages");
  out.page_shift = page_shift(fields.get<uint64_t>("page_shift"));
  out.offset = fields.get<uint64_t>("page_offset", 0);
  return out;
}

EqSpec eq_spec(const py::dict& dict) {
  Fields fields(dict);
  EqSpec spec;
  spec.pages = pages(fields);
  spec.log_entries = fields.get<unsigned>("log_entries");
  spec.vector = fields.get<unsigned>("vector");
  if (fields.has("events")) {
    const py::object events = dict["events"];
    if (!PyLong_Check(events.ptr())) value_error("events is " + std::string(py::repr(events)));
    for (int type = 0; type < 256; type++) {
      if (py::bool_(events.attr("__rshift__")(type).attr("__and__")(1)))
        spec.events.push_back(static_cast<uint8_t>(type));
    }
  }
  fields.done();
  return spec;
}

CqSpec cq_spec(const py::dict& dict, bool resize) {
  Fields fields(dict);
  CqSpec spec;
  spec.pages = pages(fields);
  spec.log_entries = fields.get<unsigned>("log_entries");
  spec.stride = fields.get<unsigned>("cqe_bytes", spec.stride);
  if (!resize) {
    spec.eqn = fields.get<uint32_t>("eqn");
    spec.record = fields.get<uint64_t>("dbr");
    spec.overrun_ignore = fields.get<bool>("overrun_ignore", false);
  }
  fields.done();
  return spec;
}

SrqSpec srq_spec(const py::dict& dict) {
  Fields fields(dict);
  SrqSpec spec;
  spec.pd = fields.get<uint32_t>("pd");
  spec.pages = pages(fields);
  spec.log_entries = fields.get<unsigned>("log_entries");
  spec.log_stride = fields.get<unsigned>("log_stride");
  spec.record = fields.get<uint64_t>("dbr");
  spec.limit = fields.get<uint32_t>("limit", 0);
  fields.done();
  return spec;
}

QueuePairSpec queue_pair_spec(const py::dict& dict) {
  Fields fields(dict);
  const auto optional = [&](const char* name, auto& value) {
    if (fields.has(name)) value = fields.number<uint32_t>(name);
  };
  QueuePairSpec spec;
  spec.type = fields.get<uint8_t>("type");
  spec.pd = fields.get<uint32_t>("pd");
  spec.pages = pages(fields);
  spec.record = fields.get<uint64_t>("dbr");
  optional("log_rq_entries", spec.log_rq_entries);
  spec.log_rq_stride = fields.get<unsigned>("log_rq_stride", spec.log_rq_stride);
  optional("log_sq_entries", spec.log_sq_entries);
  spec.cqn_send = fields.get<uint32_t>("cqn_send");
  spec.cqn_receive = fields.get<uint32_t>("cqn_receive");
  optional("srqn", spec.srqn);
  optional("user_index", spec.user_index);
  optional("wire_qpn", spec.wire_qpn);
  optional("source_qpn", spec.source_qpn);
  spec.umr = fields.get<bool>("umr", false);
  spec.longest = fields.get<uint64_t>("longest", spec.longest);
  spec.big_endian_atomics = fields.get<bool>("big_endian_atomics", false);
  fields.done();
  return spec;
}

MkeySpec mkey_spec(const py::dict& dict) {
  Fields fields(dict);
  MkeySpec spec;
  spec.pd = fields.get<uint32_t>("pd");
  spec.access = fields.get<uint8_t>("access");  // IBV_ACCESS_* are the transport's bits
  const auto mode = fields.get<std::string>("mode");
  using Mode = MkeySpec::Mode;
  if (mode == "pa") {
    spec.mode = Mode::Physical;
  } else if (mode == "mtt") {
    spec.mode = Mode::Pages;
  } else if (mode == "klm") {
    spec.mode = Mode::Parts;
  } else if (mode == "ksm") {
    spec.mode = Mode::FixedParts;
  } else if (mode == "null") {
    spec.mode = Mode::Null;
  } else {
    value_error("mode is " + mode);
  }
  spec.start = fields.get<uint64_t>("start", 0);
  spec.bytes = fields.get<uint64_t>("length", 0);
  spec.all = fields.get<bool>("length64", false);
  if (const auto shift = fields.get<unsigned>("page_shift", 0u)) spec.page_shift = page_shift(shift);
  spec.octwords = fields.get<uint32_t>("translations", 0u);
  spec.qpn = fields.get<uint32_t>("qpn", spec.qpn);
  spec.update = fields.get<bool>("umr", false);
  spec.free = fields.get<bool>("free", false);
  spec.remote_invalidate = fields.get<bool>("remote_invalidate", false);
  spec.paged = fields.get<bool>("paged", false);
  if (fields.has("pages")) spec.pages = fields.number<std::vector<uint64_t>>("pages");
  if (fields.has("klms")) {
    if (mode == "klm") {
      for (const auto& [bytes, key, address] :
           fields.number<std::vector<std::tuple<uint64_t, uint32_t, uint64_t>>>("klms"))
        spec.parts.push_back({bytes, key, address});
    } else {
      for (const auto& [key, address] : fields.number<std::vector<std::pair<uint32_t, uint64_t>>>("klms"))
        spec.parts.push_back({0, key, address});
    }
  }
  fields.done();
  return spec;
}

SendQueueSpec send_queue_spec(const py::dict& dict) {
  Fields fields(dict);
  SendQueueSpec spec;
  spec.pd = fields.get<uint32_t>("pd");
  spec.transport_domain = fields.get<uint32_t>("transport_domain", 0);
  spec.pages = pages(fields);
  spec.log_entries = fields.get<unsigned>("log_entries");
  spec.record = fields.get<uint64_t>("dbr");
  spec.cqn = fields.get<uint32_t>("cqn");
  spec.user_index = fields.get<uint32_t>("user_index", 0);
  fields.done();
  return spec;
}

ReceiveQueueSpec receive_queue_spec(const py::dict& dict) {
  Fields fields(dict);
  ReceiveQueueSpec spec;
  spec.pd = fields.get<uint32_t>("pd");
  spec.cqn = fields.get<uint32_t>("cqn");
  spec.user_index = fields.get<uint32_t>("user_index", 0);
  spec.strip_vlan = fields.get<bool>("strip_vlan", false);
  if (fields.has("srqn")) {
    spec.srqn = fields.number<uint32_t>("srqn");
  } else {
    spec.pages = pages(fields);
    spec.log_entries = fields.get<unsigned>("log_entries");
    spec.log_stride = fields.get<unsigned>("log_stride");
    spec.record = fields.get<uint64_t>("dbr");
    spec.linked = fields.get<bool>("linked", false);
  }
  fields.done();
  return spec;
}

TirSpec tir_spec(const py::dict& dict) {
  Fields fields(dict);
  TirSpec spec;
  spec.rqns = fields.get<std::vector<uint32_t>>("rqns");
  spec.hash_function = fields.get<unsigned>("hash_function", 0u);
  if (fields.has("hash_key")) fields.copy("hash_key", spec.key.data(), spec.key.size());
  spec.fields = fields.get<uint32_t>("hash_fields", 0u);
  spec.transport_domain = fields.get<uint32_t>("transport_domain", 0);
  fields.done();
  if (spec.hash_function > hw::mlx5::hash_function::kToeplitz)
    value_error("hash_function is " + std::to_string(spec.hash_function));
  return spec;
}

std::vector<uint8_t> match(const py::handle& given) {
  const Bytes bytes{py::reinterpret_borrow<py::buffer>(given)};
  if (bytes.size() > hw::mlx5::kMatchBytes) value_error("a match of " + std::to_string(bytes.size()) + " bytes");
  return {bytes.data(), bytes.data() + bytes.size()};
}

FlowTableSpec flow_table_spec(const py::dict& dict) {
  Fields fields(dict);
  FlowTableSpec spec;
  if (fields.has("miss")) spec.miss = fields.number<uint32_t>("miss");
  for (const py::handle& one : fields.get<py::list>("entries")) {
    const auto entry = py::reinterpret_borrow<py::object>(one).cast<py::tuple>();
    if (entry.size() != 6) value_error("an entry of " + std::to_string(entry.size()) + " items");
    FlowEntry made;
    made.mask = match(entry[0]);
    made.value = match(entry[1]);
    made.action = entry[2].cast<uint32_t>();
    for (const auto& [kind, id] : entry[3].cast<std::vector<std::pair<std::string, uint32_t>>>()) {
      if (kind != "tir" && kind != "table") value_error("a destination that is a " + kind);
      made.destinations.push_back({kind == "table", id});
    }
    made.counters = entry[4].cast<std::vector<uint32_t>>();
    made.tag = entry[5].cast<uint32_t>();
    spec.entries.push_back(std::move(made));
  }
  fields.done();
  return spec;
}

std::array<uint8_t, 16> gid_of(const py::buffer& given) {
  std::array<uint8_t, 16> gid;
  std::memcpy(gid.data(), Bytes(given).exactly(gid.size(), "a GID"), gid.size());
  return gid;
}

void set_firmware(PythonMlx5& self, py::object command, py::object reset, py::object interface) {
  self.set_callables(
      {{{"command", std::move(command)}, {"reset", std::move(reset)}, {"interface", std::move(interface)}}});
  self.set_firmware({
      [&self](uint32_t entries) { self.call(0, [&] { return entries; }); },
      [&self] { self.call(1); },
      [&self](uint32_t word) { self.call(2, [&] { return word; }); },
  });
}

void bind_ethernet(py::class_<PythonMlx5, soft::SoftFunction, std::shared_ptr<PythonMlx5>>& type) {
  using Self = PythonMlx5;
  type.def(
          "sq_create",
          [](Self& self, Number id, const py::dict& fields) {
            const SendQueueSpec spec = send_queue_spec(fields);
            unlocked([&] { self.sq_create(id, spec); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "sq_modify",
          [](Self& self, Number id, unsigned state) {
            unlocked([&] {
              self.ethernet([&](Ethernet& it) { it.sq_modify(id, state); });
              self.nic().advance();
            });
          },
          py::arg("id"), py::arg("state"))
      .def(
          "sq_destroy",
          [](Self& self, Number id) { unlocked([&] { self.ethernet([&](Ethernet& it) { it.sq_destroy(id); }); }); },
          py::arg("id"))
      .def(
          "rq_create",
          [](Self& self, Number id, const py::dict& fields) {
            const ReceiveQueueSpec spec = receive_queue_spec(fields);
            unlocked([&] { self.rq_create(id, spec); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "rq_modify",
          [](Self& self, Number id, const py::dict& given) {
            Fields fields(given);
            std::optional<unsigned> state;
            std::optional<bool> strip_vlan;
            if (fields.has("state")) state = fields.number<unsigned>("state");
            if (fields.has("strip_vlan")) strip_vlan = fields.number<bool>("strip_vlan");
            fields.done();
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.rq_modify(id, state, strip_vlan); }); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "rq_destroy",
          [](Self& self, Number id) { unlocked([&] { self.ethernet([&](Ethernet& it) { it.rq_destroy(id); }); }); },
          py::arg("id"))
      .def(
          "tir_set",
          [](Self& self, Number id, const py::dict& fields) {
            TirSpec spec = tir_spec(fields);
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.tir_set(id, std::move(spec)); }); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "tir_remove",
          [](Self& self, Number id) { unlocked([&] { self.ethernet([&](Ethernet& it) { it.tir_remove(id); }); }); },
          py::arg("id"))
      .def(
          "ethernet_loopback",
          [](Self& self, bool groups) { unlocked([&] { self.ethernet([&](Ethernet& it) { it.loopback(groups); }); }); },
          py::arg("groups"))
      .def(
          "flow_table_set",
          [](Self& self, Number id, const py::dict& fields) {
            const FlowTableSpec spec = flow_table_spec(fields);
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.steering().table_set(id, spec); }); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "flow_table_remove",
          [](Self& self, Number id) {
            if (!unlocked([&] { return self.ethernet([&](Ethernet& it) { return it.steering().table_remove(id); }); }))
              throw soft::UnknownId("no flow table " + std::to_string(id));
          },
          py::arg("id"))
      .def(
          "flow_root_set",
          [](Self& self, std::optional<Number> id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.steering().root_set(id); }); });
          },
          py::arg("id"))
      .def(
          "flow_counter",
          [](Self& self, Number id) {
            return unlocked([&] { return self.ethernet([&](Ethernet& it) { return it.steering().counter(id); }); });
          },
          py::arg("id"), "Packets and bytes that it counted.")
      .def(
          "flow_counter_clear",
          [](Self& self, Number id) {
            unlocked([&] { self.ethernet([&](Ethernet& it) { it.steering().counter_clear(id); }); });
          },
          py::arg("id"))
      .def(
          "ethernet_link",
          [](Self& self, bool up) { unlocked([&] { self.ethernet([&](Ethernet& it) { it.link(up); }); }); },
          py::arg("up"))
      .def("ethernet_port",
           [](Self& self) {
             const auto counts = unlocked(
                 [&] { return self.ethernet([&](Ethernet& it) { return std::pair(it.sent(), it.received()); }); });
             return py::make_tuple(port_counts(counts.first), port_counts(counts.second));
           })
      .def("ethernet_lost",
           [](Self& self) { return unlocked([&] { return self.ethernet([](Ethernet& it) { return it.lost(); }); }); });
}

}  // namespace

void bind_soft_mlx5(py::module_& m) {
  using Self = PythonMlx5;
  py::class_<Self, soft::SoftFunction, std::shared_ptr<Self>> type(
      m, "SoftMlx5", "The ConnectX-6 Dx in software, without firmware.", py::custom_type_setup(collect<Self>));
  define_constructor<Self>(type);
  bind_ethernet(type);
  type.def("set_firmware", set_firmware, py::arg("command"), py::arg("reset"), py::arg("interface"))
      .def(
          "set_healthy", [](Self& self, bool healthy) { self.set_healthy(healthy); }, py::arg("healthy"),
          "Whether its health counter counts.")
      .def(
          "eq_create",
          [](Self& self, Number id, const py::dict& fields) {
            const EqSpec spec = eq_spec(fields);
            unlocked([&] { self.eq_create(id, spec); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "eq_destroy", [](Self& self, Number id) { unlocked([&] { self.eq_destroy(id); }); }, py::arg("id"))
      .def(
          "eq_post",
          [](Self& self, Number id, uint8_t kind, uint8_t subtype, const py::buffer& data) {
            const Bytes bytes(data);
            const uint8_t* at = bytes.exactly(event_bytes, "an event's data");
            unlocked([&] { self.eq_post(id, kind, subtype, at); });
          },
          py::arg("id"), py::arg("type"), py::arg("subtype"), py::arg("data"))
      .def(
          "event",
          [](Self& self, uint8_t kind, uint8_t subtype, const py::buffer& data) {
            const Bytes bytes(data);
            const uint8_t* at = bytes.exactly(event_bytes, "an event's data");
            return unlocked([&] { return self.event(kind, subtype, at); });
          },
          py::arg("type"), py::arg("subtype"), py::arg("data"), "False: no queue gets events of this type.")
      .def(
          "cq_create",
          [](Self& self, Number id, const py::dict& fields) {
            const CqSpec spec = cq_spec(fields, false);
            unlocked([&] { self.cq_create(id, spec); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "cq_destroy", [](Self& self, Number id) { unlocked([&] { self.cq_destroy(id); }); }, py::arg("id"))
      .def(
          "cq_resize",
          [](Self& self, Number id, const py::dict& fields) {
            const CqSpec spec = cq_spec(fields, true);
            return unlocked([&] { return self.cq_resize(id, spec); });
          },
          py::arg("id"), py::arg("fields"), "False: there is no room for what it holds.")
      .def(
          "cq_query",
          [](Self& self, Number id) {
            const auto state = unlocked([&] { return self.cq_query(id); });
            py::dict out;
            out["producer"] = state.producer;
            out["consumer"] = state.consumer;
            out["overrun"] = static_cast<int>(state.overrun);
            return out;
          },
          py::arg("id"))
      .def(
          "post_raw_cqe",
          [](Self& self, Number id, const py::buffer& entry) {
            const Bytes bytes(entry);
            const uint8_t* at = bytes.exactly(completion_bytes, "an entry");
            unlocked([&] { self.post_raw_cqe(id, at); });
          },
          py::arg("cq_id"), py::arg("entry"))
      .def(
          "srq_create",
          [](Self& self, Number id, const py::dict& fields) {
            const SrqSpec spec = srq_spec(fields);
            unlocked([&] { self.srq_create(id, spec); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "srq_destroy", [](Self& self, Number id) { unlocked([&] { self.srq_destroy(id); }); }, py::arg("id"))
      .def(
          "srq_arm", [](Self& self, Number id, uint32_t limit) { unlocked([&] { self.srq_arm(id, limit); }); },
          py::arg("id"), py::arg("limit"))
      .def(
          "srq_limit", [](Self& self, Number id) { return unlocked([&] { return self.srq_limit(id); }); },
          py::arg("id"), "Below how many receives an event is due; 0: none is.")
      .def(
          "qp_create",
          [](Self& self, Number id, const py::dict& fields) {
            const QueuePairSpec spec = queue_pair_spec(fields);
            unlocked([&] { self.qp_create(id, spec); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "qp_modify",
          [](Self& self, Number id, const py::dict& fields) {
            Attributes values;
            const uint32_t given = attributes(fields, values);
            unlocked([&] { self.qp_modify(id, values, given); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "qp_destroy", [](Self& self, Number id) { unlocked([&] { self.qp_destroy(id); }); }, py::arg("id"))
      .def(
          "qp_query",
          [](Self& self, Number id) {
            const auto state = unlocked([&] { return self.qp_query(id); });
            py::dict out = to_dict(state.attributes);
            out["sq_counter"] = state.sq_counter;
            out["rq_counter"] = state.rq_counter;
            return out;
          },
          py::arg("id"))
      .def(
          "page_fault_resume",
          [](Self& self, uint8_t kind, Number token, Number queue, bool error) {
            using Resumed = SoftMlx5::Resumed;
            const Resumed resumed = unlocked([&] { return self.page_fault_resume(kind, token, queue, error); });
            return resumed == Resumed::Yes ? "" : resumed == Resumed::NoFault ? "fault" : "queue";
          },
          py::arg("type"), py::arg("token"), py::arg("queue"), py::arg("error"))
      .def("page_faults", [](Self& self) { return unlocked([&] { return self.page_faults(); }); })
      .def(
          "fail_qp", [](Self& self, Number id) { unlocked([&] { self.fail_qp(id); }); }, py::arg("id"))
      .def(
          "mkey_create",
          [](Self& self, Number key, const py::dict& fields) {
            MkeySpec spec = mkey_spec(fields);
            unlocked([&] { self.mkey_create(key, std::move(spec)); });
          },
          py::arg("key"), py::arg("fields"))
      .def(
          "mkey_destroy", [](Self& self, Number key) { unlocked([&] { self.mkey_destroy(key); }); }, py::arg("key"))
      .def(
          "mkey_query",
          [](Self& self, Number key) {
            const auto state = unlocked([&] { return self.mkey_query(key); });
            py::dict out;
            out["key"] = state.key;
            out["pd"] = state.spec.pd;
            out["access"] = state.spec.access;
            out["start"] = state.spec.start;
            out["length"] = state.spec.bytes;
            out["free"] = state.spec.free;
            std::vector<std::tuple<uint64_t, uint32_t, uint64_t>> klms;
            for (size_t i = 0; i < state.spec.parts.size() && i < 2; i++) {
              const auto& part = state.spec.parts[i];
              klms.emplace_back(part.bytes, part.key, part.address);
            }
            out["klms"] = klms;
            return out;
          },
          py::arg("key"))
      .def(
          "gid_set",
          [](Self& self, Number index, const py::buffer& gid, const py::buffer& mac) {
            Gid entry;
            std::memcpy(entry.gid, Bytes(gid).exactly(sizeof entry.gid, "a GID"), sizeof entry.gid);
            std::memcpy(entry.mac, Bytes(mac).exactly(sizeof entry.mac, "a MAC"), sizeof entry.mac);
            unlocked([&] { self.gid_set(index, entry); });
          },
          py::arg("index"), py::arg("gid"), py::arg("mac"))
      .def(
          "gid_clear", [](Self& self, Number index) { unlocked([&] { self.gid_clear(index); }); }, py::arg("index"))
      .def(
          "group_attach",
          [](Self& self, const py::buffer& gid, Number qpn) {
            const auto group = gid_of(gid);
            unlocked([&] { self.group_attach(group, qpn); });
          },
          py::arg("gid"), py::arg("qpn"))
      .def(
          "group_detach",
          [](Self& self, const py::buffer& gid, Number qpn) {
            const auto group = gid_of(gid);
            unlocked([&] { self.group_detach(group, qpn); });
          },
          py::arg("gid"), py::arg("qpn"));
}

}  // namespace userdma::python
