// Loops in C++ over queue pairs that Python brought up.
#include <chrono>
#include <stdexcept>
#include <vector>

#include "driver/qp.h"
#include "driver/region.h"
#include "native.h"

namespace userdma::bench {

namespace {

using driver::Side;

uint64_t now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

void take(driver::Qp& qp, Side side) {
  driver::Completion completion;
  driver::Polled polled;
  while ((polled = qp.poll(side, completion)) == driver::Polled::None) {
  }
  if (polled != driver::Polled::Ok) throw std::runtime_error(qp.message(side, completion));
}

void must(bool posted) {
  if (!posted) throw std::runtime_error("a post was refused");
}

// When each of `rounds` started, in ns; two receives are posted before, and 8 bytes are sent from offset 0.
std::vector<uint64_t> ping_pong(driver::Qp& qp, const driver::Region& region, bool first, uint32_t rounds) {
  std::vector<uint64_t> starts;
  starts.reserve(first ? rounds : 0);
  for (uint32_t i = 0; i < rounds; ++i) {
    if (first) starts.push_back(now());
    if (!first) take(qp, Side::Receive);
    must(qp.send(region, 0, 8));
    must(qp.receive(region, 8, 8));
    if (first) take(qp, Side::Receive);
    take(qp, Side::Send);
  }
  return starts;
}

}  // namespace

void bind_loops(py::module_& m) {
  m.def("ping_pong", [](driver::Qp& qp, const driver::Region& region, bool first, uint32_t rounds) {
    std::vector<uint64_t> starts;
    {
      py::gil_scoped_release release;
      starts = ping_pong(qp, region, first, rounds);
    }
    py::list list;
    for (uint64_t start : starts) list.append(start);
    return list;
  });
}

}  // namespace userdma::bench
