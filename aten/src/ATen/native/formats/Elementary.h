// Elementary functions: computed in float64 whatever the format, and rounded once; of formats of at most 16 bits looked up.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/overlay/BoxedCall.h>

#include <string>

namespace at::formats {

// Whether an operator is one, by its base name ("aten::tanh", "aten::tanh_").
bool is_elementary(const std::string& name);

// Whether its results may leave float64's range though the function has no pole there.
bool leaves_range(const std::string& name);
// The operand that tells which results have left it: the first, of logaddexp the larger one.
at::Tensor deciding_operand(const std::string& name, const at::Tensor& first, const at::Tensor& second);
// Those results by what the exact ones are, for formats in which nothing overflows or underflows (posits): what became infinite of a finite
// operand is float64's largest number, and what became 0 of one that is not 0 its smallest. Both float64.
at::Tensor within_range(const std::string& name, const at::Tensor& result, const at::Tensor& operand);

// Whether run_by_table() may do it: elementary functions, and some that only select or change signs.
bool has_table(const std::string& name);

// Runs a function of one tensor through a table of its results for every code, if the format is narrow, its rounding deterministic, and
// enough elements have come by to pay for the table. Gives back whether it did; else the stack is as it was.
bool run_by_table(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
