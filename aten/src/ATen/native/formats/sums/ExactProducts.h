// Exact sums of products by stock float64 matrix products, where float64 loses nothing.
#pragma once
#include <ATen/native/formats/sums/DotProducts.h>

#include <vector>

namespace at::formats {

// Tensors of [batch, m, n] whose sums are the dot products, exactly, before they are divided: each
// is a matrix product, and the last one perhaps what the accumulators hold first. All are multiples
// of 2^last, and their sums less than 2^126 of these.
struct ExactParts {
  std::vector<at::Tensor> sums;
  int last{0};
};

// No sums where float64 would need more products than pay, where terms are not there, or, on the
// CPU, not finite.
ExactParts exact_parts(const DotProducts& dots, const FormatEntry& entry);

} // namespace at::formats
