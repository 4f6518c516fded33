// The elementwise engine: blocks of codes are decoded into cache, operated on, and encoded, each
// element's result rounded once.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/util/SmallVector.h>

namespace at::formats {

// One operand: a tensor of ours, a stock tensor (float64, broadcast like any other), or a number.
struct Operand {
  at::Tensor tensor;
  double number{0};

  static Operand of(const at::Tensor& t);
  static Operand of(const c10::Scalar& s) { return {at::Tensor(), s.toDouble()}; }
};

// Where the result goes: a new tensor, or an existing one of ours (in place).
struct Target {
  const FormatEntry& entry;
  at::Tensor existing;
};

// Whether float32 arithmetic with this number keeps OddArithmetic.h's conditions for formats with
// arithmetic_in_float().
bool number_fits_float(double x);
// Whether float32 computes c + s * (a * b) of the format's values: it has their product whole, and
// s times that does not leave its range at the top. (At the bottom it is never 0, and beside a
// number of the format its sign alone counts.)
bool addcmul_fits_float(const Format& format, double s);
// Whether float32 values with this number keep MixedArithmetic.h's conditions.
bool number_is_mixed(double x);

// out = op(a), op(a, b) and op(a, b, c; s), correctly rounded where the kernels' results are
// rounded to odd.
at::Tensor elementwise(UnaryOp op, const Operand& a, const Target& target);
at::Tensor elementwise(BinaryOp op, const Operand& a, const Operand& b, const Target& target);
at::Tensor elementwise(TernaryOp op, const Operand& a, const Operand& b, const Operand& c, double s,
                       const Target& target);

// out=: the result, in out's dtype if its category allows, in out's memory, which may be an
// operand's but not a part of one.
at::Tensor& store(const at::Tensor& result, at::Tensor& out, at::ArrayRef<at::Tensor> operands);

} // namespace at::formats
