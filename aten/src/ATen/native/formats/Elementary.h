// Elementary functions: computed in float64 whatever the format, and rounded once; of formats of at most 16 bits looked up.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/overlay/Plan.h>

namespace at::formats {

// What a function's results are that have left float64's range though it has no pole there.
enum class Tail : uint8_t {
  Signed,        // infinities and zeros with the sign of the exact result
  NegativeZeros, // zeros without it: all are negative
  ZerosAlone,    // of logaddexp: a 0 of 0 and a smaller number is a little above 0, however small the other's power; elsewhere a 0 is one,
                 // or what cancellation left
};
// The operand that tells which results of logaddexp have left it: the larger one.
at::Tensor larger_operand(const at::Tensor& first, const at::Tensor& second);
// Those results by what the exact ones are, for formats in which nothing overflows or underflows (posits): what became infinite of a finite
// operand is float64's largest number, and what became 0 of one that is not 0 its smallest. Both float64.
at::Tensor within_range(const at::Tensor& result, const at::Tensor& operand, Tail tail);

// Runs a function of one tensor through a table of its results for every code, if the format is narrow, its rounding deterministic, and
// enough elements have come by to pay for the table. Gives back whether it did; else the stack is as it was.
bool run_by_table(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
