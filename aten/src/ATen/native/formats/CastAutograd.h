// The cast between any two dtypes of which one is ours, above autograd.
#pragma once
#include <ATen/FormatTensor.h>

namespace at::formats {

at::Tensor to_copy_autograd(const at::Tensor& self, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                            std::optional<c10::Device> device, std::optional<bool> pin, bool non_blocking,
                            std::optional<c10::MemoryFormat> memory_format);

} // namespace at::formats
