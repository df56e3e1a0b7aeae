// What the bindings of the soft NICs share: the function with firmware in Python, and the transport's attributes.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "python/arguments.h"
#include "python/undisturbed.h"
#include "soft/ethernet_port.h"
#include "soft/soft_function.h"
#include "soft/transport/types.h"

namespace userdma::python {

std::string type_name(const py::object& object);

// A soft NIC with firmware in Python. The callables are kept here, where the garbage collector sees them: they refer
// back to the function.
template <class Device, size_t N>
class WithFirmware final : public Device {
 public:
  using Device::Device;
  ~WithFirmware() override {
    // Whoever drops the last reference may not hold the GIL (a poll that was interrupted, another function's end).
    if (!Py_IsInitialized()) {
      for (py::object& callable : callables) (void)callable.release();
      return;
    }
    py::gil_scoped_acquire gil;
    forget();
  }

  void set_callables(std::array<std::pair<const char*, py::object>, N> given) {
    for (const auto& [name, callable] : given) {
      if (!PyCallable_Check(callable.ptr()))
        throw py::type_error(std::string(name) + " must be callable, not " + type_name(callable));
    }
    for (size_t i = 0; i < N; i++) callables[i] = std::move(given[i].second);
  }

  // Calls one of them. A NIC does not stop at an error of its firmware: it is printed, and that is all. `arguments`
  // makes them with the GIL held.
  template <class... Arguments>
  void call(size_t which, Arguments&&... arguments) {
    undisturbed([&] {
      try {
        const py::object held = callables[which];
        if (held && !held.is_none()) held(arguments()...);
      } catch (py::error_already_set& error) {
        error.discard_as_unraisable("the firmware of a soft NIC");
      }
    });
  }

  void forget() {
    this->set_firmware({});
    callables = {};
  }

  std::array<py::object, N> callables;
};

// The callables are the object's alone only while nothing else in C++ holds the function.
template <class Function>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!py::detail::is_holder_constructed(self)) return 0;
  const auto held = py::handle(self).cast<std::shared_ptr<Function>>();
  if (held.use_count() > 2) return 0;
  for (const py::object& callable : held->callables) Py_VISIT(callable.ptr());
  return 0;
}

template <class Function>
int clear(PyObject* self) {
  if (!py::detail::is_holder_constructed(self)) return 0;
  py::handle(self).cast<std::shared_ptr<Function>>()->forget();
  return 0;
}

template <class Function>
void collect(PyHeapTypeObject* heap) {
  heap->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  heap->ht_type.tp_traverse = traverse<Function>;
  heap->ht_type.tp_clear = clear<Function>;
}

// The constructor of a family's class.
template <class Function, class Class>
void define_constructor(Class& type) {
  type.def(
      py::init([](const std::string& name, std::shared_ptr<soft::wire::Wire> wire, const py::buffer& mac, bool iommu,
                  std::shared_ptr<soft::Clock> clock, uint64_t seed, uint64_t memory, uint64_t pin_limit, bool thread) {
        soft::SoftFunction::Options options;
        options.name = name;
        options.wire = std::move(wire);
        options.clock = std::move(clock);
        std::memcpy(options.mac.data(), Bytes(mac).exactly(6, "the MAC"), 6);
        options.iommu = iommu;
        options.seed = seed;
        options.memory = memory;
        options.pin_limit = pin_limit;
        options.thread = thread;
        try {
          // In a forked child it stays where it is: its tables are as some thread of the parent was changing them.
          const auto end = [](Function* function) {
            if (function->nic().owned()) delete function;
          };
          return unlocked([&] { return std::shared_ptr<Function>(new Function(options), end); });
        } catch (const std::bad_alloc&) {
          throw host::MemoryError("there is no memory for " + name +
                                  ": the process gets no more; raise `ulimit -v`, if it is limited");
        }
      }),
      py::arg("name"), py::arg("wire").none(false), py::arg("mac"), py::kw_only(), py::arg("iommu") = true,
      py::arg("clock").none(false), py::arg("seed") = 0, py::arg("memory") = 0, py::arg("pin_limit") = 0,
      py::arg("thread") = true);
}

// A queue pair's attributes by their names; the fields that are given (Attributes::Field).
uint32_t attributes(const py::dict& dict, soft::transport::Attributes& out);
py::dict to_dict(const soft::transport::Attributes& attributes);

// Counters of an Ethernet port.
inline py::dict port_counts(const soft::PortCounts& counts) {
  py::dict out;
  out["frames"] = counts.frames;
  out["unicast"] = counts.unicast;
  out["multicast"] = counts.multicast;
  out["broadcast"] = counts.broadcast;
  out["bytes"] = counts.bytes;
  out["tagged"] = counts.tagged;
  out["errors"] = counts.errors;
  out["discards"] = counts.discards;
  out["sizes"] = counts.sizes;
  return out;
}

void bind_soft_function(py::module_& m);
void bind_soft_mlx5(py::module_& m);

}  // namespace userdma::python
