// Counts of a GPU's tensors for torch_dtypes.observe: a kernel adds to tables in the device's
// memory, and the records get the sums when they are read.
#pragma once
#include <ATen/Observation.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/cuda/Kernels.h>

#include <initializer_list>
#include <mutex>

namespace at::formats {

// Counts dense exact values (float32, float64 or integers), in memory order, and the codes of the
// record's format that they were rounded to. A layout's first row has the codes' strides.
void count_codes_on_gpu(const Recorder& seen, const at::Tensor& exact, const void* codes,
                        const cuda::Layout& layout = {});
// Counts float32 or float64 values and the values that they were rounded to.
void count_values_on_gpu(const Recorder& seen, const at::Tensor& exact, const at::Tensor& rounded);

// Tables for launches that count by themselves. While this object exists, no other recorders'
// counts are made on the device. For an empty recorder there is no table, and the launch counts
// nothing.
class GpuCounters {
 public:
  GpuCounters(c10::Device device, std::initializer_list<const Recorder*> recorders);
  cuda::StepCounts of(const Recorder& seen) const;

 private:
  std::unique_lock<std::mutex> lock_;
  c10::Device device_;
};

// Adds the counts of all devices to their records, and frees the tables if nobody observes any
// more.
void hand_over_gpu_counts();

} // namespace at::formats
