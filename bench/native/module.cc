#include "native.h"

PYBIND11_MODULE(native, m) {
  userdma::bench::bind_empty(m);
  userdma::bench::bind_plain(m);
  userdma::bench::bind_loops(m);
}
