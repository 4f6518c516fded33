// Forward-mode derivatives: an operator's tangent is the stock formula's result on exact values in
// the compute type, rounded once.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Whether a tensor among an operator's arguments has a tangent.
bool has_tangent(const Plan& plan, const torch::jit::Stack& stack);
// Whether the graph or tangents need a derivative of the call.
bool is_differentiated(const Plan& plan, const torch::jit::Stack& stack);

// Runs the operator above autograd with the stock derivative's formula, registered at AutogradOther
// and at every autograd key.
void run_stock_formula(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack);

// The same, and sets tangents of results and of tensors written in place. The results are those of
// an ordinary call, bit for bit.
void run_with_tangents(const c10::OperatorHandle& op, const Plan& plan, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack);

} // namespace at::formats
