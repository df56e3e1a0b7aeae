// Posts, completions and failures of a queue pair. Completions are written by hand as the NIC would.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "driver_pair.h"

namespace {

using namespace userdma::test;
using userdma::driver::Completion;
using userdma::driver::Error;
using userdma::driver::Polled;
using userdma::driver::Rdma;
using userdma::driver::Side;

std::string message(const Pair& pair, Side side, const Completion& completion) {
  return pair.qp->message(side, completion);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Takes the next completion and says what it is: "7" bytes, or an error's name and status.
std::string take(Pair& pair, Side side) {
  Completion completion;
  switch (pair.poll(side, completion)) {
    case Polled::None:
      return "none";
    case Polled::Ok:
      return std::to_string(completion.bytes);
    case Polled::Failed:
      CHECK(completion.bytes == 0);
      if (completion.error == Error::Flushed) return "flushed";
      return "error " + std::to_string(static_cast<int>(completion.error)) + " status " +
             std::to_string(completion.vendor);
  }
  return "?";
}

void post(Pair& pair, unsigned sends, unsigned receives) {
  for (unsigned i = 0; i < sends; ++i) REQUIRE(pair.qp->send(pair.region, 0, 100 + i));
  for (unsigned i = 0; i < receives; ++i) REQUIRE(pair.qp->receive(pair.region, 0, 1000));
}

struct Connected : Pair {
  explicit Connected(bool immediate = false) : Pair(8, 16, immediate) { qp->connect(0, 1024, false); }
};

TEST_CASE("one completion may cover several sends; each is taken by itself, in order") {
  Connected pair;
  post(pair, 5, 0);
  pair.cq[0].sent(3);
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Send) == "101");
  CHECK(take(pair, Side::Send) == "102");
  CHECK(take(pair, Side::Send) == "none");
  CHECK(pair.qp->room(Side::Send) == 5);
  pair.cq[0].sent(5);
  CHECK(take(pair, Side::Send) == "103");
  CHECK(take(pair, Side::Send) == "104");
}

TEST_CASE("completions that say nothing are passed over") {
  Connected pair;
  post(pair, 1, 1);
  pair.cq[0].other(0xd);  // CQ_BASE_CQE_TYPE_NO_OP
  pair.cq[1].other(0xd);
  pair.cq[0].sent(0);  // no progress
  CHECK(take(pair, Side::Send) == "none");
  CHECK(take(pair, Side::Receive) == "none");
  pair.cq[0].sent(1);
  pair.cq[1].received(0, 5);
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Receive) == "5");
  CHECK(pair.qp->failure().empty());
}

TEST_CASE("a failed send: results before it, its own error, the rest flushed, of both rings and posted later") {
  Connected pair;
  post(pair, 4, 3);
  pair.cq[1].received(0, 77);
  pair.cq[0].sent(3, 0xa);  // CQ_REQ_STATUS_TRANSPORT_RETRY_CNT_ERR: entries 0 and 1 completed, 2 failed
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Send) == "101");
  Completion completion;
  REQUIRE(pair.qp->poll(Side::Send, completion) == Polled::Failed);
  CHECK(completion.error == Error::RetryExceeded);
  CHECK(completion.vendor == 0xa);
  CHECK(completion.entry == 2);
  CHECK(message(pair, Side::Send, completion) ==
        "queue pair 0x1c3, send entry 2: the peer acknowledged nothing within the queue pair's retries: it is not "
        "connected to this queue pair yet, has failed or was destroyed, was stopped for too long, or is out of reach "
        "(another wire, a link that is down, or not the gid and mac of its endpoint) (vendor status 0xa)");
  REQUIRE(pair.qp->poll(Side::Send, completion) == Polled::Failed);
  CHECK(completion.error == Error::Flushed);
  CHECK(contains(message(pair, Side::Send, completion), pair.qp->failure()));
  CHECK(contains(pair.qp->failure(), "send entry 2: the peer acknowledged nothing"));
  CHECK(take(pair, Side::Send) == "none");

  CHECK(take(pair, Side::Receive) == "77");
  CHECK(take(pair, Side::Receive) == "flushed");
  CHECK(take(pair, Side::Receive) == "flushed");
  CHECK(take(pair, Side::Receive) == "none");

  uint64_t doorbell = pair.last_doorbell();
  post(pair, 2, 1);
  CHECK(pair.last_doorbell() == doorbell);  // the NIC hears of none
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(take(pair, Side::Send) == "none");
  CHECK(take(pair, Side::Receive) == "flushed");
}

TEST_CASE("a poll of one side notices the failure that stands in the other side's completions") {
  for (Side failing : {Side::Send, Side::Receive}) {
    Connected pair;
    post(pair, 2, 2);
    if (failing == Side::Send)
      pair.cq[0].sent(1, 0x7);
    else
      pair.cq[1].received(0, 0, 0x2);  // CQ_RES_RC_STATUS_LOCAL_LENGTH_ERR
    Side side = userdma::driver::other(failing);
    CHECK(take(pair, side) == "flushed");
    CHECK(take(pair, side) == "flushed");
    CHECK(take(pair, failing) == (failing == Side::Send ? "error 8 status 7" : "error 1 status 2"));
    CHECK(take(pair, failing) == "flushed");
    CHECK(take(pair, failing) == "none");
  }
}

TEST_CASE("what was completed before the failure is delivered first, however late it is taken") {
  Connected pair;
  post(pair, 3, 3);
  pair.cq[1].received(0, 1);
  pair.cq[1].received(1, 2);
  pair.cq[0].sent(1);
  pair.cq[0].sent(2, 0x8);
  CHECK(take(pair, Side::Receive) == "1");
  CHECK(take(pair, Side::Receive) == "2");
  CHECK(take(pair, Side::Receive) == "flushed");
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Send) == "error 9 status 8");
  CHECK(take(pair, Side::Send) == "flushed");
}

TEST_CASE("every status of the send ring") {
  // cq_req's statuses, and the seed's names for them.
  const std::pair<unsigned, Error> table[] = {{0x1, Error::BadResponse},
                                              {0x2, Error::LocalLength},
                                              {0x3, Error::LocalQpOperation},
                                              {0x4, Error::LocalProtection},
                                              {0x5, Error::Other},
                                              {0x6, Error::RemoteInvalidRequest},
                                              {0x7, Error::RemoteAccess},
                                              {0x8, Error::RemoteOperation},
                                              {0x9, Error::Other},
                                              {0xa, Error::RetryExceeded},
                                              {0xf, Error::Other}};
  for (auto [status, error] : table) {
    Connected pair;
    post(pair, 1, 0);
    pair.cq[0].sent(1, status);
    Completion completion;
    REQUIRE(pair.poll(Side::Send, completion) == Polled::Failed);
    CHECK(completion.error == error);
    CHECK(completion.vendor == status);
  }
}

TEST_CASE("every status of the receive ring") {
  const std::pair<unsigned, Error> table[] = {{0x1, Error::LocalAccess},     {0x2, Error::LocalLength},
                                              {0x3, Error::LocalProtection}, {0x4, Error::LocalQpOperation},
                                              {0x5, Error::Other},           {0x6, Error::RemoteInvalidRequest},
                                              {0x7, Error::Flushed},         {0x8, Error::Flushed}};
  for (auto [status, error] : table) {
    Connected pair;
    post(pair, 0, 1);
    pair.cq[1].received(0, 0, status);
    Completion completion;
    REQUIRE(pair.poll(Side::Receive, completion) == Polled::Failed);
    CHECK(completion.error == error);
    CHECK(completion.vendor == (error == Error::Flushed ? 0 : status));
  }
}

TEST_CASE("a flush, a terminal completion or an event is a weaker reason than the failed entry's own") {
  Connected pair;
  post(pair, 2, 2);
  pair.cq[0].terminal(1, 0);       // entry 0 completed
  pair.cq[1].received(0, 0, 0x3);  // and this is why
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(contains(pair.qp->failure(), "receive entry 0: local memory is outside"));
  CHECK(take(pair, Side::Receive) == "error 3 status 3");
  CHECK(take(pair, Side::Receive) == "flushed");
}

TEST_CASE("a terminal completion alone") {
  Connected pair;
  post(pair, 3, 1);
  pair.cq[0].terminal(2, 0xffff);
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Send) == "101");
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(take(pair, Side::Receive) == "flushed");
  CHECK(contains(pair.qp->failure(), "terminal"));
}

TEST_CASE("an error's sentence depends on the ring where its causes do") {
  Connected send, receive;
  post(send, 1, 0);
  post(receive, 0, 1);
  send.cq[0].sent(1, 0x2);            // CQ_REQ_STATUS_LOCAL_LENGTH_ERR
  receive.cq[1].received(0, 0, 0x2);  // CQ_RES_RC_STATUS_LOCAL_LENGTH_ERR
  Completion completion;
  REQUIRE(receive.poll(Side::Receive, completion) == Polled::Failed);
  const std::string text = message(receive, Side::Receive, completion);
  CHECK(contains(text, "the message is longer than the receive"));
  CHECK(contains(receive.qp->failure(), "the message is longer than the receive"));
  REQUIRE(send.poll(Side::Send, completion) == Polled::Failed);
  CHECK_FALSE(contains(message(send, Side::Send, completion), "the message is longer than the receive"));
}

TEST_CASE("an entry that the NIC itself flushed is flushed, as are all after it") {
  Connected pair;
  post(pair, 3, 2);
  pair.cq[0].sent(2, 0xb);  // CQ_REQ_STATUS_WORK_REQUEST_FLUSHED_ERR of entry 1
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(take(pair, Side::Receive) == "flushed");
}

TEST_CASE("completions of a kind that the ring does not take fail the pair") {
  struct Case {
    const char* what;
    void (*write)(Pair&);
    const char* says;
  };
  const Case cases[] = {
      {"cut-off", [](Pair& p) { p.cq[0].other(0xf); }, "send completions hold one of a kind"},
      {"datagram", [](Pair& p) { p.cq[1].other(0x2); }, "datagram"},
      {"a type without a name", [](Pair& p) { p.cq[0].other(0x5); }, "type 0x5"},
      {"a receive's in the send ring", [](Pair& p) { p.cq[0].received(0, 1); }, "type 0x1"},
      {"a send's in the receive ring", [](Pair& p) { p.cq[1].sent(1); }, "type 0x0"},
      {"immediate data", [](Pair& p) { p.cq[1].received(0, 1, 0, 0x2, 42); }, "immediate data"},
      {"invalidation", [](Pair& p) { p.cq[1].received(0, 1, 0, 0x4); }, "invalidates"},
      {"shared receive queue", [](Pair& p) { p.cq[1].received(0, 1, 0, 0x1); }, "shared receive queue"},
      {"more sends than posted", [](Pair& p) { p.cq[0].sent(3); }, "not posted"},
      {"another receive", [](Pair& p) { p.cq[1].received(1, 1); }, "another entry"},
      {"an error of another receive", [](Pair& p) { p.cq[1].received(1, 1, 2); }, "another entry"},
      {"an error of no send", [](Pair& p) { p.cq[0].sent(0, 2); }, "not posted"},
      {"a receive of more than its room", [](Pair& p) { p.cq[1].received(0, 1001); }, "1001 bytes into 1000"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Connected pair;
    post(pair, 2, 2);
    each.write(pair);
    CHECK(take(pair, Side::Send) == "flushed");
    CHECK(take(pair, Side::Receive) == "flushed");
    CHECK(contains(pair.qp->failure(), each.says));
    CHECK(contains(pair.qp->failure(), "of a kind that the ring does not take"));
  }
}

TEST_CASE("after an unknown completion nothing that the NIC still completes counts") {
  Connected pair;
  post(pair, 3, 1);
  pair.cq[0].sent(1);
  pair.cq[0].other(0x6);
  pair.cq[0].sent(3);
  CHECK(take(pair, Side::Send) == "100");
  CHECK(take(pair, Side::Send) == "flushed");
  pair.cq[1].received(0, 9);
  CHECK(take(pair, Side::Receive) == "flushed");
}

TEST_CASE("messages with immediate data, where the pair takes them") {
  Connected pair(true);
  post(pair, 0, 2);
  pair.cq[1].received(0, 9, 0, 0x2, 0xdeadbeef);
  pair.cq[1].received(1, 10);
  Completion completion;
  REQUIRE(pair.poll(Side::Receive, completion) == Polled::Ok);
  CHECK(completion.has_immediate);
  CHECK(completion.immediate == 0xdeadbeef);
  REQUIRE(pair.poll(Side::Receive, completion) == Polled::Ok);
  CHECK_FALSE(completion.has_immediate);
}

TEST_CASE("the failure of the machine fails every pair; it is found by polling") {
  Connected pair;
  Pair second(8, 16, false, 0x1c4, pair.function, pair.domain);
  second.qp->connect(0, 1024, false);
  post(pair, 1, 2);
  post(second, 1, 0);
  pair.cq[1].received(0, 3);
  pair.function->fail();
  Completion completion;
  Polled polled = Polled::None;
  int polls = 0;
  while (polled == Polled::None && polls < 10000) polled = pair.qp->poll(Side::Send, completion), ++polls;
  REQUIRE(polled == Polled::Failed);
  CHECK(polls <= 16 * 256 + 16);
  CHECK(completion.error == Error::Flushed);
  CHECK(contains(message(pair, Side::Send, completion), "reads are all ones"));
  CHECK(take(pair, Side::Receive) == "3");
  CHECK(take(pair, Side::Receive) == "flushed");
  CHECK(second.qp->poll(Side::Send, completion) == Polled::Failed);
  CHECK_FALSE(pair.domain->check());
}

TEST_CASE("a pair made after its machine failed has failed") {
  auto function = std::make_shared<PlainFunction>();
  auto domain = std::make_shared<userdma::driver::Domain>(function);
  domain->fail("the machine is gone");
  Pair pair(8, 16, false, 5, function, domain);
  pair.qp->connect(0, 1024, false);
  post(pair, 1, 0);
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(pair.qp->failure() == "the machine is gone");
}

TEST_CASE("why a post is refused, and in which order") {
  Pair pair;
  auto& qp = *pair.qp;
  auto why = [&](Side side, const userdma::driver::Region& region, uint64_t at, uint64_t n) {
    bool posted = side == Side::Send ? qp.send(region, at, n) : qp.receive(region, at, n);
    return posted ? std::string() : qp.refusal(side, region, at, n);
  };
  CHECK(why(Side::Send, pair.region, 0, 1) == "queue pair 0x1c3 is not connected: connect() it first");
  CHECK(why(Side::Receive, pair.region, 0, 1) == "queue pair 0x1c3 is not connected: connect() it first");
  qp.connect(0, 1024, false);
  Pair other;
  CHECK(why(Side::Send, other.region, 0, 1) ==
        "the region is another NIC's: a queue pair takes regions of its own NIC");
  CHECK(why(Side::Send, pair.region, 65536, 1) == "1 bytes at 65536 do not lie in the region of 65536 bytes");
  CHECK(why(Side::Send, pair.region, ~uint64_t{0} >> 1, ~uint64_t{0} >> 1) != "");
  CHECK(why(Side::Send, pair.region, 1, 65536) != "");
  CHECK(why(Side::Send, pair.region, 65536, 0) == "");
  userdma::driver::Region gone = pair.region;
  gone.retired = true;
  CHECK(why(Side::Receive, gone, 0, 1) == "the region is deregistered");
  CHECK(qp.refusal_far(other.region, 0, 1) ==
        "the source region is another NIC's: a queue pair takes regions of its own NIC");
  CHECK(qp.refusal_far(gone, 0, 1) == "the source region is deregistered");
  CHECK(qp.refusal_far(pair.region, 1, 65536) == "65536 bytes at 1 do not lie in the source region of 65536 bytes");
  CHECK(qp.refusal_far(pair.region, 0, 1) == "the peer of queue pair 0x1c3 is not a queue pair of its own NIC");
  qp.connect(0, 1024, true);
  CHECK(qp.refusal_far(pair.region, 0, 1) == "");
  qp.retire("destroyed");
  CHECK(why(Side::Send, pair.region, 0, 1) == "queue pair 0x1c3 is destroyed");
}

TEST_CASE("a failed pair refuses what a healthy one does") {
  Connected pair;
  pair.qp->fail("the test says so");
  CHECK_FALSE(pair.qp->send(pair.region, 65536, 1));
  for (int i = 0; i < 7; ++i) REQUIRE(pair.qp->send(pair.region, 0, 1));
  CHECK_FALSE(pair.qp->send(pair.region, 0, 1));
  CHECK(pair.qp->room(Side::Send) == 0);
  CHECK(take(pair, Side::Send) == "flushed");
  CHECK(pair.qp->room(Side::Send) == 1);
}

TEST_CASE("a failed pair stays failed, with its first strong reason") {
  Connected pair;
  pair.qp->fail("first");
  pair.qp->fail("second");
  CHECK(pair.qp->failure() == "first");
  pair.qp->connect(0, 1024, false);
  post(pair, 1, 0);
  CHECK(take(pair, Side::Send) == "flushed");
}

TEST_CASE("a retired pair touches its rings no more") {
  Connected pair;
  post(pair, 2, 2);
  pair.qp->retire("destroyed");
  pair.qp->drain();
  std::memset(pair.cq[0].base, 0xff, 16 * 32);
  std::memset(pair.cq[1].base, 0xff, 16 * 32);
  Completion completion;
  CHECK(pair.poll(Side::Send, completion) == Polled::None);
  CHECK(pair.poll(Side::Receive, completion) == Polled::None);
  CHECK(pair.qp->ready(Side::Send, false) == userdma::driver::Qp::Look::Retired);
  pair.domain->fail("later");
  CHECK(pair.poll(Side::Send, completion) != Polled::Ok);
}

TEST_CASE("an idle hook runs at every poll that found nothing, and then the poll looks again") {
  struct Soft {
    Pair* pair = nullptr;
    int runs = 0;
  } soft;
  auto function = std::make_shared<PlainFunction>();
  function->set_idle({.run =
                          [](void* self, bool brief) {
                            auto& soft = *static_cast<Soft*>(self);
                            if (++soft.runs == 3) soft.pair->cq[0].sent(1);
                            return brief;
                          },
                      .self = &soft});
  Pair pair(8, 16, false, 1, function);
  soft.pair = &pair;
  pair.qp->connect(0, 1024, false);
  post(pair, 1, 0);
  Completion completion;
  CHECK(pair.qp->poll(Side::Send, completion) == Polled::None);
  CHECK(pair.qp->poll(Side::Send, completion) == Polled::None);
  CHECK_FALSE(pair.qp->left());
  CHECK(pair.qp->poll(Side::Send, completion) == Polled::Ok);
  CHECK(soft.runs == 3);
  pair.qp->set_brief();
  CHECK(pair.qp->poll(Side::Send, completion) == Polled::None);
  CHECK(pair.qp->left());  // as the hook said
}

}  // namespace
