// Clients that send anything: every message is answered or ends the connection, the next client is served, and nothing
// is left behind. Seeded, so that a run that fails can be had again; under AddressSanitizer it also says more.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <variant>

#include "soft/vfio_user/json.h"
#include "vfio_user_support.h"

namespace {

using namespace vfio_user_support;  // NOLINT

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t below(uint64_t n) { return engine_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return list.begin()[below(list.size())];
  }
  // Numbers that are good, that are at an edge, and any.
  uint64_t number() {
    switch (below(6)) {
      case 0:
        return of<uint64_t>({0, 1, 2, 3, 4, 7, 8, 16, 20, 24, 31, 32, 33, 64, 73, 74, 75, 4095, 4096, 4097});
      case 1:
        return below(64) << 12;
      case 2:
        return of<uint64_t>(
            {0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 1ull << 52, ~0ull, ~0ull << 12, 1ull << 63});
      case 3:
        return ~below(8192);
      case 4:
        return below(1 << 20);
      default:
        return engine_();
    }
  }
  Buffer some(size_t n) {
    Buffer out(n);
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(engine_());
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

std::string json(Random& r) {
  if (r.one_in(3)) {
    static constexpr std::string_view signs = "{}[]\":,0123456789.-+eEtruefalsn\\u \n\0x";
    std::string out;
    for (size_t n = r.below(60); n; n--) out += signs[r.below(signs.size())];
    return out;
  }
  std::string out = "{\"capabilities\":{";
  for (const char* name :
       {"max_msg_fds", "max_data_xfer_size", "pgsizes", "max_dma_maps", "write_multiple", "migration"}) {
    if (r.one_in(2)) continue;
    if (out.back() != '{') out += ',';
    out += "\"" + std::string(name) +
           "\":" + r.of<std::string>({"1", "4096", "1048576", "16", "true", "{}", "-1", "1e9", "\"x\"", "[]"});
  }
  out += "}}";
  if (r.one_in(4)) out.resize(r.below(out.size() + 1));
  return out;
}

// A payload for a command: a good one at heart, with fields that may be anything, sometimes cut or longer.
Buffer payload(Random& r, uint16_t command) {
  const auto n32 = [&] { return static_cast<uint32_t>(r.number()); };
  const auto page = [&] { return r.one_in(4) ? r.number() : r.below(32) << 12; };
  Buffer out;
  switch (command) {
    case command::kVersion:
      out = text(json(r));
      break;
    case command::kDmaMap:
      out = bytes(DmaMap{r.one_in(8) ? n32() : 32, r.one_in(8) ? n32() : static_cast<uint32_t>(r.below(4)),
                         r.one_in(2) ? 0 : page(), page(), r.one_in(8) ? r.number() : (1 + r.below(8)) << 12});
      break;
    case command::kDmaUnmap:
      out = r.one_in(4) ? bytes(DmaUnmap{24, 2, 0, 0})
                        : bytes(DmaUnmap{r.one_in(8) ? n32() : 24, r.one_in(8) ? n32() : 0, page(),
                                         r.one_in(8) ? r.number() : (1 + r.below(64)) << 12});
      break;
    case command::kGetInfo:
    case command::kGetIrqInfo:
      out = bytes(r.one_in(8) ? n32() : 16, uint32_t{0}, static_cast<uint32_t>(r.below(7)), uint32_t{0});
      break;
    case command::kGetRegionInfo:
      out = bytes(vfio_region_info{r.one_in(8) ? n32() : 32, 0, static_cast<uint32_t>(r.below(11)), 0, 0, 0});
      break;
    case command::kGetRegionIoFds:
      out = bytes(RegionIoFds{r.one_in(8) ? n32() : 16, 0, static_cast<uint32_t>(r.below(11)), 0});
      break;
    case command::kSetIrqs: {
      const uint32_t data = r.of<uint32_t>({1, 2, 4}), action = r.of<uint32_t>({8, 16, 32});
      const auto count = r.one_in(6) ? n32() : static_cast<uint32_t>(r.below(6));
      out = bytes(r.one_in(8) ? n32() : 20, r.one_in(8) ? n32() : data | action,
                  r.one_in(4) ? n32() : static_cast<uint32_t>(r.of<uint32_t>({0, 2, 2, 2, 3, 4})),
                  r.one_in(4) ? n32() : static_cast<uint32_t>(r.below(76)), count);
      if (data == 2) {
        const Buffer bools = r.some(r.one_in(4) ? r.below(80) : std::min<uint32_t>(count, 100));
        out.insert(out.end(), bools.begin(), bools.end());
      }
      break;
    }
    case command::kRegionRead:
    case command::kRegionWrite: {
      const auto count = static_cast<uint32_t>(r.one_in(8) ? r.number() : r.below(64));
      out = bytes(RegionAccess{r.one_in(4) ? r.number() : r.below(4096),
                               r.one_in(6) ? n32() : r.of<uint32_t>({0, 2, 4, 7, 7}), count});
      if (command == command::kRegionWrite) {
        const Buffer data = r.some(std::min<uint32_t>(count, 100));
        out.insert(out.end(), data.begin(), data.end());
      }
      break;
    }
    case command::kRegionWriteMulti: {
      const uint64_t count = r.below(8);
      out = bytes(r.one_in(8) ? r.number() : count);
      for (uint64_t i = 0; i < count; i++) {
        const Buffer one = bytes(MultiWrite{r.below(4096),
                                            r.of<uint32_t>({0, 2, 4, 7, r.one_in(8) ? 9u : 0u}),
                                            static_cast<uint32_t>(r.one_in(16) ? r.number() : r.below(9)),
                                            {}});
        out.insert(out.end(), one.begin(), one.end());
      }
      break;
    }
    case command::kReset:
      break;
    default:
      out = r.some(r.below(64));
  }
  if (r.one_in(10)) out.resize(r.below(out.size() + 1));
  if (r.one_in(10)) {
    const Buffer more = r.some(r.below(40));
    out.insert(out.end(), more.begin(), more.end());
  }
  if (r.one_in(10) && !out.empty()) out[r.below(out.size())] ^= static_cast<uint8_t>(1 << r.below(8));
  return out;
}

TEST_CASE("fuzz: what a message says") {
  for (uint64_t seed = 0; seed < 200'000; seed++) {
    Random r(seed);
    const auto command = static_cast<uint16_t>(r.below(21));
    // Exactly as long as it is: a look past the end is found.
    const Buffer made = payload(r, command);
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[made.size()]);
    std::copy(made.begin(), made.end(), exact.get());
    const Request request = parse(command, {exact.get(), made.size()}, r.one_in(3) ? r.below(20) : 0);
    // What is let through is within what it came in.
    if (const auto* write = std::get_if<Write>(&request)) CHECK(write->data.size() == write->access.count);
    if (const auto* set = std::get_if<SetIrqs>(&request); set && set->data == SetIrqs::Data::Bool)
      CHECK(set->bools.size() == set->count);
    if (const auto* multi = std::get_if<WriteMulti>(&request)) CHECK(multi->writes.size() == multi->count * 24);
    if (const auto* map = std::get_if<Map>(&request)) CHECK((map->address | map->size) % 4096 == 0);
    if (const auto* version = std::get_if<Negotiate>(&request)) {
      Json reply;
      CHECK(Json::parse(version->reply, reply));
    }
  }
}

// A client that reads as much as it writes, so that neither side waits for the other, and whose answers to the
// server's own requests may be good.
class Wild {
 public:
  Wild(SoftFunction& function, Random& random)
      : random_(random), served_(function, !random.one_in(8), std::chrono::milliseconds(5)) {}

  // One more message. False: the connection is over.
  bool step() {
    Random& r = random_;
    const auto command = static_cast<uint16_t>(r.one_in(30) ? r.number() : r.below(20));
    const Buffer body = payload(r, command);
    Header header;
    header.id = static_cast<uint16_t>(r.number());
    header.command = command;
    header.flags = r.one_in(8) ? flag::kNoReply : r.one_in(60) ? static_cast<uint32_t>(r.number()) : 0;
    header.size = static_cast<uint32_t>(sizeof header + body.size());
    if (r.one_in(200)) header.size = static_cast<uint32_t>(r.number());
    drain();
    served_.put(header, body, descriptors(command));
    return !over_;
  }

  void drain() {
    for (;;) {
      uint8_t part[65536];
      const ssize_t n = ::recv(served_.socket.get(), part, sizeof part, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) over_ = true;
      if (n <= 0) break;
      arrived_.insert(arrived_.end(), part, part + n);
    }
    while (arrived_.size() >= sizeof(Header)) {
      Header header;
      std::memcpy(&header, arrived_.data(), sizeof header);
      // The server's side of the protocol holds, whatever came.
      REQUIRE(header.size >= sizeof header);
      REQUIRE(framing(header) == Framing::Whole);
      if (arrived_.size() < header.size) break;
      if (header.flags & flag::kReply) {
        if (header.flags & flag::kError) {
          REQUIRE(header.size == sizeof header);
          REQUIRE(header.error != 0);
        }
      } else {
        REQUIRE((header.command == command::kDmaRead || header.command == command::kDmaWrite));
        answer(header);
      }
      arrived_.erase(arrived_.begin(), arrived_.begin() + header.size);
    }
  }

 private:
  void answer(const Header& request) {
    Header header = request;
    DmaAccess access;
    std::memcpy(&access, arrived_.data() + sizeof request, sizeof access);
    Buffer body = bytes(access);
    if (request.command == command::kDmaRead) {
      const Buffer data = random_.some(access.count);
      body.insert(body.end(), data.begin(), data.end());
    }
    header.flags = flag::kReply;
    switch (random_.below(6)) {
      case 0:
        header.flags |= flag::kError;
        header.error = static_cast<uint32_t>(random_.number());
        body.clear();
        break;
      case 1:
        body.resize(random_.below(body.size() + 1));
        break;
      case 2:
        header.id++;
        break;
      default:
        break;
    }
    header.size = static_cast<uint32_t>(sizeof header + body.size());
    served_.put(header, body);
  }

  std::vector<int> descriptors(uint16_t command) {
    std::vector<int> out;
    const bool wanted = command == command::kDmaMap || command == command::kSetIrqs;
    if (!random_.one_in(wanted ? 2 : 20)) return out;
    const size_t n = command == command::kDmaMap && !random_.one_in(6) ? 1 : random_.below(6);
    for (size_t i = 0; i < n; i++) {
      const bool memory = command == command::kDmaMap ? !random_.one_in(6) : random_.one_in(6);
      out.push_back(memory ? file_.fd.get() : event_.get());
    }
    return out;
  }

  Random& random_;
  File file_{32 << 12};
  Fd event_ = event();
  Served served_;
  Buffer arrived_;
  bool over_ = false;
};

TEST_CASE("fuzz: sessions") {
  auto function = make_function();
  const size_t before = open_descriptors();
  for (uint64_t seed = 0; seed < 300; seed++) {
    CAPTURE(seed);
    Random r(seed);
    {
      Wild client(*function, r);
      for (int i = 0; i < 200 && client.step(); i++) {
      }
    }
    REQUIRE(function->dma_pages() == 0);
    REQUIRE(open_descriptors() == before);
  }
  // One that behaves finds the function in order.
  Served client(*function);
  CHECK(client.call(command::kRegionRead, bytes(RegionAccess{0, VFIO_PCI_CONFIG_REGION_INDEX, 4})) == 0);
  const uint8_t ids[] = {0xe4, 0x14, 0x60, 0x17};
  CHECK(std::memcmp(client.answer.data() + sizeof(RegionAccess), ids, sizeof ids) == 0);
}

TEST_CASE("fuzz: sessions while the device reaches for memory") {
  auto function = make_function();
  const size_t before = open_descriptors();
  for (uint64_t seed = 1000; seed < 1100; seed++) {
    CAPTURE(seed);
    Random r(seed);
    std::atomic<bool> stop{false};
    std::thread device([&] {
      Random own(seed + 1);
      Buffer memory(3 << 12);
      while (!stop.load()) {
        const uint64_t at = own.below(40 << 12), n = own.below(memory.size());
        if (own.one_in(2)) {
          function->dma_read(at, memory.data(), n);
        } else {
          function->dma_write(at, memory.data(), n);
        }
        function->set_config(4, 2, 6);  // the client turns it off again and again
        std::this_thread::yield();
      }
    });
    {
      Wild client(*function, r);
      for (int i = 0; i < 200 && client.step(); i++) {
      }
    }
    stop = true;
    device.join();
    REQUIRE(function->dma_pages() == 0);
    REQUIRE(open_descriptors() == before);
  }
}

}  // namespace
