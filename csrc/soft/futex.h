// Sleeping on a word of memory, and waking who sleeps on it (futex).
#pragma once

#include <atomic>
#include <cstdint>

#include "host/relax.h"

namespace userdma::soft {

// Sleeps while `word` is `value`, at most `nanoseconds` (UINT64_MAX: without end). May wake up early. False: the time
// passed. `shared`: processes share the word.
bool futex_wait(std::atomic<uint32_t>& word, uint32_t value, uint64_t nanoseconds, bool shared);
void futex_wake(std::atomic<uint32_t>& word, int threads, bool shared);

using host::relax;

}  // namespace userdma::soft
