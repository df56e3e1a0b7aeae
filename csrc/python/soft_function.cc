// Binds csrc/soft/soft_function.h: what the firmware and the tests of every soft NIC see of it.
#include "python/soft_function.h"

#include <bit>
#include <cstdio>
#include <mutex>
#include <vector>

namespace userdma::python {

namespace {

using soft::SoftFunction;
using soft::transport::Attributes;

PyObject* dma_fault = nullptr;

[[noreturn]] void raise_fault(uint64_t bus, size_t bytes, bool write) {
  char text[96];
  std::snprintf(text, sizeof text, "DMA %s of %zu bytes at %#llx: not mapped", write ? "write" : "read", bytes,
                static_cast<unsigned long long>(bus));
  PyErr_SetString(dma_fault, text);
  throw py::error_already_set();
}

py::dict numbers(const std::vector<std::pair<std::string, uint64_t>>& list) {
  py::dict out;
  for (const auto& [name, value] : list) out[py::str(name)] = value;
  return out;
}

void check_bar(const SoftFunction& self, int bar) {
  if (!self.bar_size(bar)) throw py::index_error("there is no BAR " + std::to_string(bar));
}

}  // namespace

std::string type_name(const py::object& object) { return Py_TYPE(object.ptr())->tp_name; }

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
  number("udp_source", out.udp_source, Attributes::HasUdpSource);
  number("timeout", out.timeout, Attributes::HasTimeout);
  number("retry", out.retry, Attributes::HasRetry);
  number("rnr_retry", out.rnr_retry, Attributes::HasRnrRetry);
  number("min_rnr_timer", out.min_rnr_timer, Attributes::HasMinRnrTimer);
  number("max_rd_atomic", out.max_rd_atomic, Attributes::HasMaxRdAtomic);
  number("max_dest_rd_atomic", out.max_dest_rd_atomic, Attributes::HasMaxDestRdAtomic);
  number("rq_psn", out.rq_psn, Attributes::HasRqPsn);
  number("sq_psn", out.sq_psn, Attributes::HasSqPsn);
  number("qkey", out.qkey, Attributes::HasQkey);
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

py::dict to_dict(const Attributes& a) {
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
  out["udp_source"] = a.udp_source;
  out["timeout"] = a.timeout;
  out["retry"] = a.retry;
  out["rnr_retry"] = a.rnr_retry;
  out["min_rnr_timer"] = a.min_rnr_timer;
  out["max_rd_atomic"] = a.max_rd_atomic;
  out["max_dest_rd_atomic"] = a.max_dest_rd_atomic;
  out["rq_psn"] = a.rq_psn;
  out["sq_psn"] = a.sq_psn;
  out["qkey"] = a.qkey;
  return out;
}

void bind_soft_function(py::module_& m) {
  dma_fault = PyErr_NewExceptionWithDoc("userdma._core.DmaFault", "A device reached for memory that it must not.",
                                        nullptr, nullptr);
  m.attr("DmaFault") = py::reinterpret_borrow<py::object>(dma_fault);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (const soft::UnknownId& error) {
      PyErr_SetString(PyExc_KeyError, error.what());
    }
  });

  py::class_<SoftFunction, host::Function, std::shared_ptr<SoftFunction>>(
      m, "SoftFunction", "A NIC in software, as its firmware and its tests see it, whatever its family.")
      .def(
          "bar_bytes",
          [](SoftFunction& self, int bar, uint64_t offset, size_t n) {
            check_bar(self, bar);
            if (n > self.bar_size(bar)) throw py::index_error("past the end of the BAR");
            std::string out(n, '\0');
            if (!self.bar_load(bar, offset, out.data(), n)) throw py::index_error("past the end of the BAR");
            return py::bytes(out);
          },
          py::arg("bar"), py::arg("offset"), py::arg("n"))
      .def(
          "bar_store",
          [](SoftFunction& self, int bar, uint64_t offset, const py::buffer& data) {
            check_bar(self, bar);
            const Bytes bytes(data);
            if (!unlocked([&] { return self.bar_store(bar, offset, bytes.data(), bytes.size()); })) {
              throw py::index_error("past the end of the BAR");
            }
          },
          py::arg("bar"), py::arg("offset"), py::arg("data"))
      .def(
          "dma_read",
          [](SoftFunction& self, uint64_t bus, size_t n) {
            if (n > uint64_t{1} << soft::Dma::address_bits)
              value_error("n is " + std::to_string(n) + ": it is too large");
            auto out = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n)));
            if (!out) throw py::error_already_set();
            char* into = PyBytes_AS_STRING(out.ptr());
            if (!unlocked([&] { return self.dma_read(bus, into, n); })) raise_fault(bus, n, false);
            return out;
          },
          py::arg("bus"), py::arg("n"))
      .def(
          "dma_write",
          [](SoftFunction& self, uint64_t bus, const py::buffer& data) {
            const Bytes bytes(data);
            if (!unlocked([&] { return self.dma_write(bus, bytes.data(), bytes.size()); })) {
              raise_fault(bus, bytes.size(), true);
            }
          },
          py::arg("bus"), py::arg("data"))
      .def(
          "dma_publish",
          [](SoftFunction& self, uint64_t bus, const py::buffer& data) {
            const Bytes bytes(data);
            if (!unlocked([&] { return self.dma_publish(bus, bytes.data(), bytes.size()); })) {
              raise_fault(bus, bytes.size(), true);
            }
          },
          py::arg("bus"), py::arg("data"),
          "As dma_write, but that the last byte is there only once all others are, and right after them.")
      .def(
          "ingress", [](SoftFunction& self, bool open) { self.ingress(open); }, py::arg("open"))
      .def("counts", [](SoftFunction& self) { return numbers(unlocked([&] { return self.counts(); })); })
      .def("stats", [](SoftFunction& self) { return numbers(unlocked([&] { return self.stats(); })); })
      .def(
          "raise_interrupt",
          [](SoftFunction& self, unsigned vector) {
            unlocked([&] {
              if (!self.owned()) return;
              std::lock_guard guard(self.nic().lock());
              self.raise(vector);
            });
          },
          py::arg("vector"))
      .def("vanish", [](SoftFunction& self) { unlocked([&] { self.vanish(); }); })
      .def(
          "advance", [](SoftFunction& self) { return unlocked([&] { return self.owned() && self.nic().advance(); }); },
          "Does the NIC's work that there is; True if there was any.");
}

}  // namespace userdma::python
