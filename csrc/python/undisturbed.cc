#include "python/undisturbed.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "host/fork.h"
#include "python/gil.h"
#include "python/host.h"
#include "soft/thread.h"

namespace userdma::python {

namespace {

// A thread that runs one piece of work at a time. It is never ended: at exit it waits, without the GIL.
class Helper {
 public:
  Helper() {
    soft::start_thread("userdma-fw", [this] { loop(); }).detach();
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
  if (!made || generation != host::fork_generation()) {
    made = new Helper;
    generation = host::fork_generation();
  }
  return *made;
}

}  // namespace

void undisturbed(const std::function<void()>& work) {
  if (!python_runs()) return;
  py::gil_scoped_acquire gil;
  const auto main = python_object("threading", "main_thread")().attr("ident").cast<unsigned long>();
  if (PyThread_get_thread_ident() != main) {
    work();
    return;
  }
  Helper* other;
  try {
    other = &helper();
  } catch (const host::Error&) {  // the system gives no more threads
    work();
    return;
  }
  Unlocked released;
  other->run(work);
}

}  // namespace userdma::python
