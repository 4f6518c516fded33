// Exact sums of products by stock float64 matrix products, if float64 loses nothing.
#pragma once
#include <ATen/native/formats/sums/DotProducts.h>

#include <vector>

namespace at::formats {

// Tensors of [batch, m, n] whose sum is exactly the dot products before division. Each is a matrix
// product; the last one may be the accumulators' start. All are multiples of 2^last, and their sums
// less than 2^126 times that.
struct ExactParts {
  std::vector<at::Tensor> sums;
  int last{0};
};

// Returns no sums if float64 needs too many products, if terms are absent or, on the CPU, not
// finite.
ExactParts exact_parts(const DotProducts& dots, const FormatEntry& entry);

} // namespace at::formats
