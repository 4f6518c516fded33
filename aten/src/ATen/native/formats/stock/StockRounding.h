// Float formats by stock integer operations on the bits of machine floats, in every mode.
//
// If a format has no more digits and no more range than the machine type, its values are machine
// numbers whose last digits are 0. So a magnitude plus an addend, with its last digits cleared, is
// rounded, and a carry moves into the exponent as it must (c10/formats/codec/FastEncode.h has the
// addends).
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <c10/formats/NumberFormat.h>

namespace at::formats {

// values: flat, of float32 or float64, which has all numbers of the format. words: one for each
// element in modes that draw.
at::Tensor round_floats_by_stock(const c10::formats::Format& format, const at::Tensor& values,
                                 const StockWords& words);
// The same as codes, in integers of the values' width.
at::Tensor encode_floats_by_stock(const c10::formats::Format& format, const at::Tensor& values,
                                  const StockWords& words);
// codes: of any integer type. type: float32 or float64, which has all numbers of the format.
at::Tensor decode_floats_by_stock(const c10::formats::Format& format, const at::Tensor& codes,
                                  c10::ScalarType type);

} // namespace at::formats
