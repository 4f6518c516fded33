// The engine of the accumulation policies that stock kernels cannot do: exact sums, and sums
// rounded at every step.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/FormatTensor.h>

namespace at::formats {

// Dot products of a format's values, all operands decoded, contiguous and of one type (float32 or
// float64: dot_type()).
struct DotProducts {
  // [batch, m, k]; undefined: all ones, m = 1, and there are no products, only sums
  at::Tensor a{};
  at::Tensor b{};     // [batch, k, n]
  at::Tensor start{}; // [batch, m, n]: what the accumulator holds first; undefined: 0
  // Terms that are not there (the holes of a strided transposed convolution, which are not zeros
  // that count): 0 in one of these, both uint8.
  at::Tensor present{};      // [batch, k, n]
  at::Tensor present_rows{}; // [batch, m, k]
  int64_t divisor{1}; // of the finished sum, before its last rounding
  // The formats of a and b where they are not the result's; both, or neither. Operands are float64
  // then.
  const FormatEntry* left{nullptr};
  const FormatEntry* right{nullptr};
  bool any_numbers{false}; // operands are float64 numbers of no format; for exact sums
};

template <typename T>
const T* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

// The format whose values all operands are: of two formats, a float that is wide enough for every
// one.
Format format_of_terms(const DotProducts& dots, const FormatEntry& entry);

// The type that decoded operands must have for a policy.
c10::ScalarType dot_type(const FormatEntry& entry, const Accumulation& policy);
// [batch, m, n] of the format. Products are added in the order of k.
at::Tensor dot_products(const DotProducts& dots, const FormatEntry& entry,
                        const Accumulation& policy);
// The same as float64 numbers, before they are rounded to the format; of policies that round at
// every step, whose sums float64 has.
at::Tensor unrounded_dot_products(const DotProducts& dots, const FormatEntry& entry,
                                  const Accumulation& policy);
// [batch, k, n]: the sums of b's first 1, 2, ... k rows.
at::Tensor running_sums(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy);

} // namespace at::formats
