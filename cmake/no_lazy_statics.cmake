# Fails where an object of a library makes a static of a function at its first use. A fork amid that, by another thread,
# would leave the child one that is never made: it would wait for it without end.
#
#   cmake -DNM=<nm> "-DLIBRARIES=<list>" -P no_lazy_statics.cmake

foreach(library IN LISTS LIBRARIES)
  execute_process(COMMAND ${NM} -A -u ${library} OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${NM} ${library}: ${status}")
  endif()
  if(NOT symbols MATCHES "pthread_mutex_lock|memcpy")
    message(FATAL_ERROR "${library}: no symbols")
  endif()
  string(REGEX MATCHALL "[^\n]*__cxa_guard_acquire" lazy "${symbols}")
  if(lazy)
    list(JOIN lazy "\n" lazy)
    message(FATAL_ERROR "made at first use, not when the library is loaded:\n${lazy}")
  endif()
endforeach()
