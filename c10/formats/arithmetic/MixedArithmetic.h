// Arithmetic of float32 operands with one float64 number, computed in float64 and rounded to odd in
// float32. That is as good as the exact result for a format with Format::arithmetic_in_float() (see
// OddArithmetic.h), whose values float32 has.
#pragma once
#include <c10/formats/arithmetic/OddArithmetic.h>

namespace c10::formats {

struct MixedResult {
  float value;
  uint32_t undecided; // not 0: compute in float64, rounded to odd, instead
};

// The largest magnitude of the number. Products of two values, and their errors, then stay normal
// in float64.
inline constexpr double kLargestMixed = 0x1p62;

TD_INLINE uint32_t high_half(double x) {
  return static_cast<uint32_t>(bits_as<uint64_t>(x) >> 32);
}

// Moves f to its odd neighbour if f is even and not exact. f is the exact result or a neighbour of
// it. `lacks` is the high half of a float64 number; its sign is the side on which the exact result
// is, and 0 means exact.
TD_INLINE MixedResult odd_float(float f, uint32_t lacks, uint32_t undecided) {
  const uint32_t bits = bits_as<uint32_t>(f), finite = is_finite(f);
  const uint32_t moves = mask_nonzero<float>(lacks & 0x7FFFFFFF) & finite & ((bits & 1) - 1);
  const uint32_t inwards = static_cast<uint32_t>(static_cast<int32_t>(bits ^ lacks) >> 31);
  return {bits_as<float>(bits + ((inwards | 1) & moves)), undecided | ~finite};
}

// nearest: the exact result to nearest in float64. lost: its error, of which the sign counts. The
// error decides if `nearest` is a float32 number itself.
TD_INLINE MixedResult odd_float(double nearest, double lost) {
  const float f = static_cast<float>(nearest);
  return odd_float(f, high_half((nearest - static_cast<double>(f)) + lost), 0);
}
// The same without the error; undecided where it would decide.
TD_INLINE MixedResult odd_float(double nearest) {
  const float f = static_cast<float>(nearest);
  const uint32_t lacks = high_half(nearest - static_cast<double>(f));
  return odd_float(f, lacks, ~mask_nonzero<float>(lacks & 0x7FFFFFFF));
}

TD_INLINE MixedResult multiply_mixed(double x, double number) {
  const double product = x * number;
  return odd_float(product, fused(x, number, -product));
}
TD_INLINE MixedResult add_mixed(double x, double number) {
  const double sum = x + number;
  return odd_float(sum, two_sum_error(x, number, sum));
}
TD_INLINE MixedResult divide_number_mixed(double number, double x) {
  return odd_float(number / x);
}
// Divides by the number's reciprocal, which may be wrong by more than half of the last place; the
// remainder's sign decides.
TD_INLINE MixedResult divide_mixed(double x, double number, double reciprocal) {
  const float f = static_cast<float>(x * reciprocal);
  return odd_float(
      f, high_half(fused(-static_cast<double>(f), number, x)) ^ (high_half(number) & 0x80000000),
      0);
}

// Sums number * x + y, for x with the digits of float64.
//
// The error decides if float32 has the sum's nearest float64 number. If y is not much smaller or
// larger, float64 has their difference too, and one more operation gives the error. Else the sum is
// undecided.
struct FusedSum {
  TD_INLINE MixedResult operator()(double number, double x, float y) const {
    constexpr int32_t far = 28 << 23; // 24 digits more end within float64's
    const double addend = y, nearest = fused(number, x, addend);
    const double error = fused(number, x, addend - nearest);
    const float f = static_cast<float>(nearest);
    const auto gap = static_cast<int32_t>(magnitude_bits(f) - magnitude_bits(y));
    const auto distance = static_cast<uint32_t>(gap < 0 ? -gap : gap);
    return odd_float(f, high_half((nearest - static_cast<double>(f)) + error),
                     mask_less<float>(far, distance) & is_nonzero(y));
  }
};
// x alone, for kernels that add in other ways.
struct Factor {
  TD_INLINE double operator()(double, double x, float) const { return x; }
};

} // namespace c10::formats
