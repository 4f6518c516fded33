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

// Calls torch.ops.torch_dtypes.chop_blocks through the dispatcher. input: float32, contiguous.
// Blocks of `size` (1 to 1024) run along the last dimension; the last of a row may be shorter. A
// block's scale is 2^(floor(log2(absmax)) - emax). It is twice that if absmax's significand in
// [1/2, 1) is above the threshold (or equal to it, if `included`). Exponents are kept within lowest
// to highest.
at::Tensor call_chop_blocks(const at::Tensor& input, std::string_view format,
                            std::optional<std::string_view> rounding, int64_t size, int64_t emax,
                            double threshold, bool included, int64_t lowest, int64_t highest,
                            const std::optional<at::Generator>& generator);

// Gives result the gradient of the identity, for an input that requires one. Returns the graph's
// node, whose name profiles show.
torch::autograd::Node& pass_gradient(const at::Tensor& input, const at::Tensor& result,
                                     const char* name);

// Turns values into a rounding of input, with its gradient and tangent where passes is true
// (everywhere if not given). values must have no other holder and no history.
at::Tensor straight_through(const at::Tensor& input, at::Tensor values,
                            const std::optional<at::Tensor>& passes);

} // namespace at::formats
