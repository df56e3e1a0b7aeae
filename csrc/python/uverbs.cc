// Binds csrc/host/uverbs.h: a device that stays the kernel's, and the calls on its file.
#include "host/uverbs.h"

#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstring>
#include <string>

#include "python/gil.h"
#include "python/host.h"

namespace userdma::python {

namespace {

using host::Uverbs;

// The request is a header, whose length is that of the whole, and its attributes: the kernel writes into both.
int call(Uverbs& self, const py::buffer& request) {
  check_live(self);
  py::buffer_info info = request.request(true);
  const auto bytes = static_cast<size_t>(info.size * info.itemsize);
  ib_uverbs_ioctl_hdr header;
  if (!PyBuffer_IsContiguous(info.view(), 'C') || bytes < sizeof(header))
    value_error("a request is an ib_uverbs_ioctl_hdr and its attributes");
  std::memcpy(&header, info.ptr, sizeof(header));
  if (header.length != bytes || bytes != sizeof(header) + header.num_attrs * sizeof(ib_uverbs_attr))
    value_error("a request of " + std::to_string(header.num_attrs) + " attributes and " +
                std::to_string(header.length) + " bytes, but it has " + std::to_string(bytes));
  Unlocked unlocked;
  return self.call(info.ptr);
}

}  // namespace

void bind_uverbs(py::module_& m) {
  py::class_<Uverbs, host::Function, std::shared_ptr<Uverbs>>(
      m, "Uverbs", "An RDMA device that stays its kernel driver's, through the kernel's uverbs file.")
      .def(py::init([](const std::string& device, const std::string& sysfs, const std::string& dev) {
             Unlocked unlocked;
             return std::make_shared<Uverbs>(device, host::Roots{sysfs, dev});
           }),
           py::arg("device"), py::kw_only(), py::arg("sysfs") = "/sys", py::arg("dev") = "/dev")
      .def_static(
          "obstacle",
          [](const std::string& device, const std::string& sysfs, const std::string& dev) {
            return Uverbs::obstacle(device, {sysfs, dev});
          },
          py::arg("device"), py::kw_only(), py::arg("sysfs") = "/sys", py::arg("dev") = "/dev")
      .def("call", call, py::arg("request"))
      .def(
          "map_registers",
          [](const std::shared_ptr<Uverbs>& self, uint64_t offset, size_t bytes) {
            check_live(*self);
            return HeldBar{self, self->map_registers(offset, bytes)};
          },
          py::arg("offset"), py::arg("bytes"))
      .def(
          "watch",
          [](Uverbs& self, int fd) {
            check_live(self);
            self.watch(fd);
          },
          py::arg("fd"))
      .def("over_memlock", &Uverbs::over_memlock, py::arg("bytes"))
      .def(
          "refuse_pin",
          [](const Uverbs& self, uint64_t bytes, const std::string& what, int error) {
            throw self.refused(bytes, what.c_str(), error);
          },
          py::arg("bytes"), py::arg("what"), py::arg("error"));
}

}  // namespace userdma::python
