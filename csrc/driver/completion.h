// How an entry of a queue pair ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

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

// What is said of an error: by programs (the member of userdma.ErrorKind), and for a person, as the end of "queue pair
// 0x5, send entry 7: ...". The sentences name the usual causes and what to change, as the NIC cannot tell them apart.
struct ErrorText {
  const char* name;
  const char* sentence;
  const char* of_receive = nullptr;  // where an entry of the receive ring has another one
};

inline constexpr ErrorText kErrorTexts[] = {
    {"", "done"},
    {"LOCAL_LENGTH",
     "a local length is wrong: a receive is shorter than its message, or a message longer than the NIC takes",
     "the message is longer than the receive: post receives of the peer's longest message"},
    {"LOCAL_QP_OPERATION", "the entry is malformed for its queue pair, or the NIC could not run it"},
    {"LOCAL_PROTECTION", "local memory is outside its region or its keys, or the region was deregistered meanwhile"},
    {"FLUSHED", "the queue pair failed before the entry ran"},
    {"BAD_RESPONSE", "the peer sent an unexpected response: both ends must be connected with the same mtu"},
    {"LOCAL_ACCESS",
     "the peer's request violated local access rights: it names memory outside a region made with these rights "
     "(remote=... of the region)"},
    {"REMOTE_INVALID_REQUEST",
     "the peer refused the request: its queue pair does not allow it (connect(..., remote=...) there), its receive is "
     "shorter than the message, or the two ends have not the same mtu",
     "the peer's request is none that this queue pair takes (connect(..., remote=...) here, the same mtu on both "
     "ends)"},
    {"REMOTE_ACCESS",
     "the peer refused the request's memory or key: it is outside the region there, which must be made with these "
     "rights (remote=...) and still be registered"},
    {"REMOTE_OPERATION",
     "the peer could not complete the request: its receive names memory that its NIC does not reach any more"},
    {"RETRY_EXCEEDED",
     "the peer acknowledged nothing within the queue pair's retries: it is not connected to this queue pair yet, has "
     "failed or was destroyed, was stopped for too long, or is out of reach (another wire, a link that is down, or not "
     "the gid and mac of its endpoint)"},
    {"REMOTE_ABORTED", "the peer aborted the operation"},
    {"", "an error without a name here"},
};
static_assert(std::size(kErrorTexts) == static_cast<size_t>(Error::Other) + 1);

constexpr const char* describe(Error error, Side side) {
  const ErrorText& text = kErrorTexts[static_cast<size_t>(error)];
  return side == Side::Receive && text.of_receive != nullptr ? text.of_receive : text.sentence;
}

struct Completion {
  uint64_t entry = 0;      // which entry of its ring, counted from 0 since the queue pair was made
  uint32_t bytes = 0;      // moved: the message's, or what a receive took; 0 if it failed
  uint32_t immediate = 0;  // with has_immediate
  Error error = Error::None;
  uint8_t vendor = 0;  // the NIC's own status, or what it says beside that
  bool has_immediate = false;
  uint8_t status = 0;  // of Error::Other: its number
};

}  // namespace userdma::driver
