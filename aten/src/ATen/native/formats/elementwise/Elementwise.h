// The elementwise engine: decodes blocks of codes into cache, computes, and encodes; each element's
// result is rounded once.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/util/SmallVector.h>

namespace at::formats {

// One operand: a format tensor, a stock tensor (float64, broadcast like any other), or a number.
struct Operand {
  at::Tensor tensor;
  double number{0};

  static Operand of(const at::Tensor& t);
  static Operand of(const c10::Scalar& s) { return {at::Tensor(), s.toDouble()}; }
};

// The destination of the result: a new tensor, or an existing format tensor (in place).
struct Target {
  const FormatEntry& entry;
  at::Tensor existing;
};

// Whether float32 arithmetic with this number meets OddArithmetic.h's conditions, for formats with
// arithmetic_in_float().
bool number_fits_float(double x);
// Whether float32 computes c + s * (a * b) of the format's values. It must have a * b exactly, and
// s times that must not overflow. (It never becomes 0 at the lower end. Added to a number of the
// format, only its sign counts there.)
bool addcmul_fits_float(const Format& format, double s);
// Whether float32 values with this number meet MixedArithmetic.h's conditions.
bool number_is_mixed(double x);

// out = op(a), op(a, b) and op(a, b, c; s), correctly rounded if the kernels' results are rounded
// to odd.
at::Tensor elementwise(UnaryOp op, const Operand& a, const Target& target);
at::Tensor elementwise(BinaryOp op, const Operand& a, const Operand& b, const Target& target);
at::Tensor elementwise(TernaryOp op, const Operand& a, const Operand& b, const Operand& c, double s,
                       const Target& target);

// Stores the result for out=: in out's dtype if its category allows, in out's memory. That may be
// an operand's memory, but not a part of it.
at::Tensor& store(const at::Tensor& result, at::Tensor& out, at::ArrayRef<at::Tensor> operands);

} // namespace at::formats
