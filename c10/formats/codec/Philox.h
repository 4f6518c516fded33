// Random words by counter: word i of a seed is a pure function of both, so a tensor's rounding does
// not depend on how threads share it.
//
// Philox4x32 with 7 rounds, the fewest that pass BigCrush. Source: Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4.3 and table 2.
#pragma once
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

// Single numbers, because GPU code cannot read an array of the host's.
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9, kPhiloxKeyStep1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 7;

struct PhiloxBlock {
  uint32_t x0, x1, x2, x3;
};

TD_INLINE PhiloxBlock philox(uint64_t seed, uint64_t counter, uint32_t stream,
                             int rounds = kPhiloxRounds) {
  // If the processor multiplies lanes of 64 bits, words stay in the lower halves of such lanes:
  // nothing is shuffled between rounds.
#if defined(__AVX512DQ__)
  using Lane = uint64_t;
#else
  using Lane = uint32_t;
#endif
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  Lane x0 = static_cast<uint32_t>(counter), x1 = static_cast<uint32_t>(counter >> 32), x2 = stream,
       x3 = 0;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * static_cast<uint32_t>(x0),
                   b = uint64_t{kPhiloxMultiplier1} * static_cast<uint32_t>(x2);
    x0 = static_cast<Lane>(b >> 32) ^ x1 ^ k0;
    x1 = static_cast<Lane>(b);
    x2 = static_cast<Lane>(a >> 32) ^ x3 ^ k1;
    x3 = static_cast<Lane>(a);
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  return {static_cast<uint32_t>(x0), static_cast<uint32_t>(x1), static_cast<uint32_t>(x2),
          static_cast<uint32_t>(x3)};
}

// 64 indices share 16 counters. 16 indices in a row take one word from each of 16 counters in a
// row, so 16 lanes make them without shuffles.
inline constexpr int kPhiloxGroup = 64, kPhiloxLanes = 16;

// Half a word of one index: stream 0 is its high half, stream 1 its low half.
TD_HOST_DEVICE inline uint32_t random_half(uint64_t seed, uint64_t index, uint32_t stream) {
  const PhiloxBlock p =
      philox(seed, index / kPhiloxGroup * kPhiloxLanes + index % kPhiloxLanes, stream);
  switch (index % kPhiloxGroup / kPhiloxLanes) {
    case 0: return p.x0;
    case 1: return p.x1;
    case 2: return p.x2;
    default: return p.x3;
  }
}

TD_HOST_DEVICE inline uint64_t random_word(uint64_t seed, uint64_t index) {
  return uint64_t{random_half(seed, index, 0)} << 32 | random_half(seed, index, 1);
}

// A number for random_word. A GPU's launch that is recorded to run again (a CUDA graph) instead
// finds its generator's seed and offset in device memory. Each run moves the offset on; `past` is
// the launch's distance from it.
struct Seed {
  uint64_t number{0};
  const int64_t *seed_at{nullptr}, *offset_at{nullptr};
  uint64_t past{0};

  TD_HOST_DEVICE constexpr Seed(uint64_t number = 0) : number(number) {}
  constexpr Seed(const int64_t* seed_at, const int64_t* offset_at, uint64_t past)
      : seed_at(seed_at),
        offset_at(offset_at),
        past(past) {}

  // On the device that draws; the host's own seeds are numbers.
  TD_HOST_DEVICE uint64_t drawn() const {
    if (!offset_at) return number;
    return random_word(static_cast<uint64_t>(*seed_at), static_cast<uint64_t>(*offset_at) + past);
  }
};

// The random words of a call: element i uses word first + i * step of the seed.
struct RandomWords {
  Seed seed{};
  uint64_t first{0};
  uint64_t step{1};
};

} // namespace c10::formats
