// Tensors with a format and no memory: the bodies of wrapper subclasses, whose Python class runs
// operators on what it wraps (DTensor).
#pragma once
#include <ATen/FormatTensor.h>

namespace at::formats {

at::Tensor format_without_memory(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                 const FormatEntry& entry, c10::Device device);

// Whether operators on a tensor, ours or stock, are its Python class's.
inline bool is_wrapper(const at::TensorBase& t) {
  return t.unsafeGetTensorImpl()->is_python_dispatch();
}

} // namespace at::formats
