// Uninitialised memory.
#pragma once
#include <ATen/core/Tensor.h>

namespace at::formats {

// Returns the tensor itself. Under torch.use_deterministic_algorithms it is filled with NaN, or the
// nearest code to it in a format without NaN.
at::Tensor uninitialised(at::Tensor t);

} // namespace at::formats
