// Binds csrc/driver/mlx5_wqe.h, over any buffer and without a copy of it.
#include "driver/mlx5_wqe.h"

#include <pybind11/pybind11.h>

#include <cstring>
#include <vector>

#include "python/host.h"

namespace userdma::python {

namespace {

namespace hw = hw::mlx5;
using driver::mlx5::Request;
using driver::mlx5::Sge;

// What an object's buffer has from byte `at` on, for as long as this lives.
class Place {
 public:
  Place(const py::object& buffer, const py::object& at, size_t least, bool writable = true) {
    if (PyObject_GetBuffer(buffer.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0)
      throw py::error_already_set();
    try {
      const uint64_t offset = count_of(at, "at");
      const auto size = static_cast<uint64_t>(view_.len);
      if (offset > size || size - offset < least)
        value_error("the " + std::to_string(least) + " bytes at byte " + std::to_string(offset) +
                    " are not in the buffer's " + std::to_string(size));
      at_ = static_cast<uint8_t*>(view_.buf) + offset;
      room_ = size - offset;
    } catch (...) {
      PyBuffer_Release(&view_);
      throw;
    }
  }
  ~Place() { PyBuffer_Release(&view_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  uint8_t* at() const { return at_; }
  size_t room() const { return room_; }

 private:
  Py_buffer view_{};
  uint8_t* at_ = nullptr;
  size_t room_ = 0;
};

// A number of `bits` bits.
uint64_t number(py::handle value, unsigned bits, const char* what) {
  auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) throw py::error_already_set();
  const unsigned long long found = PyLong_AsUnsignedLongLong(index.ptr());
  if (PyErr_Occurred() != nullptr || (bits < 64 && found >> bits != 0)) {
    PyErr_Clear();
    value_error(std::string(what) + " is " + std::string(py::str(index)) + ": it has " + std::to_string(bits) +
                " bits");
  }
  return found;
}

py::sequence pair(const py::object& given, const char* what) {
  const auto found = given.cast<py::sequence>();
  if (found.size() != 2) value_error(what);
  return found;
}

// Pieces of memory: (lkey, address, bytes) each.
std::vector<Sge> pieces(const py::object& data) {
  std::vector<Sge> out;
  for (py::handle each : data) {
    const auto piece = each.cast<py::sequence>();
    if (piece.size() != 3) value_error("a piece of memory is its lkey, its address and its bytes");
    const uint64_t bytes = number(piece[2], 32, "the bytes of a piece of memory");
    if (bytes > uint64_t{1} << 31)
      value_error("a piece of memory has " + std::to_string(bytes) + " bytes: 2^31 at most");
    out.push_back({static_cast<uint32_t>(number(piece[0], 32, "an lkey")), number(piece[1], 64, "an address"),
                   static_cast<uint32_t>(bytes)});
  }
  return out;
}

unsigned request(const py::object& buffer, const py::object& at, const py::int_& opcode, const py::int_& flags,
                 const py::object& qp, const py::object& index, const py::object& data, const py::object& inlined,
                 const py::object& immediate, const py::object& remote, const py::object& atomic) {
  Request made;
  made.opcode = static_cast<uint8_t>(number(opcode, 8, "opcode"));
  made.flags = static_cast<uint8_t>(number(flags, 8, "flags"));
  made.qpn = static_cast<uint32_t>(number(qp, 24, "qp"));
  made.index = static_cast<uint16_t>(number(index, 16, "index"));
  if (!immediate.is_none()) made.immediate = static_cast<uint32_t>(number(immediate, 32, "immediate"));
  if (!remote.is_none()) {
    const py::sequence where = pair(remote, "where in a peer's memory is its rkey and an address");
    made.remote = true;
    made.rkey = static_cast<uint32_t>(number(where[0], 32, "an rkey"));
    made.address = number(where[1], 64, "a remote address");
  }
  if (!atomic.is_none()) {
    const py::sequence values = pair(atomic, "an atomic has two values");
    made.atomic = true;
    made.swap_or_add = number(values[0], 64, "what is added or swapped in");
    made.compare = number(values[1], 64, "what is compared");
  }
  const std::vector<Sge> sges = pieces(data);
  uint64_t total = 0;
  for (const Sge& sge : sges) total += sge.bytes;
  if (total > uint64_t{1} << 31) value_error("a message has " + std::to_string(total) + " bytes: 2^31 at most");
  if (made.atomic && (sges.size() != 1 || total != sizeof(uint64_t)))
    value_error("an atomic's data has " + std::to_string(total) + " bytes: it is one piece of 8");
  if (made.atomic && made.address % sizeof(uint64_t) != 0)
    value_error("an atomic's remote address is " + std::to_string(made.address) + ": a multiple of 8 wanted");
  made.data = sges;
  Place place(buffer, at, hw::kSendBlock);
  if (inlined.is_none()) return driver::mlx5::write_request(place.at(), place.room(), made);
  if (!sges.empty()) value_error("an entry has its data inline or in memory, not both");
  Place bytes(inlined, py::int_(0), 0, false);
  made.inlined = {bytes.at(), bytes.room()};
  uint8_t copy[hw::kMostSegments * hw::kSegment];  // they may be where the entry goes
  if (bytes.room() <= sizeof(copy)) {
    std::memcpy(copy, bytes.at(), bytes.room());
    made.inlined = {copy, bytes.room()};
  }
  return driver::mlx5::write_request(place.at(), place.room(), made);
}

void receive(const py::object& buffer, const py::object& at, const py::object& segments, const py::object& data) {
  const uint64_t count = number(segments, 16, "segments");
  if (count == 0) value_error("a receive has one segment or more");
  const std::vector<Sge> sges = pieces(data);
  Place place(buffer, at, hw::kSegment);
  driver::mlx5::write_receive(place.at(), place.room(), static_cast<unsigned>(count), sges);
}

uint32_t* words(const Place& place) {
  if (reinterpret_cast<uintptr_t>(place.at()) % 4 != 0) value_error("a doorbell record starts at a multiple of 4");
  return reinterpret_cast<uint32_t*>(place.at());
}

}  // namespace

void bind_mlx5_wqe(py::module_& m) {
  m.def("mlx5_request", request, py::arg("buffer"), py::arg("at"), py::kw_only(), py::arg("opcode"), py::arg("flags"),
        py::arg("qp"), py::arg("index"), py::arg("data"), py::arg("inlined"), py::arg("immediate"), py::arg("remote"),
        py::arg("atomic"));
  m.def("mlx5_receive", receive, py::arg("buffer"), py::arg("at"), py::kw_only(), py::arg("segments"), py::arg("data"));
  m.def(
      "mlx5_record",
      [](const py::object& buffer, const py::object& at, const py::object& value) {
        const auto word = static_cast<uint32_t>(number(value, 32, "the record"));
        driver::mlx5::record(words(Place(buffer, at, 4)), word);
      },
      py::arg("buffer"), py::arg("at"), py::arg("value"));
  m.def(
      "mlx5_arm_word",
      [](const py::object& sequence, bool solicited, const py::object& consumer) {
        return driver::mlx5::arm_word(static_cast<uint32_t>(number(sequence, 64, "sequence")), solicited,
                                      static_cast<uint32_t>(number(consumer, 64, "consumer")));
      },
      py::arg("sequence"), py::arg("solicited"), py::arg("consumer"));
  m.def(
      "mlx5_arm_doorbell",
      [](const py::object& word, const py::object& cqn) {
        const uint64_t both = driver::mlx5::words(static_cast<uint32_t>(number(word, 32, "the arm word")),
                                                  static_cast<uint32_t>(number(cqn, 24, "cqn")));
        return py::bytes(reinterpret_cast<const char*>(&both), sizeof(both));
      },
      py::arg("word"), py::arg("cqn"));
  m.def(
      "mlx5_doorbell",
      [](const py::object& entry, const py::object& at) {
        const Place place(entry, at, sizeof(uint64_t), false);
        return py::bytes(reinterpret_cast<const char*>(place.at()), sizeof(uint64_t));
      },
      py::arg("entry"), py::arg("at"));
}

}  // namespace userdma::python
