// The functions by which each kernel file, compiled for one vector unit, fills that unit's table.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>

namespace at::formats::CPU_CAPABILITY {
#define TD_DECLARE(file) void fill_##file(CpuKernels& kernels);
AT_FORALL_KERNEL_FILES(TD_DECLARE)
#undef TD_DECLARE

// In CodecKernel.cpp; for loops that end by encoding.
void encode_doubles(const Format&, const double* values, void* codes, int64_t n,
                    const RandomWords&);
} // namespace at::formats::CPU_CAPABILITY
