// Binds csrc/driver/mlx5_completion.h, over any buffer and without a copy of it.
#include <pybind11/pybind11.h>

#include "driver/mlx5_completion.h"
#include "python/completion.h"
#include "python/fast.h"
#include "python/host.h"

namespace userdma::python {

namespace {

using hw::mlx5::Cqe;
namespace opcode = hw::mlx5::cqe_opcode;

// The 64 bytes at `at` of an object's buffer, for as long as this lives.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }

  // Null with an exception.
  uint8_t* find(PyObject* buffer, PyObject* at, bool writable) {
    if (PyObject_GetBuffer(buffer, &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) return nullptr;
    py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(at));
    if (!index) return nullptr;
    int overflow = 0;
    const long long offset = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    const auto size = static_cast<long long>(sizeof(Cqe));
    if (overflow != 0 || offset < 0 || offset > view_.len - size) {
      PyErr_Format(PyExc_ValueError, "the %zu bytes of a completion at byte %S are not in the buffer's %zd",
                   sizeof(Cqe), index.ptr(), view_.len);
      return nullptr;
    }
    return static_cast<uint8_t*>(view_.buf) + offset;
  }

 private:
  Py_buffer view_{};
};

// The low 64 bits of a count of any size, which have every owner bit.
uint64_t low_bits(py::handle count) {
  auto index = py::reinterpret_steal<py::object>(PyNumber_Index(count.ptr()));
  if (!index) throw py::error_already_set();
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow > 0 ? PyLong_AsUnsignedLongLongMask(index.ptr()) : count_of(index, "count");
}

PyObject* completion_owned(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static const char* const names[] = {"buffer", "at", "count", "entries"};
  PyObject* given[4];
  if (nargs > 2) {
    PyErr_SetString(PyExc_TypeError, "owned() takes a buffer and a place in it; count and entries go by their names");
    return nullptr;
  }
  if (!arguments("owned", names, 4, args, nargs, kwnames, given)) return nullptr;
  Bytes bytes;
  const uint8_t* at = bytes.find(given[0], given[1], false);
  if (at == nullptr) return nullptr;
  return guarded([&]() -> PyObject* {
    const uint64_t count = low_bits(given[2]);
    const uint64_t entries = count_of(given[3], "entries");
    if (!std::has_single_bit(entries)) {
      PyErr_Format(PyExc_ValueError, "entries is %S: a ring has a power of two of them", given[3]);
      return nullptr;
    }
    return PyBool_FromLong(driver::mlx5::owned(at, count, entries));
  });
}

PyObject* completion_read(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static const char* const names[] = {"buffer", "at"};
  PyObject* given[2];
  if (!arguments("read", names, 2, args, nargs, kwnames, given)) return nullptr;
  Bytes bytes;
  const uint8_t* at = bytes.find(given[0], given[1], false);
  if (at == nullptr) return nullptr;
  const driver::mlx5::RawCompletion raw = driver::mlx5::read(at);
  return guarded([&]() -> PyObject* {
    const auto made = [](const char* name, auto&&... values) {
      return python_object("userdma.mlx5.completion", name)(values...);
    };
    py::object status;
    if (raw.opcode == opcode::kRequest) {
      status = made("Done");
    } else if (raw.opcode == opcode::kReceived) {
      status = made("Received", raw.bytes);
    } else if (raw.opcode == opcode::kRequestError || raw.opcode == opcode::kReceiveError) {
      py::object reason = error_object(driver::mlx5::error_of(raw.syndrome), raw.syndrome);
      const char* side = raw.opcode == opcode::kRequestError ? "SEND" : "RECEIVE";
      status = made("Failed", python_object("userdma._core", "Side").attr(side), reason, raw.vendor);
    } else {
      status = made("Unexpected", raw.opcode);
    }
    return made("Completion", raw.qp, raw.index, status).release().ptr();
  });
}

PyObject* completion_invalidate(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static const char* const names[] = {"buffer", "at"};
  PyObject* given[2];
  if (!arguments("invalidate", names, 2, args, nargs, kwnames, given)) return nullptr;
  Bytes bytes;
  uint8_t* at = bytes.find(given[0], given[1], true);
  if (at == nullptr) return nullptr;
  driver::mlx5::invalidate(at);
  Py_RETURN_NONE;
}

PyCFunction function(FastMethod method) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method)); }

}  // namespace

void bind_mlx5(py::module_& m) {
  static PyMethodDef functions[] = {
      {"owned", function(completion_owned), METH_FASTCALL | METH_KEYWORDS,
       "owned(buffer, at, *, count, entries)\n--\n\n"
       "Whether the completion at byte `at` is the one the NIC wrote for consumer count `count` of a ring of `entries` "
       "entries: its\nopcode is valid, and its owner bit is bit log2(entries) of the count. What is read after it "
       "returned True is what the NIC\nwrote. ValueError if the bytes are not in the buffer, the count is negative or "
       "entries is not a power of two."},
      {"read", function(completion_read), METH_FASTCALL | METH_KEYWORDS,
       "read(buffer, at)\n--\n\n"
       "The completion at byte `at`, which must be `owned`. ValueError if the bytes are not in the buffer."},
      {"invalidate", function(completion_invalidate), METH_FASTCALL | METH_KEYWORDS,
       "invalidate(buffer, at)\n--\n\n"
       "Marks the completion at byte `at` as one the NIC has not written: `owned` is False for it at every count until "
       "the NIC\nwrites it. A new ring's completions are all marked so. ValueError if the bytes are not in the buffer, "
       "BufferError if it cannot\nbe written."},
  };
  const py::str home("userdma.mlx5.completion");
  for (PyMethodDef& definition : functions) {
    auto made = py::reinterpret_steal<py::object>(PyCFunction_NewEx(&definition, nullptr, home.ptr()));
    if (!made) throw py::error_already_set();
    m.attr((std::string("mlx5_") + definition.ml_name).c_str()) = made;
  }
}

}  // namespace userdma::python
