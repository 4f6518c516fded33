// What torch_dtypes.observe counts of a GPU's tensors: by a kernel, into tables in the device's
// memory, which reach the records when they are read.
#pragma once
#include <ATen/Observation.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/cuda/Kernels.h>

#include <initializer_list>
#include <mutex>

namespace at::formats {

// Dense exact values (float32, float64 or integers), in the order of their memory, beside the codes
// of the record's format that they were rounded to. Those of a layout lie as its first row says.
void count_codes_on_gpu(const Recorder& seen, const at::Tensor& exact, const void* codes,
                        const cuda::Layout& layout = {});
// Float32's or float64's beside the ones that they were rounded to.
void count_values_on_gpu(const Recorder& seen, const at::Tensor& exact, const at::Tensor& rounded);

// Tables of recorders for launches that count by themselves; no others are counted while this
// lives. Without one, as of a recorder of nothing, a launch counts nothing.
class GpuCounters {
 public:
  GpuCounters(c10::Device device, std::initializer_list<const Recorder*> recorders);
  cuda::StepCounts of(const Recorder& seen) const;

 private:
  std::unique_lock<std::mutex> lock_;
  c10::Device device_;
};

// What all devices have counted, to its records; and their memory back, where nobody observes any
// more.
void hand_over_gpu_counts();

} // namespace at::formats
