// The random words of a stretch of elements, made many at once.
#pragma once
#include <c10/formats/codec/Philox.h>

namespace at::formats::CPU_CAPABILITY {
namespace {

using c10::formats::kPhiloxGroup;
using c10::formats::kPhiloxLanes;
using c10::formats::philox;
using c10::formats::PhiloxBlock;
using c10::formats::random_half;
using c10::formats::RandomWords;

inline constexpr int64_t kRandomBlock = 512; // elements whose random words are made at once

// Makes halves of the words of 64 consecutive indices, from 64 * group on.
__attribute__((noinline)) void random_group(uint64_t seed, uint64_t group, uint32_t stream,
                                            uint32_t* __restrict out) {
  const uint64_t first = group * kPhiloxLanes;
  for (int c = 0; c < kPhiloxLanes; ++c) {
    const PhiloxBlock p = philox(seed, first + c, stream);
    out[c] = p.x0;
    out[kPhiloxLanes + c] = p.x1;
    out[2 * kPhiloxLanes + c] = p.x2;
    out[3 * kPhiloxLanes + c] = p.x3;
  }
}

struct RandomBlock {
  alignas(64) uint32_t halves[kRandomBlock + 2 * kPhiloxGroup];

  // Makes halves of n <= kRandomBlock words. Returns a pointer to the first.
  const uint32_t* fill(const RandomWords& r, uint64_t done, int64_t n, uint32_t stream) {
    const uint64_t first = r.first + done * r.step;
    if (r.step != 1) {
      for (int64_t i = 0; i < n; ++i)
        halves[i] = random_half(r.seed.number, first + i * r.step, stream);
      return halves;
    }
    const uint64_t group = first / kPhiloxGroup, offset = first % kPhiloxGroup;
    for (uint64_t g = 0; g * kPhiloxGroup < offset + n; ++g)
      random_group(r.seed.number, group + g, stream, halves + g * kPhiloxGroup);
    return halves + offset;
  }
};

// Calls each(i, word) for n elements; the words are made in blocks.
template <typename Each>
void with_random_words(const RandomWords& words, int64_t n, Each each) {
  RandomBlock high, low;
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    const uint32_t *h = high.fill(words, done, m, 0), *l = low.fill(words, done, m, 1);
    for (int64_t i = 0; i < m; ++i) each(done + i, uint64_t{h[i]} << 32 | l[i]);
  }
}

} // namespace
} // namespace at::formats::CPU_CAPABILITY
