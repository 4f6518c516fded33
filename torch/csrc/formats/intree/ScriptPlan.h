// How TorchScript runs a call that works on number formats, inside PyTorch's own tree: an executor has one of these.
#pragma once
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <memory>
#include <optional>
#include <string>

namespace torch::formats {

// Its own executor would take derivatives by formulas that round after every step, split products from sums, and fuse what it takes for float32.
// So such a call runs a copy of the graph, operator by operator as Python would.
class ScriptPlan {
 public:
  // The plan of a call with the arguments on the stack; nullptr where it does not work on formats.
  const jit::ExecutionPlan* find(const std::shared_ptr<jit::Graph>& graph, const jit::Stack& stack, const std::string& function);

 private:
  std::optional<bool> names_format_; // the graph; known from the first call on
  std::optional<jit::ExecutionPlan> plan_;
};

// How masks of attention are rewritten in such a graph: Python knows.
void set_node_rewriter(void (*rewrite)(jit::Node* node));

} // namespace torch::formats
