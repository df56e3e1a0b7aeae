// The CREQ ring: answers for the command channel, events for queue pairs. Entries are by hand from roce_hsi.h.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "driver/bnxt_reasons.h"
#include "driver_pair.h"

namespace {

using namespace userdma::test;
using userdma::driver::Completion;
using userdma::driver::Error;
using userdma::driver::Polled;
using userdma::driver::Side;

uint64_t nq_arm(uint32_t index, unsigned epoch) {
  return (uint64_t{0xb} << 28 | 1u << 26 | Pair::kCreq) << 32 | epoch << 24 | index;
}

TEST_CASE("answers come in order, and the doorbell publishes what was taken") {
  Pair pair;
  CHECK_FALSE(pair.events->answer());
  pair.events->arm();
  CHECK(pair.last_doorbell() == nq_arm(0, 0));
  pair.device_creq.answer(1, 0x1);
  pair.device_creq.answer(2, 0x3);
  auto first = pair.events->answer();
  REQUIRE(first);
  CHECK(get(first->data() + 2, 2) == 1);
  CHECK((*first)[9] == 0x1);
  CHECK(pair.last_doorbell() == nq_arm(2, 0));
  auto second = pair.events->answer();
  REQUIRE(second);
  CHECK(get(second->data() + 2, 2) == 2);
  CHECK_FALSE(pair.events->answer());
}

TEST_CASE("the ring wraps") {
  Pair pair;
  for (unsigned i = 1; i <= 100; ++i) {
    pair.device_creq.answer(i, 0x2);
    auto answer = pair.events->answer();
    REQUIRE(answer);
    CHECK(get(answer->data() + 2, 2) == i);
    CHECK_FALSE(pair.events->answer());
    CHECK(pair.last_doorbell() == nq_arm(i % 16, i / 16 & 1));
  }
  CHECK(pair.events->consumer() == 100);
}

TEST_CASE("an event fails its pair though no entry failed, and a poll that finds it keeps answers for the channel") {
  Pair pair;
  pair.qp->connect(0, 1024, false);
  REQUIRE(pair.qp->send(pair.region, 0, 5));
  REQUIRE(pair.qp->send(pair.region, 0, 6));
  pair.cq[0].sent(1);
  pair.device_creq.answer(9, 0x4);
  pair.device_creq.qp_error(0x1c3, 0x1b, 0);
  pair.device_creq.answer(10, 0x4);
  Completion completion;
  REQUIRE(pair.poll(Side::Send, completion) == Polled::Ok);
  REQUIRE(pair.poll(Side::Send, completion) == Polled::Failed);
  CHECK(completion.error == Error::Flushed);
  CHECK(pair.qp->message(Side::Send, completion) ==
        "queue pair 0x1c3, send entry 1: flushed, as the queue pair had failed: the NIC reported its failure, of its "
        "own requests: an acknowledgement of a packet that was not sent (requester reason 0x1b)");
  CHECK(get(pair.events->answer()->data() + 2, 2) == 9);
  CHECK(get(pair.events->answer()->data() + 2, 2) == 10);
  CHECK_FALSE(pair.events->answer());
}

TEST_CASE("an event beside the failed entry's completion: the entry has its own error") {
  Pair pair;
  pair.qp->connect(0, 1024, false);
  REQUIRE(pair.qp->send(pair.region, 0, 5));
  REQUIRE(pair.qp->receive(pair.region, 0, 5));
  pair.cq[0].sent(1, 0x7);
  pair.device_creq.qp_error(0x1c3, 0x4, 0);
  CHECK_FALSE(pair.events->answer());  // the command channel came across it first
  Completion completion;
  REQUIRE(pair.qp->poll(Side::Receive, completion) == Polled::Failed);
  CHECK(completion.error == Error::Flushed);
  REQUIRE(pair.qp->poll(Side::Send, completion) == Polled::Failed);
  CHECK(completion.error == Error::RemoteAccess);
}

TEST_CASE("an event goes to its own pair only; a completion queue's failure to its pair") {
  Pair pair;
  Pair second(8, 16, false, 0x1c4, pair.function, pair.domain);
  pair.qp->connect(0, 1024, false);
  pair.device_creq.qp_error(0x1c4, 1, 1);  // of the other ring's pair: none of this ring's
  CHECK_FALSE(pair.events->answer());
  CHECK(pair.qp->failure().empty());
  CHECK(pair.events->take_events().size() == 1);
  pair.device_creq.cq_error(Pair::kReceiveCq, 0x5);
  CHECK_FALSE(pair.events->answer());
  CHECK(pair.qp->failure() == "the NIC reported the failure of completion queue 0xc: it is full (its reason 0x5)");
}

TEST_CASE("the event explains what a flush or a terminal completion does not, whichever is found first") {
  for (bool terminal : {false, true}) {
    for (bool before : {false, true}) {
      CAPTURE(terminal);
      CAPTURE(before);
      Pair pair;
      pair.qp->connect(0, 1024, false);
      REQUIRE(pair.qp->receive(pair.region, 0, 5));
      REQUIRE(pair.qp->receive(pair.region, 0, 5));
      auto flush = [&] { terminal ? pair.cq[1].terminal(0xffff, 0) : pair.cq[1].received(0, 0, 0x7); };
      if (!before) flush();
      Completion completion;
      // Found in the first look at the completions, or only when they are taken.
      pair.device_creq.qp_error(0x1c3, 0, 0x8);
      if (before) {
        CHECK_FALSE(pair.events->answer());
        flush();
      }
      REQUIRE(pair.qp->poll(Side::Receive, completion) == Polled::Failed);
      CHECK(completion.error == Error::Flushed);
      CHECK(pair.qp->message(Side::Receive, completion) ==
            "queue pair 0x1c3, receive entry 0: flushed, as the queue pair had failed: the NIC reported its failure, "
            "of its peer's requests: memory outside a region, or without the rights for it (remote=... of the region) "
            "(responder reason 0x8)");
    }
  }
}

TEST_CASE("an event that comes after the flush explains what is taken from then on") {
  Pair pair;
  pair.qp->connect(0, 1024, false);
  for (int i = 0; i < 2; ++i) REQUIRE(pair.qp->receive(pair.region, 0, 5));
  pair.cq[1].terminal(0xffff, 0);
  Completion completion;
  REQUIRE(pair.qp->poll(Side::Receive, completion) == Polled::Failed);
  CHECK(pair.qp->failure() == "the NIC ended it with a terminal completion");
  pair.device_creq.qp_error(0x1c3, 0, 0x3);
  REQUIRE(pair.qp->poll(Side::Receive, completion) == Polled::Failed);
  CHECK(pair.qp->failure() ==
        "the NIC reported its failure, of its peer's requests: a message longer than its receive (responder reason "
        "0x3)");
  // Which nothing weaker replaces, nor another of its kind.
  pair.device_creq.qp_error(0x1c3, 0x2, 0);
  CHECK_FALSE(pair.events->answer());
  CHECK(pair.qp->failure().ends_with("(responder reason 0x3)"));
}

TEST_CASE("every reason of the NIC has words, and an unknown one its number") {
  using userdma::driver::describe_cq_error;
  using userdma::driver::describe_qp_error;
  std::set<std::string> texts;
  // roce_hsi.h: REQ_ERR_STATE_REASON 1 to 0x1c, RES_ERR_STATE_REASON 1 to 0x1d without 0x1a, CQ_ERR_REASON 1 to 6.
  for (unsigned reason = 1; reason <= 0x1c; ++reason) {
    const std::string text = describe_qp_error(static_cast<uint8_t>(reason), 0);
    CHECK(text.find("of its own requests: requester") == std::string::npos);
    CHECK(texts.insert(text).second);
  }
  for (unsigned reason = 1; reason <= 0x1d; ++reason) {
    const std::string text = describe_qp_error(0, static_cast<uint8_t>(reason));
    CHECK((text.find("of its peer's requests: responder") == std::string::npos) == (reason != 0x1a));
    CHECK(texts.insert(text).second);
  }
  CHECK(describe_qp_error(0x1d, 0) == "the NIC reported its failure, of its own requests: requester reason 0x1d");
  CHECK(describe_qp_error(0, 0) == "the NIC reported its failure, without a reason");
  CHECK(describe_qp_error(2, 3) ==
        "the NIC reported its failure, of its own requests: the peer acknowledged nothing within the retries "
        "(requester reason 0x2), of its peer's requests: a message longer than its receive (responder reason 0x3)");
  CHECK(describe_cq_error(7, 3) ==
        "the NIC reported the failure of completion queue 0x7: it could not be loaded (its "
        "reason 0x3)");
  CHECK(describe_cq_error(7, 9) == "the NIC reported the failure of completion queue 0x7: its reason 0x9");
}

TEST_CASE("events of no pair are kept, of a destroyed one too, and unknown entries do no harm") {
  Pair pair;
  uint8_t function_event[16] = {0x3a};
  function_event[9] = 0x81;
  pair.device_creq.write(function_event);
  uint8_t unknown[16] = {0x11};
  pair.device_creq.write(unknown);
  pair.qp->retire("destroyed");
  pair.device_creq.qp_error(0x1c3, 1, 0);
  CHECK_FALSE(pair.events->answer());
  auto events = pair.events->take_events();
  REQUIRE(events.size() == 3);
  CHECK(events[0][9] == 0x81);
  CHECK(pair.qp->failure().empty());
}

TEST_CASE("a closed ring is looked at no more") {
  Pair pair;
  pair.events->retire("closed");
  pair.events->drain();
  pair.device_creq.answer(1, 1);
  CHECK_FALSE(pair.events->pending());
  CHECK_FALSE(pair.events->peek());
  CHECK_FALSE(pair.events->answer());
}

}  // namespace
