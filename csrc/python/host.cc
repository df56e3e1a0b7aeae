// Binds csrc/host: Function, Bar, Memory, the errors of control calls, and the factories of PCI functions.
#include "python/host.h"

#include <pybind11/stl.h>

#include <cinttypes>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "host/physical.h"
#include "host/vfio.h"
#include "python/gil.h"

namespace userdma::python {

namespace {

std::vector<std::function<void(host::Function&)>>& closers() {
  static std::vector<std::function<void(host::Function&)>> list;
  return list;
}

void check_process(const host::Function& function) {
  if (function.process != ::getpid())
    throw host::MachineError(function.name() + " belongs to the process that took it, of which this is a fork");
}

// ---- Bar ----

template <class T>
void check_offset(const HeldBar& self, uint64_t offset) {
  check_live(*self.function);
  if (offset > self.bar.size() || self.bar.size() - offset < sizeof(T)) {
    throw py::index_error("BAR " + std::to_string(self.bar.index()) + " has " + std::to_string(self.bar.size()) +
                          " bytes: none at " + std::to_string(offset));
  }
  if (offset % sizeof(T) != 0) {
    value_error("offset " + std::to_string(offset) + " is not a multiple of the access's " + std::to_string(sizeof(T)) +
                " bytes");
  }
}

template <class T>
T bar_read(const HeldBar& self, uint64_t offset) {
  check_offset<T>(self, offset);
  return self.bar.read<T>(offset);
}

template <class T>
void bar_write(const HeldBar& self, uint64_t offset, T value) {
  check_offset<T>(self, offset);
  self.bar.write<T>(offset, value);
}

void bar_write_words(const HeldBar& self, uint64_t offset, const py::buffer& data) {
  py::buffer_info info = data.request();
  auto bytes = static_cast<size_t>(info.size * info.itemsize);
  if (!PyBuffer_IsContiguous(info.view(), 'C')) buffer_error("the words must be contiguous");
  if (bytes % 4 != 0) value_error(std::to_string(bytes) + " bytes are no whole 32-bit words");
  if (bytes == 0) return;
  check_offset<uint32_t>(self, offset);
  check_offset<uint32_t>(self, offset + bytes - 4);
  for (size_t at = 0; at < bytes; at += 4) {
    uint32_t word;
    std::memcpy(&word, static_cast<const uint8_t*>(info.ptr) + at, 4);
    self.bar.write<uint32_t>(offset + at, word);
  }
}

// ---- Memory ----

// The buffer protocol by hand: pybind11's has no call at a buffer's release, which the count of views needs.
int memory_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  HeldMemory* held = nullptr;
  try {
    held = py::handle(self).cast<HeldMemory*>();
    held->check();
  } catch (const py::builtin_exception& error) {
    error.set_error();
    return -1;
  }
  if (PyBuffer_FillInfo(view, self, held->memory.data, static_cast<Py_ssize_t>(held->memory.size), 0, flags) != 0)
    return -1;
  ++held->views;
  ++held->function->views;
  return 0;
}

void memory_releasebuffer(PyObject* self, Py_buffer*) {
  auto* held = py::handle(self).cast<HeldMemory*>();
  --held->views;
  --held->function->views;
}

void setup_memory(PyHeapTypeObject* heap) {
  heap->ht_type.tp_as_buffer = &heap->as_buffer;
  heap->as_buffer.bf_getbuffer = memory_getbuffer;
  heap->as_buffer.bf_releasebuffer = memory_releasebuffer;
}

std::vector<uint64_t> pages(const HeldMemory& self, unsigned shift) {
  self.check();
  if (shift < 12 || shift > 40) value_error("pages of 2^" + std::to_string(shift) + " bytes: 2^12 to 2^40 wanted");
  const uint64_t page = uint64_t{1} << shift;
  std::vector<uint64_t> list;
  uint64_t at = 0;
  for (const host::Run& run : self.memory.runs) {
    if (run.address % page != 0 || at % page != 0)
      value_error("the memory is not made of pages of " + std::to_string(page) + " bytes");
    for (uint64_t offset = 0; offset < run.bytes; offset += page) list.push_back(run.address + offset);
    at += run.bytes;
  }
  return list;
}

// ---- Function ----

std::unique_ptr<HeldMemory> hold(const std::shared_ptr<host::Function>& function, host::Memory memory,
                                 HeldMemory::From from) {
  auto held = std::make_unique<HeldMemory>();
  held->function = function;
  held->memory = std::move(memory);
  held->from = from;
  return held;
}

void give_back(host::Function& self, HeldMemory& memory, HeldMemory::From from) {
  if (memory.function.get() != &self)
    value_error("the memory is " + memory.function->name() + "'s, not " + self.name() + "'s");
  if (memory.from != from)
    value_error(from == HeldMemory::From::Dma ? "pinned memory is given back by unpin"
                                              : "alloc_dma's memory is given back by free_dma");
  if (memory.freed || self.released.load()) return;
  check_process(self);
  if (memory.views != 0) buffer_error(std::to_string(memory.views) + " buffers of the memory are alive");
  memory.freed = true;
  Unlocked unlocked;
  if (from == HeldMemory::From::Dma)
    self.free_dma(memory.memory);
  else
    self.unpin(memory.memory);
}

void release(host::Function& self) {
  if (self.released.load()) return;
  check_process(self);
  if (int views = self.views.load(); views != 0)
    buffer_error(self.name() + " cannot be released: " + std::to_string(views) + " buffers of its memory are alive");
  for (auto& closing : closers()) closing(self);
  self.released.store(true);
  Unlocked unlocked;
  self.release();
}

template <unsigned Width>
uint32_t config(const host::Function& self, unsigned offset) {
  check_live(self);
  Unlocked unlocked;  // a soft function's work may hold its lock for long, and may want the GIL
  return self.config(offset, Width);
}

template <unsigned Width>
void set_config(host::Function& self, unsigned offset, uint32_t value) {
  check_live(self);
  if (Width < 4 && uint64_t{value} >> (8 * Width) != 0)
    value_error(std::to_string(value) + " does not fit in " + std::to_string(Width) + " bytes");
  Unlocked unlocked;
  self.set_config(offset, Width, value);
}

struct Machine {
  size_t page;
};

// The Python modules that the core needs, each kept from keep_modules() or its first use on. Under the GIL.
std::map<std::string, PyObject*>& kept_modules() {
  static auto* const modules = new std::map<std::string, PyObject*>;
  return *modules;
}

void translate(std::exception_ptr pointer) {
  const char* name = "Error";
  std::string text;
  try {
    std::rethrow_exception(pointer);
  } catch (const host::MemoryError& error) {
    name = "DmaMemoryError";
    text = error.what();
  } catch (const host::MachineError& error) {
    name = "MachineError";
    text = error.what();
  } catch (const host::Error& error) {
    text = error.what();
  }
  try {
    PyErr_SetObject(python_object("userdma.errors", name).ptr(), py::str(text).ptr());
  } catch (py::error_already_set& error) {
    error.restore();
  }
}

// pybind11 would make the C++ object of such an instance where it first looks for it: bytes that nobody wrote.
void* half_made(size_t) { throw py::type_error("its __init__() was not called"); }

// Work that gives the function's device memory. Tables on the way may find none either.
template <class Work>
auto with_memory(const host::Function& function, uint64_t bytes, Work&& work) {
  try {
    Unlocked unlocked;
    return work();
  } catch (const std::bad_alloc&) {
    throw host::MemoryError(function.name() + " has no memory of " + std::to_string(bytes) +
                            " bytes: the process gets no more; raise `ulimit -v`, if it is limited");
  }
}

}  // namespace

void check_live(const host::Function& function) {
  check_process(function);
  if (function.released.load()) throw host::MachineError(function.name() + " was released");
}

py::object python_object(const char* module, const char* name) {
  PyObject*& kept = kept_modules()[module];
  if (kept == nullptr) kept = py::module_::import(module).release().ptr();
  return py::handle(kept).attr(name);
}

void refuse_half_made(py::module_& m) {
  for (const auto& [name, value] : m.attr("__dict__").cast<py::dict>()) {
    if (!PyType_Check(value.ptr())) continue;
    const auto& bases = py::detail::all_type_info(reinterpret_cast<PyTypeObject*>(value.ptr()));
    for (py::detail::type_info* base : bases) base->operator_new = half_made;
  }
  // Where the object's holder is wanted, pybind11 finds out itself.
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (const py::cast_error& error) {
      const bool holder = std::strstr(error.what(), "non-held") != nullptr;
      PyErr_SetString(PyExc_TypeError, holder ? "its __init__() was not called" : error.what());
    }
  });
}

void before_release(std::function<void(host::Function&)> closing) { closers().push_back(std::move(closing)); }

uint64_t count_of(py::handle number, const char* what) {
  if (!PyIndex_Check(number.ptr()))
    throw py::type_error(std::string(what) + " must be an integer, not " + Py_TYPE(number.ptr())->tp_name);
  auto index = py::reinterpret_steal<py::object>(PyNumber_Index(number.ptr()));
  if (!index) throw py::error_already_set();
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || value < 0)
    value_error(std::string(what) + " is " + std::string(py::str(index)) +
                (value < 0 && overflow <= 0 ? ": it must not be negative" : ": it is too large"));
  return static_cast<uint64_t>(value);
}

void bind_host(py::module_& m) {
  py::register_exception_translator(translate);

  py::class_<HeldBar>(m, "Bar", "A mapped BAR. Offsets must be aligned to the width; past the end is IndexError.")
      .def_property_readonly("index", [](const HeldBar& self) { return self.bar.index(); })
      .def_property_readonly("size", [](const HeldBar& self) { return self.bar.size(); })
      .def("read8", bar_read<uint8_t>, py::arg("offset"))
      .def("read16", bar_read<uint16_t>, py::arg("offset"))
      .def("read32", bar_read<uint32_t>, py::arg("offset"))
      .def("read64", bar_read<uint64_t>, py::arg("offset"))
      .def("write8", bar_write<uint8_t>, py::arg("offset"), py::arg("value"))
      .def("write16", bar_write<uint16_t>, py::arg("offset"), py::arg("value"))
      .def("write32", bar_write<uint32_t>, py::arg("offset"), py::arg("value"))
      .def("write64", bar_write<uint64_t>, py::arg("offset"), py::arg("value"))
      .def("write_words", bar_write_words, py::arg("offset"), py::arg("data"),
           "Stores data, whole 32-bit words, one by one and in order.");

  py::class_<HeldMemory>(m, "Memory", "Memory that the device reaches: a writable buffer until it is given back.",
                         py::custom_type_setup(setup_memory))
      .def_property_readonly("address",
                             [](const HeldMemory& self) { return reinterpret_cast<uintptr_t>(self.memory.data); })
      .def_property_readonly("size", [](const HeldMemory& self) { return self.memory.size; })
      .def_property_readonly("runs",
                             [](const HeldMemory& self) {
                               py::list list;
                               for (const host::Run& run : self.memory.runs)
                                 list.append(py::make_tuple(run.address, run.bytes));
                               return list;
                             })
      .def_property_readonly("views", [](const HeldMemory& self) { return self.views; })
      .def_property_readonly("freed", [](const HeldMemory& self) { return !self.usable(); })
      .def("pages", pages, py::arg("shift") = 12, "Bus addresses of its pages of 1 << shift bytes.")
      .def("__len__", [](const HeldMemory& self) { return self.memory.size; });

  py::class_<Machine>(m, "Machine", "The machine that a function is in.").def_readonly("page", &Machine::page);

  using host::Function;
  py::class_<Function, std::shared_ptr<Function>>(m, "Function", "A PCI function.")
      .def_property_readonly("name", &Function::name)
      .def_property_readonly("page", &Function::page)
      .def_property_readonly("machine", [](const Function& self) { return Machine{self.page()}; })
      .def_property_readonly(
          "addressing",
          [](const Function& self) { return self.addressing() == host::Addressing::Iova ? "iova" : "physical"; })
      .def_property_readonly("failed",
                             [](const Function& self) {
                               Unlocked unlocked;
                               return self.failed();
                             })
      .def_property_readonly("failure",
                             [](const Function& self) {
                               Unlocked unlocked;
                               return self.failure();
                             })
      .def_property_readonly("released", [](const Function& self) { return self.released.load(); })
      .def_property_readonly("views", [](const Function& self) { return self.views.load(); })
      .def("config8", config<1>, py::arg("offset"))
      .def("config16", config<2>, py::arg("offset"))
      .def("config32", config<4>, py::arg("offset"))
      .def("set_config8", set_config<1>, py::arg("offset"), py::arg("value"))
      .def("set_config16", set_config<2>, py::arg("offset"), py::arg("value"))
      .def("set_config32", set_config<4>, py::arg("offset"), py::arg("value"))
      .def_property_readonly("without_iommu",
                             [](const Function& self) {
                               return "take it by its physical addresses: with iommu=pt on the kernel's command line, "
                                      "`driverctl --nosave set-override " +
                                      self.name() + " none` unbinds it from VFIO (as root)";
                             })
      .def(
          "bar",
          [](const Function& self, int index) { return py::make_tuple(self.bar_address(index), self.bar_size(index)); },
          py::arg("index"))
      .def(
          "map",
          [](const std::shared_ptr<Function>& self, int index) {
            check_live(*self);
            return HeldBar{self, self->map(index)};
          },
          py::arg("index"))
      .def(
          "interrupt",
          [](Function& self, unsigned vector) {
            check_live(self);
            Unlocked unlocked;
            return self.interrupt(vector);
          },
          py::arg("vector"))
      .def("reset",
           [](Function& self) {
             check_live(self);
             Unlocked unlocked;
             self.reset();
           })
      .def(
          "alloc_dma",
          [](const std::shared_ptr<Function>& self, const py::object& bytes) {
            uint64_t size = count_of(bytes, "the size");
            if (size == 0) value_error("alloc_dma of 0 bytes");
            check_live(*self);
            host::Memory memory = with_memory(*self, size, [&] { return self->alloc_dma(size); });
            return hold(self, std::move(memory), HeldMemory::From::Dma);
          },
          py::arg("bytes"))
      .def(
          "free_dma", [](Function& self, HeldMemory& memory) { give_back(self, memory, HeldMemory::From::Dma); },
          py::arg("memory"))
      .def(
          "pin",
          [](const std::shared_ptr<Function>& self, const py::object& address, const py::object& bytes) {
            uint64_t at = count_of(address, "the address");
            uint64_t size = count_of(bytes, "the size");
            if (size == 0) value_error("pin of 0 bytes");
            if (at % self->page() != 0)
              value_error("address " + std::to_string(at) + " is not on a page of " + std::to_string(self->page()) +
                          " bytes");
            check_live(*self);
            host::Memory memory =
                with_memory(*self, size, [&] { return self->pin(reinterpret_cast<void*>(at), size); });
            return hold(self, std::move(memory), HeldMemory::From::Pin);
          },
          py::arg("address"), py::arg("bytes"))
      .def(
          "unpin", [](Function& self, HeldMemory& memory) { give_back(self, memory, HeldMemory::From::Pin); },
          py::arg("memory"))
      .def("release", release);

  m.def("keep_modules", [] {
    python_object("threading", "main_thread");
    python_object("userdma.errors", "Error");
    python_object("userdma.types", "ErrorKind");
  });
  m.def(
      "pci_open",
      [](const std::string& bus, const std::string& kind, const std::string& sysfs,
         const std::string& dev) -> std::shared_ptr<Function> {
        std::string which = kind.empty() ? host::pci_kind(bus, sysfs) : kind;
        Unlocked unlocked;
        if (which == "vfio") return host::open_vfio(bus, {sysfs, dev});
        if (which == "physical") return host::open_physical(bus, {.sysfs = sysfs, .huge_pages = {}, .physical = {}});
        throw py::value_error("a PCI function is taken by \"vfio\" or \"physical\", not \"" + which + "\"");
      },
      py::arg("bus"), py::arg("kind") = "", py::kw_only(), py::arg("sysfs") = "/sys", py::arg("dev") = "/dev");
  m.def(
      "pci_openable",
      [](const std::string& bus, const std::string& sysfs, const std::string& dev) -> py::tuple {
        try {
          std::string kind = host::pci_kind(bus, sysfs);
          if (kind == "vfio")
            host::check_vfio(bus, {sysfs, dev});
          else
            host::check_physical(bus, {.sysfs = sysfs, .huge_pages = {}, .physical = {}});
          return py::make_tuple(kind, "");
        } catch (const host::Error& error) {
          return py::make_tuple("", error.what());
        }
      },
      py::arg("bus"), py::kw_only(), py::arg("sysfs") = "/sys", py::arg("dev") = "/dev");
}

}  // namespace userdma::python
