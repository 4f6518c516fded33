// A format of up to 16 bits as tables on a device: rounding looks up the piece of its argument.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <ATen/ops/from_blob.h>
#include <c10/formats/NumberFormat.h>

#include <vector>

namespace at::formats {

// A list of numbers on a device. type: that of T.
template <typename T>
at::Tensor on_device(std::vector<T>& numbers, c10::ScalarType type, c10::Device device) {
  const auto n = static_cast<int64_t>(numbers.size());
  const at::Tensor host = at::from_blob(numbers.data(), {n}, at::TensorOptions().dtype(type));
  return device.is_cpu() ? host.clone() : host.to(device);
}

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

// Whether the mode `stochastic` rounds each element to its outer piece: that of the largest word,
// not of the word 0.
at::Tensor draw_outer_pieces(const c10::formats::Format& format, const at::Tensor& flat,
                             const at::Tensor& inner_codes, const at::Tensor& outer_codes,
                             const StockWords& words);

// The value of each code, in the order of codes. Results are kept for later calls.
at::Tensor values_of_codes(const c10::formats::Format& format, c10::ScalarType type,
                           c10::Device device);

} // namespace at::formats
