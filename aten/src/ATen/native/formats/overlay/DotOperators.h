// Operators that add up products or values, by name, where an accumulation policy asks for own kernels (Accumulate.h).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace at::formats {

// Runs such an operator on the stack if the policy asks for own kernels and all its tensors are of one format. Gives back whether it did; else
// the stack is as it was.
bool run_dot_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace at::formats
