#include <ATen/native/formats/stock/Backend.h>

#include <ATen/native/formats/gpu/GpuKernels.h>

#include <atomic>

namespace at::formats {

static std::atomic<int> forced{-1}; // a Backend, or -1

Backend backend_of(c10::Device device) {
  if (device.is_meta()) return Backend::Kernels;
  if (const int backend = forced.load(std::memory_order_relaxed); backend >= 0)
    return static_cast<Backend>(backend);
  const bool kernels = device.is_cpu() || (on_gpu(device) && has_gpu_kernels());
  return kernels ? Backend::Kernels : Backend::Stock;
}

void force_backend(std::optional<Backend> backend) {
  forced.store(backend ? static_cast<int>(*backend) : -1, std::memory_order_relaxed);
}

} // namespace at::formats
