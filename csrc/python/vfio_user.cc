// Binds csrc/soft/vfio_user: the server.
#include <pybind11/pybind11.h>

#include "python/gil.h"
#include "python/host.h"
#include "soft/vfio_user/server.h"

namespace userdma::python {

using soft::vfio_user::Server;

void bind_vfio_user(py::module_& m) {
  // Its end waits for the thread, which may be in the soft NIC's firmware: Python.
  py::class_<Server>(m, "VfioUserServer", "A soft function as a vfio-user device, served by a thread of its own.",
                     py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](const std::shared_ptr<host::Function>& function, const std::string& path, bool once) {
             auto soft = std::dynamic_pointer_cast<soft::SoftFunction>(function);
             if (!soft) value_error(function->name() + " is no NIC in software");
             check_live(*function);
             Unlocked unlocked;
             return std::make_unique<Server>(std::move(soft), Server::Options{path, once});
           }),
           py::arg("function").none(false), py::arg("path"), py::kw_only(), py::arg("once") = false)
      .def("close", &Server::close, py::call_guard<Unlocked>())
      .def("fileno", &Server::end_event, "Readable once it has ended.")
      .def_property_readonly("path", &Server::path)
      .def_property_readonly("ended", &Server::ended)
      .def_property_readonly("connected", &Server::connected)
      .def_property_readonly("clients", &Server::clients, "How many have come so far.");
}

}  // namespace userdma::python
