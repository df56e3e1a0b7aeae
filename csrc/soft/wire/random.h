// Random numbers that are the same for the same seed, everywhere (xoshiro256**, Blackman and Vigna, seeded by
// splitmix64).
#pragma once

#include <bit>
#include <cstdint>

namespace userdma::soft::wire {

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9e3779b97f4a7c15;
      uint64_t z = seed;
      z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
      z = (z ^ z >> 27) * 0x94d049bb133111eb;
      word = z ^ z >> 31;
    }
  }

  uint64_t next() {
    uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  // True with this probability.
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  // 0 to bound - 1, nearly evenly; bound is small against 2^64.
  uint64_t below(uint64_t bound) { return next() % bound; }

 private:
  uint64_t state_[4];
};

}  // namespace userdma::soft::wire
