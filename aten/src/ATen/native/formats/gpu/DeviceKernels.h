// The CPU's loops over codes and machine numbers, for tensors in host memory. (For a GPU:
// GpuKernels.h.)
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/core/Device.h>

namespace at::formats {

// Raises NotImplementedError for tensors of other devices; `what` names the operation.
const CpuKernels& kernels(c10::Device device, const char* what);

// The CPU's loops, for memory without a tensor, or memory that is only read.
const CpuKernels& host_kernels();

// Raises the same error before any work, if neither the CPU's loops nor a GPU's kernels handle the
// device. (meta tensors pass: nothing is computed.)
void expect_kernels(c10::Device device, const char* what);

// Raises PyTorch's own error for operands on two devices, because kernels would take their
// pointers.
void expect_one_device(c10::Device a, c10::Device b);

} // namespace at::formats
