// The compiled module userdma._core: one binding file for each floor of the core.
#include "python/host.h"

namespace userdma::python {

// Stands in where the soft NICs are not built.
__attribute__((weak)) void bind_soft(py::module_&) {}

}  // namespace userdma::python

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiled core of userdma: PCI functions, rings and polling, the soft NICs' data path.";
  userdma::python::bind_host(m);
  userdma::python::bind_driver(m);
  userdma::python::bind_soft(m);
}
