// Chooses the code that computes for a device's tensors: this package's kernels, or stock tensor
// operations.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace at::formats {

enum class Backend : uint8_t { Kernels, Stock };

// The back end of a device. Kernels on the CPU, on CUDA devices if the build has kernels for them,
// and for meta tensors (nothing is computed). Stock operations elsewhere. A forced back end
// replaces all.
Backend backend_of(c10::Device device);
inline bool by_stock(c10::Device device) {
  return backend_of(device) == Backend::Stock;
}

// The advice in errors of stock operators that cannot do something there.
inline const char* advice_without_stock(c10::Device device) {
  return device.is_cpu() ? "Call torch_dtypes.set_backend(None) first."
                         : "Move the tensors with .cpu() first.";
}

// Forces one back end for every device and thread of the process, until the next call. Without an
// argument each device has its own again.
void force_backend(std::optional<Backend> backend);

} // namespace at::formats
