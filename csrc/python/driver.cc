// Binds csrc/driver: Domain, Region, Qp; what a family has of its own: rings.cc.
#include <pybind11/pybind11.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>
#include <unordered_map>

#include "driver/qp.h"
#include "host/relax.h"
#include "host/text.h"
#include "python/completion.h"
#include "python/fast.h"
#include "python/gil.h"
#include "python/host.h"
#include "python/rings.h"

namespace userdma::python {

namespace {

using driver::Completion;
using driver::Domain;
using driver::Polled;
using driver::Qp;
using driver::Rdma;
using driver::Region;
using driver::Side;
using host::relax;

PyObject* set_value_error(const std::string& text) {
  PyErr_SetString(PyExc_ValueError, text.c_str());
  return nullptr;
}

// ---- Domain ----

// The domains of each function, to close before its release.
std::unordered_multimap<host::Function*, std::weak_ptr<Domain>>& domains() {
  static std::unordered_multimap<host::Function*, std::weak_ptr<Domain>> all;
  return all;
}

std::shared_ptr<Domain> make_domain(const std::shared_ptr<host::Function>& function) {
  if (function->released.load()) throw host::MachineError(function->name() + " was released");
  std::erase_if(domains(), [](const auto& each) { return each.second.expired(); });
  auto [begin, end] = domains().equal_range(function.get());
  for (auto each = begin; each != end; ++each)
    if (auto other = each->second.lock(); other && !other->closed())
      throw host::Error(function->name() +
                        " is an open NIC already: use that one, or close it, which releases the function");
  auto domain = std::make_shared<Domain>(function);
  domains().emplace(function.get(), domain);
  return domain;
}

void close(Domain& self, const std::string& why) {
  if (self.views != 0)
    buffer_error(std::to_string(self.views) +
                 " buffers of the NIC's regions are alive: delete the memoryviews and arrays of them first");
  self.close(why);
  Unlocked unlocked;
  self.drain();
}

void close_all(host::Function& function) {
  auto [begin, end] = domains().equal_range(&function);
  std::vector<std::shared_ptr<Domain>> found;
  for (auto each = begin; each != end; ++each)
    if (auto domain = each->second.lock()) found.push_back(std::move(domain));
  domains().erase(&function);
  for (const auto& domain : found) close(*domain, "closed: its function was released");
}

// ---- Region ----

PyTypeObject* region_type = nullptr;

// The region of an argument, or null with a TypeError.
Region* region_of(PyObject* object, const char* what) {
  if (!PyObject_TypeCheck(object, region_type)) [[unlikely]] {
    PyErr_Format(PyExc_TypeError, "%s must be a Region, not %s", what, Py_TYPE(object)->tp_name);
    return nullptr;
  }
  return value_of<Region>(object);
}

// Read and write: of host memory, and not deregistered.
void check_readable(const Region& self) {
  if (self.retired) value_error("the region is " + self.why);
  check_open(*self.domain);
  if (self.data == nullptr)
    value_error("the region is not over host memory of the library: the process does not read or write it here");
}

void check_bytes(const Region& self, uint64_t at, uint64_t n) {
  if (!self.holds(at, n))
    value_error(std::to_string(n) + " bytes at " + std::to_string(at) + " do not lie in the region of " +
                std::to_string(self.bytes) + " bytes");
}

void lend(Region& self, int by) {
  self.views += by;
  self.domain->views += by;
  self.domain->function()->views += by;
}

int region_getbuffer(PyObject* object, Py_buffer* view, int flags) {
  auto* self = value_of<Region>(object);
  if (self == nullptr) return -1;
  try {
    check_readable(*self);
  } catch (const py::value_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return -1;
  }
  if (PyBuffer_FillInfo(view, object, self->data, static_cast<Py_ssize_t>(self->bytes), 0, flags) != 0) return -1;
  lend(*self, 1);
  return 0;
}

void region_releasebuffer(PyObject* object, Py_buffer*) { lend(*value_of<Region>(object), -1); }

void setup_region(PyHeapTypeObject* heap) {
  heap->ht_type.tp_as_buffer = &heap->as_buffer;
  heap->as_buffer.bf_getbuffer = region_getbuffer;
  heap->as_buffer.bf_releasebuffer = region_releasebuffer;
}

// Copies without the GIL where that takes longer than to let go of it; the region is lent meanwhile.
void copy(Region& region, void* to, const void* from, size_t n) {
  constexpr size_t kQuick = 16384;
  if (n <= kQuick) {
    std::memcpy(to, from, n);
    return;
  }
  lend(region, 1);
  {
    Unlocked unlocked;
    std::memcpy(to, from, n);
  }
  lend(region, -1);
}

py::bytes region_read(Region& self, const py::object& at_object, const py::object& n_object) {
  uint64_t at = count_of(at_object, "the offset");
  uint64_t n = count_of(n_object, "the number of bytes");
  check_readable(self);
  check_bytes(self, at, n);
  auto result = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n)));
  if (!result) throw py::error_already_set();
  copy(self, PyBytes_AS_STRING(result.ptr()), self.data + at, n);
  return result;
}

void region_write(Region& self, const py::object& at_object, const py::object& data) {
  uint64_t at = count_of(at_object, "the offset");
  struct View {
    Py_buffer buffer{};
    ~View() {
      if (buffer.obj != nullptr) PyBuffer_Release(&buffer);
    }
  } view;
  if (PyObject_GetBuffer(data.ptr(), &view.buffer, PyBUF_ANY_CONTIGUOUS) != 0) throw py::error_already_set();
  auto n = static_cast<uint64_t>(view.buffer.len);
  check_readable(self);
  check_bytes(self, at, n);
  // The data may be a view of this very region.
  const auto* from = static_cast<const uint8_t*>(view.buffer.buf);
  if (from < self.data + at + n && self.data + at < from + n)
    std::memmove(self.data + at, from, n);
  else
    copy(self, self.data + at, from, n);
}

void region_retire(Region& self, const std::string& why) {
  if (self.views != 0)
    buffer_error("buffers of the region are alive (" + std::to_string(self.views) +
                 "): delete its memoryviews and arrays first");
  if (!self.retired) self.why = why;
  self.retired = true;
}

// Looked up once: it is asked for with every write and read.
py::handle remote_memory_type() {
  static PyObject* const type = python_object("userdma.types", "RemoteMemory").release().ptr();
  return type;
}

py::object region_remote(const Region& self, const py::object& at_object) {
  uint64_t at = count_of(at_object, "the offset");
  if (self.retired) value_error("the region is " + self.why);
  check_open(*self.domain);
  if (!self.remote)
    value_error("the region is local: it was made without remote rights (remote=Access.READ | Access.WRITE)");
  check_bytes(self, at, 0);
  return remote_memory_type()(self.remote_va + at, self.remote_key, self.bytes - at);
}

// ---- Qp ----

std::unique_ptr<Qp> make_qp(HeldRings& held, uint32_t send, uint32_t receive, bool immediate) {
  if (!held.rings) value_error("the rings belong to a queue pair already");
  Qp::check_sizes(*held.rings, send, receive);  // a refusal leaves the rings where they are
  check_open(*held.rings->domain);
  auto qp = std::make_unique<Qp>(std::move(held.rings), send, receive, immediate);
  qp->set_brief();  // its callers hold the GIL
  return qp;
}

void retire(Qp& self, const std::string& why) {
  self.retire(why);
  Unlocked unlocked;
  self.drain();
}

PyObject* side_send = nullptr;
PyObject* side_receive = nullptr;

bool side_of(PyObject* object, Side& side) {
  if (object == side_send) {
    side = Side::Send;
    return true;
  }
  if (object == side_receive) [[likely]] {
    side = Side::Receive;
    return true;
  }
  PyErr_Format(PyExc_TypeError, "a side must be userdma.Side.SEND or userdma.Side.RECEIVE, not %R", object);
  return false;
}

// A number that must not be negative: `what` names it in the ValueError.
bool number_of(PyObject* object, uint64_t& value, const char* what) {
  if (PyLong_CheckExact(object)) [[likely]] {
    Py_ssize_t found = PyLong_AsSsize_t(object);
    if (found >= 0) [[likely]] {
      value = static_cast<uint64_t>(found);
      return true;
    }
    PyErr_Clear();
  }
  return guarded([&]() -> PyObject* {
           value = count_of(object, what);
           return Py_None;
         }) != nullptr;
}

PyObject* dead_error(const Qp& qp) {
  return set_value_error("queue pair " + host::hex(qp.number()) + " is " + qp.why_dead());
}

const char* const post_names[] = {"region", "at", "n"};

template <Side side>
PyObject* qp_post(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* named[3];
  if (nargs != 3 || kwnames != nullptr) [[unlikely]] {
    if (!arguments(driver::name(side), post_names, 3, args, nargs, kwnames, named)) return nullptr;
    args = named;
  }
  auto* qp = value_of<Qp>(self);
  Region* region = region_of(args[0], "the region");
  uint64_t at, n;
  if (qp == nullptr || region == nullptr || !number_of(args[1], at, "the offset") ||
      !number_of(args[2], n, "the number of bytes")) [[unlikely]]
    return nullptr;
  return guarded([&]() -> PyObject* {
    bool posted = side == Side::Send ? qp->send(*region, at, n) : qp->receive(*region, at, n);
    if (!posted) [[unlikely]]
      return set_value_error(qp->refusal(side, *region, at, n));
    Py_RETURN_NONE;
  });
}

// A peer's memory out of a RemoteMemory.
struct Remote {
  uint64_t address;
  uint32_t rkey;
  uint64_t bytes;
};

bool remote_of(PyObject* object, Remote& remote) {
  uint64_t values[3];
  static const char* const names[] = {"address", "rkey", "bytes"};
  for (int i = 0; i < 3; ++i) {
    PyObject* value = PyObject_GetAttrString(object, names[i]);
    if (value == nullptr) return false;
    values[i] = PyLong_Check(value) ? PyLong_AsUnsignedLongLong(value) : ~uint64_t{0};
    bool wrong =
        !PyLong_Check(value) || (values[i] == ~uint64_t{0} && PyErr_Occurred()) || (i == 1 && values[i] > 0xffffffff);
    if (wrong) {
      PyErr_Clear();
      PyErr_Format(PyExc_ValueError, "the remote memory's %s is %R", names[i], value);
    }
    Py_DECREF(value);
    if (wrong) return false;
  }
  remote = {values[0], static_cast<uint32_t>(values[1]), values[2]};
  return true;
}

// (region, at)
Region* place_of(PyObject* object, const char* what, uint64_t& at) {
  if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 2) {
    PyErr_Format(PyExc_TypeError, "%s must be (region, offset), not %R", what, object);
    return nullptr;
  }
  Region* region = region_of(PyTuple_GET_ITEM(object, 0), what);
  if (region == nullptr || !number_of(PyTuple_GET_ITEM(object, 1), at, "the offset")) return nullptr;
  return region;
}

bool is_remote_memory(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(remote_memory_type().ptr()));
}

PyObject* post_rdma(Qp& qp, Rdma::Op op, Region& near, uint64_t at, uint64_t n, const Remote& remote,
                    const char* whose) {
  std::string refusal;
  if (n > remote.bytes || remote.address + n < remote.address) [[unlikely]] {
    refusal = qp.refusal(Side::Send, near, at, n, whose);
    if (refusal.empty())
      refusal =
          std::to_string(n) + " bytes do not lie in the remote memory of " + std::to_string(remote.bytes) + " bytes";
    return set_value_error(refusal);
  }
  if (!qp.rdma(op, near, at, n, remote.address, remote.rkey)) [[unlikely]]
    return set_value_error(qp.refusal(Side::Send, near, at, n, whose));
  Py_RETURN_NONE;
}

PyObject* qp_read(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static const char* const names[] = {"src", "dst", "n"};
  PyObject* given[3];
  if (!arguments("read", names, 3, args, nargs, kwnames, given)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto* qp = value_of<Qp>(self);
    uint64_t at, n, from_at;
    Region* to = qp == nullptr ? nullptr : place_of(given[1], "dst", at);
    if (to == nullptr || !number_of(given[2], n, "the number of bytes")) return nullptr;
    Remote remote;
    if (is_remote_memory(given[0])) {
      if (!remote_of(given[0], remote)) return nullptr;
    } else {
      Region* from = place_of(given[0], "src, unless a RemoteMemory,", from_at);
      if (from == nullptr) return nullptr;
      std::string refusal = qp->refusal_far(*from, from_at, n);
      if (!refusal.empty() || qp->dead()) {
        std::string first = qp->refusal(Side::Send, *to, at, n, "the destination region");
        return set_value_error(first.empty() ? refusal : first);
      }
      remote = {from->va + from_at, from->lkey, n};
    }
    return post_rdma(*qp, Rdma::Op::Read, *to, at, n, remote, "the destination region");
  });
}

PyObject* qp_write(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static const char* const names[] = {"src", "dst", "n"};
  PyObject* given[3];
  if (!arguments("write", names, 3, args, nargs, kwnames, given)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto* qp = value_of<Qp>(self);
    uint64_t at, n;
    Region* from = qp == nullptr ? nullptr : place_of(given[0], "src", at);
    if (from == nullptr || !number_of(given[2], n, "the number of bytes")) return nullptr;
    if (!is_remote_memory(given[1]))
      return PyErr_Format(PyExc_TypeError, "dst must be a RemoteMemory, not %s", Py_TYPE(given[1])->tp_name);
    Remote remote;
    if (!remote_of(given[1], remote)) return nullptr;
    return post_rdma(*qp, Rdma::Op::Write, *from, at, n, remote, "the source region");
  });
}

const char* const side_names[] = {"side", "us"};

PyObject* qp_room(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* given[1];
  if (!arguments("room", side_names, 1, args, nargs, kwnames, given)) return nullptr;
  auto* qp = value_of<Qp>(self);
  Side side;
  if (qp == nullptr || !side_of(given[0], side)) return nullptr;
  if (qp->dead()) return dead_error(*qp);
  return PyLong_FromUnsignedLong(qp->room(side));
}

PyObject* result(Qp& qp, Side side, Polled polled, const Completion& completion) {
  if (polled == Polled::Ok) [[likely]]
    return new_completion(completion);
  return new_failed_completion(completion, qp.message(side, completion));
}

// What a soft NIC has to do that takes long: without the GIL, until there is something to take, or for long enough.
void run_long(Qp& qp, Side side) {
  constexpr unsigned longest = 16;
  const host::Idle idle = qp.domain()->idle();
  Unlocked unlocked;
  for (unsigned i = 0; i < longest && idle.run(idle.self, false); ++i) {
    if (qp.ready(side, true) != Qp::Look::Nothing) return;
  }
}

PyObject* qp_poll(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* named[1];
  if (nargs != 1 || kwnames != nullptr) [[unlikely]] {
    if (!arguments("poll", side_names, 1, args, nargs, kwnames, named)) return nullptr;
    args = named;
  }
  auto* qp = value_of<Qp>(self);
  Side side;
  if (qp == nullptr || !side_of(args[0], side)) [[unlikely]]
    return nullptr;
  if (qp->dead()) [[unlikely]]
    return dead_error(*qp);
  return guarded([&]() -> PyObject* {
    Completion completion;
    Polled polled = qp->poll(side, completion);
    if (polled == Polled::None) [[likely]] {
      if (!qp->left()) [[likely]]
        Py_RETURN_NONE;
      run_long(*qp, side);
      if (qp->dead()) return dead_error(*qp);
      if ((polled = qp->poll(side, completion)) == Polled::None) Py_RETURN_NONE;
    }
    return result(*qp, side, polled, completion);
  });
}

// ---- wait ----

uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

constexpr uint64_t kSpin = 50'000;           // ns that a wait looks without a pause before it begins to sleep
constexpr uint64_t kFirstNap = 20'000;       // its first sleep, each next one half as long again
constexpr uint64_t kLongestNap = 1'000'000;  // up to this
constexpr uint64_t kSignals = 20'000'000;    // between two looks at Python's signals
constexpr unsigned kOften = 16;              // spins between two looks at more than the ring itself

// Microseconds of a bound. A float must be whole: "1e6" is a fine way to say a second.
bool microseconds_of(PyObject* object, uint64_t& us) {
  py::object whole;
  if (PyFloat_Check(object)) {
    double value = PyFloat_AS_DOUBLE(object);
    if (!std::isfinite(value) || value != std::floor(value)) {
      PyErr_Format(PyExc_ValueError, "us is %R: a whole number of microseconds wanted", object);
      return false;
    }
    whole = py::reinterpret_steal<py::object>(PyLong_FromDouble(value));
  } else {
    whole = py::reinterpret_steal<py::object>(PyNumber_Index(object));
  }
  if (!whole) return false;
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(whole.ptr(), &overflow);
  if (overflow < 0 || (overflow == 0 && value < 0)) {
    PyErr_Format(PyExc_ValueError, "us is %S: it must not be negative", whole.ptr());
    return false;
  }
  us = overflow > 0 ? ~uint64_t{0} : static_cast<uint64_t>(value);
  return true;
}

// Looks, without the GIL, until there is something to do with it: a completion or something to look around for (true),
// the bound, a signal or the pair's end (false).
bool look(Qp& qp, Side side, const host::Idle& idle, uint64_t spin_until, uint64_t until, uint64_t& nap) {
  for (unsigned i = 1;; ++i) {
    uint64_t time = now();
    bool spinning = time < spin_until;
    const uint32_t ticket = idle.ticket != nullptr ? idle.ticket(idle.self) : 0;
    Qp::Look found = qp.ready(side, spinning && i % kOften != 0);
    if (found != Qp::Look::Nothing) return true;
    if (spinning && idle.run != nullptr) idle.run(idle.self, false);
    if (time >= until) return false;
    if (spinning) {
      relax();
      continue;
    }
    if (idle.rest != nullptr) {  // a soft NIC does its work by itself meanwhile, and says when it did any
      idle.rest(idle.self, ticket, std::min(kLongestNap, until - time));
      continue;
    }
    uint64_t length = std::min(nap, until - time);
    timespec sleep{static_cast<time_t>(length / 1'000'000'000), static_cast<long>(length % 1'000'000'000)};
    nap = std::min(kLongestNap, nap + nap / 2);
    if (nanosleep(&sleep, nullptr) != 0) return false;
  }
}

// The thread in which Python ends, from the moment on when it ends what is still open.
std::atomic<std::thread::id> ending{};

// The pair is dead. At the interpreter's end that is nothing to tell a daemon thread that waits, as nobody would hear
// it but the terminal.
PyObject* ended(const Qp& qp) {
  const std::thread::id by = ending.load();
  if (by != std::thread::id() && by != std::this_thread::get_id()) {
    Unlocked unlocked;
    hang();
  }
  return dead_error(qp);
}

PyObject* wait(Qp& qp, Side side, uint64_t us) {
  Completion completion;
  Polled polled = qp.poll(side, completion);
  if (polled != Polled::None) return result(qp, side, polled, completion);

  const host::Idle idle = qp.domain()->idle();
  const uint64_t start = now();
  const uint64_t longest = ~uint64_t{0} - start;
  const uint64_t deadline = start + (us > longest / 1000 ? longest : us * 1000);
  const uint64_t spin_until = std::min(deadline, start + kSpin);
  uint64_t nap = kFirstNap;
  bool last = deadline - start <= kSpin;
  for (;;) {
    uint64_t until = std::min(deadline, now() + kSignals);
    const uint32_t ticket = idle.ticket != nullptr ? idle.ticket(idle.self) : 0;
    {
      Unlocked unlocked;
      look(qp, side, idle, spin_until, until, nap);
    }
    if (qp.dead()) return ended(qp);
    if (PyErr_CheckSignals() != 0) return nullptr;  // the entry stays due
    qp.look_around(side);
    if (qp.dead()) return ended(qp);
    polled = qp.poll(side, completion);
    if (polled != Polled::None) return result(qp, side, polled, completion);
    // Another thread may have taken what this one waited for: then there is the next entry to wait for, or none.
    if (qp.outstanding(side) == 0) Py_RETURN_NONE;
    if (now() < deadline) continue;
    if (last || idle.rest == nullptr) Py_RETURN_NONE;
    // This process may have been stopped past the bound: what arrived meanwhile lands right now, here or, if the NIC's
    // thread is at it, there.
    last = true;
    Unlocked unlocked;
    if (idle.run != nullptr) idle.run(idle.self, false);
    idle.rest(idle.self, ticket, kLongestNap);
  }
}

PyObject* qp_wait(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* given[2];
  if (!arguments("wait", side_names, 2, args, nargs, kwnames, given)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto* qp = value_of<Qp>(self);
    Side side;
    uint64_t us;
    if (qp == nullptr || !side_of(given[0], side) || !microseconds_of(given[1], us)) return nullptr;
    if (qp->dead()) return dead_error(*qp);
    if (qp->outstanding(side) == 0)
      return set_value_error(std::string("no entry of the ") + driver::name(side) +
                             " ring is due: nothing is posted whose completion was not taken");
    return wait(*qp, side, us);
  });
}

// Side is a true enum.Enum, made here so that poll can compare by identity.
void bind_side(py::module_& m) {
  py::dict members;
  members["SEND"] = 0;
  members["RECEIVE"] = 1;
  py::object side = py::module_::import("enum").attr("Enum")("Side", members, py::arg("module") = "userdma._core",
                                                             py::arg("qualname") = "Side");
  side.attr("__doc__") = "A queue pair's rings.";
  side_send = py::object(side.attr("SEND")).release().ptr();
  side_receive = py::object(side.attr("RECEIVE")).release().ptr();
  m.attr("Side") = side;
}

}  // namespace

void bind_driver(py::module_& m) {
  bind_side(m);
  bind_completion(m);
  before_release(close_all);
  m.def(
      "ending", [] { ending.store(std::this_thread::get_id()); }, "Python ends: what is open is closed from here on.");

  py::class_<Domain, std::shared_ptr<Domain>>(m, "Domain",
                                              "What the regions, the event ring and the queue pairs of one NIC share.")
      .def(py::init(&make_domain), py::arg("function").none(false))
      .def_property_readonly("function", &Domain::function)
      .def_property_readonly("failure", &Domain::failure)
      .def_property_readonly("closed", &Domain::closed)
      .def_property_readonly("views", [](const Domain& self) { return self.views; })
      .def("fail", &Domain::fail, py::arg("why"))
      .def("check", &Domain::check)
      .def("close", [](Domain& self) { close(self, "closed with its NIC"); })
      .def("abandon", [](Domain& self) {
        const char* parents = "its parent's: this is the child of a fork";
        self.close(parents, parents);
      });

  py::class_<Region> region(m, "Region", "Registered memory of one NIC.", py::custom_type_setup(setup_region));
  region
      .def(py::init([](const std::shared_ptr<Domain>& domain, uintptr_t address, uint64_t va, uint64_t bytes,
                       uint32_t lkey, bool remote, uint64_t remote_va, uint32_t remote_key) {
             check_open(*domain);
             auto made = std::make_unique<Region>();
             made->domain = domain;
             made->data = reinterpret_cast<uint8_t*>(address);
             made->va = va;
             made->bytes = bytes;
             made->lkey = lkey;
             made->remote = remote;
             made->remote_va = remote_va;
             made->remote_key = remote_key;
             return made;
           }),
           py::arg("domain").none(false), py::kw_only(), py::arg("address"), py::arg("va"), py::arg("bytes"),
           py::arg("lkey"), py::arg("remote") = false, py::arg("remote_va") = 0, py::arg("remote_key") = 0)
      .def_property_readonly("alive", [](const Region& self) { return !self.retired && !self.domain->closed(); })
      .def_readonly("views", &Region::views)
      .def("_retire", region_retire, py::arg("why") = "deregistered")
      .def("__len__", [](const Region& self) { return self.bytes; })
      .def("read", region_read, py::arg("at"), py::arg("n"), "A copy of the n bytes at offset at.")
      .def("write", region_write, py::arg("at"), py::arg("data"), "Writes data, any contiguous buffer, at offset at.")
      .def("remote", region_remote, py::arg("at") = 0,
           "What a peer needs to reach the bytes from at on. ValueError if the region has no remote rights.");
  region_type = reinterpret_cast<PyTypeObject*>(region.ptr());

  bind_rings(m);

  py::class_<Qp> qp(m, "Qp", "A queue pair's rings, posts and completions.");
  qp.def(py::init(&make_qp), py::arg("rings"), py::kw_only(), py::arg("send") = 4095, py::arg("receive") = 4095,
         py::arg("immediate") = false)
      .def_property_readonly("number", &Qp::number, "The NIC's number of the queue pair.")
      .def_property_readonly("connected", &Qp::connected,
                             "Whether connect has succeeded. A pair that failed stays connected.")
      .def_property_readonly("dead", &Qp::dead, "Whether it is destroyed, or its NIC closed.")
      .def_property_readonly("failure", &Qp::failure, "Why the pair failed, or \"\".")
      .def("_set_connected", &Qp::connect, py::kw_only(), py::arg("psn"), py::arg("mtu"), py::arg("local"))
      .def("_retire", retire, py::arg("why") = "destroyed");

  static PyMethodDef methods[7];
  // What all four ways to post an entry have in common.
#define POSTED                                                                                                         \
  "\n\nReturns at once; the bytes must stay as they are until the entry's completion, and completions come in the "    \
  "order of the entries.\nMay be called from any thread. ValueError, with nothing posted: the side's ring has no "     \
  "room "                                                                                                              \
  "(take completions, or look at `room`\nbefore), the bytes are not in the region or are more than 2^31, the pair is " \
  "not connected or is destroyed, the region is deregistered\nor of another NIC."
  fast_method(
      qp, methods[0], "send", qp_post<Side::Send>,
      "send($self, region, at, n)\n--\n\nPosts the send of the n bytes at offset at of the region: one message, "
      "of 0 to 2^31 bytes, for the peer's oldest receive.\nThe peer must be connected, or its completion is "
      "RETRY_EXCEEDED half a second later." POSTED);
  fast_method(qp, methods[1], "receive", qp_post<Side::Receive>,
              "receive($self, region, at, n)\n--\n\nPosts the receive of a message of up to n bytes at offset at of "
              "the region. May be posted before the pair is connected." POSTED);
  fast_method(qp, methods[2], "read", qp_read,
              "read($self, src, dst, n)\n--\n\nPosts the read of n bytes of src, a (region, offset) of this NIC or a "
              "peer's RemoteMemory, into dst, a (region, offset).\nIt is an entry of the send ring." POSTED);
  fast_method(
      qp, methods[3], "write", qp_write,
      "write($self, src, dst, n)\n--\n\nPosts the write of n bytes of src, a (region, offset), into dst, a peer's "
      "RemoteMemory. It is an entry of the send ring; the\npeer's program is not told." POSTED);
#undef POSTED
  fast_method(qp, methods[4], "room", qp_room,
              "room($self, side)\n--\n\nHow many more entries the side's ring takes now. An entry's place is free once "
              "its completion was taken.");
  fast_method(qp, methods[5], "poll", qp_poll,
              "poll($self, side)\n--\n\nTakes the completion of the side's oldest entry, or None if it has none yet. "
              "A failed entry is a Completion too. ValueError if the\npair is destroyed.");
  fast_method(
      qp, methods[6], "wait", qp_wait,
      "wait($self, side, us)\n--\n\nThe completion of the side's oldest entry, as soon as it has one, waiting for "
      "it at most us microseconds: None at that bound.\nRuns without the GIL; signal handlers run meanwhile, "
      "and what they raise (Ctrl-C) ends it, with the entry still due. ValueError\nif no entry of the side is "
      "due, us is negative, or the pair is destroyed, also by another thread meanwhile.");
}

}  // namespace userdma::python
