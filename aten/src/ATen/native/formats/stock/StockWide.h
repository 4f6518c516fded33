// Posits and fixed point of more than 16 bits by stock integer operations, in every mode that draws
// no fraction.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/formats/NumberFormat.h>

namespace at::formats {

// Fixed point that wraps has no such way, nor has the mode `stochastic`.
bool has_wide_way(const c10::formats::Format& format);
// values: flat, of float64. words: an int64 for each element in modes that draw, else undefined.
// Codes as int64.
at::Tensor encode_wide_by_stock(const c10::formats::Format& format, const at::Tensor& values,
                                const at::Tensor& words);
// codes: of any integer type. Values of float64.
at::Tensor decode_wide_by_stock(const c10::formats::Format& format, const at::Tensor& codes);

} // namespace at::formats
