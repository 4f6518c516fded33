// Rounding in blocks that share a scale, and the straight-through gradient for roundings made of
// several operators.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

namespace torch::autograd {
struct Node;
}

namespace at::formats {

struct BlockCounts; // chop/BlockTally.h

// Calls torch.ops.torch_dtypes.chop_blocks through the dispatcher. input: float32, contiguous.
// Blocks have size[i] numbers (1 to 1024) along dimension axis[i]; blocks at the end may be
// smaller. axis: one dimension, or the last two.
//
// scale and rule say how a block's scale follows from its largest magnitude:
// - "" and {emax, threshold, included, lowest, highest}: 2^(floor(log2(absmax)) - emax). It is
// twice
//   that if absmax's significand in [1/2, 1) is above the threshold (or equal to it, if included).
//   Exponents are kept within lowest to highest.
// - a format and {full, smallest, brought_to, ceil}: absmax / full, rounded to the format, to
//   nearest or up, at least `smallest`, times a scale of the tensor. That is `above`, or follows
//   from brought_to, the magnitude to which it brings the tensor's largest number; 0: no such
//   scale.
// - "hif4" and {}: HiF4's, with exponents for each four numbers.
at::Tensor call_chop_blocks(const at::Tensor& input, std::string_view format,
                            std::optional<std::string_view> rounding, at::IntArrayRef size,
                            at::IntArrayRef axis, std::string_view scale,
                            c10::ArrayRef<double> rule, const std::optional<at::Tensor>& above,
                            const std::optional<at::Generator>& generator);

// Counts what chop_blocks would do to a contiguous float32 tensor in host memory. Random modes draw
// the same words in each call.
BlockCounts count_blocks(const at::Tensor& values, std::string_view element, at::IntArrayRef size,
                         at::IntArrayRef axis, std::string_view scale, c10::ArrayRef<double> rule);

// Gives result the gradient of the identity, for an input that requires one. Returns the graph's
// node, whose name profiles show.
torch::autograd::Node& pass_gradient(const at::Tensor& input, const at::Tensor& result,
                                     const char* name);

// Turns values into a rounding of input, with its gradient and tangent where passes is true
// (everywhere if not given). values must have no other holder and no history.
at::Tensor straight_through(const at::Tensor& input, at::Tensor values,
                            const std::optional<at::Tensor>& passes);

} // namespace at::formats
