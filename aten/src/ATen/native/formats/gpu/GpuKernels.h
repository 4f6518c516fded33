// A GPU's launches for tensors: whose tensors they compute, the table of kernels, the stream, what
// a launch's status means. Everything of CUDA's that is more than a pointer stands in
// cuda/Binding.cpp, which builds without CUDA lack.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

namespace at::formats {

// CUDA; or the CPU, while the GPU's kernels as the host's compiler makes them run for its tensors
// (set_gpu_on_host).
extern c10::DeviceType gpu_type;

inline bool on_gpu(c10::Device device) {
  return device.type() == gpu_type;
}
// Whether loops over host memory compute for the device's tensors.
inline bool on_host(c10::Device device) {
  return device.is_cpu() && !on_gpu(device);
}

inline bool computes(c10::Device device) {
  return device.is_cpu() || on_gpu(device);
}

// What a build's runtime has to say.
struct GpuBinding {
  const cuda::CudaKernels& (*kernels)();
  cuda::Stream (*current_stream)(c10::Device);
  // An error of Python's for a status other than 0.
  void (*check)(cuda::Status, const char* what);
  // Whether the device's current stream is being captured into a graph.
  bool (*capturing)(c10::Device);
  // Waits for all streams of the current device.
  void (*synchronize)();
  // Whether stock products of bfloat16 run there: not before Ampere.
  bool (*multiplies_bfloat16)(c10::Device);
  // 64 bits of a generator of the device, its default one where none is given.
  Seed (*draw)(const std::optional<at::Generator>&, c10::Device);
};
// For cuda/Binding.cpp, when the library is loaded.
void bind_gpu(const GpuBinding& binding);
// Whether there are kernels for CUDA tensors: a build without says at their first use how to get
// some.
bool has_gpu_kernels();

// A NotImplementedError where a GPU's tensor cannot be computed with, which names what was to be
// done.
void expect_gpu(c10::Device device, const char* what);

// A device's kernels, for launches on its current stream; the device is the current one while this
// lives.
class Gpu {
 public:
  Gpu(c10::Device device, const char* what);

  const cuda::CudaKernels* operator->() const { return &kernels_; }
  cuda::Stream stream() const { return stream_; }
  void check(cuda::Status status) const;
  void synchronize() const { binding_.synchronize(); }
  // An error for a format that the kernels do not compute with.
  void expect(const Format& format) const;

 private:
  const char* what_;
  const GpuBinding& binding_;
  c10::DeviceGuard guard_;
  const cuda::CudaKernels& kernels_;
  cuda::Stream stream_;
};

// What launches on the current stream read, and others may drop that was made in another's order:
// its memory stays until they have run.
void hold_on_stream(const at::Tensor& read);
// The same, and for good where they are captured, for graphs hold no tensors.
void hold_for_launches(const at::Tensor& read);

bool is_captured(c10::Device device); // its current stream, into a graph
// An error where the device's stream is being captured, for the CPU's words would be the same in
// each of the graph's runs.
void expect_no_graph(c10::Device device);
bool multiplies_bfloat16(c10::Device device); // as GpuBinding has it
Seed draw_on_gpu(const std::optional<at::Generator>& generator, c10::Device device);

// Whether the GPU's kernels were compiled for the host (TORCH_DTYPES_GPU_ON_HOST, for tests), and
// whether they compute for CPU tensors now; a NotImplementedError where they were not.
bool built_for_host();
bool gpu_on_host();
void set_gpu_on_host(bool on);

} // namespace at::formats
