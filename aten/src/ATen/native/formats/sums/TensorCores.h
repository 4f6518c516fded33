// Matrix products on a GPU's tensor cores, under the policy machine. Products are exact: operands
// are float16 or bfloat16 numbers, or sums of two. The tensor core decides how they are added up
// (docs/accumulators.md, "On a GPU").
#pragma once
#include <ATen/native/formats/sums/Accumulate.h>

namespace at::formats::tensor_cores {

using accumulated::Sums;
using at::Tensor;
using c10::Scalar;

// Whether products of two matrices, or of batches of them (dims: 3), run here. The policy must be
// machine, the tensors a GPU's, and the format's numbers such parts. If they have two parts, the
// products must be large enough to beat a float32 product. Otherwise stock kernels multiply, or
// raise.
bool serve(const Sums& sums, const Tensor& a, const Tensor& b, int64_t dims);

// a b, and beta * self + alpha * a b, rounded once.
Tensor product(const Sums& sums, const Tensor& a, const Tensor& b);
Tensor added(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
             const Scalar& beta, const Scalar& alpha);

} // namespace at::formats::tensor_cores
