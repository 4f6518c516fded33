// Operators of one tensor by tables of their results.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Runs a function of one tensor through a table of its results for every code, if the format is
// narrow, its rounding deterministic, and enough elements have come by to pay for the table. Gives
// back whether it did; else the stack is as it was.
bool run_by_table(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
