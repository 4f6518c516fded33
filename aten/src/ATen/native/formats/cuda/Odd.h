// Arithmetic of one element, rounded to odd, and the sign of a sum that is 0. Compiled with
// -fmad=false: if the compiler fused a product and a sum, their error could not be found.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/formats/arithmetic/Operations.h>

namespace at::formats::cuda {

using c10::formats::is_positive;

// The sign of sums that are 0, by rounding mode.
class ZeroSigns {
 public:
  explicit ZeroSigns(c10::formats::Rounding mode) : signs_(c10::formats::signs_zero_sums(mode)) {}

  template <typename T>
  TD_HOST_DEVICE T signed_sum(T sum, bool both_positive) const {
    const T zero = both_positive ? T{0} : -T{0};
    return signs_ && sum == 0 ? zero : sum;
  }
  // Returns the result of an operation on x and y, with its sign put right if it is a sum.
  template <typename T>
  TD_HOST_DEVICE T of(BinaryOp op, T x, T y, T result) const {
    return with_operation(op, [&](auto f) {
      if constexpr (requires { f.both_positive(x, y); })
        return signed_sum(result, f.both_positive(x, y));
      else return result;
    });
  }
  template <typename T>
  TD_HOST_DEVICE T of(TernaryOp op, T x, T y, T z, T s, T result) const {
    return signed_sum(result, terms_are_positive(op, x, y, z, s));
  }

 private:
  bool signs_;
};

template <typename T>
TD_HOST_DEVICE T unary_odd(UnaryOp op, T x) {
  return with_operation(op, [=](auto f) { return f.odd(x); });
}

template <typename T>
TD_HOST_DEVICE T binary_odd(BinaryOp op, T x, T y) {
  return with_operation(op, [=](auto f) { return f.odd(x, y); });
}

template <typename T>
TD_HOST_DEVICE T ternary_odd(TernaryOp op, T x, T y, T z, T s) {
  return with_operation(fuse_unscaled(op, s), [=](auto f) { return f.odd(x, y, z, s); });
}

// ---- float32 values with one float64 number, which is an operand or s ----

TD_HOST_DEVICE inline c10::formats::MixedResult binary_mixed(BinaryOp op, bool number_first,
                                                             float x, double number) {
  return with_operation(op, [=](auto f) {
    return number_first ? f.mixed_first(number, x) : f.mixed(x, number, 1 / number);
  });
}

TD_HOST_DEVICE inline c10::formats::MixedResult ternary_mixed(TernaryOp op, float x, float y,
                                                              float z, double number) {
  return with_operation(op, [=](auto f) { return f.mixed(number, x, y, z); });
}

} // namespace at::formats::cuda
