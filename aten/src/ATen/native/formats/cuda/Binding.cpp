// Binds the GPU's kernels to PyTorch's CUDA: streams, errors and generators. (c10 has devices,
// memory and synchronisation.) Compiled only for a CUDA build of PyTorch. No other file of this
// package includes a header of PyTorch's CUDA.
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <mutex>

namespace at::formats {
namespace {

cuda::Stream current_stream(c10::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

// Raises as PyTorch's own launches do: torch.AcceleratorError with the runtime's words, if the
// launch itself was refused.
void check(cuda::Status status, const char* what) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, what,
        ": expected a GPU of an architecture that torch_dtypes was built for, but got another (",
        cudaGetErrorString(error), "). Build it anew with TORCH_CUDA_ARCH_LIST set to this GPU's.");
  }
  C10_CUDA_CHECK(error);
}

bool capturing(c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

bool multiplies_bfloat16(c10::Device device) {
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()));
  return major >= 8;
}

// Draws a word of Philox at the generator's offset, and moves the offset on. While a graph is
// captured, the seed holds the addresses from which the graph's runs make the word. (A generator
// that the graph does not know raises.)
Seed draw(const std::optional<at::Generator>& generator, c10::Device device) {
  auto* source = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator(device.index()));
  TORCH_CHECK(!source->device().has_index() || source->device() == device,
              "expected a generator of ", device, ", but got one of ",
              source->device()); // torch.Generator("cuda") has no index and serves any GPU
  const c10::cuda::CUDAGuard guard(device); // its stream tells whether a graph is captured
  const std::lock_guard<std::mutex> lock(source->mutex_);
  const at::PhiloxCudaState state = source->philox_cuda_state(4);
  if (state.captured_) return {state.seed_.ptr, state.offset_.ptr, state.offset_intragraph_};
  return c10::formats::random_word(state.seed_.val, state.offset_.val);
}

const bool bound = [] {
  static constexpr GpuBinding binding{
      .kernels = &cuda::cuda_kernels,
      .current_stream = &current_stream,
      .check = &check,
      .capturing = &capturing,
      .synchronize = &c10::cuda::device_synchronize,
      .multiplies_bfloat16 = &multiplies_bfloat16,
      .draw = &draw,
  };
  bind_gpu(binding);
  return true;
}();

} // namespace
} // namespace at::formats
