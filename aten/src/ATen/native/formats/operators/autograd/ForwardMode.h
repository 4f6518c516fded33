// Forward-mode derivatives: an operator's tangent is what the stock formula makes of the exact
// values in the compute type, rounded once.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Whether a tensor among an operator's arguments has a tangent.
bool has_tangent(const Plan& plan, const torch::jit::Stack& stack);
// Whether a derivative of the call is asked for: by the graph or by tangents.
bool is_differentiated(const Plan& plan, const torch::jit::Stack& stack);

// Runs the operator above autograd with the stock derivative's formula, which sits at AutogradOther
// as at every autograd key.
void run_stock_formula(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack);

// The same, and gives tangents to results and to what is written in place. The results themselves
// are the ordinary ones, bit for bit.
void run_with_tangents(const c10::OperatorHandle& op, const Plan& plan, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack);

} // namespace at::formats
