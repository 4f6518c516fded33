// Products of matrices on a GPU's tensor cores, under the policy machine. Products are exact:
// operands are handed over as float16 or bfloat16 numbers, or as sums of two. How they are added up
// is the tensor core's (docs/accumulators.md, "On a GPU").
#pragma once
#include <ATen/native/formats/sums/Accumulate.h>

namespace at::formats::tensor_cores {

using accumulated::Sums;
using at::Tensor;
using c10::Scalar;

// Whether products of two matrices, or of batches of them (dims: 3), go this way: the policy is
// machine, they are a GPU's, the format's numbers are such parts, and where they are two, a float32
// product takes longer. Else stock kernels multiply, or say what is wrong.
bool serve(const Sums& sums, const Tensor& a, const Tensor& b, int64_t dims);

// a b, and beta * self + alpha * a b, rounded once.
Tensor product(const Sums& sums, const Tensor& a, const Tensor& b);
Tensor added(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
             const Scalar& beta, const Scalar& alpha);

} // namespace at::formats::tensor_cores
