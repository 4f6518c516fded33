#include <torch/csrc/formats/intree/ScriptPlan.h>

#include <ATen/FormatTensor.h>
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

// JIT's own autocast has written the dtype of the block in which a function was first called into its graph. Operators ask autocast by themselves;
// only blocks in the script's text need it.
static void drop_autocast(jit::Block* block) {
  static const auto lower = c10::Symbol::fromQualString("aten::_autocast_to_reduced_precision");
  static const auto full = c10::Symbol::fromQualString("aten::_autocast_to_full_precision");
  for (auto it = block->nodes().begin(); it != block->nodes().end(); ++it) {
    for (jit::Block* inner : it->blocks()) drop_autocast(inner);
    if (it->kind() != lower && it->kind() != full) continue;
    it->output()->replaceAllUsesWith(it->input(0));
    it.destroyCurrent();
  }
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
    if (autocast_to_format() && !has_blocks(copy->block())) drop_autocast(copy->block());
    if (rewrite_node) rewrite(copy->block());
    jit::runNooptPassPipeline(copy);
    plan_.emplace(copy, function);
  }
  return &*plan_;
}

} // namespace torch::formats
