// Posits, linear takums and fixed point of any width by stock integer operations, in every mode.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <c10/formats/NumberFormat.h>

namespace at::formats {

// values: flat, of float64; for fixed point also int64. words: one for each element in modes that
// draw. Codes as int64.
at::Tensor encode_wide_by_stock(const c10::formats::Format& format, const at::Tensor& values,
                                const StockWords& words);
// Fixed point's codes, before the mask, of magnitudes in units of the last place, held between the
// format's limits. values: what they are of; a NaN is 0.
at::Tensor fixed_codes(const c10::formats::Format& format, const at::Tensor& magnitudes,
                       const at::Tensor& negative, const at::Tensor& values);
// Posits and takums: the number of significand bits in a magnitude's code, which is an int64.
at::Tensor significand_lengths(const c10::formats::Format& format, const at::Tensor& magnitudes);
// int64 as float64. Numbers that do not fit become their odd neighbour.
at::Tensor doubles_of(const at::Tensor& integers);
// codes: of any integer type. Returns float64 values.
at::Tensor decode_wide_by_stock(const c10::formats::Format& format, const at::Tensor& codes);

} // namespace at::formats
