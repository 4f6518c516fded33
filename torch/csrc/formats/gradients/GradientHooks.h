// Hooks of tensors and of graph nodes.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// What they return has the dtype of the gradient that they were given.
void patch_gradient_hooks();

} // namespace torch::formats
