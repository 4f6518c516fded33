// Casts of wrapper subclasses: tensors without memory, whose class alone knows the tensors within.
#pragma once
#include <ATen/core/Tensor.h>

namespace at::formats {

// Casts the tensors within a wrapper to any dtype; returns an undefined tensor for unknown classes.
// Otherwise PyTorch would look up a format's dtype number in a table that ends before it, on the
// way to the class's __torch_dispatch__.
using WrapperCast = at::Tensor (*)(const at::Tensor& wrapper, c10::ScalarType dtype);
void set_wrapper_cast(WrapperCast cast);

} // namespace at::formats
