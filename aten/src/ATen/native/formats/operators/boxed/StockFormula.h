// Whether a call comes from stock PyTorch's own code in C++ (a backward formula, a composite
// operator), or from code of a user's that runs in the middle of it.
#pragma once
#include <cstdint>
#include <optional>

namespace at::formats {

// In a formula, what meets a gradient of ours is a zero or a one made from its options(), or the
// operand of an in-place operator, and the gradient stays ours. A user's code (hooks,
// torch.autograd.Function, what a checkpoint computes again) mixes dtypes as it does elsewhere.
bool in_stock_formula();

// How many calls of Python by C++ were under way, and how many dispatch modes, when something of
// stock's began on this thread.
struct PlaceInPython {
  int64_t depth, modes;
};

// Held while a backward pass that was begun on this thread runs: what it calls in Python is counted
// from here. Where there are kernels for CUDA, and tensors of ours or an override, all of it runs
// on this thread, as on the CPU: the engine's own threads know no override of modes and policies.
class BackwardGuard {
 public:
  BackwardGuard();
  ~BackwardGuard();
  BackwardGuard(const BackwardGuard&) = delete;
  BackwardGuard& operator=(const BackwardGuard&) = delete;

 private:
  PlaceInPython before_;
  bool alone_; // without the engine's threads for other devices than the CPU
};

// Held while a composite operator of stock's runs that names its operands' dtype to other
// operators, which is the container's.
class CompositeGuard {
 public:
  CompositeGuard();
  ~CompositeGuard();
  CompositeGuard(const CompositeGuard&) = delete;
  CompositeGuard& operator=(const CompositeGuard&) = delete;

 private:
  std::optional<PlaceInPython> before_;
};

// Whether a dtype was put by stock's code: a formula, or such an operator. A dispatch mode's
// handler hands it on, as FlopCounterMode's does.
bool dtype_is_stock_codes();

// How many calls of Python by C++ are under way on this thread; the Python layer says so.
void set_python_depth(int64_t (*depth)());

} // namespace at::formats
