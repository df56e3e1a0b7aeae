// The vfio-user server below its socket's file: what a message says, and what a session makes of it.
//
// Numbers are those of QEMU's docs/interop/vfio-user.rst and of linux/vfio.h.
#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <variant>

#include "soft/vfio_user/json.h"
#include "vfio_user_support.h"

namespace {

using namespace vfio_user_support;  // NOLINT

// The error that a message is refused with; 0: it is not.
int error_of(uint16_t command, const Buffer& payload, size_t fds = 0) {
  const Request request = parse(command, payload, fds);
  const auto* refused = std::get_if<Refused>(&request);
  return refused ? refused->error : 0;
}

template <class T>
T parsed(uint16_t command, const Buffer& payload, size_t fds = 0) {
  const Request request = parse(command, payload, fds);
  REQUIRE(std::holds_alternative<T>(request));
  return std::get<T>(request);
}

Buffer irqs(uint32_t flags, uint32_t start, uint32_t count, uint32_t argsz = 20) {
  return bytes(argsz, flags, uint32_t{2}, start, count);
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

TEST_CASE("JSON that is some") {
  Json json;
  REQUIRE(
      Json::parse(R"( {"a": {"b" : 12.5e1}, "c":[1,[],{}, null ] , "d":true,"\u0065":false, "f":"\"\\\/\n"} )", json));
  CHECK(json.is_object());
  CHECK(json.member("a")->member("b")->number() == 125);
  CHECK(json.member("d")->boolean());
  CHECK(!json.member("e")->boolean());
  CHECK(json.member("g") == nullptr);
  CHECK(json.member("d")->member("x") == nullptr);
  for (const char* text : {"0", "-0", "-1.5E-3", "\"\"", "[]", "{}", "null", "[[[[1]]]]"})
    CHECK(Json::parse(text, json));
}

TEST_CASE("JSON that is none") {
  Json json;
  for (const char* text :
       {"",      " ",  "{",      "}",       "{}}",       "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "[1,]",
        "[1 2]", "\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\n\"",  "tru",      "truee",      "01",    "+1",
        ".5",    "1.", "1e",     "-",       "inf",       "nan",     "0x1",      "1 1",        "'a'"}) {
    CAPTURE(text);
    CHECK_FALSE(Json::parse(text, json));
  }
  CHECK_FALSE(Json::parse(std::string(100000, '['), json));
  CHECK_FALSE(Json::parse(std::string("\"a\0", 3), json));
}

// ---- Messages -------------------------------------------------------------------------------------------------------

TEST_CASE("headers") {
  CHECK(framing({1, 1, 16, 0, 0}) == Framing::Whole);
  CHECK(framing({1, 1, 16, 1, 0}) == Framing::Whole);
  CHECK(framing({1, 999, 16, 0x30, 7}) == Framing::Whole);
  CHECK(framing({1, 1, 15, 0, 0}) == Framing::TooShort);
  CHECK(framing({1, 1, 0, 0, 0}) == Framing::TooShort);
  CHECK(framing({1, 1, 0xffffffff, 0, 0}) == Framing::TooLong);
  CHECK(framing({1, 1, (1 << 20) + 32, 0, 0}) == Framing::Whole);
  CHECK(framing({1, 1, (1 << 20) + 33, 0, 0}) == Framing::TooLong);
  for (uint32_t type = 2; type < 16; type++) CHECK(framing({1, 1, 16, type, 0}) == Framing::UnknownType);
}

TEST_CASE("version: what QEMU proposes") {
  const auto version = parsed<Negotiate>(
      command::kVersion,
      text(R"({"capabilities": {"migration": {"pgsize": 4096, "max_bitmap_size": 268435456}, "max_msg_fds": 16, )"
           R"("max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}})"));
  CHECK(version.minor == 0);
  CHECK(version.max_fds == 16);
  CHECK(version.max_transfer == 1 << 20);
  CHECK(version.reply == R"({"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"pgsizes":4096,)"
                         R"("max_dma_maps":65535,"write_multiple":true}})");
}

TEST_CASE("version: nothing is announced that was not proposed") {
  CHECK(parsed<Negotiate>(command::kVersion, text(R"({"capabilities":{"max_msg_fds":1}})")).reply ==
        R"({"capabilities":{"max_msg_fds":16}})");
  CHECK(parsed<Negotiate>(command::kVersion, text(R"({"capabilities":{"write_multiple":false}})")).reply ==
        R"({"capabilities":{}})");
  const auto silent = parsed<Negotiate>(command::kVersion, bytes(Version{0, 7}));
  CHECK(silent.minor == 1);
  CHECK(silent.max_fds == 1);  // what a client takes that does not say
  CHECK(silent.max_transfer == 1 << 20);
  CHECK(parsed<Negotiate>(command::kVersion, text(R"({"capabilities":{"max_data_xfer_size":4096}})")).max_transfer ==
        4096);
  CHECK(parsed<Negotiate>(command::kVersion, text(R"({"capabilities":{"max_data_xfer_size":1e12}})")).max_transfer ==
        1 << 20);
}

TEST_CASE("version: what is refused") {
  CHECK(error_of(command::kVersion, bytes(Version{1, 0})) == EINVAL);
  CHECK(error_of(command::kVersion, {0, 0, 0}) == EINVAL);
  Buffer open = text("{}");
  open.pop_back();
  CHECK(error_of(command::kVersion, open) == EINVAL);
  for (const char* json : {"{", "[]", "1", R"({"capabilities":1})", R"({"capabilities":{"max_msg_fds":"8"}})",
                           R"({"capabilities":{"max_msg_fds":-1}})", R"({"capabilities":{"max_msg_fds":1e9}})",
                           R"({"capabilities":{"max_data_xfer_size":0}})",
                           R"({"capabilities":{"max_data_xfer_size":true}})", R"({"capabilities":{"pgsizes":65536}})",
                           R"({"capabilities":{"pgsizes":1e300}})", R"({"capabilities":{"write_multiple":1}})",
                           R"({"capabilities":{"migration":3}})", R"({"capabilities":{"twin_socket":true}})"}) {
    CAPTURE(json);
    CHECK(error_of(command::kVersion, text(json)) == EINVAL);
  }
}

TEST_CASE("mappings") {
  const auto good = parsed<Map>(command::kDmaMap, bytes(DmaMap{32, 3, 0x3000, 0x10000, 0x2000}), 1);
  CHECK(good.has_memory);
  CHECK(good.address == 0x10000);
  CHECK(good.offset == 0x3000);
  CHECK_FALSE(parsed<Map>(command::kDmaMap, bytes(DmaMap{32, 1, 0, 0, 0x1000})).has_memory);
  CHECK(error_of(command::kDmaMap, bytes(DmaMap{32, 3, 0, ~uint64_t{0xfff}, 0x1000})) == 0);  // the last page
  for (const DmaMap& bad : {DmaMap{31, 3, 0, 0, 0x1000}, DmaMap{32, 0, 0, 0, 0x1000}, DmaMap{32, 4, 0, 0, 0x1000},
                            DmaMap{32, 7, 0, 0, 0x1000}, DmaMap{32, 3, 0, 1, 0x1000}, DmaMap{32, 3, 0, 0, 0x1001},
                            DmaMap{32, 3, 0, 0, 0}, DmaMap{32, 3, 0, ~uint64_t{0xfff}, 0x2000}}) {
    CHECK(error_of(command::kDmaMap, bytes(bad)) == EINVAL);
    CHECK(error_of(command::kDmaMap, bytes(bad), 1) == EINVAL);
  }
  CHECK(error_of(command::kDmaMap, bytes(DmaMap{32, 3, 1, 0, 0x1000}), 1) == EINVAL);
  CHECK(error_of(command::kDmaMap, bytes(DmaMap{32, 3, ~uint64_t{0xfff}, 0, 0x2000}), 1) == EINVAL);
  CHECK(error_of(command::kDmaMap, bytes(DmaMap{32, 3, 0, 0, 0x1000}), 2) == EINVAL);
  Buffer cut = bytes(DmaMap{32, 3, 0, 0, 0x1000});
  cut.pop_back();
  CHECK(error_of(command::kDmaMap, cut) == EINVAL);

  CHECK_FALSE(parsed<Unmap>(command::kDmaUnmap, bytes(DmaUnmap{24, 0, 0x1000, 0x1000})).all);
  CHECK(parsed<Unmap>(command::kDmaUnmap, bytes(DmaUnmap{24, 2, 0, 0})).all);
  CHECK(error_of(command::kDmaUnmap, bytes(DmaUnmap{24, 0, 0, ~uint64_t{0xfff}})) == 0);
  for (const DmaUnmap& bad :
       {DmaUnmap{23, 0, 0, 0x1000}, DmaUnmap{0x100001, 0, 0, 0x1000}, DmaUnmap{24, 1, 0, 0x1000}, DmaUnmap{24, 3, 0, 0},
        DmaUnmap{24, 4, 0, 0x1000}, DmaUnmap{24, 2, 0x1000, 0}, DmaUnmap{24, 2, 0, 0x1000}, DmaUnmap{24, 0, 1, 0x1000},
        DmaUnmap{24, 0, 0, 1}, DmaUnmap{24, 0, 0, 0}, DmaUnmap{24, 0, ~uint64_t{0xfff}, 0x2000}})
    CHECK(error_of(command::kDmaUnmap, bytes(bad)) == EINVAL);
}

TEST_CASE("interrupts") {
  const auto set =
      parsed<SetIrqs>(command::kSetIrqs, irqs(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, 3, 2), 2);
  CHECK(set.data == SetIrqs::Data::Eventfd);
  CHECK(set.action == SetIrqs::Action::Trigger);
  CHECK(set.has_eventfds);
  CHECK(set.start == 3);
  CHECK(set.count == 2);
  CHECK_FALSE(parsed<SetIrqs>(command::kSetIrqs, irqs(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, 3, 2))
                  .has_eventfds);
  Buffer bools = irqs(VFIO_IRQ_SET_DATA_BOOL | VFIO_IRQ_SET_ACTION_MASK, 0, 3);
  CHECK(error_of(command::kSetIrqs, bools) == EINVAL);
  bools.insert(bools.end(), {1, 0, 1});
  CHECK(parsed<SetIrqs>(command::kSetIrqs, bools).action == SetIrqs::Action::Mask);
  bools.push_back(1);
  CHECK(error_of(command::kSetIrqs, bools) == EINVAL);
  const uint32_t none = VFIO_IRQ_SET_DATA_NONE, event = VFIO_IRQ_SET_DATA_EVENTFD,
                 trigger = VFIO_IRQ_SET_ACTION_TRIGGER;
  CHECK(error_of(command::kSetIrqs, irqs(none | trigger, 0, 0)) == 0);
  for (const Buffer& bad :
       {irqs(none | trigger, 1, 0), irqs(none | VFIO_IRQ_SET_ACTION_MASK, 0, 0), irqs(event | trigger, 0, 0),
        irqs(none, 0, 1), irqs(trigger, 0, 1), irqs(none | event | trigger, 0, 1),
        irqs(none | trigger | VFIO_IRQ_SET_ACTION_UNMASK, 0, 1), irqs(none | trigger | 0x40, 0, 1),
        irqs(none | trigger, 2, 0xffffffff), irqs(none | trigger, 0, 1, 19)})
    CHECK(error_of(command::kSetIrqs, bad) == EINVAL);
  CHECK(error_of(command::kSetIrqs, irqs(none | trigger, 0, 1), 1) == EINVAL);
  CHECK(error_of(command::kSetIrqs, irqs(event | trigger, 0, 2), 1) == EINVAL);
  CHECK(error_of(command::kSetIrqs, irqs(event | trigger, 0, 2), 3) == EINVAL);
}

TEST_CASE("accesses") {
  CHECK(parsed<Read>(command::kRegionRead, bytes(RegionAccess{8, 7, 4})).access.count == 4);
  CHECK(error_of(command::kRegionRead, bytes(RegionAccess{0, 0, (1 << 20) + 1})) == EINVAL);
  CHECK(parsed<Write>(command::kRegionWrite, bytes(RegionAccess{8, 7, 4}, 1)).data.size() == 4);
  CHECK(error_of(command::kRegionWrite, bytes(RegionAccess{8, 7, 3}, 1)) == EINVAL);
  CHECK(error_of(command::kRegionWrite, bytes(RegionAccess{8, 7, 5}, 1)) == EINVAL);
  CHECK(parsed<WriteMulti>(command::kRegionWriteMulti, bytes(uint64_t{1}, MultiWrite{0, 0, 8, {}})).count == 1);
  CHECK(parsed<WriteMulti>(command::kRegionWriteMulti, bytes(uint64_t{0})).count == 0);
  CHECK(error_of(command::kRegionWriteMulti, bytes(uint64_t{1}, MultiWrite{0, 0, 9, {}})) == EINVAL);
  CHECK(error_of(command::kRegionWriteMulti, bytes(uint64_t{2}, MultiWrite{0, 0, 8, {}})) == EINVAL);
  CHECK(error_of(command::kRegionWriteMulti, bytes(uint64_t{1} << 61, MultiWrite{0, 0, 8, {}})) == EINVAL);
  CHECK(error_of(command::kRegionWriteMulti, {1, 2, 3}) == EINVAL);
  CHECK(error_of(command::kReset, {}) == 0);
  CHECK(error_of(command::kReset, {0}) == EINVAL);
}

TEST_CASE("commands that are not a client's") {
  for (const uint16_t command : {command::kDmaRead, command::kDmaWrite, uint16_t{0}, uint16_t{19}, uint16_t{0xffff}})
    CHECK(error_of(command, Buffer(64)) == EINVAL);
  for (const uint16_t command :
       {command::kDirtyPages, command::kFeature, command::kMigrationRead, command::kMigrationWrite})
    CHECK(error_of(command, Buffer(64)) == ENOTSUP);
  for (uint16_t command = 0; command < 20; command++) {
    if (command != command::kDmaMap && command != command::kSetIrqs) CHECK(error_of(command, Buffer(64), 1) == EINVAL);
  }
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST_CASE("the device reaches what the client mapped, and as it allows") {
  auto function = make_function();
  File file(64 << 12);
  Served client(*function);
  REQUIRE(client.enable() == 0);
  for (size_t i = 0; i < file.size; i++) file.at[i] = static_cast<uint8_t>(i * 7 + (i >> 12));
  REQUIRE(client.map(0x100000, 8 << 12, &file, 4 << 12) == 0);
  REQUIRE(client.map(0x200000, 1 << 12, &file, 0, dma_flag::kRead) == 0);
  REQUIRE(client.map(0x300000, 1 << 12, &file, 1 << 12, dma_flag::kWrite) == 0);
  Buffer got(8 << 12);
  CHECK(function->dma_read(0x100000, got.data(), got.size()));
  CHECK(std::memcmp(got.data(), file.at + (4 << 12), got.size()) == 0);
  const uint32_t word = 0x12345678;
  CHECK(function->dma_write(0x100ffe, &word, 4));
  CHECK(std::memcmp(file.at + 0x4ffe, &word, 4) == 0);
  // A page that may be read only, and one that may be written only.
  CHECK(function->dma_read(0x200000, got.data(), 4096));
  CHECK_FALSE(function->dma_write(0x200010, &word, 4));
  CHECK(function->dma_write(0x300000, &word, 4));
  CHECK(std::memcmp(file.at + 0x1000, &word, 4) == 0);
  CHECK_FALSE(function->dma_read(0x300000, got.data(), 4));
  CHECK_FALSE(function->dma_read(0x108000, got.data(), 1));
  REQUIRE(client.unmap(0x100000, 8 << 12) == 0);
  CHECK_FALSE(function->dma_read(0x100000, got.data(), 1));
  CHECK(function->dma_read(0x200000, got.data(), 1));
  client.leave();
  CHECK(function->dma_pages() == 0);
}

TEST_CASE("pages that come and go cost no mapping of the process") {
  auto function = make_function();
  File file(16 << 12);
  Served client(*function);
  const auto mappings = [] {
    size_t n = 0;
    std::FILE* maps = std::fopen("/proc/self/maps", "r");
    char line[512];
    while (std::fgets(line, sizeof line, maps)) n += std::strstr(line, "of-a-client") != nullptr;
    std::fclose(maps);
    return n;
  };
  const size_t before = mappings();
  for (uint64_t i = 0; i < 16; i++) REQUIRE(client.map(i << 20, 1 << 12, &file, i << 12) == 0);
  CHECK(mappings() <= before + 1);
  for (uint64_t i = 0; i < 16; i++) REQUIRE(client.unmap(i << 20, 1 << 12) == 0);
  client.leave();
  CHECK(mappings() == before);
}

TEST_CASE("a file that the client cuts short while the device has it") {
  auto function = make_function();
  File file(4 << 12);
  std::memset(file.at, 7, file.size);
  Served client(*function);
  REQUIRE(client.enable() == 0);
  REQUIRE(client.map(0, 4 << 12, &file) == 0);
  REQUIRE(::ftruncate(file.fd.get(), 1 << 12) == 0);
  Buffer got(2 << 12);
  function->dma_read(0, got.data(), got.size());  // zeros in place of what is gone
  CHECK(got[4095] == 7);
  CHECK(got[4096] == 0);
  function->dma_write(3 << 12, got.data(), 4096);
  // The client is let go, with its next message at the latest.
  client.call(command::kGetInfo, bytes(16, 0, 0, 0));
  CHECK(client.call(command::kGetInfo, bytes(16, 0, 0, 0)) == -1);
  client.leave();
  // The next one has files of its own.
  File whole(4 << 12);
  Served next(*function);
  REQUIRE(next.map(0, 4 << 12, &whole) == 0);
  CHECK(next.call(command::kGetInfo, bytes(16, 0, 0, 0)) == 0);
  CHECK(next.call(command::kGetInfo, bytes(16, 0, 0, 0)) == 0);
}

TEST_CASE("an eventfd that is full holds nobody up") {
  for (const uint32_t index : {VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX}) {
    CAPTURE(index);
    auto function = make_function();
    Served client(*function);
    REQUIRE(client.enable() == 0);
    const Fd blocking(::eventfd(0, EFD_CLOEXEC));
    REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, index, 0, 1, {blocking.get()}) == 0);
    const uint64_t full = ~uint64_t{1};
    REQUIRE(::write(blocking.get(), &full, sizeof full) == sizeof full);
    REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, index, 0, 1) == 0);
    CHECK(signalled(blocking) == full);
  }
}

TEST_CASE("a client has some of the process's files, and leaves the rest to those of other functions") {
  auto one = make_function(), other = make_function();
  Served client(*one);
  int error = 0;
  uint64_t mapped = 0;
  for (; !error && mapped < 1000; mapped++) {
    const File file(4096);
    error = client.map(mapped << 12, 4096, &file);
  }
  CHECK(error == ENOSPC);
  CHECK(mapped > 32);  // a machine has few
  Served neighbor(*other);
  const File file(4096);
  CHECK(neighbor.map(0, 4096, &file) == 0);
  // What it lets go it may have again.
  CHECK(client.unmap(0, 4096) == 0);
  CHECK(client.map(0, 4096, &file) == 0);
}

TEST_CASE("mappings that take much of the translation table are refused past a limit") {
  auto function = make_function();
  Served client(*function);
  // Each starts and ends off the borders of everything that an entry of the table can stand for: parts of 4 KiB, 4 MiB
  // and 4 GiB.
  int error = 0;
  uint64_t mapped = 0;
  for (; !error && mapped < 20000; mapped++)
    error = client.map((mapped << 34) + (uint64_t{1} << 32) - (1 << 21), (uint64_t{1} << 33) + (1 << 22), nullptr);
  CHECK(error == ENOSPC);
  CHECK(function->dma_nodes() * 8192 <= 129 << 20);
  CHECK(mapped > 1000);
  // Mappings of pages that lie together, as a machine's do, take few of them.
  auto second = make_function();
  Served machine(*second);
  for (uint64_t i = 0; i < 5000; i++) REQUIRE(machine.map(i << 12, 4096, nullptr) == 0);
  CHECK(second->dma_nodes() <= 8);
}

TEST_CASE("descriptors that are sent while the device waits end the connection past a limit") {
  auto function = make_function();
  Served client(*function);
  REQUIRE(client.enable() == 0);
  REQUIRE(client.map(0x10000, 4096, nullptr) == 0);
  const size_t before = open_descriptors();
  bool done = true;
  uint8_t byte;
  const auto begin = std::chrono::steady_clock::now();
  std::thread reader([&] { done = function->dma_read(0x10000, &byte, 1); });  // not answered
  CHECK(client.take()->header.command == command::kDmaRead);
  // The serving thread waits for the NIC, which waits for the client: what comes meanwhile is filed by the reader.
  client.send(command::kDmaMap, bytes(DmaMap{sizeof(DmaMap), 3, 0, 0x20000, 4096}), {}, flag::kNoReply);
  const Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<int> many(64, file.get());
  for (int i = 0; i < 6; i++) client.send(command::kDmaMap, {}, many, flag::kNoReply);
  reader.join();
  CHECK_FALSE(done);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));  // of its minute's patience
  client.leave();
  CHECK(open_descriptors() < before);
}

TEST_CASE("memory that is had by asking") {
  auto function = make_function();
  Served client(*function);
  REQUIRE(client.enable() == 0);
  REQUIRE(client.map(0x10000, 2 << 12, nullptr) == 0);
  Buffer guest(2 << 12);
  for (size_t i = 0; i < guest.size(); i++) guest[i] = static_cast<uint8_t>(i * 5);
  // Answers the next request of the server's.
  const auto answer = [&] {
    const auto request = client.take();
    REQUIRE(request.has_value());
    CHECK((request->header.flags & flag::kTypeMask) == flag::kCommand);
    DmaAccess access;
    REQUIRE(request->payload.size() >= sizeof access);
    std::memcpy(&access, request->payload.data(), sizeof access);
    REQUIRE(access.address >= 0x10000);
    REQUIRE(access.address + access.count <= 0x12000);
    uint8_t* at = guest.data() + (access.address - 0x10000);
    Buffer payload = bytes(access);
    if (request->header.command == command::kDmaRead) {
      payload.insert(payload.end(), at, at + access.count);
    } else {
      REQUIRE(request->header.command == command::kDmaWrite);
      REQUIRE(request->payload.size() == sizeof access + access.count);
      std::memcpy(at, request->payload.data() + sizeof access, access.count);
    }
    Header header = request->header;
    header.flags = flag::kReply;
    header.size = static_cast<uint32_t>(sizeof header + payload.size());
    client.put(header, payload);
  };

  Buffer got(6000);
  bool done = false;
  std::thread reader([&] { done = function->dma_read(0x10800, got.data(), got.size()); });
  answer();
  reader.join();
  CHECK(done);
  CHECK(std::memcmp(got.data(), guest.data() + 0x800, got.size()) == 0);

  const char word[] = "written";
  std::thread writer([&] { done = function->dma_write(0x11000, word, sizeof word); });
  // A command of the client's in between is served.
  CHECK(client.send(command::kGetInfo, bytes(16, 0, 0, 0)));
  std::optional<Message> first;
  bool replied = false, asked = false;
  while (!replied || !asked) {
    pollfd ready{client.socket.get(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, -1) == 1);
    Header header;
    REQUIRE(::recv(client.socket.get(), &header, sizeof header, MSG_PEEK) == sizeof header);
    if (header.flags & flag::kReply) {
      REQUIRE(client.take()->header.command == command::kGetInfo);
      replied = true;
    } else {
      answer();
      asked = true;
    }
  }
  writer.join();
  CHECK(done);
  CHECK(std::memcmp(guest.data() + 0x1000, word, sizeof word) == 0);

  // An error, an answer that is too short, and those that are about less than was asked for, or about other memory: a
  // fault each time.
  const std::vector<Buffer> answers = {{},
                                       bytes(DmaAccess{0x10000, 16}),
                                       bytes(DmaAccess{0x10000, 8}, uint64_t{}, uint64_t{}),
                                       bytes(DmaAccess{0x10010, 16}, uint64_t{}, uint64_t{})};
  for (const Buffer& payload : answers) {
    CAPTURE(payload.size());
    const bool error = payload.empty();
    std::thread again([&] { done = function->dma_read(0x10000, got.data(), 16); });
    const auto request = client.take();
    Header header = request->header;
    header.flags = flag::kReply | (error ? flag::kError : 0);
    header.error = error ? EFAULT : 0;
    header.size = static_cast<uint32_t>(sizeof header + payload.size());
    client.put(header, payload);
    again.join();
    CHECK_FALSE(done);
  }
  // A write may be answered by the header alone, as QEMU does, or with what was written: all of it.
  for (const uint64_t written : {0, 8, 7}) {
    CAPTURE(written);
    std::thread again([&] { done = function->dma_write(0x11000, word, 8); });
    Header header = client.take()->header;
    header.flags = flag::kReply;
    const Buffer payload = written ? bytes(DmaAccess{0x11000, written}) : Buffer();
    header.size = static_cast<uint32_t>(sizeof header + payload.size());
    client.put(header, payload);
    again.join();
    CHECK(done == (written != 7));
  }
}

TEST_CASE("a client that does not answer for its memory") {
  auto function = make_function();
  constexpr std::chrono::milliseconds patience{100};
  Served client(*function, true, patience);
  REQUIRE(client.enable() == 0);
  REQUIRE(client.map(0, 1 << 12, nullptr) == 0);
  uint8_t byte;
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(function->dma_read(0, &byte, 1));
  CHECK(std::chrono::steady_clock::now() - start >= patience);
  CHECK(client.take()->header.command == command::kDmaRead);
  // It was silent: it is not asked again.
  CHECK_FALSE(function->dma_read(0, &byte, 1));
  CHECK(client.send(command::kGetInfo, bytes(16, 0, 0, 0)));
  CHECK(client.take()->header.command == command::kGetInfo);
}

TEST_CASE("a client that leaves while the device waits for its memory") {
  auto function = make_function();
  Served client(*function);
  REQUIRE(client.enable() == 0);
  REQUIRE(client.map(0, 1 << 12, nullptr) == 0);
  bool done = true;
  uint8_t byte;
  std::thread reader([&] { done = function->dma_read(0, &byte, 1); });
  CHECK(client.take()->header.command == command::kDmaRead);
  client.leave();
  reader.join();
  CHECK_FALSE(done);
}

// ---- Interrupts -----------------------------------------------------------------------------------------------------

void raise(SoftFunction& function, unsigned vector) {
  std::lock_guard guard(function.nic().lock());
  function.raise(vector);
}

TEST_CASE("vectors are signalled as the client connects and masks them, whatever the function's own table says") {
  auto function = make_function();
  Served client(*function);
  const uint32_t connect = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  Fd a = event(), b = event();
  REQUIRE(client.irqs(connect, VFIO_PCI_MSIX_IRQ_INDEX, 1, 2, {a.get(), b.get()}) == 0);
  raise(*function, 1);
  CHECK(signalled(a) == 0);  // the function is no bus master
  REQUIRE(client.enable() == 0);
  raise(*function, 1);
  raise(*function, 1);
  CHECK(signalled(a) == 2);
  CHECK(signalled(b) == 0);

  // A masked one stays pending, which the pending bits show, and comes once it is unmasked.
  const auto pending = [&] {
    REQUIRE(client.call(command::kRegionRead, bytes(RegionAccess{74 * 16, 4, 8})) == 0);
    uint64_t word;
    std::memcpy(&word, client.answer.data() + sizeof(RegionAccess), sizeof word);
    return word;
  };
  REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_MASK, VFIO_PCI_MSIX_IRQ_INDEX, 0, 3) == 0);
  raise(*function, 2);
  raise(*function, 2);
  CHECK(signalled(b) == 0);
  CHECK(pending() == 1 << 2);
  REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_UNMASK, VFIO_PCI_MSIX_IRQ_INDEX, 0, 3) == 0);
  CHECK(signalled(b) == 1);
  CHECK(pending() == 0);

  // So does one that is not connected while others are.
  raise(*function, 70);
  Fd c = event();
  REQUIRE(client.irqs(connect, VFIO_PCI_MSIX_IRQ_INDEX, 70, 1, {c.get()}) == 0);
  CHECK(signalled(c) == 1);

  // All of them disconnected: interrupts are off, and none is kept.
  REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_MSIX_IRQ_INDEX, 0, 0) == 0);
  raise(*function, 1);
  REQUIRE(client.irqs(connect, VFIO_PCI_MSIX_IRQ_INDEX, 1, 1, {a.get()}) == 0);
  CHECK(signalled(a) == 0);

  // A reset keeps what the client connected.
  REQUIRE(client.call(command::kReset) == 0);
  REQUIRE(client.enable() == 0);
  raise(*function, 1);
  CHECK(signalled(a) == 1);
  client.leave();
  function->set_config(4, 2, 6);
  raise(*function, 1);
  CHECK(signalled(a) == 0);
}

// ---- The end
// ----------------------------------------------------------------------------------------------------------

TEST_CASE("the function may request AtomicOps while it is served, also after a reset") {
  auto function = make_function();
  uint32_t express = function->config(0x34, 1);
  while (function->config(express, 1) != 0x10) express = function->config(express + 1, 1);
  const unsigned at = express + 0x28;     // PCI_EXP_DEVCTL2
  constexpr uint32_t requester = 0x0040;  // PCI_EXP_DEVCTL2_ATOMIC_REQ
  CHECK(function->config(at, 2) == 0);    // at power-on (PCIe base specification 7.5.3.16)
  {
    Served client(*function);
    const auto control = [&] {
      REQUIRE(client.call(command::kRegionRead, bytes(RegionAccess{at, VFIO_PCI_CONFIG_REGION_INDEX, 2})) == 0);
      uint16_t word;
      std::memcpy(&word, client.answer.data() + sizeof(RegionAccess), sizeof word);
      return word;
    };
    CHECK(control() == requester);
    REQUIRE(client.call(command::kRegionWrite, bytes(RegionAccess{at, VFIO_PCI_CONFIG_REGION_INDEX, 2}, uint16_t{0})) ==
            0);
    CHECK(control() == 0);
    REQUIRE(client.call(command::kReset) == 0);
    CHECK(control() == requester);
  }
  CHECK(function->config(at, 2) == 0);
}

TEST_CASE("nothing of a client is left") {
  auto function = make_function();
  const size_t before = open_descriptors();
  {
    File file(1 << 20);
    Served client(*function);
    REQUIRE(client.map(0, 1 << 20, &file) == 0);
    std::vector<Fd> events;
    std::vector<int> fds;
    for (int i = 0; i < 16; i++) {
      events.push_back(event());
      fds.push_back(events.back().get());
    }
    REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_MSIX_IRQ_INDEX, 0, 16, fds) ==
            0);
    REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_ERR_IRQ_INDEX, 0, 1,
                        {fds[0]}) == 0);
    REQUIRE(client.irqs(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_REQ_IRQ_INDEX, 0, 1,
                        {fds[0]}) == 0);
    // Messages whose descriptors nobody wants.
    CHECK(client.call(command::kGetInfo, bytes(16, 0, 0, 0), fds) == EINVAL);
    CHECK(client.call(command::kDmaMap, bytes(DmaMap{32, 3, 0, 0, 0x1000}), fds) == EINVAL);
    client.send(999, {}, fds, flag::kNoReply);
    client.put({7, command::kDmaMap, 1000, 0, 0}, {}, fds);  // and the client leaves before it is whole
  }
  CHECK(open_descriptors() == before);
  CHECK(function->dma_pages() == 0);
}

// Each part comes in time, the message does not: the descriptors of the part that was too much are closed too.
TEST_CASE("a message that trickles in loses the connection, and its descriptors") {
  auto function = make_function();
  const size_t before = open_descriptors();
  constexpr std::chrono::milliseconds patience{40};
  {
    Served client(*function, true, patience);
    const Fd one = event();
    const std::vector<int> fds(5, one.get());
    const Header header{7, command::kSetIrqs, sizeof(Header) + 64, 0, 0};
    client.put(header, {}, fds);
    const auto until = std::chrono::steady_clock::now() + 2 * Session::stalls * patience;
    while (std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(patience);
      client.put(bytes(uint8_t{0}), fds);
    }
    CHECK(!client.take());
  }
  CHECK(open_descriptors() == before);
}

}  // namespace
