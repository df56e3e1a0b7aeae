#include "python/undisturbed.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "python/gil.h"
#include "python/host.h"
#include "soft/fork.h"

namespace userdma::python {

namespace {

bool python_runs() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// A thread that runs one piece of work at a time. It is never ended: at exit it waits, without the GIL.
class Helper {
 public:
  Helper() {
    // A signal of the process goes to whichever thread takes it: not to this one.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { loop(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // Without the GIL.
  void run(const std::function<void()>& work) {
    std::unique_lock guard(mutex_);
    work_ = &work;
    changed_.notify_all();
    changed_.wait(guard, [this] { return !work_; });
  }

 private:
  // It holds the GIL only while the main thread waits for the work: a thread that wants it during finalization is
  // ended by Python, which no C++ frame survives.
  void loop() {
    PyThreadState* state = nullptr;  // one for all the work
    for (;;) {
      const std::function<void()>* work;
      {
        std::unique_lock guard(mutex_);
        changed_.wait(guard, [this] { return work_; });
        work = work_;
      }
      if (state) {
        PyEval_RestoreThread(state);
      } else {
        PyGILState_Ensure();
      }
      (*work)();
      state = PyEval_SaveThread();
      std::lock_guard guard(mutex_);
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
};

// Of this process: a forked child has its own. Called by the main thread only.
Helper& helper() {
  static Helper* made = nullptr;
  static uint64_t generation = 0;
  if (!made || generation != soft::fork_generation()) {
    made = new Helper;
    generation = soft::fork_generation();
  }
  return *made;
}

}  // namespace

void undisturbed(const std::function<void()>& work) {
  if (!python_runs()) return;
  py::gil_scoped_acquire gil;
  const auto main = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  if (PyThread_get_thread_ident() != main) {
    work();
    return;
  }
  Helper* other;
  try {
    other = &helper();
  } catch (const std::system_error&) {  // the system gives no more threads
    work();
    return;
  }
  Unlocked released;
  other->run(work);
}

}  // namespace userdma::python
