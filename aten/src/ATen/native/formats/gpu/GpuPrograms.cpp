#include <ATen/native/formats/gpu/GpuPrograms.h>

#include <ATen/FormatRounding.h>
#include <ATen/Observation.h>

#include <algorithm>

namespace at::formats {

// For more elements, one launch an operator costs less than the program's float64 arithmetic.
static constexpr int64_t kSmall = int64_t{1} << 16;

bool GpuPrograms::take(const Program& program, const FormatEntry& entry, c10::Device device,
                       char* const* data, int64_t n) {
  const Format format = rounding_format(entry);
  const bool drawn = c10::formats::is_stochastic(format.rounding);
  if (n > kSmall || drawn || observing() ||
      program.instructions.size() > cuda::Programs::kMostSteps)
    return false;
  // It has no memory: with null pointers, the other runs' registers would look unused.
  if (n == 0) return true;
  if (&program != program_ || &entry != entry_ || device != device_ ||
      waiting_.runs == cuda::Programs::kMostRuns) {
    launch();
    program_ = &program;
    entry_ = &entry;
    device_ = device;
    waiting_.format = format;
    waiting_.count = static_cast<int>(program.instructions.size());
    std::copy(program.instructions.begin(), program.instructions.end(), waiting_.steps);
    waiting_.reads = 0;
    for (int r = 0; r < kTensors; ++r) waiting_.reads |= uint32_t{data[r] != nullptr} << r;
  }
  std::copy_n(data, kTensors, waiting_.at[waiting_.runs]);
  waiting_.end[waiting_.runs] = (waiting_.runs == 0 ? 0 : waiting_.end[waiting_.runs - 1]) + n;
  ++waiting_.runs;
  return true;
}

void GpuPrograms::launch() {
  if (waiting_.runs == 0) return;
  const Gpu gpu(device_, "an optimizer's step");
  gpu.expect(waiting_.format);
  gpu.check(gpu->programs(waiting_, gpu.stream()));
  waiting_.runs = 0;
}

} // namespace at::formats
