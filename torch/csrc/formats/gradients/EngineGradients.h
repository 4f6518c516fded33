// The dtypes of gradients in the engine.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/python_headers.h>

#include <optional>

namespace torch::formats {

// Makes the engine pass on a node's result in another dtype unchanged if the operand is a format
// tensor. A leaf casts it, once.
void patch_engine_gradients();

// Returns the dtype recorded for a leaf's gradient. It is the storage dtype for a format tensor
// whose grad_dtype was not set.
std::optional<c10::ScalarType> recorded_grad_dtype(const at::Tensor& tensor);

} // namespace torch::formats
