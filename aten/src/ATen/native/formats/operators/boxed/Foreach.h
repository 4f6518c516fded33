// _foreach_ operators: lists of tensors, each place for itself.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Runs such a call by stock PyTorch's own kernel for the CPU, a loop of single operators; those of
// places with a tensor of ours are ours. So a call has the loop's bits, numbers count with their
// float64 value, and every place has its own dtype.
bool run_place_by_place(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
