// Operators whose floating operands must have one dtype in PyTorch: matrix products, convolutions,
// attention, layers. Also normalisation layers, which may have float32 parameters with an input of
// another dtype.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/elementwise/ResultType.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Raises, as PyTorch does, for a mask of attention that is not bool, float32 (or wider) or of the
// query's dtype.
void expect_mask(const Plan& plan, const torch::jit::IValue& mask, const FormatEntry& entry);

// The result type of a call. Raises for operands of several dtypes if the operator has a rule.
ResultType result_type(const Plan& plan, const torch::jit::Stack& stack, size_t base);

// Whether to cast a stock operand to the type that operands promote to, because the operator needs
// one dtype.
bool takes_promoted(const Plan& plan, const at::Tensor& t, bool written, c10::ScalarType type);
// Casts format tensors, and the stock operands that need it, to a stock type, by casts that
// autograd records.
void cast_operands(const Plan& plan, torch::jit::Stack& stack, size_t base, c10::ScalarType type);

// In an autocast block with a stock dtype, nested with one whose dtype is a format: casts format
// operands as the block has cast others. Returns false for other calls.
bool cast_to_block(const Plan& plan, torch::jit::Stack& stack);

// Normalises a format tensor by float32 parameters and statistics: on exact values, with one
// rounding of the result; statistics stay float32. Returns false for other calls.
bool run_normalisation(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack,
                       Casts casts);

// Registers kernels for composite operators that compare dtypes by the container.
void register_checked_composites();

} // namespace at::formats
