// Work without the GIL, and what becomes of a thread that wants it back while Python ends.
//
// Before 3.14 Python ends a thread that takes the GIL during finalization by pthread_exit (it later lets such threads
// hang, for this very reason): the unwinding that follows would pass destructors that must not throw, which ends the
// process. Here such a thread hangs until the process is gone. It can only be a daemon thread.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

namespace userdma::python {

// Whether Python code can be run.
inline bool python_runs() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// This thread is done: until the process ends.
[[noreturn]] inline void hang() {
  for (;;) ::pause();
}

// While it lives the thread runs without the GIL.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {  // NOLINT: the end of the thread, which must not go on nor be swallowed
      hang();
    }
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace userdma::python
