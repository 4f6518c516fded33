// The engine for accumulation policies that stock kernels cannot carry out: exact sums, and sums
// rounded at every step.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/FormatTensor.h>

namespace at::formats {

// Dot products of a format's values. All operands are decoded, contiguous and of one type (float32
// or float64: dot_type()).
struct DotProducts {
  // [batch, m, k]; undefined: sums of b alone, with m = 1
  at::Tensor a{};
  at::Tensor b{};     // [batch, k, n]
  at::Tensor start{}; // [batch, m, n]: initial values of the accumulators; undefined: 0
  // A term is absent where one of these, both uint8, is 0. Absent terms are the gaps of a strided
  // transposed convolution; they do not count even as zeros.
  at::Tensor present{}; // [batch, k, n]
  at::Tensor present_rows{}; // [batch, m, k]
  int64_t divisor{1}; // divides the finished sum before its last rounding
  // The formats of a and b if they are not the result's: both or neither. Operands are then
  // float64.
  const FormatEntry* left{nullptr};
  const FormatEntry* right{nullptr};
  bool any_numbers{false}; // true: operands are any float64 numbers; for exact sums
};

template <typename T>
const T* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

// The format that has the values of all operands. For two formats it is a float wide enough for
// both.
Format format_of_terms(const DotProducts& dots, const FormatEntry& entry);

// The type that decoded operands must have for a policy.
c10::ScalarType dot_type(const FormatEntry& entry, const Accumulation& policy);
// Returns [batch, m, n] in the format. Products are added in the order of k.
at::Tensor dot_products(const DotProducts& dots, const FormatEntry& entry,
                        const Accumulation& policy);
// The same as float64 numbers, before rounding to the format. Only for policies that round every
// step, whose sums float64 has.
at::Tensor unrounded_dot_products(const DotProducts& dots, const FormatEntry& entry,
                                  const Accumulation& policy);
// [batch, k, n]: the sums of b's first 1, 2, ... k rows.
at::Tensor running_sums(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy);

} // namespace at::formats
