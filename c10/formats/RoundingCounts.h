// What rounding did to one number, counted: its exact value beside what became of it
// (docs/reference/rounding-counts.md says what each count means).
//
// Everything is an integer, so that no order of additions and no number of threads changes a count.
#pragma once
#include <c10/formats/codec/MachineBits.h>

#include <cstdint>

namespace c10::formats {

struct CountLimits {
  double highest, lowest; // the outermost finite numbers of a format
  // Its smallest positive number, and the smallest of full precision: floats' smallest normal one,
  // else the same.
  double smallest, normal;
};

struct CountFlags {
  uint64_t nan_in{0}, infinite_in{0}, zero_in{0}, nan_made{0}, overflow{0}, saturated{0},
      underflow{0}, to_zero{0}, subnormal{0}, zeros{0}, inexact{0};

  // x became r.
  TD_INLINE void count(const CountLimits& l, double x, double r) {
    const double infinity = bits_as<double>(uint64_t{0x7ff} << 52), magnitude = __builtin_fabs(x);
    const uint64_t nan = x != x, infinite = magnitude == infinity, zero = x == 0,
                   zero_result = r == 0, finite = magnitude < infinity;
    const uint64_t above = x > l.highest, below = x < l.lowest, nan_result = r != r,
                   finite_result = __builtin_fabs(r) < infinity;
    const uint64_t within = finite & (zero ^ 1) & (above ^ 1) & (below ^ 1),
                   small = magnitude < l.smallest;
    nan_in += nan;
    infinite_in += infinite;
    zero_in += zero;
    nan_made += nan_result & (nan ^ 1);
    overflow += finite & (above | below | (finite_result ^ 1));
    saturated += (above & uint64_t{r == l.highest}) | (below & uint64_t{r == l.lowest});
    underflow += within & (small | zero_result);
    to_zero += within & zero_result;
    subnormal += within & (small ^ 1) & uint64_t{magnitude < l.normal} & (zero_result ^ 1);
    zeros += zero_result;
    inexact += (nan ^ 1) & uint64_t{!(r == x)};
  }

  // Calls body with each count, and with that one of others.
  template <typename Body>
  TD_HOST_DEVICE void each(CountFlags& o, const Body& body) const {
    body(nan_in, o.nan_in);
    body(infinite_in, o.infinite_in);
    body(zero_in, o.zero_in);
    body(nan_made, o.nan_made);
    body(overflow, o.overflow);
    body(saturated, o.saturated);
    body(underflow, o.underflow);
    body(to_zero, o.to_zero);
    body(subnormal, o.subnormal);
    body(zeros, o.zeros);
    body(inexact, o.inexact);
  }
};

// A number counts by its exponent: float64's field of it, of which 0 has zeros and subnormal
// numbers, and 2047 what is not finite.
inline constexpr int kCountBins = 2048;

TD_INLINE uint64_t count_bin(double x) {
  return (bits_as<uint64_t>(x) >> 52) & 0x7ff;
}

// Its square, of its 24 leading bits and cut to 24 bits, in units of 4^exponent / 2^22. Zeros, and
// float64's own subnormal numbers, have none.
TD_INLINE uint64_t count_square(double x) {
  const uint64_t leading = (bits_as<uint64_t>(x) >> 29 & 0x7f'ffff) | 0x80'0000;
  return ((leading * leading) >> 24) & (0 - uint64_t{count_bin(x) != 0});
}

} // namespace c10::formats
