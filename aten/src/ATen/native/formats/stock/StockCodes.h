// Codes made of other codes by stock integer operations: with flipped bits, and the next ones.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/formats/NumberFormat.h>
#include <c10/formats/codec/Philox.h>

namespace at::formats {

// As flipped() of BitFlips.h, with a probability for each code. Codes are dense, as the results,
// which are of the same type.
at::Tensor flip_by_stock(const c10::formats::Format& format, const at::Tensor& codes,
                         double probability, const c10::formats::RandomWords& words);

// As next_code() of NextCode.h. from, towards: the codes' values and other numbers, in float64.
// Codes as int64.
at::Tensor next_codes_by_stock(const c10::formats::Format& format, const at::Tensor& codes,
                               const at::Tensor& from, const at::Tensor& towards);

} // namespace at::formats
