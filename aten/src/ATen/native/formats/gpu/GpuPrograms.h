// Programs over small tensors on a GPU, many in one launch.
#pragma once
#include <ATen/native/formats/elementwise/BlockProgram.h>
#include <ATen/native/formats/gpu/GpuKernels.h>

namespace at::formats {

class GpuPrograms {
 public:
  // Takes a run of n elements for a common launch, if possible. data: by register, the memory of
  // dense tensors with one layout, or nullptr. Returns false for large tensors, random rounding and
  // observed runs.
  bool take(const Program& program, const FormatEntry& entry, c10::Device device, char* const* data,
            int64_t n);
  // Launches the runs that were taken since the last launch.
  void launch();

 private:
  const Program* program_{nullptr};
  const FormatEntry* entry_{nullptr};
  c10::Device device_{c10::kCPU};
  cuda::Programs waiting_{};
};

} // namespace at::formats
