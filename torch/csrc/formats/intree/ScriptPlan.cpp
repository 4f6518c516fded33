#include <torch/csrc/formats/intree/ScriptPlan.h>

#include <ATen/FormatTensor.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/formats/ScriptFormats.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/profiling_graph_executor_impl.h>

#include <algorithm>

namespace torch::formats {

static void (*rewrite_node)(jit::Node* node) = nullptr;

void set_node_rewriter(void (*rewrite)(jit::Node* node)) {
  rewrite_node = rewrite;
}

static void rewrite(jit::Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    jit::Node* node = *it++;
    for (jit::Block* inner : node->blocks()) rewrite(inner);
    rewrite_node(node);
  }
}

// Stock operands become ours on the way.
static bool autocast_to_format() {
  return at::autocast::is_autocast_enabled(at::kCPU) && c10::formats::is_format_type(at::autocast::get_autocast_dtype(at::kCPU));
}

const jit::ExecutionPlan* ScriptPlan::find(const std::shared_ptr<jit::Graph>& graph, const jit::Stack& stack, const std::string& function) {
  if (!names_format_ && graph) names_format_ = names_format(*graph);
  if (!names_format_.value_or(false) && !(graph && autocast_to_format())) {
    if (!at::formats::any_format_tensor() || !graph) return nullptr;
    const auto arguments = static_cast<std::ptrdiff_t>(std::min(graph->inputs().size(), stack.size()));
    if (std::none_of(stack.end() - arguments, stack.end(), [](const c10::IValue& value) { return holds_format(value); })) return nullptr;
  }
  if (!plan_) {
    auto copy = graph->copy();
    jit::Inline(*copy);
    if (rewrite_node) rewrite(copy->block());
    jit::runNooptPassPipeline(copy);
    plan_.emplace(copy, function);
  }
  return &*plan_;
}

} // namespace torch::formats
