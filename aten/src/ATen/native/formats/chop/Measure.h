// Measures what a format would do to numbers that are not rounded to it.
#pragma once
#include <ATen/Observation.h>
#include <ATen/core/Tensor.h>

namespace at::formats {

// Counts a stock floating tensor's values and their roundings in the format's own mode. Stochastic
// modes take their words from one fixed seed, by index, so nothing is drawn.
void measure(const at::Tensor& values, const c10::formats::Format& format, const Recorder& seen);

} // namespace at::formats
