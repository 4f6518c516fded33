// out= of a dtype that the result has not: stock casts the result for some operators, and refuses
// it for others. The rows of the table say which.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

#include <optional>

namespace at::formats {

// The operator that gives what an operator with this schema writes to its one argument out=.
std::optional<c10::OperatorHandle> find_functional(const c10::FunctionSchema& schema);

// The step CastOut: runs plan.functional and puts its result into out=, where that is a stock
// tensor beside operands of ours. out= gets what is rounded to our format. False: there is nothing
// to cast.
bool run_and_cast(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// The error of the step CheckOut.
void expect_dtype_of_result(const Plan& plan, const torch::jit::Stack& stack);

} // namespace at::formats
