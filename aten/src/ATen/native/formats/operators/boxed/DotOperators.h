// Operators that add up products or values, by name, where an accumulation policy asks for own kernels (Accumulate.h).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/facts/Plan.h>

#include <set>
#include <string>

namespace at::formats {

// Runs such an operator on the stack if the policy asks for own kernels and all its tensors are of one format. Gives back whether it did; else
// the stack is as it was.
bool run_dot_operator(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// The names of those that have own kernels, for tests: the table's `Products`.
std::set<std::string> dot_operators();

} // namespace at::formats
