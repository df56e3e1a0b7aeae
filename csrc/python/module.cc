// The compiled module userdma._core: one binding file for each floor of the core.
#include "python/host.h"

// pybind11's own entry takes the GIL by PyGILState, which in another than the main interpreter waits for this very
// thread: it is renamed, and comes after a look at the interpreter.
#define PyInit__core PyInit__core_of_main

namespace userdma::python {

// Stands in where the soft NICs are not built.
__attribute__((weak)) void bind_soft(py::module_&) {}

}  // namespace userdma::python

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiled core of userdma: PCI functions, rings and polling, the soft NICs' data path.";
  userdma::python::bind_host(m);
  userdma::python::bind_uverbs(m);
  userdma::python::bind_driver(m);
  userdma::python::bind_mlx5(m);
  userdma::python::bind_mlx5_wqe(m);
  userdma::python::bind_soft(m);
  userdma::python::bind_vfio_user(m);
  userdma::python::refuse_half_made(m);
}

#undef PyInit__core

extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return PyInit__core_of_main();
  PyErr_SetString(PyExc_ImportError,
                  "userdma works in the main interpreter of a process only, not in a subinterpreter");
  return nullptr;
}
