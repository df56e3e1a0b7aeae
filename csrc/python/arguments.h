// Arguments of the soft NICs' bindings: bytes, dictionaries, page tables.
#pragma once

#include <pybind11/pybind11.h>

#include <bit>
#include <cstring>
#include <string>

#include "python/gil.h"
#include "python/host.h"
#include "soft/bnxt/ring.h"

namespace userdma::python {

template <class F>
auto unlocked(F&& work) {
  Unlocked release;
  return work();
}

// The bytes of an argument, whatever buffer it is.
class Bytes {
 public:
  explicit Bytes(const py::buffer& buffer) : info_(buffer.request()) {
    if (!PyBuffer_IsContiguous(info_.view(), 'C')) buffer_error("the bytes must be contiguous");
  }
  const uint8_t* data() const { return static_cast<const uint8_t*>(info_.ptr); }
  size_t size() const { return static_cast<size_t>(info_.size * info_.itemsize); }
  // Exactly so many.
  const uint8_t* exactly(size_t bytes, const char* what) const {
    if (size() != bytes) {
      value_error(std::string(what) + " is " + std::to_string(bytes) + " bytes, not " + std::to_string(size()));
    }
    return data();
  }

 private:
  py::buffer_info info_;
};

// A dictionary of a firmware's: every key is used, or it is an error.
class Fields {
 public:
  explicit Fields(const py::dict& dict) : dict_(dict) {}

  bool has(const char* name) {
    const bool there = dict_.contains(name) && !dict_[name].is_none();
    if (dict_.contains(name)) seen_++;
    return there;
  }
  template <class T>
  T get(const char* name) {
    if (!dict_.contains(name)) value_error(std::string(name) + " is missing");
    seen_++;
    return number<T>(name);
  }
  template <class T>
  T get(const char* name, T otherwise) {
    return has(name) ? number<T>(name) : otherwise;
  }
  // For a name that `has` found.
  template <class T>
  T number(const char* name) {
    try {
      return dict_[name].cast<T>();
    } catch (const py::cast_error&) {
      value_error(std::string(name) + " is " + std::string(py::repr(dict_[name])));
    }
  }
  void copy(const char* name, uint8_t* into, size_t bytes) {
    const Bytes value{py::buffer(dict_[name])};
    std::memcpy(into, value.exactly(bytes, name), bytes);
  }
  void done() const {
    if (seen_ == py::len(dict_)) return;
    value_error("names that are not known among " + std::string(py::repr(py::list(dict_.attr("keys")()))));
  }

 private:
  py::dict dict_;
  size_t seen_ = 0;
};

// Pages by their size in bytes or, below 64, by its logarithm.
inline unsigned page_shift(uint64_t size) {
  const unsigned shift = size < 64 ? static_cast<unsigned>(size) : static_cast<unsigned>(std::bit_width(size) - 1);
  if (shift < 12 || shift > 40 || (size >= 64 && size != uint64_t{1} << shift)) {
    value_error("pages of " + std::to_string(size) + " bytes");
  }
  return shift;
}

inline soft::bnxt::PageTable page_table(uint64_t base, unsigned level, unsigned shift, unsigned table_shift = 12) {
  if (level > 2) value_error("a page table of level " + std::to_string(level));
  if (table_shift < 12 || table_shift > 40) value_error("page tables of 2^" + std::to_string(table_shift) + " bytes");
  return {base, level, page_shift(shift), table_shift};
}

}  // namespace userdma::python
