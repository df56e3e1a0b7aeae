#include "native.h"
#include "plain_function.h"

namespace userdma::bench {

void bind_plain(py::module_& m) {
  py::module_::import("userdma._core");  // host::Function is bound there
  py::class_<PlainFunction, host::Function, std::shared_ptr<PlainFunction>>(m, "PlainFunction")
      .def(py::init<size_t>(), py::arg("bar_bytes") = 1 << 16);
}

}  // namespace userdma::bench
