// userdma._core.Completion: a frozen value, made on the hot path, so a plain C type without pybind11's bookkeeping.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "driver/completion.h"

namespace userdma::python {

void bind_completion(pybind11::module_& m);

// What programs see of an error: ErrorKind's member, or OtherError(status).
pybind11::object error_object(driver::Error error, int64_t status);

// A new reference, or null with an exception set. A completion that failed needs its message.
PyObject* new_completion(const driver::Completion& completion);
PyObject* new_failed_completion(const driver::Completion& completion, const std::string& message);

}  // namespace userdma::python
