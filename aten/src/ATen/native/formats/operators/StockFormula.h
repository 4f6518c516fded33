// Whether a call comes from a backward formula of stock PyTorch, or from code of a user's that runs in the middle of backward.
#pragma once
#include <cstdint>

namespace at::formats {

// In a formula, what meets a gradient of ours is a zero or a one made from its options(), or the operand of an in-place operator, and the
// gradient stays ours. A user's code (hooks, torch.autograd.Function, what a checkpoint computes again) mixes dtypes as it does elsewhere.
bool in_stock_formula();

// Held while a backward pass that was begun on this thread runs: what it calls in Python is counted from here.
class BackwardGuard {
 public:
  BackwardGuard();
  ~BackwardGuard();
  BackwardGuard(const BackwardGuard&) = delete;
  BackwardGuard& operator=(const BackwardGuard&) = delete;

 private:
  int64_t depth_, modes_;
};

// How many calls of Python by C++ are under way on this thread; the Python layer says so.
void set_python_depth(int64_t (*depth)());

} // namespace at::formats
