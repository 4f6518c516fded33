// Whether a call comes from stock PyTorch's C++ code (a backward formula, a composite operator), or
// from user code that runs within it.
#pragma once
#include <cstdint>
#include <optional>

namespace at::formats {

// Within a formula, a stock operand together with a format gradient is a zero or a one made from
// its options(), or the operand of an in-place operator. The gradient then keeps its format. User
// code (hooks, torch.autograd.Function, recomputation by a checkpoint) mixes dtypes as it does
// elsewhere.
bool in_stock_formula();

// The number of running calls from C++ to Python, and of dispatch modes, when stock code began on
// this thread.
struct PlaceInPython {
  int64_t depth, modes;
};

// Exists while a backward pass begun on this thread runs; its calls of Python are counted from
// here. With CUDA kernels, and format tensors or an override, the whole pass runs on this thread,
// as on the CPU: the engine's own threads know no overrides of modes and policies.
class BackwardGuard {
 public:
  BackwardGuard();
  ~BackwardGuard();
  BackwardGuard(const BackwardGuard&) = delete;
  BackwardGuard& operator=(const BackwardGuard&) = delete;

 private:
  PlaceInPython before_;
  bool alone_; // without the engine's threads for other devices
};

// Exists while a stock composite operator runs that passes its operands' dtype, the container's, to
// other operators.
class CompositeGuard {
 public:
  CompositeGuard();
  ~CompositeGuard();
  CompositeGuard(const CompositeGuard&) = delete;
  CompositeGuard& operator=(const CompositeGuard&) = delete;

 private:
  std::optional<PlaceInPython> before_;
};

// Whether stock code passed the dtype: a formula, or such an operator. A dispatch mode's handler
// may pass it on, as FlopCounterMode's does.
bool dtype_is_stock_codes();

// Sets a function for the number of running calls from C++ to Python on this thread. The Python
// layer sets it.
void set_python_depth(int64_t (*depth)());

} // namespace at::formats
