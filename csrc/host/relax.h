// What a thread does between looks at a word that another thread or a device is about to change.
#pragma once

namespace userdma::host {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace userdma::host
