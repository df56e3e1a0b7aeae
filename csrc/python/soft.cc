// Binds csrc/soft: wires, clocks, the Thor2 in software for its firmware in Python, memory behind a BAR.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "python/gil.h"
#include "python/host.h"
#include "python/undisturbed.h"
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
using soft::bnxt::PageTable;
using soft::bnxt::QueuePairSpec;
using soft::bnxt::RegionSpec;
using soft::bnxt::SoftBnxt;
using soft::transport::Attributes;
using soft::wire::Wire;

PyObject* dma_fault = nullptr;

[[noreturn]] void raise_fault(uint64_t bus, size_t bytes, bool write) {
  char text[96];
  std::snprintf(text, sizeof text, "DMA %s of %zu bytes at %#llx: not mapped", write ? "write" : "read", bytes,
                static_cast<unsigned long long>(bus));
  PyErr_SetString(dma_fault, text);
  throw py::error_already_set();
}

// The bytes of an argument, whatever buffer it is.
class Bytes {
 public:
  explicit Bytes(const py::buffer& buffer) : info_(buffer.request()) {
    if (!PyBuffer_IsContiguous(info_.view(), 'C')) buffer_error("the bytes must be contiguous");
  }
  const uint8_t* data() const { return static_cast<const uint8_t*>(info_.ptr); }
  size_t size() const { return static_cast<size_t>(info_.size * info_.itemsize); }
  // Exactly so many.
  const uint8_t* exactly(size_t bytes, const char* what) const {
    if (size() != bytes) {
      value_error(std::string(what) + " is " + std::to_string(bytes) + " bytes, not " + std::to_string(size()));
    }
    return data();
  }

 private:
  py::buffer_info info_;
};

// A dictionary of a firmware's: every key is used, or it is an error.
class Fields {
 public:
  explicit Fields(const py::dict& dict) : dict_(dict) {}

  bool has(const char* name) {
    const bool there = dict_.contains(name) && !dict_[name].is_none();
    if (dict_.contains(name)) seen_++;
    return there;
  }
  template <class T>
  T get(const char* name) {
    if (!dict_.contains(name)) value_error(std::string(name) + " is missing");
    seen_++;
    return number<T>(name);
  }
  template <class T>
  T get(const char* name, T otherwise) {
    return has(name) ? number<T>(name) : otherwise;
  }
  // For a name that `has` found.
  template <class T>
  T number(const char* name) {
    try {
      return dict_[name].cast<T>();
    } catch (const py::cast_error&) {
      value_error(std::string(name) + " is " + std::string(py::repr(dict_[name])));
    }
  }
  void copy(const char* name, uint8_t* into, size_t bytes) {
    const Bytes value{py::buffer(dict_[name])};
    std::memcpy(into, value.exactly(bytes, name), bytes);
  }
  void done() const {
    if (seen_ == py::len(dict_)) return;
    value_error("names that are not known among " + std::string(py::repr(py::list(dict_.attr("keys")()))));
  }

 private:
  py::dict dict_;
  size_t seen_ = 0;
};

// Pages by their size in bytes or, below 64, by its logarithm.
unsigned page_shift(uint64_t size) {
  const unsigned shift = size < 64 ? static_cast<unsigned>(size) : static_cast<unsigned>(std::bit_width(size) - 1);
  if (shift < 12 || shift > 40 || (size >= 64 && size != uint64_t{1} << shift)) {
    value_error("pages of " + std::to_string(size) + " bytes");
  }
  return shift;
}

PageTable page_table(uint64_t base, unsigned level, unsigned shift, unsigned table_shift = 12) {
  if (level > 2) value_error("a page table of level " + std::to_string(level));
  if (table_shift < 12 || table_shift > 40) value_error("page tables of 2^" + std::to_string(table_shift) + " bytes");
  return {base, level, page_shift(shift), table_shift};
}

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
  if (fields.has("srq")) value_error("shared receive queues are not there");
  fields.done();
  return spec;
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

uint32_t attributes(const py::dict& dict, Attributes& out) {
  Fields fields(dict);
  uint32_t given = 0;
  const auto number = [&](const char* name, auto& value, uint32_t bit) {
    if (!fields.has(name)) return;
    value = fields.number<std::remove_reference_t<decltype(value)>>(name);
    given |= bit;
  };
  const auto bytes = [&](const char* name, uint8_t* value, size_t size, uint32_t bit) {
    if (!fields.has(name)) return;
    fields.copy(name, value, size);
    given |= bit;
  };
  if (fields.has("state")) {
    const auto state = fields.number<unsigned>("state");
    if (state > static_cast<unsigned>(soft::transport::State::Err)) value_error("state is " + std::to_string(state));
    out.state = static_cast<soft::transport::State>(state);
    given |= Attributes::HasState;
  }
  // The chip's bits of a queue pair's rights are the transport's (hw/bnxt.h qp_access).
  number("access", out.access, Attributes::HasAccess);
  number("pkey", out.pkey, Attributes::HasPkey);
  number("dest_qp", out.dest_qp, Attributes::HasDestQp);
  number("mtu", out.mtu, Attributes::HasMtu);
  number("hop_limit", out.hop_limit, Attributes::HasHopLimit);
  number("traffic_class", out.traffic_class, Attributes::HasTrafficClass);
  number("timeout", out.timeout, Attributes::HasTimeout);
  number("retry", out.retry, Attributes::HasRetry);
  number("rnr_retry", out.rnr_retry, Attributes::HasRnrRetry);
  number("min_rnr_timer", out.min_rnr_timer, Attributes::HasMinRnrTimer);
  number("max_rd_atomic", out.max_rd_atomic, Attributes::HasMaxRdAtomic);
  number("max_dest_rd_atomic", out.max_dest_rd_atomic, Attributes::HasMaxDestRdAtomic);
  number("rq_psn", out.rq_psn, Attributes::HasRqPsn);
  number("sq_psn", out.sq_psn, Attributes::HasSqPsn);
  bytes("dmac", out.dmac, 6, Attributes::HasDmac);
  bytes("smac", out.smac, 6, Attributes::HasSmac);
  bytes("sgid", out.sgid, 16, Attributes::HasSgid);
  bytes("dgid", out.dgid, 16, Attributes::HasDgid);
  fields.done();
  if (given & Attributes::HasMtu && (out.mtu < 256 || out.mtu > 4096 || !std::has_single_bit(out.mtu))) {
    value_error("mtu is " + std::to_string(out.mtu));
  }
  return given;
}

py::dict query(const SoftBnxt::QueuePairState& state) {
  const Attributes& a = state.attributes;
  const auto raw = [](const uint8_t* at, size_t n) { return py::bytes(reinterpret_cast<const char*>(at), n); };
  py::dict out;
  out["state"] = static_cast<unsigned>(a.state);
  out["access"] = a.access;
  out["pkey"] = a.pkey;
  out["dest_qp"] = a.dest_qp;
  out["mtu"] = a.mtu;
  out["dmac"] = raw(a.dmac, 6);
  out["smac"] = raw(a.smac, 6);
  out["sgid"] = raw(a.sgid, 16);
  out["dgid"] = raw(a.dgid, 16);
  out["hop_limit"] = a.hop_limit;
  out["traffic_class"] = a.traffic_class;
  out["timeout"] = a.timeout;
  out["retry"] = a.retry;
  out["rnr_retry"] = a.rnr_retry;
  out["min_rnr_timer"] = a.min_rnr_timer;
  out["max_rd_atomic"] = a.max_rd_atomic;
  out["max_dest_rd_atomic"] = a.max_dest_rd_atomic;
  out["rq_psn"] = a.rq_psn;
  out["sq_psn"] = a.sq_psn;
  out["sq_consumer"] = state.sq_consumer;
  out["rq_consumer"] = state.rq_consumer;
  return out;
}

py::dict numbers(const std::vector<std::pair<std::string, uint64_t>>& list) {
  py::dict out;
  for (const auto& [name, value] : list) out[py::str(name)] = value;
  return out;
}

// A soft Thor2 with firmware in Python. The callables are kept here, where the garbage collector sees them: they
// refer back to the function.
class PythonBnxt final : public SoftBnxt {
 public:
  using SoftBnxt::SoftBnxt;
  ~PythonBnxt() override {
    // Whoever drops the last reference may not hold the GIL (a poll that was interrupted, another function's end).
    if (!Py_IsInitialized()) {
      for (py::object* callable : {&hwrm, &rcfw, &reset}) (void)callable->release();
      return;
    }
    py::gil_scoped_acquire gil;
    set_firmware({});
    hwrm = rcfw = reset = py::object();
  }

  py::object hwrm;
  py::object rcfw;
  py::object reset;
};

// Calls one of them. A NIC does not stop at an error of its firmware: it is printed, and that is all.
template <class... Args>
void call(const py::object& callable, Args&&... args) {
  try {
    const py::object held = callable;
    if (held && !held.is_none()) held(std::forward<Args>(args)...);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("the firmware of a soft NIC");
  }
}

void set_firmware(PythonBnxt& self, py::object hwrm, py::object rcfw, py::object reset) {
  self.hwrm = std::move(hwrm);
  self.rcfw = std::move(rcfw);
  self.reset = std::move(reset);
  self.set_firmware({
      [&self](const uint8_t* window, size_t bytes) {
        undisturbed([&] { call(self.hwrm, py::bytes(reinterpret_cast<const char*>(window), bytes)); });
      },
      [&self](uint32_t producer) { undisturbed([&] { call(self.rcfw, producer); }); },
      [&self] { undisturbed([&] { call(self.reset); }); },
  });
}

// The callables are this object's alone only while nothing else in C++ holds the function.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!py::detail::is_holder_constructed(self)) return 0;
  const auto held = py::handle(self).cast<std::shared_ptr<PythonBnxt>>();
  if (held.use_count() > 2) return 0;
  Py_VISIT(held->hwrm.ptr());
  Py_VISIT(held->rcfw.ptr());
  Py_VISIT(held->reset.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (!py::detail::is_holder_constructed(self)) return 0;
  const auto held = py::handle(self).cast<std::shared_ptr<PythonBnxt>>();
  held->set_firmware({});
  held->hwrm = held->rcfw = held->reset = py::object();
  return 0;
}

void collect(PyHeapTypeObject* heap) {
  heap->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  heap->ht_type.tp_traverse = traverse;
  heap->ht_type.tp_clear = clear;
}

using soft::wire::Faults;
using soft::wire::FaultyWire;
using soft::wire::Tap;

template <class F>
auto unlocked(F&& work) {
  Unlocked release;
  return work();
}

std::shared_ptr<Wire> make_wire(const std::optional<std::string>& name, double loss, double duplicate, double reorder,
                                double corrupt, double delay, unsigned reorder_depth, uint64_t delay_ns, uint64_t seed,
                                std::shared_ptr<Clock> clock, bool frames) {
  const bool impairs = loss != 0 || duplicate != 0 || reorder != 0 || corrupt != 0 || delay != 0;
  return unlocked([&]() -> std::shared_ptr<Wire> {
    std::shared_ptr<Wire> wire;
    try {
      wire = name ? Wire::named(*name) : Wire::make();
    } catch (const host::Error& error) {
      throw std::invalid_argument(error.what());  // only the name can be wrong: the wire is not used yet
    }
    if (!impairs && !frames) return wire;
    Faults faults;
    faults.loss = loss;
    faults.duplicate = duplicate;
    faults.reorder = reorder;
    faults.corrupt = corrupt;
    faults.delay = delay;
    faults.reorder_depth = reorder_depth;
    faults.delay_ns = delay_ns;
    faults.seed = seed;
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

void check_bar(const PythonBnxt& self, int bar) {
  if (!self.bar_size(bar)) throw py::index_error("there is no BAR " + std::to_string(bar));
}

void bind_bnxt(py::module_& m) {
  using Number = uint32_t;
  py::class_<PythonBnxt, host::Function, std::shared_ptr<PythonBnxt>>(
      m, "SoftBnxt", "The Thor2 in software, without firmware.", py::custom_type_setup(collect))
      .def(py::init([](const std::string& name, std::shared_ptr<Wire> wire, const py::buffer& mac, bool iommu,
                       std::shared_ptr<Clock> clock, uint64_t seed, uint64_t memory, uint64_t pin_limit, bool thread) {
             if (!wire || !clock) value_error("a soft NIC needs a wire and a clock");
             SoftBnxt::Options options;
             options.name = name;
             options.wire = std::move(wire);
             options.clock = std::move(clock);
             std::memcpy(options.mac.data(), Bytes(mac).exactly(6, "the MAC"), 6);
             options.iommu = iommu;
             options.seed = seed;
             options.memory = memory;
             options.pin_limit = pin_limit;
             options.thread = thread;
             return unlocked([&] { return std::make_shared<PythonBnxt>(options); });
           }),
           py::arg("name"), py::arg("wire"), py::arg("mac"), py::kw_only(), py::arg("iommu") = true, py::arg("clock"),
           py::arg("seed") = 0, py::arg("memory") = 0, py::arg("pin_limit") = 0, py::arg("thread") = true)
      .def("set_firmware", set_firmware, py::arg("hwrm"), py::arg("rcfw"), py::arg("reset"))
      .def(
          "bar_bytes",
          [](PythonBnxt& self, int bar, uint64_t offset, size_t n) {
            check_bar(self, bar);
            std::string out(n, '\0');
            if (!self.bar_load(bar, offset, out.data(), n)) throw py::index_error("past the end of the BAR");
            return py::bytes(out);
          },
          py::arg("bar"), py::arg("offset"), py::arg("n"))
      .def(
          "bar_store",
          [](PythonBnxt& self, int bar, uint64_t offset, const py::buffer& data) {
            check_bar(self, bar);
            const Bytes bytes(data);
            if (!unlocked([&] { return self.bar_store(bar, offset, bytes.data(), bytes.size()); })) {
              throw py::index_error("past the end of the BAR");
            }
          },
          py::arg("bar"), py::arg("offset"), py::arg("data"))
      .def(
          "dma_read",
          [](PythonBnxt& self, uint64_t bus, size_t n) {
            auto out = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n)));
            if (!out) throw py::error_already_set();
            char* into = PyBytes_AS_STRING(out.ptr());
            if (!unlocked([&] { return self.dma_read(bus, into, n); })) raise_fault(bus, n, false);
            return out;
          },
          py::arg("bus"), py::arg("n"))
      .def(
          "dma_write",
          [](PythonBnxt& self, uint64_t bus, const py::buffer& data) {
            const Bytes bytes(data);
            if (!unlocked([&] { return self.dma_write(bus, bytes.data(), bytes.size()); })) {
              raise_fault(bus, bytes.size(), true);
            }
          },
          py::arg("bus"), py::arg("data"))
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
          "ingress", [](PythonBnxt& self, bool open) { self.ingress(open); }, py::arg("open"))
      .def("counts", [](PythonBnxt& self) { return numbers(unlocked([&] { return self.counts(); })); })
      .def("stats", [](PythonBnxt& self) { return numbers(unlocked([&] { return self.stats(); })); })
      .def("vanish", [](PythonBnxt& self) { unlocked([&] { self.vanish(); }); })
      .def(
          "advance", [](PythonBnxt& self) { return unlocked([&] { return self.owned() && self.nic().advance(); }); },
          "Does the NIC's work that there is; True if there was any.");
}

}  // namespace

void bind_soft(py::module_& m) {
  dma_fault = PyErr_NewExceptionWithDoc("userdma._core.DmaFault", "A device reached for memory that it must not.",
                                        nullptr, nullptr);
  m.attr("DmaFault") = py::reinterpret_borrow<py::object>(dma_fault);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (const soft::bnxt::UnknownId& error) {
      PyErr_SetString(PyExc_KeyError, error.what());
    }
  });

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
      .def(py::init(&make_wire), py::arg("name") = py::none(), py::kw_only(), py::arg("loss") = 0.0,
           py::arg("duplicate") = 0.0, py::arg("reorder") = 0.0, py::arg("corrupt") = 0.0, py::arg("delay") = 0.0,
           py::arg("reorder_depth") = Faults{}.reorder_depth, py::arg("delay_ns") = Faults{}.delay_ns,
           py::arg("seed") = 0, py::arg("clock") = py::none(), py::arg("frames") = false,
           "A new wire in this process; by the name \"\" the process's default wire, by \"shm:NAME\" the one that "
           "processes of this machine share. With faults (probabilities for each packet) or frames=True, packets cross "
           "as RoCEv2 frames.")
      .def_property_readonly("name", &Wire::name)
      .def(
          "capture", [](Wire& self, size_t limit) { framed(self).capture(limit); }, py::arg("limit"),
          "Keeps the frames sent from here on, the first `limit` of them.")
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
           py::arg("wire"), py::arg("mac"))
      .def(
          "send",
          [](Tap& self, const py::buffer& frame) {
            const Bytes bytes(frame);
            const auto result = unlocked([&] { return self.send(bytes.data(), bytes.size()); });
            return result == soft::wire::Malformed::No ? std::string() : std::string(soft::wire::name(result));
          },
          py::arg("frame"), "Sends a frame. What a receiver would throw away is not sent, and the result says why.")
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

  bind_bnxt(m);
}

}  // namespace userdma::python
