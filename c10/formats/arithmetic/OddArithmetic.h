// + - * / sqrt fma in a machine float type, rounded to odd. Such a result may be rounded once more,
// to a format with at least two significand bits fewer, as if the exact result had been rounded.
//
// Let s be the nearest machine number and err its error. If err is not 0 and s is even, the
// neighbour of s towards err is the odd number next to the exact result. err is exact for +
// (Knuth's TwoSum), * and the remainders of / and sqrt (one fma each), as long as nothing overflows
// or becomes subnormal. Format::arithmetic_in_float / _in_double say for which formats that holds.
//
// Source: Boldo, Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
// rounding to odd", IEEE TC 57(4), 2008.
#pragma once
#include <c10/formats/codec/MachineBits.h>

#include <cmath>

namespace c10::formats {

// These return masks and not truth values: see MachineBits.h.
template <typename T>
TD_INLINE typename Machine<T>::Bits magnitude_bits(T x) {
  return bits_as<typename Machine<T>::Bits>(x) & (~typename Machine<T>::Bits{0} >> 1);
}
template <typename T>
TD_INLINE typename Machine<T>::Bits is_finite(T x) {
  return mask_less<T>(magnitude_bits(x), infinity_bits<T>());
}
template <typename T>
TD_INLINE typename Machine<T>::Bits is_nonzero(T x) { // true for NaN too
  return mask_nonzero<T>(magnitude_bits(x));
}

// Moves s to its odd neighbour, unless `towards` (any number with the sign of exact - s) is 0 or
// NaN. Infinite and NaN s stay.
template <typename T>
TD_INLINE T to_odd(T s, T towards) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  const Bits bits = bits_as<Bits>(s);
  const Bits number = mask_less<T>(magnitude_bits(towards), infinity_bits<T>() + 1); // 0 for NaN
  const Bits moves = number & is_nonzero(towards) & is_finite(s) & ((bits & 1) - 1);
  const Bits inwards =
      static_cast<Bits>(static_cast<Signed>(bits ^ bits_as<Bits>(towards)) >> (M::width - 1));
  return bits_as<T>(bits + ((inwards | 1) & moves));
}

// Corrects overflow, and underflow to zero, of a result whose operands were finite (and not 0). The
// exact result is above the largest number, or between 0 and the smallest; one of the two ends is
// odd. Only double needs it, where an operand may be any Python scalar.
template <typename T>
TD_INLINE T range_to_odd(T result, typename Machine<T>::Bits overflows,
                         typename Machine<T>::Bits underflows) {
  using Bits = typename Machine<T>::Bits;
  if constexpr (sizeof(T) == sizeof(float)) return result;
  const Bits bits = bits_as<Bits>(result), magnitude = magnitude_bits(result),
             sign = bits ^ magnitude;
  const Bits infinite = ~mask_nonzero<T>(magnitude ^ infinity_bits<T>());
  const Bits held = select(infinite & overflows, sign | (infinity_bits<T>() - 1), bits);
  return bits_as<T>(select(~is_nonzero(result) & underflows, sign | 1, held));
}

// The odd one of the exact result's neighbours below and above, which are equal if it is a machine
// number. This needs no error, so overflow and underflow do not matter.
template <typename T>
TD_INLINE T odd_of(T down, T up) {
  using Bits = typename Machine<T>::Bits;
  const Bits d = bits_as<Bits>(down);
  // Chosen by bits, because nvcc turns a choice into an operation that waits for the other. Of -0
  // and 0 it returns 0, which is `up`: the result to nearest.
  return bits_as<T>(select(0 - (d & 1), d, bits_as<Bits>(up)));
}

// A GPU's operations take a rounding direction: two of them are cheaper than an error.
#ifdef __CUDACC__
__device__ inline float add_neighbours(float a, float b) {
  return odd_of(__fadd_rd(a, b), __fadd_ru(a, b));
}
__device__ inline double add_neighbours(double a, double b) {
  return odd_of(__dadd_rd(a, b), __dadd_ru(a, b));
}
__device__ inline float multiply_neighbours(float a, float b) {
  return odd_of(__fmul_rd(a, b), __fmul_ru(a, b));
}
__device__ inline double multiply_neighbours(double a, double b) {
  return odd_of(__dmul_rd(a, b), __dmul_ru(a, b));
}
__device__ inline float fma_neighbours(float a, float b, float c) {
  return odd_of(__fmaf_rd(a, b, c), __fmaf_ru(a, b, c));
}
__device__ inline double fma_neighbours(double a, double b, double c) {
  return odd_of(__fma_rd(a, b, c), __fma_ru(a, b, c));
}
#endif

template <typename T>
TD_INLINE T two_sum_error(T a, T b, T s) {
  const T b_part = s - a;
  const T a_part = s - b_part;
  return (a - a_part) + (b - b_part);
}

template <typename T>
TD_INLINE T add_odd(T a, T b) {
#ifdef __CUDA_ARCH__
  return add_neighbours(a, b);
#else
  const T s = a + b;
  return range_to_odd(to_odd(s, two_sum_error(a, b, s)), is_finite(a) & is_finite(b), 0);
#endif
}

TD_INLINE float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
TD_INLINE double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

template <typename T>
TD_INLINE T multiply_odd(T a, T b) {
#ifdef __CUDA_ARCH__
  return multiply_neighbours(a, b);
#else
  const T p = a * b;
  return range_to_odd(to_odd(p, fused(a, b, -p)), is_finite(a) & is_finite(b),
                      is_nonzero(a) & is_nonzero(b));
#endif
}

template <typename T>
TD_INLINE T divide_odd(T a, T b) {
  const T q = a / b;
  const T remainder = fused(-q, b, a);
  const auto sign = bits_as<typename Machine<T>::Bits>(b) ^ magnitude_bits(b);
  const T towards = bits_as<T>(bits_as<typename Machine<T>::Bits>(remainder) ^ sign);
  return range_to_odd(to_odd(q, towards), is_finite(a) & is_nonzero(b),
                      is_nonzero(a) & is_finite(b));
}

TD_INLINE float square_root(float a) {
  return __builtin_sqrtf(a);
}
TD_INLINE double square_root(double a) {
  return __builtin_sqrt(a);
}

template <typename T>
TD_INLINE T sqrt_odd(T a) {
  const T s = square_root(a);
  return to_odd(s, fused(-s, s, a));
}

// a * b + c. Product and sum are each split exactly, and the sum's error is rounded to odd first.
// If a product leaves the range of double, the outermost number replaces it: c is 0 or far below.
// (Products of formats' values never do.)
template <typename T>
TD_INLINE T fma_odd(T a, T b, T c) {
#ifdef __CUDA_ARCH__
  return fma_neighbours(a, b, c);
#else
  using Bits = typename Machine<T>::Bits;
  const T nearest = a * b;
  const T p = range_to_odd(nearest, is_finite(a) & is_finite(b), is_nonzero(a) & is_nonzero(b));
  const T error = fused(a, b, -nearest);
  const Bits within = sizeof(T) == sizeof(float)
      ? ~Bits{0}
      : ~mask_nonzero<T>(bits_as<Bits>(p) ^ bits_as<Bits>(nearest));
  const T p_error = bits_as<T>(bits_as<Bits>(error) & within);
  const T s = p + c;
  const T missing = add_odd(p_error, two_sum_error(p, c, s));
  const T sum = add_odd(s, missing);
  // -0 + 0 would lose the sign.
  const Bits result = select(is_nonzero(missing), bits_as<Bits>(sum), bits_as<Bits>(s));
  const T beyond = range_to_odd(s, is_finite(a) & is_finite(b) & is_finite(c), 0);
  return bits_as<T>(select(is_finite(s), result, bits_as<Bits>(beyond)));
#endif
}

} // namespace c10::formats
