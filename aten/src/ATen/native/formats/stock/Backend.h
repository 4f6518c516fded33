// The code that computes for a device's tensors: kernels of this package, or stock tensor
// operations.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace at::formats {

enum class Backend : uint8_t { Kernels, Stock };

// Kernels on the CPU, on CUDA devices where the build has kernels for them, and for meta tensors,
// of which nothing is computed. Stock operations elsewhere. Or the one that is forced.
Backend backend_of(c10::Device device);
inline bool by_stock(c10::Device device) {
  return backend_of(device) == Backend::Stock;
}

// One back end for every device and thread of the process, until the next call; none: each device
// has its own again.
void force_backend(std::optional<Backend> backend);

} // namespace at::formats
