#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/resize_ops.h>

namespace at::formats {

// Gives out= the result's sizes and its order in memory, as TensorIterator does for stock dtypes.
// (Whether out may be resized was checked before.)
inline void resize_to_result(const at::Tensor& out, const at::Tensor& result) {
  at::_ops::resize_::call(out, c10::fromIntArrayRefSlow(result.sizes()), {});
  const bool other_order =
      out.strides() != result.strides() && result.is_non_overlapping_and_dense();
  if (other_order)
    at::_ops::as_strided_::call(out, result.sym_sizes(), result.sym_strides(),
                                out.sym_storage_offset());
}

} // namespace at::formats
