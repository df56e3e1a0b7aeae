// Methods of pybind11 classes without pybind11's dispatcher, for calls that a program makes millions of times a
// second: plain vectorcall functions, and the C++ object straight out of the instance.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <string>

namespace userdma::python {

using FastMethod = PyObject* (*)(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Adds it to a class. Instances of the class and its subclasses come as `self`, nothing else.
inline void fast_method(const pybind11::object& cls, PyMethodDef& definition, const char* name, FastMethod method,
                        const char* doc) {
  definition = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method)),
                METH_FASTCALL | METH_KEYWORDS, doc};
  PyObject* descriptor = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(cls.ptr()), &definition);
  if (descriptor == nullptr) throw pybind11::error_already_set();
  cls.attr(name) = pybind11::reinterpret_steal<pybind11::object>(descriptor);
}

// The C++ object of an instance of a class or its subclass; null, with a TypeError, if its __init__ never ran.
template <class T>
T* value_of(PyObject* object) {
  auto* instance = reinterpret_cast<pybind11::detail::instance*>(object);
  void* value =
      instance->simple_layout ? instance->simple_value_holder[0] : instance->get_value_and_holder().value_ptr();
  if (value == nullptr) [[unlikely]]
    PyErr_Format(PyExc_TypeError, "%s.__init__() was not called", Py_TYPE(object)->tp_name);
  return static_cast<T*>(value);
}

// Puts arguments, by position and by name, in the order of `names`. False with a TypeError.
inline bool arguments(const char* function, const char* const* names, Py_ssize_t count, PyObject* const* args,
                      Py_ssize_t nargs, PyObject* kwnames, PyObject** out) {
  for (Py_ssize_t i = 0; i < count; ++i) out[i] = i < nargs ? args[i] : nullptr;
  if (nargs > count) {
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, not %zd", function, count, nargs);
    return false;
  }
  const Py_ssize_t named = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    Py_ssize_t i = 0;
    while (i < count && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) ++i;
    if (i == count || out[i] != nullptr) {
      PyErr_Format(PyExc_TypeError, i == count ? "%s() takes no argument '%U'" : "%s() got two values for '%U'",
                   function, name);
      return false;
    }
    out[i] = args[nargs + k];
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (out[i] != nullptr) continue;
    PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s'", function, names[i]);
    return false;
  }
  return true;
}

// Runs `body`, which returns a new reference or null with an exception set, or throws.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace userdma::python
