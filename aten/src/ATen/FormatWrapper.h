// Format tensors without memory: the bodies of wrapper subclasses, whose Python class runs
// operators on the wrapped tensors (DTensor).
#pragma once
#include <ATen/FormatTensor.h>

namespace at::formats {

at::Tensor format_without_memory(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                 const FormatEntry& entry, c10::Device device);

// Whether a tensor's Python class runs its operators, be it a format tensor or a stock one.
inline bool is_wrapper(const at::TensorBase& t) {
  return t.unsafeGetTensorImpl()->is_python_dispatch();
}

} // namespace at::formats
