// Indices of the terms of a dot product.
#pragma once
#include <ATen/native/formats/cuda/Kernels.h>

namespace at::formats::cuda {

// The indices of result i of a shape, and of its terms.
struct Places {
  DotShape shape;
  const uint8_t *present, *present_rows;

  TD_HOST_DEVICE int64_t row(int64_t i) const { return i / shape.n; } // batch * m + line
  TD_HOST_DEVICE int64_t left(int64_t i, int64_t term) const { return row(i) * shape.k + term; }
  TD_HOST_DEVICE int64_t right(int64_t i, int64_t term) const {
    return (row(i) / shape.m * shape.k + term) * shape.n + i % shape.n;
  }
  TD_HOST_DEVICE bool has_row(int64_t i, int64_t term) const {
    return !present_rows || present_rows[left(i, term)];
  }
  TD_HOST_DEVICE bool has(int64_t i, int64_t term) const {
    return !present || present[right(i, term)];
  }
};

} // namespace at::formats::cuda
