// The cast between any two dtypes of which one is ours, above autograd.
#pragma once
#include <ATen/FormatTensor.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

namespace at::formats {

at::Tensor to_copy_autograd(const at::Tensor& self, std::optional<c10::ScalarType> dtype,
                            std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                            std::optional<bool> pin, bool non_blocking,
                            std::optional<c10::MemoryFormat> memory_format);

// Makes the result that of a cast from another dtype: its gradient goes on to the edges in that
// one.
void record_cast(const at::Tensor& result, c10::ScalarType from, c10::Device device,
                 torch::autograd::edge_list&& edges);

// A gradient in the dtype of what it is a gradient of (as dtype_number has it), where one of the
// two is ours: the engine would cast by containers. Between stock dtypes the engine casts, or
// raises; stock_too: so does this.
at::Tensor gradient_of_dtype(const at::Tensor& gradient, c10::ScalarType dtype,
                             bool stock_too = false);

// Every gradient that the result's node gives is in its operand's dtype from here on; the dtypes
// are the operands', those without a derivative last.
void keep_gradient_dtypes(const at::Tensor& result, std::vector<c10::ScalarType> dtypes);

} // namespace at::formats
