// What each kernel file, compiled for one vector unit, contributes to that unit's table.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>

namespace at::formats::CPU_CAPABILITY {
void fill_codec(CpuKernels& kernels);
void fill_round(CpuKernels& kernels);
void fill_arithmetic(CpuKernels& kernels);
void fill_wide(CpuKernels& kernels);
void fill_mixed(CpuKernels& kernels);
void fill_binary32(CpuKernels& kernels);
void fill_table(CpuKernels& kernels);
void fill_count(CpuKernels& kernels);
void fill_ends(CpuKernels& kernels);

// Of CodecKernel.cpp, for loops that end with it.
void encode_doubles(const Format&, const double* values, void* codes, int64_t n,
                    const RandomWords&);
} // namespace at::formats::CPU_CAPABILITY
