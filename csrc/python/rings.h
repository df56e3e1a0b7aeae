// What a family brings for its queue pairs, as Python holds it.
#pragma once

#include <memory>

#include "driver/qp.h"
#include "python/host.h"

namespace userdma::python {

struct HeldRings {
  std::unique_ptr<driver::Rings> rings;  // null once a Qp took it
};

inline void check_open(const driver::Domain& domain) {
  if (domain.closed()) value_error("the NIC is " + domain.state());
}

void bind_rings(py::module_& m);

}  // namespace userdma::python
