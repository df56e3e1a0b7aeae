// The socket of one client: whole messages in and out, and the requests that go the other way.
//
// One thread serves the client: it takes the commands and answers them. Any thread that does the NIC's work may ask
// the client for memory meanwhile, and waits for the answer; so whoever wants something reads the socket, and what is
// for another is left for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "soft/vfio_user/fd.h"
#include "soft/vfio_user/message.h"
#include "soft/vfio_user/protocol.h"

namespace userdma::soft::vfio_user {

struct Message {
  Header header;
  std::vector<uint8_t> payload;
  std::vector<Fd> fds;
};

class Channel {
 public:
  // Commands that wait while the NIC asks for memory: more than a client has any use for end the connection.
  static constexpr size_t most_commands = 4096, most_commands_bytes = 64 << 20, most_commands_fds = 256;

  // A stream socket. A client that leaves off within a message, or does not take what is sent to it, for `stall` has
  // lost its connection: the NIC may be waiting with its lock held.
  Channel(Fd socket, std::chrono::milliseconds stall);

  // The next command. False: the client is gone, or what it sent was no message; such a one gets its error first. The
  // serving thread only.
  bool next(Message& out);

  // Answers a command. False: the client is gone. Nothing is sent where no reply is wanted.
  bool reply(const Header& command, const void* payload = nullptr, size_t bytes = 0, const void* more = nullptr,
             size_t more_bytes = 0);
  bool refuse(const Header& command, int error);

  // Asks the client, and takes at most `answer_bytes` of the payload that it answers with: how many, or minus an errno
  // (ETIMEDOUT: no answer in time; ENOTCONN: it is gone). Any thread.
  ptrdiff_t ask(uint16_t command, const void* payload, size_t bytes, const void* more, size_t more_bytes, void* answer,
                size_t answer_bytes, std::chrono::milliseconds limit);

  // Ends it: whoever waits in here returns. Any thread.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  bool send(const Header& header, const void* payload, size_t bytes, const void* more, size_t more_bytes);
  // One message, whatever it is. False: the connection is over.
  bool receive(Message& out);
  // `begun`: when the message's first byte was there; set by the first bytes that come.
  bool receive_bytes(void* into, size_t bytes, std::vector<Fd>& fds, Clock::time_point& begun);
  // Reads one message and files it. With `guard`'s lock held, which is given up while it reads; `reading_` is not set.
  void read_one(std::unique_lock<std::mutex>& guard, Clock::time_point until);

  const Fd socket_;
  const std::chrono::milliseconds stall_;
  std::mutex send_mutex_;

  std::mutex mutex_;  // what follows
  std::condition_variable changed_;
  bool reading_ = false;
  bool over_ = false;
  uint16_t next_id_ = 0;
  std::deque<Message> commands_;
  size_t commands_bytes_ = 0, commands_fds_ = 0;
  std::map<uint16_t, Message*> waiting_;  // for the reply of that id; the header's size is 0 until it came
};

}  // namespace userdma::soft::vfio_user
