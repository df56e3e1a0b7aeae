#include "soft/thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "host/function.h"

namespace userdma::soft {

std::thread start_thread(const std::string& name, std::function<void()> body) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  // Blocked, they would end the process past its handlers (faulthandler's, which says where; soft/guard.h's).
  for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&blocked, own);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::thread started;
  std::string why;
  try {
    started = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    why = error.code().message();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started.joinable())
    throw host::Error("the system gives this process no thread more (" + name + "): " + why +
                      "; raise `ulimit -u`, or pids.max of its control group");
  pthread_setname_np(started.native_handle(), name.c_str());
  return started;
}

}  // namespace userdma::soft
