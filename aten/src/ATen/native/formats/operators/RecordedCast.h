// Casts, for who records a graph of what a thread does to tensors of ours.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

namespace at::formats {

// Casts of tensors of ours and to our dtypes are told of on a thread that records a graph, since Python's modes do not see all of them
// (HiddenFromModes): from what, and the result.
using CastRecorder = std::function<void(const at::Tensor&, const at::Tensor&)>;
void set_cast_recorder(CastRecorder recorder);
bool casts_are_recorded();
at::Tensor recorded_cast(const at::Tensor& from, at::Tensor result);

} // namespace at::formats
