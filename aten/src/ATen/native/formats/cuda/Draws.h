// Random words for a thread's elements. A thread takes the four elements whose words are one block
// of random bits (c10/formats/codec/Philox.h), so the bits are made once. These elements are kApart
// from each other; neighbouring threads have neighbouring elements.
#pragma once
#include <ATen/native/formats/cuda/Launch.h>
#include <c10/formats/codec/Philox.h>

namespace at::formats::cuda {

using c10::formats::RandomWords;

inline constexpr int kApart = c10::formats::kPhiloxLanes,
                     kOfBlock = c10::formats::kPhiloxGroup / kApart;

// The words of a thread's elements: their high halves, and how to make the whole words.
struct Draw {
  uint32_t half[kOfBlock];
  uint64_t seed, word; // of the first element; each further one adds kApart
  // The number of elements from the first on. Nothing behind them is read or written.
  int64_t left;
};

// Loads a thread's elements, the first of which is at p.
template <typename T>
TD_INLINE Pack<T, kOfBlock> load_apart(const T* p, const Draw& draw) {
  Pack<T, kOfBlock> found;
  TD_UNROLL
  for (int j = 0; j < kOfBlock; ++j) found.at[j] = j * kApart < draw.left ? p[j * kApart] : T{0};
  return found;
}
template <typename T>
TD_INLINE void store_apart(T* p, const Pack<T, kOfBlock>& values, const Draw& draw) {
  TD_UNROLL
  for (int j = 0; j < kOfBlock; ++j) {
    if (j * kApart < draw.left) p[j * kApart] = values.at[j];
  }
}

// Whether blocks of words begin where groups of elements do.
inline bool draws_by_blocks(const RandomWords& words) {
  return words.step == 1 && words.first % c10::formats::kPhiloxGroup == 0;
}

// The seed of a recorded launch. Rare, and long to compute, so not inlined.
TD_HOST_DEVICE TD_NOINLINE static uint64_t recorded_seed(const c10::formats::Seed& seed) {
  return seed.drawn();
}

// A body for the kOfBlock elements from index i on, kApart from each other. It has run(i, draw), or
// run(shared, i, draw) if it has a type Shared.
template <typename Body>
struct DrawnBy {
  Body body;
  int64_t n;
  RandomWords words;

  // Draws the block of words with this number.
  TD_INLINE Draw draw(int64_t first, int64_t block) const {
    const uint64_t seed = words.seed.offset_at ? recorded_seed(words.seed) : words.seed.number;
    const c10::formats::PhiloxBlock p =
        c10::formats::philox(seed, words.first / kOfBlock + static_cast<uint64_t>(block), 0);
    return {{p.x0, p.x1, p.x2, p.x3}, seed, words.first + static_cast<uint64_t>(first), n - first};
  }
  TD_INLINE static int64_t first_of(int64_t block) {
    return block / kApart * c10::formats::kPhiloxGroup + block % kApart;
  }
};
template <typename Body>
struct Drawn : DrawnBy<Body> {
  TD_HOST_DEVICE void operator()(int64_t block) const {
    const int64_t first = this->first_of(block);
    this->body.run(first, this->draw(first, block));
  }
};
template <shares Body>
struct Drawn<Body> : DrawnBy<Body> {
  using Shared = typename Body::Shared;
  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    this->body.prepare(shared, thread, threads);
  }
  TD_HOST_DEVICE void operator()(const Shared& shared, int64_t block) const {
    const int64_t first = this->first_of(block);
    this->body.run(shared, first, this->draw(first, block));
  }
};

// Requires draws_by_blocks(words).
template <typename Body>
Status for_each_drawn(int64_t n, const RandomWords& words, Stream stream, const Body& body) {
  const int64_t groups = (n + c10::formats::kPhiloxGroup - 1) / c10::formats::kPhiloxGroup;
  return for_each(groups * kApart, stream, Drawn<Body>{{body, n, words}});
}

} // namespace at::formats::cuda
