// Dot products rounded at every step by the kernels for float formats (cpu/StepKernel.h), over
// threads.
#pragma once
#include <ATen/native/formats/sums/DotLoops.h>

namespace at::formats {

// As step_dots(). Returns false, with nothing done, if the kernels do not carry out the policy.
template <typename T>
bool tile_dots(const CpuKernels& kernels, const DotOperands<T>& dots, const StepFormats& formats,
               const Accumulation& policy, char* codes);

} // namespace at::formats
