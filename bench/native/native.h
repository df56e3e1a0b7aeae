#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace userdma::bench {

namespace py = pybind11;

void bind_empty(py::module_& m);
void bind_plain(py::module_& m);
void bind_loops(py::module_& m);

}  // namespace userdma::bench
