// The cast between a format dtype and any other dtype, above autograd.
#pragma once
#include <ATen/FormatTensor.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

namespace at::formats {

at::Tensor to_copy_autograd(const at::Tensor& self, std::optional<c10::ScalarType> dtype,
                            std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                            std::optional<bool> pin, bool non_blocking,
                            std::optional<c10::MemoryFormat> memory_format);

// Records that the result is a cast from another dtype; gradients pass on to the edges in that
// dtype.
void record_cast(const at::Tensor& result, c10::ScalarType from, c10::Device device,
                 torch::autograd::edge_list&& edges);

// A gradient in the dtype of its tensor (numbered as by dtype_number), if one of the two is a
// format dtype: the engine would cast by containers. Between stock dtypes the engine casts, or
// raises; with stock_too this function does the same.
at::Tensor gradient_of_dtype(const at::Tensor& gradient, c10::ScalarType dtype,
                             bool stock_too = false);

// Makes the result's node give every gradient in its operand's dtype. dtypes: those of the
// operands; operands without a derivative come last.
void keep_gradient_dtypes(const at::Tensor& result, std::vector<c10::ScalarType> dtypes);

} // namespace at::formats
