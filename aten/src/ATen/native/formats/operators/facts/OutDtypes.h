// out= of a dtype that the result has not: stock casts the result for some operators, and refuses it for others. The rows of the table say which.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

#include <optional>

namespace at::formats {

// The operator that gives what `op` writes to its one argument out=, if its row has CastsOut.
std::optional<c10::OperatorHandle> result_of(const c10::OperatorHandle& op);

// Runs `functional` and puts its result into out=, where that is a stock tensor beside operands of ours: it gets what is rounded to our
// format. False: there is nothing to cast.
bool run_and_cast(const c10::OperatorHandle& functional, const Plan& plan, torch::jit::Stack* stack);

// The error of OneDtypeOut.
void expect_dtype_of_result(const Plan& plan, const torch::jit::Stack& stack);

} // namespace at::formats
