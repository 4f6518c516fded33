// Gradients of operators with a format tensor and a stock one that decides the result's dtype (x *
// w with w in float32).
//
// The stock formula would give x a float32 gradient, and the engine would cast it to the container,
// which it takes for x's dtype. So the format operand is cast above autograd, and the gradient
// comes back through that cast.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace at::formats {

// Whether an operator has a stock derivative and can take two tensors.
bool mixes_operands(const c10::OperatorHandle& op);
torch::CppFunction mixed_operands_kernel(const c10::FunctionSchema& schema);

// Whether an operator adds up in a dtype argument: sum(x, dtype=...). Its operand is cast first,
// for the same reason.
bool sums_in_dtype(const c10::OperatorHandle& op);
torch::CppFunction sum_in_dtype_kernel(const c10::FunctionSchema& schema);

} // namespace at::formats
