// Refuses TorchScript calls that work on number formats, inside PyTorch's own tree: an executor has
// one of these.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>

namespace torch::formats {

// The executor takes derivatives by formulas that round after every step, splits products from
// sums, and fuses what it takes for float32.
class ScriptCheck {
 public:
  // Raises NotImplementedError where the graph, or an argument on the stack, has a format dtype.
  void expect_stock(const std::shared_ptr<jit::Graph>& graph, const jit::Stack& stack);

 private:
  std::optional<bool> names_format_; // the graph; known from the first call on
};

} // namespace torch::formats
