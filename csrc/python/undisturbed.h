// Python code that no signal disturbs.
//
// Python runs the handlers of signals in its main thread, between any two instructions there. An exception out of one
// (KeyboardInterrupt) is meant for the program: it must not end the command of a firmware halfway, which happens to
// run because the program stored to a register. So what the main thread asks for runs in another thread.
#pragma once

#include <functional>

namespace userdma::python {

// Runs `work` with the GIL and returns when it is done: in this thread, or elsewhere if this is Python's main thread.
// The caller may hold the GIL or not. Nothing is done where Python does not run (any more).
void undisturbed(const std::function<void()>& work);

}  // namespace userdma::python
