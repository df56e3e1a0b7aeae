// Binds csrc/soft: wires, clocks, the Thor2 in software for its firmware in Python, memory behind a BAR.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "python/arguments.h"
#include "python/gil.h"
#include "python/host.h"
#include "python/soft_ethernet.h"
#include "python/soft_function.h"
#include "soft/bnxt/soft_bnxt.h"
#include "soft/clock.h"
#include "soft/gpu.h"
#include "soft/wire/codec.h"
#include "soft/wire/faults.h"
#include "soft/wire/tap.h"
#include "soft/wire/wire.h"

namespace userdma::python {

namespace {

using soft::Clock;
using soft::RealClock;
using soft::SoftGpu;
using soft::VirtualClock;
using soft::bnxt::AddressVector;
using soft::bnxt::KeyClaim;
using soft::bnxt::PageTable;
using soft::bnxt::QueuePairSpec;
using soft::bnxt::RegionSpec;
using soft::bnxt::SoftBnxt;
using soft::bnxt::SrqSpec;
using soft::transport::Attributes;
using soft::wire::Wire;

QueuePairSpec queue_pair_spec(const py::dict& dict) {
  Fields fields(dict);
  QueuePairSpec spec;
  spec.type = fields.get<uint8_t>("type", spec.type);
  spec.scq = fields.get<uint32_t>("scq");
  spec.rcq = fields.get<uint32_t>("rcq");
  spec.pd = fields.get<uint32_t>("pd");
  spec.sq_size = fields.get<uint32_t>("sq_size");
  spec.rq_size = fields.get<uint32_t>("rq_size");
  spec.sq_sges = fields.get<uint32_t>("sq_sges", spec.sq_sges);
  spec.rq_sges = fields.get<uint32_t>("rq_sges", spec.rq_sges);
  spec.sq = page_table(fields.get<uint64_t>("sq_pbl"), fields.get<unsigned>("sq_level"),
                       fields.get<unsigned>("sq_page_shift"));
  if (spec.rq_size) {
    spec.rq = page_table(fields.get<uint64_t>("rq_pbl"), fields.get<unsigned>("rq_level"),
                         fields.get<unsigned>("rq_page_shift"));
  }
  spec.handle = fields.get<uint64_t>("handle", 0);
  spec.variable = fields.get<bool>("variable", false);
  spec.msn_table = fields.get<bool>("msn_table", true);
  spec.signal_all = fields.get<bool>("signal_all", false);
  spec.inline_max = fields.get<uint32_t>("inline_max", spec.inline_max);
  spec.reserved_lkey = fields.get<bool>("reserved_lkey", false);
  spec.fast_register = fields.get<bool>("fast_register", false);
  if (fields.has("srq")) spec.srq = fields.number<uint32_t>("srq");
  fields.done();
  return spec;
}

SrqSpec srq_spec(const py::dict& dict, std::optional<uint32_t>& nq) {
  Fields fields(dict);
  SrqSpec spec;
  spec.pd = fields.get<uint32_t>("pd");
  spec.entries = fields.get<uint32_t>("entries");
  spec.table =
      page_table(fields.get<uint64_t>("pbl"), fields.get<unsigned>("level"), fields.get<unsigned>("page_shift"));
  spec.handle = fields.get<uint64_t>("handle", 0);
  if (fields.has("nq")) nq = fields.number<uint32_t>("nq");
  fields.done();
  return spec;
}

AddressVector address_vector(const py::dict& dict) {
  Fields fields(dict);
  AddressVector vector;
  vector.pd = fields.get<uint32_t>("pd");
  vector.address.hop_limit = fields.get<uint8_t>("hop_limit", vector.address.hop_limit);
  vector.address.traffic_class = fields.get<uint8_t>("traffic_class", vector.address.traffic_class);
  const auto bytes = [&](const char* name, uint8_t* value, size_t size) {
    if (!fields.has(name)) value_error(std::string(name) + " is missing");
    fields.copy(name, value, size);
  };
  bytes("dmac", vector.address.dmac, 6);
  bytes("smac", vector.address.smac, 6);
  bytes("sgid", vector.address.sgid, 16);
  bytes("dgid", vector.address.dgid, 16);
  fields.done();
  return vector;
}

RegionSpec region_spec(const py::dict& dict) {
  Fields fields(dict);
  RegionSpec spec;
  spec.pd = fields.get<uint32_t>("pd");
  spec.va = fields.get<uint64_t>("va");
  spec.bytes = fields.get<uint64_t>("bytes");
  spec.access = fields.get<uint8_t>("access");
  spec.physical = fields.get<bool>("physical", false);
  const auto base = fields.get<uint64_t>("pbl", 0);
  const auto level = fields.get<unsigned>("level", 0u);
  const auto shift = fields.get<unsigned>("page_shift", 12u);
  const auto table_shift = fields.get<unsigned>("pbl_page_shift", 12u);
  fields.done();
  if (spec.physical) {
    if (!spec.bytes) spec.bytes = uint64_t{1} << soft::Dma::address_bits;
  } else {
    spec.table = page_table(base, level, shift, table_shift);
  }
  return spec;
}

py::dict query(const SoftBnxt::QueuePairState& state) {
  py::dict out = to_dict(state.attributes);
  out["sq_consumer"] = state.sq_consumer;
  out["rq_consumer"] = state.rq_consumer;
  return out;
}

using PythonBnxt = WithFirmware<SoftBnxt, 3>;

void set_firmware(PythonBnxt& self, py::object hwrm, py::object rcfw, py::object reset) {
  self.set_callables({{{"hwrm", std::move(hwrm)}, {"rcfw", std::move(rcfw)}, {"reset", std::move(reset)}}});
  self.set_firmware({
      [&self](const uint8_t* window, size_t bytes) {
        self.call(0, [&] { return py::bytes(reinterpret_cast<const char*>(window), bytes); });
      },
      [&self](uint32_t producer) { self.call(1, [&] { return producer; }); },
      [&self] { self.call(2); },
  });
}

using soft::wire::Faults;
using soft::wire::FaultyWire;
using soft::wire::Tap;

// The text of a wire's name; none: a wire of its own.
std::optional<std::string> wire_name(const py::object& name) {
  if (name.is_none()) return std::nullopt;
  if (!PyUnicode_Check(name.ptr())) throw py::type_error("name must be a str, not " + type_name(name));
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &bytes);
  if (!text || std::strlen(text) != static_cast<size_t>(bytes)) {
    PyErr_Clear();
    value_error("no wire can be named " +
                std::string(py::repr(name).attr("encode")("ascii", "backslashreplace").cast<py::bytes>()));
  }
  return std::string(text, static_cast<size_t>(bytes));
}

// Whether it is from 0 to 1 is the wire's to say.
double probability(const py::object& given, const char* name) {
  const double value = PyFloat_AsDouble(given.ptr());
  if (value == -1.0 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
    PyErr_Clear();
    throw py::type_error(std::string(name) + " must be a probability from 0 to 1, not " + type_name(given));
  }
  return value;
}

std::shared_ptr<Wire> make_wire(const py::object& given, const py::object& loss, const py::object& duplicate,
                                const py::object& reorder, const py::object& corrupt, const py::object& delay,
                                unsigned reorder_depth, uint64_t delay_ns, uint64_t seed, const py::object& timed,
                                bool frames) {
  const std::optional<std::string> name = wire_name(given);
  std::shared_ptr<Clock> clock;
  if (!timed.is_none()) {
    if (!py::isinstance<Clock>(timed)) throw py::type_error("clock must be a Clock, not " + type_name(timed));
    clock = timed.cast<std::shared_ptr<Clock>>();
  }
  Faults faults;
  faults.loss = probability(loss, "loss");
  faults.duplicate = probability(duplicate, "duplicate");
  faults.reorder = probability(reorder, "reorder");
  faults.corrupt = probability(corrupt, "corrupt");
  faults.delay = probability(delay, "delay");
  faults.reorder_depth = reorder_depth;
  faults.delay_ns = delay_ns;
  faults.seed = seed;
  const bool impairs =
      faults.loss != 0 || faults.duplicate != 0 || faults.reorder != 0 || faults.corrupt != 0 || faults.delay != 0;
  return unlocked([&]() -> std::shared_ptr<Wire> {
    std::shared_ptr<Wire> wire;
    try {
      wire = name ? Wire::named(*name) : Wire::make();
    } catch (const host::Error& error) {
      throw std::invalid_argument(error.what());  // only the name can be wrong: the wire is not used yet
    }
    if (!impairs && !frames) return wire;
    if (!clock) clock = std::make_shared<RealClock>();
    return std::make_shared<FaultyWire>(std::move(wire), faults, std::move(clock));
  });
}

FaultyWire& framed(Wire& wire) {
  auto* found = dynamic_cast<FaultyWire*>(&wire);
  if (!found) value_error("the wire carries packets that are no frames: make it with frames=True");
  return *found;
}

py::bytes to_bytes(const std::vector<uint8_t>& frame) {
  return py::bytes(reinterpret_cast<const char*>(frame.data()), frame.size());
}

void bind_bnxt(py::module_& m) {
  using Number = uint32_t;
  py::class_<PythonBnxt, soft::SoftFunction, std::shared_ptr<PythonBnxt>> type(
      m, "SoftBnxt", "The Thor2 in software, without firmware.", py::custom_type_setup(collect<PythonBnxt>));
  bind_ethernet(type);
  define_constructor<PythonBnxt>(type);
  type.def("set_firmware", set_firmware, py::arg("hwrm"), py::arg("rcfw"), py::arg("reset"))
      .def(
          "nq_create",
          [](PythonBnxt& self, Number id, uint64_t base, unsigned level, uint64_t page_size, uint32_t entries,
             unsigned vector) {
            const PageTable table = page_table(base, level, page_shift(page_size));
            unlocked([&] { self.nq_create(id, table, entries, vector); });
          },
          py::arg("id"), py::arg("base"), py::arg("level"), py::arg("page_size"), py::arg("entries"),
          py::arg("vector") = 0)
      .def(
          "nq_destroy", [](PythonBnxt& self, Number id) { unlocked([&] { self.nq_destroy(id); }); }, py::arg("id"))
      .def(
          "nq_post",
          [](PythonBnxt& self, Number id, const py::buffer& entry) {
            const Bytes bytes(entry);
            const uint8_t* at = bytes.exactly(16, "an entry");
            unlocked([&] { self.nq_post(id, at); });
          },
          py::arg("id"), py::arg("entry"))
      .def(
          "creq_set", [](PythonBnxt& self, std::optional<Number> id) { unlocked([&] { self.creq_set(id); }); },
          py::arg("nq_id"))
      .def(
          "creq_post",
          [](PythonBnxt& self, const py::buffer& entry) {
            const Bytes bytes(entry);
            const uint8_t* at = bytes.exactly(16, "an entry");
            unlocked([&] { self.creq_post(at); });
          },
          py::arg("entry"))
      .def(
          "cq_create",
          [](PythonBnxt& self, Number id, uint32_t entries, uint64_t base, unsigned level, unsigned shift,
             std::optional<Number> nq, uint64_t handle) {
            const PageTable table = page_table(base, level, shift);
            unlocked([&] { self.cq_create(id, entries, table, nq, handle); });
          },
          py::arg("id"), py::arg("entries"), py::arg("pbl"), py::arg("level"), py::arg("page_shift"), py::arg("nq_id"),
          py::arg("handle"))
      .def(
          "cq_destroy", [](PythonBnxt& self, Number id) { return unlocked([&] { return self.cq_destroy(id); }); },
          py::arg("id"), "How many notifications it sent.")
      .def(
          "cq_resize",
          [](PythonBnxt& self, Number id, uint32_t entries, uint64_t base, unsigned level, unsigned shift) {
            const PageTable table = page_table(base, level, shift);
            return unlocked([&] { return self.cq_resize(id, entries, table); });
          },
          py::arg("id"), py::arg("entries"), py::arg("pbl"), py::arg("level"), py::arg("page_shift"),
          "False: the ring has no room for its last entry.")
      .def(
          "srq_create",
          [](PythonBnxt& self, Number id, const py::dict& fields) {
            std::optional<uint32_t> nq;
            const SrqSpec spec = srq_spec(fields, nq);
            unlocked([&] { self.srq_create(id, spec, nq); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "srq_destroy", [](PythonBnxt& self, Number id) { unlocked([&] { self.srq_destroy(id); }); }, py::arg("id"))
      .def(
          "srq_limit", [](PythonBnxt& self, Number id) { return unlocked([&] { return self.srq_limit(id); }); },
          py::arg("id"), "Below how many receives an event is due; 0: none is.")
      .def(
          "ah_create",
          [](PythonBnxt& self, Number id, const py::dict& fields) {
            const AddressVector vector = address_vector(fields);
            unlocked([&] { self.ah_create(id, vector); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "ah_destroy", [](PythonBnxt& self, Number id) { unlocked([&] { self.ah_destroy(id); }); }, py::arg("id"))
      .def(
          "post_raw_cqe",
          [](PythonBnxt& self, Number cq, const py::buffer& entry) {
            const Bytes bytes(entry);
            const uint8_t* at = bytes.exactly(32, "an entry");
            unlocked([&] { self.post_raw_cqe(cq, at); });
          },
          py::arg("cq_id"), py::arg("entry"))
      .def(
          "qp_create",
          [](PythonBnxt& self, Number id, const py::dict& fields) {
            const QueuePairSpec spec = queue_pair_spec(fields);
            unlocked([&] { self.qp_create(id, spec); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "qp_modify",
          [](PythonBnxt& self, Number id, const py::dict& fields) {
            Attributes values;
            const uint32_t given = attributes(fields, values);
            unlocked([&] { self.qp_modify(id, values, given); });
          },
          py::arg("id"), py::arg("fields"))
      .def(
          "qp_destroy", [](PythonBnxt& self, Number id) { unlocked([&] { self.qp_destroy(id); }); }, py::arg("id"))
      .def(
          "qp_query", [](PythonBnxt& self, Number id) { return query(unlocked([&] { return self.qp_query(id); })); },
          py::arg("id"))
      .def(
          "fail_qp", [](PythonBnxt& self, Number id) { unlocked([&] { self.fail_qp(id); }); }, py::arg("id"))
      .def(
          "mr_register",
          [](PythonBnxt& self, Number key, const py::dict& fields) {
            const RegionSpec spec = region_spec(fields);
            unlocked([&] { self.mr_register(key, spec); });
          },
          py::arg("key"), py::arg("fields"))
      .def(
          "mr_deregister", [](PythonBnxt& self, Number key) { unlocked([&] { self.mr_deregister(key); }); },
          py::arg("key"))
      .def(
          "key_claim",
          [](PythonBnxt& self, Number key, uint32_t pd, const std::string& kind) {
            KeyClaim claim;
            claim.pd = pd;
            if (kind == "fast_register") {
              claim.kind = KeyClaim::Kind::FastRegister;
            } else if (kind == "window1" || kind == "window2") {
              claim.kind = kind == "window1" ? KeyClaim::Kind::Window1 : KeyClaim::Kind::Window2;
            } else {
              value_error("kind is " + kind);
            }
            unlocked([&] { self.key_claim(key, claim); });
          },
          py::arg("key"), py::arg("pd"), py::arg("kind"),
          "A key under which entries of queue pairs register (\"fast_register\") or bind (\"window1\", \"window2\").")
      .def(
          "key_release", [](PythonBnxt& self, Number key) { unlocked([&] { self.key_release(key); }); },
          py::arg("key"));
}

}  // namespace

void bind_soft(py::module_& m) {
  py::class_<Clock, std::shared_ptr<Clock>>(m, "Clock", "The time that timers of soft NICs run on.")
      .def("now", &Clock::now, "Nanoseconds from an arbitrary start.")
      .def_property_readonly("is_virtual", &Clock::is_virtual);
  py::class_<RealClock, Clock, std::shared_ptr<RealClock>>(m, "RealClock", "The machine's monotonic clock.")
      .def(py::init([] { return std::make_shared<RealClock>(); }));
  py::class_<VirtualClock, Clock, std::shared_ptr<VirtualClock>>(
      m, "VirtualClock", "Time that stands still while a NIC has something to do, then jumps to the next timer.")
      .def(py::init<uint64_t>(), py::arg("start") = 0)
      .def("step", &VirtualClock::step, py::call_guard<Unlocked>())
      .def("advance", &VirtualClock::advance, py::arg("nanoseconds"), py::call_guard<Unlocked>());

  py::class_<Wire, std::shared_ptr<Wire>>(m, "Wire", "What soft NICs are connected by.")
      .def(
          py::init(&make_wire), py::arg("name") = py::none(), py::kw_only(), py::arg("loss") = 0.0,
          py::arg("duplicate") = 0.0, py::arg("reorder") = 0.0, py::arg("corrupt") = 0.0, py::arg("delay") = 0.0,
          py::arg("reorder_depth") = Faults{}.reorder_depth, py::arg("delay_ns") = Faults{}.delay_ns,
          py::arg("seed") = 0, py::arg("clock") = py::none(), py::arg("frames") = false,
          "A new wire in this process; by the name \"\" the process's default wire, by \"shm:NAME\" the one that "
          "processes of this\nmachine share, by \"dgram:LOCAL,REMOTE\" one to the peer that speaks frames as datagrams "
          "at a Unix socket.\n\n"
          "Probabilities for each packet that a NIC here sends, each for itself, from 0 to 1:\n"
          "  loss       it does not arrive\n"
          "  duplicate  it arrives twice\n"
          "  reorder    1 to reorder_depth later packets overtake it, or delay_ns pass\n"
          "  corrupt    1 to 4 bits of its frame change\n"
          "  delay      it arrives up to delay_ns later, and others may overtake it\n\n"
          "The same seed makes the same faults. clock is what delays run on, by default the machine's. With faults, or "
          "frames=True,\npackets cross as RoCEv2 frames, which capture and take show.")
      .def_property_readonly("name", &Wire::name)
      .def(
          "capture", [](Wire& self, const py::object& limit) { framed(self).capture(count_of(limit, "limit")); },
          py::arg("limit"), "Keeps the frames sent from here on, the first `limit` of them.")
      .def(
          "take",
          [](Wire& self) {
            py::list out;
            for (const auto& frame : framed(self).take()) out.append(to_bytes(frame));
            return out;
          },
          "The frames kept, which are forgotten.");

  py::class_<Tap, std::shared_ptr<Tap>>(m, "Tap", "A place on a wire for a program that makes frames itself.")
      .def(py::init([](const std::shared_ptr<Wire>& wire, const py::buffer& mac) {
             uint8_t address[6];
             std::memcpy(address, Bytes(mac).exactly(6, "the MAC"), 6);
             return unlocked([&] { return std::make_shared<Tap>(wire, address); });
           }),
           py::arg("wire").none(false), py::arg("mac"))
      .def(
          "send",
          [](Tap& self, const py::buffer& frame) {
            const Bytes bytes(frame);
            const auto result = unlocked([&] { return self.send(bytes.data(), bytes.size()); });
            return result == soft::wire::Malformed::No ? std::string() : std::string(soft::wire::name(result));
          },
          py::arg("frame"), "Sends a frame. What a receiver would throw away is not sent, and the result says why.")
      .def(
          "send_ethernet",
          [](Tap& self, const py::buffer& frame) {
            const Bytes bytes(frame);
            unlocked([&] { self.send_ethernet(bytes.data(), bytes.size()); });
          },
          py::arg("frame"), "Sends a frame as it is, whatever it carries, to the Ethernet of its receivers.")
      .def("receive",
           [](Tap& self) {
             py::list out;
             for (const auto& frame : unlocked([&] { return self.receive(); })) out.append(to_bytes(frame));
             return out;
           })
      .def("close", [](Tap& self) { unlocked([&] { self.close(); }); });

  py::class_<SoftGpu, std::shared_ptr<SoftGpu>>(m, "SoftGpu",
                                                "Memory behind a BAR, which devices reach by its bus address.")
      .def(py::init([](size_t bytes) { return unlocked([&] { return std::make_shared<SoftGpu>(bytes); }); }),
           py::arg("bytes"))
      .def_property_readonly("bus", &SoftGpu::bus)
      .def("__len__", &SoftGpu::size)
      .def(
          "read",
          [](SoftGpu& self, size_t at, size_t n) {
            if (at > self.size() || n > self.size() - at) value_error("past the end of the memory");
            return py::bytes(reinterpret_cast<const char*>(self.data()) + at, n);
          },
          py::arg("at"), py::arg("n"))
      .def(
          "write",
          [](SoftGpu& self, size_t at, const py::buffer& data) {
            const Bytes bytes(data);
            if (at > self.size() || bytes.size() > self.size() - at) value_error("past the end of the memory");
            std::memcpy(self.data() + at, bytes.data(), bytes.size());
          },
          py::arg("at"), py::arg("data"));

  // A join that waits for another process answers signals.
  Wire::while_waiting([] {
    if (!python_runs()) return;
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  });
  m.def(
      "remove_abandoned_wires", [] { unlocked([] { Wire::remove_abandoned(); }); },
      "Removes the files of wires \"shm:NAME\" of this user that no process is on any more.");

  bind_soft_function(m);
  bind_bnxt(m);
  bind_soft_mlx5(m);
}

}  // namespace userdma::python
