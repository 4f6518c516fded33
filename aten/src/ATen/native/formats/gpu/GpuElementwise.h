// Elementwise operators' launches: what TensorIterator found about their operands, as a GPU's
// kernels take it.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/gpu/GpuKernels.h>

namespace at::formats {

// The call of one of cuda::CudaKernels' elementwise kernels.
cuda::Elementwise gpu_elementwise(const at::TensorIterator& iterator,
                                  at::ArrayRef<const Operand*> operands, const Format& result,
                                  cuda::Arithmetic computing, const Seed& seed);

// A NotImplementedError for a format whose arithmetic float64 cannot do.
void expect_narrow(bool narrow, const FormatEntry& entry);

} // namespace at::formats
