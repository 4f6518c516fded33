// Dot products of float32 numbers whose every instruction is rounded at random
// (cpu/InstructionKernel.h), over threads.
#pragma once
#include <ATen/native/formats/sums/DotLoops.h>

namespace at::formats {

// Whether the kernels carry out a policy: that of instructions, in float32, stochastic or up-down.
bool rounds_instructions(const Format& result, const Accumulation& policy);

// Fills out, [batches, m, n]. The divisor does not count.
void instruction_dots(const CpuKernels& kernels, const DotOperands<float>& dots,
                      const Format& result, const Accumulation& policy, uint64_t seed, float* out);

} // namespace at::formats
