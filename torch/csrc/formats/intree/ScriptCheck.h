// Refuses TorchScript calls on number formats inside PyTorch's own tree; each executor has one
// check.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>

namespace torch::formats {

// The executor takes derivatives by formulas that round after every step, separates products from
// sums, and fuses operators that it takes for float32.
class ScriptCheck {
 public:
  // Raises NotImplementedError if the graph, or an argument on the stack, has a format dtype.
  void expect_stock(const std::shared_ptr<jit::Graph>& graph, const jit::Stack& stack);

 private:
  std::optional<bool> names_format_; // of the graph; set at the first call
};

} // namespace torch::formats
