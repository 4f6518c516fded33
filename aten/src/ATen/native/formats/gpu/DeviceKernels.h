// The CPU's loops over codes and machine numbers, for tensors whose memory is the host's. (A GPU's:
// GpuKernels.h.)
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/core/Device.h>

namespace at::formats {

// A NotImplementedError for other devices' tensors, which names what was to be done there.
const CpuKernels& kernels(c10::Device device, const char* what);

// The CPU's loops, for memory that is no tensor's, or only looked at.
const CpuKernels& host_kernels();

// The same error before any work, where neither the CPU's loops nor a GPU's kernels compute for the
// device's tensors. (Nothing is computed of meta tensors.)
void expect_kernels(c10::Device device, const char* what);

// An error in stock's words for operands on two devices, of which kernels would take the pointers.
void expect_one_device(c10::Device a, c10::Device b);

} // namespace at::formats
