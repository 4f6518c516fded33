#include <ATen/native/formats/operators/StockFormula.h>

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace at::formats {
namespace {

int64_t (*python_depth)() = nullptr;

// The thread's, when the innermost backward pass began. Where C++ began it, nobody said; threads of Python begin at depth 1.
thread_local int64_t depth_before = 1;
thread_local int64_t modes_before = 0;

int64_t modes() {
  return c10::impl::TorchDispatchModeTLS::stack_len();
}

} // namespace

void set_python_depth(int64_t (*depth)()) {
  python_depth = depth;
}

BackwardGuard::BackwardGuard() : depth_(depth_before), modes_(modes_before) {
  if (python_depth) depth_before = python_depth();
  modes_before = modes();
}

BackwardGuard::~BackwardGuard() {
  depth_before = depth_;
  modes_before = modes_;
}

// The engine is C++ and every user's code in it is Python: a hook of a tensor or a node, a saved tensor's unpack hook, the backward of an
// autograd.Function. So a node's own formula calls us at the depth at which backward began. A dispatch mode's handler, which is Python
// too, comes between the formula and us, and is off the stack of modes meanwhile.
bool in_stock_formula() {
  if (!torch::autograd::get_current_node()) return false;
  const int64_t entered = python_depth ? python_depth() - depth_before : 0;
  return entered <= std::max<int64_t>(modes_before - modes(), 0);
}

} // namespace at::formats
