// Launches for tensors on a GPU: which devices have kernels, their table, the stream, and errors of
// a launch. cuda/Binding.cpp has all that needs CUDA's headers; builds without CUDA lack it.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

namespace at::formats {

// CUDA. After set_gpu_on_host() it is the CPU: the GPU's kernels, built by the host's compiler, run
// for CPU tensors.
extern c10::DeviceType gpu_type;

inline bool on_gpu(c10::Device device) {
  return device.type() == gpu_type;
}
// Whether loops over host memory compute for the device.
inline bool on_host(c10::Device device) {
  return device.is_cpu() && !on_gpu(device);
}

inline bool computes(c10::Device device) {
  return device.is_cpu() || on_gpu(device);
}

// Functions that depend on the build's GPU runtime.
struct GpuBinding {
  const cuda::CudaKernels& (*kernels)();
  cuda::Stream (*current_stream)(c10::Device);
  // Raises Python's error for a status other than 0.
  void (*check)(cuda::Status, const char* what);
  // Whether the device's current stream is being captured into a graph.
  bool (*capturing)(c10::Device);
  // Waits for all streams of the current device.
  void (*synchronize)();
  // Whether stock bfloat16 products run there: from Ampere on.
  bool (*multiplies_bfloat16)(c10::Device);
  // Draws 64 bits from the given generator of the device, else from its default one.
  Seed (*draw)(const std::optional<at::Generator>&, c10::Device);
};
// Called by cuda/Binding.cpp when the library is loaded.
void bind_gpu(const GpuBinding& binding);
// Whether the build has kernels for CUDA tensors. A build without them warns at their first use,
// and says how to get some.
bool has_gpu_kernels();

// Raises NotImplementedError if kernels cannot compute for a GPU's tensor; `what` names the
// operation.
void expect_gpu(c10::Device device, const char* what);

// A device's kernels, for launches on its current stream. The device is the current one while this
// object exists.
class Gpu {
 public:
  Gpu(c10::Device device, const char* what);

  const cuda::CudaKernels* operator->() const { return &kernels_; }
  cuda::Stream stream() const { return stream_; }
  void check(cuda::Status status) const;
  void synchronize() const { binding_.synchronize(); }
  // Raises for a format that the kernels do not compute with.
  void expect(const Format& format) const;

 private:
  const char* what_;
  const GpuBinding& binding_;
  c10::DeviceGuard guard_;
  const cuda::CudaKernels& kernels_;
  cuda::Stream stream_;
};

// Keeps memory until launches on the current stream have read it. Needed for memory made in another
// stream's order, which others may free.
void hold_on_stream(const at::Tensor& read);
// The same; memory read in a captured graph is kept for good, because graphs hold no tensors.
void hold_for_launches(const at::Tensor& read);

bool is_captured(c10::Device device); // whether its current stream is captured into a graph
// Raises if the device's stream is being captured: words drawn on the CPU would be the same in each
// run of the graph.
void expect_no_graph(c10::Device device);
bool multiplies_bfloat16(c10::Device device); // see GpuBinding
Seed draw_on_gpu(const std::optional<at::Generator>& generator, c10::Device device);

// Whether the GPU's kernels were compiled for the host (TORCH_DTYPES_GPU_ON_HOST, for tests), and
// whether they compute for CPU tensors now. The setter raises NotImplementedError without such a
// build.
bool built_for_host();
bool gpu_on_host();
void set_gpu_on_host(bool on);

} // namespace at::formats
