// Puts the table together from the files.
#include <ATen/native/formats/cuda/Kernels.h>

namespace at::formats::cuda {

const CudaKernels& cuda_kernels() {
  static const CudaKernels table = [] {
    CudaKernels k{};
#define TD_FILL(file) fill_##file(k);
    AT_FORALL_CUDA_KERNEL_FILES(TD_FILL)
#undef TD_FILL
    return k;
  }();
  return table;
}

} // namespace at::formats::cuda
