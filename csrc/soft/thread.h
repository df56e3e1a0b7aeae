// Threads of the library.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace userdma::soft {

// A thread that runs `body`, called `name` (15 bytes at most). Signals of the process are for the program's threads;
// those that say what the thread itself did wrong come to it as to any. Throws host::Error where the system gives no
// thread.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace userdma::soft
