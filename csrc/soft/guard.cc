#include "soft/guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "host/fork.h"

namespace userdma::soft {

// The handler reads them while others change: it sees the end of a stretch only with its beginning.
struct Guard::Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<size_t> page{0};
  std::atomic<bool> lost{false};
};

Guard::Slot Guard::slots[limit];

namespace {

host::ForkMutex& installing = *new host::ForkMutex;  // never destroyed: as wires
struct sigaction before;                             // who had the signal

}  // namespace

// Whenever there is new memory: others may have taken the signal meanwhile (faulthandler.enable() does), and do not
// hand it on with its address.
void install() {
  std::lock_guard guard(installing);
  struct sigaction action{}, now{};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  action.sa_sigaction = [](int number, siginfo_t* info, void* context) { Guard::on_sigbus(number, info, context); };
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, nullptr, &now);
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == action.sa_sigaction) return;
  before = now;
  ::sigaction(SIGBUS, &action, nullptr);
}

void Guard::on_sigbus(int number, void* signal, void* context) {
  auto* info = static_cast<siginfo_t*>(signal);
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (at >= end || at < slot.begin.load(std::memory_order_relaxed)) continue;
    const size_t page = slot.page.load(std::memory_order_relaxed);
    void* place = reinterpret_cast<void*>(at & ~(page - 1));
    if (::mmap(place, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
      break;
    slot.lost.store(true, std::memory_order_relaxed);
    return;
  }
  // No guarded memory.
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    ::signal(number, SIG_DFL);  // the access happens again, and ends the process
  }
}

Guard::Guard(void* at, size_t bytes, size_t page) {
  install();
  for (Slot& slot : slots) {
    if (slot.taken.exchange(true, std::memory_order_acq_rel)) continue;
    slot.lost.store(false, std::memory_order_relaxed);
    slot.page.store(page ? page : static_cast<size_t>(::sysconf(_SC_PAGESIZE)), std::memory_order_relaxed);
    slot.begin.store(reinterpret_cast<uintptr_t>(at), std::memory_order_relaxed);
    slot.end.store(reinterpret_cast<uintptr_t>(at) + bytes, std::memory_order_release);
    slot_ = &slot;
    return;
  }
}

Guard::~Guard() {
  if (!slot_) return;
  slot_->end.store(0, std::memory_order_release);
  slot_->taken.store(false, std::memory_order_release);
}

bool Guard::lost() const { return slot_ && slot_->lost.load(std::memory_order_relaxed); }

}  // namespace userdma::soft
