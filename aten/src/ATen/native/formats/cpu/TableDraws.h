// Loops over tables of values in random modes: two searches and a coin, or a search for the
// number's gap and arithmetic within it.
#pragma once
#include <ATen/native/formats/cpu/RandomBlock.h>
#include <ATen/native/formats/cpu/TableSearch.h>
#include <c10/formats/codec/ExactCodec.h>

namespace at::formats::CPU_CAPABILITY {
namespace {

// The modes stochastic_equal and up_down use only the top bit of an element's word.
template <typename T, typename Code>
void encode_table_by_coin(const Format& f, const T* values, Code* codes, int64_t n,
                          const RandomWords& words) {
  const auto &tails = steps_of<T>(f, false), &heads = steps_of<T>(f, true);
  RandomBlock high;
  Code other[kRandomBlock];
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    const uint32_t* h = high.fill(words, done, m, 0);
    search(tails, values + done, codes + done, m);
    search(heads, values + done, other, m);
    for (int64_t i = 0; i < m; ++i) codes[done + i] = h[i] >> 31 ? other[i] : codes[done + i];
  }
}

// How a random word decides in the mode stochastic. A number goes to the outer value if its part of
// the gap, in units of 2^-32, is >= 2^32 - (the masked word). It is undecided if the part's error
// may exceed the difference, or if bits outside the mask decide.
struct GapDraw {
  uint32_t mask{~uint32_t{0}}; // the bits used of the word's upper half
  uint32_t last{0};            // the last bit used, if ties of the part go to even
  double limit{0x1p32};        // less half of the last bit, if the part is rounded
  double centre{-0.5}, reach{0.5};

  explicit GapDraw(const Format& f) {
    const int n = f.random_bits;
    if (n > 32) centre = 0, reach = 2;
    if (n == 0 || n > 32) return;
    const uint32_t bit = uint32_t{1} << (32 - n);
    mask = ~(bit - 1);
    if (f.few_bits == FewBits::C) last = bit;
    if (f.few_bits != FewBits::A) limit -= bit / 2.0;
    centre = reach = 0;
  }

  // How far the number is beyond the point where it starts to go out.
  TD_INLINE double beyond(const TableGap& gap, double x, uint32_t random) const {
    return (x - gap.inner) * gap.scale - (limit - static_cast<double>(random & mask));
  }
  // Returns 0 or 1: a branch on random bits costs more than all the rest.
  TD_INLINE uint32_t goes_out(double beyond, uint32_t random) const {
    return static_cast<uint32_t>(beyond > 0) |
        (static_cast<uint32_t>(beyond == 0) & static_cast<uint32_t>((random & last) == 0));
  }
  TD_INLINE bool is_undecided(const TableGap& gap, double beyond) const {
    return std::fabs(beyond - centre) < reach + static_cast<double>(gap.margin);
  }
};

template <typename T, typename Code>
__attribute__((noinline)) bool draw_in_gaps(const TableGap* __restrict gaps,
                                            const uint32_t* __restrict places,
                                            const uint32_t* __restrict random,
                                            const T* __restrict values, Code* __restrict codes,
                                            int64_t n, GapDraw draw) {
  uint32_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const TableGap& gap = gaps[places[i]];
    const double beyond = draw.beyond(gap, static_cast<double>(values[i]), random[i]);
    const uint32_t both = uint32_t{gap.outer_code} << 16 | gap.inner_code;
    codes[i] = static_cast<Code>(both >> (draw.goes_out(beyond, random[i]) << 4));
    undecided |= static_cast<uint32_t>(draw.is_undecided(gap, beyond));
  }
  return undecided != 0;
}

// The mode stochastic. The generic codec decides the few undecided elements.
template <typename T, typename Code>
void encode_table_by_gaps(const Format& f, const T* values, Code* codes, int64_t n,
                          const RandomWords& words) {
  const TableGaps<T>& g = gaps_of<T>(f);
  const GapDraw draw(f);
  RandomBlock high;
  uint32_t places[kRandomBlock];
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    const uint32_t* h = high.fill(words, done, m, 0);
    search(g.steps, values + done, places, m);
    if (!draw_in_gaps(g.gaps.data(), places, h, values + done, codes + done, m, draw)) continue;
    for (int64_t i = 0; i < m; ++i) {
      const auto x = static_cast<double>(values[done + i]);
      const TableGap& gap = g.gaps[places[i]];
      if (!draw.is_undecided(gap, draw.beyond(gap, x, h[i]))) continue;
      codes[done + i] = static_cast<Code>(encode(
          f, unpack(x), random_word(words.seed.number, words.first + (done + i) * words.step)));
    }
  }
}

template <typename T, typename Code>
void encode_table_all(const Format& f, const T* values, Code* codes, int64_t n,
                      const RandomWords& words) {
  if (!is_stochastic(f.rounding)) return search(steps_of<T>(f), values, codes, n);
  if (f.rounding == Rounding::Stochastic) return encode_table_by_gaps(f, values, codes, n, words);
  encode_table_by_coin(f, values, codes, n, words);
}

} // namespace
} // namespace at::formats::CPU_CAPABILITY
