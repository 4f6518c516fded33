// Arithmetic of one element, rounded to odd, and the sign of a sum that is 0. Compiled with -fmad=false: a product and a sum fused by the
// compiler would leave no error to find.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/formats/OddArithmetic.h>
#include <c10/formats/ZeroSums.h>

namespace at::formats::cuda {

template <typename T>
class Odd {
 public:
  explicit Odd(c10::formats::Rounding mode) : signs_zero_sums_(c10::formats::signs_zero_sums(mode)) {}

  TD_HOST_DEVICE T binary(BinaryOp op, T x, T y) const {
    switch (op) {
      case BinaryOp::Add: return signed_sum(c10::formats::add_odd(x, y), is_positive(x) && is_positive(y));
      case BinaryOp::Sub: return signed_sum(c10::formats::add_odd(x, -y), is_positive(x) && is_positive(-y));
      case BinaryOp::Mul: return c10::formats::multiply_odd(x, y);
      default: return c10::formats::divide_odd(x, y);
    }
  }

  // A step of a fused sum.
  TD_HOST_DEVICE T fma(T x, T y, T z) const { return signed_sum(c10::formats::fma_odd(x, y, z), is_positive(x) == is_positive(y) && is_positive(z)); }

 private:
  TD_HOST_DEVICE static bool is_positive(T x) {
    return c10::formats::bits_as<typename c10::formats::Machine<T>::Bits>(x) >> (c10::formats::Machine<T>::width - 1) == 0;
  }
  TD_HOST_DEVICE T signed_sum(T sum, bool both_positive) const { return signs_zero_sums_ && sum == 0 ? (both_positive ? T{0} : -T{0}) : sum; }

  bool signs_zero_sums_;
};

// The sign of a zero sum is the machine's here, as in the CPU's kernel.
template <typename T>
TD_HOST_DEVICE T ternary_odd(TernaryOp op, T x, T y, T z, T s) {
  using c10::formats::fma_odd;
  switch (op) {
    case TernaryOp::Fma: return fma_odd(x, y, z);
    case TernaryOp::Addcdiv: return fma_odd(s, x / y, z);
    case TernaryOp::Addcmul: return s == 1 ? fma_odd(x, y, z) : fma_odd(s, c10::formats::multiply_odd(x, y), z);
    default: return fma_odd(z, y - x, x); // lerp
  }
}

// Formats without NaN take its sign, which machines differ in, for a number's.
template <typename T>
TD_HOST_DEVICE T with_plain_nan(T x) {
  return x != x ? c10::formats::bits_as<T>(c10::formats::nan_bits<T>()) : x;
}

} // namespace at::formats::cuda
