// Rounds float tensors to a format and back, without a format tensor in between.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/formats/NumberFormat.h>

#include <optional>
#include <string>
#include <string_view>

namespace at::formats {

// Rounds float32 or float64 values to the format; results have the same type. Then, with
// probability flip_prob each, flips one random significand bit of a finite element's code. Random
// bits come from the generator (a CPU one), else from torch's default.
at::Tensor chop(const at::Tensor& values, const c10::formats::Format& format, double flip_prob,
                const std::optional<at::Generator>& generator);

// The same in the values' own memory, which must be dense.
void chop_in_place(const at::Tensor& values, const c10::formats::Format& format,
                   const std::optional<at::Generator>& generator);

// The same through the dispatcher, as torch.ops.torch_dtypes.chop: differentiable, under
// torch.func's transformations, recorded in graphs. Also takes float16 and bfloat16. The format may
// have any name that Python knows; the rounding mode is given by its name.
at::Tensor call_chop(const at::Tensor& input, std::string_view format,
                     std::optional<std::string_view> rounding, double flip_prob,
                     const std::optional<at::Generator>& generator);

// The names of a format and a mode, as call_chop takes them.
struct NamedFormat {
  std::string name;
  std::optional<std::string> rounding;
};

// Rounds the input to `forward`, and its gradient on the way back to `backward`. One node of
// autograd's graph does the work of call_chop and a hook that calls it.
// fresh: the input is an operator's result that nothing else has seen or saved. Then it may be
// rounded in its own memory, and so may gradients that only the node holds. (A new tensor for every
// layer costs more than its rounding: memory just returned to the system comes back page by page.)
// Without `forward` the input must be fresh.
at::Tensor round_through(const at::Tensor& input, const std::optional<NamedFormat>& forward,
                         const std::optional<NamedFormat>& backward, bool fresh);

// The format named by an operator's arguments. Its mode is `rounding`, else that of this thread's
// surrounding block when the operator runs, else the format's own.
c10::formats::Format format_of_call(std::string_view name,
                                    std::optional<std::string_view> rounding);

// Makes a format from a name and a mode, by Python's grammar of names.
using FormatParser = c10::formats::Format (*)(std::string_view format,
                                              std::optional<std::string_view> rounding);
void set_format_parser(FormatParser parse);

} // namespace at::formats
