// Rounding float tensors to a format and back, without a tensor of the format in between.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/formats/NumberFormat.h>

#include <optional>
#include <string>
#include <string_view>

namespace at::formats {

// values: float32 or float64. Each rounded to the format, as a value of the same type; then, with
// probability flip_prob each, one random significand bit of a finite one's code flipped. Random
// bits come from the generator (a CPU one), else from torch's default.
at::Tensor chop(const at::Tensor& values, const c10::formats::Format& format, double flip_prob,
                const std::optional<at::Generator>& generator);

// The same in the values' own memory, which is dense.
void chop_in_place(const at::Tensor& values, const c10::formats::Format& format,
                   const std::optional<at::Generator>& generator);

// The same by way of the dispatcher, as torch.ops.torch_dtypes.chop: differentiable, in
// torch.func's transformations, recorded in graphs. Values of float16 and bfloat16 too; the format
// by any name that it has in Python, the rounding mode by its name.
at::Tensor call_chop(const at::Tensor& input, std::string_view format,
                     std::optional<std::string_view> rounding, double flip_prob,
                     const std::optional<at::Generator>& generator);

// A format and a mode by their names, as call_chop takes them.
struct NamedFormat {
  std::string name;
  std::optional<std::string> rounding;
};

// The input rounded to `forward`, whose gradient on its way to the input is rounded to `backward`:
// call_chop and a hook that calls it, in one node of autograd's graph. `fresh` says that the input
// is an operator's result which nothing has seen or saved: then it may be rounded in its own
// memory, as gradients are of which the node is the only holder. (A new tensor of every layer costs
// more than its rounding: memory that was just returned to the system comes back page by page.)
// Without `forward` the input is fresh.
at::Tensor round_through(const at::Tensor& input, const std::optional<NamedFormat>& forward,
                         const std::optional<NamedFormat>& backward, bool fresh);

// The format of an operator's arguments. The mode is the one asked for, else the block's on this
// thread when the operator runs, else the format's own.
c10::formats::Format format_of_call(std::string_view name,
                                    std::optional<std::string_view> rounding);

// What makes a format of a name and a mode: Python's grammar of names.
using FormatParser = c10::formats::Format (*)(std::string_view format,
                                              std::optional<std::string_view> rounding);
void set_format_parser(FormatParser parse);

} // namespace at::formats
