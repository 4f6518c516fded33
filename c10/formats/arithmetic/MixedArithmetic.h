// Arithmetic of float32 operands with one float64 number, done in float64 and rounded to odd in
// float32: as good as the exact result for a format with Format::arithmetic_in_float() (see
// OddArithmetic.h), whose values float32 has.
#pragma once
#include <c10/formats/arithmetic/OddArithmetic.h>

namespace c10::formats {

struct MixedResult {
  float value;
  uint32_t undecided; // not 0: ask float64 arithmetic that is rounded to odd
};

// The number's range, in which neither products of two values nor what they lack leave float64's
// normal numbers.
inline constexpr double kLargestMixed = 0x1p62;

TD_INLINE uint32_t high_half(double x) {
  return static_cast<uint32_t>(bits_as<uint64_t>(x) >> 32);
}

// f, a neighbour of the exact result or the result itself, moved to its odd neighbour where it is
// even and `lacks` (the high half of a float64 number: its sign, and whether it is 0) says on which
// side the exact result lies.
TD_INLINE MixedResult odd_float(float f, uint32_t lacks, uint32_t undecided) {
  const uint32_t bits = bits_as<uint32_t>(f), finite = is_finite(f);
  const uint32_t moves = mask_nonzero<float>(lacks & 0x7FFFFFFF) & finite & ((bits & 1) - 1);
  const uint32_t inwards = static_cast<uint32_t>(static_cast<int32_t>(bits ^ lacks) >> 31);
  return {bits_as<float>(bits + ((inwards | 1) & moves)), undecided | ~finite};
}

// From the exact result rounded to nearest in float64, and what it lost there (its sign counts):
// which decides where `nearest` is a float32 number itself.
TD_INLINE MixedResult odd_float(double nearest, double lost) {
  const float f = static_cast<float>(nearest);
  return odd_float(f, high_half((nearest - static_cast<double>(f)) + lost), 0);
}
// The same without knowing what was lost: undecided there.
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
// By the number's reciprocal, which may be off by more than half of the last place; the remainder's
// sign decides.
TD_INLINE MixedResult divide_mixed(double x, double number, double reciprocal) {
  const float f = static_cast<float>(x * reciprocal);
  return odd_float(
      f, high_half(fused(-static_cast<double>(f), number, x)) ^ (high_half(number) & 0x80000000),
      0);
}
// number * a + b. What a fused multiply-add loses is the sum of two numbers: Boldo and Muller,
// "Exact and approximated error of the FMA", IEEE Transactions on Computers 60 (2011), algorithm
// ErrFma.
TD_INLINE MixedResult fma_mixed(double number, double a, double b) {
  const double result = fused(number, a, b);
  const double product = number * a, product_error = fused(number, a, -product);
  const double low = b + product_error, low_error = two_sum_error(b, product_error, low);
  const double high = product + low, high_error = two_sum_error(product, low, high);
  return odd_float(result, ((high - result) + high_error) + low_error);
}
// The same of a * b, which float64 has, and of a / b rounded to float64.
TD_INLINE MixedResult addcmul_mixed(double number, double a, double b, double c) {
  return fma_mixed(number, a * b, c);
}
TD_INLINE MixedResult addcdiv_mixed(double number, double a, double b, double c) {
  return fma_mixed(number, a / b, c);
}
// a + number * (b - a), the difference rounded to float64.
TD_INLINE MixedResult lerp_mixed(double number, double a, double b) {
  return fma_mixed(number, b - a, a);
}

} // namespace c10::formats
