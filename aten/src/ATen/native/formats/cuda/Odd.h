// Arithmetic of one element, rounded to odd, and the sign of a sum that is 0. Compiled with
// -fmad=false: a product and a sum fused by the compiler would leave no error to find.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/formats/arithmetic/MixedArithmetic.h>
#include <c10/formats/arithmetic/OddArithmetic.h>
#include <c10/formats/sums/ZeroSums.h>

namespace at::formats::cuda {

using c10::formats::is_positive;

// The sign that sums which are 0 have in a rounding mode.
class ZeroSigns {
 public:
  explicit ZeroSigns(c10::formats::Rounding mode) : signs_(c10::formats::signs_zero_sums(mode)) {}

  template <typename T>
  TD_HOST_DEVICE T signed_sum(T sum, bool both_positive) const {
    const T zero = both_positive ? T{0} : -T{0};
    return signs_ && sum == 0 ? zero : sum;
  }
  template <typename T>
  TD_HOST_DEVICE T of(BinaryOp op, T x, T y, T result) const {
    switch (op) {
      case BinaryOp::Add: return signed_sum(result, is_positive(x) && is_positive(y));
      case BinaryOp::Sub: return signed_sum(result, is_positive(x) && is_positive(-y));
      default: return result;
    }
  }
  template <typename T>
  TD_HOST_DEVICE T of(TernaryOp op, T x, T y, T z, T s, T result) const {
    return signed_sum(result, terms_are_positive(op, x, y, z, s));
  }

 private:
  bool signs_;
};

template <typename T>
TD_HOST_DEVICE T binary_odd(BinaryOp op, T x, T y) {
  switch (op) {
    case BinaryOp::Add: return c10::formats::add_odd(x, y);
    case BinaryOp::Sub: return c10::formats::add_odd(x, -y);
    case BinaryOp::Mul: return c10::formats::multiply_odd(x, y);
    case BinaryOp::Div: break;
  }
  return c10::formats::divide_odd(x, y);
}

template <typename T>
TD_HOST_DEVICE T ternary_odd(TernaryOp op, T x, T y, T z, T s) {
  using c10::formats::fma_odd;
  switch (op) {
    case TernaryOp::Fma: return fma_odd(x, y, z);
    case TernaryOp::Addcdiv: return fma_odd(s, x / y, z);
    case TernaryOp::Addcmul:
      return s == 1 ? fma_odd(x, y, z) : fma_odd(s, c10::formats::multiply_odd(x, y), z);
    case TernaryOp::Lerp: break;
  }
  return fma_odd(z, y - x, x);
}

// ---- float32 values beside one float64 number, which stands in the place of an operand or is s
// ----

TD_HOST_DEVICE inline c10::formats::MixedResult binary_mixed(BinaryOp op, bool number_first,
                                                             float x, double number) {
  using namespace c10::formats;
  switch (op) {
    case BinaryOp::Add: return add_mixed(x, number);
    case BinaryOp::Sub: return number_first ? add_mixed(-x, number) : add_mixed(x, -number);
    case BinaryOp::Mul: return multiply_mixed(x, number);
    case BinaryOp::Div: break;
  }
  return number_first ? divide_number_mixed(number, x) : divide_mixed(x, number, 1 / number);
}

TD_HOST_DEVICE inline c10::formats::MixedResult ternary_mixed(TernaryOp op, float x, float y,
                                                              float z, double number) {
  using namespace c10::formats;
  switch (op) {
    case TernaryOp::Fma: return fma_mixed(number, y, z);
    case TernaryOp::Addcdiv: return addcdiv_mixed(number, x, y, z);
    case TernaryOp::Addcmul: return addcmul_mixed(number, x, y, z);
    case TernaryOp::Lerp: break;
  }
  return lerp_mixed(number, x, y);
}

} // namespace at::formats::cuda
