// Runs operators of one tensor by tables of their results.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Runs a function of one tensor by a table of its results for every code. The format must be
// narrow, its rounding deterministic, and enough elements must have been computed to pay for the
// table. Otherwise returns false and leaves the stack unchanged.
bool run_by_table(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
