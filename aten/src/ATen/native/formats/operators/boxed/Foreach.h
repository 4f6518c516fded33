// _foreach_ operators: lists of tensors, each element computed independently.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Runs such a call by PyTorch's own CPU kernel, a loop of single operators; elements with a format
// tensor run this package's operators. So a call has the loop's bits, numbers count with their
// float64 value, and every element keeps its own dtype.
bool run_place_by_place(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
