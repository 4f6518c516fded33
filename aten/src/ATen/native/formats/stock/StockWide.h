// Posits and fixed point of more than 16 bits by stock integer operations, in every mode that draws
// no fraction.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <c10/formats/NumberFormat.h>

namespace at::formats {

// False for fixed point that wraps, and for the mode `stochastic`.
bool has_wide_way(const c10::formats::Format& format);
// values: flat, of float64. words: one for each element in modes that draw.
// Codes as int64.
at::Tensor encode_wide_by_stock(const c10::formats::Format& format, const at::Tensor& values,
                                const StockWords& words);
// Fixed point's codes, before the mask, of magnitudes in units of the last place, held between the
// format's limits. values: what they are of; a NaN is 0.
at::Tensor fixed_codes(const c10::formats::Format& format, const at::Tensor& magnitudes,
                       const at::Tensor& negative, const at::Tensor& values);
// codes: of any integer type. Returns float64 values.
at::Tensor decode_wide_by_stock(const c10::formats::Format& format, const at::Tensor& codes);

} // namespace at::formats
