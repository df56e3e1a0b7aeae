// The soft machine's memory.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "host/function.h"
#include "soft/memory.h"

using userdma::soft::Arena;

TEST_CASE("memory is page aligned and zeroed, also the second time") {
  Arena arena;
  uint8_t* at = arena.alloc(5000);
  CHECK(reinterpret_cast<uintptr_t>(at) % Arena::page() == 0);
  CHECK(arena.allocated() == 8192);
  for (int i = 0; i < 8192; ++i) REQUIRE(at[i] == 0);
  std::memset(at, 0xa5, 8192);
  arena.free(at, 5000);
  CHECK(arena.allocated() == 0);
  uint8_t* again = arena.alloc(8192);
  for (int i = 0; i < 8192; ++i) REQUIRE(again[i] == 0);
  arena.free(again, 8192);
}

TEST_CASE("the limit of a machine's memory") {
  Arena arena(3 * 4096);
  uint8_t* a = arena.alloc(4096);
  uint8_t* b = arena.alloc(8192);
  CHECK_THROWS_AS(arena.alloc(1), userdma::host::MemoryError);
  arena.free(a, 4096);
  uint8_t* c = arena.alloc(1);
  CHECK_THROWS_AS(arena.alloc(1), userdma::host::MemoryError);
  arena.free(b, 8192);
  arena.free(c, 1);
  CHECK(arena.allocated() == 0);
}

TEST_CASE("more than the machine has is refused, not granted and killed later") {
  Arena arena;
  CHECK_THROWS_AS(arena.alloc(size_t{1} << 46), userdma::host::MemoryError);
  CHECK_THROWS_AS(arena.alloc(0), std::invalid_argument);
  CHECK(arena.allocated() == 0);
}

TEST_CASE("find names the file and the place of a byte") {
  Arena arena;
  uint8_t* at = arena.alloc(3 * 4096);
  std::strcpy(reinterpret_cast<char*>(at + 4096), "here");
  const auto* segment = arena.find(at + 4096);
  REQUIRE(segment);
  char text[8] = {};
  CHECK(::pread(segment->fd, text, 5, at + 4096 - segment->base + static_cast<off_t>(segment->offset)) == 5);
  CHECK(std::strcmp(text, "here") == 0);
  struct stat status{};
  REQUIRE(::fstat(segment->fd, &status) == 0);
  CHECK(status.st_ino == segment->inode);
  int local = 0;
  CHECK_FALSE(arena.find(&local));
  CHECK_FALSE(arena.find(segment->base + segment->size));
  CHECK_FALSE(arena.find(segment->base - 1));
}

TEST_CASE("memory bigger than a segment gets one of its own, which goes with it") {
  Arena arena;
  uint8_t* small = arena.alloc(4096);
  uint8_t* big = arena.alloc(size_t{300} << 20);
  CHECK(arena.find(small) != arena.find(big));
  big[(size_t{300} << 20) - 1] = 1;
  arena.free(big, size_t{300} << 20);
  CHECK_FALSE(arena.find(big));
  arena.free(small, 4096);
}

TEST_CASE("a wrong free is refused") {
  Arena arena;
  uint8_t* at = arena.alloc(8192);
  int local = 0;
  CHECK_THROWS_AS(arena.free(reinterpret_cast<uint8_t*>(&local), 4096), std::invalid_argument);
  CHECK_THROWS_AS(arena.free(at + 8192, 4096), std::invalid_argument);
  arena.free(at, 8192);
  CHECK_THROWS_AS(arena.free(at, 8192), std::invalid_argument);
}

TEST_CASE("adopted memory is found until it is abandoned") {
  Arena arena;
  int fd = ::memfd_create("test", MFD_CLOEXEC);
  REQUIRE(::ftruncate(fd, 16384) == 0);
  auto* base = static_cast<uint8_t*>(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096));
  REQUIRE(base != MAP_FAILED);
  arena.adopt(fd, 4096, base, 8192);
  ::close(fd);
  const auto* segment = arena.find(base + 8191);
  REQUIRE(segment);
  CHECK(segment->offset == 4096);
  base[5000] = 77;
  uint8_t byte = 0;
  CHECK(::pread(segment->fd, &byte, 1, 4096 + 5000) == 1);
  CHECK(byte == 77);
  CHECK_THROWS_AS(arena.abandon(base + 4096), std::invalid_argument);
  CHECK_THROWS_AS(arena.free(base, 8192), std::invalid_argument);
  arena.abandon(base);
  CHECK_FALSE(arena.find(base));
  ::munmap(base, 8192);
}

TEST_CASE("any order of alloc and free keeps ranges apart") {
  Arena arena;
  std::mt19937 random(3);
  struct Range {
    uint8_t* at;
    size_t bytes;
    uint8_t tag;
  };
  std::vector<Range> live;
  size_t total = 0;
  for (int i = 0; i < 3000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      size_t bytes = (random() % 8 + 1) * 4096 - random() % 4096;
      Range range{arena.alloc(bytes), bytes, static_cast<uint8_t>(random() % 255 + 1)};
      REQUIRE(range.at[0] == 0);
      REQUIRE(range.at[bytes - 1] == 0);
      range.at[0] = range.at[bytes - 1] = range.tag;
      live.push_back(range);
      total += (bytes + 4095) / 4096 * 4096;
    } else {
      size_t which = random() % live.size();
      Range range = live[which];
      REQUIRE(range.at[0] == range.tag);
      REQUIRE(range.at[range.bytes - 1] == range.tag);
      arena.free(range.at, range.bytes);
      total -= (range.bytes + 4095) / 4096 * 4096;
      live[which] = live.back();
      live.pop_back();
    }
    REQUIRE(arena.allocated() == total);
  }
  for (auto& range : live) arena.free(range.at, range.bytes);
  CHECK(arena.allocated() == 0);
}
