// How an entry of a queue pair ended.
#pragma once

#include <cstdint>

namespace userdma::driver {

// A queue pair's rings.
enum class Side : uint8_t { Send = 0, Receive = 1 };
constexpr Side other(Side side) { return side == Side::Send ? Side::Receive : Side::Send; }
constexpr const char* name(Side side) { return side == Side::Send ? "send" : "receive"; }

// Why an entry failed. Every NIC family maps its own statuses to these.
enum class Error : uint8_t {
  None,
  LocalLength,
  LocalQpOperation,
  LocalProtection,
  Flushed,
  BadResponse,
  LocalAccess,
  RemoteInvalidRequest,
  RemoteAccess,
  RemoteOperation,
  RetryExceeded,
  RemoteAborted,
  Other,  // by its number, the NIC's own status
};

// For a person, as the end of "queue pair 0x5, send entry 7: ...".
constexpr const char* describe(Error error) {
  switch (error) {
    case Error::None:
      return "done";
    case Error::LocalLength:
      return "a local length is wrong";
    case Error::LocalQpOperation:
      return "the entry is malformed for its queue pair";
    case Error::LocalProtection:
      return "local memory is outside its region or its keys";
    case Error::Flushed:
      return "the queue pair failed before the entry ran";
    case Error::BadResponse:
      return "the peer sent an unexpected response";
    case Error::LocalAccess:
      return "the peer's request violated local access rights";
    case Error::RemoteInvalidRequest:
      return "the peer refused the request as malformed for its queue pair";
    case Error::RemoteAccess:
      return "the peer refused the request's memory or key";
    case Error::RemoteOperation:
      return "the peer could not complete the request";
    case Error::RetryExceeded:
      return "the peer acknowledged nothing within the retries";
    case Error::RemoteAborted:
      return "the peer aborted the operation";
    case Error::Other:
      return "an error without a name here";
  }
  return "an unknown error";
}

struct Completion {
  uint64_t entry = 0;      // which entry of its ring, counted from 0 since the queue pair was made
  uint32_t bytes = 0;      // moved: the message's, or what a receive took; 0 if it failed
  uint32_t immediate = 0;  // with has_immediate
  Error error = Error::None;
  uint8_t vendor = 0;  // the NIC's own status
  bool has_immediate = false;
  uint8_t reserved = 0;  // the four bytes are one store
};

}  // namespace userdma::driver
