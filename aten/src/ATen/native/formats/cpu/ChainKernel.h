// Arithmetic whose results float32 has to enough digits as they are.
//
// A table of its own beside Kernels.h, chosen with that one.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>

namespace at::formats {

struct ChainKernels {
  // The nearest float32. out may be an input.
  void (*binary_nearest)(BinaryOp, const float* a, const float* b, float* out, int64_t n);
};

// Of the vector unit that a table of CpuKernels is for, by its name.
const ChainKernels& chain_kernels(const char* capability);

} // namespace at::formats
