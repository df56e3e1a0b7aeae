#include "python/completion.h"

#include <structmember.h>

#include "python/host.h"

namespace py = pybind11;

namespace userdma::python {

namespace {

using driver::Error;

struct Object {
  PyObject_HEAD PyObject* error;  // null: none; else an ErrorKind or an OtherError
  PyObject* message;              // null: made from the bytes
  uint64_t bytes;
  int64_t immediate;  // -1: none
  int64_t vendor;
};

PyTypeObject* type = nullptr;

Object* make(uint64_t bytes) {
  auto* self = PyObject_New(Object, type);
  if (self == nullptr) return nullptr;
  self->error = nullptr;
  self->message = nullptr;
  self->bytes = bytes;
  self->immediate = -1;
  self->vendor = 0;
  return self;
}

// ---- The type's slots ----

PyObject* construct(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"bytes", "error", "vendor", "message", "immediate", nullptr};
  PyObject* bytes = nullptr;
  PyObject* error = Py_None;
  long long vendor = 0;
  PyObject* message = nullptr;
  PyObject* immediate = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O!OLUO:Completion", const_cast<char**>(names), &PyLong_Type, &bytes,
                                   &error, &vendor, &message, &immediate))
    return nullptr;
  uint64_t count = bytes == nullptr ? 0 : PyLong_AsUnsignedLongLong(bytes);
  if (PyErr_Occurred()) return PyErr_Clear(), PyErr_SetString(PyExc_ValueError, "bytes must not be negative"), nullptr;
  int64_t data = -1;
  if (immediate != Py_None) {
    data = PyLong_AsLongLong(immediate);
    if (data == -1 && PyErr_Occurred()) return nullptr;
    if (data < 0 || data > 0xffffffff)
      return PyErr_SetString(PyExc_ValueError, "immediate data is a number of 32 bits"), nullptr;
  }
  Object* self = make(count);
  if (self == nullptr) return nullptr;
  self->vendor = vendor;
  self->immediate = data;
  self->error = error == Py_None ? nullptr : Py_NewRef(error);
  if (message != nullptr && PyUnicode_GET_LENGTH(message) != 0) self->message = Py_NewRef(message);
  return reinterpret_cast<PyObject*>(self);
}

void destroy(PyObject* object) {
  auto* self = reinterpret_cast<Object*>(object);
  Py_XDECREF(self->error);
  Py_XDECREF(self->message);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* get_ok(PyObject* self, void*) { return PyBool_FromLong(reinterpret_cast<Object*>(self)->error == nullptr); }
PyObject* get_bytes(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<Object*>(self)->bytes);
}
PyObject* get_error(PyObject* self, void*) {
  PyObject* error = reinterpret_cast<Object*>(self)->error;
  return Py_NewRef(error != nullptr ? error : Py_None);
}
PyObject* get_vendor(PyObject* self, void*) { return PyLong_FromLongLong(reinterpret_cast<Object*>(self)->vendor); }
PyObject* get_immediate(PyObject* self, void*) {
  int64_t immediate = reinterpret_cast<Object*>(self)->immediate;
  return immediate < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(immediate);
}
PyObject* get_message(PyObject* object, void*) {
  auto* self = reinterpret_cast<Object*>(object);
  if (self->message != nullptr) return Py_NewRef(self->message);
  if (self->error == nullptr) return PyUnicode_FromFormat("%llu bytes", static_cast<unsigned long long>(self->bytes));
  PyObject* value = PyObject_GetAttrString(self->error, "value");  // of an ErrorKind: its sentence
  if (value == nullptr) {
    PyErr_Clear();
    return PyObject_Str(self->error);
  }
  return value;
}

// Its value as a tuple, for comparison, hash and pickle. The message is part of it, where one was given.
PyObject* values(Object* self) {
  PyObject* immediate = get_immediate(reinterpret_cast<PyObject*>(self), nullptr);
  if (immediate == nullptr) return nullptr;
  PyObject* message = self->message != nullptr ? Py_NewRef(self->message) : PyUnicode_FromString("");
  PyObject* error = self->error != nullptr ? self->error : Py_None;
  return Py_BuildValue("(KOLNN)", static_cast<unsigned long long>(self->bytes), error,
                       static_cast<long long>(self->vendor), message, immediate);
}

PyObject* compare(PyObject* left, PyObject* right, int how) {
  if ((how != Py_EQ && how != Py_NE) || !Py_IS_TYPE(right, type)) Py_RETURN_NOTIMPLEMENTED;
  PyObject* a = values(reinterpret_cast<Object*>(left));
  PyObject* b = values(reinterpret_cast<Object*>(right));
  PyObject* result = a != nullptr && b != nullptr ? PyObject_RichCompare(a, b, how) : nullptr;
  Py_XDECREF(a);
  Py_XDECREF(b);
  return result;
}

Py_hash_t hash(PyObject* self) {
  PyObject* all = values(reinterpret_cast<Object*>(self));
  if (all == nullptr) return -1;
  Py_hash_t result = PyObject_Hash(all);
  Py_DECREF(all);
  return result;
}

PyObject* represent(PyObject* object) {
  auto* self = reinterpret_cast<Object*>(object);
  if (self->error == nullptr) {
    if (self->immediate >= 0)
      return PyUnicode_FromFormat("Completion(bytes=%llu, immediate=%lld)",
                                  static_cast<unsigned long long>(self->bytes),
                                  static_cast<long long>(self->immediate));
    return PyUnicode_FromFormat("Completion(bytes=%llu)", static_cast<unsigned long long>(self->bytes));
  }
  PyObject* message = get_message(object, nullptr);
  if (message == nullptr) return nullptr;
  PyObject* name = PyObject_GetAttrString(self->error, "name");  // an ErrorKind has one
  if (name == nullptr) PyErr_Clear(), name = PyObject_Repr(self->error);
  PyObject* result = name == nullptr ? nullptr
                                     : PyUnicode_FromFormat("Completion(error=%U, vendor=%lld, message=%R)", name,
                                                            static_cast<long long>(self->vendor), message);
  Py_DECREF(message);
  Py_XDECREF(name);
  return result;
}

PyObject* raise_for_status(PyObject* object, PyObject*) {
  auto* self = reinterpret_cast<Object*>(object);
  if (self->error == nullptr) Py_RETURN_NONE;
  try {
    py::object kind = python_object("userdma.errors", "WorkError");
    py::object message = py::reinterpret_steal<py::object>(get_message(object, nullptr));
    if (!message) return nullptr;
    PyErr_SetObject(kind.ptr(), kind(message, py::handle(object)).ptr());
  } catch (py::error_already_set& error) {
    error.restore();
  }
  return nullptr;
}

PyObject* reduce(PyObject* object, PyObject*) {
  PyObject* all = values(reinterpret_cast<Object*>(object));
  return all == nullptr ? nullptr : Py_BuildValue("(ON)", type, all);
}

}  // namespace

py::object error_object(driver::Error error, int64_t status) {
  if (error == driver::Error::Other) return python_object("userdma.types", "OtherError")(status);
  return python_object("userdma.types", "ErrorKind").attr(driver::kErrorTexts[static_cast<size_t>(error)].name);
}

PyObject* new_completion(const driver::Completion& completion) {
  Object* self = make(completion.bytes);
  if (self != nullptr && completion.has_immediate) self->immediate = completion.immediate;
  return reinterpret_cast<PyObject*>(self);
}

PyObject* new_failed_completion(const driver::Completion& completion, const std::string& message) {
  Object* self = make(0);
  if (self == nullptr) return nullptr;
  self->vendor = completion.vendor;
  try {
    self->error = error_object(completion.error, completion.status).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  }
  self->message = PyUnicode_FromStringAndSize(message.data(), static_cast<Py_ssize_t>(message.size()));
  if (self->error == nullptr || self->message == nullptr) {
    Py_DECREF(self);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(self);
}

void bind_completion(py::module_& m) {
  static PyGetSetDef getters[] = {
      {"ok", get_ok, nullptr, "Whether the entry completed.", nullptr},
      {"bytes", get_bytes, nullptr, "The bytes that the entry moved: the message's, or what a receive took.", nullptr},
      {"error", get_error, nullptr, "Why the entry failed: None, an ErrorKind or an OtherError.", nullptr},
      {"vendor", get_vendor, nullptr, "The NIC's own status; 0 if it has none.", nullptr},
      {"immediate", get_immediate, nullptr, "The immediate data that came with the message, or None.", nullptr},
      {"message", get_message, nullptr, "The completion for a person.", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyMethodDef methods[] = {
      {"raise_for_status", raise_for_status, METH_NOARGS, "userdma.errors.WorkError if the entry failed."},
      {"__reduce__", reduce, METH_NOARGS, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("How an entry of a queue pair ended. A frozen value.")},
                                {Py_tp_new, reinterpret_cast<void*>(construct)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                {Py_tp_getset, getters},
                                {Py_tp_methods, methods},
                                {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
                                {Py_tp_hash, reinterpret_cast<void*>(hash)},
                                {Py_tp_repr, reinterpret_cast<void*>(represent)},
                                {0, nullptr}};
  static PyType_Spec spec = {"userdma._core.Completion", sizeof(Object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type == nullptr) throw py::error_already_set();
  m.attr("Completion") = py::handle(reinterpret_cast<PyObject*>(type));

  py::dict sentences;
  for (const driver::ErrorText& text : driver::kErrorTexts)
    if (*text.name != 0) sentences[text.name] = text.sentence;
  m.attr("ERRORS") = sentences;
}

}  // namespace userdma::python
