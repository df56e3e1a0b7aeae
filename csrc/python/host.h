// What the bindings share: functions, BARs and memory as Python holds them, and exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "host/function.h"

namespace userdma::python {

namespace py = pybind11;

// A ValueError; std::invalid_argument becomes the same.
[[noreturn]] inline void value_error(const std::string& text) { throw py::value_error(text); }

[[noreturn]] inline void buffer_error(const std::string& text) { throw py::buffer_error(text); }

// A mapped BAR keeps its function alive, and is no use after the function's release.
struct HeldBar {
  std::shared_ptr<host::Function> function;
  host::Bar bar;
};

// Memory that the function's device reaches. It is given back by its function's free_dma or unpin, or with the
// function's release; `views` counts the buffers that Python holds of it.
struct HeldMemory {
  enum class From { Dma, Pin };

  std::shared_ptr<host::Function> function;
  host::Memory memory;
  From from = From::Dma;
  int views = 0;
  bool freed = false;

  bool usable() const { return !freed && !function->released.load(); }
  void check() const {
    if (freed) value_error("the memory was given back to " + function->name());
    if (function->released.load()) value_error("the memory went with the release of " + function->name());
  }
};

// MachineError where the function was released, or is of the process that this is a fork of.
void check_live(const host::Function& function);

// Runs `closing` for each function before its release: what was built on the function must let go of its memory and
// registers first.
void before_release(std::function<void(host::Function&)> closing);

// Objects of the module's classes whose __init__ did not run (`cls.__new__(cls)`) are a TypeError wherever one is
// wanted. Called last, with all classes there.
void refuse_half_made(py::module_& m);

// What `module` has by that name. The module is imported once and kept: at the interpreter's end there may be nothing
// left to import from, or with.
py::object python_object(const char* module, const char* name);

// A number of a Python object with __index__, and what is wrong with it otherwise: TypeError for no number,
// ValueError ("<what> is -1") for one below 0 or over 2^63 - 1.
uint64_t count_of(py::handle number, const char* what);

void bind_host(py::module_& m);
void bind_uverbs(py::module_& m);
void bind_driver(py::module_& m);
void bind_mlx5(py::module_& m);
void bind_mlx5_wqe(py::module_& m);
void bind_soft(py::module_& m);
void bind_vfio_user(py::module_& m);

}  // namespace userdma::python
