// A format of up to 16 bits as tables on a device: rounding looks up the piece of its argument.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <c10/formats/NumberFormat.h>

namespace at::formats {

// Rounding as a step function of a float's bits, as integers in the order of values: -0 before 0,
// NaNs at both ends. Piece i is from start i - 1 on, below start i.
struct RoundingSteps {
  at::Tensor starts; // the first argument of each piece except the first, in order
  at::Tensor codes; // each piece's code, in the storage dtype
  at::Tensor values; // its value, in the argument's type
};

// The steps of the exact codec, in a mode that draws nothing, or for one word. type: the
// argument's, float32 or float64. Results are kept for later calls.
RoundingSteps rounding_steps(const c10::formats::Format& format, uint64_t word,
                             c10::ScalarType type, c10::Device device);

// Finds each element's piece. flat: one dimension.
at::Tensor find_pieces(const RoundingSteps& steps, const at::Tensor& flat);

// The same in the mode `stochastic`, for posits that keep minpos: the piece of the steps toward
// zero, or the next one outwards, by the words. Values must be exact.
at::Tensor draw_pieces(const c10::formats::Format& format, const RoundingSteps& toward_zero,
                       const at::Tensor& flat, const StockWords& words);

// The value of each code, in the order of codes. Results are kept for later calls.
at::Tensor values_of_codes(const c10::formats::Format& format, c10::ScalarType type,
                           c10::Device device);

} // namespace at::formats
