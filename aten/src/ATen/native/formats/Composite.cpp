// Composite operators whose stock code reads or allocates by the container's type: written anew from operators that keep the format,
// and differentiable through them. They sit on our key and on our autograd key, where the stock composite would otherwise run.
#include <ATen/FormatTensor.h>

#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/new_zeros_ops.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

namespace at::formats {
namespace {

using at::Tensor;
using c10::Scalar;

// ---- where with a number: stock makes a tensor of it in the container's type ----

Tensor number_like(const Scalar& number, const Tensor& like) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (number.isComplex()) return at::scalar_tensor(number, at::TensorOptions().device(like.device()).dtype(at::kComplexFloat));
  return encoded(at::scalar_tensor(number, at::TensorOptions().dtype(number.isFloatingPoint() ? at::kDouble : at::kLong)), entry_of(like));
}

Tensor where_scalar_self(const Tensor& condition, const Scalar& self, const Tensor& other) {
  return at::where(condition, number_like(self, other), other);
}
Tensor where_scalar_other(const Tensor& condition, const Tensor& self, const Scalar& other) {
  return at::where(condition, self, number_like(other, self));
}

// ---- max, min, sort, topk, ...: the gradient goes to the elements that were selected ----

Tensor value_selecting_reduction_backward(const Tensor& grad, int64_t dim, const Tensor& indices, c10::SymIntArrayRef sizes, bool keepdim) {
  const bool unsqueeze = !keepdim && !sizes.empty();
  const Tensor source = unsqueeze ? grad.unsqueeze(dim) : grad;
  const Tensor index = unsqueeze ? indices.unsqueeze(dim) : indices;
  return at::scatter(at::_ops::new_zeros::call(grad, sizes, {}, {}, {}, {}), dim, index, source);
}

// ---- unfold: a view that stock makes from a plain TensorImpl's strides ----

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  const int64_t dim = at::maybe_wrap_dim(dimension, self.dim(), /*wrap_scalar=*/true);
  const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(size >= 0 && size <= length, "unfold: expected a size from 0 to ", length, ", but got ", size);
  TORCH_CHECK(step > 0, "unfold: expected a step of at least 1, but got ", step);
  c10::DimVector sizes(self.sizes().begin(), self.sizes().end()), strides(self.strides().begin(), self.strides().end());
  sizes.push_back(size);
  strides.push_back(self.dim() == 0 ? 1 : self.stride(dim));
  if (self.dim() > 0) {
    sizes[dim] = (length - size) / step + 1;
    strides[dim] = step * self.stride(dim);
  }
  return format_view(self, sizes, strides, self.storage_offset());
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("where.ScalarSelf", &where_scalar_self);
  m.impl("where.ScalarOther", &where_scalar_other);
  m.impl("value_selecting_reduction_backward", &value_selecting_reduction_backward);
  m.impl("unfold", &unfold);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse2, m) {
  m.impl("where.ScalarSelf", &where_scalar_self);
  m.impl("where.ScalarOther", &where_scalar_other);
  m.impl("value_selecting_reduction_backward", &value_selecting_reduction_backward);
}

} // namespace at::formats
