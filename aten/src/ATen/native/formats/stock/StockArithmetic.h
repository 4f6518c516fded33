// Arithmetic by stock operators on float64 tensors, rounded to odd as in the kernels' loops
// (c10/formats/arithmetic/OddArithmetic.h). Encoding the results rounds the exact ones once.
//
// Operands are 0 or of magnitudes from 2^-511 to 2^511, as values of formats with
// arithmetic_in_double() are. So no error term leaves the range of float64.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/cpu/Kernels.h>

namespace at::formats {

// mode: the format's, which decides the sign of a sum of 0.
at::Tensor compute_by_stock(BinaryOp op, c10::formats::Rounding mode, const at::Tensor& a,
                            const at::Tensor& b);
at::Tensor compute_by_stock(TernaryOp op, c10::formats::Rounding mode, const at::Tensor& a,
                            const at::Tensor& b, const at::Tensor& c, double s);
at::Tensor root_by_stock(const at::Tensor& a);
at::Tensor add_odd(const at::Tensor& a, const at::Tensor& b);

} // namespace at::formats
