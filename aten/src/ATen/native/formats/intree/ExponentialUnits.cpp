// Exponential linear units for PyTorch 2.6. Its kernel subtracts 1 from a power, which loses all
// digits of results near 0; a format with small numbers would show it. Computed as newer releases
// do, in float64, and rounded once.
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>

#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/where_ops.h>
#include <torch/library.h>

namespace at::formats {
namespace {

using at::Scalar;

at::Tensor elu_kernel(const at::Tensor& self, const Scalar& alpha, const Scalar& scale,
                      const Scalar& input_scale) {
  const at::Tensor x = decoded(self, c10::ScalarType::Double);
  const at::Tensor power = at::_ops::expm1::call(at::_ops::mul_Scalar::call(x, input_scale));
  const at::Tensor below = at::_ops::mul_Scalar::call(power, alpha.toDouble() * scale.toDouble());
  const at::Tensor above = at::_ops::mul_Scalar::call(x, scale);
  return encoded(at::_ops::where_self::call(at::_ops::gt_Scalar::call(x, 0), above, below),
                 entry_of(self));
}

at::Tensor& elu_kernel_(at::Tensor& self, const Scalar& alpha, const Scalar& scale,
                        const Scalar& input_scale) {
  return self.copy_(elu_kernel(self, alpha, scale, input_scale));
}

at::Tensor& elu_out_kernel(const at::Tensor& self, const Scalar& alpha, const Scalar& scale,
                           const Scalar& input_scale, at::Tensor& out) {
  const at::Tensor result = elu_kernel(self, alpha, scale, input_scale);
  at::_ops::resize_::call(out, self.sym_sizes(), {});
  return out.copy_(result);
}

at::Tensor celu_kernel(const at::Tensor& self, const Scalar& alpha) {
  TORCH_CHECK(alpha.toDouble() != 0, "ZeroDivisionError: alpha cannot be 0 for CELU");
  return elu_kernel(self, alpha, 1, 1 / alpha.toDouble());
}

at::Tensor& celu_kernel_(at::Tensor& self, const Scalar& alpha) {
  return self.copy_(celu_kernel(self, alpha));
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("elu", TORCH_FN(elu_kernel));
  m.impl("elu_", TORCH_FN(elu_kernel_));
  m.impl("elu.out", TORCH_FN(elu_out_kernel));
  m.impl("celu", TORCH_FN(celu_kernel));
  m.impl("celu_", TORCH_FN(celu_kernel_));
}

} // namespace at::formats
