// out= with another dtype than the result: PyTorch casts the result for some operators, and raises
// for others. The rows of the table say which.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

#include <optional>

namespace at::formats {

// Finds the operator whose result an operator with this schema writes to its one argument out=.
std::optional<c10::OperatorHandle> find_functional(const c10::FunctionSchema& schema);

// The step CastOut, for a stock out= with format operands. Runs plan.functional, whose result is
// rounded to the format, and stores it in out=. Returns false if there is nothing to cast.
bool run_and_cast(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// Raises for the step CheckOut.
void expect_dtype_of_result(const Plan& plan, const torch::jit::Stack& stack);

} // namespace at::formats
