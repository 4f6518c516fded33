// Counts what rounding did to a number, from its exact and its rounded value. Each count is
// explained in docs/reference/rounding-counts.md.
//
// All counts are integers, so neither the order of additions nor the number of threads changes one.
#pragma once
#include <c10/formats/codec/MachineBits.h>

#include <cstdint>

namespace c10::formats {

struct CountLimits {
  double highest, lowest; // the outermost finite numbers of a format
  // Its smallest positive number, and the smallest one of full precision: for floats the smallest
  // normal number, else the same.
  double smallest, normal;
};

struct CountFlags {
  uint64_t nan_in{0}, infinite_in{0}, zero_in{0}, nan_made{0}, overflow{0}, saturated{0},
      underflow{0}, to_zero{0}, subnormal{0}, zeros{0}, inexact{0};

  // Counts the rounding of x to r.
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

  // Calls body with each count and the same count of o.
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

// A number's bin is its exponent field in float64. Bin 0 has zeros and subnormals, bin 2047
// infinities and NaN.
inline constexpr int kCountBins = 2048;

TD_INLINE uint64_t count_bin(double x) {
  return (bits_as<uint64_t>(x) >> 52) & 0x7ff;
}

// The square of its 24 leading bits, cut to 24 bits, in units of 4^exponent / 2^22. Zeros, and
// float64's subnormals, count 0.
TD_INLINE uint64_t count_square(double x) {
  const uint64_t leading = (bits_as<uint64_t>(x) >> 29 & 0x7f'ffff) | 0x80'0000;
  return ((leading * leading) >> 24) & (0 - uint64_t{count_bin(x) != 0});
}

} // namespace c10::formats
