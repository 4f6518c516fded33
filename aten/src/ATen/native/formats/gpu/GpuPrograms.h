// Programs on a GPU: those of small tensors, many to a launch.
#pragma once
#include <ATen/native/formats/elementwise/BlockProgram.h>
#include <ATen/native/formats/gpu/GpuKernels.h>

namespace at::formats {

class GpuPrograms {
 public:
  // Whether a run of n elements is among those that are launched together: tensors in the device's
  // memory, dense and alike, by register, nullptr where there is none. Large ones are not, nor what
  // rounds at random or is observed.
  bool take(const Program& program, const FormatEntry& entry, c10::Device device, char* const* data,
            int64_t n);
  // What has been taken and not launched yet.
  void launch();

 private:
  const Program* program_{nullptr};
  const FormatEntry* entry_{nullptr};
  c10::Device device_{c10::kCPU};
  cuda::Programs waiting_{};
};

} // namespace at::formats
