// Rounding float tensors to a format and back, without a tensor of the format in between.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/NumberFormat.h>

#include <optional>

namespace at::formats {

// values: float32 or float64. Each rounded to the format, as a value of the same type; then, with probability flip_prob each, one random
// significand bit of a finite one's code flipped. Random bits come from the generator (a CPU one), else from torch's default.
at::Tensor chop(const at::Tensor& values, const c10::formats::Format& format, double flip_prob, const std::optional<at::Generator>& generator);

} // namespace at::formats
