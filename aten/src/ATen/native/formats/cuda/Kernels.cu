// The table, put together from the files.
#include <ATen/native/formats/cuda/Kernels.h>

namespace at::formats::cuda {

const CudaKernels& cuda_kernels() {
  static const CudaKernels table = [] {
    CudaKernels k{};
    fill_codec(k);
    fill_parts(k);
    fill_fused(k);
    fill_arithmetic(k);
    fill_programs(k);
    fill_blocks(k);
    fill_count(k);
    fill_sums(k);
    fill_block_sums(k);
    return k;
  }();
  return table;
}

} // namespace at::formats::cuda
