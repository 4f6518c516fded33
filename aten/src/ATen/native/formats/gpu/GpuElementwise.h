// Launches of elementwise operators: TensorIterator's findings about operands, as GPU kernels take
// them.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/gpu/GpuKernels.h>

namespace at::formats {

// Builds the call of an elementwise kernel of cuda::CudaKernels.
cuda::Elementwise gpu_elementwise(const at::TensorIterator& iterator,
                                  at::ArrayRef<const Operand*> operands, const Format& result,
                                  cuda::Arithmetic computing, const Seed& seed);

// Raises NotImplementedError for a format whose arithmetic float64 cannot do.
void expect_narrow(bool narrow, const FormatEntry& entry);

} // namespace at::formats
