// The loops over codes and machine numbers that a device has: the one place where another device's would come in.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/core/Device.h>

namespace at::formats {

// The table of a device. A NotImplementedError for a device without kernels, which names what was to be done there.
const CpuKernels& kernels(c10::Device device, const char* what);

} // namespace at::formats
