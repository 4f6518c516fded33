// The dtypes of the gradients that the engine hands on.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/python_headers.h>

#include <optional>

namespace torch::formats {

// What a node returned in another dtype than its operand's is handed on as it is, where the operand
// is ours, and cast once: by a leaf.
void patch_engine_gradients();

// The dtype that a leaf's gradient is asked to have, as its record says it: a tensor of ours that
// was asked for none has the container's.
std::optional<c10::ScalarType> recorded_grad_dtype(const at::Tensor& tensor);

} // namespace torch::formats
