// Hooks of tensors and of graph nodes.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Makes hooks return gradients of the dtype of those that they got.
void patch_gradient_hooks();

} // namespace torch::formats
