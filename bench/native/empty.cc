// Empty methods: what a call from Python costs before it does anything. The driver's are measured against them.
#include "native.h"

namespace userdma::bench {

struct Empty {
  void send(Empty&, uint64_t, uint64_t) {}
  py::object poll(py::handle) { return py::none(); }
};

void bind_empty(py::module_& m) {
  py::class_<Empty>(m, "Empty")
      .def(py::init<>())
      .def("send", &Empty::send, py::arg("region"), py::arg("at"), py::arg("n"))
      .def("poll", &Empty::poll, py::arg("side"));
}

}  // namespace userdma::bench
