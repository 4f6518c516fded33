// Rounding in blocks that share a scale, and the straight-through gradient of what is rounded by
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

// By way of the dispatcher, as torch.ops.torch_dtypes.chop_blocks. input: float32, contiguous.
// Blocks of size (1 to 1024) along the last dimension, the last of a row maybe shorter, each with
// the scale 2^(floor(log2(absmax)) - emax), or twice that if absmax's significand in [1/2, 1) lies
// beyond the threshold (or is it, where that is included); exponents from lowest to highest.
at::Tensor call_chop_blocks(const at::Tensor& input, std::string_view format,
                            std::optional<std::string_view> rounding, int64_t size, int64_t emax,
                            double threshold, bool included, int64_t lowest, int64_t highest,
                            const std::optional<at::Generator>& generator);

// Gives result the gradient of the identity, for an input that requires one. The graph has the
// node, whose name profiles show.
torch::autograd::Node& pass_gradient(const at::Tensor& input, const at::Tensor& result,
                                     const char* name);

// values, which are nobody else's and have no history, as a rounding of input: with its gradient
// and tangent, where passes is true if given.
at::Tensor straight_through(const at::Tensor& input, at::Tensor values,
                            const std::optional<at::Tensor>& passes);

} // namespace at::formats
