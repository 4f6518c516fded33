// What a format would do to numbers that are not rounded to it.
#pragma once
#include <ATen/Observation.h>
#include <ATen/core/Tensor.h>

namespace at::formats {

// Counts a stock floating tensor's values beside what the format's own mode makes of them.
// Stochastic modes take the words of one fixed seed, by place, so that nothing is drawn.
void measure(const at::Tensor& values, const c10::formats::Format& format, const Recorder& seen);

} // namespace at::formats
