#include <torch/csrc/formats/intree/ScriptCheck.h>

#include <ATen/FormatTensor.h>
#include <torch/csrc/formats/scripts/ScriptFormats.h>

#include <algorithm>

namespace torch::formats {

static bool any_holds_format(const jit::Graph& graph, const jit::Stack& stack) {
  const auto arguments = static_cast<std::ptrdiff_t>(std::min(graph.inputs().size(), stack.size()));
  return std::any_of(stack.end() - arguments, stack.end(),
                     [](const c10::IValue& value) { return holds_format(value); });
}

void ScriptCheck::expect_stock(const std::shared_ptr<jit::Graph>& graph, const jit::Stack& stack) {
  if (!graph) return;
  if (!names_format_) names_format_ = names_format(*graph);
  const bool works_on_formats = *names_format_ || autocast_to_format() ||
      (at::formats::any_format_tensor() && any_holds_format(*graph, stack));
  TORCH_CHECK_NOT_IMPLEMENTED(!works_on_formats,
                              "expected stock dtypes in a call of TorchScript, but got a format "
                              "dtype; run the eager code, or ",
                              "convert a float32 model by torch_dtypes.quantize_");
}

} // namespace torch::formats
