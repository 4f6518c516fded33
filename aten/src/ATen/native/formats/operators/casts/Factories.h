// Memory that nobody has written yet.
#pragma once
#include <ATen/core/Tensor.h>

namespace at::formats {

// The tensor itself, which torch.use_deterministic_algorithms has filled with NaN (or what is
// nearest to it in a format without).
at::Tensor uninitialised(at::Tensor t);

} // namespace at::formats
