// Elementwise operators' launches: what TensorIterator found about their operands, as a GPU's kernels take it.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/native/formats/Elementwise.h>
#include <ATen/native/formats/GpuKernels.h>

#include <optional>
#include <vector>

namespace at::formats {

// The call of one of cuda::CudaKernels' elementwise kernels.
cuda::Elementwise gpu_elementwise(const at::TensorIterator& iterator, at::ArrayRef<const Operand*> operands, const Format& result,
                                  cuda::Arithmetic computing, const Seed& seed);

// A NotImplementedError for a format whose arithmetic float64 cannot do.
void expect_narrow(bool narrow, const FormatEntry& entry);

// The operands with numbers in the place of tensors without dimensions that lie on the CPU, beside tensors of a GPU; nothing where there are none.
std::optional<std::vector<Operand>> beside_gpu(at::ArrayRef<const Operand*> operands);

} // namespace at::formats
