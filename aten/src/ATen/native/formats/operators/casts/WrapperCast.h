// Casts of wrapper subclasses, which are tensors without memory: what they wrap only their class
// knows.
#pragma once
#include <ATen/core/Tensor.h>

namespace at::formats {

// Casts what a wrapper wraps to a dtype, ours or stock; undefined for a class that it does not
// know. PyTorch would look a number of ours up in a table that ends before it, on its way to the
// class's __torch_dispatch__.
using WrapperCast = at::Tensor (*)(const at::Tensor& wrapper, c10::ScalarType dtype);
void set_wrapper_cast(WrapperCast cast);

} // namespace at::formats
