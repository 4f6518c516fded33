// Operators that only move elements: they move codes, as integers, and touch no more of a tensor
// than the stock kernel does.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Runs a call of such an operator on the codes of tensors of one format. Returns false, and does
// nothing, if codes are not enough: operands of other dtypes, sums in one place, outputs that may
// have to be resized.
bool run_on_codes(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// The same for an operator with the step Gate, on a GPU.
bool run_gated(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
