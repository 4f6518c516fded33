// Operators whose floating operands stock wants in one dtype (matrix products, convolutions, attention, layers), and normalisation layers,
// which may have float32 parameters beside an input of another dtype.
#pragma once
#include <ATen/native/formats/overlay/BoxedCall.h>

namespace at::formats {

OperandRule operand_rule(const std::string& op);

// The error for operands of several dtypes, if mixed_operands() does not let them promote.
void expect_one_dtype(const Plan& plan, const torch::jit::Stack& stack, size_t base);

// A normalisation of an input of ours by float32 parameters and statistics: on the exact values, and the result is rounded once; statistics
// stay float32. False: another call.
bool run_normalisation(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack, BoxedCall::Casts casts);

// Kernels for composite operators that compare dtypes by the container.
void register_checked_composites();

} // namespace at::formats
