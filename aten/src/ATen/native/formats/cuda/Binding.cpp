// The GPU's kernels bound to PyTorch's CUDA: streams, errors and generators. (Devices, memory and
// synchronisation are c10's own, by the tensors' device.) Compiled where PyTorch is a CUDA build
// alone; nothing else of this package includes a header of PyTorch's CUDA.
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

// What PyTorch's own launches raise: torch.AcceleratorError with the runtime's words, where the
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

// A word of Philox for the place at which the generator stands, which moves on; while a graph is
// captured, the place where its runs find what the word is made from. (A generator that the graph
// does not know raises.)
Seed draw(const std::optional<at::Generator>& generator, c10::Device device) {
  auto* source = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator(device.index()));
  TORCH_CHECK(!source->device().has_index() || source->device() == device,
              "expected a generator of ", device, ", but got one of ",
              source->device()); // torch.Generator("cuda") has no index, and is any GPU's
  const c10::cuda::CUDAGuard guard(device); // whose stream says whether a graph is captured
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
