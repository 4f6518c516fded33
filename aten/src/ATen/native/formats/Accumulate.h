// Operators that add up products, done by the accumulation policies' own kernels where stock kernels cannot obey.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace at::formats {

// Runs an operator that adds up products or values on the stack if the policy asks for own kernels and all its tensors are of one format. Gives back
// whether it did; else the stack is as it was.
bool run_dot_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace at::formats
